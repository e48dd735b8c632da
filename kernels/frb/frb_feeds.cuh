// Voltages of feeds, as frames have them: integers become halves by their bits.
//
// BITS of each part: 4, 8, or 16 for halves.
#pragma once
#include "half_matrix.cuh"

constexpr int FEEDS = 256;
constexpr int POINTS = 512;
/// Bytes of a feed with both parts.
constexpr int FEED_BYTES = BITS / 4;

/// One part each of two feeds: of the first in the lower half.
struct Parts {
    u32 re, im;
};

/// Halves that are too large by what `less_than_raw` adds, of values that are 0 unless all bits of `there` are set. Of
/// 4-bit feeds bytes 0 and 2 of `pair` are used, of 8-bit ones all. An integer of n bits becomes one of
/// 1024 .. 1024 + 2^n, or 64 .. 80 where it is the upper half of a byte.
__device__ __forceinline__ Parts raw_parts(u32 pair, u32 there) {
    if constexpr (BITS == 4)
        return {and_xor(pair, there & 0x00f000f0, 0x54805480), and_xor(pair, there & 0x000f000f, 0x64086408)};
    else
        return {and_xor(pair, there & 0x00ff00ff, 0x64806480), and_xor(pair >> 8, there & 0x00ff00ff, 0x64806480)};
}

/// What raw parts become right by when it is added: -72 and -1032, or -1152; halves are right.
__device__ __forceinline__ constexpr Parts less_than_raw() {
    if (BITS == 4) return {0xd480d480, 0xe408e408};
    if (BITS == 8) return {0xe480e480, 0xe480e480};
    return {0x80008000, 0x80008000};
}
