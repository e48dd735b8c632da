// Weighted sums of cylinders on tensor cores, for 16 spectra at a time, to shared memory.
//
// The rows of a matrix instruction are spectra. It sums over four cylinders, both parts, and two feeds. The columns
// are both parts of four feeds; weights of combinations that do not belong together are 0. Integers are used by
// their bit pattern, as subnormal `f16`: n bits at the low end are a number of 0 .. 2^n times 2^-24. The offset of
// 2^(n-1) of the integers is subtracted from each sum.
#pragma once
#include "async_copy.cuh"
#include "frb_rows.cuh"

/// Spectra per batch.
constexpr u32 BATCH = 16;
/// Cylinders per row of beams, and matrix instructions for them.
constexpr int COMBINED = EAST_WEST ? CYLINDERS : 1;
constexpr int STEPS = (COMBINED + 3) / 4;
/// Distance in words between the feeds of adjacent spectra, with padding so that threads with different spectra
/// write to different banks.
constexpr u32 PITCH = FEEDS + 16;

/// Place in shared memory of the feeds of a spectrum with these bits, those with n0 and n2 = 0 of four. `x` is n3, or
/// with PAIRED the part of the feeds with n3 = 0 and 1. Bits are permuted so that threads read and write in different
/// banks.
__device__ __forceinline__ u32 place_of_feeds(u32 n1, u32 x, u32 n4567) {
    const u32 n5 = n4567 >> 1 & 1;
    const u32 place = n1 << 2 | (x ^ n5) << 3 | (n4567 & 1) << 4 | n5 << 5 | (n4567 >> 2) << 6;
    return PAIRED ? place : place ^ (n4567 >> 2 & 1) << 2 ^ (n4567 >> 3) << 4;
}

/// Reads the weighted sums of a thread's feeds, in the layout of `feeds_to_beams`.
__device__ __forceinline__ void take_feeds(const u32* feeds, u32 (&x)[8], u32 lane) {
    if constexpr (PAIRED) {
        // t n4 n5 n0 n1 n2
        const u32 n02 = (lane >> 2 & 1) | (lane >> 4) << 1;
#pragma unroll
        for (u32 part = 0; part < 2; part++) {
            const u32* from = feeds + place_of_feeds(lane >> 3 & 1, part, lane & 3) + n02;
#pragma unroll
            for (u32 m = 0; m < 4; m++) x[part + 2 * m] = from[64 * m];
        }
    } else {
        // t n7 n6 n5 n4 n3; n0 and n2 are in a vector.
        const u32 n34567 = __brev(lane) >> 27;
#pragma unroll
        for (u32 n1 = 0; n1 < 2; n1++) {
            const uint4 of_n1 = *(const uint4*)(feeds + place_of_feeds(n1, n34567 & 1, n34567 >> 1));
            x[2 * n1] = of_n1.x, x[2 * n1 + 1] = of_n1.y;
            x[2 * n1 + 4] = of_n1.z, x[2 * n1 + 5] = of_n1.w;
        }
    }
}

/// Bytes from one spectrum to the next.
constexpr u64 SPECTRUM = (u64)CHANNELS * POLS * CYLINDERS * FEEDS * FEED_BYTES;
/// Bytes of the cylinders of a row.
constexpr u32 ROW_BYTES = COMBINED * FEEDS * FEED_BYTES;
/// Whether rows are staged in shared memory, which has space for two batches. Then they are read in the order of
/// memory; scattered reads of 16 bytes occupy the L1 cache for longer.
constexpr bool STAGED = BITS == 4 && COMBINED <= 4;
constexpr u32 STAGE_BYTES = STAGED ? BATCH * ROW_BYTES : 0;

/// Place of 16 bytes of a spectrum of a batch in its stage, such that bytes that are read together are in different
/// banks.
__device__ __forceinline__ u32 place_of_bytes(u32 spectrum, u32 cylinder, u32 block) {
    return spectrum * ROW_BYTES + 16 * (16 * cylinder + (block ^ cylinder ^ (spectrum & 1) << 2));
}

/// Starts copying the row `from` of spectrum `spectrum` of a batch to a stage.
__device__ __forceinline__ void stage(u8* stage, const u8* from, u32 spectrum, u32 lane) {
#pragma unroll
    for (u32 i = 0; i < ROW_BYTES; i += 512) {
        const u32 to = place_of_bytes(spectrum, lane / 16 + i / 256, lane % 16);
        if (ROW_BYTES % 512 == 0 || i + 16 * lane < ROW_BYTES)
            cp_async16(shared_address(stage + to), from + i + 16 * lane, true);
    }
    cp_async_commit();
}

/// Feeds from 16 `block` on of the spectra `lane` / 4 and `lane` / 4 + 8 of a batch, of the cylinders from `lane` %
/// 4 on, in the format of the frame.
struct Batch {
    u32 words[STEPS][2][BITS];

    /// Mask that flips the sign bits, so that integers become unsigned offsets.
    static constexpr u32 SIGNS = BITS == 4 ? 0x88888888 : 0x80808080;

