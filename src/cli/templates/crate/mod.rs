#![doc = include_str!("README.md")]

mod cpu;
#[cfg(test)]
mod tests;

use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Axis, BlockError, Checked, Configured, Dtype, Implementation, Implementations, Kind,
    KindSpec, LiveKind, PortType, Rejection, Resources, ValidityType,
};

/// Parameters of `my_block`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "my_block",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output", "power")
)]
pub struct MyBlock {
    /// Factor of every sample; live.
    #[param(default = 1.0, range = -1e6..=1e6, live)]
    pub gain: f32,
}

impl KindSpec for MyBlock {
    // Sizes that `ports` derives from the inputs, for the implementation; this block needs none.
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> =
        &[Implementation::cpu(|block, env| Ok(Box::new(cpu::Gain::new(block, env))))];

    // Checks the inputs before any block is built, and returns the types of the outputs.
    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        let input = &inputs[0];
        if input.dtype != Dtype::F32 {
            let message = format!("`my_block` needs `f32` samples, got `{}`", input.dtype);
            return Err(vec![Rejection::new(codes::INPUT_DTYPE, At::Input(0), message)]);
        }
        let power = PortType {
            axes: vec![Axis::new("power", 1)],
            validity: ValidityType::flags(vec![Axis::new("frame", 1)]),
            ..input.clone()
        };
        Ok(((), vec![input.clone(), power]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        // Two multiplications and a sum per sample.
        let operations_per_frame = 3.0 * block.ports.outputs[0].elements() as f64;
        Resources { operations_per_frame, ..Resources::default() }
    }
}

impl LiveKind for MyBlock {
    type Value = f32;

    // The second argument is the parameter that changed. With one live parameter its enum has one
    // variant; with several, name the argument `parameter` and use `match parameter { ... }`.
    fn live_value(
        new: &Configured<Self>,
        MyBlockLive::Gain: MyBlockLive,
        _: &Configured<Self>,
    ) -> Result<f32, BlockError> {
        Ok(new.parameters.gain)
    }
}
