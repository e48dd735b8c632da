// Matrix instructions on signed bytes with 32-bit sums, and their loads, as PTX.
#pragma once
#include "types.cuh"

/// Loads eight rows of 64 bytes of shared memory. Thread l of the warp gives the address of 16 bytes l / 8 of row
/// l % 8, and gets bytes 16 i + 4 (l % 4) .. + 4 of row l / 4 as word i. These are the operands of two steps of 32
/// bytes.
__device__ __forceinline__ void load_rows(u32 (&words)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}

/// Adds the products over 32 bytes of 16 rows with 8 columns. Thread l of the warp has bytes 4 (l % 4) .. + 4 of row
/// l / 4 (a0) and row l / 4 + 8 (a1), the bytes 16 further (a2, a3), and the same bytes of column l / 4 (b0, b1). It
/// has the sums of columns 2 (l % 4) and + 1 of row l / 4, and then of row l / 4 + 8.
__device__ __forceinline__ void multiply(i32 (&sums)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                         u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9},"
        " {%0,%1,%2,%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