    /// Loads the batch from a stage, or from its first row `from`.
    __device__ __forceinline__ void load(const u8* stage, const u8* from, u32 block, u32 lane) {
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int late = 0; late < 2; late++) {
                // Cylinders that do not exist have no weight.
                const u32 cylinder = min(4 * s + lane % 4, (u32)COMBINED - 1), spectrum = lane / 4 + 8 * late;
                if constexpr (STAGED) {
                    *(uint4*)words[s][late] = *(const uint4*)(stage + place_of_bytes(spectrum, cylinder, block));
                } else {
                    const u8* feeds = from + spectrum * SPECTRUM + (cylinder * FEEDS + 16 * block) * FEED_BYTES;
#pragma unroll
                    for (int i = 0; i < BITS; i += 4)
                        *(uint4*)(words[s][late] + i) = __ldg((const uint4*)(feeds + 4 * i));
                }
            }
    }

    /// Feeds n0 + 4 n2 + 8 n3, n1 = 0 and 1, as unsigned offsets; real parts of 4 bits are 16 times too large.
    __device__ __forceinline__ Parts parts(int s, int late, int n0, int n2, int n3) const {
        const u32* of_spectrum = words[s][late];
        const int first = n0 + 4 * n2 + 8 * n3;
        if constexpr (BITS == 4) {
            const u32 pair = of_spectrum[n2 + 2 * n3] >> 8 * n0;
            return {xor_and(pair, SIGNS, 0x00f000f0), xor_and(pair, SIGNS, 0x000f000f)};
        } else if constexpr (BITS == 8) {
            const u32 pair = __byte_perm(of_spectrum[first / 2], of_spectrum[first / 2 + 1], n0 ? 0x7632 : 0x5410);
            return {xor_and(pair, SIGNS, 0x00ff00ff), xor_and(pair >> 8, SIGNS, 0x00ff00ff)};
        } else {
            Parts parts = {of_spectrum[first], of_spectrum[first + 2]};
            local_transpose(parts.re, parts.im);
            return parts;
        }
    }
};

/// Weights of sixteen feeds, in the layout of a thread's columns.
struct ColumnWeights {
    /// [4 cylinders][n0 + 2 n2][n3][ReIm of the feed]: feeds n1 = 0 and 1 of cylinder `lane` % 4, column `lane` / 4.
    u32 words[STEPS][4][2][2];
    /// Weights of n3 = 0 and 1 together, which are in separate columns.
    u32 both[STEPS][4][2];

    /// Loads `weights` [cylinder][feed] in `f16` (re, im), from the first of the feeds on, times `factor`.
    __device__ __forceinline__ void load(const u32* __restrict__ weights, u32 lane, float factor = 1.0f) {
        // Columns: the bit of the two `f16` of a word, then bits of the thread index.
        const u32 c0 = lane >> 2 & 1, c1 = lane >> 3 & 1, n1 = lane >> 4;
        const u32 n3 = PAIRED ? c0 : c1, part = PAIRED ? c1 : c0;
#pragma unroll
        for (int g = 0; g < 4; g++)
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                const u32 cylinder = 4 * s + lane % 4, feed = (g & 1) + 2 * n1 + 4 * (g >> 1) + 8 * n3;
                u32 weight = cylinder < COMBINED ? __ldg(weights + cylinder * FEEDS + feed) : 0;
                if (factor != 1.0f) weight = times_halves(weight, halves(factor, factor));
                const u32 re = weight & 0xffff, im = weight >> 16;
                // (re + i im) (x + i y): re x - im y, im x + re y.
                const u32 of_x = (part ? im : re) << 16 * n1;
                u32 of_y = (part ? re : im ^ 0x8000) << 16 * n1;
                if constexpr (BITS == 4) of_y = times_halves(of_y, 0x4c004c00);
                both[s][g][0] = of_x;
                both[s][g][1] = of_y;
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    words[s][g][m][0] = n3 == m ? of_x : 0;
                    words[s][g][m][1] = n3 == m ? of_y : 0;
                    // Kept in registers: compilers would select them again for each batch.
                    asm volatile("" : "+r"(words[s][g][m][0]), "+r"(words[s][g][m][1]));
                }
            }
    }
};

/// Writes the weighted sums of a batch's feeds from 16 `block` on to shared memory, `feeds` [spectrum 16][PITCH],
/// for its spectra `from` to `end` - 1.
__device__ __forceinline__ void weigh(const Batch& batch, const ColumnWeights& weights, u32* feeds, u32 block, u32 lane,
                                      u32 from = 0, u32 end = BATCH) {
    // Correction for the offset of the integers: -8, also times 16, or -128.
    constexpr u32 LESS_RE = BITS == 16 ? 0 : 0x80808080, LESS_IM = BITS == 4 ? 0x80088008 : LESS_RE;
    const u32 less[4] = {LESS_RE, LESS_RE, LESS_IM, LESS_IM};
    u32 sums[2][4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
        float sum[4] = {};
        if constexpr (BITS < 16)
#pragma unroll
            for (int s = 0; s < STEPS; s++) multiply_halves(sum, less, weights.both[s][g][0], weights.both[s][g][1]);
#pragma unroll
        for (int i = 0; i < 2 * STEPS; i++) {
            const int s = i / 2, n3 = i % 2;
            const Parts early = batch.parts(s, 0, g & 1, g >> 1, n3), late = batch.parts(s, 1, g & 1, g >> 1, n3);
            const u32 rows[4] = {early.re, late.re, early.im, late.im};
            const u32(&columns)[2] = weights.words[s][g][n3];
            multiply_halves(sum, rows, columns[0], columns[1]);
        }
        sums[0][g] = halves(sum[0], sum[1]);
        sums[1][g] = halves(sum[2], sum[3]);
    }
    u32* to = feeds + lane / 4 * PITCH + place_of_feeds(lane >> 1 & 1, lane & 1, block);
#pragma unroll
    for (int late = 0; late < 2; late++) {
        const u32 spectrum = lane / 4 + 8 * late;
        if (spectrum >= from && spectrum < end)
            *(uint4*)(to + 8 * late * PITCH) =
                make_uint4(sums[late][0], sums[late][1], sums[late][2], sums[late][3]);
    }
}
