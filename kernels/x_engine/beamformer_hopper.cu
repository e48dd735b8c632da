// The beamformer for GPUs of compute capability 9.0: sums over the antennas in exact integer arithmetic on warpgroup
// matrix instructions, quantised to 8 bits.
//
// Voltages are bytes already. A weight is an integer of 16 bits times a unit of its beam and channel, and the integer
// is 256 hi + lo with both parts in a byte: two integer products instead of one in half precision, which take the
// same time. All sums are exact; the only errors are those of rounding weights to 16 bits, and of rounding the
// output, first to 2^-16 of a step.
//
// Rows of the product are spectra, columns are real and imaginary parts of beams (hi, then lo), and the sum is over
// the real and imaginary parts of antennas. Rows are in registers: two byte permutations turn words of two antennas
// into operands of both polarisations. Columns are in shared memory, in the layout that the host writes (`hopper.rs`).
//
// Macros: `HEAPS`, `ANTENNAS` (at most 256), `CHANNELS`, `SPECTRA`, `K_MAJOR`, `FOUR_BIT` (0 or 1) of the input;
// `BEAMS`; `GROUPS` of beams, for one group of which at a time the weights are in shared memory; `SLOTS_0`, `SLOTS_1`:
// beams of polarisation 0 and 1 per group, multiples of `CHUNK`; `CHUNK`: beams per matrix instruction (4, 8, 16);
// `WARPGROUPS`; `STAGES`: tiles in shared memory per warpgroup; `BUFFERS`: groups of beams whose weights are in shared
// memory (1 or 2); `DITHER` (0 or 1).
#if !defined(HEAPS) || !defined(ANTENNAS) || !defined(CHANNELS) || !defined(SPECTRA)
#error "beamformer_hopper.cu needs HEAPS, ANTENNAS, CHANNELS and SPECTRA"
#endif
#if !defined(K_MAJOR) || !defined(FOUR_BIT) || !defined(DITHER)
#error "beamformer_hopper.cu needs K_MAJOR, FOUR_BIT and DITHER"
#endif
#if !defined(BEAMS) || !defined(GROUPS) || !defined(SLOTS_0) || !defined(SLOTS_1) || !defined(CHUNK)
#error "beamformer_hopper.cu needs BEAMS, GROUPS, SLOTS_0, SLOTS_1 and CHUNK"
#endif
#if !defined(WARPGROUPS) || !defined(STAGES) || !defined(BUFFERS)
#error "beamformer_hopper.cu needs WARPGROUPS, STAGES and BUFFERS"
#endif

#include "async_copy.cuh"
#include "dither.cuh"
#include "int8_warpgroup.cuh"
#include "quantise.cuh"
#include "types.cuh"

/// Antennas per matrix instruction.
constexpr int step_antennas = 16;
constexpr int steps = (ANTENNAS + step_antennas - 1) / step_antennas;
constexpr int padded_antennas = steps * step_antennas;
static_assert(ANTENNAS <= 256, "sums of more antennas may exceed 32 bits");

constexpr int slots_of_group = SLOTS_0 + SLOTS_1;
constexpr int chunks_0 = SLOTS_0 / CHUNK, chunks = slots_of_group / CHUNK;
static_assert(SLOTS_0 % CHUNK == 0 && SLOTS_1 % CHUNK == 0, "chunks are of one polarisation");
constexpr bool all_slots_used = GROUPS * slots_of_group == BEAMS;
/// Blocks of four beams, real and imaginary part: 8 columns for hi, and 8 for lo.
constexpr int blocks = CHUNK / 4;
constexpr int columns = 16 * blocks;
/// Weights of a matrix instruction, of a chunk and of a group, in bytes.
constexpr int step_bytes = columns * 32;
constexpr int chunk_bytes = steps * step_bytes;
constexpr int group_bytes = chunks * chunk_bytes;

