// Beams of cylinders of 256 feeds, in half precision on matrix units, to voltages or to intensities.
//
// Parameters: SPECTRA, CHANNELS, POLS, CYLINDERS, sizes of the input; BITS of each part of its values, 4, 8, or 16 for
// halves; ROWS, rows of beams; EAST_WEST, 1 if a row is a weighted sum of all cylinders, 0 if it is one cylinder;
// WEIGHTED, 1 if feeds are weighted; CLAMP, 1 if a row's beams are chosen by a map; ROW_BEAMS, how many it has;
// UNITS_IN_TIME, UNITS_IN_FREQUENCY, parts of the frame that can be missing; HALVES, 1 for voltages in half precision;
// FINE, spectra of a transform to narrower channels, 32, 64 or 128, or 1; SUM_CHANNELS, SUM_SPECTRA, what a sum of intensities has
// of their results; WARPS, PER_WARP: transforms of feeds that a warp makes one after the other (voltages only).
#if !defined(SPECTRA) || !defined(CHANNELS) || !defined(POLS) || !defined(CYLINDERS) || !defined(BITS) ||     \
    !defined(ROWS) || !defined(EAST_WEST) || !defined(WEIGHTED) || !defined(CLAMP) || !defined(ROW_BEAMS) || \
    !defined(UNITS_IN_TIME) || !defined(UNITS_IN_FREQUENCY) || !defined(HALVES) || !defined(FINE) ||         \
    !defined(SUM_CHANNELS) || !defined(SUM_SPECTRA) || !defined(WARPS) || !defined(PER_WARP)
#error "frb_beamformer.cu needs its sizes, stages and WARPS, PER_WARP"
#endif

#include "frb_fft.cuh"

/// Words of 8 values of the input.
constexpr int WORDS = BITS / 2;
/// Bytes of a cylinder.
constexpr int CYLINDER_BYTES = FEEDS * BITS / 4;
/// Cylinders that a row is made of.
constexpr int COMBINED = EAST_WEST ? CYLINDERS : 1;
constexpr int THREADS = 32 * WARPS;

static_assert(ROW_BEAMS == POINTS || (CLAMP && ROW_BEAMS % 64 == 0 && ROW_BEAMS <= FEEDS), "beams");

/// Eight neighbouring feeds of one cylinder, as they are in the frame.
struct Packed {
    u32 words[WORDS];

    __device__ __forceinline__ void load(const u8* cylinder, u32 lane) {
        const u8* from = cylinder + feeds_of(lane) * (4 * WORDS);
        if constexpr (WORDS == 2) *(uint2*)words = __ldcs((const uint2*)from);
        else
#pragma unroll
            for (int i = 0; i < WORDS; i += 4)
                *(uint4*)(words + i) = __ldcs((const uint4*)(from + 4 * i));
    }

    /// Their values, real part in the lower half. An integer of n bits becomes one of 1024 .. 1024 + 2^n by its bits, or
    /// that times 16 where it is the upper half of a byte.
    __device__ __forceinline__ void unpack(u32 (&x)[8]) const {
#pragma unroll
        for (int n = 0; n < 8; n++) {
            if constexpr (BITS == 4) {
                const u32 twice = __byte_perm(words[n / 4], 0, (n & 3) * 0x0101 | 0x4040);
                x[n] = fma_halves((twice & 0x000f00f0) ^ 0x64086480, 0x3c002c00, 0xe408d480);
            } else if constexpr (BITS == 8) {
                const u32 bytes = __byte_perm(words[n / 2], 0x64646464, n & 1 ? 0x4342 : 0x4140);
                x[n] = add_halves(bytes ^ 0x00800080, 0xe480e480);
            } else {
                x[n] = words[n];
            }
        }
    }
};

/// Weights of eight neighbouring feeds of the cylinders of a row.
struct Weights {
    u32 words[COMBINED][8];

