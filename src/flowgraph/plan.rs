//! The plan: a checked flowgraph, ready to build.

use crate::assemble::BuildProgress;
use crate::beside_frames;
use crate::expect::{Check, Tap, TestSpec};
use crate::hosts::{Host, Hosts};
use crate::identity::{Identified, Parameters};
use crate::latency::SourceFrame;
use crate::pending::Pending;
use crate::queue::QueueLength;
use crate::source_text::Written;
use crate::{OnFault, Thread};
use fxgraph_core::access::FileAccess;
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest};
use fxgraph_core::edge::WhenFull;
use fxgraph_core::flowgraph_texts::{FlowgraphText, FlowgraphTexts};
use fxgraph_core::kind::{AnyConfigured, Ports, Resources};
use fxgraph_core::live_updates::LiveUpdates;
use fxgraph_core::overload::Overloads;
use fxgraph_core::recorders::Recorders;
use fxgraph_cuda::Tuning;
use fxgraph_cuda::transfer::Transfer;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// One block of the plan. Plans share it; a plan that changes it gets a block of its own.
#[derive(Clone)]
pub struct PlannedBlock(pub(super) Arc<Identified>);

/// Properties of a block of the plan.
#[derive(Clone)]
pub struct Planned {
    /// Name in the expanded flowgraph: `f[0].pfb`.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// Templates that it comes from, outermost first: (name of the use, name of the template).
    pub templates: Vec<(String, String)>,
    /// Its parameters as given, with computed expressions.
    pub parameters: Parameters,
    /// Its parameters as read, with its ports.
    pub configured: Arc<dyn AnyConfigured>,
    /// Scheduled values of live parameters; `parameters` and `configured` include them already.
    #[doc(hidden)]
    pub pending: Pending,
    /// Types of its ports.
    pub ports: Ports,
    /// Names of its inputs.
    pub input_names: Vec<String>,
    /// Names of its outputs.
    pub output_names: Vec<String>,
    /// Its resources.
    pub resources: Resources,
    /// Source of each input: index of the block, and its output port.
    pub inputs: Vec<(usize, usize)>,
    /// Place of each input's reference in the file.
    pub input_spans: Vec<Span>,
    /// Host that runs it, if the flowgraph has hosts.
    pub host: Option<Host>,
    /// Thread that it runs on.
    pub thread: Thread,
    /// Length of the queue before each of its inputs.
    pub queue: QueueLength,
    /// Action of each of its inputs when the queue is full.
    pub when_full: Vec<WhenFull>,
    /// Frame size and its reason, if it is a source in real time.
    pub frame: Option<SourceFrame>,
    /// Device that it runs on; for a transfer, the GPU.
    pub device: DeviceName,
    /// Name of its implementation.
    pub implementation: &'static str,
    /// Fault policy.
    pub on_fault: OnFault,
    /// Keys of its shadow that differ from the block, if it has a shadow.
    pub shadow: Option<serde_json::Value>,
    /// Device memory that it allocates for itself, in bytes.
    pub device_bytes: usize,
    /// Place in the file.
    pub span: Span,
}

impl PlannedBlock {
    /// Whether it copies frames between devices.
    #[must_use]
    pub fn is_transfer(&self) -> bool {
        Transfer::KINDS.contains(&self.kind)
    }

    /// Number of frames of input `input` that a candidate or a shadow keeps: in the queue of its tee, at work, peeked,
    /// and held by the block.
    #[must_use]
    pub fn lent_frames(&self, input: usize) -> usize {
        let holds = self.resources.holds.get(input).copied().unwrap_or(0);
        beside_frames(self.ports.inputs[input].frame_bytes()) + holds + 2
    }

    /// Device that it runs on, for users; for a copy between two GPUs with their link: `cuda:1 by NVLink`.
    #[must_use]
    pub fn place(&self) -> String {
        if self.kind == Transfer::PEER_COPY {
            return format!("{} by {}", self.device, self.implementation);
        }
        self.device.to_string()
    }

    /// Device of the frames of its outputs.
    #[must_use]
    pub fn output_device(&self) -> DeviceName {
        if self.kind == Transfer::DOWNLOAD { DeviceName::Cpu } else { self.device }
    }
}

