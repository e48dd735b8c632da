// Transforms of 2N real numbers from transforms of N complex ones.
#pragma once
#include "types.cuh"

/// e^{-2 pi j i/n}, accurate for any i.
__device__ __forceinline__ c32 root(u32 i, u32 n) {
    float sin, cos;
    sincospif(-2.0f * static_cast<float>(i) / static_cast<float>(n), &sin, &cos);
    return {cos, sin};
}

/// Last step to the transform of twice as many real numbers. Replaces Z_k and Z_{N-k} of z_i = x_{2i} +
/// j x_{2i+1} by X_k and X_{N-k}, with `twiddle` = -j e^{-j pi k/N} / 2: with U = (Z_k + conj Z_{N-k}) / 2
/// and jV = (Z_k - conj Z_{N-k}) / 2, X_k = U + e^{-j pi k/N} V and X_{N-k} = conj(U - e^{-j pi k/N} V).
/// For k = 0 with Z_0 for both, X_0 is correct.
__device__ __forceinline__ void real_pair(c32 &z_k, c32 &z_n_k, c32 twiddle) {
    const c32 u = 0.5f * (z_k + conj(z_n_k));
    const c32 v = twiddle * (z_k - conj(z_n_k));
    z_k = u + v;
    z_n_k = conj(u - v);
}
