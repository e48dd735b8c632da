// Sums of intensities of upchannelised beams, in one pass over the feeds.
#pragma once
#include "frb_times.cuh"
#include "frb_weigh.cuh"

static_assert(FINE == 32 || FINE == 64 || FINE == 128, "spectra of a transform");
static_assert(WEIGHTED && CLAMP && WARPS == 16, "stages");

/// Transforms of spectra per sum, one for each polarisation.
constexpr u32 PARTS = SUM_SPECTRA * POLS;
/// Batches per transform.
constexpr u32 BATCHES = FINE / BATCH;

/// Weights that apply from spectrum `first` of the frame on, and their factor to the common scale.
struct WeightsFrom {
    const u32* weights;
    u32 first;
    float factor;
};

/// A single version of the weights.
struct Steady {
    static constexpr bool IS_STEADY = true;
    const u32* weights;
};

/// Versions of the weights of a sum. The first one applies from its first spectrum; after the last one there are
/// versions that are never reached.
struct Changing {
    static constexpr bool IS_STEADY = false;
    WeightsFrom versions[10];
};

/// Body of both kernels.
template <typename Versions>
__device__ __forceinline__ void make_intensities(const u8* __restrict__ input, float* __restrict__ output,
                                                 const u32* __restrict__ phases, const Versions& versions,
                                                 const u16* __restrict__ map, const u32* __restrict__ units,
                                                 const u32* __restrict__ time_phases, float scale, u32 first_sum) {
    extern __shared__ __align__(16) u32 shared[];
    // The shuffles make `warp` uniform for the compiler, and avoid slow repeated reads of the thread index.
    const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = __shfl_sync(~0u, threadIdx.x, threadIdx.x) % 32;
    const u32 channel = blockIdx.x, row = blockIdx.y, sum = first_sum + blockIdx.z;
    u32* voltages = shared;
    u32* beams = shared + FINE * ROW_BEAMS + POINTS * warp;
    u32* feeds = shared + FINE * ROW_BEAMS + POINTS * WARPS;
    u8* stages = (u8*)(feeds + 2 * BATCH * PITCH);
    // Row of the feeds of spectrum t of transform part / POLS.
    const auto row_of = [&](u32 part, u32 t) {
        const u64 spectrum = (sum * SUM_SPECTRA + part / POLS) * FINE + t, line = channel * POLS + part % POLS;
        return input + spectrum * SPECTRUM + (line * CYLINDERS + (EAST_WEST ? 0 : row)) * (FEEDS * FEED_BYTES);
    };
    // Source of the next copy, and its batch: two batches ahead, counted over all parts.
    const u8* incoming = row_of(0, warp);
    u32 incoming_batch = 0;
    const auto stage_next = [&] {
        if (!STAGED || incoming_batch == PARTS * BATCHES) return;
        stage(stages + incoming_batch % 2 * STAGE_BYTES, incoming, warp, lane);
        incoming += BATCH * SPECTRUM;
        if (++incoming_batch % BATCHES == 0) incoming = row_of(incoming_batch / BATCHES, warp);
    };
    Phases phase;
    phase.load(phases, lane);
    Choice choice;
    choice.load(map + channel * ROW_BEAMS, lane);
    Sums sums;
    sums.clear();
    stage_next();
    stage_next();
    cp_async_wait<0>();
    __syncthreads();
    for (u32 part = 0; part < PARTS; part++) {
        const u64 of_line = (u64)((channel * POLS + part % POLS) * ROWS + row) * (COMBINED * FEEDS) + 16 * warp;
        ColumnWeights weight;
        if constexpr (Versions::IS_STEADY) weight.load(versions.weights + of_line, lane);
        // Two buffers in rotation: one batch is computed while the other is used, and a third batch is being copied.
        const auto weigh_batch = [&](u32 n) {
            Batch batch;
            batch.load(stages + n % 2 * STAGE_BYTES, row_of(part, BATCH * n), warp, lane);
            u32* weighted = feeds + n % 2 * (BATCH * PITCH);
            if constexpr (Versions::IS_STEADY) {
                weigh(batch, weight, weighted, warp, lane);
            } else {
                const u32 begin = (sum * SUM_SPECTRA + part / POLS) * FINE + BATCH * n, end = begin + BATCH;
                const WeightsFrom* of_now = versions.versions;
                for (; of_now->first < end; of_now++) {
                    const u32 next = of_now[1].first;
                    if (next <= begin) continue;
                    weight.load(of_now->weights + of_line, lane, of_now->factor);
                    weigh(batch, weight, weighted, warp, lane, max(of_now->first, begin) - begin, min(next, end) - begin);
                }
            }
        };
        // Transforms the feeds of spectrum BATCH n + `warp` to beams.
        const auto transform = [&](u32 n) {
            u32 x[8], y[16];
            take_feeds(feeds + (n % 2 * BATCH + warp) * PITCH, x, lane);
            feeds_to_beams(x, y, phase, lane);
            put_row(beams, y, lane);
            // All beams are read before the first is written; the compiler cannot know that the memory does not
            // overlap.
            uint4 chosen[Choice::RUNS];
#pragma unroll
            for (u32 k = 0; k < Choice::RUNS; k++) chosen[k] = choice.of(beams, k, lane);
            const u32 t = BATCH * n + warp;
            u32* to = voltages + t * ROW_BEAMS + 4 * (lane ^ exchanged(t));
#pragma unroll
            for (u32 k = 0; k < Choice::RUNS; k++)
                if (Choice::has(k, lane)) *(uint4*)(to + 128 * k) = chosen[k];
        };
        weigh_batch(0);
#pragma unroll 1
        for (u32 n = 0; n + 1 < BATCHES; n++) {
            cp_async_wait<0>();
            __syncthreads();
            stage_next();
            // The warps of a scheduler alternate in the order, so that they use different units.
            if (warp & 4) weigh_batch(n + 1);
            transform(n);
            if (!(warp & 4)) weigh_batch(n + 1);
        }
        cp_async_wait<0>();
        __syncthreads();
        stage_next();
        transform(BATCHES - 1);
        bool whole = true;
        for (u32 t = lane; t < FINE; t += 32)
            whole &= is_there(units, (sum * SUM_SPECTRA + part / POLS) * FINE + t, channel);
        cp_async_wait<0>();
        __syncthreads();
        if (!__all_sync(~0u, whole)) continue;
        TimePhases of_time;
        of_time.load(time_phases, lane);
        sums.add(voltages, of_time, warp, lane);
    }
    sums.put(output + (((u64)sum * CHANNELS + channel) * NARROW * ROWS + row) * ROW_BEAMS, scale, warp, lane);
}

