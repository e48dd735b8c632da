// Second pass of the F-engine: launch configuration, and the rest of the transform.
//
// With FRONT = 1 the COLUMNS points of a residue are transformed in one step. Longer transforms first
// have a radix-FRONT step (n = POINTS a + n0: transform over a, times W_COLUMNS^(n0 q)), which splits
// each residue r into the FRONT residues r + 16 q. In both cases there are COMBS = 16 FRONT combs of
// POINTS = `LANES` x VALUES points; comb p has the channels p + COMBS c. `LANES` threads transform one comb.
// In the result, thread l has the channels c = l + `LANES` i, i = 0 .. VALUES-1.
//
// Channels k and N - k are computed from the same two values Z[k] and Z[N-k], so combs p and COMBS - p
// form a pair. Neighbouring groups of `LANES` threads work on such a pair: thread l of one group needs the
// values of thread `LANES`-1 - l of the other. Combs 0 and COMBS/2 are their own partners.
#pragma once
#include "async_copy.cuh"
#include "f_engine.cuh"
#include "short_fft.cuh"

#ifndef VALUE_BITS
#error "VALUE_BITS: bits of each part of an output value, 8 or 4"
#endif
#ifndef K_MAJOR
#error "K_MAJOR: 1 for [heap][channel][pol][spectrum], 0 for [heap][channel][spectrum][pol]"
#endif
#ifndef SPECTRA_PER_HEAP
#error "SPECTRA_PER_HEAP: a multiple of 16"
#endif
#ifndef DITHER
#error "DITHER: 1 to add uniform noise before rounding, 0 for none"
#endif
#ifndef CHANNEL_GAINS
#error "CHANNEL_GAINS: 1 for a gain for each channel, 0 for common gains, which are part of the rows"
#endif
#ifndef TILE_BYTES
#error "TILE_BYTES: bytes of a channel that are written together, 8 to 32"
#endif
#ifndef FINISH_THREADS
#error "FINISH_THREADS: threads per block of the second pass, 256 or 512"
#endif

namespace finish {

constexpr int THREADS = FINISH_THREADS;
/// Thread blocks per multiprocessor.
constexpr int BLOCKS = THREADS == 512 ? 1 : COLUMNS <= 256 ? 3 : 2;

constexpr int FRONT = COLUMNS <= 512 ? 1 : COLUMNS / 256;
constexpr int COMBS = RESIDUES * FRONT;
constexpr int POINTS = COLUMNS / FRONT;
constexpr int VALUES = POINTS == 64 ? 8 : POINTS == 512 ? 32 : 16;
constexpr int LANES = POINTS / VALUES;
/// Pairs of residues: 0 and 8, r and 16 - r.
constexpr int JOBS = RESIDUES / 2;

/// A unit is one pair of residues of one spectrum and polarisation.
constexpr int UNIT_THREADS = 2 * LANES * FRONT;
constexpr int SLOTS = THREADS / UNIT_THREADS;

/// A tile is the output that is staged before it is written: spectra of one or both polarisations.
constexpr int VALUE_BYTES = VALUE_BITS / 4;
constexpr int TILE_POLS = K_MAJOR ? 1 : POLS;
constexpr int TILE_UNITS = TILE_BYTES / VALUE_BYTES;
constexpr int TILE_SPECTRA = TILE_UNITS / TILE_POLS;
constexpr int PASSES = TILE_UNITS / SLOTS;
/// Passes of a slot over one polarisation of a tile, before the other one.
constexpr int PASSES_OF_POL = TILE_SPECTRA > SLOTS ? TILE_SPECTRA / SLOTS : 1;
constexpr int TILES_PER_HEAP = SPECTRA_PER_HEAP / TILE_SPECTRA;
constexpr int TILE_WORDS = TILE_BYTES / 4;
constexpr int CHANNEL_BYTES = SPECTRA_PER_HEAP * POLS * VALUE_BYTES;
/// Channels of a comb that the block writes at a time.
constexpr int WRITTEN = THREADS / TILE_WORDS;

static_assert(VALUE_BITS == 8 || VALUE_BITS == 4, "VALUE_BITS");
static_assert(SPECTRA_PER_HEAP % 16 == 0 && SPECTRA_PER_HEAP % TILE_SPECTRA == 0,
              "SPECTRA_PER_HEAP");
static_assert(TILE_BYTES >= 8 && TILE_BYTES <= 32 && PASSES * SLOTS == TILE_UNITS, "TILE_BYTES");
static_assert(POINTS % WRITTEN == 0, "TILE_BYTES");

/// Columns that a thread transforms first; two columns are moved as 16 bytes.
constexpr int OWN_COLUMNS = VALUES / LANES;
constexpr bool IN_PAIRS = OWN_COLUMNS == 2;
/// Between its two steps a transform is in shared memory as [`LANES` u][PITCH].
constexpr int PITCH = IN_PAIRS ? VALUES + 2 : VALUES + 1;
constexpr int REGION = LANES * PITCH;
static_assert(OWN_COLUMNS <= 2 && REGION % 2 == 0, "REGION");
/// Columns per thread of the radix-FRONT step.
constexpr int FRONT_COLUMNS = VALUES / FRONT;

/// Shared memory: `exchange` [SLOTS][2 residues][FRONT][REGION] c32, roots [`LANES` u][VALUES] c32, and the
/// staged tile [2 FRONT combs][POINTS c][TILE_WORDS], with its words permuted by `swizzle`.
constexpr int EXCHANGE_BYTES = SLOTS * 2 * FRONT * REGION * 8;
constexpr int ROOTS_BYTES = POINTS * 8;
constexpr int SHARED_BYTES = EXCHANGE_BYTES + ROOTS_BYTES + 2 * COLUMNS * TILE_BYTES;

/// With long combs the gains of a thread stay in registers from spectrum to spectrum. Reading them again
/// for each spectrum would double the memory traffic.
constexpr bool KEEP_GAINS = CHANNEL_GAINS && FRONT == 8;

/// Waits for the threads that share a unit.
__device__ __forceinline__ void wait_for_unit(int slot) {
    if constexpr (FRONT == 1) {
        __syncwarp();
    } else {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + slot), "n"(UNIT_THREADS) : "memory");
    }
}

