// Integer types of fixed width, and complex numbers.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;

/// Real part x, imaginary part y.
using c32 = float2;

__device__ __forceinline__ c32 operator+(c32 a, c32 b) { return {a.x + b.x, a.y + b.y}; }
__device__ __forceinline__ c32 operator-(c32 a, c32 b) { return {a.x - b.x, a.y - b.y}; }
__device__ __forceinline__ c32 operator*(c32 a, c32 b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
__device__ __forceinline__ c32 operator*(float a, c32 b) { return {a * b.x, a * b.y}; }
__device__ __forceinline__ c32 conj(c32 a) { return {a.x, -a.y}; }
/// a b + c.
__device__ __forceinline__ c32 fma(c32 a, c32 b, c32 c) {
    return {fmaf(-a.y, b.y, fmaf(a.x, b.x, c.x)), fmaf(a.y, b.x, fmaf(a.x, b.y, c.y))};
}
