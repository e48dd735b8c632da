// The correlator for any GPU of compute capability 8.0 or later: matrix instructions of warps, with asynchronous
// copies.
#include "async_copy.cuh"
#include "half_matrix.cuh"
#include "int8_matrix.cuh"
#include "voltages.cuh"

#ifndef SAMPLE_BITS
#error "SAMPLE_BITS is missing: bits of real and imaginary part, 8 for integers or 16 for half precision"
#endif
#ifndef TILE_ROWS
#error "TILE_ROWS is missing: rows and columns of a tile, 64, 96 or 128"
#endif
#ifndef STAGES
#error "STAGES is missing: stages of samples in shared memory, at least 2"
#endif
#if TILE_ROWS % 32 != 0 || TILE_ROWS > 128
#error "TILE_ROWS must be 32, 64, 96 or 128"
#endif

/// Operations on 32 bits of samples, and the type of the sums of products.
template <int bits> struct ArithmeticOf;
template <> struct ArithmeticOf<8> {
    using Sum = i32;
    using Sums = int4;
    static constexpr bool LACKS_REAL_PARTS = true;

    static __device__ __forceinline__ u32 turn(u32 samples) { return turned(samples); }
    static __device__ __forceinline__ void add_products(i32 (&sums)[4], u32 a0, u32 a1, u32 a2,
                                                        u32 a3, u32 b0, u32 b1) {
        multiply(sums, a0, a1, a2, a3, b0, b1);
    }
};
template <> struct ArithmeticOf<16> {
    using Sum = float;
    using Sums = float4;
    static constexpr bool LACKS_REAL_PARTS = false;

    static __device__ __forceinline__ u32 turn(u32 sample) { return turned_halves(sample); }
    static __device__ __forceinline__ void add_products(float (&sums)[4], u32 a0, u32 a1, u32 a2,
                                                        u32 a3, u32 b0, u32 b1) {
        multiply_halves(sums, {a0, a1, a2, a3}, b0, b1);
    }
};
using Arithmetic = ArithmeticOf<SAMPLE_BITS>;
using Sum = Arithmetic::Sum;

// Rows are processed in groups of eight: the 16 rows of a matrix instruction are 8 rows of voltages and the same 8
// rows rotated. So one instruction yields real and imaginary parts of 8 x 8 visibilities. The columns are read
// without rearrangement.
constexpr int GROUP = 8;

// A tile is shared among 2 x 4 warps, each with twice as many rows as columns. Large parts reuse each sample that is
// read from shared memory often.
constexpr int WARPS = 8;
constexpr int THREADS = 32 * WARPS;
constexpr int ROW_GROUPS = TILE_ROWS / 2 / GROUP;
constexpr int COLUMN_GROUPS = TILE_ROWS / 4 / GROUP;
/// Thread blocks per multiprocessor, as many as their registers allow.
constexpr int RESIDENT = TILE_ROWS == 128 ? 1 : TILE_ROWS == 96 ? 2 : 3;

// On the diagonal some warps have full work, some a part of it, and two none. Warps w and w + 4 share a scheduler, so
// they are paired such that all schedulers have about the same work. These masks give the rows (bit w) and columns
// (two bits each, warp 0 lowest) of warp w.
constexpr u32 ROWS_OF_WARPS = 0b1000'1011;
constexpr u32 COLUMNS_OF_WARPS = 0b11'01'11'10'10'00'01'00;

// A stage has the samples of the rows, then those of the columns, [row][128 bytes]. The 16-byte parts of a row are
// swizzled so that eight rows can be read at a time without bank conflicts.
constexpr int PART_BYTES = 16;
constexpr int PARTS = STAGE_BYTES / PART_BYTES;
constexpr int OPERAND_BYTES = TILE_ROWS * STAGE_BYTES;
constexpr int SLOT_BYTES = 2 * OPERAND_BYTES;

__device__ __forceinline__ u32 part_offset(u32 row, u32 part) {
    return row * STAGE_BYTES + (part ^ row % PARTS) * PART_BYTES;
}

/// Layout of the samples: strides in bytes.
struct Samples {
    const u8* first;
    i64 pol, antenna, channel, run;
    /// Bytes of samples per run, a multiple of 16, and stages per run.
    i32 run_bytes, stages_per_run;
};

/// Copies the stages of one segment to shared memory in sequence. Every thread copies the same 16 bytes of a stage
/// for some rows, `STEP` apart.
struct Loader {
    static constexpr int STEP = THREADS / PARTS;
    static constexpr int COPIES = TILE_ROWS / STEP;

    const Samples& samples;
    const u8 *rows, *columns;
    i64 step;
    /// Offset of the thread's first 16 bytes within an operand.
    u32 to;
    /// Number of the thread's rows and columns that exist.
    i32 rows_left, columns_left;
    bool diagonal;
    i32 part, stage_of_run;

