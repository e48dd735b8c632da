//! The plan: a flowgraph that is checked and can be built.

use crate::assemble::BuildProgress;
use crate::beside_frames;
use crate::expect::{Check, Tap, TestSpec};
use crate::pending::Pending;
use crate::written::Written;
use crate::{OnFault, Thread};
use fxgraph_core::access::FileAccess;
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest};
use fxgraph_core::kind::{AnyConfigured, Ports, Resources};
use fxgraph_core::recorders::Recorders;
use fxgraph_cuda::Tuning;
use fxgraph_cuda::transfer::Transfer;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// One block of the plan.
#[derive(Clone)]
pub struct PlannedBlock {
    /// Name in the expanded flowgraph: `f[0].pfb`.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// The templates it came out of, outermost first: (name of the use, name of the template).
    pub templates: Vec<(String, String)>,
    /// Its parameters as given, expressions computed.
    pub parameters: serde_json::Value,
    /// Its parameters, read.
    pub configured: Arc<dyn AnyConfigured>,
    /// Live values that hold from moments on; `parameters` and `configured` have them already.
    #[doc(hidden)]
    pub pending: Pending,
    /// What its ports carry.
    pub ports: Ports,
    /// Names of its inputs.
    pub input_names: Vec<String>,
    /// Names of its outputs.
    pub output_names: Vec<String>,
    /// What it needs.
    pub resources: Resources,
    /// Block and output port that feed each input.
    pub inputs: Vec<(usize, usize)>,
    /// Where it runs.
    pub thread: Thread,
    /// Frames that the queue before each of its inputs holds.
    pub queue: usize,
    /// Device it runs on; for a transfer, the one that is not the processor.
    pub device: DeviceName,
    /// The form of the kind that runs.
    pub implementation: &'static str,
    /// What is done when it fails.
    pub on_fault: OnFault,
    /// The keys that another form of it has, which runs beside it and is compared.
    pub shadow: Option<serde_json::Value>,
    /// Device memory that it allocates for itself, in bytes.
    pub device_bytes: usize,
    /// Where it stands in the file.
    pub span: Span,
}

impl PlannedBlock {
    /// Whether it copies frames between devices.
    #[must_use]
    pub fn is_transfer(&self) -> bool {
        [Transfer::Upload, Transfer::Download].iter().any(|way| way.kind() == self.kind)
    }

    /// Frames that another block beside this one keeps of input `input`: in its tee, at work, looked at, and
    /// what it holds.
    #[must_use]
    pub fn lent_frames(&self, input: usize) -> usize {
        let holds = self.resources.holds.get(input).copied().unwrap_or(0);
        beside_frames(self.ports.inputs[input].frame_bytes()) + holds + 2
    }

    /// Where the frames of its outputs lie.
    #[must_use]
    pub fn output_device(&self) -> DeviceName {
        if self.kind == Transfer::Download.kind() { DeviceName::Cpu } else { self.device }
    }
}

/// A parameter of the flowgraph with its value.
#[derive(Clone, Debug)]
pub struct ParameterInfo {
    /// Its name.
    pub name: String,
    /// The value in force.
    pub value: serde_json::Value,
    /// What it is for.
    pub doc: Option<String>,
    /// Whether `--set` changed it.
    pub is_set: bool,
}

/// A checked flowgraph.
#[derive(Clone)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub doc: Option<String>,
    /// Its parameters in order of definition.
    pub parameters: Vec<ParameterInfo>,
    /// Its blocks in order of the file; every block feeds others by index.
    pub blocks: Vec<PlannedBlock>,
    /// Its tests.
    pub tests: Vec<TestSpec>,
    /// What looks odd but runs.
    pub warnings: Vec<Diagnostic>,
    /// The whole flowgraph, expanded, as YAML.
    pub resolved_yaml: Arc<str>,
    /// SHA-256 over [`resolved_yaml`](Self::resolved_yaml), in hexadecimal.
    pub config_hash: String,
    pub(super) written: Option<Written>,
    /// The folder of its file; empty for the working directory.
    pub folder: PathBuf,
    /// Where relative paths of files that blocks write begin; empty for the working directory.
    pub output_folder: PathBuf,
    /// Where edited kernel sources are, if anywhere.
    pub kernel_folder: Option<PathBuf>,
    /// How kernels are cut best.
    pub tuning: Arc<Tuning>,
    /// Progress of its build.
    pub build_progress: Arc<BuildProgress>,
    /// What records streams of this flowgraph while it runs.
    pub recorders: Recorders,
    /// Which files changes of it may name.
    #[doc(hidden)]
    pub access: FileAccess,
    /// Files that were included.
    pub(super) included: Vec<PathBuf>,
}

