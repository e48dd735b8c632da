// The beamformer: sums over the antennas, each with its weight, quantised to 8 bits.
//
// For each channel the sums are a matrix product: rows are spectra, columns are the real and imaginary parts of
// beams, and the sum is over the real and imaginary parts of antennas. Voltages are exact in half precision. A
// weight is the sum of WEIGHT_PARTS `f16`: with 2 it is as exact as in single precision. Voltages are loaded from
// memory directly into the registers of the matrix operands; weights are kept in shared memory.
//
// Macros: `HEAPS`, `ANTENNAS`, `CHANNELS`, `SPECTRA`, `POLS` (1 or 2), `K_MAJOR` (1 with one polarisation), `FOUR_BIT` (0 or 1)
// of the input; `BEAMS`;
// `TILES_0`, `TILES_1`: tiles of four beams of polarisation 0 and 1 per thread block; `GROUPS`: blocks for all beams;
// `WEIGHT_PARTS` (1 or 2), `DITHER` (0 or 1), `WARPS`.
#if !defined(HEAPS) || !defined(ANTENNAS) || !defined(CHANNELS) || !defined(SPECTRA)
#error "beamformer.cu needs HEAPS, ANTENNAS, CHANNELS and SPECTRA"
#endif
#if !defined(POLS) || !defined(K_MAJOR) || !defined(FOUR_BIT) || !defined(DITHER)
#error "beamformer.cu needs POLS, K_MAJOR, FOUR_BIT and DITHER"
#endif
#if !defined(BEAMS) || !defined(TILES_0) || !defined(TILES_1) || !defined(GROUPS)
#error "beamformer.cu needs BEAMS, TILES_0, TILES_1 and GROUPS"
#endif
#if !defined(WEIGHT_PARTS) || !defined(WARPS)
#error "beamformer.cu needs WEIGHT_PARTS and WARPS"
#endif

#include "dither.cuh"
#include "half_matrix.cuh"
#include "quantise.cuh"
#include "types.cuh"

/// Antennas per matrix instruction.
constexpr int step_antennas = 8;
constexpr int steps = (ANTENNAS + step_antennas - 1) / step_antennas;
/// Consecutive spectra per thread, and per warp: two row tiles of matrices.
constexpr int lane_times = 4;
constexpr int warp_times = 32;
constexpr int chunks = (SPECTRA + warp_times - 1) / warp_times;
constexpr int tiles = TILES_0 + TILES_1;
constexpr int tile_beams = 4;
constexpr int slots = tiles * tile_beams;
static_assert(POLS == 2 || (K_MAJOR == 1 && TILES_1 == 0), "one polarisation is in memory as the K-major layout");
static_assert(slots <= 32, "a warp makes one key of dither for each beam");
/// Steps that are loaded ahead of the one being multiplied.
constexpr int steps_ahead = 3;

// A row is all polarisations of one channel of one antenna and heap. A thread reads one run of it, or one run for
// each polarisation.
constexpr int value_bytes = FOUR_BIT ? 1 : 2;
constexpr int row_bytes = POLS * SPECTRA * value_bytes;
constexpr int runs = K_MAJOR ? POLS : 1;
constexpr int run_bytes = POLS * lane_times * value_bytes / runs;
constexpr int run_words = run_bytes / 4;
constexpr int words = runs * run_words;
constexpr u64 antenna_bytes = (u64)CHANNELS * row_bytes;
constexpr u64 heap_bytes = ANTENNAS * antenna_bytes;

/// Largest power of two up to `most` that divides `number`.
constexpr int alignment(int number, int most) {
    return number % most == 0 ? most : alignment(number, most / 2);
}
constexpr int run_alignment = alignment(row_bytes / runs, run_bytes);

/// Description of a heap by the host: the key of its dither, the number of present antennas, and for each antenna all
/// bits set if it is present, else none; 0 for padding of the last step.
struct Heap {
    u64 key;
    u32 antennas;
    u32 unused;
    u32 present[steps * step_antennas];
};

/// A matrix of weights in the layout of the operand: two words for each part.
struct __align__(8 * WEIGHT_PARTS) Fragment {
    u32 words[WEIGHT_PARTS][2];
};

/// Beams of a block, tile by tile.
struct Slots {
    /// Index of the beam, -1 for none.
    i32 beams[slots];
    /// Factor of the sums of the beam.
    float scales[slots];
};

/// Weights of a step and a tile.
__device__ __forceinline__ Fragment* fragments_of(Fragment* fragments, int step, int tile) {
    return fragments + (step * tiles + tile) * 32;
}