/// A tile is the voltages of all antennas at consecutive spectra of a channel and heap: 16 spectra for each warp.
constexpr int tile_times = 64;
constexpr int heap_tiles = (SPECTRA + tile_times - 1) / tile_times;
constexpr int threads = WARPGROUPS * WARPGROUP;
constexpr int value_bytes = FOUR_BIT ? 1 : 2;
/// Both polarisations of a tile of one antenna, which are copied in pieces of 16 bytes.
constexpr int row_bytes = 2 * tile_times * value_bytes;
constexpr int piece_bytes = 16;
constexpr int pieces = row_bytes / piece_bytes;
constexpr int antennas_at_once = WARPGROUP / pieces;
constexpr int stage_bytes = padded_antennas * row_bytes;
/// Voltages of the input that are contiguous: of a channel and antenna, and if K_MAJOR of a polarisation.
constexpr int run_bytes = SPECTRA * value_bytes * (K_MAJOR ? 1 : 2);
constexpr u64 antenna_bytes = (u64)CHANNELS * SPECTRA * 2 * value_bytes;
constexpr u64 heap_bytes = ANTENNAS * antenna_bytes;
constexpr int most_antennas_at_once = 16;

/// Description of a heap by the host: the key of its dither, the number of present antennas, and bits of the present
/// antennas: bit i of word n is antenna n + i `antennas_at_once`.
struct Heap {
    u64 key;
    u32 antennas;
    u32 unused;
    u32 present[most_antennas_at_once];
};

/// Output steps from 0 to 1, the ends at which saturation clamps: all from -127 to 127, or without dither a power of two,
/// so that values half way between integers stay so.
constexpr float range = DITHER ? 254.0f : 256.0f;

/// Quantisation of the sums of a beam in a channel, and its place in the output.
struct __align__(DITHER ? 8 : 16) Slot {
    /// Output per unit of the integer sums, in units of `range` steps.
    float scale;
    /// Index of the beam; `BEAMS` or more for none.
    u32 beam;
#if !DITHER
    /// Sums beyond it are clamped.
    float limit;
    u32 unused;
#endif
};

/// Weights of a group of beams in a channel, in the layout of shared memory. The host writes [channel][group] of them.
struct Weights {
    u8 columns[group_bytes];
    Slot slots[slots_of_group];
};

/// Descriptor of the columns of a matrix instruction without swizzle: groups of 8 columns x 16 bytes, 128 bytes apart
/// along the antennas and 256 bytes apart along the columns.
__device__ __forceinline__ u64 plain_columns_at(u32 address) {
    constexpr u64 along_antennas = 128, along_columns = 256;
    return along_columns >> 4 << 32 | along_antennas >> 4 << 16 | (address & 0x3ffff) >> 4;
}

/// Position in the tiles to compute: passes (channel, group of beams), and in a pass `tiles` tiles.
struct Position {
    u32 pass, tile;

    __device__ __forceinline__ void advance(u32 by, u32 tiles) {
        for (tile += by; tile >= tiles; tile -= tiles) pass++;
    }
    __device__ __forceinline__ bool is_before(const Position& end) const {
        return pass < end.pass || (pass == end.pass && tile < end.tile);
    }
};

/// Copies 16 bytes of a run to shared memory, asynchronously where the alignment of runs permits it; zeros if not
/// `present`.
__device__ __forceinline__ void copy_piece(u32 to, const u8* from, bool present) {
    if constexpr (run_bytes % 16 == 0) {
        cp_async16(to, from, present);
    } else if constexpr (run_bytes % 4 == 0) {
        for (int i = 0; i < 16; i += 4) cp_async4(to + i, from + i, present);
    } else {
        u32 words[4] = {};
        if (present) {
#pragma unroll
            for (int i = 0; i < 16; i += 2) {
                u32 pair;
                if constexpr (run_bytes % 2 == 0) pair = *reinterpret_cast<const u16*>(from + i);
                else pair = from[i] | (u32)from[i + 1] << 8;
                words[i / 4] |= pair << i % 4 * 8;
            }
        }
        store_shared(to, {(i32)words[0], (i32)words[1], (i32)words[2], (i32)words[3]});
    }
}

