// Zeroes and flags channels with a sample beyond a threshold, and keeps them flagged for some frames.
/* fxgraph
parameters:
  threshold: {type: f32, default: 0.99, range: [0, 1e30], live: true, doc: largest magnitude of a sample}
  hold: {type: u32, default: 1, range: [0, 1000], unit: frames, doc: further frames for which a channel stays flagged}
input: {dtype: f32, axes: [spectrum, channel]}
output: {validity: {units: [channel]}}
launch: {grid: [channel], block: [256]}
buffers:
  held: {dtype: i32, length: channel}  # frames for which the channel stays flagged
counters:
  channels_flagged: channels that were flagged, summed over frames
*/
__global__ void threshold_flagger(Fx fx) {
    const u32 channel = blockIdx.x;
    bool is_above = false;
    for (u32 s = threadIdx.x; s < FX_INPUT_spectrum; s += blockDim.x)
        is_above |= fabsf(fx.input[s * FX_INPUT_channel + channel]) > fx.threshold;
    // Read by all threads before the barrier, written by one behind it.
    const i32 held = fx.held[channel];
    const bool is_missing = fx.output_validity[channel] == 0;
    is_above = __syncthreads_or(is_above);
    const bool is_flagged = is_above || held > 0;
    if (threadIdx.x == 0) {
        fx.held[channel] = is_above ? (i32)FX_PARAM_hold : max(held - 1, 0);
        if (is_flagged) {
            fx.output_validity[channel] = 0;
            atomicAdd(fx.channels_flagged, 1);
        }
    }
    // The samples of a unit that is flagged are 0.
    for (u32 s = threadIdx.x; s < FX_INPUT_spectrum; s += blockDim.x) {
        const u32 n = s * FX_INPUT_channel + channel;
        fx.output[n] = is_flagged || is_missing ? 0 : fx.input[n];
    }
}