    __device__ __forceinline__ Loader(const Samples& samples, const Segment& s, i32 n)
        : samples(samples), step(samples.antenna * (STEP / 2)), diagonal(s.row == s.column),
          part(threadIdx.x % PARTS), stage_of_run(s.first % samples.stages_per_run) {
        const i32 row = threadIdx.x / PARTS;
        const u8* from = samples.first + s.channel * samples.channel +
                         s.first / samples.stages_per_run * samples.run + part * PART_BYTES;
        rows = from + offset(s.row * TILE_ROWS + row);
        columns = from + offset(s.column * TILE_ROWS + row);
        to = part_offset(row, part);
        rows_left = n - s.row * TILE_ROWS - row;
        columns_left = n - s.column * TILE_ROWS - row;
    }

    /// Copies the next stage to `slot`, if it is `wanted`.
    __device__ __forceinline__ void next(u32 slot, bool wanted) {
        if (wanted) {
            const i32 at = stage_of_run * STAGE_BYTES;
            const bool within = at + part * PART_BYTES < samples.run_bytes;
            copy(slot + to, rows + at, within ? rows_left : 0);
            if (!diagonal) copy(slot + OPERAND_BYTES + to, columns + at, within ? columns_left : 0);
            if (++stage_of_run == samples.stages_per_run) {
                stage_of_run = 0;
                rows += samples.run;
                columns += samples.run;
            }
        }
        cp_async_commit();
    }

  private:
    __device__ __forceinline__ i64 offset(i32 row) const {
        return row / 2 * samples.antenna + row % 2 * samples.pol;
    }
    /// Rows and columns that do not exist become zeros.
    __device__ __forceinline__ void copy(u32 to, const u8* from, i32 left) const {
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            cp_async16(to + i * STEP * STAGE_BYTES, from + i * step, i * STEP < left);
    }
};

/// Position of a thread in the tile.
struct Part {
    u32 lane;
    /// Rows and columns of the warp, in units of its part of the tile.
    u32 row, column;

    __device__ __forceinline__ Part() : lane(threadIdx.x % 32) {
        // The value is equal in all threads of a warp; this makes it known to the compiler.
        const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
        row = ROWS_OF_WARPS >> warp & 1;
        column = COLUMNS_OF_WARPS >> 2 * warp & 3;
    }
};

/// Visibilities of a warp: for row group i, the column groups up to i + `DIAGONAL`, without those above the diagonal
/// of visibilities. With `SUM`, also sums of the rows' real parts.
template <int DIAGONAL, bool SUM> struct Product {
    Sum sums[ROW_GROUPS][COLUMN_GROUPS][4] = {};
    i32 real_parts[ROW_GROUPS] = {};

    static constexpr bool needed(int i, int j) { return j <= i + DIAGONAL; }

    /// Adds the products over 64 bytes of rows and columns at these addresses.
    __device__ __forceinline__ void add(u32 rows, u32 columns) {
        constexpr int first = DIAGONAL < 0 ? -DIAGONAL : 0;
        u32 b[COLUMN_GROUPS][4];
        u32 plain[2][4];
#pragma unroll
        for (int j = 0; j < COLUMN_GROUPS; j++) load_rows(b[j], columns + j * GROUP * STAGE_BYTES);
        load_rows(plain[first % 2], rows + first * GROUP * STAGE_BYTES);
#pragma unroll
        for (int i = first; i < ROW_GROUPS; i++) {
            const u32(&a)[4] = plain[i % 2];
            // The next rows are loaded while these are multiplied.
            if (i + 1 < ROW_GROUPS)
                load_rows(plain[(i + 1) % 2], rows + (i + 1) * GROUP * STAGE_BYTES);
#pragma unroll
            for (int k = 0; k < 4; k += 2) {
                const u32 turned_first = Arithmetic::turn(a[k]);
                const u32 turned_second = Arithmetic::turn(a[k + 1]);
#pragma unroll
                for (int j = 0; j < COLUMN_GROUPS; j++)
                    if (needed(i, j))
                        Arithmetic::add_products(sums[i][j], a[k], turned_first, a[k + 1],
                                                 turned_second, b[j][k], b[j][k + 1]);
            }
            if (SUM)
#pragma unroll
                for (int k = 0; k < 4; k++) real_parts[i] = add_real_parts(a[k], real_parts[i]);
        }
    }

    /// Adds the sums to the visibilities of a channel `[row n][column n][re, im]`.
    __device__ __forceinline__ void flush(const Part& part, const Segment& s, Sum* visibilities,
                                          i32* channel_sums, i32 n) const {
        const i32 row = s.row * TILE_ROWS + part.row * (TILE_ROWS / 2) + part.lane / 4;
        const i32 column = s.column * TILE_ROWS + part.column * (TILE_ROWS / 4) + part.lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < ROW_GROUPS; i++) {
            const i32 r = row + i * GROUP;
            if (SUM && part.column == 0) {
                const i32 sum = over_four_lanes(real_parts[i]);
                if (part.lane % 4 == 0 && r < n) atomicAdd(channel_sums + r, sum);
            }
            if (r >= n) continue;
#pragma unroll
            for (int j = 0; j < COLUMN_GROUPS; j++) {
                // n is even, so either both columns exist or none.
                const i32 c = column + j * GROUP;
                if (!needed(i, j) || c >= n) continue;
                Sum* to = visibilities + ((i64)r * n + c) * 2;
                const Sum(&sum)[4] = sums[i][j];
                if (s.shared) {
                    atomicAdd(to, sum[0]);
                    atomicAdd(to + 1, sum[2]);
                    atomicAdd(to + 2, sum[1]);
                    atomicAdd(to + 3, sum[3]);
                } else {
                    using Sums = Arithmetic::Sums;
                    const Sums old = *(const Sums*)to;
                    *(Sums*)to = {old.x + sum[0], old.y + sum[2], old.z + sum[1], old.w + sum[3]};
                }
            }
        }
    }
};