/// Distributes the stores of 2 `LANES` threads over all banks.
__device__ __forceinline__ int swizzle(int channel, int half) {
    if (TILE_WORDS == 8) return ((channel >> 2) & (LANES / 4 - 1)) | half << 2;
    if (TILE_WORDS == 4) return ((channel >> 3) & (LANES / 8 - 1)) | half << 1;
    return half;
}

/// Comb of part `half` (0 or 1) of group `warp` of a unit.
__device__ __forceinline__ int comb_of(int job, int warp, int half) {
    const int first = job > 0 ? job + RESIDUES * warp : JOBS * warp;
    if (half == 0) return first;
    return first == 0 ? COMBS / 2 : COMBS - first;
}

/// Role of this thread.
struct Worker {
    int job, slot, warp, half, lane;
    /// Index of the comb.
    int comb;
    /// Whether the comb is its own partner.
    bool is_alone;

    __device__ __forceinline__ explicit Worker(int job) : job(job) {
        const int thread = threadIdx.x % UNIT_THREADS;
        slot = threadIdx.x / UNIT_THREADS;
        warp = thread / (2 * LANES);
        half = thread / LANES % 2;
        lane = thread % LANES;
        comb = comb_of(job, warp, half);
        is_alone = job == 0 && warp == 0;
    }

    /// Offset in shared memory of part `part` of residue 0 or 1 of the unit.
    __device__ __forceinline__ int region(int residue, int part) const {
        return ((slot * 2 + residue) * FRONT + part) * REGION;
    }

