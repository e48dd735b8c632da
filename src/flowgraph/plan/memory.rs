//! Memory that a plan takes: pools of frames, and memory that blocks allocate for themselves.

use crate::plan::block::PlannedBlock;
use crate::plan::flowgraph::Plan;
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::{Diagnostic, codes};
use fxgraph_core::kind::PortPool;
use fxgraph_core::steps::step;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Memory of the pool of one output port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolMemory {
    /// Name of the output port.
    pub port: String,
    /// Buffers in the pool.
    pub frames: usize,
    /// Payload of each frame in bytes.
    pub frame_bytes: usize,
    /// Size of the validity counts of each frame in bytes.
    pub validity_bytes: usize,
    /// Size of all payloads in bytes, as allocated.
    pub payload_bytes: usize,
}

impl PoolMemory {
    /// Total size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.payload_bytes.saturating_add(self.frames.saturating_mul(self.validity_bytes))
    }
}

/// Memory of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMemory {
    /// Index into [`Plan::blocks`].
    pub block: usize,
    /// Device of this memory.
    pub device: DeviceName,
    /// Memory that the block allocates for itself, in bytes.
    pub own_bytes: usize,
    /// Pools of its outputs; outputs that pass frames through have none.
    pub pools: Vec<PoolMemory>,
}

impl BlockMemory {
    /// Total size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pools.iter().fold(self.own_bytes, |sum, pool| sum.saturating_add(pool.bytes()))
    }
}

/// Memory of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Memory of each block, in the plan's order.
    pub blocks: Vec<BlockMemory>,
    /// Memory of the CUDA context on each GPU in bytes, as measured if this process has opened the GPU.
    pub contexts: BTreeMap<DeviceName, usize>,
    /// Other host memory of the process in bytes: code, threads, the server, and the runtime's state of each block.
    pub process_bytes: usize,
}

/// Resident memory of a process that runs a flowgraph of a few blocks, as measured: the pages of the program that
/// are in use, threads, the server.
const PROGRAM_BYTES: usize = 30 << 20;
/// Memory of a block without its frames, as measured: its task, its inbox, its entries in the plan and the metrics.
const BLOCK_BYTES: usize = 20 << 10;
/// Memory of a source for each output: push times of its newest frames.
const SOURCE_OUTPUT_BYTES: usize = 64 << 10;

impl Memory {
    /// Total host memory of the process, in bytes.
    #[must_use]
    pub fn host_bytes(&self) -> usize {
        self.bytes_on(DeviceName::Cpu).saturating_add(self.process_bytes)
    }

    /// Memory of the blocks on `device`, and of the CUDA context of a GPU, in bytes.
    #[must_use]
    pub fn bytes_on(&self, device: DeviceName) -> usize {
        let context = self.contexts.get(&device).copied().unwrap_or_default();
        let there = self.blocks.iter().filter(|block| block.device == device);
        there.fold(context, |sum, block| sum.saturating_add(block.bytes()))
    }

    /// Devices whose memory the flowgraph uses, the CPU first.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceName> {
        let others = self.blocks.iter().map(|block| block.device);
        let others = others.chain(self.contexts.keys().copied());
        let all: BTreeSet<DeviceName> = others.chain([DeviceName::Cpu]).collect();
        all.into_iter().collect()
    }
}

/// Memory that `frames` payloads of `bytes` bytes in one pool take on `device`.
fn payload_bytes(device: DeviceName, frames: usize, bytes: usize) -> usize {
    match device {
        DeviceName::Cpu => frames.saturating_mul(bytes),
        DeviceName::Cuda(_) => fxgraph_cuda::pool_bytes(frames, bytes),
    }
}

