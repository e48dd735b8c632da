// FIR filter of a polyphase filter bank on packed samples, with power and clipping, and on complex samples in
// single precision.
//
// Macros:
//   CHANNELS  N, an even number, at least 4; a spectrum takes 2 N samples, or N complex ones: 2 N numbers
//   TAPS      taps of the filter, 1 .. 64
//   UNZIP     interleaved complex series into which each spectrum is split, 1 for none
//   BITS      bits of a sample: 2 .. 10, 12, 16; 32 for the real and imaginary parts of complex samples
//   NATIVE    1 for 16-bit integers in the machine's byte order, 0 for packed samples
#include "packed.cuh"
#include "types.cuh"

#if !defined(CHANNELS) || !defined(TAPS) || !defined(UNZIP) || !defined(BITS) || !defined(NATIVE)
#error "pfb.cu needs CHANNELS, TAPS, UNZIP, BITS and NATIVE"
#endif
#if !defined(THREADS)
#error "pfb.cu needs THREADS per block"
#endif

enum What : u32 {
    /// Filters the spectra; the samples are those of the windows.
    FILTER,
    /// Measures missing spectra; the samples are the last 2 N of each window.
    MEASURE,
    /// Writes zeros for missing spectra without any samples.
    CLEAR
};

/// Adjacent spectra of one polarisation, at most the number that a thread block processes in sequence.
struct Run {
    /// Address of the memory with the first spectrum's samples, a multiple of 4.
    u64 samples;
    /// Offset of the first sample from `samples` in bits.
    u64 first_bit;
    /// Row of the output: polarisation times spectra per polarisation, plus spectrum.
    u32 row;
    /// Number of spectra.
    u32 count;
    What what;
    u32 pol;
};

constexpr int STEP = 2 * CHANNELS;
/// Whether samples are a digitiser's; only these are measured.
constexpr bool IS_DIGITISED = BITS < 32;
/// Adjacent numbers of a spectrum per thread; their weights and windows are in registers.
constexpr int COLUMNS = TAPS <= 32 ? 2 : 1;
/// Divisor of numbers when they are decoded.
constexpr float FULL = IS_DIGITISED ? 1ull << BITS : 1;
/// Bits per row of STEP numbers.
constexpr u32 ROW_BITS = STEP * BITS;
/// Number of rows that are read ahead.
constexpr int MAX_AHEAD = 8;
/// Rows per group, a multiple of the taps, so that every index of a register array is a constant.
constexpr int GROUP = TAPS * ((MAX_AHEAD + TAPS - 1) / TAPS);

constexpr int largest_divisor(int of, int most) {
    int divisor = most;
    while (of % divisor != 0) divisor--;
    return divisor;
}
constexpr int AHEAD = largest_divisor(GROUP, MAX_AHEAD);

/// Sums of the squares of a group of rows are exact in single precision up to 2^24; 32 bits are enough for up to 12
/// bits (64 2^22 < 2^32).
constexpr bool IS_EXACT_IN_SINGLE =
    IS_DIGITISED && (static_cast<u64>(GROUP * COLUMNS) << (2 * BITS - 2)) <= 1 << 24;
template <bool IS_EXACT, bool IS_WIDE> struct Sum { using type = float; };
template <> struct Sum<false, false> { using type = u32; };
template <> struct Sum<false, true> { using type = u64; };
using GroupPower = Sum<IS_EXACT_IN_SINGLE, (BITS > 12)>::type;

/// Samples of one thread's columns, row by row.
struct Column {
    const u32 *words;
    u32 shift;

    /// `first_bit` is that of the column in row 0.
    __device__ Column(u64 samples, u64 first_bit)
        : words(reinterpret_cast<const u32 *>(samples) + (first_bit >> 5)), shift(first_bit & 31) {}

    /// Makes row `rows` the new row 0.
    __device__ __forceinline__ void advance(u32 rows) {
        const u64 bits = static_cast<u64>(rows) * ROW_BITS + (ROW_BITS % 32 == 0 ? 0 : shift);
        words += bits >> 5;
        if (ROW_BITS % 32 != 0) shift = bits & 31;
    }

