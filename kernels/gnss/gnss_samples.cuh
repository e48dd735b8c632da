// Samples for `gnss_correlator.cu`, whose parameters they take: copied to shared memory as they are, 16 bytes at a
// time, and read from there.
#pragma once
#include "types.cuh"

constexpr u32 SAMPLE_BYTES = 2 * COMPONENT_BYTES;
/// Copies of 16 bytes that make a thread's group.
constexpr u32 COPIES = GROUP * SAMPLE_BYTES / 16;
static_assert(COPIES == 1 || COPIES == 2 || COPIES == 4 || COPIES == 8, "lanes side by side use different banks");

/// Sample `k` of a group that was copied as it is; integers stay in the upper bits.
__device__ __forceinline__ c32 sample(const u32* words, u32 k) {
#if COMPONENT_BYTES == 1
    u32 word = words[k / 2] >> (16 * (k % 2));
    return {(float)(i32)(word << 24), (float)(i32)((word << 16) & 0xff000000u)};
#elif COMPONENT_BYTES == 2
    return {(float)(i32)(words[k] << 16), (float)(i32)(words[k] & 0xffff0000u)};
#else
    return {__uint_as_float(words[2 * k]), __uint_as_float(words[2 * k + 1])};
#endif
}

/// A sample that was copied as it is.
__device__ __forceinline__ c32 sample_at(const u8* from) {
#if COMPONENT_BYTES == 1
    u32 word = *(const u16*)from;
    return sample(&word, 0);
#elif COMPONENT_BYTES == 2
    return sample((const u32*)from, 0);
#else
    return *(const c32*)from;
#endif
}

/// Copies 16 bytes past the first-level cache, of which only `present` are there; the others become zero.
__device__ __forceinline__ void copy16(u32 to, const void* from, u32 present) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(present)
                 : "memory");
}

/// Where copy `j` of lane `row`'s group lies, so that lanes side by side use different banks.
__device__ __forceinline__ u32 place(u32 row, u32 j) {
    return SUFFIX && COPIES > 1 ? row * COPIES + (j ^ (row / (8 / COPIES) & (COPIES - 1)))
                                : row * COPIES + j;
}
