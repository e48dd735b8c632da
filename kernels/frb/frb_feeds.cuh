// Voltages of feeds in the format of the frames: integers are converted to `f16` by their bit pattern.
//
// `BITS` of each part: 4, 8, or 16 for half precision.
#pragma once
#include "half_matrix.cuh"

constexpr int FEEDS = 256;
constexpr int POINTS = 512;
/// Bytes per feed, with both parts.
constexpr int FEED_BYTES = BITS / 4;

/// Real and imaginary parts of two feeds, those of the first feed in the low bits.
struct Parts {
    u32 re, im;
};

/// Converts integers to `f16` with an offset, which `less_than_raw` removes. Values are 0 unless all bits of `there`
/// are set. For 4-bit feeds bytes 0 and 2 of `pair` are used, for 8-bit feeds all. An integer of n bits becomes a
/// number of 1024 .. 1024 + 2^n, or of 64 .. 80 if it is the high nibble of a byte.
__device__ __forceinline__ Parts raw_parts(u32 pair, u32 there) {
    if constexpr (BITS == 4)
        return {and_xor(pair, there & 0x00f000f0, 0x54805480), and_xor(pair, there & 0x000f000f, 0x64086408)};
    else
        return {and_xor(pair, there & 0x00ff00ff, 0x64806480), and_xor(pair >> 8, there & 0x00ff00ff, 0x64806480)};
}

/// Number to add to raw parts: -72 and -1032, or -1152; half precision needs no correction.
__device__ __forceinline__ constexpr Parts less_than_raw() {
    if (BITS == 4) return {0xd480d480, 0xe408e408};
    if (BITS == 8) return {0xe480e480, 0xe480e480};
    return {0x80008000, 0x80008000};
}
