//! The plan: a flowgraph that is checked and can be built.

use crate::cuda::Tuning;
use crate::cuda::transfer::Transfer;
use crate::device::DeviceName;
use crate::diagnostic::{Diagnostic, Span, codes, suggest};
use crate::flowgraph::pending::Pending;
use crate::flowgraph::test_spec::{Check, Tap, TestSpec};
use crate::flowgraph::written::Written;
use crate::kind::{Configured, PortPool, Ports, Resources};
use crate::recording::Recorders;
use crate::runtime::assembly::{OnFault, Thread};
use std::collections::BTreeSet;
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
    pub configured: Arc<dyn Configured>,
    /// Live values that hold from moments on; `parameters` and `configured` have them already.
    pub(crate) pending: Pending,
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
    /// What records streams of this flowgraph while it runs.
    pub recorders: Recorders,
}

/// Memory of one output port's pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolMemory {
    /// Name of the output port.
    pub port: String,
    /// Buffers in the pool.
    pub frames: usize,
    /// Payload bytes of each.
    pub frame_bytes: usize,
    /// Bytes of each frame's validity counts.
    pub validity_bytes: usize,
}

impl PoolMemory {
    /// All of it in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.frames.saturating_mul(self.frame_bytes.saturating_add(self.validity_bytes))
    }
}

/// Memory of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMemory {
    /// Index into [`Plan::blocks`].
    pub block: usize,
    /// Where all of it lies.
    pub device: DeviceName,
    /// What the block allocates for itself, in bytes.
    pub own_bytes: usize,
    /// Pools of its outputs; outputs that pass frames through have none.
    pub pools: Vec<PoolMemory>,
}

impl BlockMemory {
    /// All of it in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pools.iter().fold(self.own_bytes, |sum, pool| sum.saturating_add(pool.bytes()))
    }
}

/// Memory of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Block by block, in the plan's order.
    pub blocks: Vec<BlockMemory>,
}

impl Memory {
    /// What lies on `device`, in bytes.
    #[must_use]
    pub fn bytes_on(&self, device: DeviceName) -> usize {
        let there = self.blocks.iter().filter(|block| block.device == device);
        there.fold(0usize, |sum, block| sum.saturating_add(block.bytes()))
    }

    /// Devices of which it takes memory, the processor first.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceName> {
        let others = self.blocks.iter().map(|block| block.device);
        let all: BTreeSet<DeviceName> = others.chain([DeviceName::Cpu]).collect();
        all.into_iter().collect()
    }
}

fn bytes_text(bytes: usize) -> String {
    let mut scaled = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if scaled < 999.5 {
            return format!("{} {unit}", (scaled * 10.0).round() / 10.0);
        }
        scaled /= 1000.0;
    }
    format!("{scaled:.1} TB")
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

    /// What the flowgraph keeps in memory while it runs.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let frames = self.pool_frames();
        let blocks = self.blocks.iter().zip(frames).enumerate().map(|(index, (block, frames))| {
            let pools = block.ports.outputs.iter().zip(frames).enumerate();
            BlockMemory {
                block: index,
                device: block.output_device(),
                own_bytes: block.resources.host_bytes.saturating_add(block.device_bytes),
                pools: pools
                    .filter(|(port, _)| self.pool_of(index, *port) == PortPool::Own)
                    .map(|(port, (kind, frames))| PoolMemory {
                        port: block.output_names[port].clone(),
                        frames,
                        frame_bytes: kind.frame_bytes(),
                        validity_bytes: size_of::<u32>() * kind.validity.units(),
                    })
                    .collect(),
            }
        });
        Memory { blocks: blocks.collect() }
    }

    /// What is to be said if the flowgraph needs more than `available` bytes of the memory of
    /// `device`: an error that names what is largest.
    #[must_use]
    pub fn shortage(&self, device: DeviceName, available: usize) -> Option<Diagnostic> {
        let mut memory = self.memory();
        let needed = memory.bytes_on(device);
        memory.blocks.retain(|block| block.device == device);
        let largest = memory.blocks.iter().max_by_key(|block| block.bytes())?;
        if needed <= available {
            return None;
        }
        let mut pools: Vec<(usize, String)> = Vec::new();
        for block in &memory.blocks {
            let name = &self.blocks[block.block].name;
            pools.push((block.own_bytes, format!("`{name}` itself")));
            for pool in &block.pools {
                let size = bytes_text(pool.frame_bytes);
                let text = format!("{} frames of {size} of `{name}.{}`", pool.frames, pool.port);
                pools.push((pool.bytes(), text));
            }
        }
        pools.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let list: Vec<String> = pools
            .iter()
            .filter(|(bytes, _)| *bytes > needed / 20)
            .take(3)
            .map(|(bytes, text)| format!("{} for {text}", bytes_text(*bytes)))
            .collect();
        let block = &self.blocks[largest.block];
        let (needed, there) = (bytes_text(needed), bytes_text(available));
        let whose = match device {
            DeviceName::Cpu => "of memory".to_owned(),
            gpu @ DeviceName::Cuda(_) => format!("of memory on {gpu}"),
        };
        let message = format!("the flowgraph needs {needed} {whose}, {there} are available");
        let mut problem = Diagnostic::error(codes::MEMORY, block.span, message)
            .label("needs the most")
            .help(format!("the largest parts: {}", list.join(", ")))
            .help("make frames or queues smaller; `fxgraph plan` shows all of them");
        problem.blocks.push(block.name.clone());
        Some(problem)
    }

    /// Where the frames of an output come from.
    #[must_use]
    pub fn pool_of(&self, block: usize, port: usize) -> PortPool {
        self.blocks[block].resources.pools.get(port).copied().unwrap_or(PortPool::Own)
    }

    /// Buffers that each output's pool must hold so that nobody waits for a frame that only they
    /// could give back: those being filled, and what every reader, also behind pass-through
    /// ports, may have in flight. 0 for outputs without a pool.
    #[must_use]
    pub fn pool_frames(&self) -> Vec<Vec<usize>> {
        let fills = |block: &PlannedBlock, port: usize| {
            block.resources.fills.get(port).copied().unwrap_or(1).max(1)
        };
        let mut frames: Vec<Vec<usize>> = self
            .blocks
            .iter()
            .enumerate()
            .map(|(index, block)| {
                let own = |port: &usize| self.pool_of(index, *port) == PortPool::Own;
                let ports = 0..block.ports.outputs.len();
                ports.map(|port| if own(&port) { fills(block, port) } else { 0 }).collect()
            })
            .collect();
        for block in &self.blocks {
            for (input, source) in block.inputs.iter().enumerate() {
                let (from, port) = self.origin(*source);
                let holds = block.resources.holds.get(input).copied().unwrap_or(0);
                // What waits, what is worked on, and what is held.
                let in_flight = block.queue.saturating_add(1).saturating_add(holds);
                frames[from][port] = frames[from][port].saturating_add(in_flight);
            }
        }
        frames
    }

    /// The output whose pool the frames of the output (block, port) come from.
    #[must_use]
    pub fn origin(&self, mut output: (usize, usize)) -> (usize, usize) {
        while let PortPool::PassThrough(input) = self.pool_of(output.0, output.1) {
            match self.blocks[output.0].inputs.get(input) {
                Some(source) => output = *source,
                None => break,
            }
        }
        output
    }
}
