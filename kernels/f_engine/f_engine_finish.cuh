// Second pass of the F-engine: rest of the transform, delay, phase, gain, quantisation, and
// transposition.
#pragma once
#include "async_copy.cuh"
#include "f_engine_combs.cuh"
#include "quantise.cuh"
#include "short_fft.cuh"
#include "spectrum_row.cuh"

namespace finish {

/// Factors centre exp(i (start + step j)) for j = 0, 1, 2 ... Two of each RESTART are computed with the hardware's
/// sine and cosine, the others as 2 cos(step) times the last factor minus the one before, which takes half of the
/// instructions. The error grows with RESTART.
struct Factors {
    static constexpr int RESTART = 8;
    c32 centre;
    float start, step, twice_cosine;
    c32 before, last;

    __device__ __forceinline__ Factors(c32 centre, float start, float step)
        : centre(centre), start(start), step(step), twice_cosine(2.0f * __cosf(step)) {}

    /// Factor j; j counts up from 0.
    __device__ __forceinline__ c32 at(int j) {
        const c32 factor = j % RESTART < 2 ? centre * phasor(start + step * (float)j)
                                           : c32{twice_cosine * last.x - before.x,
                                                 twice_cosine * last.y - before.y};
        before = last;
        last = factor;
        return factor;
    }
};

/// Output of one thread for one unit: quantises values and stages them at byte `place` of their channels.
struct Output {
    static constexpr float LIMIT = largest(VALUE_BITS);
    u64 dither_key;
    u8 *direct, *mirrored;
    u32 clamped = 0;

    /// `mirror` is the first mirrored channel, in units of the distance of the channels.
    __device__ __forceinline__ Output(const Worker &worker, int mirror, const Row &row, u8 *staged,
                                      int place)
        : dither_key(row.dither_key) {
        auto stage = [&](int channel, int half) {
            const int word = place / 4 ^ swizzle(channel, worker.group);
            return staged + ((worker.group * 2 + half) * (POINTS / 2) + channel) * TILE_BYTES +
                   word * 4 + place % 4;
        };
        direct = stage(worker.lane, 0);
        mirrored = stage(mirror, 1);
    }

