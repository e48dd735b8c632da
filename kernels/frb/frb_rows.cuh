// Transfer of rows of beams from the registers of a warp through shared memory.
#pragma once
#if RADIX8
#include "frb_radix8.cuh"
#else
#include "frb_fft.cuh"
#endif

/// Index of beam q of a row in the warp's shared memory, such that neither writes of runs of 16 nor sequential reads
/// have bank conflicts.
__device__ __forceinline__ u32 place_of(u32 q) { return q ^ ((q >> 5 & 7) << 2); }

/// Writes the beams of a row to the warp's shared memory.
__device__ __forceinline__ void put_row(u32* row, const u32 (&y)[16], u32 lane) {
    __syncwarp();
    // place_of(16 `lane` + i) is place_of(16 `lane`) ^ i.
    const u32 first = place_of(16 * lane);
#pragma unroll
    for (u32 i = 0; i < 16; i += 4)
        *(uint4*)(row + (first ^ i)) = make_uint4(y[i], y[i + 1], y[i + 2], y[i + 3]);
    __syncwarp();
}

/// The beams 4 `lane` + 128 k, ... of a row, and their places.
struct Choice {
    static constexpr int RUNS = (ROW_BEAMS + 127) / 128;
    /// Two places per word.
    u32 places[RUNS][2];

    __device__ __forceinline__ static bool has(u32 k, u32 lane) {
        return ROW_BEAMS % 128 == 0 || 4 * lane + 128 * k < ROW_BEAMS;
    }
    /// `map` [beam]; without CLAMP all points in order.
    __device__ __forceinline__ void load(const u16* __restrict__ map, u32 lane) {
        if constexpr (CLAMP)
#pragma unroll
            for (int k = 0; k < RUNS; k++) {
                const u16* of_lane = map + (has(k, lane) ? 4 * lane + 128 * k : 0);
#pragma unroll
                for (int i = 0; i < 2; i++)
                    places[k][i] = place_of(of_lane[2 * i]) | place_of(of_lane[2 * i + 1]) << 16;
            }
    }
    __device__ __forceinline__ uint4 of(const u32* row, int k, u32 lane) const {
        if constexpr (!CLAMP) return *(const uint4*)(row + place_of(4 * lane + 128 * k));
        const u32 a = places[k][0], b = places[k][1];
        return make_uint4(row[a & 0xffff], row[a >> 16], row[b & 0xffff], row[b >> 16]);
    }
};

/// Returns whether the input of this spectrum and channel is valid; `units` [time][frequency].
__device__ __forceinline__ bool is_there(const u32* __restrict__ units, u32 spectrum, u32 channel) {
    return units[spectrum / (SPECTRA / UNITS_IN_TIME) * UNITS_IN_FREQUENCY +
                 channel / (CHANNELS / UNITS_IN_FREQUENCY)] != 0;
}
