// Spectral kurtosis of each channel and polarisation of a heap; sets the samples of flagged and missing ones to zero.
//
// A row is a channel of an antenna and heap. A warp reads a row twice: for the sums, and, from the cache, for the copy.
// All sums are exact integers, and the comparison rounds as on the CPU, so the decisions are the same.
//
// Macros: ROWS in a frame, ROWS_OF_HEAP, SPECTRA per row, POLS (1 or 2), K_MAJOR (1 if the spectra of a polarisation are
// adjacent, also for one polarisation), FOUR_BIT, VECTOR (bytes of a memory access; divides the row, if K_MAJOR the part
// of each polarisation), WARPS per thread block.

#ifndef VECTOR
#error "VECTOR, the bytes of a memory access, is not set"
#endif

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

static_assert(POLS == 2 || K_MAJOR, "one polarisation has adjacent spectra");

/// States of a unit, as `State` in statistics.rs.
constexpr u8 PASSED = 0, HIGH = 3, LOW = 4, UNTESTED = 5;

constexpr int VALUE_BYTES = FOUR_BIT ? 1 : 2;
constexpr int ROW_BYTES = POLS * SPECTRA * VALUE_BYTES;
constexpr int VECTORS = ROW_BYTES / VECTOR;
/// Words of a vector; a vector of 1 or 2 bytes is a word whose upper bytes are 0.
constexpr int WORDS = VECTOR < 4 ? 1 : VECTOR / 4;
constexpr int VALUES_OF_WORD = 4 / VALUE_BYTES;

#if VECTOR == 16
using Stored = uint4;
#elif VECTOR == 8
using Stored = uint2;
#elif VECTOR == 4
using Stored = u32;
#elif VECTOR == 2
using Stored = unsigned short;
#else
using Stored = u8;
#endif

struct Vector {
    u32 words[WORDS];

    __device__ __forceinline__ void load(const Stored* from) {
        const Stored stored = *from;
#if VECTOR == 16
        words[0] = stored.x;
        words[1] = stored.y;
        words[2] = stored.z;
        words[3] = stored.w;
#elif VECTOR == 8
        words[0] = stored.x;
        words[1] = stored.y;
#else
        words[0] = stored;
#endif
    }

    __device__ __forceinline__ void store(Stored* to) const {
#if VECTOR == 16
        *to = make_uint4(words[0], words[1], words[2], words[3]);
#elif VECTOR == 8
        *to = make_uint2(words[0], words[1]);
#else
        *to = (Stored)words[0];
#endif
    }
};

/// Power of value `index` of a word.
__device__ __forceinline__ u32 power(u32 word, int index) {
    const i32 bits = (i32)(word << (32 - 8 * VALUE_BYTES * (index + 1)));
#if FOUR_BIT
    // The real part is in the upper half of a byte.
    const i32 re = bits >> 28, im = (i32)((u32)bits << 4) >> 28;
#else
    // The imaginary part is in the upper byte.
    const i32 im = bits >> 24, re = (i32)((u32)bits << 8) >> 24;
#endif
    return (u32)(re * re + im * im);
}

/// Bits of a word that belong to polarisation `pol`, if the polarisations alternate.
__device__ __forceinline__ u32 bits_of(int pol) {
    const u32 first = FOUR_BIT ? 0x00ff00ffu : 0x0000ffffu;
    return pol == 0 ? first : ~first;
}

__device__ __forceinline__ u64 warp_sum(u64 sum) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}

/// State of a unit after the comparison of `SPECTRA s2/s1^2` with its limits. The integers are at most 2^62.
__device__ __forceinline__ u8 judge(u64 s1, u64 s2, double low, double high) {
    const double squares = __ull2double_rn((u64)SPECTRA * s2);
    const double square = __ull2double_rn(s1 * s1);
    if (squares > __dmul_rn(high, square)) return HIGH;
    if (squares < __dmul_rn(low, square)) return LOW;
    return PASSED;
}

/// input, output  [row][spectrum][POLS] or, if K_MAJOR, [row][POLS][spectrum]
/// states         [row][POLS]: before the test, and after it
/// limits         [heap][low, high]
///
/// Grid (ROWS / WARPS rounded up), blocks of WARPS x 32 threads.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    spectral_kurtosis(const Stored* __restrict__ input, Stored* __restrict__ output, u8* states,
                      const double* __restrict__ limits) {
    const i64 row = (i64)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    // The same for all threads of a warp.
    if (row >= ROWS) return;
    input += row * VECTORS;
    output += row * VECTORS;
    states += row * POLS;

    u8 state[POLS];
    bool is_tested = false;
#pragma unroll
    for (int pol = 0; pol < POLS; pol++) {
        state[pol] = states[pol];
        is_tested |= state[pol] == UNTESTED;
    }

    if (is_tested) {
        // At most 2^16 spectra of a power of at most 2^15.
        u32 s1[POLS] = {};
        u64 s2[POLS] = {};
        for (int v = lane; v < VECTORS; v += 32) {
            Vector vector;
            vector.load(input + v);
            u32 sum[POLS] = {};
            u64 squares[POLS] = {};
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
#pragma unroll
                for (int i = 0; i < VALUES_OF_WORD; i++) {
                    const u32 p = power(vector.words[w], i);
                    const int pol = K_MAJOR ? 0 : i % POLS;
                    sum[pol] += p;
                    squares[pol] += (u64)p * p;
                }
            }
#if K_MAJOR
            // The vector belongs to one polarisation.
#pragma unroll
            for (int pol = 0; pol < POLS; pol++) {
                if (v / (VECTORS / POLS) == pol) {
                    s1[pol] += sum[0];
                    s2[pol] += squares[0];
                }
            }
#else
#pragma unroll
            for (int pol = 0; pol < POLS; pol++) {
                s1[pol] += sum[pol];
                s2[pol] += squares[pol];
            }
#endif
        }
        const double* const of_heap = limits + row / ROWS_OF_HEAP * 2;
        const double low = of_heap[0], high = of_heap[1];
#pragma unroll
        for (int pol = 0; pol < POLS; pol++) {
            const u64 sum = warp_sum(s1[pol]), squares = warp_sum(s2[pol]);
            if (state[pol] == UNTESTED) state[pol] = judge(sum, squares, low, high);
            if (lane == pol) states[pol] = state[pol];
        }
    }

    for (int v = lane; v < VECTORS; v += 32) {
        Vector vector;
        vector.load(input + v);
#if K_MAJOR
        const bool is_kept = state[POLS == 1 ? 0 : v / (VECTORS / POLS)] == PASSED;
        const u32 mask = is_kept ? ~0u : 0;
#else
        u32 mask = 0;
#pragma unroll
        for (int pol = 0; pol < POLS; pol++)
            if (state[pol] == PASSED) mask |= bits_of(pol);
#endif
#pragma unroll
        for (int w = 0; w < WORDS; w++) vector.words[w] &= mask;
        vector.store(output + v);
    }
}
