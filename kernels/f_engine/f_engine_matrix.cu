// First pass of the F-engine with the filter on the matrix units, for 10-bit samples, up to 16 taps and
// smooth weights. Same middle, runs and levels as `f_engine_filter`.
//
// y[s, b] = sum over t of w[t, b] x[s + t, b] has other weights for each column b, so it is no matrix
// product. But a smooth weight w[t, b] is a straight line over SPAN adjacent columns,
//
//   w = hi + lo + d slope,
//
// where hi + lo are the two `f16` of its middle and d is the distance of b from the middle. So the columns of a
// span share the matrices of hi, lo and slope, and the sums of the slope are multiplied by d in single precision.
// Samples are exact in `f16`, in units of the smallest normal number: subnormal ones would lose bits in the sums, and
// larger ones would need roots below the range of single precision. In a product the rows are 16 columns b, the left
// matrix holds their samples of 24 steps, and the right one the weights of 8 spectra, a band along its diagonal.
#include "async_copy.cuh"
#include "f_engine.cuh"
#include "half_matrix.cuh"
#include "packed.cuh"
#include "short_fft.cuh"

#ifndef TAPS
#error "TAPS: taps of the filter, 1 to 16"
#endif
static_assert(SAMPLE_BITS == 10, "SAMPLE_BITS");
static_assert(TAPS >= 1 && TAPS <= 16, "TAPS");

namespace matrix {

constexpr int THREADS = 512;
/// Columns of a block.
constexpr int WIDTH = 64;
/// Columns that share their weights, and their number in a block. The error of a line is proportional to
/// (SPAN / N)^2.
constexpr int SPAN = COLUMNS >= 4096 ? 64 : COLUMNS == 2048 ? 32 : 16;
constexpr int SPANS = WIDTH / SPAN;
/// Spectra between barriers.
constexpr int BATCH = 16;
/// Steps without weight before the first tap.
constexpr int MISSING_TAPS = 16 - TAPS;

/// A step is the samples from one spectrum to the next. Per step a block reads 16 stretches of WIDTH samples,
/// COLUMNS samples apart, which start at any even bit of 16 bytes.
constexpr int STEP_BYTES = 2 * N * SAMPLE_BITS / 8;
constexpr int STRETCH_BITS = WIDTH * SAMPLE_BITS;
constexpr int PIECES = 6;
/// In shared memory a step has STEP_PITCH bytes: 4 words modulo the 32 banks.
constexpr int STRETCH_PITCH = 16 * PIECES, STEP_PITCH = 16 * STRETCH_PITCH + 16;
constexpr int RAW_BYTES = BATCH * STEP_PITCH;
static_assert(STRETCH_BITS + 126 <= 128 * PIECES, "a stretch fits its pieces");

/// Filtered samples [8 pairs of spectra][16 a][WIDTH columns] {of the first, of the second spectrum}.
constexpr int PAIR_PITCH = RESIDUES * WIDTH * 8 + 32, TILE_BYTES = BATCH / 2 * PAIR_PITCH;
constexpr int ROOTS_BYTES = (ROWS - 1) * WIDTH * 8;
/// Shared memory: two tiles, roots [7 r][WIDTH] c32, two batches of samples with 16 bytes after them,
/// four barriers.
constexpr int SHARED_BYTES = 2 * TILE_BYTES + ROOTS_BYTES + 2 * RAW_BYTES + 16 + 32;
static_assert(SHARED_BYTES <= 227 * 1024, "shared memory");

/// Samples of this magnitude or more are clipped.
constexpr int CLIPPED = (1 << (SAMPLE_BITS - 1)) - 1;
/// 1 over the unit of the samples.
constexpr float UNITS = power_of_two(14);

__device__ __forceinline__ u32 load_shared(u32 at) {
    u32 word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
    return word;
}

/// Number of clipped samples in a word.
__device__ __forceinline__ u32 clipped_of(u32 samples) {
    constexpr u32 LIMIT = 0x27fc;  // 511 units
    static_assert(CLIPPED == 511, "CLIPPED");
    return ((samples & 0x7fff) >= LIMIT) + ((samples >> 16 & 0x7fff) >= LIMIT);
}

/// Sum over a warp.
__device__ __forceinline__ u64 warp_sum(u64 x) {
    for (int distance = 16; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(0xffffffff, x, distance);
    }
    return x;
}

/// Copies the samples of one warp, which are those of one a: 6 pieces for each step, 5 steps at a time.
struct Stage {
    /// Offset in bits of the stretch from a multiple of 16 bytes.
    u32 skip;
    const u8 *from;
    u32 to;
    int step, steps;
    bool is_needed;