/// Begins to copy a tile of a heap and channel to a stage. Runs of 32 bytes of a row are permuted, so that the four
/// antennas that a warp reads at once are in different banks.
__device__ __forceinline__ void copy_tile(u32 stage, const u8* input, u32 heap, u32 channel, int time, u32 present) {
    const u32 thread = threadIdx.x % WARPGROUP;
    const u32 piece = thread % pieces, first = thread / pieces;
    constexpr int pol_pieces = K_MAJOR ? pieces / 2 : pieces;
    constexpr int piece_times = piece_bytes / value_bytes / (K_MAJOR ? 1 : 2);
    const int offset = piece % pol_pieces * piece_times;
    const u8* from = input + heap * heap_bytes + first * antenna_bytes + (u64)channel * (SPECTRA * 2 * value_bytes) +
                     piece / pol_pieces * run_bytes + time * (run_bytes / SPECTRA) + piece % pol_pieces * piece_bytes;
    const u32 to = stage + first * row_bytes + (piece ^ first % 4 * 2) * piece_bytes;
    const bool in_heap = SPECTRA % tile_times == 0 || time + offset < SPECTRA;
#pragma unroll
    for (int i = 0; i < padded_antennas / antennas_at_once; i++) {
        // Padding of the last step is absent.
        const bool is_present = in_heap && (present >> i & 1);
        const bool exists = padded_antennas == ANTENNAS || i * antennas_at_once + first < ANTENNAS;
        copy_piece(to + i * antennas_at_once * row_bytes, exists ? from + i * antennas_at_once * antenna_bytes : input,
                   is_present);
    }
}

/// Voltages of an antenna at two successive spectra, in the layout of 8 bits: a word for each spectrum, or if K_MAJOR
/// for each polarisation. With four bits, values are 16 times as large.
__device__ __forceinline__ void load_pair(u32 (&words)[2], const u8* row) {
    if constexpr (FOUR_BIT) {
        u32 bytes;
        if constexpr (K_MAJOR) {
            const u8* other = (const u8*)((u64)row ^ row_bytes / 2);
            bytes = *reinterpret_cast<const u16*>(row) | (u32)*reinterpret_cast<const u16*>(other) << 16;
        } else {
            bytes = *reinterpret_cast<const u32*>(row);
        }
        const u32 re = bytes & 0xf0f0f0f0, im = bytes << 4 & 0xf0f0f0f0;
        words[0] = __byte_perm(re, im, 0x5140);
        words[1] = __byte_perm(re, im, 0x7362);
    } else if constexpr (K_MAJOR) {
        words[0] = *reinterpret_cast<const u32*>(row);
        words[1] = *reinterpret_cast<const u32*>(row + row_bytes / 2);
    } else {
        const uint2 both = *reinterpret_cast<const uint2*>(row);
        words[0] = both.x, words[1] = both.y;
    }
}

/// Operands of both polarisations for all antennas. Rows l / 4 and l / 4 + 8 of a warp are spectra 2 (l / 4) and the
/// next. The order of antennas is that of the weights: thread l of a warp has antennas 4 i + l % 4.
using Rows = u32[2][steps][4];

__device__ __forceinline__ void load_rows(Rows& rows, const u8* stage) {
    const u32 warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const u32 pair = lane / 4;
    constexpr int pair_bytes = 2 * value_bytes * (K_MAJOR ? 1 : 2);
    // Place in the row before runs of 32 bytes were permuted.
    const u32 place = (warp * 8 + pair) * pair_bytes;
    const u8* own = stage + lane % 4 * row_bytes + (place ^ lane % 4 * 32);
#pragma unroll
    for (int step = 0; step < steps; step++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 near[2], far[2];
            const u8* row = own + (step * step_antennas + 8 * half) * row_bytes;
            load_pair(near, row);
            load_pair(far, row + 4 * row_bytes);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const u32 first = __byte_perm(near[i], far[i], 0x5410);
                const u32 second = __byte_perm(near[i], far[i], 0x7632);
                if constexpr (K_MAJOR) {
                    rows[i][step][2 * half] = first, rows[i][step][2 * half + 1] = second;
                } else {
                    rows[0][step][2 * half + i] = first, rows[1][step][2 * half + i] = second;
                }
            }
        }
}

