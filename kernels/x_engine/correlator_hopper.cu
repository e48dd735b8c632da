// The correlator for GPUs of compute capability 9.0: warpgroup matrix instructions, with input and output by the
// tensor memory accelerator (TMA).
#include "async_copy.cuh"
#include "int8_matrix.cuh"
#include "int8_warpgroup.cuh"
#include "voltages.cuh"

#ifndef SINGLE_TILE
#error "SINGLE_TILE is missing: 1 if one tile covers the whole triangle of a channel"
#endif
#ifndef ROW_BLOCKS
#error "ROW_BLOCKS is missing: rows / 32 of the tiles, up to 4, or up to 5 for a single tile"
#endif
#ifndef K_MAJOR
#error "K_MAJOR is missing: 1 for rows of one polarisation, 0 if the polarisations of an antenna alternate"
#endif
#ifndef STAGES
#error "STAGES is missing: stages of samples in shared memory"
#endif
#if ROW_BLOCKS < 1 || ROW_BLOCKS > (SINGLE_TILE ? 5 : 4)
#error "ROW_BLOCKS must be 1 to 4, or 1 to 5 with SINGLE_TILE"
#endif

// Rows are processed in blocks of 32. The 16 rows of a warp in a matrix instruction are 8 rows of voltages, followed
// by the same 8 rows rotated. So one instruction of a warpgroup yields real and imaginary parts of 32 rows, and every
// thread has complete visibilities. Columns are read without rearrangement.
constexpr int BLOCK_ROWS = 32;
constexpr int BLOCK_BYTES = BLOCK_ROWS * STAGE_BYTES;
/// With several tiles, the tiles of the last row may have fewer existing blocks of rows. They have the same layout,
/// and a separate launch: in a kernel with more kinds of tiles the compiler serialises the matrix instructions.
constexpr int TILE_ROWS = (SINGLE_TILE ? ROW_BLOCKS : 4) * BLOCK_ROWS;
constexpr int OPERAND_BYTES = TILE_ROWS * STAGE_BYTES;
/// Tiles on the diagonal use the same samples for rows and columns.
constexpr int OPERANDS = SINGLE_TILE ? 1 : 2;

// Two warpgroups multiply. In a third one, one thread copies samples in, and if the polarisations alternate, the other
// warps separate them.
constexpr int CONSUMERS = 2;
constexpr int CONSUMER_WARPS = CONSUMERS * WARPGROUP / 32;
constexpr int SEPARATING_WARPS = WARPGROUP / 32 - 1;
/// Threads of a warp that arrive at a barrier. If polarisations alternate, warps write what others read, and all threads
/// arrive: the tool `racecheck` of CUDA does not follow the order of one thread after `__syncwarp`. For K-major rows this
/// would cost up to 3 %.
constexpr int ARRIVING_THREADS = K_MAJOR ? 1 : 32;
/// Registers of a thread that multiplies, and of one of the third warpgroup: 2 x 128 x 240 + 128 x 24 < 65536.
constexpr int CONSUMER_REGISTERS = K_MAJOR ? 240 : 224;
constexpr int PRODUCER_REGISTERS = K_MAJOR ? 24 : 56;

// If the polarisations alternate, two rows of a stage have 64 samples of both polarisations of an antenna, 32 each.
// The order of the samples does not matter for the sums, but it must be the same in all rows and columns. To separate
// the polarisations, word w of the row of polarisation p becomes the samples of p in word w of both rows.

// Visibilities are output through boxes in shared memory: 16 columns (128 bytes) x 32 rows. Several boxes fill a
// slot, and while one slot is read the next one is filled. A single tile is output often, so all of it fits in the
// slots.
constexpr int BOX_COLUMNS = 16;
constexpr int BOX_BYTES = BLOCK_ROWS * BOX_COLUMNS * 8;
constexpr int SLOT_BOXES = SINGLE_TILE ? 2 : 4;
constexpr int SLOTS = SINGLE_TILE ? 5 : 2;
constexpr int SLOT_BYTES = SLOT_BOXES * BOX_BYTES;

// Shared memory: operands of all stages, slots of both warpgroups, barriers (full, empty, separated). The swizzle needs
// 1024-byte alignment.
constexpr int ALIGNMENT = 1024;
constexpr int SLOTS_AT = STAGES * OPERANDS * OPERAND_BYTES;
constexpr int BARRIERS_AT = SLOTS_AT + CONSUMERS * SLOTS * SLOT_BYTES;
constexpr int BARRIER_BYTES = 8;