/// Bytes of a frame with an allocation of its own, as each one that is added for a swap.
fn one_frame(device: DeviceName, bytes: usize) -> usize {
    payload_bytes(device, 1, bytes)
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

/// Limits of one queue of a candidate or shadow: bytes of its frames, and least and largest number of frames. Enough
/// for a short delay, and for several calls of `work` with small frames.
const BESIDE_BYTES: usize = 256 << 20;
const BESIDE_FRAMES: (usize, usize) = (6, 64);

/// Length of a queue of a candidate or shadow, in frames.
#[must_use]
pub fn beside_frames(frame_bytes: usize) -> usize {
    (BESIDE_BYTES / frame_bytes.max(1)).clamp(BESIDE_FRAMES.0, BESIDE_FRAMES.1)
}

impl PlannedBlock {
    /// Number of frames of input `input` that a candidate or a shadow keeps: in the queue of its tee, at work, peeked,
    /// and held by the block.
    #[must_use]
    pub fn lent_frames(&self, input: usize) -> usize {
        let holds = self.resources.holds.get(input).copied().unwrap_or(0);
        beside_frames(self.ports.inputs[input].frame_bytes()) + holds + 2
    }
}

/// The output whose pool frames of an output come from, by (block, port).
type Origins = HashMap<(usize, usize), (usize, usize)>;

impl Plan {
    /// Memory of the flowgraph while it runs.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let frames = self.pool_frames();
        let blocks = self.blocks.iter().zip(frames).enumerate().map(|(index, (block, frames))| {
            let pools = block.ports.outputs.iter().zip(frames).enumerate();
            let device = block.output_device();
            BlockMemory {
                block: index,
                device,
                own_bytes: block.resources.host_bytes.saturating_add(block.device_bytes),
                pools: pools
                    .filter(|(port, _)| self.pool_of(index, *port) == PortPool::Own)
                    .map(|(port, (kind, frames))| PoolMemory {
                        port: block.output_names[port].clone(),
                        frames,
                        frame_bytes: kind.frame_bytes(),
                        validity_bytes: size_of::<u32>() * kind.validity.units(),
                        payload_bytes: payload_bytes(device, frames, kind.frame_bytes()),
                    })
                    .collect(),
            }
        });
        let sources = self.blocks.iter().filter(|block| block.inputs.is_empty());
        let outputs: usize = sources.map(|block| block.ports.outputs.len()).sum();
        let process_bytes =
            PROGRAM_BYTES + BLOCK_BYTES * self.blocks.len() + SOURCE_OUTPUT_BYTES * outputs;
        let gpus = self.blocks.iter().filter_map(|block| match block.device {
            DeviceName::Cpu => None,
            gpu @ DeviceName::Cuda(ordinal) => Some((gpu, fxgraph_cuda::context_bytes(ordinal))),
        });
        Memory { contexts: gpus.collect(), blocks: blocks.collect(), process_bytes }
    }

    /// Bytes by device that the candidate of a swap of block `index` takes: its own memory, its pools and, until the
    /// swap is done, the output frames that it keeps and the input frames that it reads.
    #[must_use]
    pub fn swap_memory(&self, index: usize, memory: &Memory) -> BTreeMap<DeviceName, usize> {
        self.swap_memory_of(index, memory, &mut Origins::new())
    }

    /// [`swap_memory`](Self::swap_memory) for calls on many blocks; `origins` caches known origins.
    fn swap_memory_of(
        &self,
        index: usize,
        memory: &Memory,
        origins: &mut Origins,
    ) -> BTreeMap<DeviceName, usize> {
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
                let (device, bytes) = (block.output_device(), kind.frame_bytes());
                add(device, beside_frames(bytes).saturating_mul(one_frame(device, bytes)));
            }
        }
        for (input, source) in block.inputs.iter().enumerate() {
            let (origin, port) = self.known_origin(*source, origins);
            let source = &self.blocks[origin];
            let (device, bytes) =
                (source.output_device(), source.ports.outputs[port].frame_bytes());
            add(device, block.lent_frames(input).saturating_mul(one_frame(device, bytes)));
        }
        all
    }

    /// Largest additional memory of a swap of one block on each device, in bytes, until the swap is done.
    #[must_use]
    pub fn swap_bytes(&self, memory: &Memory) -> BTreeMap<DeviceName, usize> {
        let can_swap = |block: &PlannedBlock| {
            !block.inputs.is_empty() && !block.ports.outputs.is_empty() && !block.is_transfer()
        };
        let blocks = self.blocks.iter().enumerate().filter(|(_, block)| can_swap(block));
        let mut origins = Origins::new();
        let mut largest: BTreeMap<DeviceName, usize> =
            memory.devices().into_iter().map(|device| (device, 0)).collect();
        for (index, _) in blocks {
            for (device, bytes) in self.swap_memory_of(index, memory, &mut origins) {
                let most = largest.entry(device).or_default();
                *most = bytes.max(*most);
            }
        }
        largest
    }

    /// Diagnostic if the flowgraph needs more than `available` bytes of memory on `device`. It names the largest
    /// parts.
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
        if let Some(context) = memory.contexts.get(&device) {
            pools.push((*context, "the CUDA context".to_owned()));
        }
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
            .label("largest share")
            .help(format!("largest parts: {}", list.join(", ")))
            .help("make frames or queues smaller; `fxgraph plan` lists all of them");
        problem.blocks.push(block.name.clone());
        Some(problem)
    }

    /// Source of the frames of an output: its own pool, or an input that it passes through.
    #[must_use]
    pub fn pool_of(&self, block: usize, port: usize) -> PortPool {
        self.blocks[block].resources.pools.get(port).copied().unwrap_or(PortPool::Own)
    }

    /// Number of buffers that the pool of each output needs, so that no block waits for a frame that the block itself
    /// holds: frames being filled, and frames in flight at each reader, also behind pass-through ports. 0 for outputs
    /// without a pool. `[block][port]`.
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
        let mut origins = Origins::new();
        for block in &self.blocks {
            for (input, source) in block.inputs.iter().enumerate() {
                let (from, port) = self.known_origin(*source, &mut origins);
                let holds = block.resources.holds.get(input).copied().unwrap_or(0);
                // Queued frames, the frame at work, and frames that the block holds.
                let in_flight = block.queue_frames(input).saturating_add(1).saturating_add(holds);
                frames[from][port] = frames[from][port].saturating_add(in_flight);
            }
        }
        frames
    }

    /// Output whose pool the frames of the output (block, port) come from.
    #[must_use]
    pub fn origin(&self, mut output: (usize, usize)) -> (usize, usize) {
        while let Some(source) = self.passed_on(output) {
            output = source;
        }
        output
    }

    /// [`origin`](Self::origin) for calls on many outputs: walks a long chain of pass-through blocks only once.
    fn known_origin(&self, mut output: (usize, usize), known: &mut Origins) -> (usize, usize) {
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

    /// Output whose frames the output (block, port) passes on, if any.
    fn passed_on(&self, (block, port): (usize, usize)) -> Option<(usize, usize)> {
        step();
        match self.pool_of(block, port) {
            PortPool::PassThrough(input) => self.blocks[block].inputs.get(input).copied(),
            PortPool::Own => None,
        }
    }
}
