// Reproducible dither: the numbers of the CPU form, bit by bit.
//
// Noise depends on nothing but the key of a row of values (made on the host from the seed, the
// number of the spectrum and the polarisation) and the index within the row. SplitMix64 (Steele,
// Lea and Flood 2014).
#pragma once
#include "types.cuh"

constexpr u64 DITHER_STEP = 0x9e3779b97f4a7c15;

/// Two independent values, uniform in (-1/2, 1/2), for the complex value `index` of the row with
/// this key: for `place` = key + index DITHER_STEP.
__device__ __forceinline__ c32 uniform_pair(u64 place) {
    u64 z = place;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    // 23 bits as the fraction of a number from 1 to 2: one shift brings its exponent with it. Every
    // step from there to the middle of its interval around 0 is exact.
    constexpr float half_a_step = 0.5f / 8388608.0f;
    auto uniform = [](u32 bits) {
        return (__uint_as_float(__funnelshift_r(bits, 0x3f800000 >> 23, 9)) - 1.5f) + half_a_step;
    };
    return {uniform((u32)z), uniform((u32)(z >> 32))};
}
