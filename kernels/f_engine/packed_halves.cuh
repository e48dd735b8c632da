// Exact conversion of adjacent packed samples to pairs of `f16` in words.
#pragma once
#include "half_matrix.cuh"
#include "packed.cuh"
#include "types.cuh"

/// `bits` bits from bit `at` on of a stream of 32-bit `words`, most significant bit first. The caller must
/// discard the bits above them.
template <int n> __device__ __forceinline__ u32 field(const u32 (&words)[n], int at, int bits) {
    const int word = at / 32, end = at % 32 + bits;
    if (end <= 32) return words[word] >> (32 - end);
    return __funnelshift_r(words[word + 1], words[word], 64 - end);
}

/// Lowest `bits` bits, at most 10, of two words as integers in `f16`, times 2^(log2_scale - 10).
template <int bits, bool is_signed, int log2_scale>
__device__ __forceinline__ u32 integers(u32 first, u32 second) {
    // With its sign bit flipped, a signed integer is an unsigned offset. As the fraction of a number
    // between 1 and 2 it is integer / 1024.
    constexpr u32 zero = is_signed ? 1u << (bits - 1) : 0;
    constexpr u32 one = 0x3c00, minus = 0x8000, both = 0x10001, scale = static_cast<u32>(log2_scale * 1024);
    const u32 fractions =
        mask_and_flip(__byte_perm(first, second, 0x5410), ((1u << bits) - 1) * both, (one | zero) * both);
    return fma_halves(fractions, (one + scale) * both, ((minus | one | zero) + scale) * both);
}

/// Number of `f16` whose sum is a sample of `width` bits, and log2 of their scale.
constexpr int halves_of_sample(int width) { return width > 12 ? 2 : 1; }
constexpr int log2_halves_scale(int width) { return width > 10 ? -12 : -10; }

/// Samples `i` and i + 1 of a stream, in the low and in the high `f16` of each word.
template <int width, int n>
__device__ __forceinline__ void sample_halves(const u32 (&words)[n], int i,
                                              u32 (&to)[halves_of_sample(width)]) {
    auto two = [&](int skip, int bits, auto make) {
        const int at = i * width + skip;
        return make(field(words, at, bits), field(words, at + width, bits));
    };
    if constexpr (width <= 10) {
        to[0] = two(0, width, integers<width, true, 0>);
    } else if constexpr (width == 12) {
        to[0] = add_halves(two(0, 10, integers<10, true, 0>), two(10, 2, integers<2, false, -2>));
    } else {
        to[0] = two(0, 8, integers<8, true, 6>);
        to[1] = two(8, 8, integers<8, false, -2>);
    }
}
