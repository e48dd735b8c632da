// Row of a spectrum: the values that all channels of one spectrum of one polarisation share.
#pragma once
#include "dither.cuh"
#include "phasor.cuh"

struct alignas(16) Row {
    Turn turn;
    u64 dither_key;
};

/// Row of spectrum `number`, counted from sync time; `gain` [re, im] is the common gain of all `channels`.
__device__ __forceinline__ Row spectrum_row(u32 channels, double phase_turns,
                                            double fine_delay_samples, const double *gain,
                                            u64 dither_seed, u64 number, u32 pol) {
    constexpr double PI = 3.14159265358979323846;
    double sin, cos;
    sincospi(2.0 * phase_turns, &sin, &cos);
    const double re = gain[0], im = gain[1];
    Row row;
    row.turn.centre = {static_cast<float>(cos * re - sin * im),
                       static_cast<float>(cos * im + sin * re)};
    row.turn.radians_per_channel = static_cast<float>(-PI / channels * fine_delay_samples);
    row.dither_key = dither_key(dither_seed, number, pol);
    return row;
}