/// Where a thread stores a tile.
struct Target {
    /// Beam 0 at the thread's first spectrum.
    u8* output;
    /// Counts of the heap.
    u32* clamped;
    /// Distance of the noise of the thread's first spectrum from the keys.
    u64 noise;
    /// Mask of the thread's two spectra that exist and have the present weights.
    u32 times;
};

/// Sums of a chunk.
using Sums = i32[columns / 2];

#if DITHER
/// The noise has an offset of 128.5 steps, nearly half of the range: a value has the rest.
constexpr float value_offset = 0.5f - 128.5f / range;

/// The value that is quantised for the sum `z`.
__device__ __forceinline__ c32 value_of(c32 z, const Slot& slot) {
    return {fmaf(z.x, slot.scale, value_offset), fmaf(z.y, slot.scale, value_offset)};
}

/// Magnitude up to which the parts of a value are not clamped: the noise is less than 129 steps, and values are rounded.
__device__ __forceinline__ float never_clamped(const Slot&) { return 1.0f - 129.0f / range - 1e-6f; }

/// The value with noise, as fraction of the range.
__device__ __forceinline__ c32 fraction(c32 value, u64 noise) {
    const c32 pair = offset_uniform_pair(noise);
    return {fmaf(1.0f / range, pair.x, value.x), fmaf(1.0f / range, pair.y, value.y)};
}

__device__ __forceinline__ bool is_clamped(c32 value, const Slot&, u64 noise) {
    const c32 of_range = fraction(value, noise);
    return is_clamped({of_range.x - 0.5f, of_range.y - 0.5f}, 0.5f);
}

/// Integers nearest to the output, clamped, as `offset_bytes`.
__device__ __forceinline__ u32 quantised(c32 value, const Slot&, u64 noise) {
    const c32 of_range = fraction(value, noise);
    return offset_bytes({__saturatef(of_range.x), __saturatef(of_range.y)}, range);
}
#else
__device__ __forceinline__ c32 value_of(c32 z, const Slot&) { return z; }

__device__ __forceinline__ float never_clamped(const Slot& slot) { return slot.limit; }

__device__ __forceinline__ bool is_clamped(c32 value, const Slot& slot, u64) { return is_clamped(value, slot.limit); }

__device__ __forceinline__ u32 quantised(c32 value, const Slot& slot, u64) {
    constexpr float end = largest(8) / range;
    const auto clamped = [&](float x) {
        // At the upper end, then at the lower one.
        return __saturatef(__saturatef(fmaf(x, slot.scale, 1.0f - end)) - (1.0f - 2.0f * end));
    };
    return offset_bytes({clamped(value.x), clamped(value.y)}, range);
}
#endif

/// Stores two spectra of a beam.
template <bool PART> __device__ __forceinline__ void store(const Target& target, u32 beam, u32 word) {
    if (!all_slots_used && beam >= BEAMS) return;
    u8* to = target.output + (u64)beam * ((u64)CHANNELS * SPECTRA * 2);
    if (!PART || (SPECTRA % 2 == 0 && target.times == 3)) {
        *reinterpret_cast<u32*>(to) = word;
    } else {
        u16* values = reinterpret_cast<u16*>(to);
        if (target.times & 1) values[0] = (u16)word;
        if (target.times & 2) values[1] = (u16)(word >> 16);
    }
}

/// A chunk of beams.
struct Chunk {
    const Sums& sums;
    const Slot* slots;
    /// Keys of the noise of the beams.
    const u64* keys;

