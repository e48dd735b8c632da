#![doc = include_str!("README.md")]

mod cpu;

use fxgraph::recording::RecorderOptions;
use fxgraph::{Block, BlockError, Env, Kind, PortNames, PortType, Ports, Refusal, Resources};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `recorder`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Recorder(pub RecorderOptions);

impl Kind for Recorder {
    const NAME: &'static str = "recorder";
    const DOC: &'static str = include_str!("README.md");
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&[]);

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let refusals = self.0.refusals(&inputs[0]);
        if refusals.is_empty() { Ok(vec![]) } else { Err(refusals) }
    }

    fn resources(&self, ports: &Ports) -> Resources {
        Resources {
            host_bytes: self.0.memory_bytes(&ports.inputs[0]).unwrap_or(usize::MAX),
            writes: vec![self.0.path.path().to_owned()],
            ..Resources::default()
        }
    }

    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        Ok(Box::new(cpu::Sink::new(self.0.clone(), &ports.inputs[0], env)))
    }
}

#[cfg(test)]
mod tests;
