// Second pass of the F-engine: launch configuration, and the rest of the transform.
//
// With FRONT = 1 the COLUMNS points of a row are transformed by the `LANES` threads of one part. Longer transforms
// first have a radix-FRONT step (n = POINTS a + n0: transform over a, times W_COLUMNS^(n0 q)), which splits
// the row into FRONT parts q with the values k' = q + FRONT c. A part has POINTS = `LANES` x VALUES points; in the
// result, thread l has c = l + `LANES` i, i = 0 .. VALUES-1.
//
// A part of the rows 1 to 7 gives POINTS/2 direct channels, of the lower half of k', and POINTS/2 mirrored ones,
// both COMBS = 16 FRONT apart. Row 0 is a transform of real numbers: value k' = m and its partner COLUMNS - m give
// channels 8 m and N - 8 m. So parts q and FRONT - q are in the same warp, and thread l of one needs the values of
// thread `LANES`-1 - l of the other. Parts 0 and FRONT/2 are their own partners.
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
#error "TILE_BYTES: bytes of a channel that are written together, 8 to 64"
#endif
#ifndef FINISH_THREADS
#error "FINISH_THREADS: threads per block of the second pass, 128, 256 or 512"
#endif

namespace finish {

constexpr int THREADS = FINISH_THREADS;
/// Thread blocks per multiprocessor.
constexpr int BLOCKS = COLUMNS <= 256 ? 768 / THREADS : 512 / THREADS;

constexpr int FRONT = COLUMNS <= 1024 ? 1 : COLUMNS / 256;
constexpr int COMBS = RESIDUES * FRONT;
constexpr int POINTS = COLUMNS / FRONT;
constexpr int VALUES = POINTS <= 256 ? 16 : 32;
constexpr int LANES = POINTS / VALUES;

/// A unit is one row of one spectrum and polarisation.
constexpr int UNIT_THREADS = LANES * FRONT;
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
/// Channels that the block writes at a time.
constexpr int WRITTEN = THREADS / TILE_WORDS;

static_assert(VALUE_BITS == 8 || VALUE_BITS == 4, "VALUE_BITS");
static_assert(SPECTRA_PER_HEAP % 16 == 0 && SPECTRA_PER_HEAP % TILE_SPECTRA == 0,
              "SPECTRA_PER_HEAP");
static_assert(TILE_BYTES >= 8 && TILE_BYTES <= 64 && PASSES * SLOTS == TILE_UNITS, "TILE_BYTES");
static_assert(POINTS / 2 % WRITTEN == 0, "TILE_BYTES");

/// Columns that a thread transforms first; two columns are moved as 16 bytes.
constexpr int OWN_COLUMNS = VALUES / LANES;
constexpr bool IN_PAIRS = OWN_COLUMNS == 2;
/// Between its two steps a transform is in shared memory as [`LANES` u][PITCH].
constexpr int PITCH = VALUES + 2;
constexpr int REGION = LANES * PITCH;
/// Factor of the roots between them, which keeps values far from the smallest ones of single precision.
constexpr float ROOT_SCALE = power_of_two(64);
static_assert(OWN_COLUMNS <= 2, "OWN_COLUMNS");

/// Shared memory: `exchange` [SLOTS][FRONT][REGION] c32, roots [`LANES` u][VALUES] c32, and the staged
/// tile [FRONT][direct, mirrored][POINTS/2][TILE_WORDS], with its words permuted by `swizzle`. Before its
/// transform, a row is in the region of its slot, as it is in memory.
constexpr int EXCHANGE_BYTES = SLOTS * FRONT * REGION * 8;
constexpr int ROOTS_BYTES = POINTS * 8;
constexpr int SHARED_BYTES = EXCHANGE_BYTES + ROOTS_BYTES + COLUMNS * TILE_BYTES;
static_assert(ROW_BYTES <= 8 * FRONT * REGION, "REGION");

/// In long rows the gains of a thread stay in registers from spectrum to spectrum. Reading them again
/// for each spectrum would double the memory traffic.
constexpr bool KEEP_GAINS = CHANNEL_GAINS && FRONT == 16;

/// Waits for the threads that share a unit.
__device__ __forceinline__ void wait_for_unit(int slot) {
    if constexpr (FRONT == 1) {
        __syncwarp();
    } else {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + slot), "n"(UNIT_THREADS) : "memory");
    }
}

/// Distributes the stores of a warp over all banks.
__device__ __forceinline__ int swizzle(int channel, int group) {
    // Channels in all banks, and their number for the `LANES` threads of a part.
    constexpr int IN_BANKS = 32 / TILE_WORDS, TIMES = LANES > IN_BANKS ? LANES / IN_BANKS : 1;
    const int of_group = FRONT > 1 && TIMES < TILE_WORDS ? group & 1 : 0;
    return (channel / IN_BANKS & (TIMES - 1)) * (TILE_WORDS / TIMES) ^ of_group;
}

/// Part q of the row that group `group` of `LANES` threads of a unit transforms.
__device__ __forceinline__ int part_of(int job, int group) {
    if (FRONT == 1 || job > 0) return group;
    const int first = group / 2;
    return group % 2 == 0 ? first : first == 0 ? FRONT / 2 : FRONT - first;
}

/// First of the channels of a part; they are COMBS apart, in row 0 COMBS / 2.
__device__ __forceinline__ int first_channel(int job, int part, bool is_mirrored) {
    if (job > 0) return is_mirrored ? COMBS - job - RESIDUES * part : job + RESIDUES * part;
    if (!is_mirrored) return ROWS * part;
    return N / 2 + (part == 0 ? 0 : ROWS * (FRONT - part));
}

