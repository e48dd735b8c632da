#![doc = include_str!("README.md")]

mod cpu;
#[cfg(test)]
mod tests;

use fxgraph::diagnostic::codes;
use fxgraph::retune::LiveValue;
use fxgraph::{
    At, Axis, Block, BlockError, Dtype, Env, Kind, PortNames, PortType, Ports, Refusal, Resources,
    ValidityType,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `my_block`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MyBlock {
    /// Factor of every sample; live.
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
    const OUTPUTS: PortNames = PortNames::Fixed(&["output", "power"]);
    const LIVE: &'static [&'static str] = &["gain"];

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let input = &inputs[0];
        let mut refusals = Vec::new();
        if !self.gain.is_finite() {
            let message = format!("`gain` must be finite, got {}", self.gain);
            refusals.push(Refusal::parameter("gain", message));
        }
        if input.dtype != Dtype::F32 {
            let message = format!("`my_block` needs `f32` samples, got `{}`", input.dtype);
            refusals.push(Refusal::new(codes::INPUT_DTYPE, At::Input(0), message));
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let power = PortType {
            axes: vec![Axis::new("power", 1)],
            validity: ValidityType::flags(vec![Axis::new("frame", 1)]),
            ..input.clone()
        };
        Ok(vec![input.clone(), power])
    }

    fn resources(&self, ports: &Ports) -> Resources {
        // Two multiplications and a sum per sample.
        let operations_per_frame = 3.0 * ports.outputs[0].elements() as f64;
        Resources { operations_per_frame, ..Resources::default() }
    }

    fn live_value(&self, _: &str, _: &Self, _: &Ports) -> Result<LiveValue, BlockError> {
        Ok(Box::new(self.gain))
    }

    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        Ok(Box::new(cpu::Gain::new(self.gain, &ports.inputs[0], &env.counters)))
    }
}