    /// `weights` [cylinder][feed], halves (re, im).
    __device__ __forceinline__ void load(const u32* __restrict__ weights, u32 lane) {
#pragma unroll
        for (int k = 0; k < COMBINED; k++)
#pragma unroll
            for (int n = 0; n < 8; n += 4)
                *(uint4*)(words[k] + n) =
                    __ldg((const uint4*)(weights + k * FEEDS + 8 * feeds_of(lane) + n));
    }

    /// Weighted sums over the cylinders.
    __device__ __forceinline__ void combine(const Packed (&cylinders)[COMBINED], u32 (&sums)[8]) const {
        // Products with real parts of weights, and with imaginary parts, which count times i.
        u32 straight[8], crossed[8];
#pragma unroll
        for (int k = 0; k < COMBINED; k++) {
            u32 x[8];
            cylinders[k].unpack(x);
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const u32 re = both_lower(words[k][n]), im = both_upper(words[k][n]);
                straight[n] = k == 0 ? times_halves(x[n], re) : fma_halves(x[n], re, straight[n]);
                crossed[n] = k == 0 ? times_halves(x[n], im) : fma_halves(x[n], im, crossed[n]);
            }
        }
#pragma unroll
        for (int n = 0; n < 8; n++)
            sums[n] = fma_halves(__byte_perm(crossed[n], 0, 0x1032), 0x3c00bc00, straight[n]);
    }
};

/// Where beam q of a row is among the words of shared memory that a warp puts a row into: so that neither writing runs
/// of 16 nor reading in order makes lanes wait for each other.
__device__ __forceinline__ u32 place_of(u32 q) { return q ^ ((q >> 5 & 3) << 2); }

/// Puts the beams of a row into the warp's part of shared memory.
__device__ __forceinline__ void put_row(u32* row, const u32 (&y)[16], u32 lane) {
    __syncwarp();
#pragma unroll
    for (u32 i = 0; i < 16; i += 4)
        *(uint4*)(row + place_of(16 * lane + i)) = make_uint4(y[i], y[i + 1], y[i + 2], y[i + 3]);
    __syncwarp();
}

/// Where the beams lane, lane + 32, ... of a row are taken from, two in a word.
struct Map {
    u32 places[ROW_BEAMS / 64];

    /// `map` [beam].
    __device__ __forceinline__ void load(const u16* __restrict__ map, u32 lane) {
#pragma unroll
        for (int i = 0; i < ROW_BEAMS / 64; i++)
            places[i] = place_of(map[lane + 64 * i]) | place_of(map[lane + 64 * i + 32]) << 16;
    }
    __device__ __forceinline__ u32 place(int i) const {
        return i & 1 ? places[i / 2] >> 16 : places[i / 2] & 0xffff;
    }
};

/// Whether what a frame has of this spectrum and channel came; `units` [time][frequency].
__device__ __forceinline__ bool is_there(const u32* __restrict__ units, u32 spectrum, u32 channel) {
    return units[spectrum / (SPECTRA / UNITS_IN_TIME) * UNITS_IN_FREQUENCY +
                 channel / (CHANNELS / UNITS_IN_FREQUENCY)] != 0;
}

#if FINE == 1
/// Transforms of feeds of one spectrum.
constexpr u32 LINES = CHANNELS * POLS * ROWS;
/// Whether transforms follow each other without more than a feed's voltages: nothing to keep from one to the next.
constexpr bool BARE = !WEIGHTED && !CLAMP;

