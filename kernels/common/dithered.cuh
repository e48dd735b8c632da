// Quantisation of values with noise, in few instructions: a value is a fraction of the output's range, 0 at the
// smallest integer and 1 at the largest, so that saturation clamps it.
#pragma once
#include "dither.cuh"
#include "quantise.cuh"

/// Integers of `BITS` bits from -limit to limit.
template <int BITS> struct Dithered {
    static constexpr float limit = largest(BITS);
    /// A step of the output in units of its range.
    static constexpr float step = 0.5f / limit;

    /// The noise has an offset of 128.5 steps. With 8 bits that is nearly half of the range, and the caller adds the
    /// small rest to its values, which costs no instruction in a fused multiply-add.
    static constexpr float value_offset = BITS == 8 ? 0.5f - 128.5f * step : 0.0f;

    /// Magnitude up to which the parts of a value plus `value_offset` are not clamped, whatever the noise.
    static constexpr float never_clamped =
        (BITS == 8 ? 1.0f - 129.0f * step : 0.5f - 0.5f * step) - 1e-6f;

    /// Fractions of the range: `z`, in units of the range plus `value_offset`, and the noise of `place`.
    static __device__ __forceinline__ c32 fraction(c32 z, u64 place) {
        c32 noise = offset_uniform_pair(place);
        if constexpr (BITS != 8) noise = {noise.x + (limit - 128.5f), noise.y + (limit - 128.5f)};
        return {fmaf(step, noise.x, z.x), fmaf(step, noise.y, z.y)};
    }

    static __device__ __forceinline__ bool is_clamped(c32 fraction) {
        return ::is_clamped({fraction.x - 0.5f, fraction.y - 0.5f}, 0.5f);
    }

    /// Packs the integers as `pack8` or `pack4`.
    static __device__ __forceinline__ u32 quantise(c32 fraction) {
        const u32 re = nearest_of_range(fraction.x, limit), im = nearest_of_range(fraction.y, limit);
        return BITS == 8 ? pack8(re, im) : pack4(re, im);
    }
};
