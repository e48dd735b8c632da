// Signals of satellites for `gnss_correlator.cu`, with its macros: phases of codes and carriers, and distances of the
// correlator taps.
#pragma once
#include "types.cuh"

/// Fraction bits of a code phase.
constexpr u32 FRACTION = 43;
constexpr u64 FRACTION_MASK = (1ull << FRACTION) - 1;

/// One satellite over one epoch; phases are those of the sample `first`.
struct __align__(8) Channel {
    u64 code, code_step, carrier, carrier_step;
    /// Start of the code in the table of codes.
    u64 replica;
    /// Number of entries of the code, and index of its system.
    u32 length, system;
    double scale;
    /// Index in the row of a sample aligned to 16 bytes; samples from there to the first and to the end of the epoch.
    u32 first, begin, end, unused;
    /// Code phase of the last correlator tap.
    u64 last_tap;
};

__device__ constexpr u64 AHEAD[SYSTEMS][TAPS] = {TAP_PHASES};
__device__ constexpr u32 LARGER[SYSTEMS] = {OFFSETS};

/// Returns whether two correlator taps are whole entries apart in all systems, so that both see the changes of the
/// code at the same samples.
constexpr bool are_alike(u32 l, u32 m) {
    for (u32 s = 0; s < SYSTEMS; s++)
        if ((AHEAD[s][l] - AHEAD[s][m]) & FRACTION_MASK) return false;
    return true;
}
/// For each correlator tap the first one with the same fraction.
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

/// Phases of a satellite at a block's first sample, and constants of its groups.
struct __align__(16) Signal {
    /// The code phase counts from the start of its window.
    u64 code, code_step, carrier, carrier_step;
    /// floor(2^(32 + shift) / step) of the code's step in units of 2^-32, rounded up.
    u32 reciprocal, shift, system;
    /// Start of the window in the table of codes.
    u32 window;
};

/// exp(-2 pi i phase / 2^64) from the upper 32 bits of the phase, with the hardware's functions.
__device__ __forceinline__ c32 rotor(u64 phase) {
    float angle = (float)(i32)(u32)(phase >> 32) * -1.4629180792671596e-9f;
    return {__cosf(angle), __sinf(angle)};
}

/// exp(-2 pi i phase / 2^64), exact to the last bit of a float.
__device__ __forceinline__ c32 exact_rotor(u64 phase) {
    c32 turn;
    sincospif((float)((double)(i64)phase * -1.0842021724855044e-19), &turn.y, &turn.x);
    return turn;
}
