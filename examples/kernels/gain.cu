/* fxgraph
parameters:
  gain: {type: f32, default: 1, range: [-8, 8], live: true, doc: factor of every sample}
input: {dtype: f32}
launch: {grid: ["ceil(input_elements / 256)"], block: [256]}
*/
__global__ void gain(Fx fx) {
    const u32 n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n < FX_INPUT_ELEMENTS) fx.output[n] = fx.gain * fx.input[n];
}
