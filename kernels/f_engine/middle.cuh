// Complex numbers in 48 bits, between the passes of the F-engine.
//
// Each part has 24 bits: sign, EXPONENT_BITS of exponent and the rest of fraction. These are the upper bits of
// a number in single precision without the first bits of its exponent, which are zero in numbers below
// LIMIT48. So the writer scales its values to less than that, the reader scales them back, and numbers below 2^-126
// have a fixed point. The relative error of larger numbers is at most 2^-21 with 3 bits of exponent.
//
// Few bits of exponent favour strong signals. With 3 bits the fixed point is 27 bits below the limit, less than the
// rounding of samples of up to 10 bits; samples of more bits need 4, a fixed point 34 bits below the limit.
//
// In memory 64 adjacent numbers are a strip: words of the upper 16 bits of both parts, then `u16` of the lower
// 8 bits.
#pragma once
#include "types.cuh"

constexpr int EXPONENT_BITS = SAMPLE_BITS <= 10 ? 3 : 4;
/// Bits of the exponent that are zero.
constexpr int ZERO_BITS = 8 - EXPONENT_BITS;

/// 2^exponent, for -126 <= exponent <= 127.
__device__ __forceinline__ constexpr float power_of_two(int exponent) {
    float power = 1.0f;
    for (int i = 0; i < exponent; i++) power *= 2.0f;
    for (int i = 0; i > exponent; i--) power *= 0.5f;
    return power;
}

/// Limit of the values.
constexpr float LIMIT48 = power_of_two((1 << EXPONENT_BITS) - 127);

/// 48 bits: `high` has the upper 16 bits of x and y, the lower 16 bits of `low` have the lower 8 bits of each.
struct Packed48 {
    u32 high, low;
};

__device__ __forceinline__ Packed48 pack48(c32 z) {
    auto rounded = [](float x) {
        const u32 bits = __float_as_uint(x);
        u32 word;
        // (`bits` without these zeros + 0x80) with the sign bit of `bits`
        asm("lop3.b32 %0, %1, %2, %3, 0xca;"
            : "=r"(word)
            : "r"(0x80000000), "r"(bits), "r"(bits * (1u << ZERO_BITS) + 0x80));
        return word;
    };
    const u32 x = rounded(z.x), y = rounded(z.y);
    return {__byte_perm(x, y, 0x7632), __byte_perm(x, y, 0x0051)};
}

/// Complex number with the lower bits in the lower (`PLACE` 0) or upper (1) 16 bits of `low`.
template <int PLACE = 0> __device__ __forceinline__ c32 unpack48(u32 high, u32 low) {
    // The shift repeats the sign in the place of the missing bits of the exponent; the mask removes these
    // copies and the lowest byte.
    constexpr u32 MASK = 0x80000000 | ((1u << (31 - ZERO_BITS)) - (1u << (8 - ZERO_BITS)));
    auto number = [](u32 word) { return __uint_as_float((u32)((i32)word >> ZERO_BITS) & MASK); };
    return {number(__byte_perm(high, low, PLACE ? 0x1066 : 0x1044)),
            number(__byte_perm(high, low, PLACE ? 0x3277 : 0x3255))};
}

/// Byte of the upper bits of number i of a row of strips, and of its lower bits.
__device__ __forceinline__ constexpr int high_byte(int i) { return i / 64 * 384 + i % 64 * 4; }
__device__ __forceinline__ constexpr int low_byte(int i) { return i / 64 * 384 + 256 + i % 64 * 2; }

/// Stores number i of a row.
__device__ __forceinline__ void store48(u8 *row, int i, c32 z) {
    const Packed48 packed = pack48(z);
    *(u32 *)(row + high_byte(i)) = packed.high;
    *(u16 *)(row + low_byte(i)) = (u16)packed.low;
}

/// Stores numbers i and i + 1 of a row, for an even i.
__device__ __forceinline__ void store48(u8 *row, int i, c32 first, c32 second) {
    const Packed48 x = pack48(first), y = pack48(second);
    *(uint2 *)(row + high_byte(i)) = {x.high, y.high};
    *(u32 *)(row + low_byte(i)) = __byte_perm(x.low, y.low, 0x5410);
}
