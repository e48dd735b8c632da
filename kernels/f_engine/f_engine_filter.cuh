// First pass of the F-engine: decoding, filter bank, and first step of the transform.
#pragma once
#include "async_copy.cuh"
#include "f_engine.cuh"
#include "packed.cuh"
#include "short_fft.cuh"

#ifndef TAPS
#error "TAPS: taps of the filter, 1 to 32"
#endif
#ifndef NATIVE_SAMPLES
#error "NATIVE_SAMPLES: 1 for 16-bit integers in the machine's byte order, 0 for packed samples"
#endif

namespace filter {

constexpr int THREADS = 256;
/// Pairs of adjacent columns per block; a block has one thread for each pair and each of the 16 points.
constexpr int BLOCK_PAIRS = THREADS / RESIDUES;
/// Spectra between barriers.
constexpr int BATCH = 16;
/// Thread blocks per multiprocessor; with more than 16 taps a thread needs more than half of 256 registers.
constexpr int BLOCKS = TAPS <= 16 ? 2 : 1;
/// Samples per thread of each of its two series.
constexpr int WINDOW = TAPS <= 16 ? 16 : 32;

/// A step is the samples from one spectrum to the next. Per step a block reads 16 stretches of 32 samples,
/// COLUMNS samples apart. A stretch starts at any bit of 16 bytes, so it covers up to PIECES pieces of 16.
constexpr int STEP_BYTES = 2 * N * SAMPLE_BITS / 8;
constexpr int STRETCH_BITS = 2 * BLOCK_PAIRS * SAMPLE_BITS;
constexpr int PIECES = SAMPLE_BITS > 12 ? 5 : 4;
constexpr int STRETCH_WORDS = 4 * PIECES;
constexpr int BATCH_WORDS = BATCH * RESIDUES * STRETCH_WORDS;
static_assert(STRETCH_BITS + 127 <= 128 * PIECES, "a stretch fits its pieces");

/// Shared memory: y [2][BATCH spectra][16 a][16 pairs] two numbers, roots [8 r][32 b] c32, and the samples
/// [2][BATCH steps][16 a][STRETCH_WORDS] with a piece before and after them.
constexpr int Y_PAIRS = BATCH * THREADS;
constexpr int Y_BYTES = 2 * Y_PAIRS * 8;
constexpr int ROOTS_BYTES = THREADS * 8;
constexpr int SHARED_BYTES = Y_BYTES + ROOTS_BYTES + 16 + 2 * BATCH_WORDS * 4 + 16;

/// Samples of this magnitude or more are clipped.
constexpr int CLIPPED = (1 << (SAMPLE_BITS - 1)) - 1;
constexpr float FULL_SCALE = (float)(1 << SAMPLE_BITS);
/// Up to 10 bits, the sum of squares of one thread's samples of a batch is exact in single precision.
constexpr bool SUMS_IN_FLOAT = SAMPLE_BITS <= 10;

/// Copies the samples of a block from global to shared memory.
struct Stage {
    /// Offset in bits of the stretches from a multiple of 16 bytes, the same for all of them.
    u32 skip;
    const u8 *from;
    u32 to;
    bool is_needed;

    __device__ __forceinline__ Stage(u64 start_bits, u32 to_shared) {
        // Four threads for each stretch, one for each of the first four pieces.
        const u32 piece = threadIdx.x & 3, a = threadIdx.x >> 2 & 15, step = threadIdx.x >> 6;
        const u64 bits = start_bits + blockIdx.x * STRETCH_BITS;
        skip = (u32)(bits & 127);
        from = (const u8 *)(bits >> 7 << 4) + a * (STEP_BYTES / RESIDUES) + step * STEP_BYTES +
               piece * 16;
        to = to_shared + ((step * RESIDUES + a) * STRETCH_WORDS + piece * 4) * 4;
        is_needed = piece * 128 < skip + STRETCH_BITS;
    }

    /// Starts copying BATCH steps from `first` on. Steps from `steps` on do not exist and become zeros.
    __device__ __forceinline__ void start(int first, int steps, int buffer) const {
        constexpr int Q = 4 * STEP_BYTES, TO = 4 * RESIDUES * STRETCH_WORDS * 4;
        const u8 *p = from + (i64)first * STEP_BYTES;
        const u32 d = to + buffer * (BATCH_WORDS * 4);
        if (first + BATCH <= steps) {
            if (is_needed) {
                cp_async16_at<0, 0>(d, p);
                cp_async16_at<TO, Q>(d, p);
                cp_async16_at<2 * TO, 2 * Q>(d, p);
                cp_async16_at<3 * TO, 3 * Q>(d, p);
            }
        } else if (is_needed) {
            for (int q = 0; q < 4; q++) {
                cp_async16(d + q * TO, p + q * Q, first + (int)(threadIdx.x >> 6) + 4 * q < steps);
            }
        }
        if constexpr (PIECES > 4) fifth_piece(first, steps, buffer);
        cp_async_commit();
    }

