// Digital down-conversion: mixing, low-pass filter and decimation of packed samples, as a matrix product.
//
// Macros:
//   SUBSAMPLING  input samples S for each output sample, even, 2 .. 64
//   TAPS         weights of the filter
//   BITS         bits of a sample: 2 .. 10, 12, 16
//   NATIVE       1 for 16-bit integers in the machine's byte order, 0 for packed samples
//   ROW          output samples of a row: a multiple of 16 that divides 256, at least 64
//   WARPS        warps per block
//
// The weights are rotated by the oscillator, so that the input of the filter stays real:
//
//   y_j = e^{-2 pi i f S j} sum over k of x_{Sj+k} g_k,   g_k = h_k e^{-2 pi i f k}
//
// Four adjacent output samples, real and imaginary part of each, are the eight columns of a matrix product.
// Its right operand has g four times, S rows further down each time. Its left operand has the samples of
// sixteen places of the stream, a row of output samples apart. Samples are exact in half precision, and each
// weight is the sum of two `f16`, so that the sums have the accuracy of single precision.
//
// A warp proceeds along its sixteen rows. Each sample is decoded once, in the registers of the thread that
// needs it for the product, and is multiplied there by all of its weights. Therefore sums for several output
// samples are in progress at a time.
#include "async_copy.cuh"
#include "ddc.cuh"
#include "half_matrix.cuh"
#include "packed_halves.cuh"
#include "types.cuh"

#if !defined(SUBSAMPLING) || !defined(TAPS) || !defined(BITS) || !defined(NATIVE)
#error "ddc.cu needs SUBSAMPLING, TAPS, BITS and NATIVE"
#endif
#if !defined(ROW) || !defined(WARPS)
#error "ddc.cu needs ROW and WARPS"
#endif

constexpr u32 THREADS = 32 * WARPS;
/// Rows of a product: places in the stream of the left operand.
constexpr u32 ROWS = 16;
/// Output samples per tile, which are the columns of a product; tiles per hop, the output samples of each row
/// that a warp computes before it proceeds.
constexpr u32 TILE = 4, TILES = 4, HOP = TILE * TILES;
static_assert(HEAP % ROW == 0 && ROW % HOP == 0, "rows consist of hops, heaps of rows");

/// Samples of a row that are decoded at a time, for two products; each thread has eight adjacent ones.
constexpr u32 PIECE = 32;
constexpr u32 HOP_PIECES = HOP * SUBSAMPLING / PIECE;
/// Number of hops whose sums are in progress: the distance in hops between the weights of the first and the
/// last output sample of a hop, plus one.
constexpr u32 PENDING = ((HOP - 1) * SUBSAMPLING + TAPS + HOP * SUBSAMPLING - 1) / (HOP * SUBSAMPLING);
constexpr u32 HOPS = ROW / HOP + PENDING - 1;

/// First piece that a tile of a hop needs, unused samples at the start of this piece, and number of pieces.
__device__ constexpr u32 first_piece(u32 tile) { return tile * TILE * SUBSAMPLING / PIECE; }
__device__ constexpr u32 skipped(u32 tile) { return tile * TILE * SUBSAMPLING % PIECE; }
__device__ constexpr u32 pieces(u32 tile) {
    return (skipped(tile) + (TILE - 1) * SUBSAMPLING + TAPS + PIECE - 1) / PIECE;
}
constexpr u32 MOST_PIECES = pieces(1) > pieces(3) ? pieces(1) : pieces(3);

/// Pieces per unit, which are fetched at a time.
constexpr u32 largest_divisor(u32 of, u32 most) { return of % most == 0 ? most : largest_divisor(of, most - 1); }
constexpr u32 UNIT = largest_divisor(HOP_PIECES, 4);
constexpr u32 UNITS = HOP_PIECES / UNIT;
constexpr u32 PIECE_WORDS = PIECE * BITS / 32;
constexpr u32 UNIT_WORDS = UNIT * PIECE_WORDS;
/// Words per fetch of a thread, aligned to this number; samples start anywhere in the first words.
constexpr u32 FETCH_WORDS = UNIT_WORDS % 4 == 0 ? 4 : 1;
/// Threads that fetch from one row, so that other threads use other banks.
constexpr u32 FETCH_LANES = FETCH_WORDS == 4 ? 4 : 8;
/// Words from row to row in shared memory.
constexpr u32 PITCH = UNIT_WORDS + 4;
/// Words per eight samples, and words from row to row of the stream.
constexpr u32 EIGHT_WORDS = (8 * BITS + 31) / 32;
constexpr u32 ROW_WORDS = ROW * SUBSAMPLING * BITS / 32;

