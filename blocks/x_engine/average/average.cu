// Averages over dumps and channels.
//
// Macros: lengths of the input's axes `SPECTRA`, `ROWS`, `CHANNELS`, `BASELINES`, `PRODUCTS`; `PARTS` real numbers per
// value; `DUMPS` and `FACTOR`: dumps and channels per average; `OUT_BASELINES`; strides of the input's validity counts
// `IN_SPECTRUM` ... `IN_PRODUCT` and of the output's `OUT_SPECTRUM` ... `OUT_PRODUCT`, 0 for an axis that the counts
// lack; `INTEGERS`: whether the values are 32-bit integers or floats; `SHARE`: channels of an average per count, 0 for
// sums that are not divided.
// Grid: one thread for each real number of the averages.
#if !defined(SPECTRA) || !defined(DUMPS) || !defined(FACTOR) || !defined(INTEGERS) || !defined(SHARE)
#error "average.cu needs the macros above"
#endif

#if INTEGERS
using Value = int;
using Sum = long long;
#else
using Value = float;
using Sum = double;
#endif

constexpr long long OUT_CHANNELS = CHANNELS / FACTOR;
/// Real numbers of an average in time.
constexpr long long NUMBERS = ROWS * OUT_CHANNELS * OUT_BASELINES * PRODUCTS * PARTS;

/// Place of a real number within an average in time.
struct Place {
    long long part, product, baseline, channel, row;

    __device__ explicit Place(long long number) {
        part = number % PARTS;
        number /= PARTS;
        product = number % PRODUCTS;
        number /= PRODUCTS;
        baseline = number % OUT_BASELINES;
        number /= OUT_BASELINES;
        channel = number % OUT_CHANNELS;
        row = number / OUT_CHANNELS;
    }
};

/// Adds `dumps` dumps of a frame, from index `first` on, to `sums` `[average][number]`. In the sums they begin with the
/// dump `place`. `valid` has the counts of the frame, or is null if nothing is missing; `baselines` has the input's
/// index of each baseline. Each thread adds in the order of dumps and channels, as the reference does.
extern "C" __global__ void add(const Value *values, const unsigned *valid, const unsigned *baselines, Sum *sums,
                               int first, int dumps, long long place) {
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long average = place / DUMPS + thread / NUMBERS;
    const long long end = place + dumps;
    if (average * DUMPS >= end) {
        return;
    }
    const Place at(thread % NUMBERS);
    const long long baseline = baselines[at.baseline];
    const long long begin = average * DUMPS > place ? average * DUMPS : place;
    const long long until = (average + 1) * DUMPS < end ? (average + 1) * DUMPS : end;
    Sum *const sum = sums + average * NUMBERS + thread % NUMBERS;
    Sum total = *sum;
    for (long long n = begin; n < until; n++) {
        const long long dump = first + (n - place);
        for (long long c = at.channel * FACTOR; c < (at.channel + 1) * FACTOR; c++) {
            const long long unit = dump * IN_SPECTRUM + at.row * IN_ROW + c * IN_CHANNEL + baseline * IN_BASELINE +
                                   at.product * IN_PRODUCT;
            if (valid != nullptr && valid[unit] == 0) {
                continue;
            }
            const long long row = (dump * ROWS + at.row) * CHANNELS + c;
            total += values[((row * BASELINES + baseline) * PRODUCTS + at.product) * PARTS + at.part];
        }
    }
    *sum = total;
}

/// Writes the averages of `sums` to `output`, given their validity `counts`, and resets the sums to 0.
extern "C" __global__ void output(Sum *sums, const unsigned *counts, float *output, long long averages) {
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long average = thread / NUMBERS;
    if (average >= averages) {
        return;
    }
    const Place at(thread % NUMBERS);
    const long long unit = average * OUT_SPECTRUM + at.row * OUT_ROW + at.channel * OUT_CHANNEL +
                           at.baseline * OUT_BASELINE + at.product * OUT_PRODUCT;
    const unsigned count = counts[unit];
    const double sum = (double)sums[thread];
    const double divisor = SHARE > 0 ? (double)count * SHARE : 1.0;
    output[thread] = count == 0 ? 0.0f : (float)(sum / divisor);
    sums[thread] = 0;
}