/// Index of the next stage, and the parity of its barriers' phase.
struct Place {
    u32 stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/// State of a thread that multiplies.
struct Consumer {
    /// Shared memory.
    u32 base;
    u32 warpgroup, warp, lane;
    /// Offset within a block of rows where this thread reads; the second 64 bytes of a row are at this offset ^ 64.
    u32 row_offset;
    /// The same for 8 antennas with alternating polarisations.
    u32 antenna_offset;
    /// Slot of the warpgroup that is filled next.
    u32 slot = 0;
    Place place;
    /// Tensor of visibilities, with boxes of both polarisations, and of one.
    const TensorMap *visibilities, *of_polarisation;
    /// `[channel][row n]`
    i32* real_parts;
    i32 n;

    __device__ __forceinline__ u32 operands() const {
        return base + place.stage * OPERANDS * OPERAND_BYTES;
    }
    /// Waits for the samples of a stage.
    __device__ __forceinline__ void wait_full() const {
        const u32 barrier = K_MAJOR ? 0 : 2 * STAGES;
        barrier_wait(base + BARRIERS_AT + (barrier + place.stage) * BARRIER_BYTES, place.parity);
    }
    __device__ __forceinline__ void release(u32 stage) const {
        if (lane < ARRIVING_THREADS)
            barrier_arrive(base + BARRIERS_AT + (STAGES + stage) * BARRIER_BYTES);
    }
};

/// 64 bytes of the 8 rows of a warp, for two steps of a matrix instruction: unchanged, and rotated.
struct Rows {
    u32 plain[4], turned[4];

