// Samples of `width` bits as integers and as single-precision numbers.
//
// Packed samples are two's complement, most significant bit first, without gaps: sample i starts at bit
// i `width` of a stream of bytes. Native samples are 16-bit integers in the byte order of the machine.
// For both, 32 bits are extracted from two adjacent words of memory such that the wanted samples are in
// the most significant bits, the earliest one highest.
#pragma once
#include "types.cuh"

/// 32 bits from bit `shift` (0 .. 31) on of two adjacent words of the stream.
template <bool is_native> __device__ __forceinline__ u32 stream_bits(u32 first, u32 second, u32 shift) {
    // A word has two native samples, the earlier one lowest: swapping them makes it highest.
    const u32 order = is_native ? 0x1032 : 0x0123;
    return __funnelshift_l(__byte_perm(second, 0, order), __byte_perm(first, 0, order), shift);
}

/// Sample `i` of the samples in the most significant bits of `bits`.
template <int width> __device__ __forceinline__ i32 sample(u32 bits, int i) {
    return (i32)(bits << (i * width)) >> (32 - width);
}

/// (bits & mask) ^ flip in one instruction; the plain expression compiles to two.
__device__ __forceinline__ u32 mask_and_flip(u32 bits, u32 mask, u32 flip) {
    u32 flipped;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(flipped) : "r"(bits), "r"(mask), "r"(flip));
    return flipped;
}

/// A sample divided by 2^width, exactly and without the slow conversion instruction. The top bit of the
/// sample is bit 22 of `placed`. With its sign bit flipped, the sample is an unsigned offset, which is the
/// fraction of a number between 1 and 2.
template <int width> __device__ __forceinline__ float placed_fraction(u32 placed) {
    constexpr u32 fraction = ((1u << width) - 1) << (23 - width);
    constexpr u32 sign_and_one = 1u << 22 | 0x3f800000;
    return __uint_as_float(mask_and_flip(placed, fraction, sign_and_one)) - 1.5f;
}

/// Sample `i` of the samples in the most significant bits of `bits`, divided by 2^width.
template <int width> __device__ __forceinline__ float sample_fraction(u32 bits, int i) {
    // A right shift by 9 moves the top sample to bit 22; sample i needs i width less.
    const int right = 9 - i * width;
    return placed_fraction<width>(right >= 0 ? bits >> (right & 31) : bits << (-right & 31));
}