    __device__ __forceinline__ uint2 load(u32 row) const {
        const u64 bit = static_cast<u64>(row) * ROW_BITS + (ROW_BITS % 32 == 0 ? 0 : shift);
        const u32 *at = words + (bit >> 5);
        if constexpr (!IS_DIGITISED && COLUMNS == 1) return {__ldg(at), 0};
        if constexpr (!IS_DIGITISED) return __ldg(reinterpret_cast<const uint2 *>(at));
        return {__ldg(at), __ldg(at + 1)};
    }

    /// Decodes the loaded words of a row: integers are divided by 2^BITS. Returns the bits of packed samples.
    __device__ __forceinline__ u32 decode(uint2 loaded, u32 row, float (&to)[COLUMNS]) const {
        if constexpr (IS_DIGITISED) {
            const u32 top = bits(loaded, row);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) to[c] = sample_fraction<BITS>(top, c);
            return top;
        } else {
            to[0] = __uint_as_float(loaded.x);
            if constexpr (COLUMNS == 2) to[1] = __uint_as_float(loaded.y);
            return 0;
        }
    }

    /// Bits of the row's samples, the first one in the most significant bits.
    __device__ __forceinline__ u32 bits(uint2 loaded, u32 row) const {
        return stream_bits<NATIVE>(loaded.x, loaded.y, (row * ROW_BITS + shift) & 31);
    }
};

/// Power and clipping.
struct Measured {
    u64 power = 0;
    u32 clipped = 0;
    GroupPower of_group = 0;

    /// `bits` contain the samples `x` 2^BITS.
    __device__ __forceinline__ void add(u32 bits, const float (&x)[COLUMNS]) {
        if constexpr (IS_DIGITISED) {
            constexpr float limit = ((1ull << (BITS - 1)) - 1.0f) / (1ull << BITS);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                if constexpr (IS_EXACT_IN_SINGLE) {
                    of_group += x[c] * x[c];
                } else {
                    const i32 integer = sample<BITS>(bits, c);
                    of_group += static_cast<u32>(integer * integer);
                }
                // The result is -1 (all bits set) or 0.
                i32 is_clipped;
                asm("set.ge.u32.f32 %0, %1, %2;" : "=r"(is_clipped) : "f"(fabsf(x[c])), "f"(limit));
                clipped -= is_clipped;
            }
        }
    }

    __device__ __forceinline__ void end_of_group() {
        if constexpr (IS_EXACT_IN_SINGLE) {
            constexpr float scale = FULL * FULL;
            power += static_cast<u32>(of_group * scale);
        } else {
            power += of_group;
        }
        of_group = 0;
    }

    /// Adds the sums of the block to `totals` [power, clipped].
    __device__ void total(u64 *totals) {
        if constexpr (IS_DIGITISED) {
            for (int other = 16; other > 0; other /= 2) {
                power += __shfl_xor_sync(0xffffffff, power, other);
                clipped += __shfl_xor_sync(0xffffffff, clipped, other);
            }
            if (threadIdx.x % 32 == 0) {
                atomicAdd(totals, power);
                atomicAdd(totals + 1, static_cast<u64>(clipped));
            }
        }
    }
};

/// Place of sample `column` of a spectrum: complex number i = q UNZIP + r is at place q of part r.
__device__ __forceinline__ u32 place(u32 column) {
    const u32 i = column / 2;
    return 2 * ((i % UNZIP) * (CHANNELS / UNZIP) + i / UNZIP) + column % 2;
}

/// Writes a thread's values of one spectrum.
__device__ __forceinline__ void store(float *to, const float (&y)[COLUMNS]) {
    if constexpr (COLUMNS == 2) {
        *reinterpret_cast<float2 *>(to) = {y[0], y[1]};
    } else {
        *to = y[0];
    }
}