    __device__ __forceinline__ Stage(const Run &run, u32 to_shared) {
        const int lane = threadIdx.x & 31, a = threadIdx.x >> 5, piece = lane % PIECES;
        const u64 bits = run.start_bits + blockIdx.x * STRETCH_BITS;
        skip = (u32)(bits & 127);
        step = lane / PIECES;
        steps = (int)run.spectra + TAPS - 1;
        from = (const u8 *)(bits >> 7 << 4) + a * (STEP_BYTES / RESIDUES) + piece * 16 +
               (i64)(step - MISSING_TAPS) * STEP_BYTES;
        to = to_shared + step * STEP_PITCH + a * STRETCH_PITCH + piece * 16;
        is_needed = lane < 5 * PIECES && piece * 128 < skip + STRETCH_BITS;
    }

    /// Starts copying BATCH steps. Step 0 is the first one of a window of 16 taps. Steps that do not exist, or
    /// that taps which do not exist would need, become zeros.
    __device__ __forceinline__ void start(int first, int buffer) const {
        constexpr int TO = 5 * STEP_PITCH;
        constexpr i64 FROM = 5ll * STEP_BYTES;
        const u8 *p = from + (i64)first * STEP_BYTES;
        const u32 d = to + buffer * RAW_BYTES;
        if (first >= MISSING_TAPS && first + BATCH - MISSING_TAPS <= steps) {
            if (is_needed) {
                cp_async16_at<0, 0>(d, p);
                cp_async16_at<TO, FROM>(d, p);
                cp_async16_at<2 * TO, 2 * FROM>(d, p);
                if (step == 0) cp_async16_at<3 * TO, 3 * FROM>(d, p);
            }
        } else if (is_needed) {
            for (int i = 0; i < 4; i++) {
                const int own = first + step + 5 * i - MISSING_TAPS;
                const bool exists = own >= 0 && own < steps;
                if (i < 3 || step == 0) cp_async16(d + i * TO, exists ? p + i * FROM : p, exists);
            }
        }
        cp_async_commit();
    }
};

/// Decodes columns 16 q + 2g and + 1 of steps 2c, 2c + 1, 2c + 8 and 2c + 9 for thread 4g + c of a warp.
struct Decode {
    u32 from, select, shift, mask, flip;

    __device__ __forceinline__ Decode(u32 staged, u32 skip) {
        const u32 lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3, a = threadIdx.x >> 5;
        const u32 bit = skip + 2 * SAMPLE_BITS * g, byte = bit >> 3, k = byte & 3;
        // Four bytes from `byte` on, the first one on top; shifted, they have one sample in bits 25 to 16
        // and the next one in bits 15 to 6.
        select = k << 12 | (k + 1) << 8 | (k + 2) << 4 | (k + 3);
        shift = 6 - (bit & 7);
        from = staged + 2 * c * STEP_PITCH + a * STRETCH_PITCH + (byte >> 2) * 4;
        mask = 0x03ff03ff;
        flip = 0x2e002e00;
        asm volatile("" : "+r"(mask), "+r"(flip));  // else each use would load them
    }

    __device__ __forceinline__ u32 window(u32 at) const {
        return __byte_perm(load_shared(at), load_shared(at + 4), select) >> shift;
    }

    /// Left matrix of 16 steps: samples of the even and of the odd column in the first 8 steps, then in the
    /// last 8.
    __device__ __forceinline__ void columns(int buffer, int q, u32 (&x)[4]) const {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 at = from + buffer * RAW_BYTES + half * 8 * STEP_PITCH + q * (2 * SAMPLE_BITS);
            const u32 first = window(at), second = window(at + STEP_PITCH);
            // In units: 1024 plus the sample with its sign flipped, as `f16`, minus 1536.
            auto samples = [&](u32 both) {
                return add_halves(mask_and_flip(both, mask, flip), 0xae00ae00);
            };
            x[2 * half] = samples(__byte_perm(first, second, 0x7632));
            x[2 * half + 1] = samples(__byte_perm(first, second, 0x5410) >> 6);
        }
    }
};

}  // namespace matrix

