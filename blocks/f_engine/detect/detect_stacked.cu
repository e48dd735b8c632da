// Powers of the quantised voltages of several antennas, summed over adjacent spectra and over groups of antennas, or of
// beams.
//
// Macros: `HEAPS`, `ANTENNAS`, `CHANNELS`, `HEAP_SPECTRA` of the input; `BITS` of each part of a value, 8 or 4; `K_MAJOR`:
// 1 for `[pol][spectrum]`, 0 for `[spectrum][pol]`; `POLS`: polarisations, 1 or 2; `BEAMS`: 1 if beams, one for each
// polarisation, take the place of an antenna, otherwise 0; `CHANNEL_UNITS`: 1 if the validity has channels, otherwise 0;
// `OF_SUM` antennas per sum; `SUMS` in time per frame; `SPECTRA` per
// sum; `PRODUCTS`: 0 for the power of each polarisation, 1 for the intensity, 2 for the Stokes parameters;
// `INVERTED`: 1 for values that are the conjugates of those of the sky.
// Grid: one warp for each sum of a channel.
#if !defined(HEAPS) || !defined(ANTENNAS) || !defined(HEAP_SPECTRA) || !defined(OF_SUM) || !defined(PRODUCTS) || \
    !defined(POLS) || !defined(BEAMS) || !defined(CHANNEL_UNITS) || !defined(INVERTED)
#error "detect_stacked.cu needs the macros above"
#endif

/// Parts of the value with index `index`.
__device__ __forceinline__ int2 value(const signed char *values, long long index) {
#if BITS == 4
    const signed char both = values[index];
    return {both >> 4, (signed char)(both << 4) >> 4};
#else
    const char2 parts = reinterpret_cast<const char2 *>(values)[index];
    return {(signed char)parts.x, (signed char)parts.y};
#endif
}

/// Whether all polarisations of a heap are there in a channel.
__device__ __forceinline__ bool is_there(const unsigned *valid, long long heap, long long antenna, long long channel) {
    const long long unit = heap * ANTENNAS + antenna;
#if BEAMS && !CHANNEL_UNITS
    return valid[heap] != 0;
#elif !CHANNEL_UNITS
    return valid[unit] != 0;
#elif BEAMS
    const unsigned *counts = valid + unit * POLS * CHANNELS + channel;
    return counts[0] != 0 && counts[(POLS - 1) * CHANNELS] != 0;
#else
    const unsigned *flags = valid + POLS * (unit * CHANNELS + channel);
    return flags[0] != 0 && flags[POLS - 1] != 0;
#endif
}

/// `valid`: validity of heaps, with the axes of the input. `values`: `[heap][antenna][channel]` and spectra of all
/// polarisations, or `[heap][beam][channel][spectrum]`. `powers`: `[group of antennas][sum][product][channel]`.
extern "C" __global__ void detect_stacked(const unsigned *valid, const signed char *values, float *powers) {
    const long long warp = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    const long long channel = warp % CHANNELS;
    const long long unit = warp / CHANNELS;
    if (unit >= (long long)(ANTENNAS / OF_SUM) * SUMS) {
        return;
    }
    const long long group = unit / SUMS, sum = unit % SUMS;
    long long a = 0, b = 0, c = 0, d = 0;
    for (long long n = lane; n < (long long)OF_SUM * SPECTRA; n += 32) {
        const long long antenna = group * OF_SUM + n / SPECTRA;
        const long long spectrum = sum * SPECTRA + n % SPECTRA;
        const long long heap = spectrum / HEAP_SPECTRA, of_heap = spectrum % HEAP_SPECTRA;
        if (!is_there(valid, heap, antenna, channel)) {
            continue;
        }
#if BEAMS
        const long long beam = (heap * ANTENNAS + antenna) * POLS;
        const long long row = (beam * CHANNELS + channel) * HEAP_SPECTRA;
        const int2 x = value(values, row + of_heap);
        const long long of_y = row + (long long)CHANNELS * HEAP_SPECTRA + of_heap;
#else
        const long long row = ((heap * ANTENNAS + antenna) * CHANNELS + channel) * POLS * HEAP_SPECTRA;
        const int2 x = value(values, row + (K_MAJOR ? of_heap : POLS * of_heap));
        const long long of_y = row + (K_MAJOR ? HEAP_SPECTRA + of_heap : POLS * of_heap + 1);
#endif
        const int2 y = POLS == 2 ? value(values, of_y) : int2{0, 0};
        const int xx = x.x * x.x + x.y * x.y, yy = y.x * y.x + y.y * y.y;
        if (PRODUCTS == 0) {
            a += xx;
            b += yy;
        } else {
            a += xx + yy;
            b += xx - yy;
            c += 2 * (x.x * y.x + x.y * y.y);
            d += (INVERTED ? -2 : 2) * (x.y * y.x - x.x * y.y);
        }
    }
    for (int step = 16; step > 0; step /= 2) {
        a += __shfl_down_sync(0xffffffffu, a, step);
        b += __shfl_down_sync(0xffffffffu, b, step);
        c += __shfl_down_sync(0xffffffffu, c, step);
        d += __shfl_down_sync(0xffffffffu, d, step);
    }
    if (lane > 0) {
        return;
    }
    constexpr int ROWS = PRODUCTS == 2 ? 4 : PRODUCTS == 1 || POLS == 1 ? 1 : 2;
    float *to = powers + unit * ROWS * CHANNELS + channel;
    to[0] = (float)a;
    if (ROWS > 1) {
        to[CHANNELS] = (float)b;
    }
    if (ROWS > 2) {
        to[2LL * CHANNELS] = (float)c;
        to[3LL * CHANNELS] = (float)d;
    }
}