    /// Starts copying the two residues of one spectrum, `from` [16 r][COLUMNS]. With FRONT > 1 or two
    /// columns each thread copies the values that it reads itself.
    __device__ __forceinline__ void fetch(const c32 *from, c32 *exchange) const {
        const int residue = half == 0 ? job : job > 0 ? RESIDUES - job : JOBS;
        const c32 *p = from + residue * COLUMNS;
        if constexpr (FRONT == 1) {
            p += 2 * lane;
            const u32 to = shared_address(exchange + region(half, 0) + 2 * lane);
#pragma unroll
            for (int q = 0; q < VALUES / 2; q++)
                cp_async16_at<0, 0>(to + q * LANES * 16, p + q * LANES * 2);
        } else {
            const int column = FRONT_COLUMNS * (warp * LANES + lane);
            const u32 to = shared_address(exchange + region(half, 0) + column);
#pragma unroll
            for (int a = 0; a < FRONT; a++)
#pragma unroll
                for (int c = 0; c < FRONT_COLUMNS; c += 2) {
                    cp_async16_at<0, 0>(to + (a * REGION + c) * 8, p + column + a * POINTS + c);
                }
        }
        cp_async_commit();
    }

    /// Transforms over FRONT points, in place.
    __device__ __forceinline__ void front(c32 *exchange,
                                          const c32 *__restrict__ front_roots) const {
        const int column = FRONT_COLUMNS * (warp * LANES + lane);
        float4 *p = (float4 *)(exchange + region(half, 0) + column);
#pragma unroll
        for (int c = 0; c < FRONT_COLUMNS / 2; c++) {
            c32 v[2 * FRONT];
#pragma unroll
            for (int a = 0; a < FRONT; a++) {
                const float4 pair = p[a * (REGION / 2) + c];
                v[a] = {pair.x, pair.y};
                v[FRONT + a] = {pair.z, pair.w};
            }
            short_fft<FRONT>(v);
            short_fft<FRONT>(v + FRONT);
#pragma unroll
            for (int q = 0; q < FRONT; q++) {
                c32 first = v[q], second = v[FRONT + q];
                if (q > 0) {
                    const float4 root = ((const float4 *)(front_roots + q * POINTS + column))[c];
                    first = first * c32{root.x, root.y};
                    second = second * c32{root.z, root.w};
                }
                p[q * (REGION / 2) + c] = make_float4(first.x, first.y, second.x, second.y);
            }
        }
    }

    /// Transforms the comb, with channel c = `lane` + `LANES` i in v[fft_place(i)].
    __device__ __forceinline__ void transform(c32 *exchange, const c32 *roots, c32 *v) const {
        const int residue = comb % RESIDUES != job, part = comb / RESIDUES;
        c32 *e = exchange + region(residue, part);
        if (IN_PAIRS) {
            const float4 *p = (const float4 *)e + lane;
#pragma unroll
            for (int q = 0; q < LANES; q++) {
                const float4 pair = p[q * (VALUES / 2)];
                v[q] = {pair.x, pair.y};
                v[LANES + q] = {pair.z, pair.w};
            }
            short_fft<LANES>(v);
            short_fft<LANES>(v + LANES);
            __syncwarp();
#pragma unroll
            for (int u = 0; u < LANES; u++) {
                c32 first = v[fft_place<LANES>(u)], second = v[LANES + fft_place<LANES>(u)];
                if (u > 0) {
                    const float4 root = ((const float4 *)roots)[u * (VALUES / 2) + lane];
                    first = first * c32{root.x, root.y};
                    second = second * c32{root.z, root.w};
                }
                ((float4 *)e)[u * (PITCH / 2) + lane] =
                    make_float4(first.x, first.y, second.x, second.y);
            }
            __syncwarp();
#pragma unroll
            for (int c = 0; c < VALUES / 2; c++) {
                const float4 pair = ((const float4 *)e)[lane * (PITCH / 2) + c];
                v[2 * c] = {pair.x, pair.y};
                v[2 * c + 1] = {pair.z, pair.w};
            }
        } else {
            if (FRONT == 1) __syncwarp();
#pragma unroll
            for (int q = 0; q < LANES; q++) v[q] = e[q * VALUES + lane];
            short_fft<LANES>(v);
            __syncwarp();
#pragma unroll
            for (int u = 0; u < LANES; u++) {
                const c32 value = v[fft_place<LANES>(u)];
                e[u * PITCH + lane] = u > 0 ? value * roots[u * VALUES + lane] : value;
            }
            __syncwarp();
#pragma unroll
            for (int c = 0; c < VALUES; c++) v[c] = e[lane * PITCH + c];
        }
    }
};

}  // namespace finish
