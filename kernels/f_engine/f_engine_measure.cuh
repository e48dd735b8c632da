// Power and clipping of the samples of missing spectra.
#pragma once
#include "f_engine_filter.cuh"

/// Measures samples that are present although their windows are incomplete. Rarely needed, therefore
/// simple rather than fast.
///
///   stretches  [gridDim.y]  as runs, but of 2N samples for each spectrum
///   levels     [pol]        added to
///
/// Grid (any number of blocks, stretches), 256 threads.
extern "C" __global__ void __launch_bounds__(filter::THREADS)
    f_engine_measure(const Run *__restrict__ stretches, Level *levels) {
    using namespace filter;
    const Run stretch = stretches[blockIdx.y];
    const u64 samples = (u64)stretch.spectra * (2 * N);
    u64 power = 0, clipped = 0;
    for (u64 i = blockIdx.x * THREADS + threadIdx.x; i < samples; i += gridDim.x * THREADS) {
        const u64 bit = stretch.start_bits + i * SAMPLE_BITS;
        const u32 *words = (const u32 *)(bit >> 5 << 2);
        const i32 x =
            sample<SAMPLE_BITS>(stream_bits<NATIVE_SAMPLES>(words[0], words[1], bit & 31), 0);
        power += (u64)((i64)x * x);
        clipped += x >= CLIPPED || x <= -CLIPPED;
    }
    power = warp_sum(power);
    clipped = warp_sum(clipped);
    if ((threadIdx.x & 31) == 0) {
        atomicAdd(&levels[stretch.pol].power, power);
        atomicAdd(&levels[stretch.pol].clipped, clipped);
    }
}
