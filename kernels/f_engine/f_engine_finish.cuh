// Second pass of the F-engine: rest of the transform, delay, phase, gain, quantisation, and
// transposition.
#pragma once
#include "async_copy.cuh"
#include "f_engine_combs.cuh"
#include "quantise.cuh"
#include "short_fft.cuh"
#include "spectrum_row.cuh"

namespace finish {

/// Computes channels k and N - k from Z, for k = comb + COMBS (`lane` + `LANES` i) and i = 0 .. VALUES/2 - 1, and
/// stages them at byte `place` of their channels. `gains` [i][2 `LANES`] (with KEEP_GAINS [i]) are the gains of k and
/// N - k. IS_ALONE: the comb is its own partner. Returns the number of clamped values.
template <bool IS_ALONE>
__device__ __forceinline__ u32 finish_comb(const Worker &worker, const c32 *v, const Row &row,
                                           const float4 *gains, u8 *staged, int place) {
    const int lane = worker.lane, half = worker.half;
    constexpr u32 ALL = 0xffffffff;
    int partner = (int)(threadIdx.x & 31) ^ (2 * LANES - 1);
    if (IS_ALONE)
        partner =
            (threadIdx.x & 31) - lane + (half == 1 ? LANES - 1 - lane : (LANES - lane) % LANES);
    // Channel 0 and its partner N/2 are both real, and both in this thread.
    const bool has_ends = IS_ALONE && half == 0 && lane == 0;

    const int first = worker.comb + COMBS * lane;
    const c32 root = phasor(-3.14159265f / N * first);
    const float slope = row.turn.radians_per_channel, angle = slope * (float)(first - N / 2);
    // X is computed with a factor of 2; the quantiser takes it in units of its whole range.
    constexpr float limit = largest(VALUE_BITS), scale = 0.25f / limit;
    const c32 centre = scale * row.turn.centre;

    const int mirror = (IS_ALONE && half == 0 ? POINTS : POINTS - 1) - lane,
              mirror_half = IS_ALONE ? half : 1 - half;
    auto stage = [&](int channel, int half) {
        const int word = place / 4 ^ swizzle(channel, half);
        return staged + ((worker.warp * 2 + half) * POINTS + channel) * TILE_BYTES + word * 4 +
               place % 4;
    };
    u8 *to = stage(lane, half), *to_mirror = stage(mirror, mirror_half);
    auto quantise = [&](u8 *to, c32 y) {
        const u32 re = nearest_of_range(y.x, limit), im = nearest_of_range(y.y, limit);
        if (VALUE_BITS == 8) *(u16 *)to = (u16)pack8(re, im);
        if (VALUE_BITS == 4) *to = (u8)pack4(re, im);
        return (u32)is_clamped(y, 0.5f);
    };
    u32 clamped = 0;
#pragma unroll
    for (int i = 0; i < VALUES / 2; i++) {
        const c32 z = v[fft_place<VALUES>(i)];
        c32 sent = v[fft_place<VALUES>(VALUES - 1 - i)];
        if (IS_ALONE && i > 0 && has_ends) sent = v[fft_place<VALUES>(VALUES - i)];
        c32 other = {__shfl_sync(ALL, sent.x, partner), __shfl_sync(ALL, sent.y, partner)};
        if (IS_ALONE && i == 0 && has_ends) other = z;
        // Twice the transforms of the even and the odd samples.
        const c32 even = {z.x + other.x, z.y - other.y}, odd = {z.y + other.y, other.x - z.x};
        const c32 w = i > 0 ? root * root64(i * (32 / VALUES)) : root;
        // even + w odd, and the conjugate of even - w odd, in six instructions.
        const c32 x = {even.x + w.x * odd.x - w.y * odd.y, even.y + w.x * odd.y + w.y * odd.x};
        c32 x_mirror = {2.0f * even.x - x.x, x.y - 2.0f * even.y};

        const c32 by = phasor(angle + slope * (float)(COMBS * LANES * i));
        c32 factor = centre * by, factor_mirror = centre * conj(by);
        int mirror_place = -LANES * TILE_BYTES * i;
        const int channel = first + COMBS * LANES * i;
        int mirror_channel = N - channel;
        if (IS_ALONE && i == 0 && has_ends) {
            x_mirror = 2.0f * conj(v[fft_place<VALUES>(VALUES / 2)]);
            factor_mirror = centre;
            mirror_place = -POINTS / 2 * TILE_BYTES;
            mirror_channel = N / 2;
        }
        if (CHANNEL_GAINS) {
            const float4 pair = gains[KEEP_GAINS ? i : i * (2 * LANES)];
            factor = factor * c32{pair.x, pair.y};
            factor_mirror = factor_mirror * c32{pair.z, pair.w};
        }
        c32 y = x * factor, y_mirror = x_mirror * factor_mirror;
        if (DITHER) {
            y = y + (0.5f / limit) * uniform_pair(row.dither_key, channel);
            y_mirror = y_mirror + (0.5f / limit) * uniform_pair(row.dither_key, mirror_channel);
        }
        clamped += quantise(to + i * LANES * TILE_BYTES, y);
        clamped += quantise(to_mirror + mirror_place, y_mirror);
    }
    return clamped;
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

/// Writes the staged tile: TILE_BYTES for each channel of the two residues. Unless IS_WHOLE, writes only the values
/// of the window.
template <bool IS_WHOLE>
__device__ __forceinline__ void write(const Tile &tile, int job, const u8 *staged,
                                      const Window &window, u8 *__restrict__ out) {
    const int word = threadIdx.x % TILE_WORDS, channel = threadIdx.x / TILE_WORDS;
    const int in_channel = (tile.first * TILE_POLS + tile.pol * SPECTRA_PER_HEAP) * VALUE_BYTES;
    u8 *heap = out + (i64)tile.heap * N * CHANNEL_BYTES + in_channel + word * 4;
    const u32 bits = IS_WHOLE ? ~0u : window.bits(tile, word);
#pragma unroll 1
    for (int comb = 0; comb < 2 * FRONT; comb++) {
        const u32 *from = (const u32 *)staged + (comb * POINTS + channel) * TILE_WORDS +
                          (word ^ swizzle(channel, comb & 1));
        u8 *to = heap + (i64)(comb_of(job, comb >> 1, comb & 1) + COMBS * channel) * CHANNEL_BYTES;
#pragma unroll
        for (int c = 0; c < POINTS; c += WRITTEN) {
            u32 *of_channel = (u32 *)(to + (i64)c * COMBS * CHANNEL_BYTES);
            u32 values = from[c * TILE_WORDS];
            if (!IS_WHOLE) values = (*of_channel & ~bits) | (values & bits);
            *of_channel = values;
        }
    }
}

}  // namespace finish

/// Does the transforms over b, then rotates, scales, quantises and transposes.
///
///   middle       [pol][frame_spectra][16 r][COLUMNS b] c32
///   out          ci8 or ci4 [heap][channel][spectrum][pol] or [heap][channel][pol][spectrum]
///   clamped      [heap][pol]                    added to
///   rows         [pol][frame_spectra]
///   gains        [pol][8 jobs][FRONT][VALUES/2 i][2 `LANES`] {gain of k, gain of N - k}
///   roots        [`LANES` u][VALUES c] c32        W_POINTS^(u c), and if FRONT > 1 after it
///                [FRONT q][POINTS n] c32        W_COLUMNS^(q n)
///   heaps        heaps to compute; `tiles_per_pol` = their number x TILES_PER_HEAP
///   first_spectrum, end_spectrum  range of spectra of the frame to compute; values of other spectra
///                in these heaps are not changed
///
/// Grid BLOCKS x groups, groups >= 8 and best the number of multiprocessors; blocks of THREADS. A block works on one
/// pair of residues, whose gains stay in the L1 cache. Therefore blocks that share a multiprocessor (those `groups`
/// apart) also share the pair.
extern "C" __global__ void __launch_bounds__(finish::THREADS, finish::BLOCKS)
    f_engine_finish(const c32 *__restrict__ middle, u8 *__restrict__ out, u32 *clamped,
                    const Row *__restrict__ rows, const float4 *__restrict__ gains,
                    const c32 *__restrict__ roots, const u32 *__restrict__ heaps, int tiles_per_pol,
                    int frame_spectra, int first_spectrum, int end_spectrum) {
    using namespace finish;
    const Window window = {first_spectrum, end_spectrum};
    extern __shared__ __align__(16) u8 shared[];
    c32 *exchange = (c32 *)shared;
    c32 *block_roots = (c32 *)(shared + EXCHANGE_BYTES);
    u8 *staged = shared + EXCHANGE_BYTES + ROOTS_BYTES;
    for (int i = threadIdx.x; i < POINTS; i += THREADS) block_roots[i] = roots[i];

    const int groups = gridDim.x / BLOCKS, group = blockIdx.x % groups, job = group % JOBS;
    const int groups_of_job = (groups - job + JOBS - 1) / JOBS;
    const int first_tile = group / JOBS + blockIdx.x / groups * groups_of_job;
    const int stride = BLOCKS * groups_of_job, tiles = tiles_per_pol * (POLS / TILE_POLS);
    if (first_tile >= tiles) return;

    const Worker worker(job);
    gains +=
        (job * FRONT + worker.warp) * (VALUES / 2 * 2 * LANES) + worker.half * LANES + worker.lane;
    auto values = [&](const Unit &unit) {
        return middle + ((i64)unit.pol * frame_spectra + unit.spectrum) * N;
    };
    worker.fetch(values(Unit(Tile(first_tile, tiles_per_pol, heaps), 0, worker.slot)), exchange);
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
            const Row row = rows[(i64)unit.pol * frame_spectra + unit.spectrum];
            const float4 *gains_of_pol = gains + unit.pol * (N / 2);
            if (KEEP_GAINS && pass % PASSES_OF_POL == 0) {
#pragma unroll
                for (int i = 0; i < VALUES / 2; i++) kept_gains[i] = gains_of_pol[i * (2 * LANES)];
            }
            const float4 *unit_gains = KEEP_GAINS ? kept_gains : gains_of_pol;
            c32 v[VALUES];
            cp_async_wait<0>();
            if constexpr (FRONT > 1) {
                worker.front(exchange, roots + POINTS);
                wait_for_unit(worker.slot);
            }
            worker.transform(exchange, block_roots, v);
            wait_for_unit(worker.slot);
            worker.fetch(values(next), exchange);
            short_fft<VALUES>(v);
            u32 sum = worker.is_alone
                          ? finish_comb<true>(worker, v, row, unit_gains, staged, unit.place)
                          : finish_comb<false>(worker, v, row, unit_gains, staged, unit.place);
            // The counts of the two units of a warp are packed in 16 bits each.
            constexpr int SHARING = 16 / LANES;
            const int own = threadIdx.x % 32 / (32 / SHARING);
            sum = __reduce_add_sync(0xffffffff, sum << (16 * own)) >> (16 * own) & 0xffff;
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
        __syncthreads();
    }
}
