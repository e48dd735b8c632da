//! Cases that compare the examples with their references.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// Files of an example kernel: name, kernel, reference.
type Files = (&'static str, &'static str, &'static str);

macro_rules! files {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../examples/kernels/", $name, ".cu")),
            include_str!(concat!("../../../examples/kernels/", $name, ".py")),
        )
    };
}

pub const GAIN: Files = files!("gain");
pub const FLAGGER: Files = files!("threshold_flagger");
pub const TRANSPOSE: Files = files!("transpose_scale");
pub const SUM: Files = files!("shift_and_sum");

/// A kernel whose flags have the shape of those of its input.
const HEAPS: Files = (
    "heaps",
    "/* fxgraph\noutput: {axes: [{heap: 2}, channel], validity: {units: [heap]}}\nlaunch: {grid: [2], block: [128]}\n*/\n\
     __global__ void heaps(Fx fx) {\n    const u32 heap = blockIdx.x, channel = threadIdx.x;\n    \
     if (channel < FX_OUTPUT_channel) fx.output[heap * FX_OUTPUT_channel + channel] = fx.output_validity[heap];\n}\n",
    "def heaps(frame, out, fx):\n    out.data[...] = out.validity[:, None]\n",
);

/// Spectra of 64 channels, in 2 heaps of which some are missing.
const SPECTRA: &str = "\
source:
  kind: null_source
  parameters:
    dtype: f32
    axes: [{name: spectrum, len: 260}, {name: channel, len: 68}]
    validity_axes: [{name: heap, len: 2}]
    samples_per_frame: 1000
    frames: 12
    pattern: random
    seed: 3
";

/// Returns the cases; none on a machine without NumPy.
pub fn cases(device: DeviceName) -> Vec<Case> {
    if device == DeviceName::Cpu || !crate::util::python::has_numpy("conformance of `kernel`") {
        return Vec::new();
    }
    let case = |(name, code, reference): Files, values, tolerance| {
        // Inline, the name of the kernel is in the declaration.
        let code = code.replacen("/* fxgraph\n", &format!("/* fxgraph\nkernel: {name}\n"), 1);
        let parameters = json!({"code": code, "reference_code": reference, "values": values});
        Case::new(("kernel", "cuda"), name, &parameters, (SPECTRA, &["source"]), tolerance, device)
    };
    vec![
        case(GAIN, json!({"gain": 0.3}), Tolerance::EXACT)
            .change(4000, json!({"values": {"gain": -2.5}})),
        case(FLAGGER, json!({"threshold": 3.5, "hold": 2}), Tolerance::EXACT),
        case(TRANSPOSE, json!({"scale": 0.7}), Tolerance::EXACT),
        case(HEAPS, json!({}), Tolerance::EXACT),
        case(SUM, json!({"step": 3}), Tolerance::floating(1e-6)),
    ]
}