/// Zeros before and after the weights, for threads outside the filter.
constexpr u32 ZEROS = ((TILE - 1) * SUBSAMPLING + PIECE - 8 + 7) / 8 * 8;
constexpr u32 WEIGHTS = ZEROS + PIECE * MOST_PIECES;
/// Whether the eight weights of a thread are aligned to eight, and equal for the pieces of all tiles.
constexpr bool IS_ALIGNED = SUBSAMPLING % 8 == 0;
/// Number of `f16` per sample, whose sum is the sample.
constexpr int PARTS = halves_of_sample(BITS);
/// Whether all weights of a thread fit in its registers.
constexpr bool IS_HELD = IS_ALIGNED && MOST_PIECES <= 10 && PARTS == 1;
/// Smallest number of threads per multiprocessor; fewer if weights take more than a few registers.
constexpr u32 RESIDENT = IS_HELD && MOST_PIECES > 5 ? 384 : 512;

/// Units whose samples are present or in flight, as many as fit in shared memory.
constexpr u32 STAGE_WORDS = ROWS * PITCH;
constexpr u32 STAGES = 3 * WARPS * STAGE_WORDS + 2 * WEIGHTS <= 12 * 1024 ? 3 : 2;

__shared__ struct {
    /// Packed samples of each warp. A thread may read one word beyond those that it needs.
    alignas(16) u32 samples[WARPS][STAGES][ROWS][PITCH];
    /// [re, im][nearest, rest]: the `f16` nearest to each weight, and the `f16` nearest to the remainder.
    alignas(16) u16 weights[2][2][WEIGHTS];
} shared;

/// Computes the weights: the filter, rotated by the oscillator.
__device__ __forceinline__ void make_weights(const float *__restrict__ filter, u64 turn) {
    for (u32 i = threadIdx.x; i < WEIGHTS; i += THREADS) {
        const bool is_tap = i >= ZEROS && i < ZEROS + TAPS;
        const u32 tap = is_tap ? i - ZEROS : 0;
        const c32 g = (is_tap ? __ldg(filter + tap) : 0.0f) * phasor(tap * turn);
        const u32 nearest = halves(g.x, g.y);
        const float2 known = from_halves(nearest);
        const u32 rest = halves(g.x - known.x, g.y - known.y);
        shared.weights[0][0][i] = nearest;
        shared.weights[0][1][i] = rest;
        shared.weights[1][0][i] = nearest >> 16;
        shared.weights[1][1][i] = rest >> 16;
    }
}

/// Weights for the eight samples of a thread in a piece of a tile, for the column of the thread.
struct Eight {
    u32 nearest[4], rest[4];

    __device__ __forceinline__ static void load(const u16 *from, u32 (&to)[4]) {
        if constexpr (IS_ALIGNED) {
            const uint4 words = *reinterpret_cast<const uint4 *>(from);
            to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
        } else {
#pragma unroll
            for (u32 i = 0; i < 4; i++) to[i] = reinterpret_cast<const u32 *>(from)[i];
        }
    }

    __device__ __forceinline__ Eight(u32 piece, u32 skipped) {
        const u32 lane = threadIdx.x % 32, column = lane / 4;
        const u32 at = ZEROS + PIECE * piece + 8 * (lane % 4) - SUBSAMPLING * (column / 2) - skipped;
        load(&shared.weights[column % 2][0][at], nearest);
        load(&shared.weights[column % 2][1][at], rest);
    }

    __device__ __forceinline__ Eight() {}
};

/// Source of the rows of a warp.
struct Stream {
    static constexpr u32 ROWS_AT_ONCE = 32 / FETCH_LANES, TIMES = ROWS / ROWS_AT_ONCE;
    /// First fetch of this thread in each of its rows.
    const u32 *rows[TIMES];
    u32 to;
    /// Bytes before the first sample, available words of a row, and words of a unit.
    u32 byte, limit, words;

