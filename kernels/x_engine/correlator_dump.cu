// Output of the correlator's 32-bit sums: to 64-bit sums before integers overflow, and to dumps.
//
// Macros: `POLS`: polarisations, 1 or 2. A thread takes the products of a baseline with one polarisation of its second
// antenna, which are as many.
#include "types.cuh"

#ifndef POLS
#error "POLS is missing: polarisations, 1 or 2"
#endif

constexpr int THREADS = 256;
constexpr i32 LARGEST = 0x7fffffff;

#if POLS == 2
/// The products of a thread as integers and floats, their flags, and the real parts of their first inputs.
using Ints = int4;
using Floats = float4;
using Flags = uchar2;
using Reals = int2;
/// Value of a product without any input, as complex numbers. No other product is -2^31 on output.
constexpr Ints MISSING{-LARGEST - 1, 1, -LARGEST - 1, 1};
constexpr Floats MISSING_FLOATS{-2147483648.0f, 1, -2147483648.0f, 1};
#else
using Ints = int2;
using Floats = float2;
using Flags = uchar1;
using Reals = int1;
constexpr Ints MISSING{-LARGEST - 1, 1};
constexpr Floats MISSING_FLOATS{-2147483648.0f, 1};
#endif

/// Replaces the products with flags by `missing`.
template <class Values>
__device__ __forceinline__ void mark(Values& v, const Values& missing, Flags flags) {
    if (flags.x) v.x = missing.x, v.y = missing.y;
#if POLS == 2
    if (flags.y) v.z = missing.z, v.w = missing.w;
#endif
}

/// Channels that a thread processes at the same time, so that their reads overlap.
constexpr int AT_ONCE = 4;

/// Products of a baseline with one polarisation of its second antenna.
struct Products {
    /// Antennas, a1 <= a2.
    i32 a1, a2;
    /// Polarisation of the second antenna.
    i32 p2;

    /// Baseline `index` in the order (0, 0), (0, 1), (1, 1), (0, 2), ..., each with all polarisations.
    __device__ __forceinline__ Products(i32 index) {
        const i32 baseline = index / POLS;
        // Corrects the rounding of the square root.
        a2 = (i32)((sqrtf(8.0f * baseline + 1) - 1) / 2);
        while (triangle(a2) > baseline) a2--;
        while (triangle(a2 + 1) <= baseline) a2++;
        a1 = baseline - triangle(a2);
        p2 = index % POLS;
    }

    /// Takes the products of some channels, from `channel` on, out of the sums and resets these to 0: {re, im} with each
    /// polarisation of the first antenna.
    template <class Values, class Sum>
    __device__ __forceinline__ void take(Values (&products)[AT_ONCE], Sum* visibilities, i64 channel,
                                         i64 channels, i64 n) const {
        const i32 row = POLS * a2 + p2, column = POLS * a1;
        Values* const at = (Values*)(visibilities + ((channel * n + row) * n + column) * 2);
        const i64 of_channel = n * n / POLS;
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++) {
            if (channel + c >= channels) break;
            products[c] = at[c * of_channel];
        }
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++) {
            if (channel + c >= channels) break;
            at[c * of_channel] = {};
        }
    }

    /// Takes the products of integers, with the real parts that the kernels leave out, see voltages.cuh.
    __device__ __forceinline__ void take_whole(Ints (&products)[AT_ONCE], i32* visibilities,
                                               const i32* real_parts, i64 channel, i64 channels,
                                               i64 n) const {
        Reals real[AT_ONCE];
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++) {
            if (channel + c >= channels) break;
            real[c] = *(const Reals*)(real_parts + (channel + c) * n + POLS * a1);
        }
        take(products, visibilities, channel, channels, n);
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++) {
            if (channel + c >= channels) break;
            // Sums wrap, so intermediate results may overflow; u32 because only unsigned overflow is defined.
            products[c].y = (i32)((u32)products[c].y + (u32)real[c].x);
#if POLS == 2
            products[c].w = (i32)((u32)products[c].w + (u32)real[c].y);
#endif
        }
    }

  private:
    static __device__ __forceinline__ i32 triangle(i32 a) { return a * (a + 1) / 2; }
};

/// `sum` clamped to +-(2^31 - 1).
__device__ __forceinline__ i32 clamped(i64 sum) {
    return (i32)max((i64)-LARGEST, min((i64)LARGEST, sum));
}

#if POLS == 2
/// The products of a thread in 64 bits.
struct alignas(16) Wide {
    longlong2 first, second;
};

__device__ __forceinline__ Wide operator+(Wide sums, Ints v) {
    return {{sums.first.x + v.x, sums.first.y + v.y}, {sums.second.x + v.z, sums.second.y + v.w}};
}

__device__ __forceinline__ Ints clamped(Wide sums) {
    return {clamped(sums.first.x), clamped(sums.first.y), clamped(sums.second.x),
            clamped(sums.second.y)};
}

/// Number of clamped products.
__device__ __forceinline__ u32 clamps_of(Ints v, Wide sums) {
    return (v.x != sums.first.x || v.y != sums.first.y) +
           (v.z != sums.second.x || v.w != sums.second.y);
}
#else
struct alignas(16) Wide {
    longlong2 first;
};

__device__ __forceinline__ Wide operator+(Wide sums, Ints v) {
    return {{sums.first.x + v.x, sums.first.y + v.y}};
}

__device__ __forceinline__ Ints clamped(Wide sums) {
    return {clamped(sums.first.x), clamped(sums.first.y)};
}

__device__ __forceinline__ u32 clamps_of(Ints v, Wide sums) {
    return v.x != sums.first.x || v.y != sums.first.y;
}
#endif

