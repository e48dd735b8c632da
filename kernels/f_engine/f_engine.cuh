// Decomposition of the transform in the two-pass F-engine, and the structures that both passes share.
//
// The transform X of the 2N real samples y of a spectrum is decomposed with n = COLUMNS a + b, where
// 2N = RESIDUES COLUMNS:
//
//   filter: for each column b the transform over a (16 real points)             Y[r][b], r = 0 .. 8
//           times W_2N^(b r)                                                    -> middle
//   finish: for each row r the transform over b (COLUMNS points)                -> X[r + 16 k']
//           delay, phase, gain, quantisation, transposition
//
// Because y is real, rows 1 to 7 give all channels that are not multiples of 8: k' < COLUMNS/2 are the
// channels r + 16 k'; the others are the conjugates of the channels 16 - r + 16 (COLUMNS - 1 - k').
//
// Rows 0 and 8 are real before their factors. Together they are the transform of the 2 COLUMNS real numbers
//   s[b] = sum over even a of y, s[COLUMNS + b] = sum over odd a of y
// which gives the channels 8 k'. Row 0 of `middle` has these numbers as the complex numbers s[2m] + i s[2m+1].
//
// Weights and roots of the filter are scaled by the host such that rows are at most 1 for any samples; in `middle`
// they are times LIMIT48.
//
//   middle  [pol][spectrum][ROWS][COLUMNS], see middle.cuh
#pragma once
#include "types.cuh"

#ifndef CHANNELS
#error "CHANNELS: channels of a spectrum, 1024 to 32768"
#endif
#ifndef SAMPLE_BITS
#error "SAMPLE_BITS: bits of a sample, 2 to 10, 12 or 16"
#endif
#ifndef POLS
#error "POLS: polarisations, 1 or 2"
#endif

#include "middle.cuh"

constexpr int N = CHANNELS;
/// Points of the transform in the first pass.
constexpr int RESIDUES = 16;
constexpr int COLUMNS = 2 * N / RESIDUES;
/// Rows of a spectrum between the passes.
constexpr int ROWS = RESIDUES / 2;
constexpr int ROW_BYTES = 6 * COLUMNS, SPECTRUM_BYTES = ROWS * ROW_BYTES;

static_assert(N >= 1024 && N <= 32768 && (N & (N - 1)) == 0, "CHANNELS");
static_assert(POLS == 1 || POLS == 2, "POLS");

/// Adjacent spectra of one polarisation with the same coarse delay.
struct Run {
    /// Position of the first sample of the first window: address in bytes times 8, plus bits.
    u64 start_bits;
    /// Index of the first spectrum within the output frame.
    u32 first;
    /// Number of spectra.
    u32 spectra;
    u32 pol;
    u32 unused;
};

/// Power and clipping of one polarisation, measured on the last 2N samples of each window.
struct Level {
    /// Sum of squares.
    u64 power;
    /// Number of samples at the limits of the digitiser.
    u64 clipped;
};