    /// Copies the fifth piece, with one thread for each stretch of the batch.
    __device__ __forceinline__ void fifth_piece(int first, int steps, int buffer) const {
        const u32 own = threadIdx.x & 3, own_a = threadIdx.x >> 2 & 15, own_step = threadIdx.x >> 6;
        const u32 a = threadIdx.x & 15, step = threadIdx.x >> 4;
        const i64 by = (i64)(first + (int)(step - own_step)) * STEP_BYTES +
                       ((int)a - (int)own_a) * (STEP_BYTES / RESIDUES) + (4 - (int)own) * 16;
        const u32 base = to - ((own_step * RESIDUES + own_a) * STRETCH_WORDS + own * 4) * 4;
        const u32 d = base + (buffer * BATCH_WORDS + threadIdx.x * STRETCH_WORDS + 16) * 4;
        const bool is_there = first + (int)step < steps;
        if (skip + STRETCH_BITS > 512) cp_async16(d, is_there ? from + by : from, is_there);
    }
};

/// Decodes one pair of samples of each stretch.
struct Decode {
    const u32 *words;
    u32 shift;

    /// `skip` is the number of bits before the block's samples in each stretch. This thread decodes pair
    /// `b` of stretch `a`.
    __device__ __forceinline__ Decode(const u32 *staged, u32 skip, u32 a, u32 b) {
        const u32 bit = skip + 2 * SAMPLE_BITS * b;
        i32 word = (i32)(bit >> 5);
        shift = bit & 31;
        if constexpr (SAMPLE_BITS <= 11) {
            // One right shift by 0 to 31 of the 64 bits of two words must move the first sample to the
            // top of a fraction (bit 22); the second sample is then below it.
            if (shift < 10) {
                word -= 1;
                shift += 32;
            }
            shift = 41 - shift;
        }
        words = staged + (i32)(a * STRETCH_WORDS) + word;
    }

    /// Pair of samples of a step of the batch, divided by FULL_SCALE.
    __device__ __forceinline__ c32 pair(int buffer, int step) const {
        const u32 *p = words + buffer * BATCH_WORDS + step * (RESIDUES * STRETCH_WORDS);
        if constexpr (SAMPLE_BITS <= 11) {
            const u32 first = __byte_perm(p[0], 0, 0x0123), second = __byte_perm(p[1], 0, 0x0123);
            const u32 placed = __funnelshift_r(second, first, shift);
            return {placed_fraction<SAMPLE_BITS>(placed),
                    placed_fraction<SAMPLE_BITS>(placed << SAMPLE_BITS)};
        } else {
            const u32 both = stream_bits<NATIVE_SAMPLES>(p[0], p[1], shift);
            return {sample_fraction<SAMPLE_BITS>(both, 0), sample_fraction<SAMPLE_BITS>(both, 1)};
        }
    }
};

/// Power and clipping of one thread's samples.
struct Meter {
    u64 power = 0;
    u32 clipped = 0;

    __device__ __forceinline__ void count(c32 z) {
        constexpr float limit = CLIPPED / FULL_SCALE;
        clipped += fabsf(z.x) >= limit;
        clipped += fabsf(z.y) >= limit;
    }

    __device__ __forceinline__ void square(c32 z) {
        const i32 x = (i32)(z.x * FULL_SCALE), y = (i32)(z.y * FULL_SCALE);
        power += (u64)((i64)x * x) + (u64)((i64)y * y);
    }
};

/// Sum over a warp, valid in its first thread.
__device__ __forceinline__ u64 warp_sum(u64 x) {
    for (int distance = 16; distance > 0; distance /= 2) {
        x += __shfl_down_sync(0xffffffff, x, distance);
    }
    return x;
}

}  // namespace filter

/// Decodes and filters the samples, and does the transforms over a.
///
///   runs      [gridDim.y]                       see `Run`
///   weights   [TAPS][2N] f32
///   roots     [8 r][COLUMNS b] c32              W_2N^(b r) times a scale, which row 0 has
///   middle    [pol][frame_spectra][8 r][COLUMNS b], see f_engine.cuh
///   levels    [pol]                             added to
///
/// Grid (COLUMNS / 32, runs), 256 threads = 16 a x 16 pairs of columns b. A thread owns the numbers
/// COLUMNS a + b of two adjacent columns in all spectra of its run. Its weights and its part of the window stay in registers, so that weights are
/// read once and each sample is decoded once. Blocks that read the same spectra are neighbours in x, run at
/// the same time, and share the sectors they read and the cache lines they write. The kernel reads up to 79
/// bytes past the last sample of a run.
extern "C" __global__ void __launch_bounds__(filter::THREADS, filter::BLOCKS)
    f_engine_filter(const Run *__restrict__ runs, const float *__restrict__ weights,
                    const c32 *__restrict__ roots, u8 *__restrict__ middle, Level *levels,
                    u32 frame_spectra) {
    using namespace filter;
    extern __shared__ __align__(16) u8 shared[];
    c32 *y_pairs = (c32 *)shared;
    c32 *block_roots = (c32 *)(shared + Y_BYTES);
    u32 *staged = (u32 *)(shared + Y_BYTES + ROOTS_BYTES + 16);
    const int a = threadIdx.x >> 4, b = threadIdx.x & 15, pair = blockIdx.x * BLOCK_PAIRS + b;
    const Run run = runs[blockIdx.y];
    const int spectra = (int)run.spectra, steps = spectra + TAPS - 1;
    const int batches = (spectra + BATCH - 1) / BATCH;
    const Stage stage(run.start_bits, shared_address(staged));
    const Decode decode(staged, stage.skip, a, b);

    block_roots[threadIdx.x] =
        LIMIT48 * roots[threadIdx.x / 32 * COLUMNS + blockIdx.x * 32 + threadIdx.x % 32];
    c32 weight[TAPS], window[WINDOW];
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        weight[t] = FULL_SCALE * ((const c32 *)weights)[t * N + COLUMNS / 2 * a + pair];
    }
    // Steps before the last one of the first window. Step s is in window[s % WINDOW].
