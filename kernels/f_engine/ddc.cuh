// Runs of output samples and oscillator of the digital down-conversion.
#pragma once
#include "types.cuh"

/// Output samples of a heap.
constexpr u32 HEAP = 256;

/// Adjacent heaps of output samples, at most those of a block.
struct Run {
    /// Address of the memory with the samples, a multiple of the size of a word or of a complex sample.
    u64 samples;
    /// Offset of the first heap's samples from `samples` in bits, a multiple of 8.
    u64 first_bit;
    /// Oscillator phase at the frame's first output sample, and phase step from one input sample to the next,
    /// in units of 2^-64 turns.
    u64 phase, turn;
    /// Index of the first heap within the frame.
    u32 heap;
    u32 count;
    /// 0 filters the heaps; other values clear them, because there are no samples.
    u32 what;
    u32 unused;
};

/// e^{-2 pi i phase}. The upper 32 bits of the phase, signed, are more than the precision of a float.
__device__ __forceinline__ c32 phasor(u64 phase) {
    float sin, cos;
    sincospif(static_cast<float>(static_cast<i32>(phase >> 32)) * 0x1p-31f, &sin, &cos);
    return {cos, -sin};
}
