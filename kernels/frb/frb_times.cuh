// The transform of FINE spectra of beams to narrower channels, on matrix units, and sums of the intensities.
//
// Spectra t and channels k of a transform of 64 or 128, k = (k0) + ..., by two steps of 8 (of 4 the second for 32):
//
//   128: t = low + 8 mid + 64 h, k = k0 + 2 (i + 8 j): a step of 2 over h to k0, then as 64
//    64: t = low + 8 mid,        k = i + 8 j:   exp(-2 pi i (i mid / 8 + i low / 64 + j low / 8))
//    32: t = low + 4 mid,        k = i + 8 j:   exp(-2 pi i (i mid / 8 + i low / 32 + j low / 4))
//
// Columns of the first matrix step are low, and for 32 which of two groups of beams; so it leaves them where the second
// one finds its rows.
#pragma once
#include "frb_rows.cuh"

/// Values of low.
constexpr u32 LOW = FINE == 32 ? 4 : 8;
/// Neighbouring channels of a beam that a lane comes to have: of 128 two for each of two.
constexpr int HELD = FINE == 128 ? 4 : 2;
/// Sums that it keeps of them.
constexpr int KEPT = SUM_CHANNELS < HELD ? HELD / SUM_CHANNELS : 1;
/// Groups of four beams that a warp transforms at once, and how often it does.
constexpr u32 GROUPS = FINE == 32 ? 2 : 1;
constexpr u32 PASSES = (ROW_BEAMS / 4 / GROUPS + WARPS - 1) / WARPS;
/// Channels of the output for each one of the input.
constexpr u32 NARROW = FINE / SUM_CHANNELS;

/// What the number of a group of four beams of spectrum t is exchanged with in shared memory: spectra that lanes read
/// together are in other banks.
__device__ __forceinline__ u32 exchanged(u32 t) { return t / LOW % 4 | (t & 1) << 2; }

/// Phases of the transform of spectra: mid = lane % 4 + 4 b, low = b + 2 (lane % 4) (modulo 4 for 32), i and j
/// lane / 4.
struct TimePhases {
    /// exp(-2 pi i (low + 8 mid) / 128), low = lane / 4: re, im.
    u32 half_turn[2];
    /// exp(-2 pi i i low / (8 LOW)): re, im.
    u32 twiddle[2];
    /// exp(-2 pi i i mid / 8): re, im, -im, re, each in a register of its own as matrix instructions take them.
    u32 first[4];
    /// exp(-2 pi i j low / LOW), so too; for 32 of the same group, and 0 of the other.
    u32 second[4];

    /// `table` [register 12][lane 32].
    __device__ __forceinline__ void load(const u32* __restrict__ table, u32 lane) {
        u32* words = half_turn;
#pragma unroll
        for (int i = 0; i < 12; i++) words[i] = __ldg(table + 32 * i + lane);
    }
};

/// Adds the intensities of one beam's channels k0 + 2 (i + 8 j) to `power`, i = 2 (lane % 4) and the next,
/// j = lane / 4; re and im are spectra mid = lane % 4 and mid + 4, low = lane / 4.
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

/// Sums of intensities that a lane keeps: of beams 4 group, ... and channels from HELD (lane % (FINE / HELD)) on.
struct Sums {
    float power[PASSES][4][KEPT];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < PASSES * 4 * KEPT; i++) power[0][0][i] = 0.0f;
    }

    /// Which four beams a lane has in the first pass; those of the next ones are GROUPS WARPS groups later each.
    __device__ __forceinline__ static u32 group(u32 warp, u32 lane) {
        return GROUPS * warp + (GROUPS == 2 ? lane >> 4 : 0);
    }

    /// Whether there are no beams for the warp in a pass.
    __device__ __forceinline__ static bool is_idle(u32 pass, u32 warp) {
        return ROW_BEAMS % (4 * GROUPS * WARPS) != 0 && GROUPS * (warp + WARPS * pass) >= ROW_BEAMS / 4;
    }

    /// Adds those of one transform, `voltages` [spectrum][group of beams, exchanged][4].
    __device__ __forceinline__ void add(const u32* voltages, const TimePhases& phases, u32 warp, u32 lane) {
        constexpr int HALVES_OF_TIME = FINE == 128 ? 2 : 1;
        // exchanged(t) is lane % 8.
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

    /// Adds up over lanes, and puts out, `output` [narrow channel][beam of all rows].
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
                // By ascending frequency, the lowest first: half of them on.
                const u32 narrow = (k + FINE / 2) % FINE / SUM_CHANNELS;
                if (k % SUM_CHANNELS == 0)
                    __stcs((float4*)(of_group + (u64)narrow * (ROWS * ROW_BEAMS)), sums);
            }
        }
    }
};
