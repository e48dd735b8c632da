// Conversion between data types.
//
// Macros: `FROM` and `TO`, types of the numbers (`I4`, `U8`, `I8`, `I16`, `I32`, `F16`, `F32`, `F64`); `PARTS`, 1,
// or 2 if an element of the output is a complex number; `EMBED`, 1 if the input is real and the output complex;
// `CONJUGATE`, 1 to negate imaginary parts; `DOUBLE`, 1 to calculate in double precision.
#if !defined(FROM) || !defined(TO) || !defined(PARTS) || !defined(DOUBLE)
#error "convert.cu needs FROM, TO, PARTS and DOUBLE"
#endif
#if !defined(EMBED) || !defined(CONJUGATE)
#error "convert.cu needs EMBED and CONJUGATE"
#endif

#include "half_matrix.cuh"
#include "types.cuh"

constexpr int THREADS = 256;
/// Numbers per thread.
constexpr int RUN = 8;
/// Numbers of a stretch, and its first numbers that are measured; as in level.rs of the block.
constexpr int STRETCH = 16384, MEASURED = 256;

template <bool is_double> struct WorkOf;
template <> struct WorkOf<false> { using Type = float; };
template <> struct WorkOf<true> { using Type = double; };
/// Type of the calculation.
using Work = typename WorkOf<DOUBLE>::Type;

__device__ __forceinline__ i32 nearest(float x) { return __float2int_rn(x); }
__device__ __forceinline__ i32 nearest(double x) { return __double2int_rn(x); }

/// Integers of this many bits in words, first one lowest; of the two in a byte the first one is in the high nibble.
template <int bits, bool is_signed> struct Integer {
    static constexpr int BITS = bits;
    static constexpr bool WHOLE = true;
    static constexpr Work LARGEST = (Work)((1ll << (bits - is_signed)) - 1);
    static constexpr Work LOWEST = is_signed ? -LARGEST : 0;
    using Words = u32[RUN * bits / 32];

    static __device__ __forceinline__ void read(const Words& words, Work (&numbers)[RUN]) {
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            const u32 word = words[i * bits / 32] << (32 - bits - shift(i));
            numbers[i] = is_signed ? (Work)((i32)word >> (32 - bits)) : (Work)(word >> (32 - bits));
        }
    }
    static __device__ __forceinline__ void write(const Work (&numbers)[RUN], Words& words) {
        constexpr u32 mask = ~0u >> (32 - bits);
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            const u32 part = ((u32)nearest(numbers[i]) & mask) << shift(i);
            words[i * bits / 32] = shift_is_first(i) ? part : words[i * bits / 32] | part;
        }
    }

  private:
    static constexpr int shift(int i) { return (bits == 4 ? i ^ 1 : i) * bits % 32; }
    static constexpr bool shift_is_first(int i) { return i * bits % 32 == 0; }
};

using I4 = Integer<4, true>;
using U8 = Integer<8, false>;
using I8 = Integer<8, true>;
using I16 = Integer<16, true>;
using I32 = Integer<32, true>;

struct F16 {
    static constexpr int BITS = 16;
    static constexpr bool WHOLE = false;
    static constexpr Work LARGEST = 65504, LOWEST = -LARGEST;
    using Words = u32[RUN / 2];

    static __device__ __forceinline__ void read(const Words& words, Work (&numbers)[RUN]) {
#pragma unroll
        for (int i = 0; i < RUN; i += 2) {
            const float2 both = from_halves(words[i / 2]);
            numbers[i] = both.x;
            numbers[i + 1] = both.y;
        }
    }
    /// Rounds to single precision first, like the reference.
    static __device__ __forceinline__ void write(const Work (&numbers)[RUN], Words& words) {
#pragma unroll
        for (int i = 0; i < RUN; i += 2)
            words[i / 2] = halves((float)numbers[i], (float)numbers[i + 1]);
    }
};

struct F32 {
    static constexpr int BITS = 32;
    static constexpr bool WHOLE = false;
    static constexpr Work LARGEST = 3.40282346638528860e38, LOWEST = -LARGEST;
    using Words = u32[RUN];

    static __device__ __forceinline__ void read(const Words& words, Work (&numbers)[RUN]) {
#pragma unroll
        for (int i = 0; i < RUN; i++) numbers[i] = __uint_as_float(words[i]);
    }
    static __device__ __forceinline__ void write(const Work (&numbers)[RUN], Words& words) {
#pragma unroll
        for (int i = 0; i < RUN; i++) words[i] = __float_as_uint((float)numbers[i]);
    }
};

struct F64 {
    static constexpr int BITS = 64;
    static constexpr bool WHOLE = false;
    static constexpr double LARGEST = 1.79769313486231571e308, LOWEST = -LARGEST;
    using Words = u32[2 * RUN];

