// Correlates samples with the codes and carriers of satellites:
//   sums[e][s][a][l] = sum over n of x[a][n] exp(-2 pi i (carrier + n carrier_step)) c[(code + n code_step + tap_l) >> 43]
// A channel is one satellite over one epoch. All phases are integers: code phases in 21.43 fixed point, in entries
// of the code, and carrier phases in units of 2^-64 turns.
//
// Macros: `COMPONENT_BYTES` of a real or imaginary part (1, 2: integers; 4: floats); `IS_REAL`, 1 for real samples;
// `CONJUGATE`, 1 to conjugate complex ones; `ANTENNAS` and
// `ANTENNAS_AT_ONCE`, a divisor; `TAPS`, the number of correlator taps; for each of the `SYSTEMS` of satellites
// `TAP_PHASES`, the distance of each correlator tap before the last one, and `OFFSETS`, the offset of the entries of
// its codes; `EPOCHS`, `SATELLITES` and `SATELLITES_AT_ONCE` per thread; `ROW`, samples per row of an antenna;
// `GROUP`, samples per thread, a power of two; `SUFFIX`, 1 if no code changes twice within a group; `THREADS`;
// `BLOCKS`, resident blocks per multiprocessor; `ROUNDS` of groups per block; `WINDOW`, bytes of each code that a
// block needs; `CHANNELS_AS_ARGUMENT`, 1 if the channels are an argument of the launch instead of an array in memory.
//
// A block processes a run of samples and some satellites; grid: x runs, y epochs and satellites, z antennas. Each
// thread multiplies a group of samples by rotors that are the same for all groups, sums the products with the code
// of each correlator tap, and rotates the sums by the exact phase of the group's first sample, so that no error
// accumulates. Correlator taps that are whole entries apart share the phase.
//
// With `SUFFIX` a group is adjacent samples, and the sum of a correlator tap is ca S_0 + (cb - ca) S_k, where S_k is
// the sum from sample k on, at which the code changes from ca to cb. The cost of correlator taps then does not grow
// with the number of samples. The S_k are in the thread's own column of shared memory. Without `SUFFIX` the threads
// of a warp have adjacent samples, whose entries are in few banks.
//
// Entries of a code are bytes >= 0. As the bits of a float, v is the subnormal number v 2^-149, which the multiplier
// accepts directly; samples are scaled by 2^90 to compensate. The offset that makes entries positive is subtracted
// from the sums.
#include "async_copy.cuh"
#include "gnss_samples.cuh"
#include "gnss_signals.cuh"
#include "types.cuh"

constexpr u32 VALUES = ANTENNAS_AT_ONCE * TAPS;
constexpr u32 WARPS = THREADS / 32;
/// Sums of a block, real and imaginary parts.
constexpr u32 SUMS = 2 * SATELLITES_AT_ONCE * VALUES;
static_assert(SUMS <= THREADS, "each sum has a thread");
/// Samples per round of a warp, and per block.
constexpr u32 WARP_SAMPLES = 32 * GROUP;
constexpr u32 BLOCK_SAMPLES = THREADS * GROUP * ROUNDS;
/// Distance between the samples of a thread: with `SUFFIX` they are adjacent; otherwise those of adjacent threads
/// are, whose entries are in few banks.
constexpr u32 STRIDE = SUFFIX ? 1 : 32;
constexpr u32 LANE_STRIDE = SUFFIX ? GROUP : 1;
constexpr float SAMPLE_SCALE = 1.2379400392853803e27f; // 2^90
/// Combined scale of `SAMPLE_SCALE`, the bytes as subnormal numbers, and the position of the integers' bits.
constexpr double SUM_SCALE =
    5.7646075230342349e17 / (COMPONENT_BYTES == 1 ? 16777216.0 : COMPONENT_BYTES == 2 ? 65536.0 : 1.0);