    __device__ __forceinline__ void load(u32 address) {
        load_rows(plain, address);
        turn();
    }
    __device__ __forceinline__ void turn() {
        for (int i = 0; i < 4; i++) turned[i] = ::turned(plain[i]);
    }
};

/// A block of rows times `COLUMNS` columns; none if `COLUMNS` is 0. With `SUM`, also sums of the rows' real parts.
template <int COLUMNS, bool SUM> struct Product {
    i32 sums[COLUMNS / 2] = {};
    i32 real_sum = 0;
    /// Double-buffered: while one part of a stage is multiplied, the other one is loaded.
    Rows rows[2];

    template <int HALF> __device__ __forceinline__ void load(u32 address) {
        rows[HALF].load(HALF ? address ^ 64 : address);
        if constexpr (SUM)
            for (int i = 0; i < 4; i++) real_sum = add_real_parts(rows[HALF].plain[i], real_sum);
    }
    template <int HALF, int STEP> __device__ __forceinline__ void step(u64 columns) {
        const Rows& r = rows[HALF];
        multiply<COLUMNS>(sums, r.plain[2 * STEP], r.turned[2 * STEP], r.plain[2 * STEP + 1],
                          r.turned[2 * STEP + 1], columns);
    }
    /// Takes the samples of polarisation `POL` of 8 antennas from words of two rows, `pairs`. Thread l of the warp has
    /// the row of earlier samples first if l < 16, otherwise second.
    template <int HALF, int POL>
    __device__ __forceinline__ void take(const u32 (&pairs)[2][4], u32 lane) {
        const u32 order = (lane < 16 ? 0x5410 : 0x1054) + POL * 0x2222;
        for (int i = 0; i < 4; i++) {
            const u32* pair = pairs[i / 2] + i % 2 * 2;
            rows[HALF].plain[i] = __byte_perm(pair[0], pair[1], order);
        }
        rows[HALF].turn();
    }
    /// Adds the sums to the visibilities of columns from `column` on, and of 32 rows: of 16 antennas from `antenna` on,
    /// or with a `map` of one polarisation, those of polarisation `pol` of 32 antennas.
    __device__ __forceinline__ void flush(Consumer& c, const TensorMap* map, i32 channel, i32 antenna,
                                          i32 pol, i32 column) {
        if constexpr (SUM) {
            const i32 sum = over_four_lanes(real_sum);
            const i32 r = 2 * antenna + c.warp * 8 + c.lane / 4;
            if (c.lane % 4 == 0 && r < c.n) atomicAdd(c.real_parts + (i64)channel * c.n + r, sum);
        }
#pragma unroll
        for (int box = 0; box < COLUMNS / BOX_COLUMNS; box += SLOT_BOXES) {
            constexpr int all = COLUMNS / BOX_COLUMNS;
            const int boxes = all - box < SLOT_BOXES ? all - box : SLOT_BOXES;
            const u32 slot = c.base + SLOTS_AT + (c.warpgroup * SLOTS + c.slot) * SLOT_BYTES;
            const bool copies = c.warp == 0 && c.lane == 0;
            if (copies) boxes_out_wait_read<SLOTS - 1>();
            warpgroup_barrier(c.warpgroup + 1);
            fill(c, slot, box, boxes);
            shared_to_copy_engine();
            warpgroup_barrier(c.warpgroup + 1);
            if (copies) {
#pragma unroll
                for (int b = 0; b < boxes; b++)
                    add_box_out(map, slot + b * BOX_BYTES, 2 * (column + (box + b) * BOX_COLUMNS), pol,
                                antenna, channel);
                boxes_out_commit();
            }
            __syncwarp();
            c.slot = c.slot + 1 == SLOTS ? 0 : c.slot + 1;
        }
    }

  private:
    /// Writes boxes `[row 32][column 16][re, im]`, with the 16-byte parts of a row swizzled.
    __device__ __forceinline__ void fill(const Consumer& c, u32 slot, int first, int boxes) {
        const u32 row = c.lane / 4;
#pragma unroll
        for (int b = 0; b < boxes; b++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                // Columns j, j + 1: real parts of both, imaginary parts of both.
                const i32* s = sums + ((first + b) * 2 + half) * 4;
                const u32 part = (half * 4 + c.lane % 4) ^ row;
                const u32 to = slot + b * BOX_BYTES + (c.warp * 8 + row) * 128 + part * 16;
                store_shared(to, {s[0], s[2], s[1], s[3]});
            }
    }
};

/// Empty product.
template <bool SUM> struct Product<0, SUM> {
    template <int HALF> __device__ __forceinline__ void load(u32) {}
    template <int HALF, int STEP> __device__ __forceinline__ void step(u64) {}
    template <int HALF, int POL> __device__ __forceinline__ void take(const u32 (&)[2][4], u32) {}
    __device__ __forceinline__ void flush(Consumer&, const TensorMap*, i32, i32, i32, i32) {}
};

/// Part of a tile: up to three blocks of rows, each with its first columns.
struct Blocks {
    int first, second, third;
};

/// One of the two parts of a stage, as a type.
template <int N> struct Half {
    static constexpr int value = N;
};

/// Work of one warpgroup for a segment. With alternating polarisations off the diagonal, the first two products are
/// those of polarisations 0 and 1 of 32 antennas.
template <bool DIAGONAL, int COLUMNS0, int COLUMNS1 = 0, int COLUMNS2 = 0>
__device__ __forceinline__ void multiply_segment(Consumer& c, const Segment segment,
                                                 Blocks blocks) {
    constexpr int half_bytes = STAGE_BYTES / 2, step_bytes = half_bytes / 2;
    constexpr bool alternate = !K_MAJOR && !DIAGONAL;
    Product<COLUMNS0, DIAGONAL> p0;
    Product<COLUMNS1, DIAGONAL> p1;
    Product<COLUMNS2, DIAGONAL> p2;
    const u32 rows0 = c.row_offset + blocks.first * BLOCK_BYTES;
    const u32 rows1 = c.row_offset + blocks.second * BLOCK_BYTES;
    const u32 rows2 = c.row_offset + blocks.third * BLOCK_BYTES;
    auto multiply_half = [&](auto half, u32 operands) {
        constexpr int HALF = decltype(half)::value;
        // On the diagonal the rows are also the columns.
        const u32 columns = operands + (DIAGONAL ? 0 : OPERAND_BYTES) + HALF * half_bytes;
        warpgroup_fence();
        p0.template step<HALF, 0>(columns_at(columns));
        p1.template step<HALF, 0>(columns_at(columns));
        p2.template step<HALF, 0>(columns_at(columns));
        p0.template step<HALF, 1>(columns_at(columns + step_bytes));
        p1.template step<HALF, 1>(columns_at(columns + step_bytes));
        p2.template step<HALF, 1>(columns_at(columns + step_bytes));
        warpgroup_commit();
    };
    auto load_half = [&](auto half, u32 operands) {
        constexpr int HALF = decltype(half)::value;
        if constexpr (alternate) {
            const u32 first = operands + c.antenna_offset + blocks.first * 2 * BLOCK_BYTES;
            u32 pairs[2][4];
            load_rows(pairs[0], first ^ HALF * half_bytes);
            load_rows(pairs[1], first ^ HALF * half_bytes ^ step_bytes);
            p0.template take<HALF, 0>(pairs, c.lane);
            p1.template take<HALF, 1>(pairs, c.lane);
        } else {
            p0.template load<HALF>(operands + rows0);
            p1.template load<HALF>(operands + rows1);
            p2.template load<HALF>(operands + rows2);
        }
    };
    const Half<0> first;
    const Half<1> second;
    u32 operands = c.operands();
    u32 previous = 0;
    c.wait_full();
    load_half(first, operands);
    for (int k = segment.first; k < segment.end; k++) {
        multiply_half(first, operands);
        // The second part of the previous stage has been multiplied.
        warpgroup_wait<1>();
        if (k != segment.first) c.release(previous);
        load_half(second, operands);
        multiply_half(second, operands);
        // The first part of this stage has been multiplied: its registers are free.
        warpgroup_wait<1>();
        previous = c.place.stage;
        c.place.advance();
        if (k + 1 < segment.end) {
            operands = c.operands();
            c.wait_full();
            load_half(first, operands);
        }
    }
    warpgroup_wait<0>();
    c.release(previous);
    const i32 channel = segment.channel, column = segment.column * TILE_ROWS;
    const i32 antenna = segment.row * TILE_ROWS / 2;
    if constexpr (alternate) {
        const i32 first = antenna + blocks.first * BLOCK_ROWS;
        p0.flush(c, c.of_polarisation, channel, first, 0, column);
        p1.flush(c, c.of_polarisation, channel, first, 1, column);
    } else {
        constexpr int block = BLOCK_ROWS / 2;
        p0.flush(c, c.visibilities, channel, antenna + blocks.first * block, 0, column);
        p1.flush(c, c.visibilities, channel, antenna + blocks.second * block, 0, column);
        p2.flush(c, c.visibilities, channel, antenna + blocks.third * block, 0, column);
    }
}

/// Releases the stages of a segment for which a warpgroup has no work.
__device__ __forceinline__ void pass_segment(Consumer& c, const Segment segment) {
    for (int k = segment.first; k < segment.end; k++) {
        c.wait_full();
        // All threads have seen the stage before it is overwritten.
        __syncwarp();
        c.release(c.place.stage);
        c.place.advance();
    }
}

// The blocks of rows of a tile are distributed such that both warpgroups have the same work.

/// A tile on the diagonal of `BLOCKS` blocks of rows: block b needs the columns of blocks 0 .. b.
template <int BLOCKS>
__device__ __forceinline__ void multiply_diagonal(Consumer& c, const Segment segment) {
    if constexpr (BLOCKS == 1) {
        if (c.warpgroup == 0) multiply_segment<true, 32>(c, segment, {0});
        else pass_segment(c, segment);
    } else if constexpr (BLOCKS == 2) {
        if (c.warpgroup == 0) multiply_segment<true, 64>(c, segment, {1});
        else multiply_segment<true, 32>(c, segment, {0});
    } else if constexpr (BLOCKS == 3) {
        if (c.warpgroup == 0) multiply_segment<true, 96>(c, segment, {2});
        else multiply_segment<true, 64, 32>(c, segment, {1, 0});
    } else if constexpr (BLOCKS == 4) {
        if (c.warpgroup == 0) multiply_segment<true, 128, 32>(c, segment, {3, 0});
        else multiply_segment<true, 96, 64>(c, segment, {2, 1});
    } else {
        if (c.warpgroup == 0) multiply_segment<true, 160, 96>(c, segment, {4, 2});
        else multiply_segment<true, 128, 64, 32>(c, segment, {3, 1, 0});
    }
}

/// A tile off the diagonal, 128 columns.
__device__ __forceinline__ void multiply_full(Consumer& c, const Segment segment) {
    if constexpr (!K_MAJOR) {
        const Blocks antennas = {(int)c.warpgroup};
        if constexpr (ROW_BLOCKS > 2) multiply_segment<false, 128, 128>(c, segment, antennas);
        else if (c.warpgroup == 0) multiply_segment<false, 128, 0>(c, segment, {0});
        else multiply_segment<false, 0, 128>(c, segment, {0});
    } else if (ROW_BLOCKS == 4 || (ROW_BLOCKS == 3 && c.warpgroup == 1)) {
        const Blocks two = c.warpgroup == 0 ? Blocks{3, 0} : Blocks{2, 1};
        multiply_segment<false, 128, 128>(c, segment, two);
    } else if (ROW_BLOCKS >= 2 || c.warpgroup == 0) {
        multiply_segment<false, 128>(c, segment, {(int)c.warpgroup});
    } else {
        pass_segment(c, segment);
    }
}

__device__ __forceinline__ void multiply_tile(Consumer& c, const Segment segment) {
    if (SINGLE_TILE || segment.row == segment.column) multiply_diagonal<ROW_BLOCKS>(c, segment);
    else multiply_full(c, segment);
}

/// Copies the samples of the segments into the stages when these become empty.
__device__ __forceinline__ void copy_segments(u32 base, const TensorMap* samples, const Work& work,
                                              i32 stages_per_run) {
    // Samples that only one tile reads need not stay in the cache.
    constexpr u64 policy = SINGLE_TILE ? L2_EVICT_FIRST : L2_NORMAL;
    constexpr int tile_antennas = TILE_ROWS / 2;
    Place place;
    for (i32 index = work.begin(); index < work.end(); index++) {
        const Segment s = work[index];
        const bool two = !SINGLE_TILE && s.row != s.column;
        i32 run = s.first / stages_per_run, stage = s.first % stages_per_run;
        for (int k = s.first; k < s.end; k++) {
            const u32 full = base + BARRIERS_AT + place.stage * BARRIER_BYTES;
            const u32 to = base + place.stage * OPERANDS * OPERAND_BYTES;
            barrier_wait(full + STAGES * BARRIER_BYTES, place.parity ^ 1);
            barrier_arrive_expecting(full, two ? 2 * OPERAND_BYTES : OPERAND_BYTES);
            const i32 byte = K_MAJOR ? stage * STAGE_BYTES : 0, part = K_MAJOR ? 0 : 2 * stage;
            copy_box_in(to, samples, full, byte, part, s.row * tile_antennas, s.channel, run, policy);
            if (two)
                copy_box_in(to + OPERAND_BYTES, samples, full, byte, part, s.column * tile_antennas,
                            s.channel, run, policy);
            place.advance();
            if (++stage == stages_per_run) {
                stage = 0;
                run++;
            }
        }
    }
}

/// Separates the polarisations of the columns of the segments, in place. On the diagonal these are also the rows.
__device__ __forceinline__ void separate_segments(u32 base, const Work& work, u32 thread) {
    constexpr int threads = SEPARATING_WARPS * 32, parts = STAGE_BYTES / 16, at_once = 3;
    // Each thread has the same 16 bytes of every twelfth antenna, with the same swizzle.
    constexpr int antennas = threads / parts;
    static_assert(antennas * 2 % 8 == 0);
    const u32 antenna = thread / parts;
    const u32 offset = antenna * 2 * STAGE_BYTES + (thread % parts ^ antenna * 2 % 8) * 16;
    Place place;
    for (i32 index = work.begin(); index < work.end(); index++) {
        const Segment s = work[index];
        const u32 operand = !SINGLE_TILE && s.row != s.column ? OPERAND_BYTES : 0;
        for (int k = s.first; k < s.end; k++) {
            const u32 full = base + BARRIERS_AT + place.stage * BARRIER_BYTES;
            barrier_wait(full, place.parity);
            const u32 first = base + place.stage * OPERANDS * OPERAND_BYTES + operand + offset;
#pragma unroll
            for (int a = 0; a < TILE_ROWS / 2; a += at_once * antennas) {
                u32 words[at_once][2][4];
#pragma unroll
                for (int i = 0; i < at_once; i++) {
                    const u32 at = first + (a + i * antennas) * 2 * STAGE_BYTES;
                    if (antenna + a + i * antennas >= TILE_ROWS / 2) continue;
                    load_shared(words[i][0], at);
                    load_shared(words[i][1], at + STAGE_BYTES ^ 16);
                }
#pragma unroll
                for (int i = 0; i < at_once; i++) {
                    const u32 at = first + (a + i * antennas) * 2 * STAGE_BYTES;
                    if (antenna + a + i * antennas >= TILE_ROWS / 2) continue;
                    int4 pols[2];
                    for (int pol = 0; pol < 2; pol++) {
                        const u32 order = 0x5410 + pol * 0x2222;
                        u32 w[4];
                        for (int n = 0; n < 4; n++)
                            w[n] = __byte_perm(words[i][0][n], words[i][1][n], order);
                        pols[pol] = {(i32)w[0], (i32)w[1], (i32)w[2], (i32)w[3]};
                    }
                    store_shared(at, pols[0]);
                    store_shared(at + STAGE_BYTES ^ 16, pols[1]);
                }
            }
            // For the matrix instructions, which read through the same path as the copies.
            shared_to_copy_engine();
            barrier_arrive(full + 2 * STAGES * BARRIER_BYTES);
            place.advance();
        }
    }
}

/// Adds the visibilities of some stages of samples, and the sums of the rows' real parts, to the present values. For
/// a tile on the diagonal, blocks of 32 x 32 are written completely.
///
/// samples       tensor (bytes of a run, 2 polarisations, antennas, channels, runs) of bytes, box
///               (128, 2, TILE_ROWS / 2, 1, 1), 128-byte swizzle; if the polarisations alternate, tensor
///               (128, bytes of a run of both / 128, antennas, channels, runs)
/// visibilities  tensor (2 n, 2 polarisations, antennas, channels) of 32-bit integers:
///               [channel][row n][column n][re, im], box (32, 2, 16, 1), 128-byte swizzle
/// of_polarisation  the same with box (32, 1, 32, 1)
/// real_parts    [channel][row n]
/// n             rows: 2 x antennas
/// stages_per_run      stages per run, including a partial last one
/// segments .. listed  see Work
///
/// Any number of blocks of 384 threads, dynamic shared memory for STAGES.
extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * WARPGROUP, 1)
    correlate(const __grid_constant__ TensorMap samples,
              const __grid_constant__ TensorMap visibilities,
              const __grid_constant__ TensorMap of_polarisation, i32* real_parts, i32 n,
              i32 stages_per_run, const Segment* __restrict__ segments,
              const i32* __restrict__ starts, i32 first, i32 stages, i32 listed) {
    extern __shared__ u8 shared_memory[];
    const u32 base = (shared_address(shared_memory) + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    // The value is equal in all threads of a warp; this makes it known to the compiler.
    const u32 warpgroup = __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            barrier_init(base + BARRIERS_AT + stage * BARRIER_BYTES, 1);
            barrier_init(base + BARRIERS_AT + (STAGES + stage) * BARRIER_BYTES,
                         CONSUMER_WARPS * ARRIVING_THREADS);
            barrier_init(base + BARRIERS_AT + (2 * STAGES + stage) * BARRIER_BYTES,
                         SEPARATING_WARPS * ARRIVING_THREADS);
        }
        barrier_init_fence();
    }
    __syncthreads();
    const Work work{segments, starts, first, stages, listed};
    if (warpgroup == CONSUMERS) {
        warpgroup_fewer_registers<PRODUCER_REGISTERS>();
        const u32 thread = threadIdx.x % WARPGROUP;
        if (thread == 0) copy_segments(base, &samples, work, stages_per_run);
        else if (!K_MAJOR && thread >= 32) separate_segments(base, work, thread - 32);
    } else {
        warpgroup_more_registers<CONSUMER_REGISTERS>();
        Consumer c;
        c.base = base;
        c.warpgroup = warpgroup;
        c.warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
        c.lane = threadIdx.x % 32;
        c.row_offset = (c.warp * 8 + c.lane % 8) * STAGE_BYTES + (c.lane / 8 ^ c.lane % 8) * 16;
        // A matrix of 8 x 16 bytes has rows of earlier samples of four antennas and of later samples of the others, so
        // that they are in different banks.
        const u32 antenna = c.lane % 8, later = c.lane / 8 % 2 ^ antenna / 4;
        const u32 row = (c.warp * 8 + antenna) * 2 + later;
        c.antenna_offset = row * STAGE_BYTES + (c.lane / 16 ^ row % 8) * 16;
        c.visibilities = &visibilities;
        c.of_polarisation = &of_polarisation;
        c.real_parts = real_parts;
        c.n = n;
        for (i32 index = work.begin(); index < work.end(); index++) {
            const Segment segment = work[index];
            if (segment.first < segment.end) multiply_tile(c, segment);
        }
        boxes_out_wait();
    }
}