    /// Calls `take` (b, t, slot, value, place of the noise) for the thread's values of beam 4 b + l % 4 at two spectra t.
    template <class Take> __device__ __forceinline__ void for_values(const Target& target, Take take) const {
        const u32 lane = threadIdx.x % 32;
#pragma unroll
        for (int b = 0; b < blocks; b++) {
            const Slot slot = slots[4 * b + lane % 4];
            const u64 noise = DITHER ? keys[4 * b + lane % 4] + target.noise : 0;
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const int hi = 4 * b + 2 * t, lo = hi + 4 * blocks;
                const c32 sum = {(float)(sums[hi] * 256 + sums[lo]), (float)(sums[hi + 1] * 256 + sums[lo + 1])};
                take(b, t, slot, value_of(sum, slot), noise + t * DITHER_STEP);
            }
        }
    }
};

/// Adds the clamped values of a chunk to the counts of its beams.
__device__ __forceinline__ void count_clamped(const Chunk& chunk, const Target& target) {
    const u32 lane = threadIdx.x % 32;
    // Up to 16 values of a beam in each byte.
    u32 counts = 0;
    chunk.for_values(target, [&](int b, int, const Slot& slot, c32 value, u64 noise) {
        counts += (u32)is_clamped(value, slot, noise) << 8 * b;
    });
    for (int with = 4; with < 32; with *= 2) counts += __shfl_xor_sync(~0u, counts, with);
    // Thread l adds the count of beam l of the chunk.
    const u32 count = counts >> lane / 4 * 8 & 255;
    if (lane < CHUNK && count > 0) {
        const u32 beam = chunk.slots[lane].beam;
        if (all_slots_used || beam < BEAMS) atomicAdd(target.clamped + beam, count);
    }
}

/// Quantises, stores and counts the sums of a chunk.
template <bool PART> __device__ __forceinline__ void finish(const Chunk& chunk, const Target& target) {
    bool may_be_clamped = false;
    u32 first = 0;
    chunk.for_values(target, [&](int, int t, const Slot& slot, c32 value, u64 noise) {
        may_be_clamped |= fmaxf(fabsf(value.x), fabsf(value.y)) > never_clamped(slot);
        const u32 word = quantised(value, slot, noise);
        if (t == 0) first = word;
        else store<PART>(target, slot.beam, (word * 65536 + first) ^ 0x80808080);
    });
    // Values are seldom clamped.
    if (__any_sync(~0u, may_be_clamped)) count_clamped(chunk, target);
}

/// Adds the squares of the values that the warp has stored at the first spectra of a heap to the sums `squares` [beam], for
/// all beams of the group. All threads of the warp call it, each for beams of its own; `target` is the thread's.
template <bool PART>
__device__ __forceinline__ void measure(const Target& target, const Slot* slots, u64* squares) {
    const u32 lane = threadIdx.x % 32;
    // The values are those of other threads.
    __syncwarp();
    constexpr int complex_bytes = 2, words = MEASURED_SPECTRA * complex_bytes / 4;
    static_assert(words == 2, "two spectra of each of two threads");
    const u32 times = PART ? __shfl_sync(~0u, target.times, 0) | __shfl_sync(~0u, target.times, 4) << 2 : ~0u;
    const u8* heap_output = target.output - lane / 4 * 4;
    // All loads are in flight before the first addition.
    constexpr int rounds = (slots_of_group + 31) / 32;
    u32 beams[rounds], stored[rounds][words] = {};
#pragma unroll
    for (int round = 0; round < rounds; round++) {
        const int slot = 32 * round + lane;
        beams[round] = slot < slots_of_group ? slots[slot].beam : BEAMS;
        if (beams[round] >= BEAMS) continue;
        const u8* from = heap_output + (u64)beams[round] * ((u64)CHANNELS * SPECTRA * complex_bytes);
        if constexpr (!PART) {
            load_stored(stored[round], from);
        } else {
#pragma unroll
            for (int byte = 0; byte < 4 * words; byte++)
                if (times >> byte / 2 & 1) stored[round][byte / 4] |= stored_byte(from + byte) << 8 * (byte % 4);
        }
    }
#pragma unroll
    for (int round = 0; round < rounds; round++) {
        const u32 sum = sum_of_squares<8>(stored[round][0]) + sum_of_squares<8>(stored[round][1]);
        if (sum > 0) atomicAdd(squares + beams[round], (u64)sum);
    }
}