impl Plan {
    /// What frame headers carry as `config_id`: the beginning of the configuration's hash.
    #[must_use]
    pub fn config_id(&self) -> u64 {
        let start = self.config_hash.get(..16).unwrap_or_default();
        u64::from_str_radix(start, 16).unwrap_or_default()
    }

    /// Index of the block called `name`.
    #[must_use]
    pub fn block(&self, name: &str) -> Option<usize> {
        self.blocks.iter().position(|block| block.name == name)
    }

    /// Block and output port that a test's tap names: `block`, `block.port`, also inside templates
    /// (`f[0].fft`, `f[0].fft.output`).
    #[allow(clippy::result_large_err, reason = "once per tap")]
    pub fn find(&self, tap: &Tap) -> Result<(usize, usize), Diagnostic> {
        if let Some(block) = self.block(&tap.text) {
            if self.blocks[block].output_names.is_empty() {
                let message = format!("`{}` has no outputs to look at", tap.text);
                return Err(Diagnostic::error(codes::UNKNOWN_PORT, tap.span, message)
                    .label("nothing comes out of this block")
                    .help("tap the block that feeds it"));
            }
            return Ok((block, 0));
        }
        if let Some((name, port)) = tap.text.rsplit_once('.')
            && let Some(block) = self.block(name)
        {
            let names = &self.blocks[block].output_names;
            if let Some(port) = names.iter().position(|known| known == port) {
                return Ok((block, port));
            }
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(Diagnostic::error(
                codes::UNKNOWN_PORT,
                tap.span,
                format!("`{name}` has no output `{port}`"),
            )
            .label("no such output")
            .maybe_help(suggest(port, "output", &known)));
        }
        let known: Vec<&str> = self.blocks.iter().map(|block| block.name.as_str()).collect();
        let message = format!("there is no block `{}`", tap.text);
        Err(Diagnostic::error(codes::UNKNOWN_BLOCK, tap.span, message)
            .label("no such block")
            .maybe_help(suggest(&tap.text, "block", &known)))
    }

    /// What is wrong with the taps of a test of this plan.
    #[must_use]
    pub fn check_taps(&self, test: &TestSpec) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        for expect in &test.expects {
            let found = self.find(&expect.tap);
            let axes: Vec<&str> = match &expect.check {
                Check::Peak { axis, .. } => vec![axis],
                Check::Rms { at, .. } | Check::Mean { at, .. } | Check::Phase { at, .. } => {
                    at.iter().map(|(axis, _)| axis.as_str()).collect()
                }
                Check::SameAs(other) => {
                    problems.extend(self.find(other).err());
                    Vec::new()
                }
                _ => Vec::new(),
            };
            if let Ok((block, port)) = found {
                let port = &self.blocks[block].ports.outputs[port];
                let known: Vec<&str> = port.axes.iter().map(|axis| axis.name).collect();
                for axis in axes.into_iter().filter(|axis| !known.contains(axis)) {
                    let message = format!("`{}` has no axis `{axis}`", expect.tap.text);
                    problems.push(
                        Diagnostic::error(codes::TEST, expect.span, message)
                            .label("no such axis")
                            .maybe_help(suggest(axis, "axis", &known)),
                    );
                }
            }
            problems.extend(found.err());
        }
        problems
    }

    /// Readers of an output: (block, input) of each.
    pub fn readers(&self, block: usize, port: usize) -> impl Iterator<Item = (usize, usize)> {
        self.blocks.iter().enumerate().flat_map(move |(reader, planned)| {
            planned
                .inputs
                .iter()
                .enumerate()
                .filter(move |(_, source)| **source == (block, port))
                .map(move |(input, _)| (reader, input))
        })
    }

    /// Index of every block by its name: for those who look up many.
    #[must_use]
    pub fn by_name(&self) -> HashMap<&str, usize> {
        self.blocks.iter().map(|block| block.name.as_str()).zip(0..).collect()
    }
}