/// Writes the weights of a block's beams to shared memory. The product of (re, im) of a voltage with (re, -im) of a
/// weight is the real part of a sum, the product with (im, re) the imaginary one.
__device__ __forceinline__ void prepare_weights(Fragment* fragments, const Slots& own,
                                                const float2* weights) {
    constexpr int padded = steps * step_antennas;
    for (int i = threadIdx.x; i < slots * padded; i += 32 * WARPS) {
        const int slot = i / padded, antenna = i % padded;
        const int beam = own.beams[slot];
        float2 weight = {0.0f, 0.0f};
        if (antenna < ANTENNAS && beam >= 0) weight = weights[beam * ANTENNAS + antenna];
        float2 columns[2] = {{weight.x, -weight.y}, {weight.y, weight.x}};
        auto* of_step = fragments_of(fragments, antenna / step_antennas, slot / tile_beams);
        const int half = antenna / 4 % 2;
        for (int column = 0; column < 2; column++) {
            const int lane = (slot % tile_beams * 2 + column) * 4 + antenna % 4;
            for (int part = 0; part < WEIGHT_PARTS; part++) {
                const u32 word = halves(columns[column].x, columns[column].y);
                of_step[lane].words[part][half] = word;
                const float2 rounded = from_halves(word);
                columns[column] = {columns[column].x - rounded.x, columns[column].y - rounded.y};
            }
        }
    }
}

/// Voltages of an antenna that a thread multiplies, in the format of the input.
struct Raw {
    u32 words[words];
    u32 present;
};

/// Reads `run_bytes` bytes in aligned accesses.
__device__ __forceinline__ void read_run(u32* to, const u8* from) {
    if constexpr (run_alignment == 16) {
        const uint4 run = *reinterpret_cast<const uint4*>(from);
        to[0] = run.x, to[1] = run.y, to[2] = run.z, to[3] = run.w;
    } else if constexpr (run_alignment == 8) {
#pragma unroll
        for (int i = 0; i < run_words; i += 2) {
            const uint2 run = reinterpret_cast<const uint2*>(from)[i / 2];
            to[i] = run.x, to[i + 1] = run.y;
        }
    } else if constexpr (run_alignment == 4) {
#pragma unroll
        for (int i = 0; i < run_words; i++) to[i] = reinterpret_cast<const u32*>(from)[i];
    } else if constexpr (run_alignment == 2) {
        const u16* pairs = reinterpret_cast<const u16*>(from);
#pragma unroll
        for (int i = 0; i < run_words; i++) to[i] = pairs[2 * i] | (u32)pairs[2 * i + 1] << 16;
    } else {
#pragma unroll
        for (int i = 0; i < run_words; i++) {
            to[i] = from[4 * i] | (u32)from[4 * i + 1] << 8 | (u32)from[4 * i + 2] << 16 |
                    (u32)from[4 * i + 3] << 24;
        }
    }
}

/// Reads the voltages of `antenna` that a thread needs, in the rows from `rows` on. Padding of the last step reads
/// antenna 0 again, so that no memory beyond the frame is read. Spectra after the end of a row are read, but not
/// used.
__device__ __forceinline__ void read_voltages(Raw& raw, const u8* rows, const Heap& heap, int antenna) {
    const u8* row = rows + (antenna < ANTENNAS ? antenna : 0) * antenna_bytes;
    raw.present = heap.present[antenna];
#pragma unroll
    for (int run = 0; run < runs; run++)
        read_run(raw.words + run * run_words, row + run * (row_bytes / runs));
}

/// Voltages of polarisation `pol` of each spectrum, (re, im) in `f16`; 0 if the antenna is absent.
__device__ __forceinline__ void convert(u32 (&pairs)[lane_times], const Raw& raw, int pol) {
    // A byte or nibble with its sign bit flipped is an unsigned offset. As the low bits of an `f16` it is this
    // integer plus 1024.
    constexpr u32 signs = FOUR_BIT ? 0x88888888 : 0x80808080;
    constexpr u32 thousand = 0x64646464;
    constexpr u32 offsets = FOUR_BIT ? 0x64086408 : 0x64806480;
    u32 bytes[lane_times];
#pragma unroll
    for (int i = 0; i < words; i++) {
        const u32 word = (raw.words[i] & raw.present) ^ signs;
        if constexpr (FOUR_BIT) {
            const u32 re = word >> 4 & 0x0f0f0f0f, im = word & 0x0f0f0f0f;
            bytes[2 * i] = __byte_perm(re, im, 0x5140);
            bytes[2 * i + 1] = __byte_perm(re, im, 0x7362);
        } else {
            bytes[i] = word;
        }
    }
#pragma unroll
    for (int time = 0; time < lane_times; time++) {
        const int value = K_MAJOR ? pol * lane_times + time : 2 * time + pol;
        const u32 both = __byte_perm(bytes[value / 2], thousand, value % 2 ? 0x4342 : 0x4140);
        pairs[time] = subtract_halves(both, offsets);
    }
}

/// Sums of a tile of beams: the result of one matrix instruction for each of two row tiles.
using Sums = float[2][4];

