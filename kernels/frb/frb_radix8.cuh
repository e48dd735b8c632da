// The transform of frb_fft.cuh in another order, without shuffles between threads: one radix-8 step in ordinary
// arithmetic, then two steps on tensor cores. The second of these finds its rows where the first has its columns.
//
//   E(q6q7q8, n0n1n2) E(q3q4q5, n0n1n2) E(q3q4q5, n3n4n5) E(q0q1q2, n0n1n2n3n4n5) E(q0q1q2, n6n7)
//
//   X       b n3    t n4 n5 n0 n1 n2  r n6 n7 ReIm
//   Z1, Z2  b n3    t n4 n5 n0 n1 n2  r q0 q1 q2 ReIm
//   Z3, Z4  b n0    t n1 n2 q3 q4 q5  r q0 q1 q2 ReIm
//   Y'      b q3    t q4 q5 q6 q7 q8  r q0 q1 q2 ReIm
//   Y       b ReIm  t q4 q5 q6 q7 q8  r q0 q1 q2 q3
//
// Index names as in frb_fft.cuh: b is the `f16` of a register, t are bits of the thread index, r is the register.
#pragma once
#include "frb_feeds.cuh"

/// Whether a word in shared memory has one part of two feeds 8 apart, instead of both parts of one feed.
constexpr bool PAIRED = true;

/// First feed of a thread; the others are 8 n3 + 64 (n6 + 2 n7) later.
__device__ __forceinline__ u32 feed_of(u32 lane) { return lane / 4 + 16 * (lane % 4); }

/// Eight feeds of one cylinder, in the format of the frame.
struct Feeds {
    /// Register n3 + 2 n6 + 4 n7.
    u32 words[8];

    __device__ __forceinline__ void load(const u8* cylinder, u32 lane) {
        const u8* from = cylinder + FEED_BYTES * feed_of(lane);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const u8* feed = from + FEED_BYTES * (8 * (i & 1) + 64 * (i >> 1));
            if constexpr (BITS == 4) words[i] = __ldcs(feed);
            else if constexpr (BITS == 8) words[i] = __ldcs((const u16*)feed);
            else words[i] = __ldcs((const u32*)feed);
        }
    }

    /// Decodes the feeds to register ReIm + 2 n6 + 4 n7, two feeds in each; 0 unless all bits of `there` are set.
    __device__ __forceinline__ void unpack(u32 (&x)[8], u32 there) const {
        constexpr Parts less = less_than_raw();
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            x[i] = words[i];
            x[i + 1] = words[i + 1];
            if constexpr (BITS == 16) {
                x[i] &= there;
                x[i + 1] &= there;
                local_transpose(x[i], x[i + 1]);
            } else {
                const Parts raw = raw_parts(__byte_perm(x[i], x[i + 1], 0x5410), there);
                x[i] = add_halves(raw.re, less.re);
                x[i + 1] = add_halves(raw.im, less.im);
            }
        }
    }
};

/// Weights of a thread's feeds of one cylinder, from `from` [feed] in `f16` (re, im), in the registers of their
/// values.
__device__ __forceinline__ void take_weights(u32 (&words)[8], const u32* __restrict__ from, u32 lane) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const u32* pair = from + feed_of(lane) + 32 * i;
        words[i] = __ldg(pair);
        words[i + 1] = __ldg(pair + 8);
        local_transpose(words[i], words[i + 1]);
    }
}

/// Weighted sums over the cylinders of a row.
template <int COMBINED>
__device__ __forceinline__ void combine(const Feeds (&cylinders)[COMBINED], const u32 (&weights)[COMBINED][8],
                                        u32 (&sums)[8], u32 there) {
#pragma unroll
    for (int k = 0; k < COMBINED; k++) {
        u32 x[8];
        cylinders[k].unpack(x, there);
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            const u32 re = weights[k][i], im = weights[k][i + 1];
            sums[i] = k == 0 ? times_halves(x[i], re) : fma_halves(x[i], re, sums[i]);
            sums[i + 1] = k == 0 ? times_halves(x[i], im) : fma_halves(x[i], im, sums[i + 1]);
            sums[i] = fma_halves(negate_halves(x[i + 1]), im, sums[i]);
            sums[i + 1] = fma_halves(x[i + 1], re, sums[i + 1]);
        }
    }
}