/// Voltages of beams.
///
/// input    [spectrum][channel][pol][cylinder][feed 256]
/// output   [spectrum][channel][pol][row][beam], complex, of halves or single precision
/// phases   [register 10][lane 32]: see `Phases`
/// weights  [channel][pol][row][cylinder of a row][feed], halves
/// map      [channel][beam]: which point of the transform
/// units    [time][frequency]: 0 where nothing came
/// The next argument is one of `frb_intensities` alone.
/// scale    what weights have been divided by
///
/// Grid: spectra / (WARPS PER_WARP), CHANNELS POLS ROWS; bare ones spectra CHANNELS POLS ROWS / (WARPS PER_WARP).
extern "C" __global__ void __launch_bounds__(THREADS)
    frb_voltages(const u8* __restrict__ input, u8* __restrict__ output, const u32* __restrict__ phases,
                 const u32* __restrict__ weights, const u16* __restrict__ map,
                 const u32* __restrict__ units, const u32*, float scale) {
    __shared__ __align__(16) u32 rows[WARPS][POINTS];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 of_warp = blockIdx.x * (WARPS * PER_WARP) + warp;
    constexpr u32 lines = BARE ? 1 : LINES, last = BARE ? SPECTRA * LINES : SPECTRA;
    u32* row = rows[warp];
    Phases phase;
    phase.load(phases, lane);
    Weights weight;
    if constexpr (WEIGHTED) weight.load(weights + (u64)blockIdx.y * (COMBINED * FEEDS), lane);
    Map places;
    if constexpr (CLAMP) places.load(map + blockIdx.y / (POLS * ROWS) * ROW_BEAMS, lane);
    for (u32 i = 0; i < PER_WARP; i++) {
        const u32 n = of_warp + i * WARPS;
        if (n >= last) return;
        const u32 line = BARE ? n : n * lines + blockIdx.y;
        const u32 spectrum = line / LINES, channel = line / (POLS * ROWS) % CHANNELS;
        u32 y[16] = {};
        if (is_there(units, spectrum, channel)) {
            const u32 cylinder = line / ROWS * CYLINDERS + (EAST_WEST ? 0 : line % ROWS);
            Packed feeds[COMBINED];
#pragma unroll
            for (int k = 0; k < COMBINED; k++)
                feeds[k].load(input + (u64)(cylinder + k) * CYLINDER_BYTES, lane);
            u32 x[8];
            if constexpr (WEIGHTED) weight.combine(feeds, x);
            else feeds[0].unpack(x);
            feeds_to_beams(x, y, phase, lane);
        }
        put_row(row, y, lane);
        const u64 first = (u64)line * ROW_BEAMS;
        if constexpr (HALVES && !CLAMP && !WEIGHTED) {
#pragma unroll
            for (u32 k = 0; k < 4; k++)
                __stcs((uint4*)output + first / 4 + 32 * k + lane,
                       *(const uint4*)(row + place_of(4 * (32 * k + lane))));
        } else {
#pragma unroll
            for (u32 k = 0; k < ROW_BEAMS / 32; k++) {
                const u32 word = row[CLAMP ? places.place(k) : place_of(32 * k + lane)];
                const u64 at = first + 32 * k + lane;
                if constexpr (HALVES && !WEIGHTED) {
                    __stcs((u32*)output + at, word);
                } else {
                    const float2 value = scale * from_halves(word);
                    if constexpr (HALVES) __stcs((u32*)output + at, halves(value.x, value.y));
                    else __stcs((float2*)output + at, value);
                }
            }
        }
    }
}
#else
static_assert(FINE == 32 || FINE == 64 || FINE == 128, "spectra of a transform");
static_assert(WEIGHTED && CLAMP && FINE % WARPS == 0, "stages");

// The transform over time, t = t_lo + RUN t_hi to k = k_lo + 8 k_hi: over the eight t_hi on matrix units, with
// beams as columns, and over t_lo in registers.
//   exp(-2 pi i t k / FINE) = exp(-2 pi i (t_lo + RUN t_hi) k_lo / FINE) exp(-2 pi i t_lo k_hi / RUN)

/// Values of t_lo, and of k_hi.
constexpr int RUN = FINE / 8;
/// Values of k_hi, or fewer, that a sum has, and sums that a thread then has of each beam.
constexpr int SUM_HIGH = SUM_CHANNELS < 8 ? 1 : SUM_CHANNELS / 8, SUMS = RUN / SUM_HIGH;
/// Values of k_lo that a sum has.
constexpr int SUM_LOW = SUM_CHANNELS < 8 ? SUM_CHANNELS : 8;
/// Channels of the output for each one of the input.
constexpr int NARROW = FINE / SUM_CHANNELS;