/// A parameter of the flowgraph with its value.
#[derive(Clone, Debug)]
pub struct ParameterInfo {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: serde_json::Value,
    /// Its description.
    pub doc: Option<String>,
    /// Whether it was set from outside the file, for example by `--set`.
    pub is_set: bool,
}

/// A checked flowgraph.
#[derive(Clone)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Its description.
    pub doc: Option<String>,
    /// Its parameters in order of definition.
    pub parameters: Arc<[ParameterInfo]>,
    /// Its blocks in order of the file, then the transfers; inputs refer to blocks by index.
    pub blocks: Vec<PlannedBlock>,
    /// Hosts that it is divided among, if any.
    pub hosts: Option<Hosts>,
    /// Its tests.
    pub tests: Vec<TestSpec>,
    /// Warnings.
    pub warnings: Vec<Diagnostic>,
    /// SHA-256 over the hashes of the head and of each block of [`resolved_yaml`](Self::resolved_yaml), in hexadecimal.
    pub config_hash: String,
    /// The whole flowgraph, expanded.
    pub(super) text: FlowgraphText,
    /// `text` as YAML, once it was read.
    pub(super) printed: Arc<OnceLock<String>>,
    /// The expanded flowgraph without its blocks, once it was printed.
    pub(super) head: OnceLock<Arc<str>>,
    pub(super) written: Option<Written>,
    /// Directory of its file; empty for the working directory.
    pub directory: PathBuf,
    /// Directory for relative paths of files that blocks write; empty for the working directory.
    pub output_directory: PathBuf,
    /// Directory of edited kernel sources, if any.
    pub kernel_directory: Option<PathBuf>,
    /// Launch configurations of kernels that `fxgraph tune` found.
    pub tuning: Arc<Tuning>,
    /// Progress of its build.
    pub build_progress: Arc<BuildProgress>,
    /// Texts of this flowgraph by `config_id`, with the values in force and scheduled ones.
    pub texts: FlowgraphTexts,
    /// Recorders of this flowgraph while it runs.
    pub recorders: Recorders,
    /// Intervals that its live sources drop when it does not keep up.
    pub overloads: Overloads,
    /// Live updates that its blocks request while it runs.
    pub updates: LiveUpdates,
    /// Files that updates of it may name.
    #[doc(hidden)]
    pub access: FileAccess,
    /// Files that were included.
    pub(super) included: Vec<PathBuf>,
    /// Names of the files of arrays.
    pub(super) array_files: Vec<String>,
}

/// The first 64 bits of a configuration hash.
pub(super) fn config_id(config_hash: &str) -> u64 {
    let start = config_hash.get(..16).unwrap_or_default();
    u64::from_str_radix(start, 16).unwrap_or_default()
}

impl Plan {
    /// `config_id` of frame headers: the first 64 bits of the configuration hash.
    #[must_use]
    pub fn config_id(&self) -> u64 {
        config_id(&self.config_hash)
    }

    /// The whole flowgraph with its hash, cheap to clone.
    #[must_use]
    pub fn flowgraph_text(&self) -> &FlowgraphText {
        &self.text
    }

    /// Index of the block `name`.
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
                let message = format!("`{}` has no outputs", tap.text);
                return Err(Diagnostic::error(codes::UNKNOWN_PORT, tap.span, message)
                    .label("not a source of data")
                    .help("name the block that feeds it"));
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

    /// Diagnostics for the ports and axes in the expectations of a test of this plan.
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

    /// Output that feeds input `input` of `block`, behind any copies between devices: block and port.
    #[must_use]
    pub fn source(&self, block: &PlannedBlock, input: usize) -> (usize, usize) {
        let (mut source, mut port) = block.inputs[input];
        while self.blocks[source].is_transfer() {
            (source, port) = self.blocks[source].inputs[0];
        }
        (source, port)
    }

    /// Full name of an output: `f[0].pfb.output`.
    #[must_use]
    pub fn output_name(&self, block: usize, port: usize) -> String {
        let block = &self.blocks[block];
        format!("{}.{}", block.name, block.output_names[port])
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

    /// Index of every block by its name, for many look-ups.
    #[must_use]
    pub fn by_name(&self) -> HashMap<&str, usize> {
        self.blocks.iter().map(|block| block.name.as_str()).zip(0..).collect()
    }
}