/// Shared memory of a thread block.
struct __align__(128) Shared {
    u8 stages[WARPGROUPS][STAGES][stage_bytes];
    Weights weights[BUFFERS];
    /// Keys of the noise of a group's beams, in the heap and channel of a warpgroup's tile.
    u64 keys[WARPGROUPS][DITHER ? slots_of_group : 1];
    /// Barriers at which weights arrive.
    u64 loaded[BUFFERS];
    /// Warpgroups that are done with weights.
    u32 done[BUFFERS];
};

/// Begins to copy the weights of a pass to a buffer.
__device__ __forceinline__ void copy_weights(Shared& shared, u32 buffer, const Weights* of_pass) {
    const u32 barrier = shared_address(&shared.loaded[buffer]);
    barrier_arrive_expecting(barrier, sizeof(Weights));
    copy_bulk_in(shared_address(&shared.weights[buffer]), of_pass, sizeof(Weights), barrier);
}

/// See `beamform`. With PART, some spectra of a tile may not exist or have other weights. With LEVEL, values are measured:
/// code that does so costs up to a twentieth of the time, also where it is not executed.
template <bool PART, bool LEVEL>
__device__ __forceinline__ void beamform_tiles(const u8* __restrict__ input, u16* __restrict__ output,
                                               const Weights* __restrict__ weights, const Heap* __restrict__ heaps,
                                               u32* __restrict__ clamped, u64* __restrict__ squares,
                                               u64 first_channel, u32 first_spectrum, u32 end_spectrum) {
    extern __shared__ Shared dynamic[];
    Shared& shared = dynamic[0];
    // The value is equal in all threads of a warp; this makes it known to the compiler.
    const u32 warpgroup = __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0);
    const u32 thread = threadIdx.x % WARPGROUP, warp = thread / 32, lane = thread % 32;

    // Tiles of the heaps in a pass. A block has consecutive tiles of all passes, which its warpgroups take in turn.
    const u32 first_tile = first_spectrum / SPECTRA * heap_tiles + first_spectrum % SPECTRA / tile_times;
    const u32 last = end_spectrum - 1;
    const u32 tiles = last / SPECTRA * heap_tiles + last % SPECTRA / tile_times + 1 - first_tile;
    const u64 all = (u64)CHANNELS * GROUPS * tiles;
    const u32 from = all * blockIdx.x / gridDim.x, to = all * (blockIdx.x + 1) / gridDim.x;
    if (from == to) return;
    const Position end = {to / tiles, to % tiles};
    const u32 first_pass = from / tiles, end_pass = (to - 1) / tiles + 1;
    Position own = {first_pass, from % tiles};
    own.advance(warpgroup, tiles);

    if (threadIdx.x == 0) {
        for (int buffer = 0; buffer < BUFFERS; buffer++) {
            barrier_init(shared_address(&shared.loaded[buffer]), 1);
            shared.done[buffer] = 0;
        }
        barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (u32 pass = first_pass; pass < first_pass + BUFFERS && pass < end_pass; pass++)
            copy_weights(shared, pass - first_pass, weights + pass);
    const auto wait_for_weights = [&](u32 pass) {
        const u32 number = pass - first_pass;
        barrier_wait(shared_address(&shared.loaded[number % BUFFERS]), number / BUFFERS % 2);
    };
    // Reports that this warpgroup is done with a pass; the last one begins to copy weights to its buffer.
    const auto leave = [&](u32 pass) {
        // Also if it had no tile: a barrier knows only the present phase and the one before.
        wait_for_weights(pass);
        warpgroup_barrier(1 + warpgroup);
        if (thread > 0) return;
        const u32 buffer = (pass - first_pass) % BUFFERS;
        __threadfence_block();
        const u32 before = atomicAdd(&shared.done[buffer], 1);
        __threadfence_block();
        if (before % WARPGROUPS == WARPGROUPS - 1 && pass + BUFFERS < end_pass)
            copy_weights(shared, buffer, weights + pass + BUFFERS);
    };

    Position next = own;
    const auto present = [&] {
        return next.is_before(end) ? heaps[(first_tile + next.tile) / heap_tiles].present[thread / pieces] : 0;
    };
    const auto copy_next = [&](u32 stage, u32 present) {
        if (next.is_before(end)) {
            const u32 tile = first_tile + next.tile;
            copy_tile(shared_address(shared.stages[warpgroup][stage]), input, tile / heap_tiles, next.pass / GROUPS,
                      tile % heap_tiles * tile_times, present);
            next.advance(WARPGROUPS, tiles);
        }
        cp_async_commit();
    };
#pragma unroll
    for (int stage = 0; stage < STAGES; stage++) copy_next(stage, present());

    u32 stage = 0, pass = first_pass;
    for (; own.is_before(end); own.advance(WARPGROUPS, tiles)) {
        for (; pass < own.pass; pass++) leave(pass);
        const u32 tile = first_tile + own.tile, heap = tile / heap_tiles;
        // Read before it is needed.
        const u32 next_present = present();
        cp_async_wait<STAGES - 1>();
        warpgroup_barrier(1 + warpgroup);
        const Weights& of_pass = shared.weights[(pass - first_pass) % BUFFERS];
        u64(&keys)[DITHER ? slots_of_group : 1] = shared.keys[warpgroup];
        if constexpr (DITHER) {
            wait_for_weights(pass);
            const u64 key = key_of_part(heaps[heap].key, first_channel + pass / GROUPS);
            for (u32 slot = thread; slot < slots_of_group; slot += WARPGROUP)
                keys[slot] = key_of_part(key, of_pass.slots[slot].beam);
        }
        Rows rows;
        load_rows(rows, shared.stages[warpgroup][stage]);
        warpgroup_barrier(1 + warpgroup);
        copy_next(stage, next_present);
        stage = stage + 1 == STAGES ? 0 : stage + 1;

        const u32 time = tile % heap_tiles * tile_times + warp * 16 + lane / 4 * 2;
        const u32 channel = pass / GROUPS;
        Target target;
        target.output = reinterpret_cast<u8*>(output + ((u64)heap * BEAMS * CHANNELS + channel) * SPECTRA + time);
        target.clamped = clamped + heap * BEAMS;
        target.noise = time * DITHER_STEP;
        // Known as a product, it would be multiplied again for each value.
        asm("" : "+l"(target.noise));
        target.times = 3;
        if constexpr (PART) {
            target.times = 0;
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const u32 spectrum = heap * SPECTRA + time + t;
                const bool wanted = time + t < SPECTRA && first_spectrum <= spectrum && spectrum < end_spectrum;
                target.times |= (u32)wanted << t;
                // Sums of 0 are not counted as clamped.
#pragma unroll
                for (int i = 0; i < 2 * steps; i++)
#pragma unroll
                    for (int pol = 0; pol < 2; pol++) rows[pol][i / 2][i % 2 * 2 + t] &= wanted ? ~0u : 0;
            }
        }
        wait_for_weights(pass);
        if (DITHER && heaps[heap].antennas == 0) {
            // Without any antenna there is no dither either.
            for (int slot = lane % 4; slot < slots_of_group; slot += 4)
                store<PART>(target, of_pass.slots[slot].beam, 0);
            continue;
        }
        // While the sums of one chunk are quantised, those of the next are made.
        Sums sums[2];
        const u64 first_columns = plain_columns_at(shared_address(of_pass.columns));
        const auto multiply_chunk = [&](int chunk) {
            warpgroup_fence();
#pragma unroll
            for (int step = 0; step < steps; step++) {
                const u32(&a)[4] = rows[chunk >= chunks_0][step];
                multiply<columns>(sums[chunk % 2], a[0], a[1], a[2], a[3],
                                  first_columns + (chunk * chunk_bytes + step * step_bytes) / 16, step > 0);
            }
            warpgroup_commit();
        };
        multiply_chunk(0);
#pragma unroll
        for (int chunk = 0; chunk < chunks; chunk++) {
            if (chunk + 1 < chunks) {
                multiply_chunk(chunk + 1);
                warpgroup_wait<1>();
            } else {
                warpgroup_wait<0>();
            }
            finish<PART>({sums[chunk % 2], of_pass.slots + chunk * CHUNK, keys + chunk * CHUNK}, target);
        }
        if constexpr (LEVEL) {
            // The same for the whole warp.
            if (time == lane / 4 * 2 && heap % MEASURED_HEAPS == 0)
                measure<PART>(target, of_pass.slots, squares + heap * BEAMS);
        }
        // The next products need whole warps.
        __syncwarp();
    }
    // Other warpgroups may have tiles of later passes.
    for (; pass < end_pass; pass++) leave(pass);
    cp_async_wait<0>();
}

