// Transform of FINE spectra of beams to narrow channels, on tensor cores, and sums of the intensities.
//
// Decomposition of spectra t and channels k in two steps of 8 (for 32 the second step is of 4):
//
//   128: t = low + 8 mid + 64 h, k = k0 + 2 (i + 8 j): a step of 2 over h to k0, then like 64
//    64: t = low + 8 mid,        k = i + 8 j:   exp(-2 pi i (i mid / 8 + i low / 64 + j low / 8))
//    32: t = low + 4 mid,        k = i + 8 j:   exp(-2 pi i (i mid / 8 + i low / 32 + j low / 4))
//
// The columns of the first matrix step are low, and for 32 also the group of beams, one of two. The step leaves them
// where the second one finds its rows.
#pragma once
#include "frb_rows.cuh"

/// Number of values of low.
constexpr u32 LOW = FINE == 32 ? 4 : 8;
/// Adjacent channels of a beam in the result of a thread; for 128 two for each k0.
constexpr int HELD = FINE == 128 ? 4 : 2;
/// Sums of these channels per thread.
constexpr int KEPT = SUM_CHANNELS < HELD ? HELD / SUM_CHANNELS : 1;
/// Groups of four beams that a warp transforms at a time, and number of repetitions.
constexpr u32 GROUPS = FINE == 32 ? 2 : 1;
constexpr u32 PASSES = (ROW_BEAMS / 4 / GROUPS + WARPS - 1) / WARPS;
/// Output channels per input channel.
constexpr u32 NARROW = FINE / SUM_CHANNELS;

/// Mask that permutes the groups of four beams of spectrum t in shared memory, so that spectra that are read
/// together are in different banks.
__device__ __forceinline__ u32 exchanged(u32 t) { return t / LOW % 4 | (t & 1) << 2; }

/// Phases of the transform of spectra: mid = `lane` % 4 + 4 b, low = b + 2 (`lane` % 4) (modulo 4 for 32); i and j
/// are `lane` / 4.
struct TimePhases {
    /// exp(-2 pi i (low + 8 mid) / 128), low = `lane` / 4: re, im.
    u32 half_turn[2];
    /// exp(-2 pi i i low / (8 LOW)): re, im.
    u32 twiddle[2];
    /// exp(-2 pi i i mid / 8): re, im, -im, re in separate registers, the operands of a matrix instruction.
    u32 first[4];
    /// exp(-2 pi i j low / LOW) in the same layout; for 32 only within the same group of beams, else 0.
    u32 second[4];

    /// `table` is `[register 12][lane 32]`.
    __device__ __forceinline__ void load(const u32* __restrict__ table, u32 lane) {
        u32* words = half_turn;
#pragma unroll
        for (int i = 0; i < 12; i++) words[i] = __ldg(table + 32 * i + lane);
    }
};

/// Adds the intensities of one beam's channels k0 + 2 (i + 8 j) to `power`, for i = 2 (`lane` % 4) and the next one,
/// and j = `lane` / 4; re and im are spectra mid = `lane` % 4 and mid + 4, low = `lane` / 4.
__device__ __forceinline__ void add_power(u32 re, u32 im, const TimePhases& phases, float& even, float& odd) {
    const u32(&rows)[4] = phases.first;
    u32 a, b;
    multiply16(a, b, rows[0], rows[1], rows[2], rows[3], re, im);
    turn(a, b, phases.twiddle);
    float sums[4];
    multiply_halves(sums, phases.second, a, b, {0.0f, 0.0f, 0.0f, 0.0f});
    even = fmaf(sums[0], sums[0], fmaf(sums[2], sums[2], even));
    odd = fmaf(sums[1], sums[1], fmaf(sums[3], sums[3], odd));
}

