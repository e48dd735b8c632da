// Voltages in the layout that the correlator's kernels read: complex samples of 8-bit integers or `f16`, real part
// first, in rows (antenna, polarisation), with index 2 antenna + polarisation, or with one polarisation in rows (antenna).
// The number of rows is even: after an odd number of antennas with one polarisation a row of zeros follows. The samples of a row are in runs. A
// run is contiguous, and all rows have the same runs. In a K-major frame a run is the samples of a heap; in the
// buffer of `correlator_rows.cu` it is one stage.
#pragma once
#include "types.cuh"

/// Bytes of a row per stage, which a kernel processes at a time: 64 integer samples, or 32 half-precision ones.
constexpr int STAGE_BYTES = 128;

/// Work of a thread block: stages [first, end) of one tile of visibilities of one channel.
struct Segment {
    i32 channel;
    /// Position of the tile in units of tiles; row and column are equal on the diagonal.
    i32 row, column;
    i32 first, end;
    /// Whether another block may add to the same tile.
    i32 shared;
};

/// Segments in the layout of the host, for any number of stages. Block b of the grid has the segments
/// starts[b] .. starts[b + 1], which were computed for `listed` stages. The launch has `stages` of them, from stage
/// `first` of all runs on.
struct Work {
    const Segment* segments;
    const i32* starts;
    i32 first, stages, listed;

    __device__ __forceinline__ i32 begin() const { return starts[blockIdx.x]; }
    __device__ __forceinline__ i32 end() const { return starts[blockIdx.x + 1]; }
    /// A segment scaled to the present stages, counted from the first run on. It may be empty. Adjacent segments of
    /// the list stay adjacent.
    __device__ __forceinline__ Segment operator[](i32 index) const {
        Segment s = segments[index];
        s.first = first + s.first * stages / listed;
        s.end = first + s.end * stages / listed;
        return s;
    }
};

// The visibility of row i and column j is the sum over time of conj(x_i) x_j. With (re, im) of x_j as two real
// numbers, its real part is the product with (re, im) of x_i, and its imaginary part the product with (-im, re). For
// integers, -im of -128 does not fit, so the kernels use (~im, re) with ~im = -im - 1. The imaginary part then lacks
// the sum over time of the real part of x_j, which is added when the visibilities are read. This is exact for every
// input.

/// Rotates two integer samples (re, im, re, im) to (~im, re, ~im, re).
__device__ __forceinline__ u32 turned(u32 samples) {
    return __byte_perm(samples ^ 0xff00ff00, 0, 0x2301);
}

/// Rotates a half-precision sample (re, im) to (-im, re).
__device__ __forceinline__ u32 turned_halves(u32 sample) {
    return __byte_perm(sample, 0, 0x1032) ^ 0x8000;
}

/// `sum` plus the real parts of two integer samples.
__device__ __forceinline__ i32 add_real_parts(u32 samples, i32 sum) {
    return __dp4a((i32)samples, 0x00010001, sum);
}

/// Sum over the four threads that share a row, valid in all of them.
__device__ __forceinline__ i32 over_four_lanes(i32 sum) {
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
}