/// Role of this thread.
struct Worker {
    /// Row of the spectrum.
    int job;
    int slot, group, lane, part;

    __device__ __forceinline__ explicit Worker(int job) : job(job) {
        slot = threadIdx.x / UNIT_THREADS;
        group = threadIdx.x % UNIT_THREADS / LANES;
        lane = threadIdx.x % LANES;
        part = part_of(job, group);
    }

    /// Region of the unit in shared memory.
    __device__ __forceinline__ c32 *region(c32 *exchange) const {
        return exchange + slot * FRONT * REGION;
    }

    /// Starts copying the row at `from`.
    __device__ __forceinline__ void fetch(const u8 *from, c32 *exchange) const {
        const int piece = threadIdx.x % UNIT_THREADS;
        const u32 to = shared_address(region(exchange)) + 16 * piece;
        from += 16 * piece;
#pragma unroll
        for (int i = 0; i < ROW_BYTES / 16 / UNIT_THREADS; i++)
            cp_async16_at<0, 0>(to + i * (16 * UNIT_THREADS), from + i * (16 * UNIT_THREADS));
        cp_async_commit();
    }

    /// Reads COUNT columns of the fetched row, STEP apart, from `column` < STEP on; with PAIRS also the columns
    /// after them, to v[COUNT] and on.
    template <int COUNT, int STEP, bool PAIRS>
    __device__ __forceinline__ void read(const c32 *row, int column, c32 *v) const {
        // The step of some columns within a strip, or of whole strips, needs no computation.
        static_assert(STEP % 64 == 0 || 64 % STEP == 0, "STEP");
        const u8 *high = (const u8 *)row + high_byte(column), *low = (const u8 *)row + low_byte(column);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const u8 *high_at = high + high_byte(i * STEP), *low_at = low + low_byte(i * STEP) - low_byte(0);
            if constexpr (PAIRS) {
                const uint2 two = *(const uint2 *)high_at;
                const u32 lows = *(const u32 *)low_at;
                v[i] = unpack48<0>(two.x, lows);
                v[COUNT + i] = unpack48<1>(two.y, lows);
            } else {
                v[i] = unpack48(*(const u32 *)high_at, *(const u16 *)low_at);
            }
        }
    }

    /// Does the radix-FRONT step.
    __device__ __forceinline__ void front(c32 *exchange, const c32 *__restrict__ roots) const {
        constexpr int OWN = POINTS / UNIT_THREADS;
        static_assert(FRONT == 1 || OWN == 1 || OWN == 2, "OWN");
        const int column = threadIdx.x % UNIT_THREADS * OWN;
        c32 *row = region(exchange);
        c32 v[OWN * FRONT];
        wait_for_unit(slot);
        read<FRONT, POINTS, OWN == 2>(row, column, v);
#pragma unroll
        for (int c = 0; c < OWN; c++) butterfly_fft<FRONT>(v + c * FRONT);
        wait_for_unit(slot);
#pragma unroll
        for (int q = 0; q < FRONT; q++) {
            if constexpr (OWN == 2) {
                c32 first = v[q], second = v[FRONT + q];
                if (q > 0) {
                    const float4 root = *(const float4 *)(roots + q * POINTS + column);
                    first = first * c32{root.x, root.y};
                    second = second * c32{root.z, root.w};
                }
                *(float4 *)(row + q * REGION + column) =
                    make_float4(first.x, first.y, second.x, second.y);
            } else {
                row[q * REGION + column] = q > 0 ? v[q] * roots[q * POINTS + column] : v[q];
            }
        }
        wait_for_unit(slot);
    }

    /// Transforms the part up to its last VALUES points.
    __device__ __forceinline__ void transform(c32 *exchange, const c32 *roots, c32 *v) const {
        c32 *e = region(exchange) + part * REGION;
        if constexpr (FRONT == 1) {
            __syncwarp();
            read<LANES, VALUES, IN_PAIRS>(e, OWN_COLUMNS * lane, v);
        } else {
#pragma unroll
            for (int i = 0; i < LANES; i++) v[i] = e[i * VALUES + lane];
        }
#pragma unroll
        for (int c = 0; c < OWN_COLUMNS; c++) butterfly_fft<LANES>(v + c * LANES);
        __syncwarp();
#pragma unroll
        for (int u = 0; u < LANES; u++) {
            if constexpr (IN_PAIRS) {
                c32 first = v[u], second = v[LANES + u];
                if (u == 0) {
                    first = ROOT_SCALE * first;
                    second = ROOT_SCALE * second;
                } else {
                    const float4 root = ((const float4 *)roots)[u * (VALUES / 2) + lane];
                    first = first * c32{root.x, root.y};
                    second = second * c32{root.z, root.w};
                }
                ((float4 *)e)[u * (PITCH / 2) + lane] =
                    make_float4(first.x, first.y, second.x, second.y);
            } else {
                e[u * PITCH + lane] = u > 0 ? v[u] * roots[u * VALUES + lane] : ROOT_SCALE * v[u];
            }
        }
        __syncwarp();
#pragma unroll
        for (int c = 0; c < VALUES / 2; c++) {
            const float4 pair = ((const float4 *)e)[lane * (PITCH / 2) + c];
            v[2 * c] = {pair.x, pair.y};
            v[2 * c + 1] = {pair.z, pair.w};
        }
    }
};

}  // namespace finish