    __device__ Stream(const Run &run, u32 first_row, u32 row_count) {
        const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const u64 first = run.samples + run.first_bit / 8;
        byte = first % (4 * FETCH_WORDS);
#pragma unroll
        for (u32 k = 0; k < TIMES; k++) {
            // Results of rows that do not exist are not stored.
            const u32 row = min(first_row + lane / FETCH_LANES + ROWS_AT_ONCE * k, row_count - 1);
            rows[k] = reinterpret_cast<const u32 *>(first - byte) + row * ROW_WORDS +
                      lane % FETCH_LANES * FETCH_WORDS;
        }
        to = shared_address(
            &shared.samples[warp][0][lane / FETCH_LANES][lane % FETCH_LANES * FETCH_WORDS]);
        limit = (8 * byte + ((ROW - 1) * SUBSAMPLING + TAPS) * BITS + 31) / 32;
        words = UNIT_WORDS + (byte + 3) / 4;
    }

    /// Fetches a unit. No memory is read beyond the samples, where the weights are 0.
    __device__ __forceinline__ void fetch(u32 unit, u32 stage) const {
        const u32 skip = unit * UNIT_WORDS, of_lane = threadIdx.x % FETCH_LANES * FETCH_WORDS;
#pragma unroll
        for (u32 k = 0; k < TIMES; k++) {
#pragma unroll
            for (u32 i = 0; i < UNIT_WORDS + FETCH_WORDS; i += FETCH_LANES * FETCH_WORDS) {
                const u32 word = i + of_lane;
                if (word >= words) continue;
                const u32 at = to + 4 * ((stage * ROWS + ROWS_AT_ONCE * k) * PITCH + i);
                const u32 *from = rows[k] + skip + i;
                const bool is_there = skip + word < limit;
                if constexpr (FETCH_WORDS == 4) {
                    cp_async16(at, from, is_there);
                } else {
                    cp_async4(at, from, is_there);
                }
            }
        }
        cp_async_commit();
    }
};

/// Converts eight adjacent samples to pairs of `f16`. `raw` are the words with the samples; `order` selects the
/// byte of the first sample.
__device__ __forceinline__ void decode(const u32 *raw, u32 order, u32 (&to)[4][PARTS]) {
    u32 words[EIGHT_WORDS + 1];
#pragma unroll
    for (u32 i = 0; i <= EIGHT_WORDS; i++) words[i] = raw[i];
#pragma unroll
    for (u32 i = 0; i < EIGHT_WORDS; i++) words[i] = __byte_perm(words[i], words[i + 1], order);
#pragma unroll
    for (u32 i = 0; i < 4; i++) sample_halves<BITS>(words, 2 * i, to[i]);
}

/// Output samples of a warp.
struct Output {
    c32 *to;
    u64 phase, step;
    c32 tile_further;
    float scale;
    /// Whether the rows of this thread's sums exist.
    bool has_row[2];

    __device__ Output(const Run &run, c32 *frame, u32 first_row, u32 row_count, float scale)
        : step(SUBSAMPLING * run.turn), tile_further(phasor(TILE * step)), scale(scale) {
        const u32 lane = threadIdx.x % 32;
        const u32 row = first_row + lane / 4;
        const u64 first = static_cast<u64>(run.heap) * HEAP + row * ROW + lane % 4;
        to = frame + first;
        phase = run.phase + first * step;
        has_row[0] = row < row_count;
        has_row[1] = row + ROWS / 2 < row_count;
    }

    /// Rotates and writes the sums of a hop.
    __device__ __forceinline__ void write(u32 hop, const float (&sums)[TILES][4]) const {
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const u32 first = half * (ROWS / 2) * ROW + hop * HOP;
            c32 factor = scale * phasor(phase + first * step);
#pragma unroll
            for (u32 tile = 0; tile < TILES; tile++) {
                const c32 sum = {sums[tile][2 * half], sums[tile][2 * half + 1]};
                if (has_row[half]) to[first + tile * TILE] = factor * sum;
                factor = factor * tile_further;
            }
        }
    }
};

