// Beams of cylinders directly in single precision, for comparison with the tensor-core implementations.
//
// Macros: `SPECTRA`, `CHANNELS`, `POLS`, `CYLINDERS`, `FEEDS`, sizes of the input; `BITS` of each part of its
// values, 4, 8, or 16 for half precision; `ROWS`, rows of beams; `EAST_WEST`, 1 if a row is a weighted sum of all
// cylinders, 0 if it is one cylinder; `POINTS` of the transform of feeds, a power of two, 0 without it; `ROW_BEAMS`;
// `UNITS_IN_TIME`, `UNITS_IN_FREQUENCY`, validity units of the frame; `HALF_PRECISION`, 1 for voltages in half precision;
// `FINE`, spectra per transform to narrow channels, a power of two; `SUM_CHANNELS`, `SUM_SPECTRA`, narrow channels
// and transforms per sum of intensities, 0 without sums.
#if !defined(SPECTRA) || !defined(CHANNELS) || !defined(POLS) || !defined(CYLINDERS) || !defined(FEEDS) || \
    !defined(BITS) || !defined(ROWS) || !defined(EAST_WEST) || !defined(POINTS) || !defined(ROW_BEAMS) ||  \
    !defined(UNITS_IN_TIME) || !defined(UNITS_IN_FREQUENCY) || !defined(HALF_PRECISION) || !defined(FINE) ||       \
    !defined(SUM_CHANNELS) || !defined(SUM_SPECTRA)
#error "frb_fp32.cu needs its sizes and stages"
#endif

#include "half_matrix.cuh"
#include "short_fft.cuh"

constexpr int THREADS = 256;
/// Cylinders per row of beams.
constexpr int COMBINED = EAST_WEST ? CYLINDERS : 1;
constexpr int BEAMS = ROWS * ROW_BEAMS;
/// Whether there are stages after the transform of feeds.
constexpr bool LATER = FINE > 1 || SUM_SPECTRA > 0;

/// Elements of shared memory per column of `length` values.
__device__ __forceinline__ constexpr int padded(int length) { return length + length / 8; }

/// Place of value n of a column. Every eighth value is followed by a gap, so that strides of eight use different
/// banks.
template <int COLUMNS> __device__ __forceinline__ int place_of(int n, int column) {
    return padded(n) * COLUMNS + column;
}

/// Transforms RADIX values with exp(-2 pi i k n / RADIX).
template <int RADIX> __device__ __forceinline__ void transform_short(c32* v) {
    if constexpr (RADIX == 2) {
        const c32 sum = v[0] + v[1];
        v[1] = v[0] - v[1];
        v[0] = sum;
    } else {
        short_fft<RADIX>(v);
    }
}

/// Transforms each column of `data` [LENGTH][COLUMNS], at place_of(), with exp(-2 pi i k n / LENGTH), in passes of
/// radix 8 and a last one of 4 or 2, which preserve the order (Stockham). DONE is the product of the previous
/// radices. All columns must have been written before.
///
/// roots  [LENGTH]: exp(-2 pi i n / LENGTH)
template <int LENGTH, int COLUMNS, int DONE = 1>
__device__ __forceinline__ void transform_columns(c32* data, const c32* __restrict__ roots) {
    if constexpr (DONE < LENGTH) {
        constexpr int LEFT = LENGTH / DONE, RADIX = LEFT >= 8 ? 8 : LEFT;
        constexpr int SHORT = LENGTH / RADIX * COLUMNS, EACH = (SHORT + THREADS - 1) / THREADS;
        c32 v[EACH][RADIX];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int i = threadIdx.x + e * THREADS, n = i / COLUMNS, column = i % COLUMNS;
            if (SHORT % THREADS != 0 && i >= SHORT) break;
#pragma unroll
            for (int r = 0; r < RADIX; r++) v[e][r] = data[place_of<COLUMNS>(n + r * (LENGTH / RADIX), column)];
            if constexpr (DONE > 1) {
                const c32 root = __ldg(roots + n % DONE * (LENGTH / (DONE * RADIX)));
                c32 power = root;
#pragma unroll
                for (int r = 1; r < RADIX; r++) {
                    v[e][r] = power * v[e][r];
                    power = root * power;
                }
            }
            transform_short<RADIX>(v[e]);
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int i = threadIdx.x + e * THREADS, n = i / COLUMNS, column = i % COLUMNS;
            if (SHORT % THREADS != 0 && i >= SHORT) break;
            const int first = n / DONE * DONE * RADIX + n % DONE;
#pragma unroll
            for (int r = 0; r < RADIX; r++)
                data[place_of<COLUMNS>(first + r * DONE, column)] = v[e][fft_place<RADIX>(r)];
        }
        __syncthreads();
        transform_columns<LENGTH, COLUMNS, DONE * RADIX>(data, roots);
    }
}