#pragma unroll
    for (int first = 0; first < TAPS - 1; first += BATCH) {
        stage.start(first, steps, 1);
        cp_async_wait<0>();
        __syncthreads();
#pragma unroll
        for (int j = 0; j < BATCH && first + j < TAPS - 1; j++)
            window[first + j] = decode.pair(1, j);
        __syncthreads();
    }
    stage.start(TAPS - 1, steps, 0);

    Meter meter;
    u8 *to = middle + ((i64)run.pol * frame_spectra + run.first + a) * SPECTRUM_BYTES;
    // Between barriers each warp filters a batch and transforms the one before it. Half of the warps do
    // this in the other order, so that multiplications and memory accesses always overlap.
    const int filter_turn = threadIdx.x >> 7;
    for (int batch = 0; batch <= batches; batch++) {
        cp_async_wait<0>();
        __syncthreads();
        if (batch + 1 < batches)
            stage.start(TAPS - 1 + BATCH * (batch + 1), steps, (batch + 1) & 1);
#pragma unroll 1
        for (int turn = 0; turn < 2; turn++) {
            if (turn == filter_turn) {
                if (batch == batches) continue;
                c32 *filtered = y_pairs + (batch & 1) * Y_PAIRS + threadIdx.x;
                float squares = 0.0f;
#pragma unroll
                for (int j = 0; j < BATCH; j++) {
                    const c32 newest = decode.pair(batch & 1, j);
                    window[(j + TAPS - 1) % WINDOW] = newest;
                    if constexpr (SUMS_IN_FLOAT) {
                        squares += newest.x * newest.x;
                        squares += newest.y * newest.y;
                    } else {
                        meter.square(newest);
                    }
                    c32 y = {0.0f, 0.0f};
#pragma unroll
                    for (int t = 0; t < TAPS; t++) {
                        y.x += weight[t].x * window[(j + t) % WINDOW].x;
                        y.y += weight[t].y * window[(j + t) % WINDOW].y;
                    }
                    filtered[j * THREADS] = y;
                }
                // If the sum of squares is below that of a clipped sample, no sample is clipped.
                constexpr float clipped_square = (CLIPPED / FULL_SCALE) * (CLIPPED / FULL_SCALE);
                if constexpr (SUMS_IN_FLOAT)
                    meter.power += (u32)(squares * (FULL_SCALE * FULL_SCALE));
                if (!SUMS_IN_FLOAT || squares >= clipped_square) {
#pragma unroll
                    for (int j = 0; j < BATCH; j++) meter.count(window[(j + TAPS - 1) % WINDOW]);
                }
                if constexpr (WINDOW > BATCH) {
#pragma unroll
                    for (int i = 0; i < BATCH; i++) {
                        const c32 older = window[i];
                        window[i] = window[i + BATCH];
                        window[i + BATCH] = older;
                    }
                }
            } else {
                if (batch == 0) continue;
                // Here a is the index of the spectrum within the batch.
                const c32 *from = y_pairs + ((batch - 1) & 1) * Y_PAIRS + a * THREADS + b;
                float y[2][RESIDUES];
#pragma unroll
                for (int q = 0; q < RESIDUES; q++) {
                    const c32 two = from[q * BLOCK_PAIRS];
                    y[0][q] = two.x;
                    y[1][q] = two.y;
                }
                const RealFft16 first(y[0]), second(y[1]);
                if (BATCH * (batch - 1) + a < spectra) {
                    const float scale = block_roots[0].x;
                    store48(to, pair, scale * c32{first.even, second.even});
                    store48(to, COLUMNS / 2 + pair, scale * c32{first.odd, second.odd});
#pragma unroll
                    for (int r = 1; r < ROWS; r++) {
                        const float4 root = ((const float4 *)block_roots)[r * BLOCK_PAIRS + b];
                        store48(to + r * ROW_BYTES, 2 * pair, first.value[r] * c32{root.x, root.y},
                                second.value[r] * c32{root.z, root.w});
                    }
                }
                to += (i64)BATCH * SPECTRUM_BYTES;
            }
        }
    }
    const u64 power = warp_sum(meter.power), clipped = warp_sum(meter.clipped);
    if ((threadIdx.x & 31) == 0) {
        atomicAdd(&levels[run.pol].power, power);
        if (clipped > 0) atomicAdd(&levels[run.pol].clipped, clipped);
    }
}
