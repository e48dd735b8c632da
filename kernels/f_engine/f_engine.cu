// The F-engine in two passes: filter bank, transform, delay, phase, gain, quantisation,
// transposition.
//
// Three separate kernels (`pfb`, `fft`, `postproc`) move 18 bytes of memory per sample, two kernels 8.
// The decomposition of the transform is described in f_engine.cuh.
#include "f_engine_filter.cuh"
#include "f_engine_finish.cuh"
#include "f_engine_measure.cuh"

/// Computes the rows of an output frame: the values that all channels of a spectrum share.
///
///   phase_turns, fine_delay_samples  [pol][frame_spectra]
///   gains                            [pol][re, im]: common gains of all channels
///   rows                             [pol][frame_spectra]
///   first, count                     spectra of each polarisation whose rows are computed
///   first_number                     number, since sync time, of the first spectrum of the frame
///
/// Grid: rows / 256, blocks of 256.
extern "C" __global__ void f_engine_rows(const float *__restrict__ phase_turns,
                                         const float *__restrict__ fine_delay_samples,
                                         const double *__restrict__ gains, Row *__restrict__ rows,
                                         u32 frame_spectra, u32 first, u32 count, u64 first_number,
                                         u64 dither_seed) {
    const u32 of_all = blockIdx.x * blockDim.x + threadIdx.x;
    if (of_all >= POLS * count) return;
    const u32 pol = of_all / count, number = first + of_all % count, i = pol * frame_spectra + number;
    rows[i] = spectrum_row(N, phase_turns[i], fine_delay_samples[i], gains + 2 * pol, dither_seed,
                           first_number + number, pol);
}
