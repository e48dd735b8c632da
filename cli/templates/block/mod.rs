#![doc = include_str!("README.md")]

mod cpu;

use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Block, BlockError, Dtype, Env, Kind, PortNames, PortType, Ports, Refusal, Resources,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The parameters.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MyBlock {
    /// What every sample is multiplied by.
    #[serde(default = "one")]
    pub gain: f32,
}

fn one() -> f32 {
    1.0
}

impl Kind for MyBlock {
    const NAME: &'static str = "my_block";
    const DOC: &'static str = include_str!("README.md");
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let input = &inputs[0];
        let mut refusals = Vec::new();
        if !self.gain.is_finite() {
            let message = "the gain must be a finite number";
            refusals.push(Refusal::parameter("gain", message));
        }
        if input.dtype != Dtype::F32 {
            let message = format!("`my_block` needs `f32` samples, not `{}`", input.dtype);
            refusals.push(Refusal::new(codes::INPUT_DTYPE, At::Input(0), message));
        }
        if refusals.is_empty() { Ok(vec![input.clone()]) } else { Err(refusals) }
    }

    fn resources(&self, ports: &Ports) -> Resources {
        // One multiplication per sample.
        let operations_per_frame = ports.outputs[0].elements() as f64;
        Resources { operations_per_frame, ..Resources::default() }
    }

    fn build(&self, _ports: &Ports, _env: &Env) -> Result<Box<dyn Block>, BlockError> {
        Ok(Box::new(cpu::Gain { gain: self.gain }))
    }
}
