// The shape of the two-pass F-engine: how a spectrum is cut up, and the tables both passes share.
//
// The 2N real samples y of a spectrum are taken as N complex numbers z[m] = y[2m] + i y[2m+1],
// whose transform Z is cut as m = COLUMNS a + b, k = r + 16 k', N = 16 COLUMNS:
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

/// Spectra of one polarisation that follow each other at the same coarse delay.
struct Run {
    /// Where the first sample of the first window stands: address in bytes times 8, plus bits.
    u64 start_bits;
    /// Number of its first spectrum within the output frame.
    u32 first;
    /// Number of spectra.
    u32 spectra;
    u32 pol;
    u32 unused;
};

/// What is measured on the samples of one polarisation: on the last 2N of each window.
struct Level {
    /// Sum of squares.
    u64 power;
    /// Samples at the limits of the digitiser.
    u64 clipped;
};
