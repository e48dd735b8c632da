//! The plan: a flowgraph that is checked and can be built.

use crate::access::FileAccess;
use crate::cuda::Tuning;
use crate::cuda::transfer::Transfer;
use crate::device::DeviceName;
use crate::diagnostic::{Diagnostic, Span, codes, suggest};
use crate::flowgraph::beside_frames;
use crate::flowgraph::pending::Pending;
use crate::flowgraph::test_spec::{Check, Tap, TestSpec};
use crate::flowgraph::written::Written;
use crate::kind::{Configured, PortPool, Ports, Resources};
use crate::recording::Recorders;
use crate::runtime::assembly::{OnFault, Thread};
use crate::steps::step;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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

    /// Frames that another block beside this one keeps of input `input`: in its tee, at work, looked at, and
    /// what it holds.
    pub(crate) fn lent_frames(&self, input: usize) -> usize {
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
    /// What records streams of this flowgraph while it runs.
    pub recorders: Recorders,
    /// Which files changes of it may name.
    pub(crate) access: FileAccess,
    /// Files that were included.
    pub(super) included: Vec<PathBuf>,
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
    /// Other host memory of the process: code, threads, the server, and what the runtime keeps of each block.
    pub process_bytes: usize,
}

/// Resident memory of a process that runs a flowgraph of a few blocks, as measured: the pages of the program that
/// are in use, threads, the server.
const PROGRAM_BYTES: usize = 30 << 20;
/// Memory of a block without its frames, as measured: its task, its inbox, its place in plan and figures.
const BLOCK_BYTES: usize = 20 << 10;
/// What a source keeps for each output: when it pushed which of its newest frames.
const SOURCE_OUTPUT_BYTES: usize = 64 << 10;

impl Memory {
    /// All that the process takes of the host's memory, in bytes.
    #[must_use]
    pub fn host_bytes(&self) -> usize {
        self.bytes_on(DeviceName::Cpu).saturating_add(self.process_bytes)
    }

    /// What the blocks take on `device`, in bytes.
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
        let sources = self.blocks.iter().filter(|block| block.inputs.is_empty());
        let outputs: usize = sources.map(|block| block.ports.outputs.len()).sum();
        let process_bytes =
            PROGRAM_BYTES + BLOCK_BYTES * self.blocks.len() + SOURCE_OUTPUT_BYTES * outputs;
        Memory { blocks: blocks.collect(), process_bytes }
    }

    /// Bytes by device that another block takes which comes into the place of block `index`, some of them only
    /// until it is there: its own, its pools, the frames that it keeps until then and those that it reads.
    #[must_use]
    pub fn swap_memory(&self, index: usize, memory: &Memory) -> BTreeMap<DeviceName, usize> {
        let mut all: BTreeMap<DeviceName, usize> = BTreeMap::new();
        let mut add = |device, bytes: usize| {
            let sum = all.entry(device).or_default();
            *sum = sum.saturating_add(bytes);
        };
        let block = &self.blocks[index];
        if let Some(own) = memory.blocks.get(index) {
            add(own.device, own.bytes());
        }
        for (port, kind) in block.ports.outputs.iter().enumerate() {
            if self.pool_of(index, port) == PortPool::Own {
                add(block.output_device(), beside_frames(kind.frame_bytes()) * kind.frame_bytes());
            }
        }
        for (input, source) in block.inputs.iter().enumerate() {
            let (origin, port) = self.origin(*source);
            let source = &self.blocks[origin];
            let bytes = source.ports.outputs[port].frame_bytes();
            add(source.output_device(), block.lent_frames(input).saturating_mul(bytes));
        }
        all
    }

    /// Additional host memory that the swap of one block takes, at most, until the new block is in its place.
    #[must_use]
    pub fn swap_bytes(&self, memory: &Memory) -> usize {
        let can_swap = |block: &PlannedBlock| {
            !block.inputs.is_empty() && !block.ports.outputs.is_empty() && !block.is_transfer()
        };
        let blocks = self.blocks.iter().enumerate().filter(|(_, block)| can_swap(block));
        let bytes = |(index, _)| self.swap_memory(index, memory).get(&DeviceName::Cpu).copied();
        blocks.filter_map(bytes).max().unwrap_or_default()
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
        let mut origins: HashMap<(usize, usize), (usize, usize)> = HashMap::new();
        for block in &self.blocks {
            for (input, source) in block.inputs.iter().enumerate() {
                let (from, port) = self.known_origin(*source, &mut origins);
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
        while let Some(source) = self.passed_on(output) {
            output = source;
        }
        output
    }

    /// [`origin`](Self::origin) of many outputs: a long chain of blocks that pass frames through is walked once.
    fn known_origin(
        &self,
        mut output: (usize, usize),
        known: &mut HashMap<(usize, usize), (usize, usize)>,
    ) -> (usize, usize) {
        let mut way = Vec::new();
        let origin = loop {
            if let Some(origin) = known.get(&output) {
                break *origin;
            }
            let Some(source) = self.passed_on(output) else { break output };
            way.push(output);
            output = source;
        };
        known.extend(way.into_iter().map(|output| (output, origin)));
        origin
    }

    /// The output whose frames the output (block, port) passes on, if it does.
    fn passed_on(&self, (block, port): (usize, usize)) -> Option<(usize, usize)> {
        step();
        match self.pool_of(block, port) {
            PortPool::PassThrough(input) => self.blocks[block].inputs.get(input).copied(),
            PortPool::Own => None,
        }
    }

    /// Index of every block by its name: for those who look up many.
    #[must_use]
    pub fn by_name(&self) -> HashMap<&str, usize> {
        self.blocks.iter().map(|block| block.name.as_str()).zip(0..).collect()
    }
}