    /// Takes value `v` `factor` of channel `channel`, in units of the whole range.
    __device__ __forceinline__ void take(u8 *to, c32 v, c32 factor, int channel) {
        c32 y = v * factor;
        if (DITHER) {
            // The offset of the noise is subtracted within the product, without instructions of its own.
            constexpr float UNIT = 0.5f / LIMIT, OFFSET = 128.5f * UNIT;
            const c32 noise = offset_uniform_pair(dither_key + (u32)channel * DITHER_STEP);
            y = {fmaf(UNIT, noise.x, fmaf(-v.y, factor.y, fmaf(v.x, factor.x, -OFFSET))),
                 fmaf(UNIT, noise.y, fmaf(v.y, factor.x, fmaf(v.x, factor.y, -OFFSET)))};
        }
        const u32 re = nearest_of_range(y.x, LIMIT), im = nearest_of_range(y.y, LIMIT);
        if (VALUE_BITS == 8) *(u16 *)to = (u16)pack8(re, im);
        if (VALUE_BITS == 4) *to = (u8)pack4(re, im);
        count_clamped(clamped, y, 0.5f);
    }
};

/// Factor of the transformed values, apart from the scale of the first pass: the quantiser takes them in units of
/// its whole range.
constexpr float SCALE = 0.5f / largest(VALUE_BITS) / (LIMIT48 * ROOT_SCALE);

/// Finishes a part of the rows 1 to 7. `gains` [i][`LANES`] (with KEEP_GAINS [i]) are the gains of the i-th direct and
/// the i-th mirrored channel. Returns the number of clamped values.
__device__ __forceinline__ u32 finish_part(const Worker &worker, const c32 *v, const Row &row,
                                           const float4 *gains, u8 *staged, int place) {
    const int mirror = LANES - 1 - worker.lane;
    const int first = first_channel(worker.job, worker.part, false) + COMBS * worker.lane;
    const int first_mirror = first_channel(worker.job, worker.part, true) + COMBS * mirror;
    const c32 centre = SCALE * row.turn.centre;
    const float slope = row.turn.radians_per_channel, step = slope * (float)(COMBS * LANES);
    Factors factors(centre, slope * (float)(first - N / 2), step);
    Factors mirror_factors(centre, slope * (float)(first_mirror - N / 2), step);
    Output out(worker, mirror, row, staged, place);
#pragma unroll
    for (int i = 0; i < VALUES / 2; i++) {
        c32 factor = factors.at(i), mirror_factor = mirror_factors.at(i);
        if (CHANNEL_GAINS) {
            const float4 pair = gains[KEEP_GAINS ? i : i * LANES];
            factor = factor * c32{pair.x, pair.y};
            mirror_factor = mirror_factor * c32{pair.z, pair.w};
        }
        const int byte = i * (LANES * TILE_BYTES), channel = i * (COMBS * LANES);
        out.take(out.direct + byte, v[i], factor, first + channel);
        out.take(out.mirrored + byte, conj(v[VALUES - 1 - i]), mirror_factor, first_mirror + channel);
    }
    return out.clamped;
}

/// Finishes a part of row 0, the transform of real numbers: from the values of channels k and N - k come both.
/// `gains` are those of k and N - k.
__device__ __forceinline__ u32 finish_real_part(const Worker &worker, const c32 *v, const Row &row,
                                                const float4 *gains, u8 *staged, int place) {
    constexpr u32 ALL = 0xffffffff;
    const int lane = worker.lane, part = worker.part;
    const int in_warp = threadIdx.x & 31, first_lane = in_warp - lane;
    // Parts 0 and FRONT / 2 are their own partners; others have that of the other half of the warp.
    const int partner = part == 0           ? first_lane + (LANES - lane) % LANES
                        : part == FRONT / 2 ? first_lane + LANES - 1 - lane
                                            : in_warp ^ (2 * LANES - 1);
    // Channel 0 and its partner N/2 are both in this thread.
    const bool has_ends = part == 0 && lane == 0;
    const int first = ROWS * (part + FRONT * lane);
    const int mirror = (part == 0 ? LANES : LANES - 1) - lane;
    const c32 root = phasor(-3.14159265f / N * first);
    // Twice the values.
    const c32 centre = (0.5f * SCALE) * row.turn.centre;
    constexpr int STEP = COMBS / 2 * LANES;
    const float slope = row.turn.radians_per_channel;
    Factors phasors({1.0f, 0.0f}, slope * (float)(first - N / 2), slope * (float)STEP);
    Output out(worker, mirror, row, staged, place);
#pragma unroll
    for (int i = 0; i < VALUES / 2; i++) {
        const c32 z = v[i];
        c32 sent = v[VALUES - 1 - i];
        if (i > 0 && has_ends) sent = v[VALUES - i];
        c32 other = {__shfl_sync(ALL, sent.x, partner), __shfl_sync(ALL, sent.y, partner)};
        if (i == 0 && has_ends) other = z;
        // Twice the transforms of the even and the odd numbers.
        const c32 even = {z.x + other.x, z.y - other.y}, odd = {z.y + other.y, other.x - z.x};
        const c32 w = i > 0 ? root * root64(i * (32 / VALUES)) : root;
        // even + w odd, and the conjugate of even - w odd, in six instructions.
        const c32 x = {even.x + w.x * odd.x - w.y * odd.y, even.y + w.x * odd.y + w.y * odd.x};
        c32 x_mirror = {2.0f * even.x - x.x, x.y - 2.0f * even.y};

        const c32 by = phasors.at(i);
        c32 factor = centre * by, factor_mirror = centre * conj(by);
        int byte_mirror = (VALUES / 2 - 1 - i) * (LANES * TILE_BYTES);
        int channel_mirror = N - first - i * STEP;
        if (i == 0 && has_ends) {
            x_mirror = 2.0f * conj(v[VALUES / 2]);
            factor_mirror = centre;
            byte_mirror = -LANES * TILE_BYTES;
            channel_mirror = N / 2;
        }
        if (CHANNEL_GAINS) {
            const float4 pair = gains[KEEP_GAINS ? i : i * LANES];
            factor = factor * c32{pair.x, pair.y};
            factor_mirror = factor_mirror * c32{pair.z, pair.w};
        }
        out.take(out.direct + i * (LANES * TILE_BYTES), x, factor, first + i * STEP);
        out.take(out.mirrored + byte_mirror, x_mirror, factor_mirror, channel_mirror);
    }
    return out.clamped;
}

/// Spectra of a heap that are processed together.
struct Tile {
    int heap;
    /// First spectrum within the heap, and first polarisation.
    int first, pol;

