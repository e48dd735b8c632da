// Reproducible dither, bit-identical to the CPU implementation.
//
// The noise depends only on the key of a row of values (computed from the seed and the indices of the
// row) and on the index within the row. SplitMix64 (Steele, Lea and Flood 2014) makes the keys; the noise of a
// complex value takes nine instructions, because one hash of 32 bits serves both parts.
#pragma once
#include "types.cuh"

constexpr u64 DITHER_STEP = 0x9e3779b97f4a7c15;

/// Hash of `z`.
__device__ __forceinline__ u64 mixed(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/// Key of part `part` of an object with the key `key`.
__device__ __forceinline__ u64 key_of_part(u64 key, u64 part) {
    return mixed((key + DITHER_STEP) ^ mixed(part + DITHER_STEP));
}

/// Key of the row of spectrum `spectrum` of polarisation `pol`.
__device__ __forceinline__ u64 dither_key(u64 seed, u64 spectrum, u64 pol) {
    return key_of_part(key_of_part(mixed(seed + DITHER_STEP), spectrum), pol);
}

/// 128.5 plus the `uniform_pair` of the key and index with key + index DITHER_STEP = `place`.
__device__ __forceinline__ c32 offset_uniform_pair(u64 place) {
    auto fold = [](u64 z) { return static_cast<u32>(z) ^ static_cast<u32>(z >> 32); };
    u64 product;  // The compiler makes two instructions of it in C++.
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(fold(place)), "n"(0x846ca68b));
    const u32 bits = fold(product) | 0x00010001;
    // 16 bits enter the fraction of 128, whose unit is 2^-16.
    constexpr u32 base = 0x43000000;
    return {__uint_as_float(__byte_perm(bits, base, 0x7610)),
            __uint_as_float(__byte_perm(bits, base, 0x7632))};
}

/// Two independent values, uniform in (-1/2, 1/2), for the complex value `index` of the row with this key: odd
/// multiples of 2^-16.
__device__ __forceinline__ c32 uniform_pair(u64 key, u32 index) {
    const c32 pair = offset_uniform_pair(key + index * DITHER_STEP);
    return {pair.x - 128.5f, pair.y - 128.5f};  // exact
}
