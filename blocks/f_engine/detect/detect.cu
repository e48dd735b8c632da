// Powers of spectra, summed over adjacent spectra.
//
// Macros: `POLS`, `CHANNELS`, `SUMS` per frame, `SPECTRA` per sum, and `PRODUCTS`: 0 for the power of each
// polarisation, 1 for the intensity, 2 for the Stokes parameters; `INVERTED`: 1 for values that are the conjugates of
// those of the sky.
// Grid: for each sum the thread blocks of its channels, one thread per channel.
#if !defined(POLS) || !defined(CHANNELS) || !defined(SUMS) || !defined(SPECTRA) || !defined(PRODUCTS) || !defined(INVERTED)
#error "detect.cu needs POLS, CHANNELS, SUMS, SPECTRA, PRODUCTS and INVERTED"
#endif

__device__ __forceinline__ float power(float2 value) { return value.x * value.x + value.y * value.y; }

/// `valid`: counts `[pol][spectrum]`, 0 for spectra that are missing. `values`: `[pol][spectrum][channel]`. `sums`:
/// `[sum][product][channel]`.
extern "C" __global__ void detect(const unsigned *valid, const float2 *values, float *sums) {
    const unsigned of_sum = (CHANNELS + blockDim.x - 1) / blockDim.x;
    const long long channel = (long long)(blockIdx.x % of_sum) * blockDim.x + threadIdx.x;
    const long long sum = blockIdx.x / of_sum;
    if (channel >= CHANNELS) {
        return;
    }
    constexpr long long OF_POL = (long long)SUMS * SPECTRA;
    float a = 0, b = 0, c = 0, d = 0;
    for (int n = 0; n < SPECTRA; n++) {
        const long long spectrum = sum * SPECTRA + n;
        const bool is_there = valid[spectrum] != 0 && valid[(POLS - 1) * OF_POL + spectrum] != 0;
        if (!is_there) {
            continue;
        }
        const float2 x = values[spectrum * CHANNELS + channel];
        const float2 y = POLS == 2 ? values[(OF_POL + spectrum) * CHANNELS + channel] : float2{0, 0};
        if (PRODUCTS == 0) {
            a += power(x);
            b += power(y);
        } else if (PRODUCTS == 1) {
            a += power(x);
            a += power(y);
        } else {
            a += power(x) + power(y);
            b += power(x) - power(y);
            c += 2 * (x.x * y.x + x.y * y.y);
            d += (INVERTED ? -2 : 2) * (x.y * y.x - x.x * y.y);
        }
    }
    constexpr int ROWS = PRODUCTS == 2 ? 4 : PRODUCTS == 1 ? 1 : POLS;
    float *row = sums + sum * ROWS * CHANNELS + channel;
    row[0] = a;
    if (ROWS > 1) {
        row[CHANNELS] = b;
    }
    if (ROWS > 2) {
        row[2LL * CHANNELS] = c;
        row[3LL * CHANNELS] = d;
    }
}