/// Decodes and filters the samples, and does the transforms over a.
///
///   runs      [gridDim.y]                       see `Run`; positions are even numbers of bits
///   weights   [16 a][COLUMNS / SPAN][hi, lo, slope][4][32 threads] two f16, of 16 taps, times `weight_scale`.
///             Right matrix: the k-th register, for the steps 8k' .. 8k' + 7 with k' = 0, 1, 1, 2, has the
///             weights 2c + 8k' - 1 - g and 2c + 8k' - g, for thread 4g + c; weights outside 0 .. 15 are 0.
///   roots     [8 r][COLUMNS b] c32              W_2N^(b r) times a scale, which row 0 has
///   middle    [pol][frame_spectra][8 r][COLUMNS b], see f_engine.cuh
///   levels    [pol]                             added to
///   weight_scale  a power of two
///
/// Grid (COLUMNS / 64, runs), 512 threads, one block per multiprocessor. In the filter a warp is one a and 64
/// columns; in the transform a thread is one column of two spectra. The weights and the last 16 steps
/// stay in registers. The kernel reads up to 15 bytes past the last sample of a run.
extern "C" __global__ void __launch_bounds__(matrix::THREADS, 1)
    f_engine_matrix_filter(const Run *__restrict__ runs, const u32 *__restrict__ weights,
                           const c32 *__restrict__ roots, u8 *__restrict__ middle, Level *levels,
                           u32 frame_spectra, float weight_scale) {
    using namespace matrix;
    extern __shared__ __align__(16) u8 shared[];
    c32 *block_roots = (c32 *)(shared + 2 * TILE_BYTES);
    const u32 tile = shared_address(shared), staged = tile + 2 * TILE_BYTES + ROOTS_BYTES;
    const u32 full = staged + 2 * RAW_BYTES + 16, empty = full + 16;
    const int lane = threadIdx.x & 31, a = threadIdx.x >> 5, g = lane >> 2, c = lane & 3;
    const int first_column = blockIdx.x * WIDTH;
    const Run run = runs[blockIdx.y];
    const int spectra = (int)run.spectra, batches = (spectra + BATCH - 1) / BATCH;
    const float root_scale = LIMIT48 * (UNITS / weight_scale), scale = root_scale * roots[0].x;
    if (threadIdx.x < (ROWS - 1) * WIDTH) {
        block_roots[threadIdx.x] =
            root_scale * roots[(threadIdx.x / WIDTH + 1) * COLUMNS + first_column + threadIdx.x % WIDTH];
    }
    // Each of the two tiles is full when all threads have filtered, and empty when all have loaded it.
    if (threadIdx.x < 4) barrier_init(full + 8 * threadIdx.x, THREADS);
    __syncthreads();
    const Stage stage(run, staged);
    const Decode decode(staged, stage.skip);

    // As the operands of the products are pairs of registers, the middle steps of each matrix are there twice.
    u32 weight[SPANS][3][4];
#pragma unroll
    for (int span = 0; span < SPANS; span++)
#pragma unroll
        for (int i = 0; i < 12; i++) {
            const int of_all = a * (COLUMNS / SPAN) + first_column / SPAN + span;
            weight[span][i / 4][i % 4] = weights[(of_all * 12 + i) * 32 + lane];
        }
    // Of the columns 16 q + 2g and + 1, as far as spans have several q.
    constexpr int DISTANCES = SPAN / 16;
    float distance[DISTANCES][2];
#pragma unroll
    for (int q = 0; q < DISTANCES; q++)
#pragma unroll
        for (int odd = 0; odd < 2; odd++)
            distance[q][odd] = (float)(16 * q + 2 * g + odd) - 0.5f * (SPAN - 1);

    // The 16 steps before those of the batch, for 4 groups q of 16 columns. The first of them belongs to no window.
    u32 old[4][4];
    stage.start(-1, 1);
    stage.start(15, 0);
    cp_async_wait<1>();
    __syncwarp();
#pragma unroll
    for (int q = 0; q < 4; q++) decode.columns(1, q, old[q]);
    __syncwarp();

    u64 power = 0;
    u32 clipped = 0;
    const int b = threadIdx.x % WIDTH, pair = threadIdx.x / WIDTH, is_odd = b & 1;
    u8 *to = middle + ((i64)run.pol * frame_spectra + run.first + 2 * pair) * SPECTRUM_BYTES;
    const u32 to_tile = tile + c * PAIR_PITCH + a * (WIDTH * 8) + g * 16;
    const u32 from_tile = tile + pair * PAIR_PITCH + b * 8;
    // The thread has sums of squares where row and column of the product are the same.
    const bool is_diagonal = c == g >> 1;
    // A warp filters a batch, then transforms the one before, so that it seldom waits for the other warps.
#pragma unroll 2  // so that old and new samples change places without moves
    for (int batch = 0; batch <= batches; batch++) {
        if (batch < batches) {
            const int buffer = batch & 1;
            cp_async_wait<0>();
            __syncwarp();
            if (batch + 1 < batches) stage.start(BATCH * (batch + 1) + 15, buffer ^ 1);
            const u32 tile_at = to_tile + buffer * TILE_BYTES;
            float squares[2][4] = {};
            u32 next[4];
            decode.columns(buffer, 0, next);
            barrier_wait(empty + 8 * buffer, (batch >> 1 & 1) ^ 1);  // at once the first two times
#pragma unroll
            for (int q = 0; q < 4; q++) {
                u32 now[4];
#pragma unroll
                for (int i = 0; i < 4; i++) now[i] = next[i];
                // Before the products, which it does not wait for.
                if (q < 3) decode.columns(buffer, q + 1, next);
                const u32(&w)[3][4] = weight[q / DISTANCES];
                // Spectra 0 to 7 and 8 to 15: {of even columns} x 2, {of odd columns} x 2.
                float y0[4] = {}, y1[4] = {}, slope0[4] = {}, slope1[4] = {};
                auto add = [&](float(&first)[4], float(&last)[4], const u32(&w)[4]) {
                    multiply_halves(first, old[q], w[0], w[1]);
                    multiply_halves8(last, old[q][2], old[q][3], w[0]);
                    multiply_halves8(first, now[0], now[1], w[3]);
                    multiply_halves(last, now, w[2], w[3]);
                };
                add(slope0, slope1, w[2]);
                add(y0, y1, w[1]);
                add(y0, y1, w[0]);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float d = distance[q % DISTANCES][i >> 1];
                    y0[i] += d * slope0[i];
                    y1[i] += d * slope1[i];
                }
                // The squares are the diagonals of the products of the samples with themselves: exact for up
                // to 64 samples in a sum.
#pragma unroll
                for (int half = 0; half < 4; half += 2) {
                    multiply_halves8(squares[0], now[half], now[half + 1], now[half]);
                    multiply_halves8(squares[1], now[half], now[half + 1], now[half + 1]);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) old[q][i] = now[i];
                auto store = [&](u32 at, const float(&y)[4]) {
                    asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(at), "f"(y[0]), "f"(y[1]),
                                 "f"(y[2]), "f"(y[3])
                                 : "memory");
                };
                store(tile_at + q * 128, y0);
                store(tile_at + q * 128 + 4 * PAIR_PITCH, y1);
            }
            const u32 even = (u32)(UNITS * UNITS * (g & 1 ? squares[0][1] : squares[0][0]));
            const u32 odd = (u32)(UNITS * UNITS * (g & 1 ? squares[1][3] : squares[1][2]));
            power += even + odd;
            // If the sum of 64 squares is below that of a clipped sample, no sample is clipped.
            if (__any_sync(0xffffffff, is_diagonal && max(even, odd) >= CLIPPED * CLIPPED)) {
#pragma unroll
                for (int i = 0; i < 16; i++) clipped += clipped_of(old[i / 4][i % 4]);
            }
            __syncwarp();
            barrier_arrive(full + 8 * buffer);
        }
        if (batch > 0) {
            const int buffer = (batch - 1) & 1;
            const u32 at = from_tile + buffer * TILE_BYTES;
            barrier_wait(full + 8 * buffer, (batch - 1) >> 1 & 1);
            float y[2][RESIDUES];
#pragma unroll
            for (int i = 0; i < RESIDUES; i++) {
                asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];"
                             : "=f"(y[0][i]), "=f"(y[1][i])
                             : "r"(at + i * (WIDTH * 8))
                             : "memory");
            }
            __syncwarp();
            barrier_arrive(empty + 8 * buffer);
            const RealFft16 transforms[2] = {RealFft16(y[0]), RealFft16(y[1])};
            // Two adjacent columns are one complex number of row 0: the even one takes the sums over even a, the odd
            // one those over odd a.
            c32 sums[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const RealFft16 &own = transforms[i];
                const float other = __shfl_xor_sync(0xffffffff, is_odd ? own.even : own.odd, 1);
                sums[i] = scale * (is_odd ? c32{other, own.odd} : c32{own.even, other});
            }
            const int spectrum = BATCH * (batch - 1) + 2 * pair;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (spectrum + i >= spectra) break;
                u8 *spectrum_to = to + i * SPECTRUM_BYTES;
                store48(spectrum_to, (is_odd * COLUMNS + first_column + b) / 2, sums[i]);
#pragma unroll
                for (int r = 1; r < ROWS; r++) {
                    store48(spectrum_to + r * ROW_BYTES, first_column + b,
                            transforms[i].value[r] * block_roots[(r - 1) * WIDTH + b]);
                }
            }
            to += (i64)BATCH * SPECTRUM_BYTES;
        }
    }
    const u64 total = warp_sum(is_diagonal ? power : 0), clips = warp_sum(clipped);
    if (lane == 0) {
        atomicAdd(&levels[run.pol].power, total);
        if (clips > 0) atomicAdd(&levels[run.pol].clipped, clips);
    }
}
