// The factor that turns the channels of one spectrum: exp(j (phase - pi fine (k - N/2) / N)).
#pragma once
#include "types.cuh"

/// What turns a spectrum, reduced in double precision on the host.
struct Turn {
    /// exp(j phase), times the gain if all channels have the same: the factor of the centre.
    c32 centre;
    /// -pi fine / N.
    float radians_per_channel;
};

/// The part that depends on the channel, for `angle` = radians_per_channel (k - N/2). As |fine| <=
/// 1/2, it is at most pi/4, where the hardware's sine and cosine are good to 2e-7; of complex samples,
/// whose |fine| <= 1, at most pi/2: the worst from -pi to pi is 4.2e-7.
__device__ __forceinline__ c32 phasor(float angle) { return {__cosf(angle), __sinf(angle)}; }

/// The same for `from_centre` = k - N/2.
__device__ __forceinline__ c32 slope(const Turn &turn, float from_centre) {
    return phasor(turn.radians_per_channel * from_centre);
}
