// Spectra become channels, times a factor: tiles of 64 x 64 samples with the building block `transpose.cuh`.
/* fxgraph
parameters:
  scale: {type: f32, default: 1, live: true, doc: factor of every sample}
input: {dtype: f32, axes: [spectrum, channel]}
output: {axes: [channel, spectrum]}
require: [spectrum % 4 == 0, channel % 4 == 0]  # a memory access has 16 bytes
launch:
  grid: ["ceil(spectrum / 64)", "ceil(channel / 64)"]
  block: [256]
  shared_bytes: 64 * 64 * 4
*/
#include "transpose.cuh"

// 16 work items with 4 x 4 samples each, in both directions; accesses of 16 bytes; 256 threads.
using Tiles = Transpose<float, Geometry<16, 4, 4, 16, 256>>;

__global__ void transpose_scale(Fx fx) {
    extern __shared__ uint4 shared[];
    Tiles::tile(
        shared, blockIdx.x * 64, blockIdx.y * 64, FX_INPUT_spectrum, FX_INPUT_channel,
        [&](u32 row, u32 column, auto &run) { run.load(fx.input + row * FX_INPUT_channel + column); },
        [&](u32 row, u32 column, const auto &run) {
            auto scaled = run;
            for (float &sample : scaled.elements) sample *= fx.scale;
            scaled.store(fx.output + row * FX_OUTPUT_spectrum + column);
        });
}