/// Value `index` of the input.
__device__ __forceinline__ c32 value_of(const u8* __restrict__ input, u64 index) {
    if constexpr (BITS == 4) {
        const i32 both = (i8)input[index];
        return {(float)(both >> 4), (float)(both << 28 >> 28)};
    } else if constexpr (BITS == 8) {
        const char2 both = ((const char2*)input)[index];
        return {(float)both.x, (float)both.y};
    } else {
        return from_halves(((const u32*)input)[index]);
    }
}

__device__ __forceinline__ bool is_there(const u32* __restrict__ units, u32 spectrum, u32 channel) {
    return units[spectrum / (SPECTRA / UNITS_IN_TIME) * UNITS_IN_FREQUENCY +
                 channel / (CHANNELS / UNITS_IN_FREQUENCY)] != 0;
}

__device__ __forceinline__ void put_voltage(u8* output, u64 at, c32 value) {
    if constexpr (HALF_PRECISION) ((u32*)output)[at] = halves(value.x, value.y);
    else ((c32*)output)[at] = value;
}

/// Points per row, and rows that a thread block processes together.
constexpr int LENGTH = POINTS ? POINTS : FEEDS;
constexpr int MOST_TOGETHER = LENGTH < 2048 ? 2048 / LENGTH : 1;
constexpr int TOGETHER = ROWS < MOST_TOGETHER ? ROWS : MOST_TOGETHER;

/// Computes the beams of each spectrum.
///
/// input    [spectrum][channel][pol][cylinder][feed]
/// output   [spectrum][channel][pol][row][beam]: voltages in the output type, or in single precision if stages follow
/// weights  [channel][pol][row][cylinder of a row][feed]
/// map      [channel][beam]: point of the transform
/// roots    [point]: exp(-2 pi i n / POINTS)
/// units    [time][frequency]: 0 where input is missing
/// from     index of the first line [spectrum][channel][pol]
///
/// Grid: lines, ROWS / TOGETHER; blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    frb_rows(const u8* __restrict__ input, u8* __restrict__ output, const c32* __restrict__ weights,
             const u32* __restrict__ map, const c32* __restrict__ roots, const u32* __restrict__ units, u32 from) {
    __shared__ c32 data[padded(LENGTH) * TOGETHER];
    const u32 line = from + blockIdx.x, first_row = blockIdx.y * TOGETHER;
    const u32 channel = line / POLS % CHANNELS, pol = line % POLS;
    const bool there = is_there(units, line / (CHANNELS * POLS), channel);
    weights += (u64)(channel * POLS + pol) * ROWS * (COMBINED * FEEDS);
    for (int i = threadIdx.x; i < LENGTH * TOGETHER; i += THREADS) {
        const int n = i % LENGTH, row = first_row + i / LENGTH;
        c32 sum = {0.0f, 0.0f};
        if (there && n < FEEDS && row < ROWS) {
            const u64 first = (u64)line * (CYLINDERS * FEEDS) + (EAST_WEST ? 0 : row * FEEDS) + n;
            for (int k = 0; k < COMBINED; k++)
                sum = fma(weights[(row * COMBINED + k) * FEEDS + n], value_of(input, first + k * FEEDS), sum);
        }
        // The transform has the opposite sign in its exponent, so it transforms conjugates and conjugates the result.
        data[place_of<TOGETHER>(n, i / LENGTH)] = POINTS ? conj(sum) : sum;
    }
    __syncthreads();
    if constexpr (POINTS > 1) transform_columns<LENGTH, TOGETHER>(data, roots);
    const u64 to = ((u64)line * ROWS + first_row) * ROW_BEAMS;
    for (int i = threadIdx.x; i < ROW_BEAMS * TOGETHER; i += THREADS) {
        if (ROWS % TOGETHER != 0 && first_row + i / ROW_BEAMS >= ROWS) return;
        const c32 point = data[place_of<TOGETHER>(map[channel * ROW_BEAMS + i % ROW_BEAMS], i / ROW_BEAMS)];
        const c32 value = POINTS ? conj(point) : point;
        if constexpr (LATER) ((c32*)output)[to + i] = value;
        else put_voltage(output, to + i, value);
    }
}