/// Part of a segment above the diagonal: the warp only helps to copy.
struct Nothing {
    __device__ __forceinline__ void add(u32, u32) {}
    __device__ __forceinline__ void flush(const Part&, const Segment&, Sum*, i32*, i32) const {}
};

/// Work of one warp for a segment. All warps pass the same barriers.
template <class P>
__device__ __forceinline__ void multiply_segment(const Samples& samples, const Part& part,
                                                 const Segment& s, u32 slots, Sum* visibilities,
                                                 i32* real_parts, i32 n) {
    P product;
    Loader loader(samples, s, n);
    // All samples of the previous segment have been read.
    __syncthreads();
    for (int stage = 0; stage < STAGES - 1; stage++)
        loader.next(slots + stage * SLOT_BYTES, s.first + stage < s.end);
    const u32 lane = part_offset(part.lane % GROUP, part.lane / GROUP);
    const u32 rows = part.row * (TILE_ROWS / 2) * STAGE_BYTES + lane;
    const u32 columns = (loader.diagonal ? 0 : OPERAND_BYTES) +
                        part.column * (TILE_ROWS / 4) * STAGE_BYTES + lane;
    u32 slot = slots, free = slots + (STAGES - 1) * SLOT_BYTES;
    for (int k = s.first; k < s.end; k++) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        loader.next(free, k + STAGES - 1 < s.end);
        // The second 64 bytes of a row are at the address of the first ones ^ 64.
#pragma unroll 1
        for (u32 half = 0; half < STAGE_BYTES; half += STAGE_BYTES / 2)
            product.add((slot + rows) ^ half, (slot + columns) ^ half);
        free = slot;
        slot = slot + SLOT_BYTES == slots + STAGES * SLOT_BYTES ? slots : slot + SLOT_BYTES;
    }
    product.flush(part, s, visibilities + (i64)s.channel * n * n * 2,
                  real_parts + (i64)s.channel * n, n);
}

/// Adds the visibilities of some stages of samples, and for integers the sums of the rows' real parts, to the present
/// values. On the diagonal, blocks of 8 x 8 are written completely.
///
/// samples       [run][antenna][channel][pol 2][sample][re, im], strides in bytes, see Samples
/// visibilities  [channel][row n][column n][re, im]
/// real_parts    [channel][row n]; may be null for half precision
/// n             rows: 2 x antennas
/// stages_per_run      stages per run, including a partial last one
/// segments .. listed  see Work
///
/// Any number of blocks of 256 threads, dynamic shared memory STAGES x 2 x TILE_ROWS x 128 bytes.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    correlate(const u8* samples_address, i64 pol_bytes, i64 antenna_bytes, i64 channel_bytes,
              i64 run_stride, i32 run_bytes, Sum* visibilities, i32* real_parts, i32 n,
              i32 stages_per_run, const Segment* __restrict__ segments,
              const i32* __restrict__ starts, i32 first, i32 stages, i32 listed) {
    extern __shared__ __align__(128) u8 shared_memory[];
    const u32 slots = shared_address(shared_memory);
    const Samples samples{samples_address, pol_bytes, antenna_bytes, channel_bytes,
                          run_stride,      run_bytes, stages_per_run};
    const Part part;
    const Work list{segments, starts, first, stages, listed};
    for (i32 index = list.begin(); index < list.end(); index++) {
        const Segment s = list[index];
        if (s.first == s.end) continue;
        // Number of column groups of the warp's first row group that are not above the diagonal, minus one.
        const i32 diagonal = part.row * ROW_GROUPS - part.column * COLUMN_GROUPS;
        auto work = [&](auto product) {
            multiply_segment<decltype(product)>(samples, part, s, slots, visibilities, real_parts, n);
        };
        if (s.row != s.column) work(Product<COLUMN_GROUPS, false>{});
        else if (diagonal >= COLUMN_GROUPS) work(Product<COLUMN_GROUPS, Arithmetic::LACKS_REAL_PARTS>{});
        else if (diagonal == 0) work(Product<0, Arithmetic::LACKS_REAL_PARTS>{});
        else if (diagonal == -COLUMN_GROUPS) work(Product<-COLUMN_GROUPS, false>{});
        else work(Nothing{});
    }
}