/// Where beam `beam` of spectrum t of a transform is in shared memory: spectra that a matrix instruction reads together
/// are in other banks.
__device__ __forceinline__ u32 place_of(u32 t, u32 beam) {
    return t * ROW_BEAMS + (beam ^ (t / RUN & 3) * 8);
}

/// cos(2 pi s / 16), s = 0 .. 7, as halves.
__device__ __forceinline__ constexpr u32 cosine16(int s) {
    constexpr u32 table[8] = {0x3c003c00, 0x3b643b64, 0x39a839a8, 0x361f361f,
                              0x00000000, 0xb61fb61f, 0xb9a8b9a8, 0xbb64bb64};
    return table[s];
}

/// Transforms the runs of two beams; the result for k is left at place_in_run(k).
__device__ __forceinline__ void transform_run(u32 (&re)[RUN], u32 (&im)[RUN]) {
#pragma unroll
    for (int half = RUN / 2; half >= 1; half /= 2)
#pragma unroll
        for (int i = 0; i < RUN / 2; i++) {
            const int a = i / half * 2 * half + i % half, b = a + half, s = i % half * (8 / half);
            const u32 x = add_halves(re[a], negate_halves(re[b]));
            const u32 y = add_halves(im[a], negate_halves(im[b]));
            re[a] = add_halves(re[a], re[b]);
            im[a] = add_halves(im[a], im[b]);
            if (s == 0) {
                re[b] = x;
                im[b] = y;
            } else if (s == 4) {
                re[b] = y;
                im[b] = negate_halves(x);
            } else {
                const u32 cos = cosine16(s), sin = cosine16(s < 4 ? 4 - s : s - 4);
                re[b] = fma_halves(cos, x, times_halves(sin, y));
                im[b] = fma_halves(cos, y, times_halves(negate_halves(sin), x));
            }
        }
}

__device__ __forceinline__ constexpr int place_in_run(int k) {
    int place = 0;
    for (int bit = 1; bit < RUN; bit *= 2) place = 2 * place | ((k & bit) != 0);
    return place;
}

/// Adds the intensities of eight beams, from `column` on, of one transform to `sums` [narrow channel][beam of all rows].
///
/// voltages  [spectrum of the transform][beam], at place_of()
/// phases    [t_lo][lane]: exp(-2 pi i (t_lo + RUN t_hi) k_lo / FINE) / FINE, t_hi = lane % 4, k_lo = lane / 4
__device__ __forceinline__ void add_intensities(const u32* voltages, const u32* phases, u32 column, float scale,
                                                float* sums, u32 lane) {
    const u32 k_lo = lane / 4, t_hi = lane % 4;
    u32 re[RUN], im[RUN];
#pragma unroll
    for (int t_lo = 0; t_lo < RUN; t_lo++) {
        const u32 t = t_lo + RUN * t_hi;
        const u32 early = voltages[place_of(t, column + k_lo)];
        const u32 late = voltages[place_of(t + 4 * RUN, column + k_lo)];
        const u32 phase = phases[32 * t_lo + lane];
        // Four t_hi later the phase is that times (-1)^k_lo.
        const u32 sign = k_lo & 1 ? 0x80008000 : 0;
        const u32 of_re = phase ^ UPPER_SIGN, of_im = __byte_perm(phase, 0, 0x1032);
        multiply16(re[t_lo], im[t_lo], of_re, of_im, of_re ^ sign, of_im ^ sign, early, late);
    }
    transform_run(re, im);
#pragma unroll
    for (int n = 0; n < SUMS; n++) {
        float2 power = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < SUM_HIGH; i++) {
            // By ascending frequency, the lowest first: half of them on.
            const int place = place_in_run((n * SUM_HIGH + i + RUN / 2) % RUN);
            const float2 x = from_halves(re[place]), y = from_halves(im[place]);
            power.x = fmaf(x.x, x.x, fmaf(y.x, y.x, power.x));
            power.y = fmaf(x.y, x.y, fmaf(y.y, y.y, power.y));
        }
#pragma unroll
        for (int low = 1; low < SUM_LOW; low *= 2) {
            power.x += __shfl_xor_sync(~0u, power.x, 4 * low);
            power.y += __shfl_xor_sync(~0u, power.y, 4 * low);
        }
        if (k_lo % SUM_LOW == 0) {
            const u32 narrow = n * (8 / SUM_LOW) + k_lo / SUM_LOW;
            float2* sum = (float2*)(sums + (u64)narrow * (ROWS * ROW_BEAMS) + column + 2 * t_hi);
            *sum = *sum + scale * power;
        }
    }
}

