// Satellites' signals for `gnss_correlator.cu`, whose parameters they take: phases of codes and carriers, and how taps
// lie to each other.
#pragma once
#include "types.cuh"

/// Bits of a code phase behind the point.
constexpr u32 FRACTION = 48;
constexpr u64 FRACTION_MASK = (1ull << FRACTION) - 1;

/// One satellite over one epoch; phases are those of the sample `first`.
struct __align__(8) Channel {
    u64 code, code_step, carrier, carrier_step;
    /// Where its code begins in the table of codes.
    u64 replica;
    /// Entries of its code, and the number of its system.
    u32 length, system;
    double scale;
    /// A sample that lies on 16 bytes, in the row; samples from there to the epoch's first and to its end.
    u32 first, begin, end, unused;
    /// The tap that is behind all others, as a phase of the code.
    u64 last_tap;
};

__device__ constexpr u64 AHEAD[SYSTEMS][TAPS] = {TAP_PHASES};
__device__ constexpr u32 LARGER[SYSTEMS] = {OFFSETS};

/// Whether two taps are whole entries apart in all systems: both meet the code's changes at the same samples.
constexpr bool are_alike(u32 l, u32 m) {
    for (u32 s = 0; s < SYSTEMS; s++)
        if ((AHEAD[s][l] - AHEAD[s][m]) & FRACTION_MASK) return false;
    return true;
}
/// Of each tap the first one that is alike.
struct Leaders {
    u32 of[TAPS];
};
constexpr Leaders leaders() {
    Leaders leaders = {};
    for (u32 l = 0; l < TAPS; l++)
        while (!are_alike(l, leaders.of[l])) leaders.of[l]++;
    return leaders;
}
__device__ constexpr Leaders LEADERS = leaders();

#if CHANNELS_AS_ARGUMENT
struct Channels {
    Channel list[EPOCHS * SATELLITES];
};
#endif

/// A satellite's phases at a block's first sample, and what its group needs.
struct __align__(16) Signal {
    /// The code's counts from the begin of its window on.
    u64 code, code_step, carrier, carrier_step;
    /// floor(2^(32 + shift) / step) of the code's step in units of 2^-32, rounded up.
    u32 reciprocal, shift, system;
    /// Where its window begins in the table of codes.
    u32 window;
};

/// exp(-2 pi i phase / 2^64) of the upper 32 bits of a phase, by the hardware's functions.
__device__ __forceinline__ c32 rotor(u64 phase) {
    float angle = (float)(i32)(u32)(phase >> 32) * -1.4629180792671596e-9f;
    return {__cosf(angle), __sinf(angle)};
}

/// The same to the last bit of a float.
__device__ __forceinline__ c32 exact_rotor(u64 phase) {
    c32 turn;
    sincospif((float)((double)(i64)phase * -1.0842021724855044e-19), &turn.y, &turn.x);
    return turn;
}
