#![doc = include_str!("README.md")]

mod cpu;
mod recording;
mod shape;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // values are exact
mod tests;

use crate::io::output_file::{refuse_name, refuse_one_name};
use fxgraph::access::WrittenPath;
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
    /// Description to write, ending in `.sigmf-meta`; the samples are beside it in `.sigmf-data`. `{timestamp}` is
    /// replaced by the timestamp of the first sample. Directories are created. If one of the files exists, the next
    /// free name is used: `x_2.sigmf-meta`, ...
    pub path: WrittenPath,
    /// Overwrites an existing recording, unless this process has made it.
    #[param(default)]
    pub overwrite: bool,
    /// Frames per recording; `path` must contain `{timestamp}`.
    #[param(range = 1..)]
    pub frames_per_file: Option<u64>,
    /// Author, such as `name <address>` (`core:author`).
    pub author: Option<String>,
    /// Description (`core:description`).
    pub description: Option<String>,
    /// Hardware that made the samples (`core:hw`).
    pub hardware: Option<String>,
}

impl TimedSink for SigmfSink {
    fn continue_in_later_base(&mut self, _number: u64) {
        self.overwrite = false;
    }
}

impl KindSpec for SigmfSink {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        PerBase::block(block, env, |block, env| {
            Ok(Box::new(cpu::Sink::new(block.parameters.clone(), block.shape.clone(), env)))
        })
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let mut refusals = Vec::from_iter(refuse_name(&self.path, META));
        refusals.extend(refuse_one_name(&self.path, self.frames_per_file));
        match Shape::new(&inputs[0]) {
            Ok(shape) if refusals.is_empty() => Ok((shape, vec![])),
            Ok(_) => Err(refusals),
            Err(refusal) => {
                refusals.push(*refusal);
                Err(refusals)
            }
        }
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let meta = block.parameters.path.path();
        Resources {
            host_bytes: block.ports.inputs[0].frame_bytes(),
            fixes_band: true,
            writes: vec![meta.to_owned(), meta.with_extension(DATA)],
            ..Resources::default()
        }
    }
}