/// Sums of intensities of a thread: beams from 4 group on, and channels from HELD (`lane` % (FINE / HELD)) on.
struct Sums {
    float power[PASSES][4][KEPT];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < PASSES * 4 * KEPT; i++) power[0][0][i] = 0.0f;
    }

    /// Group of four beams of a thread in the first pass; each later pass is GROUPS WARPS groups further.
    __device__ __forceinline__ static u32 group(u32 warp, u32 lane) {
        return GROUPS * warp + (GROUPS == 2 ? lane >> 4 : 0);
    }

    /// Returns whether the warp has no beams in a pass.
    __device__ __forceinline__ static bool is_idle(u32 pass, u32 warp) {
        return ROW_BEAMS % (4 * GROUPS * WARPS) != 0 && GROUPS * (warp + WARPS * pass) >= ROW_BEAMS / 4;
    }

    /// Adds the intensities of one transform, `voltages` [spectrum][group of beams, permuted by `exchanged`][4].
    __device__ __forceinline__ void add(const u32* voltages, const TimePhases& phases, u32 warp, u32 lane) {
        constexpr int HALVES_OF_TIME = FINE == 128 ? 2 : 1;
        // `exchanged(t)` is `lane` % 8.
        const u32 t = lane / 4 % LOW + lane % 4 * LOW;
        const u32* from = voltages + t * ROW_BEAMS + 4 * (group(warp, lane) ^ lane % 8);
#pragma unroll
        for (u32 pass = 0; pass < PASSES; pass++) {
            if (is_idle(pass, warp)) return;
            u32 spectra[HALVES_OF_TIME][2][4];
#pragma unroll
            for (u32 h = 0; h < HALVES_OF_TIME; h++)
#pragma unroll
                for (u32 b = 0; b < 2; b++)
                    *(uint4*)spectra[h][b] = *(const uint4*)(from + (64 * h + 4 * LOW * b) * ROW_BEAMS +
                                                             4 * GROUPS * WARPS * pass);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float(&kept)[KEPT] = power[pass][n];
                u32 re[HALVES_OF_TIME], im[HALVES_OF_TIME];
#pragma unroll
                for (int h = 0; h < HALVES_OF_TIME; h++) {
                    re[h] = spectra[h][0][n], im[h] = spectra[h][1][n];
                    local_transpose(re[h], im[h]);
                }
                if constexpr (FINE == 128) {
                    u32 odd_re = subtract_halves(re[0], re[1]), odd_im = subtract_halves(im[0], im[1]);
                    turn(odd_re, odd_im, phases.half_turn);
                    add_power(add_halves(re[0], re[1]), add_halves(im[0], im[1]), phases, kept[0], kept[KEPT / 2]);
                    add_power(odd_re, odd_im, phases, kept[KEPT / 4], kept[KEPT / 2 + KEPT / 4]);
                } else {
                    add_power(re[0], im[0], phases, kept[0], kept[KEPT / 2]);
                }
            }
        }
    }

    /// Adds the sums over the threads and writes them to `output` [narrow channel][beam of all rows].
    __device__ __forceinline__ void put(float* output, float scale, u32 warp, u32 lane) {
#pragma unroll
        for (u32 pass = 0; pass < PASSES; pass++) {
            if (is_idle(pass, warp)) return;
            float* of_group = output + 4 * (group(warp, lane) + GROUPS * WARPS * pass);
#pragma unroll
            for (int e = 0; e < KEPT; e++) {
                float4 sums;
                float* of_beams = &sums.x;
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    float sum = power[pass][n][e];
#pragma unroll
                    for (int with = HELD; with < SUM_CHANNELS; with *= 2) sum += __shfl_xor_sync(~0u, sum, with / HELD);
                    of_beams[n] = scale * sum;
                }
                const u32 k = HELD * (lane % (FINE / HELD)) + e * SUM_CHANNELS;
                // In ascending order of frequency: channels are rotated by half of their number.
                const u32 narrow = (k + FINE / 2) % FINE / SUM_CHANNELS;
                if (k % SUM_CHANNELS == 0)
                    __stcs((float4*)(of_group + (u64)narrow * (ROWS * ROW_BEAMS)), sums);
            }
        }
    }
};
