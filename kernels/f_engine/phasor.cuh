// Phase factor of the channels of one spectrum: exp(j (phase - pi fine (k - N/2) / N)).
#pragma once
#include "types.cuh"

/// Phase rotation of a spectrum, computed in double precision.
struct Turn {
    /// Factor of the centre channel: exp(j phase), times the common gain of all channels.
    c32 centre;
    /// -pi fine / N.
    float radians_per_channel;
};

/// Channel-dependent part, for `angle` = radians_per_channel (k - N/2). As |fine| <= 1/2, the angle is at
/// most pi/4, where the hardware's sine and cosine have errors of at most 2e-7. For complex samples, |fine|
/// <= 1 and the angle is at most pi/2; the largest error from -pi to pi is 4.2e-7.
__device__ __forceinline__ c32 phasor(float angle) { return {__cosf(angle), __sinf(angle)}; }

/// Channel-dependent part for `from_centre` = k - N/2.
__device__ __forceinline__ c32 slope(const Turn &turn, float from_centre) {
    return phasor(turn.radians_per_channel * from_centre);
}
