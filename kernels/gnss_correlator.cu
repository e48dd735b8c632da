// Correlates samples with the codes and carriers of satellites:
//   sums[e][s][a][l] = sum over n of x[a][n] exp(-2 pi i (carrier + n carrier_step)) c[(code + n code_step + tap_l) >> 48]
// A channel is one satellite over one epoch. All phases are whole numbers: code 16.48 entries, carrier 2^-64 turns.
//
// Parameters: `COMPONENT_BYTES` of a real or imaginary part (1, 2: integers; 4: floats), `ANTENNAS` and `ANTENNAS_AT_ONCE`,
// a divisor; `TAPS`; `SYSTEMS` of satellites; `EPOCHS`, `SATELLITES` and `SATELLITES_AT_ONCE` of a thread; `ROW`, samples of an antenna's row;
// `GROUP`, samples of a thread, a power of two; `SUFFIX`, whether no code changes twice within a group; `THREADS`, `BLOCKS`
// that a multiprocessor is to hold, `ROUNDS` of groups of a block, `WINDOW` bytes of each code that it needs.
//
// A block takes a run of samples and some satellites, grid: x run, y epoch and satellites, z antennas. Each thread
// multiplies a group of neighbouring samples by rotors that are the same for all groups, sums them with each tap's code, and turns
// the sums by the exact phase of the group's first sample: nothing drifts.
//
// With `SUFFIX` the sum of a tap is ca S_0 + (cb - ca) S_k, where S_k is the sum from sample k on, at which the code
// changes from ca to cb: the cost of taps does not grow with the samples. The S_k lie in the thread's own column of shared memory.
//
// Entries of a code are bytes >= 0. Taken as the bits of a float, v is the denormal v 2^-149, which the multiplier
// takes as it comes; samples are scaled by 2^90 to meet it. The offset that makes entries positive is taken off the sums.
#include "async_copy.cuh"
#include "types.cuh"

constexpr u32 VALUES = ANTENNAS_AT_ONCE * TAPS;
constexpr u32 WARPS = THREADS / 32;
/// Samples of a warp's round, and of a block.
constexpr u32 WARP_SAMPLES = 32 * GROUP;
constexpr u32 BLOCK_SAMPLES = THREADS * GROUP * ROUNDS;
constexpr u32 SAMPLE_BYTES = 2 * COMPONENT_BYTES;
/// Copies of 16 bytes that make a thread's group.
constexpr u32 COPIES = GROUP * SAMPLE_BYTES / 16;
constexpr float SAMPLE_SCALE = 1.2379400392853803e27f; // 2^90
/// What `SAMPLE_SCALE`, the bytes as denormals and the integers' places make together.
constexpr double SUM_SCALE =
    5.7646075230342349e17 / (COMPONENT_BYTES == 1 ? 16777216.0 : COMPONENT_BYTES == 2 ? 65536.0 : 1.0);
/// Bits of a code phase behind the point.
constexpr u32 FRACTION = 48;
constexpr u64 FRACTION_MASK = (1ull << FRACTION) - 1;

/// One satellite over one epoch; phases are those of the sample `first`.
struct Channel {
    u64 code, code_step, carrier, carrier_step;
    /// Where its code begins in the table of codes.
    u64 replica;
    /// Entries of its code, and its place in `Systems`.
    u32 length, system;
    double scale;
    /// A sample that lies on 16 bytes, in the row; samples from there to the epoch's first and to its end.
    u32 first, begin, end, unused;
    /// The tap that is behind all others, as a phase of the code.
    u64 last_tap;
};

/// What the satellites of a system have in common.
struct Systems {
    /// Offset of each tap against the last one.
    u64 taps[SYSTEMS][TAPS];
    /// What the entries of the codes are larger by.
    u32 offsets[SYSTEMS];
};

/// exp(-2 pi i phase / 2^64) of the upper 32 bits of a phase, by the hardware's functions.
__device__ __forceinline__ c32 rotor(u64 phase) {
    float angle = (float)(i32)(u32)(phase >> 32) * -1.4629180792671596e-9f;
    return {__cosf(angle), __sinf(angle)};
}