/// Filters the columns of one thread over all spectra of a run. The rows of samples of a window are in registers,
/// in rotation; each row is read and decoded once.
///
/// y[n][s] = sum over t of w[t][s] x[n + t][s]
__device__ void filter(Column column, u32 count, const float *weights, float *out,
                       Measured &measured) {
    float w[TAPS][COLUMNS], x[TAPS][COLUMNS];
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            w[t][c] = weights[t * STEP + c] * FULL;
        }
    }
    const u32 rows = count + TAPS - 1;
    // Row r is at index r % TAPS of x; before it is decoded, at index r % AHEAD of `ahead`.
    uint2 ahead[AHEAD] = {};
    auto decode = [&](u32 row, int of_ahead, float(&to)[COLUMNS], bool has_ahead) {
        const u32 bits = column.decode(ahead[of_ahead], row, to);
        if (has_ahead) ahead[of_ahead] = column.load(row + AHEAD);
        return bits;
    };
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
        if (a < rows) ahead[a] = column.load(a);
    }
#pragma unroll
    for (int r = 0; r < TAPS - 1; r++) decode(r, r % AHEAD, x[r], r + AHEAD < rows);

    // Filters spectrum j; row 0 of `column` is the first of the group.
    auto spectrum = [&](int j, bool has_ahead) {
        const int newest = j + TAPS - 1;
        float(&of_newest)[COLUMNS] = x[newest % TAPS];
        measured.add(decode(newest, newest % AHEAD, of_newest, has_ahead), of_newest);
        float y[COLUMNS] = {};
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) y[c] += w[t][c] * x[(j + t) % TAPS][c];
        }
        store(out + j * STEP, y);
    };
    u32 left = count;
    for (; left >= GROUP + AHEAD; left -= GROUP) {
#pragma unroll
        for (int j = 0; j < GROUP; j++) spectrum(j, true);
        measured.end_of_group();
        column.advance(GROUP);
        out += GROUP * STEP;
    }
    while (left > 0) {
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            if (j >= left) break;
            spectrum(j, j + AHEAD < left);
        }
        measured.end_of_group();
        column.advance(GROUP);
        out += GROUP * STEP;
        left -= min(left, static_cast<u32>(GROUP));
    }
}

/// Filters runs of spectra and measures the power of their samples.
///
///   runs      [run]
///   weights   [tap][number 2N]
///   out       [pol][spectrum][sample 2N], or [pol][spectrum][unzip][sample N/unzip][re, im]
///   totals    [pol][power, clipped]: sum of the squares, and number of samples at the limits, of the last 2N
///             samples of each window; the kernel adds to the present values
///
/// Grid: (2N / COLUMNS / THREADS, runs), blocks of THREADS.
extern "C" __global__ void __launch_bounds__(THREADS, (TAPS <= 16 ? 512 : 256) / THREADS)
pfb(const Run *__restrict__ runs, const float *__restrict__ weights, float *__restrict__ out,
    u64 *__restrict__ totals) {
    const Run run = runs[blockIdx.y];
    const u32 first = (blockIdx.x * THREADS + threadIdx.x) * COLUMNS;
    const bool has_columns = first < STEP;
    Measured measured;
    if (has_columns) {
        const Column column(run.samples, run.first_bit + first * BITS);
        float *to = out + static_cast<u64>(run.row) * STEP + place(first);
        if (run.what == FILTER) {
            filter(column, run.count, weights + first, to, measured);
        } else {
            const float zeros[COLUMNS] = {};
            for (u32 n = 0; n < run.count; n++, to += STEP) {
                store(to, zeros);
                if (IS_DIGITISED && run.what == MEASURE) {
                    Column at_row = column;
                    at_row.advance(n);
                    float x[COLUMNS];
                    const u32 bits = at_row.decode(at_row.load(0), 0, x);
                    measured.add(bits, x);
                    measured.end_of_group();
                }
            }
        }
    }
    measured.total(totals + 2 * run.pol);
}
