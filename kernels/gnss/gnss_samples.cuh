// Samples for `gnss_correlator.cu`, with its macros: copied unchanged to shared memory, 16 bytes at a time, and read
// from there.
#pragma once
#include "types.cuh"

constexpr u32 SAMPLE_BYTES = (IS_REAL ? 1 : 2) * COMPONENT_BYTES;
/// Copies of 16 bytes per group of a thread.
constexpr u32 COPIES = GROUP * SAMPLE_BYTES / 16;
static_assert(COPIES == 1 || COPIES == 2 || COPIES == 4 || COPIES == 8, "adjacent threads use different banks");

/// Imaginary part of a sample of the sky: that of an inverted spectrum is negated.
__device__ __forceinline__ float imaginary(float part) { return CONJUGATE ? -part : part; }

/// Sample `k` of a group in its original format; integers stay in the upper bits. Real samples have imaginary part 0.
__device__ __forceinline__ c32 sample(const u32* words, u32 k) {
#if IS_REAL && COMPONENT_BYTES == 1
    return {(float)(i32)(words[k / 4] << (24 - 8 * (k % 4)) & 0xff000000u), 0.0f};
#elif IS_REAL && COMPONENT_BYTES == 2
    return {(float)(i32)(words[k / 2] << (16 - 16 * (k % 2)) & 0xffff0000u), 0.0f};
#elif IS_REAL
    return {__uint_as_float(words[k]), 0.0f};
#elif COMPONENT_BYTES == 1
    u32 word = words[k / 2] >> (16 * (k % 2));
    return {(float)(i32)(word << 24), imaginary((float)(i32)((word << 16) & 0xff000000u))};
#elif COMPONENT_BYTES == 2
    return {(float)(i32)(words[k] << 16), imaginary((float)(i32)(words[k] & 0xffff0000u))};
#else
    return {__uint_as_float(words[2 * k]), imaginary(__uint_as_float(words[2 * k + 1]))};
#endif
}

/// Decodes a sample in its original format.
__device__ __forceinline__ c32 sample_at(const u8* from) {
#if IS_REAL && COMPONENT_BYTES == 1
    u32 word = *from;
    return sample(&word, 0);
#elif IS_REAL && COMPONENT_BYTES == 2
    u32 word = *(const u16*)from;
    return sample(&word, 0);
#elif IS_REAL
    return sample((const u32*)from, 0);
#elif COMPONENT_BYTES == 1
    u32 word = *(const u16*)from;
    return sample(&word, 0);
#elif COMPONENT_BYTES == 2
    return sample((const u32*)from, 0);
#else
    c32 read = *(const c32*)from;
    return {read.x, imaginary(read.y)};
#endif
}

/// Copies 16 bytes and bypasses the L1 cache; only `present` bytes are read, the others become zero.
__device__ __forceinline__ void copy16(u32 to, const void* from, u32 present) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(present)
                 : "memory");
}

/// Place of copy `j` of the group of thread `row` of the warp, such that adjacent threads use different banks.
__device__ __forceinline__ u32 place(u32 row, u32 j) {
    return SUFFIX && COPIES > 1 ? row * COPIES + (j ^ (row / (8 / COPIES) & (COPIES - 1)))
                                : row * COPIES + j;
}