    __device__ __forceinline__ Tile(int number, int tiles_per_pol, const u32 *heaps) {
        pol = number / tiles_per_pol;
        number %= tiles_per_pol;
        heap = (int)heaps[number / TILES_PER_HEAP];
        first = number % TILES_PER_HEAP * TILE_SPECTRA;
    }
};

/// One spectrum and polarisation of a tile.
struct Unit {
    int pol, spectrum;
    /// Byte offset of the values within the tile's part of a channel.
    int place;

    __device__ __forceinline__ Unit(const Tile &tile, int pass, int slot) {
        const int unit = pass * SLOTS + slot, pol_of_tile = unit / TILE_SPECTRA,
                  number = unit % TILE_SPECTRA;
        pol = tile.pol + pol_of_tile;
        spectrum = tile.heap * SPECTRA_PER_HEAP + tile.first + number;
        place = (number * TILE_POLS + pol_of_tile) * VALUE_BYTES;
    }
};

/// Range of spectra of a frame that a launch computes.
struct Window {
    int begin, end;

    __device__ __forceinline__ bool has(int spectrum) const {
        return begin <= spectrum && spectrum < end;
    }

    __device__ __forceinline__ bool has_all(const Tile &tile) const {
        const int first = tile.heap * SPECTRA_PER_HEAP + tile.first;
        return begin <= first && first + TILE_SPECTRA <= end;
    }

    /// Mask of the bits of word `word` of a tile's part of a channel that belong to these spectra.
    __device__ __forceinline__ u32 bits(const Tile &tile, int word) const {
        constexpr int SPECTRUM_BYTES = TILE_POLS * VALUE_BYTES;
        u32 bits = 0;
#pragma unroll
        for (int byte = 0; byte < 4; byte++) {
            const int number = (word * 4 + byte) / SPECTRUM_BYTES;
            const bool is_ours = has(tile.heap * SPECTRA_PER_HEAP + tile.first + number);
            bits |= is_ours ? 0xffu << (8 * byte) : 0;
        }
        return bits;
    }
};

/// Writes the staged tile: TILE_BYTES for each channel of the row. Unless IS_WHOLE, writes only the values
/// of the window.
template <bool IS_WHOLE>
__device__ __forceinline__ void write(const Tile &tile, int job, const u8 *staged,
                                      const Window &window, u8 *__restrict__ out) {
    const int word = threadIdx.x % TILE_WORDS, channel = threadIdx.x / TILE_WORDS;
    const int in_channel = (tile.first * TILE_POLS + tile.pol * SPECTRA_PER_HEAP) * VALUE_BYTES;
    u8 *heap = out + (i64)tile.heap * N * CHANNEL_BYTES + in_channel + word * 4;
    const u32 bits = IS_WHOLE ? ~0u : window.bits(tile, word);
    const int apart = job > 0 ? COMBS : COMBS / 2;
#pragma unroll 1
    for (int part = 0; part < 2 * FRONT; part++) {
        const int group = part >> 1;
        const u32 *from = (const u32 *)staged + (part * (POINTS / 2) + channel) * TILE_WORDS +
                          (word ^ swizzle(channel, group));
        const int first = first_channel(job, part_of(job, group), part & 1);
        u8 *to = heap + (i64)(first + apart * channel) * CHANNEL_BYTES;
#pragma unroll
        for (int c = 0; c < POINTS / 2; c += WRITTEN) {
            u32 *of_channel = (u32 *)(to + (i64)c * apart * CHANNEL_BYTES);
            u32 values = from[c * TILE_WORDS];
            if (!IS_WHOLE) values = (*of_channel & ~bits) | (values & bits);
            *of_channel = values;
        }
    }
}

/// Adds the squares of the values of a staged tile that are measured, those of the heap's first spectra within the
/// window, to the sums `squares` [heap][pol]. All threads of the block call it.
__device__ __forceinline__ void measure(const Tile &tile, int job, const u8 *staged,
                                        const Window &window, u32 *squares) {
    static_assert(2ull * 127 * 127 * MEASURED_SPECTRA * N < 1ull << 32, "sums of 32 bits");
    // A word has the values of 1, 2 or 4 spectra, so all of them are measured, or none.
    constexpr int SPECTRUM_BYTES = TILE_POLS * VALUE_BYTES;
    const int word = threadIdx.x % TILE_WORDS, channel = threadIdx.x / TILE_WORDS;
    const bool is_measured = tile.first + word * 4 / SPECTRUM_BYTES < MEASURED_SPECTRA;
    const u32 bits = is_measured ? window.bits(tile, word) : 0;
    // Values of the first polarisation.
    constexpr u32 FIRST = TILE_POLS == 1 ? ~0u : VALUE_BYTES == 2 ? 0x0000ffff : 0x00ff00ff;
    u32 sums[TILE_POLS] = {};
#pragma unroll 1
    for (int part = 0; part < 2 * FRONT; part++) {
        const u32 *from = (const u32 *)staged + (part * (POINTS / 2) + channel) * TILE_WORDS +
                          (word ^ swizzle(channel, part >> 1));
#pragma unroll 1
        for (int c = 0; c < POINTS / 2; c += WRITTEN) {
            const u32 values = from[c * TILE_WORDS] & bits;
            sums[0] += sum_of_squares<VALUE_BITS>(values & FIRST);
            if (TILE_POLS == 2) sums[TILE_POLS - 1] += sum_of_squares<VALUE_BITS>(values & ~FIRST);
        }
    }
#pragma unroll
    for (int p = 0; p < TILE_POLS; p++) {
        const u32 sum = __reduce_add_sync(0xffffffff, sums[p]);
        if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(squares + tile.heap * POLS + tile.pol + p, sum);
    }
}

}  // namespace finish