    static __device__ __forceinline__ void read(const Words& words, Work (&numbers)[RUN]) {
#pragma unroll
        for (int i = 0; i < RUN; i++)
            numbers[i] = __hiloint2double((int)words[2 * i + 1], (int)words[2 * i]);
    }
    static __device__ __forceinline__ void write(const Work (&numbers)[RUN], Words& words) {
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            words[2 * i] = (u32)__double2loint(numbers[i]);
            words[2 * i + 1] = (u32)__double2hiint(numbers[i]);
        }
    }
};

/// Reads `count` numbers, aligned to the numbers per thread, and pads with zeros.
template <int words_len>
__device__ __forceinline__ void load(const u8* from, int bytes, u32 (&words)[words_len]) {
    if (bytes == 4 * words_len) {
        if constexpr (words_len == 1) words[0] = *(const u32*)from;
        else if constexpr (words_len == 2) *(uint2*)words = *(const uint2*)from;
        else
#pragma unroll
            for (int i = 0; i < words_len; i += 4) *(uint4*)(words + i) = *(const uint4*)(from + 4 * i);
        return;
    }
#pragma unroll
    for (int i = 0; i < words_len; i++) words[i] = 0;
#pragma unroll
    for (int i = 0; i < 4 * words_len; i++)
        if (i < bytes) words[i / 4] |= (u32)from[i] << i % 4 * 8;
}

/// Writes the bytes of `count` numbers from `words`.
template <int words_len>
__device__ __forceinline__ void store(u8* to, int bytes, const u32 (&words)[words_len]) {
    if (bytes == 4 * words_len) {
        if constexpr (words_len == 1) *(u32*)to = words[0];
        else if constexpr (words_len == 2) *(uint2*)to = *(const uint2*)words;
        else
#pragma unroll
            for (int i = 0; i < words_len; i += 4) *(uint4*)(to + 4 * i) = *(const uint4*)(words + i);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4 * words_len; i++)
        if (i < bytes) to[i] = (u8)(words[i / 4] >> i % 4 * 8);
}

/// Multiplies by `scale`, clamps, rounds half to even.
///
/// input, output  `numbers` numbers each; half as many of the input if real numbers become complex
/// counts         number of elements with a clamped or NaN part, and for integers of at most 16 bits the sum of squares
///                of the measured numbers; the kernel adds to them
///
/// Grid: numbers / (256 x 8), blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    convert(const u8* __restrict__ input, u8* __restrict__ output, u64* counts, u64 numbers,
            double scale) {
    const u64 first = ((u64)blockIdx.x * THREADS + threadIdx.x) * RUN;
    const int count = first >= numbers ? 0 : numbers - first < RUN ? (int)(numbers - first) : RUN;
    __align__(16) typename FROM::Words from;
    __align__(16) typename TO::Words to;
    Work values[RUN];
    u32 clamps = 0;
#if EMBED
    constexpr int HALF = sizeof(from) / 8;
    __align__(16) u32 reals[HALF];
    load(input + first / 2 * FROM::BITS / 8, count / 2 * FROM::BITS / 8, reals);
#pragma unroll
    for (int i = 0; i < HALF; i++) from[i] = reals[i], from[HALF + i] = 0;
    FROM::read(from, values);
#pragma unroll
    for (int i = RUN - 1; i >= 0; i--) values[i] = i % 2 == 0 ? values[i / 2] : (Work)0;
#else
    load(input + first * FROM::BITS / 8, count * FROM::BITS / 8, from);
    FROM::read(from, values);
#endif
#pragma unroll
    for (int i = 0; i < RUN; i += PARTS) {
        bool fits = true;
#pragma unroll
        for (int part = i; part < i + PARTS; part++) {
            const Work value = values[part] * (Work)(CONJUGATE && part > i ? -scale : scale);
            fits &= value >= TO::LOWEST && value <= TO::LARGEST;
            values[part] = value > TO::LARGEST ? TO::LARGEST
                           : value < TO::LOWEST ? TO::LOWEST
                           : TO::WHOLE && value != value ? 0
                                                         : value;
        }
        clamps += !fits;
    }
    TO::write(values, to);
    store(output + first * TO::BITS / 8, count * TO::BITS / 8, to);
    clamps = __reduce_add_sync(~0u, clamps);
    if (clamps != 0 && threadIdx.x % 32 == 0) atomicAdd(counts, (u64)clamps);
    if constexpr (TO::WHOLE && TO::BITS <= 16) {
        if (first % STRETCH < MEASURED) {
            u64 squares = 0;
#pragma unroll
            for (int i = 0; i < RUN; i++) {
                const i64 number = i < count ? nearest(values[i]) : 0;
                squares += number * number;
            }
            if (squares > 0) atomicAdd(counts + 1, squares);
        }
    }
}
