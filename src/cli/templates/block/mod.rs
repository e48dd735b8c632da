#![doc = include_str!("README.md")]

mod cpu;

use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Checked, Configured, Dtype, Implementation, Implementations, Kind, KindSpec, PortType,
    Rejection, Resources,
};

/// Parameters of `my_block`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "my_block",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct MyBlock {
    /// Factor of every sample.
    #[param(default = 1.0, range = -1e6..=1e6)]
    pub gain: f32,
}

impl KindSpec for MyBlock {
    // Sizes that `ports` derives from the inputs, for the implementation; this block needs none.
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> =
        &[Implementation::cpu(|block, _| Ok(Box::new(cpu::Gain { gain: block.parameters.gain })))];

    // Checks the inputs before any block is built, and returns the types of the outputs.
    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        let input = &inputs[0];
        if input.dtype != Dtype::F32 {
            let message = format!("`my_block` needs `f32` samples, got `{}`", input.dtype);
            return Err(vec![Rejection::new(codes::INPUT_DTYPE, At::Input(0), message)]);
        }
        Ok(((), vec![input.clone()]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        // One multiplication per sample.
        let operations_per_frame = block.ports.outputs[0].elements() as f64;
        Resources { operations_per_frame, ..Resources::default() }
    }
}
