// Arrays of several axes whose lengths and strides are known when a program is compiled.
#pragma once
#include "types.cuh"

/// Axes with their lengths and strides, fastest first.
template <int n> struct Axes {
    u32 lengths[n];
    u64 strides[n];
};

/// Offset of the element with index `number`, counted along the axes, the first one fastest.
template <int n> __device__ __forceinline__ u64 offset(const Axes<n> &axes, u32 index) {
    u64 sum = 0;
#pragma unroll
    for (int i = 0; i < n; i++) {
        const bool is_last = i == n - 1;
        sum += (is_last ? index : index % axes.lengths[i]) * axes.strides[i];
        index /= axes.lengths[i];
    }
    return sum;
}

/// Number of elements.
template <int n> constexpr u32 elements(const Axes<n> &axes) {
    u32 product = 1;
    for (int i = 0; i < n; i++) product *= axes.lengths[i];
    return product;
}
