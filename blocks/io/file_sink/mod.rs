#![doc = include_str!("README.md")]

mod cpu;

use crate::io::files::{FileParameters, FileSink as Sink};
use fxgraph::kind::Rounded;
use fxgraph::{
    Checked, Configured, Implementation, Implementations, Kind, KindSpec, PerBase, PortType,
    Resources, TimedSink,
};

/// Parameters of `file_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "file_sink", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct FileSink {
    #[param(flatten)]
    pub(crate) files: FileParameters,
}

impl TimedSink for FileSink {
    fn continue_in_later_base(&mut self, _number: u64) {
        self.files.overwrite = false;
    }
}

impl KindSpec for FileSink {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        PerBase::block(block, env, |block, env| {
            let input = &block.ports.inputs[0];
            let format = cpu::Arrays::new(input, env);
            Ok(Box::new(Sink::new(format, &block.parameters.files, input.clock, env)))
        })
    })];

    fn ports(&self, _inputs: &[PortType]) -> Checked<()> {
        let rejections = self.files.rejections(&["npy", "npz"], "vis.npz");
        if rejections.is_empty() { Ok(((), vec![])) } else { Err(rejections) }
    }

    fn rounded(block: &Configured<Self>) -> Vec<Rounded> {
        block.parameters.files.rounded(&block.ports.inputs[0].clock)
    }

    fn resources(block: &Configured<Self>) -> Resources {
        Resources {
            writes: vec![block.parameters.files.path.path().to_owned()],
            ..Resources::default()
        }
    }
}

#[cfg(test)]
mod tests;