/// Phases of a thread, in twenty registers.
struct Phases {
    /// E(q0q1q2, n0n1n2n3n4n5) for q0q1q2 = 1 .. 7: b n3, t n4 n5 n0 n1 n2, r ReIm.
    u32 twiddle[7][2];
    /// E(q3q4q5, n0n1n2): b n0, t n1 n2 q3 q4 q5, r ReIm.
    u32 later_twiddle[2];
    /// E(q3q4q5, n3n4n5): b n3, t n4 n5 q3 q4 q5, and also E(q6q7q8, n0n1n2): re, im, -im, re in separate registers,
    /// because a matrix instruction reads four adjacent ones.
    u32 short_transform[4];

    /// `table` is `[register 20][lane 32]`.
    __device__ __forceinline__ void load(const u32* __restrict__ table, u32 lane) {
        u32* words = &twiddle[0][0];
#pragma unroll
        for (int i = 0; i < 20; i++) words[i] = __ldg(table + 32 * i + lane);
    }
};

/// Z1 of four inputs, x[2 n + ReIm], n = n6 + 2 n7, padded with four zeros: exp(2 pi i q n / 8).
__device__ __forceinline__ void transform8(const u32 (&x)[8], u32 (&z)[8][2]) {
    constexpr u32 ROOT = 0x39a839a8, MINUS_ROOT = 0xb9a8b9a8; // sqrt(1/2)
    const auto plus = [](u32 a, u32 b) { return add_halves(a, b); };
    const auto minus = [](u32 a, u32 b) { return subtract_halves(a, b); };
    // Sums and differences of n and n + 2, for even q.
    const u32 s_re = plus(x[0], x[4]), s_im = plus(x[1], x[5]);
    const u32 d_re = minus(x[0], x[4]), d_im = minus(x[1], x[5]);
    const u32 t_re = plus(x[2], x[6]), t_im = plus(x[3], x[7]);
    const u32 e_re = minus(x[2], x[6]), e_im = minus(x[3], x[7]);
    z[0][0] = plus(s_re, t_re), z[0][1] = plus(s_im, t_im);
    z[4][0] = minus(s_re, t_re), z[4][1] = minus(s_im, t_im);
    z[2][0] = minus(d_re, e_im), z[2][1] = plus(d_im, e_re);
    z[6][0] = plus(d_re, e_im), z[6][1] = minus(d_im, e_re);
    // x0 + i x2 and x0 - i x2; x1 and x3 rotated by odd eighths of a turn, times sqrt(2).
    const u32 a_re = minus(x[0], x[5]), a_im = plus(x[1], x[4]);
    const u32 b_re = plus(x[0], x[5]), b_im = minus(x[1], x[4]);
    const u32 f_re = minus(e_re, t_im), f_im = plus(t_re, e_im);
    const u32 g_re = minus(t_re, e_im), g_im = plus(t_im, e_re);
    z[1][0] = fma_halves(ROOT, f_re, a_re), z[1][1] = fma_halves(ROOT, f_im, a_im);
    z[5][0] = fma_halves(MINUS_ROOT, f_re, a_re), z[5][1] = fma_halves(MINUS_ROOT, f_im, a_im);
    z[3][0] = fma_halves(MINUS_ROOT, g_im, b_re), z[3][1] = fma_halves(ROOT, g_re, b_im);
    z[7][0] = fma_halves(ROOT, g_im, b_re), z[7][1] = fma_halves(MINUS_ROOT, g_re, b_im);
}

/// Transforms x, register ReIm + 2 n6 + 4 n7, to y, register q0 + 2 q1 + 4 q2 + 8 q3.
__device__ __forceinline__ void feeds_to_beams(const u32 (&x)[8], u32 (&y)[16], const Phases& phases, u32) {
    u32 z[8][2];
    transform8(x, z);
#pragma unroll
    for (int q = 1; q < 8; q++) turn(z[q][0], z[q][1], phases.twiddle[q - 1]);
    const u32(&rows)[4] = phases.short_transform;
#pragma unroll
    for (int q = 0; q < 8; q++) {
        multiply16(z[q][0], z[q][1], rows[0], rows[1], rows[2], rows[3], z[q][0], z[q][1]);
        turn(z[q][0], z[q][1], phases.later_twiddle);
    }
#pragma unroll
    for (int q = 0; q < 8; q++) {
        multiply16(y[q], y[q + 8], rows[0], rows[1], rows[2], rows[3], z[q][0], z[q][1]);
        local_transpose(y[q], y[q + 8]);
    }
}