/// Sums of intensities.
///
/// input, phases, weights, map, units  as above
/// output       [spectrum of sums][narrow channel][row][beam], single precision, zeros at first
/// time_phases  [t_lo][lane]: see `add_intensities`
/// scale        square of what weights and phases have been divided by
///
/// Grid: CHANNELS, ROWS, spectra of the output. Shared memory: FINE ROW_BEAMS + 32 RUN + WARPS 512 words.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    frb_intensities(const u8* __restrict__ input, float* __restrict__ output,
                    const u32* __restrict__ phases, const u32* __restrict__ weights,
                    const u16* __restrict__ map, const u32* __restrict__ units,
                    const u32* __restrict__ time_phases, float scale) {
    extern __shared__ __align__(16) u32 shared[];
    u32* voltages = shared;
    u32* phases_of_time = shared + FINE * ROW_BEAMS;
    u32* rows = phases_of_time + 32 * RUN;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 channel = blockIdx.x, row = blockIdx.y;
    for (u32 i = threadIdx.x; i < 32 * RUN; i += THREADS) phases_of_time[i] = time_phases[i];
    Phases phase;
    phase.load(phases, lane);
    Map places;
    places.load(map + channel * ROW_BEAMS, lane);
    float* sums = output + (((u64)blockIdx.z * CHANNELS + channel) * NARROW * ROWS + row) * ROW_BEAMS;
    for (u32 transform = 0; transform < SUM_SPECTRA; transform++) {
        const u32 first = (blockIdx.z * SUM_SPECTRA + transform) * FINE;
        bool whole = true;
        for (u32 t = 0; t < FINE; t++) whole &= is_there(units, first + t, channel);
        if (!whole) continue;
        for (u32 pol = 0; pol < POLS; pol++) {
            const u32 line = channel * POLS + pol;
            Weights weight;
            weight.load(weights + (u64)(line * ROWS + row) * (COMBINED * FEEDS), lane);
            for (u32 t = warp; t < FINE; t += WARPS) {
                const u64 cylinder =
                    ((u64)(first + t) * (CHANNELS * POLS) + line) * CYLINDERS + (EAST_WEST ? 0 : row);
                Packed feeds[COMBINED];
#pragma unroll
                for (int k = 0; k < COMBINED; k++)
                    feeds[k].load(input + (cylinder + k) * CYLINDER_BYTES, lane);
                u32 x[8], y[16];
                weight.combine(feeds, x);
                feeds_to_beams(x, y, phase, lane);
                put_row(rows + POINTS * warp, y, lane);
#pragma unroll
                for (u32 k = 0; k < ROW_BEAMS / 32; k++)
                    voltages[place_of(t, 32 * k + lane)] = rows[POINTS * warp + places.place(k)];
            }
            __syncthreads();
            for (u32 column = 8 * warp; column < ROW_BEAMS; column += 8 * WARPS)
                add_intensities(voltages, phases_of_time, column, scale, sums, lane);
            __syncthreads();
        }
    }
}
#endif
