// Decomposition of the transform in the two-pass F-engine, and the structures that both passes share.
//
// The 2N real samples y of a spectrum are N complex numbers z[m] = y[2m] + i y[2m+1]. Their transform Z
// is decomposed with m = COLUMNS a + b, k = r + 16 k', N = 16 COLUMNS:
//
//   filter: for each column b the transform over a (16 points), times W_N^(b r)  -> middle
//   finish: for each residue r the transform over b (COLUMNS points)             -> Z
//           X[k] from Z[k] and Z[N-k], delay, phase, gain, quantisation, transposition
//
//   middle  [pol][spectrum][16 residues r][COLUMNS b] c32
#pragma once
#include "types.cuh"

#ifndef CHANNELS
#error "CHANNELS: channels of a spectrum, 1024 to 32768"
#endif
#ifndef POLS
#error "POLS: polarisations, 1 or 2"
#endif

constexpr int N = CHANNELS;
/// Points of the transform in the first pass; residues of the channels between the passes.
constexpr int RESIDUES = 16;
constexpr int COLUMNS = N / RESIDUES;

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
