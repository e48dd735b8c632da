// Warpgroup matrix instructions of compute capability 9.0 on signed bytes with 32-bit sums, as PTX:
// 64 rows in registers times N columns in shared memory, over 32 bytes.
#pragma once
#include "types.cuh"

/// Threads of a warpgroup.
constexpr int WARPGROUP = 128;

/// Reduces the registers of each thread to `REGISTERS`; all threads of the warpgroup call it.
template <int REGISTERS> __device__ __forceinline__ void warpgroup_fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/// Increases the registers of each thread to `REGISTERS`, from those that other warpgroups released.
template <int REGISTERS> __device__ __forceinline__ void warpgroup_more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/// Waits for the threads of the warpgroup; barrier 0 is used for the whole block.
__device__ __forceinline__ void warpgroup_barrier(u32 barrier) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(WARPGROUP) : "memory");
}

/// Descriptor of columns in shared memory: consecutive groups of eight columns of 128 bytes, in the
/// 128-byte swizzle of tensor copies. `address` is that of column 0, where the swizzle starts, plus the
/// offset of the 32 bytes.
__device__ __forceinline__ u64 columns_at(u32 address) {
    constexpr u64 swizzle_128 = 1ull << 62, group_bytes = 1024, leading_unused = 1;
    return swizzle_128 | (group_bytes >> 4) << 32 | leading_unused << 16 | address >> 4;
}

/// Fence before the first matrix instruction, and after writes to its registers.
__device__ __forceinline__ void warpgroup_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/// Ends a group of instructions.
__device__ __forceinline__ void warpgroup_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most `PENDING` groups are in flight.
template <int PENDING> __device__ __forceinline__ void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Operand numbers of the sums' registers in the instruction text, and the registers, 16 at a time.
#define SUMS_HALF "%0,%1,%2,%3,%4,%5,%6,%7"
#define SUMS_0 \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define SUMS_1 \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define SUMS_2 \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define SUMS_3 \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define SUMS_4 \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define FOUR(i) "+r"(sums[i]), "+r"(sums[i + 1]), "+r"(sums[i + 2]), "+r"(sums[i + 3])
#define EIGHT(i) FOUR(i), FOUR(i + 4)
#define SIXTEEN(i) EIGHT(i), EIGHT(i + 8)
#define MULTIPLY(N, SUMS, A, B, ADDS, ...)                                                        \
    asm volatile("{\n.reg .pred adds;\n setp.ne.b32 adds, " ADDS ", 0;\n"                         \
                 " wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" SUMS "}, {" A "}, " B  \
                 ", adds;\n}"                                                                     \
                 : __VA_ARGS__                                                                    \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(columns), "r"(adds))

/// Adds the products of 64 rows with `N` columns. Warp w of the group holds rows 16 w .. 16 w + 15 and
/// their sums. Thread l of the warp has bytes 4 (l % 4) .. + 4 of row l / 4 (a0) and of row l / 4 + 8
/// (a1), and the bytes 16 further (a2, a3). For each 8 columns it has four sums: columns 2 (l % 4) and + 1
/// of row l / 4, then of row l / 4 + 8. With the constant `adds` 0 the products replace the sums.
template <int N>
__device__ __forceinline__ void multiply(i32 (&sums)[N / 2], u32 a0, u32 a1, u32 a2, u32 a3,
                                         u64 columns, i32 adds = 1) {
    if constexpr (N == 16)
        MULTIPLY(16, SUMS_HALF, "%8,%9,%10,%11", "%12", "%13",
                 EIGHT(0));
    if constexpr (N == 32)
        MULTIPLY(32, SUMS_0, "%16,%17,%18,%19", "%20", "%21",
                 SIXTEEN(0));
    if constexpr (N == 64)
        MULTIPLY(64, SUMS_0 "," SUMS_1, "%32,%33,%34,%35", "%36", "%37",
                 SIXTEEN(0), SIXTEEN(16));
    if constexpr (N == 96)
        MULTIPLY(96, SUMS_0 "," SUMS_1 "," SUMS_2, "%48,%49,%50,%51", "%52", "%53",
                 SIXTEEN(0), SIXTEEN(16), SIXTEEN(32));
    if constexpr (N == 128)
        MULTIPLY(128, SUMS_0 "," SUMS_1 "," SUMS_2 "," SUMS_3, "%64,%65,%66,%67", "%68", "%69",
                 SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48));
    if constexpr (N == 160)
        MULTIPLY(160, SUMS_0 "," SUMS_1 "," SUMS_2 "," SUMS_3 "," SUMS_4, "%80,%81,%82,%83", "%84", "%85",
                 SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64));
}

#undef MULTIPLY
#undef SIXTEEN
#undef EIGHT
#undef FOUR
#undef SUMS_HALF
#undef SUMS_0
#undef SUMS_1
#undef SUMS_2
#undef SUMS_3
#undef SUMS_4