/// Computes output samples.
///
///   runs     [run]
///   filter   [tap]: the low-pass filter, times a power of two
///   out      [sample][re, im]
///   scale    factor that removes the scales of weights and samples from the sums
///
/// Grid: runs, blocks of THREADS; each warp processes sixteen rows of a run.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
ddc(const Run *__restrict__ runs, const float *__restrict__ filter, c32 *__restrict__ out, float scale) {
    const Run run = runs[blockIdx.x];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (run.what != 0) {
        c32 *to = out + static_cast<u64>(run.heap) * HEAP;
        for (u32 i = threadIdx.x; i < run.count * HEAP; i += THREADS) to[i] = {0.0f, 0.0f};
        return;
    }
    const u32 row_count = run.count * (HEAP / ROW), first_row = warp * ROWS;
    const Stream stream(run, first_row, row_count);
    const bool has_rows = first_row < row_count;
    if (has_rows) {
#pragma unroll
        for (u32 s = 0; s + 1 < STAGES; s++) stream.fetch(s, s);
    }
    make_weights(filter, run.turn);
    __syncthreads();
    if (!has_rows) return;

    Eight held[IS_HELD ? MOST_PIECES : 1];
    if constexpr (IS_HELD) {
#pragma unroll
        for (u32 piece = 0; piece < MOST_PIECES; piece++) held[piece] = Eight(piece, 0);
    }
    const u32 byte = stream.byte + lane % 4 * BITS;
    const u32 order = (NATIVE ? 0x1032 : 0x0123) + byte % 4 * 0x1111;
    const u32 *raw = &shared.samples[warp][0][lane / 4][byte / 4];
    const Output output(run, out, first_row, row_count, scale);
    float sums[PENDING][TILES][4] = {};
    u32 unit = 0, stage = 0;
#pragma unroll 1
    for (u32 hop = 0; hop < HOPS; hop++) {
#pragma unroll(HOP_PIECES <= 8 ? UNITS : 1)
        for (u32 of_hop = 0; of_hop < UNITS; of_hop++) {
            cp_async_wait<STAGES - 2>();
            // The samples of all threads are present, and no thread needs the samples that are overwritten next.
            __syncwarp();
            stream.fetch(unit + STAGES - 1, stage == 0 ? STAGES - 1 : stage - 1);
            const u32 *of_stage = raw + stage * STAGE_WORDS;
#pragma unroll
            for (u32 of_unit = 0; of_unit < UNIT; of_unit++) {
                u32 upper[4][PARTS], lower[4][PARTS];
                decode(of_stage + of_unit * PIECE_WORDS, order, upper);
                decode(of_stage + of_unit * PIECE_WORDS + ROWS / 2 * PITCH, order, lower);
                const u32 of_hop_piece = of_hop * UNIT + of_unit;
#pragma unroll
                for (u32 p = 0; p < PENDING; p++) {
#pragma unroll
                    for (u32 tile = 0; tile < TILES; tile++) {
                        const u32 piece = of_hop_piece + p * HOP_PIECES - first_piece(tile);
                        // True also if the difference would be negative.
                        if (piece >= pieces(tile)) continue;
                        const Eight g = IS_HELD ? held[piece] : Eight(piece, skipped(tile));
                        // Matrix instructions truncate sums instead of rounding them, so start from 0.
                        float of_piece[4] = {};
#pragma unroll
                        for (u32 i = 0; i < 4; i += 2) {
#pragma unroll
                            for (u32 part = 0; part < PARTS; part++) {
                                const u32 a[4] = {upper[i][part], lower[i][part], upper[i + 1][part],
                                                  lower[i + 1][part]};
                                multiply_halves(of_piece, a, g.rest[i], g.rest[i + 1]);
                                multiply_halves(of_piece, a, g.nearest[i], g.nearest[i + 1]);
                            }
                        }
#pragma unroll
                        for (u32 i = 0; i < 4; i++) sums[p][tile][i] += of_piece[i];
                    }
                }
            }
            unit++;
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        if (hop + 1 >= PENDING) output.write(hop + 1 - PENDING, sums[PENDING - 1]);
#pragma unroll
        for (u32 tile = 0; tile < TILES; tile++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
#pragma unroll
                for (u32 p = PENDING - 1; p > 0; p--) sums[p][tile][i] = sums[p - 1][tile][i];
                sums[0][tile][i] = 0.0f;
            }
        }
    }
}
