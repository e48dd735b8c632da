// The transform of 256 feeds, and as many zeros behind them, to 512 beams: Y_q = sum_n exp(2 pi i q n / 512) X_n, in
// half precision in the registers of one warp.
//
// After K. Smith, "Note on CHIME FRB beamforming" (2024): the equations cited are its. Register assignments say where
// bits of indices are: b the half of a register, t0 .. t4 bits of the lane, r the register. With q_j and n_k bits of q and n, and
// E(q_j, n_k) = exp(2 pi i q_j n_k 2^(j+k) / 512), which is 1 for j + k > 8, the phase is
//
//   E(q6q7q8, n0n1n2) E(q3q4q5, n0n1n2) E(q3q4q5, n3n4n5) E(q0q1q2, n2n3n4n5) E(q0q1q2, n0n1n6n7)      (7)
//
//   X       b ReIm  t n7 n6 n5 n4 n3  r n2 n1 n0            (13)
//   Z1, Z2  b n5    t n4 n3 q0 q1 q2  r n2 n1 n0 ReIm       (14)
//   Z3'     b q0    t q1 q2 q3 q4 q5  r n2 n1 n0 ReIm       (15)
//   Z3, Z4  b n2    t n1 n0 q3 q4 q5  r q0 q1 q2 ReIm       (16)
//   Y'      b q3    t q4 q5 q6 q7 q8  r q0 q1 q2 ReIm       (17)
//   Y       b ReIm  t q4 q5 q6 q7 q8  r q0 q1 q2 q3         (18)
//
// So a lane has eight neighbouring feeds and sixteen neighbouring beams.
#pragma once
#include "half_matrix.cuh"

constexpr int FEEDS = 256;
constexpr int POINTS = 512;
/// Sign of a word's upper half.
constexpr u32 UPPER_SIGN = 0x80000000;

/// Feeds of `lane` are 8 feeds_of(lane), ...
__device__ __forceinline__ u32 feeds_of(u32 lane) { return __brev(lane) >> 27; }

/// Adds the products over 8 halves of 16 rows with 8 columns, in half precision.
__device__ __forceinline__ void multiply8(u32& c0, u32& c1, u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%5,%5};"
        : "=r"(c0), "=r"(c1)
        : "r"(a0), "r"(a1), "r"(b), "r"(0));
}

/// The same over 16 halves.
__device__ __forceinline__ void multiply16(u32& c0, u32& c1, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                           u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%8};"
        : "=r"(c0), "=r"(c1)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(0));
}

/// Phases that a lane keeps: ten registers.
struct Phases {
    /// E(q0q1q2, n0n1n6n7): b ReIm, t n7 n6 q0 q1 q2, r n0 n1, packed (29).
    u32 first[4];
    /// E(q0q1q2, n2n3n4n5): b n5, t n4 n3 q0 q1 q2, r n2 ReIm (25). What has n2 = 0 is E(q3q4q5, n0n1n2) too (27).
    u32 twiddle[2][2];
    /// E(q3q4q5, n3n4n5): b n5, t n4 n3 q3 q4 q5, r ReIm (26), and E(q6q7q8, n0n1n2) too (28).
    u32 short_transform[2];

    /// `table` [register 10][lane 32].
    __device__ __forceinline__ void load(const u32* __restrict__ table, u32 lane) {
        u32* words = first;
#pragma unroll
        for (int i = 0; i < 10; i++) words[i] = __ldg(table + 32 * i + lane);
    }
};

/// Two complex numbers times two others, parts in words of their own.
__device__ __forceinline__ void turn(u32& re, u32& im, const u32 (&phase)[2]) {
    const u32 x = re, y = im;
    re = fma_halves(negate_halves(phase[1]), y, times_halves(phase[0], x));
    im = fma_halves(phase[1], x, times_halves(phase[0], y));
}

/// Exchanges b and r.
__device__ __forceinline__ void local_transpose(u32& r0, u32& r1) {
    const u32 low = __byte_perm(r0, r1, 0x5410);
    r1 = __byte_perm(r0, r1, 0x7632);
    r0 = low;
}

/// Exchanges r and the bit of the lane in `mask`.
__device__ __forceinline__ void warp_transpose(u32& r0, u32& r1, u32 lane, u32 mask) {
    const bool upper = lane & mask;
    const u32 other = __shfl_xor_sync(~0u, upper ? r0 : r1, mask);
    if (upper) r0 = other;
    else r1 = other;
}

/// Transforms x, register n0 + 2 n1 + 4 n2, to y, register q0 + 2 q1 + 4 q2 + 8 q3.
__device__ __forceinline__ void feeds_to_beams(const u32 (&x)[8], u32 (&y)[16], const Phases& phases,
                                               u32 lane) {
    // [register][ReIm]
    u32 z[8][2];
    // (8): two rows of phases for each packed one, (re, -im) for real parts and (im, re) for imaginary parts.
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const u32 phase = phases.first[n & 3];
        multiply8(z[n][0], z[n][1], phase ^ UPPER_SIGN, __byte_perm(phase, phase, 0x1032), x[n]);
    }
    // (9)
#pragma unroll
    for (int n = 0; n < 8; n++) turn(z[n][0], z[n][1], phases.twiddle[n >> 2]);
    // (10)
    const u32 re = phases.short_transform[0], im = phases.short_transform[1];
    const u32 minus_im = negate_halves(im);
#pragma unroll
    for (int n = 0; n < 8; n++)
        multiply16(z[n][0], z[n][1], re, im, minus_im, re, z[n][0], z[n][1]);
    // (15) to (16): n2 and q0, n1 and q1, n0 and q2 change places; then register 4 q0 + 2 q1 + q2.
#pragma unroll
    for (int part = 0; part < 2; part++) {
#pragma unroll
        for (int n = 0; n < 4; n++) local_transpose(z[n][part], z[n + 4][part]);
#pragma unroll
        for (int n = 0; n < 8; n++)
            if (!(n & 2)) warp_transpose(z[n][part], z[n | 2][part], lane, 1);
#pragma unroll
        for (int n = 0; n < 8; n += 2) warp_transpose(z[n][part], z[n + 1][part], lane, 2);
    }
    // (11)
#pragma unroll
    for (int q = 0; q < 8; q++) turn(z[q][0], z[q][1], phases.twiddle[0]);
    // (12), and (17) to (18)
#pragma unroll
    for (int r = 0; r < 8; r++) {
        multiply16(z[r][0], z[r][1], re, im, minus_im, re, z[r][0], z[r][1]);
        local_transpose(z[r][0], z[r][1]);
        const int q = (r >> 2) | (r & 2) | ((r & 1) << 2);
        y[q] = z[r][0];
        y[q + 8] = z[r][1];
    }
}
