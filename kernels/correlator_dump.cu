// Out of the correlator's 32-bit sums: into 64-bit ones before they overflow, and into dumps.
#include "types.cuh"

constexpr int THREADS = 256;
constexpr i32 LARGEST = 0x7fffffff;
/// The value of a product without any input, as two complex numbers: -2^31 is otherwise never
/// put out.
constexpr int4 MISSING{-LARGEST - 1, 1, -LARGEST - 1, 1};

/// A baseline of a channel.
struct Baseline {
    /// Antennas, a1 <= a2.
    i32 a1, a2;

    /// Number `index` in the order (0, 0), (0, 1), (1, 1), (0, 2), ...
    __device__ __forceinline__ Baseline(i32 index) {
        // The root may be off by a little.
        a2 = (i32)((sqrtf(8.0f * index + 1) - 1) / 2);
        while (triangle(a2) > index) a2--;
        while (triangle(a2 + 1) <= index) a2++;
        a1 = index - triangle(a2);
    }

  private:
    static __device__ __forceinline__ i32 triangle(i32 a) { return a * (a + 1) / 2; }
};

/// Takes the products of a baseline with polarisation `p2` of its second antenna out of the
/// 32-bit sums, which become 0: {re, im} with polarisation 0 and 1 of the first antenna.
__device__ __forceinline__ int4 take(i32* visibilities, const i32* real_parts, i64 channel,
                                     Baseline b, int p2, i64 n) {
    const i32 row = 2 * b.a2 + p2, column = 2 * b.a1;
    int4* at = (int4*)(visibilities + ((channel * n + row) * n + column) * 2);
    int4 v = *at;
    *at = {};
    // What the kernels leave out, see voltages.cuh. Sums wrap, so they may leave the range on the
    // way; u32 because only unsigned numbers may.
    const i32* real = real_parts + channel * n + column;
    v.y = (i32)((u32)v.y + (u32)real[0]);
    v.w = (i32)((u32)v.w + (u32)real[1]);
    return v;
}

/// `sum` within +-(2^31 - 1).
__device__ __forceinline__ i32 clamped(i64 sum) {
    return (i32)max((i64)-LARGEST, min((i64)LARGEST, sum));
}

/// What is known of the sums.
struct State {
    /// Largest autocorrelation in the 32-bit sums, and so the largest number there at all: the
    /// square of a visibility is at most the product of the autocorrelations of its inputs.
    u32 largest;
    /// Whether the 64-bit sums hold anything.
    u32 widened;
};

// Whether 32-bit sums have to be moved is found out on the GPU, so that the host need not wait to
// decide: `watch`, `widen` and `settle` run one after the other, and the last two do nothing unless
// the largest number is more than `most`.

/// Raises `state->largest` to the largest autocorrelation.
///
/// visibilities  [channel][row n][column n][re, im]
///
/// Grid (rows x channels / 256), blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    watch(const i32* __restrict__ visibilities, State* state, i32 n, i32 channels) {
    const i64 index = (i64)blockIdx.x * THREADS + threadIdx.x;
    u32 largest = 0;
    if (index < (i64)n * channels) {
        const i64 row = index % n, channel = index / n;
        largest = (u32)visibilities[((channel * n + row) * n + row) * 2];
    }
    largest = __reduce_max_sync(~0u, largest);
    if (threadIdx.x % 32 == 0) atomicMax(&state->largest, largest);
}

/// Adds the 32-bit sums to the 64-bit ones; the 32-bit ones become 0.
///
/// visibilities  [channel][row n][column n][re, im]
/// real_parts    [channel][row n]
/// wide          [channel][baseline][product 4][re, im]
///
/// Grid (baselines / 256, any number), blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    widen(i32* visibilities, const i32* __restrict__ real_parts, i64* wide,
          const State* __restrict__ state, u32 most, i32 n, i32 baselines, i32 channels) {
    const i32 index = blockIdx.x * THREADS + threadIdx.x;
    if (state->largest <= most || index >= baselines) return;
    const Baseline baseline(index);
    for (i64 channel = blockIdx.y; channel < channels; channel += gridDim.y)
        for (int p2 = 0; p2 < 2; p2++) {
            const int4 v = take(visibilities, real_parts, channel, baseline, p2, n);
            longlong2* sums = (longlong2*)wide + (channel * baselines + index) * 4 + 2 * p2;
            const longlong2 first = sums[0], second = sums[1];
            sums[0] = {first.x + v.x, first.y + v.y};
            sums[1] = {second.x + v.z, second.y + v.w};
        }
}

/// Clears what belongs to the sums that were moved, and what is known of them.
///
/// One block of 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    settle(i32* real_parts, State* state, u32 most, i32 n, i32 channels) {
    const bool moved = state->largest > most;
    __syncthreads();
    if (threadIdx.x == 0) {
        state->largest = 0;
        if (moved) state->widened = 1;
    }
    if (moved)
        for (i64 i = threadIdx.x; i < (i64)n * channels; i += THREADS) real_parts[i] = 0;
}

/// Writes a dump; all sums become 0.
///
/// visibilities, real_parts, wide, state  as above; `wide` is null if no sum can leave 32 bits
/// counts     [baseline]: 0 where there was no input; null if there was everywhere
/// output     [channel][baseline][product 4][re, im]
/// saturated  grows by the number of products that did not fit 32 bits
///
/// Grid and block as above.
extern "C" __global__ void __launch_bounds__(THREADS)
    dump(i32* visibilities, const i32* __restrict__ real_parts, i64* wide,
         const State* __restrict__ state, const u32* __restrict__ counts, int4* output,
         u64* saturated, i32 n, i32 baselines, i32 channels) {
    const i32 index = blockIdx.x * THREADS + threadIdx.x;
    u32 clamps = 0;
    if (index < baselines) {
        const Baseline baseline(index);
        const bool missing = counts && counts[index] == 0;
        const bool widened = wide && state->widened;
        for (i64 channel = blockIdx.y; channel < channels; channel += gridDim.y)
            for (int p2 = 0; p2 < 2; p2++) {
                int4 v = take(visibilities, real_parts, channel, baseline, p2, n);
                if (widened) {
                    longlong2* sums = (longlong2*)wide + (channel * baselines + index) * 4 + 2 * p2;
                    const longlong2 first{sums[0].x + v.x, sums[0].y + v.y};
                    const longlong2 second{sums[1].x + v.z, sums[1].y + v.w};
                    sums[0] = sums[1] = {};
                    v = {clamped(first.x), clamped(first.y), clamped(second.x), clamped(second.y)};
                    clamps += v.x != first.x || v.y != first.y;
                    clamps += v.z != second.x || v.w != second.y;
                }
                output[(channel * baselines + index) * 2 + p2] = missing ? MISSING : v;
            }
        if (missing) clamps = 0;
    }
    clamps = __reduce_add_sync(~0u, clamps);
    if (clamps != 0 && threadIdx.x % 32 == 0) atomicAdd(saturated, (u64)clamps);
}
