// Sums all channels, each later than the one before by a number of spectra: dispersion along a straight line. The
// delayed samples come from the frame before, which the kernel keeps.
/* fxgraph
parameters:
  step: {type: u32, default: 1, range: [0, 1000], unit: spectra, doc: delay of a channel against the one before}
input: {dtype: f32, axes: [spectrum, channel]}
output: {axes: [spectrum], validity: {units: []}}
require: [step * (channel - 1) <= spectrum]
launch: {grid: ["ceil(spectrum / 128)"], block: [128]}
buffers:
  before: {dtype: f32, length: 2 * input_elements}  # this frame and the one before, in turn
  was_complete: {dtype: i32, length: 2}
*/
__global__ void shift_and_sum(Fx fx) {
    const u32 turn = fx.sequence % 2;
    const float *before = fx.before + (1 - turn) * FX_INPUT_ELEMENTS;
    float *kept = fx.before + turn * FX_INPUT_ELEMENTS;
    // Another thread block may have written the flag: only if the frame is flagged anyway.
    const bool is_complete = fx.output_validity[0] != 0;
    const bool is_valid = is_complete && fx.is_continuous && fx.was_complete[1 - turn];
    const i32 s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s < FX_INPUT_spectrum) {
        float sum = 0;
        for (u32 c = 0; c < FX_INPUT_channel; c++) {
            const i32 at = s - (i32)(c * FX_PARAM_step);
            kept[s * FX_INPUT_channel + c] = fx.input[s * FX_INPUT_channel + c];
            sum += at >= 0 ? fx.input[at * FX_INPUT_channel + c]
                           : before[(at + (i32)FX_INPUT_spectrum) * FX_INPUT_channel + c];
        }
        fx.output[s] = is_valid ? sum : 0;
    }
    if (s == 0) {
        fx.was_complete[turn] = is_complete;
        if (!is_valid) fx.output_validity[0] = 0;
    }
}
