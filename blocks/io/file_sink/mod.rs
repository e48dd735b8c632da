#![doc = include_str!("README.md")]

mod cpu;

use fxgraph::access::WrittenPath;
use fxgraph::{
    At, Checked, Configured, Implementation, Implementations, Kind, KindSpec, PerBase, PortType,
    Refusal, Resources, TimedSink,
};

/// Placeholder of the first timestamp in a path.
const PLACEHOLDER: &str = "{timestamp}";

/// Parameters of `file_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "file_sink", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct FileSink {
    /// File to write, ending in `.npy` or `.npz`; `{timestamp}` is replaced by the timestamp of the first
    /// frame. Directories are created. If the file exists, the recording gets the next free name:
    /// `x_2.npy`, `x_3.npy`, ...
    pub path: WrittenPath,
    /// Overwrites an existing file, unless this process has recorded it.
    #[param(default)]
    pub overwrite: bool,
    /// Largest number of frames to write; further frames are consumed and dropped.
    pub max_frames: Option<u64>,
    /// Frames per file; `path` must contain `{timestamp}`.
    #[param(range = 1..)]
    pub frames_per_file: Option<u64>,
}

impl TimedSink for FileSink {
    fn continue_in_later_base(&mut self, _number: u64) {
        self.overwrite = false;
    }
}

impl KindSpec for FileSink {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        PerBase::block(block, env, |block, env| {
            Ok(Box::new(cpu::Sink::new(block.parameters.clone(), &block.ports.inputs[0], env)))
        })
    })];

    fn ports(&self, _inputs: &[PortType]) -> Checked<()> {
        let mut refusals = Vec::new();
        let stem = self.path.strip_suffix(".npy").or_else(|| self.path.strip_suffix(".npz"));
        if stem.is_none_or(|stem| stem.is_empty() || stem.ends_with('/')) {
            let message =
                format!("`path` must be a file name ending in .npy or .npz, got `{}`", self.path);
            refusals.push(Refusal::parameter("path", message).help("write a name such as vis.npz"));
        }
        if self.frames_per_file.is_some() && !self.path.contains(PLACEHOLDER) {
            let message = "`path` must contain {timestamp} with `frames_per_file`".to_owned();
            refusals.push(
                Refusal::parameter("path", message)
                    .note(At::Parameter("frames_per_file"), "several files are requested here")
                    .help("write a name such as vis_{timestamp}.npz"),
            );
        }
        if refusals.is_empty() { Ok(((), vec![])) } else { Err(refusals) }
    }

    fn resources(block: &Configured<Self>) -> Resources {
        Resources { writes: vec![block.parameters.path.path().to_owned()], ..Resources::default() }
    }
}

#[cfg(test)]
mod tests;