/// The same to the last bit of a float.
__device__ __forceinline__ c32 exact_rotor(u64 phase) {
    c32 turn;
    sincospif((float)((double)(i64)phase * -1.0842021724855044e-19), &turn.y, &turn.x);
    return turn;
}

/// Sample `k` of a group that was copied as it is; integers stay in the upper bits.
__device__ __forceinline__ c32 sample(const u32* words, u32 k) {
#if COMPONENT_BYTES == 1
    u32 word = words[k / 2] >> (16 * (k % 2));
    return {(float)(i32)(word << 24), (float)(i32)((word << 16) & 0xff000000u)};
#elif COMPONENT_BYTES == 2
    return {(float)(i32)(words[k] << 16), (float)(i32)(words[k] & 0xffff0000u)};
#else
    return {__uint_as_float(words[2 * k]), __uint_as_float(words[2 * k + 1])};
#endif
}

/// Copies 16 bytes past the first-level cache, of which only `present` are there; the others become zero.
__device__ __forceinline__ void copy16(u32 to, const void* from, u32 present) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(present)
                 : "memory");
}

/// Where copy `j` of lane `row`'s group lies, so that lanes side by side use different banks.
__device__ __forceinline__ u32 place(u32 row, u32 j) {
    return COPIES > 1 ? row * COPIES + (j ^ (row / (8 / COPIES) & (COPIES - 1))) : row;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    gnss_correlate(const u8* __restrict__ samples, const u8* __restrict__ replicas,
                   const Channel* __restrict__ channels, const __grid_constant__ Systems systems,
                   float* __restrict__ partial, u32* __restrict__ tickets,
                   c32* __restrict__ sums) {
    constexpr u32 S = SATELLITES_AT_ONCE, A = ANTENNAS_AT_ONCE, G = GROUP;
    constexpr u32 SETS = (SATELLITES + S - 1) / S;
    extern __shared__ __align__(16) u8 shared[];
    u8* windows = shared;
    uint4* staged = (uint4*)(shared + S * WINDOW);
    c32* suffixes = (c32*)(staged + 2 * A * COPIES * THREADS);
    __shared__ c32 rotors[S * G];
    __shared__ float reduced[2 * S * VALUES][WARPS];
    __shared__ bool is_last;

    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const u32 epoch = blockIdx.y / SETS, set = blockIdx.y % SETS;
    const u32 antenna = blockIdx.z * A;
    // The last satellite stands in for those that there are not.
    auto channel = [&](u32 s) -> const Channel& {
        return channels[epoch * SATELLITES + min(set * S + s, SATELLITES - 1u)];
    };
    const u32 block_first = blockIdx.x * BLOCK_SAMPLES;
    const u32 begin = channel(0).begin, end = channel(0).end, row_first = channel(0).first;

    u64 code[S], code_step[S], carrier[S], carrier_step[S];
    u32 system[S];
    c32 acc[S][A][TAPS];
#pragma unroll
    for (u32 s = 0; s < S; s++) {
        const Channel& c = channel(s);
        system[s] = SYSTEMS == 1 ? 0 : c.system;
        code_step[s] = c.code_step;
        carrier_step[s] = c.carrier_step;
        carrier[s] = c.carrier + block_first * c.carrier_step;
        // The block's first entry of the tap that is behind: 128 bits, then modulo the code's length.
        u64 low = block_first * c.code_step, high = __umul64hi(block_first, c.code_step);
        u64 entries = (high << (64 - FRACTION)) + (low >> FRACTION);
        u64 fraction = (low & FRACTION_MASK) + (c.code & FRACTION_MASK) + (c.last_tap & FRACTION_MASK);
        entries += (c.code >> FRACTION) + (c.last_tap >> FRACTION) + (fraction >> FRACTION);
        u32 entry = (u32)(entries % c.length);
        // Whole vectors are copied: what comes before the entry is skipped.
        u32 skipped = entry & 15;
        code[s] = (fraction & FRACTION_MASK) + ((u64)skipped << FRACTION);
        const uint4* from = (const uint4*)(replicas + c.replica + (entry - skipped));
        uint4* to = (uint4*)(windows + s * WINDOW);
        for (u32 i = thread; i < WINDOW / 16; i += THREADS) to[i] = __ldg(from + i);
#pragma unroll
        for (u32 a = 0; a < A; a++)
#pragma unroll
            for (u32 l = 0; l < TAPS; l++) acc[s][a][l] = {0, 0};
    }
    for (u32 i = thread; i < S * G; i += THREADS)
        rotors[i] = SAMPLE_SCALE * exact_rotor(channel(i / G).carrier_step * (i % G));
#if SUFFIX
    u32 reciprocal[S], shift[S];
#pragma unroll
    for (u32 s = 0; s < S; s++) {
        // floor(2^(32 + b) / step), b = floor(log2 step), of the step's upper 32 bits rounded up.
        u32 step = (u32)(code_step[s] >> 16) + 1;
        shift[s] = 31 - __clz(step);
        reciprocal[s] = (u32)min(0xffffffffull, (1ull << (32 + shift[s])) / step);
    }
#pragma unroll
    for (u32 a = 0; a < A; a++) suffixes[(a * (G + 1) + G) * THREADS + thread] = {0, 0};
#endif

    // A warp copies for itself: round r+1 comes in while r is worked on.
    auto fetch = [&](u32 round) {
        u32 at = block_first + round * THREADS * G + warp * WARP_SAMPLES;
#pragma unroll
        for (u32 a = 0; a < A; a++) {
            u64 row = (u64)(antenna + a) * ROW;
            const u8* from = samples + (row + row_first + at) * SAMPLE_BYTES;
            // What is left of the row: nothing beyond it is touched.
            i64 left = ((i64)ROW - row_first - at) * SAMPLE_BYTES;
#pragma unroll
            for (u32 i = 0; i < COPIES; i++) {
                u32 copy = i * 32 + lane;
                i64 present = min(max(left - (i64)copy * 16, 0ll), 16ll);
                u32 to = (round % 2 * A + a) * COPIES * THREADS + warp * 32 * COPIES;
                const u8* source = present > 0 ? from + copy * 16 : samples;
                copy16(shared_address(staged + to + place(copy / COPIES, copy % COPIES)), source,
                       (u32)present);
            }
        }
        cp_async_commit();
    };
    auto is_due = [&](u32 round) {
        return round < ROUNDS && block_first + round * THREADS * G + warp * WARP_SAMPLES < end;
    };
    if (is_due(0)) fetch(0);
    __syncthreads();

    for (u32 round = 0; is_due(round); round++) {
        // From the block's first sample.
        const u32 warp_at = round * THREADS * G + warp * WARP_SAMPLES, at = warp_at + lane * G;
        cp_async_wait<0>();
        __syncwarp();
        c32 x[A][G];
#pragma unroll
        for (u32 a = 0; a < A; a++) {
            u32 words[COPIES * 4];
            u32 from = (round % 2 * A + a) * COPIES * THREADS + warp * 32 * COPIES;
#pragma unroll
            for (u32 j = 0; j < COPIES; j++)
                *reinterpret_cast<uint4*>(words + 4 * j) = staged[from + place(lane, j)];
#pragma unroll
            for (u32 k = 0; k < G; k++) x[a][k] = sample(words, k);
        }
        if (is_due(round + 1)) fetch(round + 1);
        u32 first = block_first + warp_at;
        if (first < begin || first + WARP_SAMPLES > end) {
#pragma unroll
            for (u32 k = 0; k < G; k++) {
                u32 n = block_first + at + k;
                if (n < begin || n >= end) {
#pragma unroll
                    for (u32 a = 0; a < A; a++) x[a][k] = {0, 0};
                }
            }
        }
#pragma unroll
        for (u32 s = 0; s < S; s++) {
            const c32 turn = rotor(carrier[s] + at * carrier_step[s]);
            const u64 phase = code[s] + at * code_step[s];
            const u8* window = windows + s * WINDOW;
            const u64* taps = systems.taps[system[s]];
            const float offset = __uint_as_float(systems.offsets[system[s]]);
#if SUFFIX
            c32 total[A];
            c32* column = suffixes + thread;
#pragma unroll
            for (u32 a = 0; a < A; a++) {
                c32 sum = {0, 0};
#pragma unroll
                for (u32 k = G - 1; k > 0; k--) {
                    sum = fma(x[a][k], rotors[s * G + k], sum);
                    column[(a * (G + 1) + k) * THREADS] = sum;
                }
                total[a] = sum + SAMPLE_SCALE * x[a][0];
            }
#pragma unroll
            for (u32 l = 0; l < TAPS; l++) {
                u64 p = phase + taps[l];
                const u8* entry = window + (u32)(p >> FRACTION);
                float ca = __uint_as_float((u32)entry[0]);
                float change = __uint_as_float((u32)entry[1]) - ca;
                ca -= offset;
                // The first sample beyond the entry: floor((2^48 - 1 - fraction) / step), or one less, and one.
                u64 left = ~p & FRACTION_MASK;
                u32 k = __umulhi((u32)(left >> 16), reciprocal[s]) >> shift[s];
                k = min(k, G);
                k += (k + 1) * code_step[s] <= left;
                k = min(k + 1, G);
#pragma unroll
                for (u32 a = 0; a < A; a++) {
                    c32 later = column[(a * (G + 1) + k) * THREADS];
                    c32 sum = ca * total[a] + change * later;
                    acc[s][a][l] = fma(sum, turn, acc[s][a][l]);
                }
            }
#else
            c32 mixed[A][G], total[A];
#pragma unroll
            for (u32 a = 0; a < A; a++) {
                total[a] = {0, 0};
#pragma unroll
                for (u32 k = 0; k < G; k++) {
                    mixed[a][k] = k == 0 ? SAMPLE_SCALE * x[a][k] : x[a][k] * rotors[s * G + k];
                    total[a] = total[a] + mixed[a][k];
                }
                total[a] = -offset * total[a];
            }
#pragma unroll
            for (u32 l = 0; l < TAPS; l++) {
                u64 p = phase + taps[l];
                c32 sum[A];
#pragma unroll
                for (u32 a = 0; a < A; a++) sum[a] = total[a];
#pragma unroll
                for (u32 k = 0; k < G; k++) {
                    float value = __uint_as_float((u32)window[(u32)(p >> FRACTION)]);
                    p += code_step[s];
#pragma unroll
                    for (u32 a = 0; a < A; a++)
                        sum[a] = {fmaf(value, mixed[a][k].x, sum[a].x), fmaf(value, mixed[a][k].y, sum[a].y)};
                }
#pragma unroll
                for (u32 a = 0; a < A; a++) acc[s][a][l] = fma(sum[a], turn, acc[s][a][l]);
            }
#endif
        }
    }

    // Over the lanes, the warps and, in double precision, the blocks, always in the same order.
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
    for (u32 value = thread; value < 2 * S * VALUES; value += THREADS) {
        float sum = 0;
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) sum += reduced[value][w];
        if (blocks == 1) {
            write(value, sum);
        } else {
            __stcg(partial + ((u64)task * 2 * S * VALUES + value) * blocks + blockIdx.x, sum);
            __threadfence();
        }
    }
    if (blocks == 1) return;
    __syncthreads();
    if (thread == 0) is_last = atomicAdd(tickets + task, 1) == blocks - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    for (u32 value = warp; value < 2 * S * VALUES; value += WARPS) {
        const float* parts = partial + ((u64)task * 2 * S * VALUES + value) * blocks;
        double sum = 0;
        for (u32 i = lane; i < blocks; i += 32) sum += __ldcg(parts + i);
#pragma unroll
        for (u32 half = 16; half; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
        if (lane == 0) write(value, sum);
    }
    // For the next launch.
    if (thread == 0) tickets[task] = 0;
}