/// Does the transforms over b, then rotates, scales, quantises and transposes.
///
///   middle       [pol][frame_spectra][8 r][COLUMNS b], see f_engine.cuh
///   out          ci8 or ci4 [heap][channel][spectrum][pol] or [heap][channel][pol][spectrum]
///   clamped      [heap][pol]                    added to
///   squares      [heap][pol]                    added to: sums of squares of the measured values
///   rows         [pol][frame_spectra]
///   gains        [pol][8 rows][FRONT groups][VALUES/2 i][`LANES`] {gain of i-th direct, of i-th mirrored channel},
///                in row 0 {gain of k, gain of N - k}
///   roots        [`LANES` u][VALUES c] c32        W_POINTS^(u c), and if FRONT > 1 after it
///                [FRONT q][POINTS n] c32        W_COLUMNS^(q n)
///   heaps        heaps to compute; `tiles_per_pol` = their number x TILES_PER_HEAP
///   first_spectrum, end_spectrum  range of spectra of the frame to compute; values of other spectra
///                in these heaps are not changed
///   factor       inverse of the scale of the first pass
///
/// Grid BLOCKS x groups, groups >= 8 and best the number of multiprocessors; blocks of THREADS. A block works on one
/// row, whose gains stay in the L1 cache. Therefore blocks that share a multiprocessor (those `groups`
/// apart) also share the row.
extern "C" __global__ void __launch_bounds__(finish::THREADS, finish::BLOCKS)
    f_engine_finish(const u8 *__restrict__ middle, u8 *__restrict__ out, u32 *clamped, u32 *squares,
                    const Row *__restrict__ rows, const float4 *__restrict__ gains,
                    const c32 *__restrict__ roots, const u32 *__restrict__ heaps, int tiles_per_pol,
                    int frame_spectra, int first_spectrum, int end_spectrum, float factor) {
    using namespace finish;
    const Window window = {first_spectrum, end_spectrum};
    extern __shared__ __align__(16) u8 shared[];
    c32 *exchange = (c32 *)shared;
    c32 *block_roots = (c32 *)(shared + EXCHANGE_BYTES);
    u8 *staged = shared + EXCHANGE_BYTES + ROOTS_BYTES;
    for (int i = threadIdx.x; i < POINTS; i += THREADS) block_roots[i] = ROOT_SCALE * roots[i];

    const int groups = gridDim.x / BLOCKS, group = blockIdx.x % groups, job = group % ROWS;
    const int groups_of_job = (groups - job + ROWS - 1) / ROWS;
    const int first_tile = group / ROWS + blockIdx.x / groups * groups_of_job;
    const int stride = BLOCKS * groups_of_job, tiles = tiles_per_pol * (POLS / TILE_POLS);
    if (first_tile >= tiles) return;

    const Worker worker(job);
    gains += (job * FRONT + worker.group) * (VALUES / 2 * LANES) + worker.lane;
    auto row_of = [&](const Unit &unit) {
        const i64 spectrum = (i64)unit.pol * frame_spectra + unit.spectrum;
        return middle + spectrum * SPECTRUM_BYTES + job * ROW_BYTES;
    };
    worker.fetch(row_of(Unit(Tile(first_tile, tiles_per_pol, heaps), 0, worker.slot)), exchange);
    __syncthreads();
    float4 kept_gains[KEEP_GAINS ? VALUES / 2 : 1];
    for (int number = first_tile; number < tiles; number += stride) {
        const Tile tile(number, tiles_per_pol, heaps);
#pragma unroll 1
        for (int pass = 0; pass < PASSES; pass++) {
            const Unit unit(tile, pass, worker.slot);
            // After the last tile, any existing one.
            const bool is_last = pass + 1 == PASSES;
            const Tile next_tile(is_last && number + stride < tiles ? number + stride : number,
                                 tiles_per_pol, heaps);
            const Unit next(next_tile, is_last ? 0 : pass + 1, worker.slot);
            Row row = rows[(i64)unit.pol * frame_spectra + unit.spectrum];
            row.turn.centre = factor * row.turn.centre;
            const float4 *gains_of_pol = gains + unit.pol * (N / 2);
            if (KEEP_GAINS && pass % PASSES_OF_POL == 0) {
#pragma unroll
                for (int i = 0; i < VALUES / 2; i++) kept_gains[i] = gains_of_pol[i * LANES];
            }
            const float4 *unit_gains = KEEP_GAINS ? kept_gains : gains_of_pol;
            c32 v[VALUES];
            cp_async_wait<0>();
            if constexpr (FRONT > 1) worker.front(exchange, roots + POINTS);
            worker.transform(exchange, block_roots, v);
            wait_for_unit(worker.slot);
            worker.fetch(row_of(next), exchange);
            butterfly_fft<VALUES>(v);
            u32 sum = job == 0 ? finish_real_part(worker, v, row, unit_gains, staged, unit.place)
                               : finish_part(worker, v, row, unit_gains, staged, unit.place);
            // The counts of the units of a warp are packed in 32 bits.
            constexpr int SHARING = FRONT > 1 ? 1 : 32 / LANES, COUNT_BITS = 32 / SHARING;
            static_assert(SHARING == 1 || LANES * VALUES < 1 << COUNT_BITS, "COUNT_BITS");
            const int own = threadIdx.x % 32 / COUNT_BITS * COUNT_BITS;
            sum = __reduce_add_sync(0xffffffff, sum << own) >> own;
            if (SHARING > 1) sum &= (1u << COUNT_BITS % 32) - 1;
            if (threadIdx.x % (32 / SHARING) == 0 && sum > 0 && window.has(unit.spectrum)) {
                atomicAdd(clamped + (unit.spectrum / SPECTRA_PER_HEAP) * POLS + unit.pol, sum);
            }
        }
        __syncthreads();
        if (window.has_all(tile)) {
            write<true>(tile, job, staged, window, out);
        } else {
            write<false>(tile, job, staged, window, out);
        }
        if (tile.first < MEASURED_SPECTRA) measure(tile, job, staged, window, squares);
        __syncthreads();
    }
}
