// Step from complex transforms to transforms of twice as many real numbers, in place.
//
// Macros:
//   CHANNELS  N, an even number, at least 4
#include "real_fft.cuh"
#include "types.cuh"

#if !defined(CHANNELS)
#error "fft.cu needs CHANNELS"
#endif

/// Largest number of spectra per thread, which share a twiddle factor.
constexpr u32 THREAD_SPECTRA = 8;
constexpr u32 THREADS = 128;
/// Thread blocks for the channels of THREAD_SPECTRA spectra.
constexpr u32 CHANNEL_BLOCKS = (CHANNELS / 2 + 1 + THREADS - 1) / THREADS;

/// Converts the transforms of z_i = x_{2i} + j x_{2i+1} to those of x, without the Nyquist channel.
///
///   spectra  [spectrum][channel N], for all polarisations
///   count    number of spectra
///
/// Grid: CHANNEL_BLOCKS spectra / 8, blocks of 128. A thread computes channels k and N - k.
extern "C" __global__ void __launch_bounds__(THREADS)
real_spectra(c32 *__restrict__ spectra, u32 count) {
    const u32 k = blockIdx.x % CHANNEL_BLOCKS * THREADS + threadIdx.x;
    if (k > CHANNELS / 2) return;
    const u32 mirror = (CHANNELS - k) % CHANNELS;
    const c32 half = root(k, 2 * CHANNELS);
    const c32 twiddle = {0.5f * half.y, -0.5f * half.x};
    const u32 first = blockIdx.x / CHANNEL_BLOCKS * THREAD_SPECTRA;
    c32 *spectrum = spectra + static_cast<u64>(first) * CHANNELS;
    const u32 left = min(count - first, THREAD_SPECTRA);
#pragma unroll 4
    for (u32 n = 0; n < left; n++, spectrum += CHANNELS) {
        c32 z_k = spectrum[k], z_n_k = spectrum[mirror];
        real_pair(z_k, z_n_k, twiddle);
        // For k = 0 and N/2 both values are for the same channel; the first one is correct.
        if (mirror != k) spectrum[mirror] = z_n_k;
        spectrum[k] = z_k;
    }
}