/// Beams per thread block.
constexpr int TILE = FINE > 64 ? 16 : 32;

/// Computes narrow channels and sums.
///
/// beams   [spectrum][channel][pol][beam of all rows]
/// output  sums [spectrum][narrow channel][beam], or voltages [spectrum][narrow channel][pol][beam]
/// roots   [spectrum of a transform]: exp(-2 pi i n / FINE)
/// units   as above
///
/// Grid: beams / TILE, CHANNELS, spectra of the output; blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    frb_times(const c32* __restrict__ beams, u8* __restrict__ output, const c32* __restrict__ roots,
              const u32* __restrict__ units) {
    constexpr int TRANSFORMS = SUM_SPECTRA ? SUM_SPECTRA : 1;
    constexpr int MERGED = SUM_CHANNELS ? SUM_CHANNELS : 1, NARROW = FINE / MERGED;
    __shared__ c32 data[padded(FINE) * TILE];
    __shared__ float sums[NARROW * TILE];
    const u32 first_beam = blockIdx.x * TILE, channel = blockIdx.y;
    for (int i = threadIdx.x; i < NARROW * TILE; i += THREADS) sums[i] = 0.0f;
    for (u32 n = 0; n < TRANSFORMS; n++) {
        const u32 first = (blockIdx.z * TRANSFORMS + n) * FINE;
        bool whole = true;
        for (u32 t = threadIdx.x; t < FINE; t += THREADS) whole &= is_there(units, first + t, channel);
        whole = __syncthreads_and(whole);
        for (u32 pol = 0; pol < POLS; pol++) {
            for (int i = threadIdx.x; i < FINE * TILE; i += THREADS) {
                const u32 t = i / TILE, beam = first_beam + i % TILE;
                const u64 at = (((u64)(first + t) * CHANNELS + channel) * POLS + pol) * BEAMS + beam;
                const bool is_used = whole && beam < BEAMS;
                data[place_of<TILE>(t, i % TILE)] = is_used ? beams[at] : c32{0.0f, 0.0f};
            }
            __syncthreads();
            transform_columns<FINE, TILE>(data, roots);
            for (int i = threadIdx.x; i < NARROW * TILE; i += THREADS) {
                const u32 narrow = i / TILE, beam = first_beam + i % TILE;
                for (u32 k = narrow * MERGED; k < (narrow + 1) * MERGED; k++) {
                    // In ascending order of frequency: channels are rotated by half of their number.
                    const c32 value = data[place_of<TILE>((k + FINE / 2) % FINE, i % TILE)];
                    if constexpr (SUM_SPECTRA > 0) {
                        sums[i] += value.x * value.x + value.y * value.y;
                    } else if (beam < BEAMS) {
                        const u64 at = (((u64)blockIdx.z * CHANNELS + channel) * FINE + k) * POLS + pol;
                        put_voltage(output, at * BEAMS + beam, value);
                    }
                }
            }
            __syncthreads();
        }
    }
    if constexpr (SUM_SPECTRA > 0)
        for (int i = threadIdx.x; i < NARROW * TILE; i += THREADS) {
            const u32 beam = first_beam + i % TILE;
            const u64 at = ((u64)blockIdx.z * CHANNELS + channel) * NARROW + i / TILE;
            if (beam < BEAMS) ((float*)output)[at * BEAMS + beam] = sums[i];
        }
}
