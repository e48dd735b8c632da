#![doc = include_str!("README.md")]

mod cpu;
mod recording;
mod shape;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // values are exact
mod tests;

use crate::io::files::{FileParameters, FileSink};
use fxgraph::kind::Rounded;
use fxgraph::{
    Checked, Configured, Implementation, Implementations, Kind, KindSpec, PerBase, PortType,
    Resources, TimedSink,
};
use shape::Shape;

/// Extension of the file with the samples.
const DATA: &str = "sigmf-data";
/// Extension of the file with the description.
const META: &str = "sigmf-meta";

/// Parameters of `sigmf_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "sigmf_sink", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct SigmfSink {
    #[param(flatten)]
    pub(crate) files: FileParameters,
    /// Author, such as `name <address>` (`core:author`).
    pub author: Option<String>,
    /// Description (`core:description`).
    pub description: Option<String>,
    /// Hardware that made the samples (`core:hw`).
    pub hardware: Option<String>,
}

impl TimedSink for SigmfSink {
    fn continue_in_later_base(&mut self, _number: u64) {
        self.files.overwrite = false;
    }
}

impl KindSpec for SigmfSink {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        PerBase::block(block, env, |block, env| {
            let format = cpu::Sigmf::new(block.parameters.clone(), block.shape.clone(), env);
            Ok(Box::new(FileSink::new(format, &block.parameters.files, block.shape.clock, env)))
        })
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let mut rejections = self.files.rejections(&[META], "x.sigmf-meta");
        match Shape::new(&inputs[0]) {
            Ok(shape) if rejections.is_empty() => Ok((shape, vec![])),
            Ok(_) => Err(rejections),
            Err(rejection) => {
                rejections.push(*rejection);
                Err(rejections)
            }
        }
    }

    fn rounded(block: &Configured<Self>) -> Vec<Rounded> {
        block.parameters.files.rounded(&block.shape.clock)
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let meta = block.parameters.files.path.path();
        Resources {
            host_bytes: block.ports.inputs[0].frame_bytes(),
            fixes_band: true,
            writes: vec![meta.to_owned(), meta.with_extension(DATA)],
            ..Resources::default()
        }
    }
}
