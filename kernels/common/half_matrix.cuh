// Pairs of half-precision numbers (`f16`) in words, and matrix instructions on them, as PTX.
#pragma once
#include "types.cuh"

/// Rounds two numbers to `f16`; the first is in the low bits of the word.
__device__ __forceinline__ u32 halves(float low, float high) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

/// Both `f16` of a word in single precision.
__device__ __forceinline__ float2 from_halves(u32 word) {
    float2 numbers;
    asm("{\n.reg .f16 low, high;\n"
        " mov.b32 {low, high}, %2;\n cvt.f32.f16 %0, low;\n cvt.f32.f16 %1, high;\n}"
        : "=f"(numbers.x), "=f"(numbers.y)
        : "r"(word));
    return numbers;
}

/// a - b for both `f16`.
__device__ __forceinline__ u32 subtract_halves(u32 a, u32 b) {
    u32 difference;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
    return difference;
}

/// a + b for both `f16`.
__device__ __forceinline__ u32 add_halves(u32 a, u32 b) {
    u32 sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}

/// -a for both `f16`.
__device__ __forceinline__ u32 negate_halves(u32 a) {
    u32 negative;
    asm("neg.f16x2 %0, %1;" : "=r"(negative) : "r"(a));
    return negative;
}

/// a b for both `f16`.
__device__ __forceinline__ u32 times_halves(u32 a, u32 b) {
    u32 product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

/// a b + c for both `f16`, rounded once.
__device__ __forceinline__ u32 fma_halves(u32 a, u32 b, u32 c) {
    u32 sum;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}

/// (a & mask) ^ with in one instruction; for constants, compilers generate two.
__device__ __forceinline__ u32 and_xor(u32 a, u32 mask, u32 with) {
    u32 word;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(word) : "r"(a), "r"(mask), "r"(with));
    return word;
}

/// (a ^ with) & mask in one instruction, for the same reason.
__device__ __forceinline__ u32 xor_and(u32 a, u32 with, u32 mask) {
    u32 word;
    asm("lop3.b32 %0, %1, %2, %3, 0x28;" : "=r"(word) : "r"(a), "r"(with), "r"(mask));
    return word;
}

/// Broadcasts the lower `f16` of a word to both places, and the upper one.
__device__ __forceinline__ u32 both_lower(u32 a) { return __byte_perm(a, a, 0x1010); }
__device__ __forceinline__ u32 both_upper(u32 a) { return __byte_perm(a, a, 0x3232); }

/// `begin` plus the products of 16 rows with 8 columns over 16 `f16` elements. Thread l of the warp holds
/// elements 2 (l % 4) and + 1 of row l / 4 (a[0]) and row l / 4 + 8 (a[1]), the elements 8 further (a[2],
/// a[3]), and the same elements of column l / 4 (b0, b1). It holds the sums of columns 2 (l % 4) and + 1 of
/// row l / 4, and then of row l / 4 + 8.
__device__ __forceinline__ void multiply_halves(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1,
                                                const float (&begin)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9},"
        " {%10,%11,%12,%13};"
        : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(begin[0]), "f"(begin[1]),
          "f"(begin[2]), "f"(begin[3]));
}

/// Adds the products to `sums`.
__device__ __forceinline__ void multiply_halves(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    multiply_halves(sums, a, b0, b1, sums);
}

/// Adds the products over 8 `f16` elements: a0, a1 and b as a[0], a[1] and b0 above.
__device__ __forceinline__ void multiply_halves8(float (&sums)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(b));
}

/// Products of 16 rows with 8 columns over 16 `f16` elements, in half precision: the same layout, with two
/// columns in a word.
__device__ __forceinline__ void multiply16(u32& c0, u32& c1, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                           u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%8};"
        : "=r"(c0), "=r"(c1)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(0));
}

/// Products over 8 `f16` elements: without a2, a3 and b1.
__device__ __forceinline__ void multiply8(u32& c0, u32& c1, u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%5,%5};"
        : "=r"(c0), "=r"(c1)
        : "r"(a0), "r"(a1), "r"(b), "r"(0));
}

/// Multiplies two complex numbers by two phases, with real and imaginary parts in separate words.
__device__ __forceinline__ void turn(u32& re, u32& im, const u32 (&phase)[2]) {
    const u32 x = re, y = im;
    re = fma_halves(negate_halves(phase[1]), y, times_halves(phase[0], x));
    im = fma_halves(phase[1], x, times_halves(phase[0], y));
}

/// Swaps the upper `f16` of `r0` with the lower one of `r1`.
__device__ __forceinline__ void local_transpose(u32& r0, u32& r1) {
    const u32 low = __byte_perm(r0, r1, 0x5410);
    r1 = __byte_perm(r0, r1, 0x7632);
    r0 = low;
}
