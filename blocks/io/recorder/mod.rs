#![doc = include_str!("README.md")]

mod cpu;

use fxgraph::recording::RecorderOptions;
use fxgraph::{
    Checked, Configured, Implementation, Implementations, Kind, KindSpec, PortType, Resources,
};

/// Parameters of `recorder`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "recorder", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct Recorder {
    #[param(flatten)]
    pub(crate) options: RecorderOptions,
}

impl KindSpec for Recorder {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let options = block.parameters.options.clone();
        Ok(Box::new(cpu::Sink::new(options, &block.ports.inputs[0], env)))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        let rejections = self.options.rejections(&inputs[0]);
        if rejections.is_empty() { Ok(((), vec![])) } else { Err(rejections) }
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let options = &block.parameters.options;
        Resources {
            host_bytes: options.memory_bytes(&block.ports.inputs[0]).unwrap_or(usize::MAX),
            writes: vec![options.path.path().to_owned()],
            ..Resources::default()
        }
    }
}

#[cfg(test)]
mod tests;