/// Adds to a counter; previous writes of the block are visible to the block that gets the last count.
__device__ __forceinline__ u32 count(u32* counter) {
    u32 before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    gnss_correlate(const u8* __restrict__ samples, const u8* __restrict__ replicas,
#if CHANNELS_AS_ARGUMENT
                   const __grid_constant__ Channels table,
#else
                   const Channel* __restrict__ table,
#endif
                   float* __restrict__ partial, u32* __restrict__ tickets, c32* __restrict__ sums) {
    constexpr u32 S = SATELLITES_AT_ONCE, A = ANTENNAS_AT_ONCE, G = GROUP;
    constexpr u32 SETS = (SATELLITES + S - 1) / S;
    extern __shared__ __align__(16) u8 shared[];
    u8* windows = shared;
    uint4* staged = (uint4*)(shared + S * WINDOW);
    c32* suffixes = (c32*)(staged + A * COPIES * THREADS);
    __shared__ __align__(16) c32 rotors[S * G];
    __shared__ Signal signals[S];
    __shared__ float reduced[SUMS][WARPS];
    __shared__ double totals[THREADS];
    __shared__ bool is_last;

    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const u32 epoch = blockIdx.y / SETS, set = blockIdx.y % SETS;
    const u32 antenna = blockIdx.z * A;
    // Missing satellites are replaced by the last one.
    auto channel = [&](u32 s) -> const Channel& {
        u32 number = epoch * SATELLITES + min(set * S + s, SATELLITES - 1u);
#if CHANNELS_AS_ARGUMENT
        return table.list[number];
#else
        return table[number];
#endif
    };
    const u32 block_first = blockIdx.x * BLOCK_SAMPLES;
    const u32 begin = channel(0).begin, end = channel(0).end, row_first = channel(0).first;

    // Each warp copies its own samples: the next round is copied while one is processed.
    auto fetch = [&](u32 round) {
        u32 at = block_first + round * THREADS * G + warp * WARP_SAMPLES;
        u32 to = shared_address(staged + warp * 32 * COPIES);
#pragma unroll
        for (u32 a = 0; a < A; a++) {
            const u8* row = samples + ((u64)(antenna + a) * ROW + row_first + at) * SAMPLE_BYTES;
            // Remaining samples of the row; no memory beyond them is accessed.
            u32 left = ROW - min(row_first + at, (u32)ROW);
#pragma unroll
            for (u32 i = 0; i < COPIES; i++) {
                u32 copy = i * 32 + lane;
                u32 place_at = to + 16 * (a * COPIES * THREADS + place(copy / COPIES, copy % COPIES));
                if (left >= WARP_SAMPLES) {
                    cp_async16(place_at, row + copy * 16, true);
                } else {
                    u32 bytes = left * SAMPLE_BYTES;
                    u32 present = bytes > copy * 16 ? min(bytes - copy * 16, 16u) : 0;
                    copy16(place_at, present ? row + copy * 16 : samples, present);
                }
            }
        }
        cp_async_commit();
    };
    auto is_due = [&](u32 round) {
        return round < ROUNDS && block_first + round * THREADS * G + warp * WARP_SAMPLES < end;
    };
    if (is_due(0)) fetch(0);

    if (thread < S) {
        const Channel& c = channel(thread);
        // The block's first entry for the last correlator tap: in 128 bits, then modulo the length of the code.
        u64 low = block_first * c.code_step, high = __umul64hi(block_first, c.code_step);
        u64 entries = (high << (64 - FRACTION)) + (low >> FRACTION);
        u64 fraction = (low & FRACTION_MASK) + (c.code & FRACTION_MASK) + (c.last_tap & FRACTION_MASK);
        entries += (c.code >> FRACTION) + (c.last_tap >> FRACTION) + (fraction >> FRACTION);
        u32 entry = (u32)(entries % c.length);
        // Whole vectors are copied; bytes before the entry are skipped.
        u32 skipped = entry & 15;
        u32 step = (u32)(c.code_step >> (FRACTION - 32)) + 1, shift = 31 - __clz(step);
        signals[thread] = {
            (fraction & FRACTION_MASK) + ((u64)skipped << FRACTION),
            c.code_step,
            c.carrier + block_first * c.carrier_step,
            c.carrier_step,
            (u32)min(0xffffffffull, (1ull << (32 + shift)) / step),
            shift,
            SYSTEMS == 1 ? 0 : c.system,
            (u32)c.replica + entry - skipped,
        };
    }
    for (u32 i = thread; i < S * G; i += THREADS)
        rotors[i] = SAMPLE_SCALE * exact_rotor(channel(i / G).carrier_step * (i % G * STRIDE));
#if SUFFIX
#pragma unroll
    for (u32 a = 0; a < A; a++) suffixes[(a * (G + 1) + G) * THREADS + thread] = {0, 0};
#endif
    __syncthreads();
    for (u32 i = thread; i < S * (WINDOW / 16); i += THREADS) {
        u32 s = i / (WINDOW / 16);
        const uint4* from = (const uint4*)(replicas + signals[s].window);
        ((uint4*)windows)[i] = __ldg(from + i % (WINDOW / 16));
    }
    c32 acc[S][A][TAPS];
#pragma unroll
    for (u32 s = 0; s < S; s++)
#pragma unroll
        for (u32 a = 0; a < A; a++)
#pragma unroll
            for (u32 l = 0; l < TAPS; l++) acc[s][a][l] = {0, 0};
    __syncthreads();

#pragma unroll 1
    for (u32 round = 0; is_due(round); round++) {
        // Phases relative to the block's first sample.
        const u32 warp_at = round * THREADS * G + warp * WARP_SAMPLES, at = warp_at + lane * LANE_STRIDE;
        cp_async_wait<0>();
        __syncwarp();
        c32 x[A][G];
#pragma unroll
        for (u32 a = 0; a < A; a++) {
            const uint4* from = staged + (a * THREADS + warp * 32) * COPIES;
#if SUFFIX
            u32 words[COPIES * 4];
#pragma unroll
            for (u32 j = 0; j < COPIES; j++)
                *reinterpret_cast<uint4*>(words + 4 * j) = from[place(lane, j)];
#pragma unroll
            for (u32 k = 0; k < G; k++) x[a][k] = sample(words, k);
#else
#pragma unroll
            for (u32 k = 0; k < G; k++) x[a][k] = sample_at((const u8*)from + (k * 32 + lane) * SAMPLE_BYTES);
#endif
        }
        // All threads have read.
        __syncwarp();
        if (is_due(round + 1)) fetch(round + 1);
        u32 first = block_first + warp_at;
        if (first < begin || first + WARP_SAMPLES > end) {
#pragma unroll
            for (u32 k = 0; k < G; k++) {
                u32 n = block_first + at + k * STRIDE;
                if (n < begin || n >= end) {
#pragma unroll
                    for (u32 a = 0; a < A; a++) x[a][k] = {0, 0};
                }
            }
        }
#pragma unroll
        for (u32 s = 0; s < S; s++) {
            const Signal signal = signals[s];
            const c32 turn = rotor(signal.carrier + at * signal.carrier_step);
            const u64 phase = signal.code + at * signal.code_step;
            const u8* window = windows + s * WINDOW;
            const u64* taps = AHEAD[signal.system];
            const float offset = __uint_as_float(LARGER[signal.system]);
            // Two at a time.
            const float4* pairs = (const float4*)(rotors + s * G);
#if SUFFIX
            c32 total[A], sum[A];
            c32* column = suffixes + thread;
#pragma unroll
            for (u32 a = 0; a < A; a++) sum[a] = {0, 0};
#pragma unroll
            for (u32 pair = G / 2; pair-- > 0;) {
                const float4 two = pairs[pair];
#pragma unroll
                for (u32 a = 0; a < A; a++) {
                    sum[a] = fma(x[a][2 * pair + 1], {two.z, two.w}, sum[a]);
                    column[(a * (G + 1) + 2 * pair + 1) * THREADS] = sum[a];
                    if (pair == 0) {
                        total[a] = sum[a] + SAMPLE_SCALE * x[a][0];
                    } else {
                        sum[a] = fma(x[a][2 * pair], {two.x, two.y}, sum[a]);
                        column[(a * (G + 1) + 2 * pair) * THREADS] = sum[a];
                    }
                }
            }
            c32 later[TAPS][A];
#pragma unroll
            for (u32 l = 0; l < TAPS; l++) {
                const u64 p = phase + taps[l];
                const u8* entry = window + (u32)(p >> FRACTION);
                float ca = __uint_as_float((u32)entry[0]);
                float change = __uint_as_float((u32)entry[1]) - ca;
                ca -= offset;
                if (LEADERS.of[l] == l) {
                    // First sample beyond the entry: floor((2^FRACTION - 1 - fraction) / step) + 1, or one less.
                    u32 k = (__umulhi(~(u32)(p >> (FRACTION - 32)), signal.reciprocal) >> signal.shift) + 1;
                    u64 there = (p & FRACTION_MASK) + k * signal.code_step;
                    k = min(k + 1 - (u32)(there >> FRACTION), G);
#pragma unroll
                    for (u32 a = 0; a < A; a++) later[l][a] = column[(a * (G + 1) + k) * THREADS];
                }
#pragma unroll
                for (u32 a = 0; a < A; a++) {
                    c32 of_tap = ca * total[a] + change * later[LEADERS.of[l]][a];
                    acc[s][a][l] = fma(of_tap, turn, acc[s][a][l]);
                }
            }
#else
            c32 mixed[A][G], sum[TAPS][A];
#pragma unroll
            for (u32 a = 0; a < A; a++) {
                c32 total = {0, 0};
#pragma unroll
                for (u32 pair = 0; pair < G / 2; pair++) {
                    const float4 two = pairs[pair];
                    mixed[a][2 * pair] = pair == 0 ? SAMPLE_SCALE * x[a][0] : x[a][2 * pair] * c32{two.x, two.y};
                    mixed[a][2 * pair + 1] = x[a][2 * pair + 1] * c32{two.z, two.w};
                    total = total + mixed[a][2 * pair] + mixed[a][2 * pair + 1];
                }
                total = -offset * total;
#pragma unroll
                for (u32 l = 0; l < TAPS; l++) sum[l][a] = total;
            }
#pragma unroll
            for (u32 m = 0; m < TAPS; m++) {
                if (LEADERS.of[m] != m) continue;
                u64 p = phase + taps[m];
#pragma unroll
                for (u32 k = 0; k < G; k++) {
                    const u8* entry = window + (u32)(p >> FRACTION);
#pragma unroll
                    for (u32 l = m; l < TAPS; l++) {
                        if (LEADERS.of[l] != m) continue;
                        float value = __uint_as_float((u32)entry[(i32)((i64)(taps[l] - taps[m]) >> FRACTION)]);
#pragma unroll
                        for (u32 a = 0; a < A; a++)
                            sum[l][a] = {fmaf(value, mixed[a][k].x, sum[l][a].x),
                                         fmaf(value, mixed[a][k].y, sum[l][a].y)};
                    }
                    p += STRIDE * signal.code_step;
                }
            }
#pragma unroll
            for (u32 l = 0; l < TAPS; l++)
#pragma unroll
                for (u32 a = 0; a < A; a++) acc[s][a][l] = fma(sum[l][a], turn, acc[s][a][l]);
#endif
        }
    }

    // Sums over the threads, the warps and, in double precision, the blocks, always in the same order.
#pragma unroll
    for (u32 s = 0; s < S; s++)
#pragma unroll
        for (u32 a = 0; a < A; a++)
#pragma unroll
            for (u32 l = 0; l < TAPS; l++) {
                c32 sum = acc[s][a][l];
#pragma unroll
                for (u32 half = 16; half; half /= 2)
                    sum = sum + c32{__shfl_xor_sync(~0u, sum.x, half), __shfl_xor_sync(~0u, sum.y, half)};
                u32 value = 2 * (s * VALUES + a * TAPS + l);
                if (lane == 0) {
                    reduced[value][warp] = sum.x;
                    reduced[value + 1][warp] = sum.y;
                }
            }
    __syncthreads();
    float* outputs = (float*)sums;
    auto write = [&](u32 value, double sum) {
        u32 s = value / (2 * VALUES), satellite = set * S + s;
        if (satellite >= SATELLITES) return;
        u64 row = (u64)(epoch * SATELLITES + satellite) * ANTENNAS + antenna;
        outputs[row * 2 * TAPS + value % (2 * VALUES)] = (float)(sum * channel(s).scale * SUM_SCALE);
    };
    const u32 blocks = gridDim.x, task = blockIdx.z * gridDim.y + blockIdx.y;
    float* parts = partial + (u64)task * blocks * SUMS;
    if (thread < SUMS) {
        float sum = 0;
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) sum += reduced[thread][w];
        if (blocks == 1)
            write(thread, sum);
        else
            __stcg(parts + blockIdx.x * SUMS + thread, sum);
    }
    if (blocks == 1) return;
    __syncthreads();
    if (thread == 0) is_last = count(tickets + task) == blocks - 1;
    __syncthreads();
    if (!is_last) return;
    // The threads share the blocks, so that many loads are in flight.
    constexpr u32 SHARES = THREADS / SUMS;
    double total = 0;
    if (thread < SHARES * SUMS) {
#pragma unroll 8
        for (u32 i = thread / SUMS; i < blocks; i += SHARES) total += __ldcg(parts + i * SUMS + thread % SUMS);
    }
    totals[thread] = total;
    __syncthreads();
    if (thread < SUMS) {
        total = 0;
#pragma unroll
        for (u32 share = 0; share < SHARES; share++) total += totals[share * SUMS + thread];
        write(thread, total);
    }
    // Resets the counter for the next launch.
    if (thread == 0) tickets[task] = 0;
}
