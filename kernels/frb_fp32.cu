// Beams of cylinders in single precision, plainly: what the forms on matrix units are compared with.
//
// Parameters: SPECTRA, CHANNELS, POLS, CYLINDERS, FEEDS, sizes of the input; BITS of each part of its values, 4, 8, or 16
// for halves; ROWS, rows of beams; EAST_WEST, 1 if a row is a weighted sum of all cylinders, 0 if it is one cylinder;
// POINTS of the transform of feeds, a power of two, 0 without it; ROW_BEAMS; UNITS_IN_TIME, UNITS_IN_FREQUENCY, parts of the frame
// that can be missing; HALVES, 1 for voltages in half precision; FINE, spectra of a transform to narrower channels, a power of
// two; SUM_CHANNELS, SUM_SPECTRA, what a sum of intensities has, 0 without sums.
#if !defined(SPECTRA) || !defined(CHANNELS) || !defined(POLS) || !defined(CYLINDERS) || !defined(FEEDS) || \
    !defined(BITS) || !defined(ROWS) || !defined(EAST_WEST) || !defined(POINTS) || !defined(ROW_BEAMS) ||  \
    !defined(UNITS_IN_TIME) || !defined(UNITS_IN_FREQUENCY) || !defined(HALVES) || !defined(FINE) ||       \
    !defined(SUM_CHANNELS) || !defined(SUM_SPECTRA)
#error "frb_fp32.cu needs its sizes and stages"
#endif

#include "half_matrix.cuh"

constexpr int THREADS = 256;
/// Cylinders that a row is made of.
constexpr int COMBINED = EAST_WEST ? CYLINDERS : 1;
constexpr int BEAMS = ROWS * ROW_BEAMS;
/// Whether beams need more than the transform of feeds.
constexpr bool LATER = FINE > 1 || SUM_SPECTRA > 0;

__device__ __forceinline__ constexpr int log2_of(int power) {
    int bits = 0;
    while (power > 1 << bits) bits++;
    return bits;
}

/// Transforms each column of `data` [LENGTH][COLUMNS], whose rows stand in the order of reversed bits, with phases
/// exp(SIGN 2 pi i k n / LENGTH).
template <int LENGTH, int COLUMNS, int SIGN> __device__ void transform_columns(c32* data) {
    for (int half = 1; half < LENGTH; half *= 2) {
        __syncthreads();
        for (int i = threadIdx.x; i < LENGTH / 2 * COLUMNS; i += THREADS) {
            const int pair = i / COLUMNS, column = i % COLUMNS;
            const int a = (pair / half * 2 * half + pair % half) * COLUMNS + column;
            const int b = a + half * COLUMNS;
            c32 phase;
            sincospif((float)(SIGN * (pair % half)) / half, &phase.y, &phase.x);
            const c32 first = data[a], turned = phase * data[b];
            data[a] = first + turned;
            data[b] = first - turned;
        }
    }
    __syncthreads();
}

template <int LENGTH> __device__ __forceinline__ int reversed(int n) {
    return LENGTH <= 1 ? n : (int)(__brev((u32)n) >> (32 - log2_of(LENGTH)));
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
    if constexpr (HALVES) ((u32*)output)[at] = halves(value.x, value.y);
    else ((c32*)output)[at] = value;
}

/// Beams of each spectrum.
///
/// input    [spectrum][channel][pol][cylinder][feed]
/// output   [spectrum][channel][pol][row][beam]: voltages as they are put out, or in single precision if they go further
/// weights  [channel][pol][row][cylinder of a row][feed]
/// map      [channel][beam]: which point of the transform
/// units    [time][frequency]: 0 where nothing came
///
/// Grid: spectra x channels x pols, ROWS; blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    frb_rows(const u8* __restrict__ input, u8* __restrict__ output, const c32* __restrict__ weights,
             const u32* __restrict__ map, const u32* __restrict__ units) {
    constexpr int LENGTH = POINTS ? POINTS : FEEDS;
    __shared__ c32 data[LENGTH];
    const u32 line = blockIdx.x, row = blockIdx.y;
    const u32 channel = line / POLS % CHANNELS, pol = line % POLS;
    const bool there = is_there(units, line / (CHANNELS * POLS), channel);
    weights += ((u64)(channel * POLS + pol) * ROWS + row) * (COMBINED * FEEDS);
    const u64 first = (u64)line * (CYLINDERS * FEEDS) + (EAST_WEST ? 0 : row * FEEDS);
    for (int n = threadIdx.x; n < LENGTH; n += THREADS) {
        c32 sum = {0.0f, 0.0f};
        if (there && n < FEEDS)
            for (int k = 0; k < COMBINED; k++)
                sum = fma(weights[k * FEEDS + n], value_of(input, first + k * FEEDS + n), sum);
        data[POINTS ? reversed<LENGTH>(n) : n] = sum;
    }
    if constexpr (POINTS != 0) transform_columns<LENGTH, 1, 1>(data);
    else __syncthreads();
    const u64 to = ((u64)line * ROWS + row) * ROW_BEAMS;
    for (int beam = threadIdx.x; beam < ROW_BEAMS; beam += THREADS) {
        const c32 value = data[map[channel * ROW_BEAMS + beam]];
        if constexpr (LATER) ((c32*)output)[to + beam] = value;
        else put_voltage(output, to + beam, value);
    }
}

/// Beams that a block of threads works on together.
constexpr int TILE = 32;

/// Narrower channels and sums.
///
/// beams   [spectrum][channel][pol][beam of all rows]
/// output  sums [spectrum][narrow channel][beam], or voltages [spectrum][narrow channel][pol][beam]
/// units   as above
///
/// Grid: beams / 32, CHANNELS, spectra of the output; blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    frb_times(const c32* __restrict__ beams, u8* __restrict__ output, const u32* __restrict__ units) {
    constexpr int TRANSFORMS = SUM_SPECTRA ? SUM_SPECTRA : 1;
    constexpr int MERGED = SUM_CHANNELS ? SUM_CHANNELS : 1, NARROW = FINE / MERGED;
    __shared__ c32 data[FINE * TILE];
    __shared__ float sums[NARROW * TILE];
    const u32 first_beam = blockIdx.x * TILE, channel = blockIdx.y;
    for (int i = threadIdx.x; i < NARROW * TILE; i += THREADS) sums[i] = 0.0f;
    for (u32 n = 0; n < TRANSFORMS; n++) {
        const u32 first = (blockIdx.z * TRANSFORMS + n) * FINE;
        bool whole = true;
        for (u32 t = 0; t < FINE; t++) whole &= is_there(units, first + t, channel);
        for (u32 pol = 0; pol < POLS; pol++) {
            for (int i = threadIdx.x; i < FINE * TILE; i += THREADS) {
                const u32 t = i / TILE, beam = first_beam + i % TILE;
                const u64 at = (((u64)(first + t) * CHANNELS + channel) * POLS + pol) * BEAMS + beam;
                const bool is_used = whole && beam < BEAMS;
                data[reversed<FINE>(t) * TILE + i % TILE] = is_used ? beams[at] : c32{0.0f, 0.0f};
            }
            transform_columns<FINE, TILE, -1>(data);
            for (int i = threadIdx.x; i < NARROW * TILE; i += THREADS) {
                const u32 narrow = i / TILE, beam = first_beam + i % TILE;
                for (u32 k = narrow * MERGED; k < (narrow + 1) * MERGED; k++) {
                    // By ascending frequency, the lowest first: half of them on.
                    const c32 value = data[(k + FINE / 2) % FINE * TILE + i % TILE];
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
