// Voltages as the correlator's kernels read them: complex samples of 8-bit integers or of halves, real
// part first, of rows (antenna, polarisation), row 2 antenna + polarisation. A row's samples stand in runs: a run is
// contiguous, and all rows have theirs at the same time. In a frame with time innermost a run is
// what a heap holds; in the scratch of `correlator_rows.cu` it is one stage.
#pragma once
#include "types.cuh"

/// Bytes that a kernel takes of a row at once: 64 samples of integers, or 32 of halves.
constexpr int STAGE_BYTES = 128;

/// Work of a block of threads: stages [first, end) of one tile of visibilities of one channel.
struct Segment {
    i32 channel;
    /// Which tile: rows and columns count in tiles; on the diagonal they are equal.
    i32 row, column;
    i32 first, end;
    /// Another block may add to the same tile.
    i32 shared;
};

/// Segments as the host lists them, for any number of stages: block b of the grid has segments
/// starts[b] .. starts[b + 1], which are made for `listed` stages; `stages` of them are there, from
/// stage `first` of all runs on.
struct Work {
    const Segment* segments;
    const i32* starts;
    i32 first, stages, listed;

    __device__ __forceinline__ i32 begin() const { return starts[blockIdx.x]; }
    __device__ __forceinline__ i32 end() const { return starts[blockIdx.x + 1]; }
    /// A segment with its share of the stages, counted from the first run on. It may be empty. What
    /// borders on another one in the list does so here.
    __device__ __forceinline__ Segment operator[](i32 index) const {
        Segment s = segments[index];
        s.first = first + s.first * stages / listed;
        s.end = first + s.end * stages / listed;
        return s;
    }
};

// The visibility of row i and column j is the sum over time of conj(x_i) x_j. With (re, im) of x_j
// as two real numbers, its real part is the product with (re, im) of x_i and its imaginary part the
// one with (-im, re). As an integer -im of -128 does not fit, so there the kernels use (~im, re) with
// ~im = -im - 1: the imaginary part then lacks the sum over time of x_j's real part, which is added when the
// visibilities are read. That is exact for every input.

/// Two samples of integers (re, im, re, im) as (~im, re, ~im, re).
__device__ __forceinline__ u32 turned(u32 samples) {
    return __byte_perm(samples ^ 0xff00ff00, 0, 0x2301);
}

/// A sample of halves (re, im) as (-im, re).
__device__ __forceinline__ u32 turned_halves(u32 sample) {
    return __byte_perm(sample, 0, 0x1032) ^ 0x8000;
}

/// `sum` and the real parts of two samples of integers.
__device__ __forceinline__ i32 add_real_parts(u32 samples, i32 sum) {
    return __dp4a((i32)samples, 0x00010001, sum);
}

/// Adds up what the four threads of a group hold of one row, for all of them.
__device__ __forceinline__ i32 over_four_lanes(i32 sum) {
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
}
