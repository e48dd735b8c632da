// Fourier transforms of 4 to 32 complex and of 16 real values in the registers of one thread: forward,
// unnormalised.
#pragma once
#include "types.cuh"

/// cos(2 pi t/64), t = 0 .. 16, as a table because NVRTC does not evaluate cos() of constants.
__device__ __forceinline__ constexpr float quarter_cosine64(int t) {
    constexpr float table[17] = {
        1.0f,         0.995184727f, 0.980785280f, 0.956940336f,  0.923879533f, 0.881921264f,
        0.831469612f, 0.773010453f, 0.707106781f, 0.634393284f,  0.555570233f, 0.471396737f,
        0.382683432f, 0.290284677f, 0.195090322f, 0.0980171403f, 0.0f};
    return table[t];
}

/// exp(-2 pi i t/64), t = 0 .. 16.
__device__ __forceinline__ constexpr c32 root64(int t) {
    return {quarter_cosine64(t), -quarter_cosine64(16 - t)};
}

/// -i a.
__device__ __forceinline__ c32 turn_quarter(c32 a) { return {a.y, -a.x}; }

/// a exp(-2 pi i t/32), t = 0 .. 31 known to the compiler.
__device__ __forceinline__ c32 turn32(c32 a, int t) {
    if (t >= 16) a = {-a.x, -a.y};
    if (t % 16 >= 8) a = turn_quarter(a);
    if (t % 8 == 0) return a;
    if (t % 8 == 4) return quarter_cosine64(8) * c32{a.x + a.y, a.y - a.x};
    return a * root64(2 * (t % 8));
}

__device__ __forceinline__ void fft4(c32 &a, c32 &b, c32 &c, c32 &d) {
    const c32 p = a + c, q = a - c, r = b + d, s = turn_quarter(b - d);
    a = p + r;
    b = q + s;
    c = p - r;
    d = q - s;
}

__device__ __forceinline__ void fft8(c32 &a, c32 &b, c32 &c, c32 &d, c32 &e, c32 &f, c32 &g,
                                     c32 &h) {
    fft4(a, c, e, g);
    fft4(b, d, f, h);
    const c32 odd[4] = {b, turn32(d, 4), turn32(f, 8), turn32(h, 12)};
    const c32 even[4] = {a, c, e, g};
    a = even[0] + odd[0];
    b = even[1] + odd[1];
    c = even[2] + odd[2];
    d = even[3] + odd[3];
    e = even[0] - odd[0];
    f = even[1] - odd[1];
    g = even[2] - odd[2];
    h = even[3] - odd[3];
}

/// Index of value k in the result of `short_fft`.
template <int LENGTH> __device__ __forceinline__ constexpr int fft_place(int k) {
    return LENGTH <= 8 ? k : (k % (LENGTH / 4)) * 4 + k / (LENGTH / 4);
}

/// Transforms LENGTH = 1, 4, 8, 16 or 32 values in place.
template <int LENGTH> __device__ __forceinline__ void short_fft(c32 *v) {
    static_assert(LENGTH == 1 || LENGTH == 4 || LENGTH == 8 || LENGTH == 16 || LENGTH == 32,
                  "length");
    if constexpr (LENGTH == 4) fft4(v[0], v[1], v[2], v[3]);
    if constexpr (LENGTH == 8) fft8(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
    if constexpr (LENGTH >= 16) {
        constexpr int FIRST = LENGTH / 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (FIRST == 4) {
                fft4(v[i], v[i + 4], v[i + 8], v[i + 12]);
            } else {
                fft8(v[i], v[i + 4], v[i + 8], v[i + 12], v[i + 16], v[i + 20], v[i + 24],
                     v[i + 28]);
            }
        }
#pragma unroll
        for (int q = 1; q < FIRST; q++)
#pragma unroll
            for (int i = 1; i < 4; i++) v[i + 4 * q] = turn32(v[i + 4 * q], i * q * (32 / LENGTH));
#pragma unroll
        for (int q = 0; q < FIRST; q++) fft4(v[4 * q], v[4 * q + 1], v[4 * q + 2], v[4 * q + 3]);
    }
}

