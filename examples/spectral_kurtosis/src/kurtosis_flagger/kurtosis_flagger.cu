// Spectral kurtosis of each polarisation and channel of a frame; sets channels beyond the limit to zero.
//
// input, output: complex [pol][SPECTRA][CHANNELS]; kurtosis: [pol][CHANNELS]; flagged: number of flagged channels.
// Grid: CHANNELS / COLUMNS rounded up, pols. Thread block: COLUMNS channels of ROWS spectra at a time.

#ifndef SPECTRA
#error "SPECTRA, the number of spectra of a frame, is not set"
#endif
#ifndef CHANNELS
#error "CHANNELS, the number of channels of a spectrum, is not set"
#endif

constexpr int COLUMNS = 32;
constexpr int ROWS = 8;

extern "C" __global__ void __launch_bounds__(COLUMNS * ROWS)
kurtosis_flagger(const float2 *input, float2 *output, float *kurtosis, unsigned long long *flagged,
                  double limit, int is_complete)
{
    __shared__ double sums[2][ROWS][COLUMNS];
    __shared__ bool is_flagged[COLUMNS];
    const int x = threadIdx.x, y = threadIdx.y;
    const int channel = blockIdx.x * COLUMNS + x;
    const bool is_inside = channel < CHANNELS;
    const size_t pol = blockIdx.y;
    input += pol * SPECTRA * CHANNELS + channel;
    output += pol * SPECTRA * CHANNELS + channel;

    double s1 = 0, s2 = 0;
    if (is_inside && is_complete) {
        for (int spectrum = y; spectrum < SPECTRA; spectrum += ROWS) {
            const float2 value = input[(size_t)spectrum * CHANNELS];
            // Rounded as on the CPU, without fused multiply-add.
            const double power =
                __fadd_rn(__fmul_rn(value.x, value.x), __fmul_rn(value.y, value.y));
            s1 += power;
            s2 += power * power;
        }
    }
    sums[0][y][x] = s1;
    sums[1][y][x] = s2;
    __syncthreads();

    if (y == 0 && is_inside) {
        for (int row = 1; row < ROWS; row++) {
            s1 += sums[0][row][x];
            s2 += sums[1][row][x];
        }
        const double m = SPECTRA;
        // NaN without power, which does not exceed the limit.
        const double sk = is_complete ? (m + 1) / (m - 1) * (m * s2 / (s1 * s1) - 1) : 0;
        kurtosis[pol * CHANNELS + channel] = (float)sk;
        is_flagged[x] = is_complete && fabs(sk - 1) > limit;
        if (is_flagged[x])
            atomicAdd(flagged, 1ULL);
    }
    __syncthreads();

    if (is_inside) {
        for (int spectrum = y; spectrum < SPECTRA; spectrum += ROWS) {
            const size_t at = (size_t)spectrum * CHANNELS;
            output[at] = is_flagged[x] ? make_float2(0, 0) : input[at];
        }
    }
}
