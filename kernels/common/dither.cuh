// Reproducible dither, bit-identical to the CPU implementation.
//
// The noise depends only on the key of a row of values (computed from the seed and the indices of the
// row) and on the index within the row. SplitMix64 (Steele, Lea and Flood 2014).
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

/// Two independent values, uniform in (-1/2, 1/2), for the complex value `index` of the row with
/// this key: for `place` = key + index DITHER_STEP.
__device__ __forceinline__ c32 uniform_pair(u64 place) {
    u64 z = place;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    // Uses the upper 23 bits of each 32-bit part of z ^ (z >> 31).
    const u32 high = z >> 32, low = static_cast<u32>(z) ^ (high << 1);
    // These bits are the fraction of a number from 1 to 2; the same shift inserts the exponent. All
    // steps from there to the middle of the interval around 0 are exact.
    constexpr float half_a_step = 0.5f / 8388608.0f;
    auto uniform = [](u32 half) {
        return (__uint_as_float(__funnelshift_r(half, 0x3f800000 >> 23, 9)) - 1.5f) + half_a_step;
    };
    return {uniform(low), uniform(high)};
}
