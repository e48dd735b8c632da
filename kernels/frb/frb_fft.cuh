// Transform of 256 feeds, padded with 256 zeros, to 512 beams: Y_q = sum_n exp(2 pi i q n / 512) X_n, in half
// precision in the registers of one warp.
//
// After K. Smith, "Note on CHIME FRB beamforming" (2024), whose equation numbers are cited. Register assignments
// give the place of the bits of an index: b is the `f16` of a register, t0 .. t4 are bits of the thread index in the
// warp, and r is the register. With q_j and n_k bits of q and n, and E(q_j, n_k) = exp(2 pi i q_j n_k 2^(j+k) /
// 512), which is 1 for j + k > 8, the phase is
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
// So a thread has eight adjacent feeds and sixteen adjacent beams.
#pragma once
#include "frb_feeds.cuh"

/// Whether a word in shared memory has one part of two feeds 8 apart; here it has both parts of one feed.
constexpr bool PAIRED = false;
/// Sign bit of the upper `f16` of a word.
constexpr u32 UPPER_SIGN = 0x80000000;

/// The feeds of thread `lane` start at 8 feeds_of(`lane`).
__device__ __forceinline__ u32 feeds_of(u32 lane) { return __brev(lane) >> 27; }

/// Eight adjacent feeds of one cylinder, in the format of the frame.
struct Feeds {
    u32 words[BITS / 2];

    __device__ __forceinline__ void load(const u8* cylinder, u32 lane) {
        const u8* from = cylinder + 8 * FEED_BYTES * feeds_of(lane);
        if constexpr (BITS == 4) *(uint2*)words = __ldcs((const uint2*)from);
        else
#pragma unroll
            for (int i = 0; i < BITS / 2; i += 4)
                *(uint4*)(words + i) = __ldcs((const uint4*)(from + 4 * i));
    }

    /// Decodes the feeds, with the real part in the low bits; 0 unless all bits of `there` are set.
    __device__ __forceinline__ void unpack(u32 (&x)[8], u32 there) const {
        constexpr Parts less = less_than_raw();
#pragma unroll
        for (int n = 0; n < 8; n++) {
            if constexpr (BITS == 4) {
                // High nibble, then low nibble of the byte: real and imaginary part.
                const u32 twice = __byte_perm(words[n / 4], 0, (n & 3) * 0x0101 | 0x4040);
                const u32 raw = and_xor(twice, there & 0x000f00f0, 0x64085480);
                x[n] = add_halves(raw, (less.im & 0xffff0000) | (less.re & 0xffff));
            } else if constexpr (BITS == 8) {
                const u32 bytes = __byte_perm(words[n / 2], 0x64646464, n & 1 ? 0x4342 : 0x4140);
                x[n] = add_halves(and_xor(bytes, there | 0xff00ff00, 0x00800080), less.re);
            } else {
                x[n] = words[n] & there;
            }
        }
    }
};

/// Weights of a thread's feeds of one cylinder, from `from` [feed] in `f16` (re, im).
__device__ __forceinline__ void take_weights(u32 (&words)[8], const u32* __restrict__ from, u32 lane) {
#pragma unroll
    for (int n = 0; n < 8; n += 4) *(uint4*)(words + n) = __ldg((const uint4*)(from + 8 * feeds_of(lane) + n));
}

/// Weighted sums over the cylinders of a row.
template <int COMBINED>
__device__ __forceinline__ void combine(const Feeds (&cylinders)[COMBINED], const u32 (&weights)[COMBINED][8],
                                        u32 (&sums)[8], u32 there) {
    // Products with the real parts of the weights, and with the imaginary parts, to be multiplied by i.
    u32 straight[8], crossed[8];
#pragma unroll
    for (int k = 0; k < COMBINED; k++) {
        u32 x[8];
        cylinders[k].unpack(x, there);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const u32 re = both_lower(weights[k][n]), im = both_upper(weights[k][n]);
            straight[n] = k == 0 ? times_halves(x[n], re) : fma_halves(x[n], re, straight[n]);
            crossed[n] = k == 0 ? times_halves(x[n], im) : fma_halves(x[n], im, crossed[n]);
        }
    }
#pragma unroll
    for (int n = 0; n < 8; n++)
        sums[n] = fma_halves(__byte_perm(crossed[n], 0, 0x1032), 0x3c00bc00, straight[n]);
}

/// Phases of a thread, in ten registers.
struct Phases {
    /// E(q0q1q2, n0n1n6n7): b ReIm, t n7 n6 q0 q1 q2, r n0 n1, packed (29).
    u32 first[4];
    /// E(q0q1q2, n2n3n4n5): b n5, t n4 n3 q0 q1 q2, r n2 ReIm (25). The part with n2 = 0 is also E(q3q4q5, n0n1n2)
    /// (27).
    u32 twiddle[2][2];
    /// E(q3q4q5, n3n4n5): b n5, t n4 n3 q3 q4 q5, r ReIm (26), and also E(q6q7q8, n0n1n2) (28).
    u32 short_transform[2];

    /// `table` is `[register 10][lane 32]`.
    __device__ __forceinline__ void load(const u32* __restrict__ table, u32 lane) {
        u32* words = first;
#pragma unroll
        for (int i = 0; i < 10; i++) words[i] = __ldg(table + 32 * i + lane);
    }
};

/// Transposes r and the bit `mask` of the thread index.
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
    // (8): two rows of phases for each packed row, (re, -im) for real parts and (im, re) for imaginary parts.
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
    // (15) to (16): swaps n2 with q0, n1 with q1, and n0 with q2; then the register is 4 q0 + 2 q1 + q2.
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