/// State of the sums.
struct State {
    /// Largest autocorrelation in the 32-bit sums, and therefore the largest sum: the square of a visibility is at
    /// most the product of the autocorrelations of its inputs.
    u32 largest;
    /// Whether the 64-bit sums are in use.
    u32 widened;
};

// The GPU itself decides whether the 32-bit sums must be moved, so that the host need not wait. `watch`, `widen` and
// `settle` run in sequence; the last two do nothing unless the largest sum is more than `most`.

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
/// wide          [channel][baseline][p2][p1][re, im]
///
/// Grid (POLS x baselines / 256, any number), blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    widen(i32* visibilities, const i32* __restrict__ real_parts, Wide* wide,
          const State* __restrict__ state, u32 most, i32 n, i32 baselines, i32 channels) {
    const i32 index = blockIdx.x * THREADS + threadIdx.x;
    if (state->largest <= most || index >= POLS * baselines) return;
    const Products products(index);
    for (i64 channel = blockIdx.y * AT_ONCE; channel < channels; channel += gridDim.y * AT_ONCE) {
        Ints v[AT_ONCE];
        products.take_whole(v, visibilities, real_parts, channel, channels, n);
        Wide* const at = wide + channel * POLS * baselines + index;
        const i64 of_channel = POLS * baselines;
        Wide sums[AT_ONCE];
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++)
            if (channel + c < channels) sums[c] = at[c * of_channel];
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++)
            if (channel + c < channels) at[c * of_channel] = sums[c] + v[c];
    }
}

/// Clears the real parts and the state of the sums that were moved.
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

/// Products without any input.
struct Missing {
    /// [baseline], null if no baseline lacks input.
    const u8* baselines;
    /// [channel][baseline][p2][p1], null if no single product lacks input.
    const u8* products;

    /// Whether all products of `index` lack input in all channels.
    __device__ __forceinline__ bool of_baseline(i32 index) const {
        return baselines && baselines[index / POLS];
    }

    /// Whether each product at `at`, in units of the products of a thread, lacks input.
    __device__ __forceinline__ Flags at(i64 at) const {
        return products ? ((const Flags*)products)[at] : Flags{};
    }
};

/// Writes a dump and resets all sums to 0.
///
/// visibilities, real_parts, wide, state  as above; `wide` is null if no sum can exceed 32 bits
/// missing_baselines, missing_products  see `Missing`
/// output     [channel][baseline][p2][p1][re, im]
/// saturated  number of products that did not fit 32 bits; the kernel adds to it
///
/// Grid and block as above.
extern "C" __global__ void __launch_bounds__(THREADS)
    dump(i32* visibilities, const i32* __restrict__ real_parts, Wide* wide,
         const State* __restrict__ state, const u8* __restrict__ missing_baselines,
         const u8* __restrict__ missing_products, Ints* output, u64* saturated, i32 n, i32 baselines, i32 channels) {
    const i32 index = blockIdx.x * THREADS + threadIdx.x;
    u32 clamps = 0;
    if (index < POLS * baselines) {
        const Products products(index);
        const Missing without_input{missing_baselines, missing_products};
        const bool missing = without_input.of_baseline(index);
        const bool widened = wide && state->widened;
        for (i64 channel = blockIdx.y * AT_ONCE; channel < channels;
             channel += gridDim.y * AT_ONCE) {
            Ints v[AT_ONCE];
            products.take_whole(v, visibilities, real_parts, channel, channels, n);
            const i64 at = channel * POLS * baselines + index, of_channel = POLS * baselines;
            Wide sums[AT_ONCE];
#pragma unroll
            for (int c = 0; c < AT_ONCE; c++)
                if (widened && channel + c < channels) sums[c] = wide[at + c * of_channel];
#pragma unroll
            for (int c = 0; c < AT_ONCE; c++) {
                if (channel + c >= channels) break;
                if (widened) {
                    const Wide all = sums[c] + v[c];
                    wide[at + c * of_channel] = {};
                    v[c] = clamped(all);
                    clamps += clamps_of(v[c], all);
                }
                mark(v[c], MISSING, without_input.at(at + c * of_channel));
                output[at + c * of_channel] = missing ? MISSING : v[c];
            }
        }
        if (missing) clamps = 0;
    }
    clamps = __reduce_add_sync(~0u, clamps);
    if (clamps != 0 && threadIdx.x % 32 == 0) atomicAdd(saturated, (u64)clamps);
}

/// Writes a dump of single-precision sums and resets these to 0. Arguments, grid and block as above.
extern "C" __global__ void __launch_bounds__(THREADS)
    dump_floats(float* visibilities, const u8* __restrict__ missing_baselines,
                const u8* __restrict__ missing_products, Floats* output, i32 n, i32 baselines,
                i32 channels) {
    const i32 index = blockIdx.x * THREADS + threadIdx.x;
    if (index >= POLS * baselines) return;
    const Products products(index);
    const Missing without_input{missing_baselines, missing_products};
    const bool missing = without_input.of_baseline(index);
    for (i64 channel = blockIdx.y * AT_ONCE; channel < channels; channel += gridDim.y * AT_ONCE) {
        Floats v[AT_ONCE];
        products.take(v, visibilities, channel, channels, n);
        const i64 at = channel * POLS * baselines + index, of_channel = POLS * baselines;
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++) {
            if (channel + c >= channels) break;
            mark(v[c], MISSING_FLOATS, without_input.at(at + c * of_channel));
            output[at + c * of_channel] = missing ? MISSING_FLOATS : v[c];
        }
    }
}
