// Quantisation from single precision to 8 or 4 bits: clamped, rounded half to even.
#pragma once
#include "types.cuh"

/// Largest magnitude of a value of `bits` bits: 127 or 7, so that the range is symmetric.
constexpr float largest(int bits) { return bits == 8 ? 127.0f : 7.0f; }

/// Returns whether the real or imaginary part of `z` is beyond `limit`.
__device__ __forceinline__ bool is_clamped(c32 z, float limit) {
    return fmaxf(fabsf(z.x), fabsf(z.y)) > limit;
}

/// Adds 1 to `count` if the real or imaginary part of `z` is beyond `limit`, with one instruction less than
/// `count += is_clamped(z, limit)`.
__device__ __forceinline__ void count_clamped(u32 &count, c32 z, float limit) {
    asm("{\n.reg .pred beyond;\n setp.gt.f32 beyond, %1, %2;\n @beyond add.u32 %0, %0, 1;\n}"
        : "+r"(count)
        : "f"(fmaxf(fabsf(z.x), fabsf(z.y))), "f"(limit));
}

/// Integer nearest to `x`, clamped to -limit .. limit, in the low byte of the result; the caller must
/// discard the other bits. NaN becomes -limit.
__device__ __forceinline__ u32 nearest(float x, float limit) {
    // The sum with a small float has its nearest integer, half to even, in the low bits.
    constexpr float rounder = 12582912.0f;
    return __float_as_uint(fminf(fmaxf(x, -limit), limit) + rounder);
}

/// `nearest` for `x` in units of the whole range, 2 `limit`, with one instruction less.
__device__ __forceinline__ u32 nearest_of_range(float x, float limit) {
    constexpr float rounder = 12582912.0f;
    return __float_as_uint(fmaf(__saturatef(x + 0.5f), 2.0f * limit, rounder - limit));
}

/// Integers nearest to `x` `range` - 127, half to even, plus 128, as `pack8`, in 32 bits of which the others are 0.
/// `x` `range` is 0 to 254. Only multiplications: the units for logic are the busier ones.
__device__ __forceinline__ u32 offset_bytes(c32 x, float range) {
    // The sums with large floats have their nearest integer in the low bits; the high bits cancel.
    const u32 re = __float_as_uint(fmaf(x.x, -range, -8388609.0f));  // from 0xcb000001 on
    const u32 im = __float_as_uint(fmaf(x.y, range, 11862017.0f));   // from 0x4b350001 on
    return im * 256 + re;
}

/// Packs 8 bits: the real part in the low byte of the result, the imaginary part in the next one; the
/// caller must discard the other bits.
__device__ __forceinline__ u32 pack8(u32 re, u32 im) { return __byte_perm(re, im, 0x0040); }

/// Packs 4 bits: the real part in the high nibble of the low byte, the imaginary part in the low one; the
/// caller must discard the other bits.
__device__ __forceinline__ u32 pack4(u32 re, u32 im) { return re << 4 | (im & 0x0f); }

__device__ __forceinline__ u32 quantise8(c32 z) {
    return pack8(nearest(z.x, largest(8)), nearest(z.y, largest(8)));
}

__device__ __forceinline__ u32 quantise4(c32 z) {
    return pack4(nearest(z.x, largest(4)), nearest(z.y, largest(4)));
}

/// Spectra at the start of each heap whose values are measured: `MEASURED_SPECTRA` of output_level.rs.
constexpr int MEASURED_SPECTRA = 4;
/// A beamformer measures one heap of this many, the first one of them: `MEASURED_HEAPS` of the block.
constexpr int MEASURED_HEAPS = 8;

/// Sum of the squares of the parts, of `bits` bits, of the values in `word`.
template <int bits> __device__ __forceinline__ u32 sum_of_squares(u32 word) {
    if constexpr (bits == 8) return (u32)__dp4a((i32)word, (i32)word, 0);
    // Each part times 16 in a byte of its own.
    const i32 re = (i32)(word & 0xf0f0f0f0), im = (i32)(word << 4 & 0xf0f0f0f0);
    return (u32)__dp4a(im, im, __dp4a(re, re, 0)) / 256;
}

/// Loads eight bytes that threads of this warp have stored before they synchronised.
__device__ __forceinline__ void load_stored(u32 (&words)[2], const u8 *at) {
    asm volatile("ld.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(at) : "memory");
}

/// Byte that this thread has stored, as part of a larger type or not: the compiler must not move the load before the
/// store.
__device__ __forceinline__ u32 stored_byte(const u8 *at) {
    u32 byte;
    asm volatile("ld.u8 %0, [%1];" : "=r"(byte) : "l"(at) : "memory");
    return byte;
}