/// a + w b and a - w b for w = exp(-2 pi i t/32), t = 0 .. 15 known to the compiler, in at most six
/// instructions: one part of w is a factor of the other operand of the additions.
__device__ __forceinline__ void butterfly(c32 &a, c32 &b, int t) {
    constexpr float tangent[5] = {0.0f, 0.198912367f, 0.414213562f, 0.668178638f, 1.0f};
    c32 u;
    float factor = 1.0f;
    if (t % 8 == 0) {
        u = t == 0 ? b : turn_quarter(b);
        const c32 sum = a + u;
        b = a - u;
        a = sum;
        return;
    }
    if (t < 4 || t > 12) {
        const float k = t < 4 ? tangent[t] : -tangent[16 - t];
        u = {b.x + k * b.y, b.y - k * b.x};
        factor = t < 4 ? quarter_cosine64(2 * t) : -quarter_cosine64(2 * (16 - t));
    } else {
        const float k = t <= 8 ? tangent[8 - t] : -tangent[t - 8];
        u = {k * b.x + b.y, k * b.y - b.x};
        factor = quarter_cosine64(t <= 8 ? 2 * (8 - t) : 2 * (t - 8));
    }
    b = {a.x - factor * u.x, a.y - factor * u.y};
    a = {a.x + factor * u.x, a.y + factor * u.y};
}

__device__ __forceinline__ constexpr int reversed5(int i) {
    return (i & 1) << 4 | (i & 2) << 2 | (i & 4) | (i & 8) >> 2 | (i & 16) >> 4;
}

/// Transforms LENGTH = 1, 8, 16 or 32 values in place, in natural order, with fewer instructions than
/// `short_fft`.
template <int LENGTH> __device__ __forceinline__ void butterfly_fft(c32 *v) {
    static_assert(LENGTH == 1 || LENGTH == 8 || LENGTH == 16 || LENGTH == 32, "length");
    constexpr int BITS = LENGTH == 1 ? 0 : LENGTH == 8 ? 3 : LENGTH == 16 ? 4 : 5;
    constexpr int HALF = LENGTH == 1 ? 1 : LENGTH / 2;
    c32 w[LENGTH];
#pragma unroll
    for (int i = 0; i < LENGTH; i++) w[i] = v[reversed5(i) >> (5 - BITS)];
    // One loop over all butterflies: loops with bounds that depend on an outer one are not unrolled.
#pragma unroll
    for (int n = 0; n < BITS * HALF; n++) {
        const int step = n / HALF, i = n % HALF, k = i & ((1 << step) - 1);
        const int at = ((i >> step) << (step + 1)) + k;
        butterfly(w[at], w[at + (1 << step)], k * (16 >> step));
    }
#pragma unroll
    for (int i = 0; i < LENGTH; i++) v[i] = w[i];
}

/// Transform of 16 real values: the sums over even and over odd places, whose sum and difference are
/// values 0 and 8, and values 1 to 7.
struct RealFft16 {
    float even, odd;
    c32 value[8];

    __device__ __forceinline__ explicit RealFft16(const float *y) {
        const float root = quarter_cosine64(8), cosine = quarter_cosine64(4), tangent = 0.414213562f;
        float sum[8], difference[8], u[4], v[4];
#pragma unroll
        for (int a = 0; a < 8; a++) {
            sum[a] = y[a] + y[a + 8];
            difference[a] = y[a] - y[a + 8];
        }
#pragma unroll
        for (int a = 0; a < 4; a++) {
            u[a] = sum[a] + sum[a + 4];
            v[a] = sum[a] - sum[a + 4];
        }
        even = u[0] + u[2];
        odd = u[1] + u[3];
        value[4] = {u[0] - u[2], u[3] - u[1]};
        const float m = v[1] - v[3], n = v[1] + v[3];
        value[2] = {v[0] + root * m, -v[2] - root * n};
        value[6] = {v[0] - root * m, v[2] - root * n};

        const float *d = difference;
        const float e1 = d[1] - d[7], e2 = d[2] - d[6], e3 = d[3] - d[5];
        const float f1 = d[1] + d[7], f2 = d[2] + d[6], f3 = d[3] + d[5];
        const float p = d[0] + root * e2, q = d[0] - root * e2;
        const float g = e1 + tangent * e3, h = tangent * e1 - e3;
        const float r = d[4] + root * f2, s = d[4] - root * f2;
        const float j = tangent * f1 + f3, k = f1 - tangent * f3;
        value[1] = {p + cosine * g, -r - cosine * j};
        value[7] = {p - cosine * g, r - cosine * j};
        value[3] = {q + cosine * h, s - cosine * k};
        value[5] = {q - cosine * h, -s - cosine * k};
    }
};
