// Second pass of the F-engine: its geometry, and the rest of the transform.
//
// With FRONT = 1 a residue's COLUMNS points are transformed at once. Longer ones are first cut into
// FRONT parts (n = POINTS a + n0: transform over a, times W_COLUMNS^(n0 q)), which makes of each
// residue r the FRONT residues r + 16 q. So in either case there are COMBS = 16 FRONT combs of POINTS
// = LANES x VALUES points, of which comb p holds the channels p + COMBS c. LANES threads transform
// one, each of them ends up with the channels c = l + LANES i, i = 0 .. VALUES-1.
//
// Channels k and N - k are made of the same two values Z[k] and Z[N-k], so combs p and COMBS - p
// belong together: neighbouring groups of LANES threads work on such a pair, and thread l of the
// one finds what it needs in thread LANES-1 - l of the other. Combs 0 and COMBS/2 are their own
// partners.
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
#error "CHANNEL_GAINS: 1 for a gain for each channel, 0 if they are part of the turns"
#endif
#ifndef TILE_BYTES
#error "TILE_BYTES: bytes of a channel that are written together, 8 to 32"
#endif
#ifndef FINISH_THREADS
#error "FINISH_THREADS: threads of a block of the second pass, 256 or 512"
#endif

namespace finish {

constexpr int THREADS = FINISH_THREADS;
/// Blocks of a multiprocessor.
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

/// A tile is what is staged before it is written: so many spectra of one or both polarisations.
constexpr int VALUE_BYTES = VALUE_BITS / 4;
constexpr int TILE_POLS = K_MAJOR ? 1 : POLS;
constexpr int TILE_UNITS = TILE_BYTES / VALUE_BYTES;
constexpr int TILE_SPECTRA = TILE_UNITS / TILE_POLS;
constexpr int PASSES = TILE_UNITS / SLOTS;
/// Passes until a slot comes to the other polarisation of a tile.
constexpr int PASSES_OF_POL = TILE_SPECTRA > SLOTS ? TILE_SPECTRA / SLOTS : 1;
constexpr int TILES_PER_HEAP = SPECTRA_PER_HEAP / TILE_SPECTRA;
constexpr int TILE_WORDS = TILE_BYTES / 4;
constexpr int CHANNEL_BYTES = SPECTRA_PER_HEAP * POLS * VALUE_BYTES;
/// Channels of a comb that the block writes at once.
constexpr int WRITTEN = THREADS / TILE_WORDS;

static_assert(VALUE_BITS == 8 || VALUE_BITS == 4, "VALUE_BITS");
static_assert(SPECTRA_PER_HEAP % 16 == 0 && SPECTRA_PER_HEAP % TILE_SPECTRA == 0,
              "SPECTRA_PER_HEAP");
static_assert(TILE_BYTES >= 8 && TILE_BYTES <= 32 && PASSES * SLOTS == TILE_UNITS, "TILE_BYTES");
static_assert(POINTS % WRITTEN == 0, "TILE_BYTES");

/// Columns that a thread transforms first; two of them are moved as 16 bytes.
constexpr int OWN_COLUMNS = VALUES / LANES;
constexpr bool IN_PAIRS = OWN_COLUMNS == 2;
/// Between its two steps a transform stands in shared memory as [LANES u][PITCH].
constexpr int PITCH = IN_PAIRS ? VALUES + 2 : VALUES + 1;
constexpr int REGION = LANES * PITCH;
static_assert(OWN_COLUMNS <= 2 && REGION % 2 == 0, "exchange");
/// Columns before FRONT that a thread transforms.
constexpr int FRONT_COLUMNS = VALUES / FRONT;

/// Shared memory: exchange [SLOTS][2 residues][FRONT][REGION] c32, roots [LANES u][VALUES] c32, and
/// the staged tile [2 FRONT combs][POINTS c][TILE_WORDS], its words swapped by `swizzle`.
constexpr int EXCHANGE_BYTES = SLOTS * 2 * FRONT * REGION * 8;
constexpr int ROOTS_BYTES = POINTS * 8;
constexpr int SHARED_BYTES = EXCHANGE_BYTES + ROOTS_BYTES + 2 * COLUMNS * TILE_BYTES;

/// With long combs the gains of a thread stay in registers from spectrum to spectrum: read again for
/// each, they would be as many bytes as the values themselves.
constexpr bool KEEP_GAINS = CHANNEL_GAINS && FRONT == 8;

/// Waits for the threads that share a unit.
__device__ __forceinline__ void wait_for_unit(int slot) {
    if constexpr (FRONT == 1) {
        __syncwarp();
    } else {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + slot), "n"(UNIT_THREADS) : "memory");
    }
}

/// Spreads what 2 LANES threads store over all banks.
__device__ __forceinline__ int swizzle(int channel, int half) {
    if (TILE_WORDS == 8) return ((channel >> 2) & (LANES / 4 - 1)) | half << 2;
    if (TILE_WORDS == 4) return ((channel >> 3) & (LANES / 8 - 1)) | half << 1;
    return half;
}

/// The comb that half `half` (0 or 1) of group `warp` of a unit works on.
__device__ __forceinline__ int comb_of(int job, int warp, int half) {
    const int first = job > 0 ? job + RESIDUES * warp : JOBS * warp;
    if (half == 0) return first;
    return first == 0 ? COMBS / 2 : COMBS - first;
}

/// Which thread this is.
struct Worker {
    int job, slot, warp, half, lane;
    /// Number of the comb, and whether it is its own partner.
    int comb;
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

    /// Where residue 0 or 1 of the unit, part `part`, stands in the exchange memory.
    __device__ __forceinline__ int region(int residue, int part) const {
        return ((slot * 2 + residue) * FRONT + part) * REGION;
    }

    /// Starts copying the two residues of one spectrum, `from` [16 r][COLUMNS]. With FRONT > 1 or
    /// two columns each thread copies what it will read itself.
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

    /// The transforms over FRONT points, in place.
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

    /// The transform of the comb: leaves channel c = lane + LANES i in v[fft_place(i)].
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