/// input: [heap][antenna][channel][spectrum][pol 2], or [heap][antenna][channel][pol 2][spectrum] if K_MAJOR, of
/// complex bytes or nibbles, followed by 256 readable bytes.
/// output: complex bytes [heap][beam][channel][spectrum].
/// weights: [channel][group]. heaps: [heap]. clamped: [heap][beam], squares: [heap][beam], sums of the measured values;
/// the kernel adds to them; `beamform` measures none.
/// first_spectrum, end_spectrum: range of spectra to compute, counted over all heaps.
/// Grid: any number of blocks; one per multiprocessor is best. Block: 128 WARPGROUPS threads.
/// Dynamic shared memory: that of Shared.
extern "C" __global__ void __launch_bounds__(threads, 1)
    beamform_part(const u8* __restrict__ input, u16* __restrict__ output, const Weights* __restrict__ weights,
                  const Heap* __restrict__ heaps, u32* __restrict__ clamped, u64* __restrict__ squares,
                  u64 first_channel, u32 first_spectrum, u32 end_spectrum) {
    beamform_tiles<true, true>(input, output, weights, heaps, clamped, squares, first_channel, first_spectrum, end_spectrum);
}

/// The same for ranges of whole tiles: SPECTRA, first_spectrum and end_spectrum are multiples of 64.
extern "C" __global__ void __launch_bounds__(threads, 1)
    beamform(const u8* __restrict__ input, u16* __restrict__ output, const Weights* __restrict__ weights,
             const Heap* __restrict__ heaps, u32* __restrict__ clamped, u64* __restrict__ squares, u64 first_channel,
             u32 first_spectrum, u32 end_spectrum) {
    if constexpr (SPECTRA % tile_times == 0)
        beamform_tiles<false, false>(input, output, weights, heaps, clamped, squares, first_channel, first_spectrum,
                                     end_spectrum);
}

/// The same, with values that are measured.
extern "C" __global__ void __launch_bounds__(threads, 1)
    beamform_measured(const u8* __restrict__ input, u16* __restrict__ output, const Weights* __restrict__ weights,
                      const Heap* __restrict__ heaps, u32* __restrict__ clamped, u64* __restrict__ squares,
                      u64 first_channel, u32 first_spectrum, u32 end_spectrum) {
    if constexpr (SPECTRA % tile_times == 0)
        beamform_tiles<false, true>(input, output, weights, heaps, clamped, squares, first_channel, first_spectrum,
                                    end_spectrum);
}