/// Computes sums of intensities.
///
/// input, phases, weights, map, units  as for `frb_voltages`
/// output       [spectrum of sums][narrow channel][row][beam], single precision
/// time_phases  `[register 12][lane 32]`, see `TimePhases`
/// scale        square of the divisor of the weights
/// first_sum    index of the first spectrum of sums
///
/// Grid: CHANNELS, ROWS, spectra of sums. Shared memory: FINE ROW_BEAMS + 16 512 + 2 16 PITCH words, and two stages.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    frb_intensities(const u8* __restrict__ input, float* __restrict__ output,
                    const u32* __restrict__ phases, const u32* __restrict__ weights,
                    const u16* __restrict__ map, const u32* __restrict__ units,
                    const u32* __restrict__ time_phases, float scale, u32 first_sum) {
    make_intensities(input, output, phases, Steady{weights}, map, units, time_phases, scale, first_sum);
}

/// Computes sums of intensities during which the weights change.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    frb_changing_intensities(const u8* __restrict__ input, float* __restrict__ output,
                             const u32* __restrict__ phases, const __grid_constant__ Changing versions,
                             const u16* __restrict__ map, const u32* __restrict__ units,
                             const u32* __restrict__ time_phases, float scale, u32 first_sum) {
    make_intensities(input, output, phases, versions, map, units, time_phases, scale, first_sum);
}