/// Adds the antennas of a step (two for each thread) to `tile_count` tiles of beams of polarisation `pol`, from tile
/// `first_tile` of the block on.
template <int first_tile, int tile_count>
__device__ __forceinline__ void add_step(Sums (&sums)[tiles], const Raw (&raw)[2], int pol,
                                         const Fragment* of_step) {
    if constexpr (tile_count > 0) {
        u32 near[lane_times], far[lane_times];
        convert(near, raw[0], pol);
        convert(far, raw[1], pol);
        const u32 rows[2][4] = {{near[0], near[1], far[0], far[1]}, {near[2], near[3], far[2], far[3]}};
        Fragment weights[tile_count];
#pragma unroll
        for (int i = 0; i < tile_count; i++) weights[i] = of_step[(first_tile + i) * 32];
#pragma unroll
        for (int part = 0; part < WEIGHT_PARTS; part++)
#pragma unroll
            for (int i = 0; i < tile_count; i++)
#pragma unroll
                for (int row_tile = 0; row_tile < 2; row_tile++)
                    multiply_halves(sums[first_tile + i][row_tile], rows[row_tile],
                                    weights[i].words[part][0], weights[i].words[part][1]);
    }
}

/// Sums over all antennas for a thread's spectra; `rows` is their place in the row of antenna 0, `fragments` the
/// thread's own fragments.
__device__ __forceinline__ void add_antennas(Sums (&sums)[tiles], const u8* rows, const Heap& heap,
                                             const Fragment* fragments) {
    const int antenna = threadIdx.x % 4;
    Raw raw[steps_ahead][2];
#pragma unroll
    for (int step = 0; step < steps_ahead; step++) {
        if (step >= steps) break;
#pragma unroll
        for (int i = 0; i < 2; i++)
            read_voltages(raw[step][i], rows, heap, step * step_antennas + 4 * i + antenna);
    }
    for (int first = 0; first < steps; first += steps_ahead) {
#pragma unroll
        for (int i = 0; i < steps_ahead; i++) {
            const int step = first + i;
            if (step >= steps) break;
            const Fragment* of_step = fragments + step * tiles * 32;
            add_step<0, TILES_0>(sums, raw[i], 0, of_step);
            add_step<TILES_0, TILES_1>(sums, raw[i], 1, of_step);
            const int later = step + steps_ahead;
            if (later >= steps) continue;
#pragma unroll
            for (int k = 0; k < 2; k++)
                read_voltages(raw[i][k], rows, heap, later * step_antennas + 4 * k + antenna);
        }
    }
}

/// Returns whether a thread's spectrum exists; the last chunk may be partial.
__device__ __forceinline__ bool exists(int time) { return SPECTRA % warp_times == 0 || time < SPECTRA; }

/// Mask of a thread's four spectra that exist and are from `begin` on and before `end`.
__device__ __forceinline__ u32 times_to_make(int first_time, int begin, int end) {
    u32 times = 0;
#pragma unroll
    for (int i = 0; i < lane_times; i++) {
        const int time = first_time + i;
        times |= exists(time) && begin <= time && time < end ? 1u << i : 0;
    }
    return times;
}

/// Stores the spectra in the mask `times`, of a thread's four spectra of a beam.
__device__ __forceinline__ void store(u16* to, const u32 (&values)[lane_times], u32 times) {
    if (SPECTRA % lane_times == 0 && times == (1u << lane_times) - 1) {
        const uint2 run = {__byte_perm(values[0], values[1], 0x5410),
                           __byte_perm(values[2], values[3], 0x5410)};
        *reinterpret_cast<uint2*>(to) = run;
    } else {
#pragma unroll
        for (int time = 0; time < lane_times; time++)
            if (times >> time & 1) to[time] = (u16)values[time];
    }
}

/// Rounds a thread's sums of one beam to `values`. Returns the number of clamped values in the mask `times`.
__device__ __forceinline__ u32 quantise(u32 (&values)[lane_times], const Sums& sums, float scale,
                                        u64 key, int first_time, u32 times) {
    u32 clamped = 0;
#pragma unroll
    for (int time = 0; time < lane_times; time++) {
        const float* sum = &sums[time / 2][time % 2 * 2];
        c32 value = scale * c32{sum[0], sum[1]};
        if constexpr (DITHER) value = value + uniform_pair(key, first_time + time);
        clamped += (times >> time & 1) && is_clamped(value, largest(8));
        values[time] = quantise8(value);
    }
    return clamped;
}

/// Sum over the threads with other spectra of the same beam.
__device__ __forceinline__ u32 over_times(u32 count) {
    for (int lane = 4; lane < 32; lane *= 2) count += __shfl_xor_sync(~0u, count, lane);
    return count;
}

