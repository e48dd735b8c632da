// Complex numbers in 48 bits, between the passes of the F-engine.
//
// Each part has 24 bits: sign, 5 bits of exponent and 18 of fraction. These are the upper bits of a number in
// single precision without the first three bits of its exponent, which are zero in numbers below 2^-95. So
// the writer scales its values to less than that, the reader scales them back, and the smallest numbers have a
// fixed point, 49 bits below the largest. The relative error is at most 2^-19.
//
// In memory 64 adjacent numbers are a strip: words of the upper 16 bits of both parts, then `u16` of the lower
// 8 bits.
#pragma once
#include "types.cuh"

/// log2 of the limit of the values.
constexpr int LOG2_LIMIT48 = -95;

/// 48 bits: `high` has the upper 16 bits of x and y, the lower 16 bits of `low` have the lower 8 bits of each.
struct Packed48 {
    u32 high, low;
};

__device__ __forceinline__ Packed48 pack48(c32 z) {
    auto rounded = [](float x) {
        const u32 bits = __float_as_uint(x);
        u32 word;
        // (8 bits + 0x80) with the sign bit of `bits`
        asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(word) : "r"(0x80000000), "r"(bits), "r"(bits * 8 + 0x80));
        return word;
    };
    const u32 x = rounded(z.x), y = rounded(z.y);
    return {__byte_perm(x, y, 0x7632), __byte_perm(x, y, 0x0051)};
}

/// Complex number with the lower bits in the lower (`PLACE` 0) or upper (1) 16 bits of `low`.
template <int PLACE = 0> __device__ __forceinline__ c32 unpack48(u32 high, u32 low) {
    // The shift repeats the sign in the place of the missing bits of the exponent; the mask removes these
    // copies and the lowest byte.
    auto number = [](u32 word) { return __uint_as_float((u32)((i32)word >> 3) & 0x8fffffe0); };
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
