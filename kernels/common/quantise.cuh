// From single precision to 8 or 4 bits: clamped, rounded half to even.
#pragma once
#include "types.cuh"

/// Largest magnitude of a value of `bits` bits: 127 or 7, so that the range is symmetric.
constexpr float largest(int bits) { return bits == 8 ? 127.0f : 7.0f; }

/// Whether a part of `z` is beyond `limit`.
__device__ __forceinline__ bool is_clamped(c32 z, float limit) {
    return fmaxf(fabsf(z.x), fabsf(z.y)) > limit;
}

/// The integer nearest to `x` clamped to -limit .. limit, in the low byte of the result; what is
/// above it is to be cut off. No number at all becomes -limit.
__device__ __forceinline__ u32 nearest(float x, float limit) {
    // Adding this to a small float leaves its nearest integer, half to even, in the low bits.
    constexpr float rounder = 12582912.0f;
    return __float_as_uint(fminf(fmaxf(x, -limit), limit) + rounder);
}

/// The same for `x` in units of the whole range, 2 `limit`, with one instruction less.
__device__ __forceinline__ u32 nearest_of_range(float x, float limit) {
    constexpr float rounder = 12582912.0f;
    return __float_as_uint(fmaf(__saturatef(x + 0.5f), 2.0f * limit, rounder - limit));
}

/// 8 bits: the real part in the low byte of the result, the imaginary part in the next one; what is
/// above them is to be cut off.
__device__ __forceinline__ u32 pack8(u32 re, u32 im) { return __byte_perm(re, im, 0x0040); }

/// 4 bits: the real part in the high nibble of the low byte, the imaginary part in the low one;
/// what is above it is to be cut off.
__device__ __forceinline__ u32 pack4(u32 re, u32 im) { return re << 4 | (im & 0x0f); }

__device__ __forceinline__ u32 quantise8(c32 z) {
    return pack8(nearest(z.x, largest(8)), nearest(z.y, largest(8)));
}

__device__ __forceinline__ u32 quantise4(c32 z) {
    return pack4(nearest(z.x, largest(4)), nearest(z.y, largest(4)));
}