/// Quantises and stores a thread's sums of all beams of the block. `output` is the channel of beam 0 of the heap,
/// `clamped` the heap's counts, `squares` its sums of squares if they are measured; `times` is the mask of the spectra to store.
__device__ __forceinline__ void finish(const Sums (&sums)[tiles], const Slots& own, const Heap& heap,
                                       u64 channel, int first_time, u32 times, u16* output,
                                       u32* clamped, u64* squares) {
    const int lane = threadIdx.x % 32;
    u64 lane_key = 0;
    if (DITHER && lane < slots)
        lane_key = key_of_part(key_of_part(heap.key, channel), (u32)own.beams[lane]);
#pragma unroll
    for (int tile = 0; tile < tiles; tile++) {
        const int slot = tile * tile_beams + lane % 4;
        const int beam = own.beams[slot];
        const u64 key = DITHER ? __shfl_sync(~0u, lane_key, slot) : 0;
        u32 values[lane_times];
        u32 count = quantise(values, sums[tile], own.scales[slot], key, first_time, times);
        // Without any antenna there is no dither either. A branch would cost more than it saves.
        count = heap.antennas > 0 ? count : 0;
#pragma unroll
        for (int time = 0; time < lane_times; time++)
            values[time] = heap.antennas > 0 ? values[time] : 0;
        if (beam >= 0) store(output + (u64)beam * CHANNELS * SPECTRA + first_time, values, times);
        if (squares != nullptr && first_time == 0 && beam >= 0) {
            static_assert(lane_times == MEASURED_SPECTRA, "measured by the threads with the first spectra");
            u32 sum = 0;
#pragma unroll
            for (int time = 0; time < lane_times; time++)
                if (times >> time & 1) sum += sum_of_squares<8>(values[time] & 0xffff);
            if (sum > 0) atomicAdd(squares + beam, (u64)sum);
        }
        const u32 total = over_times(count);
        if (beam >= 0 && lane < 4 && total > 0) atomicAdd(clamped + beam, total);
    }
}

/// input: [heap][antenna][channel][spectrum][pol], or [heap][antenna][channel][pol][spectrum] if K_MAJOR, of
/// complex bytes or nibbles, followed by 256 readable bytes.
/// output: complex bytes [heap][beam][channel][spectrum].
/// weights: [channel][beam][antenna], divided by the scale of the beam's slot; Slots [group] follow.
/// heaps: [heap]. clamped: [heap][beam], squares: [heap][beam], sums of the measured values; the kernel adds to them.
/// first_spectrum, end_spectrum: range of spectra to compute, counted over all heaps.
/// Grid: GROUPS x CHANNELS blocks in x, the groups fastest; any number in y, which share the spectra.
/// Block: 32 WARPS threads. Dynamic shared memory: steps x tiles x 32 fragments.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    beamform(const u8* __restrict__ input, u16* __restrict__ output,
             const float2* __restrict__ weights, const Heap* __restrict__ heaps,
             u32* __restrict__ clamped, u64* __restrict__ squares, u64 first_channel,
             u32 first_spectrum, u32 end_spectrum) {
    extern __shared__ uint4 shared[];
    Fragment* fragments = reinterpret_cast<Fragment*>(shared);
    const u32 channel = blockIdx.x / GROUPS;
    const Slots* all_slots = (const Slots*)(weights + (u64)CHANNELS * BEAMS * ANTENNAS);
    const Slots& own = all_slots[blockIdx.x % GROUPS];
    prepare_weights(fragments, own, weights + (u64)channel * BEAMS * ANTENNAS);
    __syncthreads();

    // An item of a warp is 32 spectra of a heap; the items of a block are consecutive.
    const u32 lane = threadIdx.x % 32;
    const u32 warps = gridDim.y * WARPS;
    for (u32 item = blockIdx.y * WARPS + threadIdx.x / 32; item < HEAPS * chunks; item += warps) {
        const u32 heap = item / chunks;
        const int first_time = item % chunks * warp_times + lane / 4 * lane_times;
        const int begin = (int)first_spectrum - (int)(heap * SPECTRA);
        const int end = (int)end_spectrum - (int)(heap * SPECTRA);
        const int chunk = item % chunks * warp_times;
        if (chunk + warp_times <= begin || end <= chunk) continue;
        const u8* rows = input + heap * heap_bytes + (u64)channel * row_bytes +
                         first_time * (row_bytes / SPECTRA / runs);
        Sums sums[tiles] = {};
        add_antennas(sums, rows, heaps[heap], fragments + lane);
        finish(sums, own, heaps[heap], first_channel + channel, first_time,
               times_to_make(first_time, begin, end),
               output + ((u64)heap * BEAMS * CHANNELS + channel) * SPECTRA, clamped + heap * BEAMS,
               heap % MEASURED_HEAPS == 0 ? squares + heap * BEAMS : nullptr);
    }
}
