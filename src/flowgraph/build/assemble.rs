//! Builds blocks, pools and edges from a plan, for the runtime to start.

use crate::build::assembly::{Assembly, Part, PartOutput, Rebuild};
use crate::language::on_fault::OnFault;
use crate::language::thread::Thread;
use crate::plan::block::PlannedBlock;
use crate::plan::flowgraph::Plan;
use crate::plan::memory::beside_frames;
use crate::plan::pending::Pending;
use crate::plan::transfers;
use fxgraph_core::block::Block;
use fxgraph_core::counter::Counters;
use fxgraph_core::device::DeviceName;
use fxgraph_core::edge::Edge;
use fxgraph_core::error::BlockError;
use fxgraph_core::error::panic_text;
use fxgraph_core::event::BlockEvents;
use fxgraph_core::frame::{Allocator, HostAllocator, OutOfMemory, Pool, SharedAllocator};
use fxgraph_core::kind::{AnyConfigured, Env, PortPool, Ports, Waker};
use fxgraph_core::summary::Summary;
use fxgraph_cuda::transfer::Transfer;
use fxgraph_cuda::{Device, DeviceAllocator, PinnedAllocator};
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Error while building a plan.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The constructor of a block failed.
    #[error("`{block}` cannot be built")]
    Block {
        /// Name of the block.
        block: String,
        /// Cause.
        source: BlockError,
    },
    /// There is not enough memory.
    #[error("not enough memory for the frames of `{block}`")]
    Memory {
        /// Name of the block.
        block: String,
        /// Size of the allocation that failed.
        source: OutOfMemory,
    },
}

/// A reader of one output of the flowgraph that is not part of the flowgraph, for example of a test.
pub struct Probe {
    /// Name shown in reports; no block of the flowgraph may have it.
    pub name: String,
    /// Block and output port to read.
    pub source: (usize, usize),
    /// The block that reads. It may keep one frame in addition to those in its queue.
    pub block: Box<dyn Block>,
    /// Length of its queue, in frames.
    pub queue: usize,
}

/// Users of frames in special memory, by the output (block, port) that makes the frames.
struct Users<'a> {
    /// Uploads, which copy the frames to a GPU.
    uploads: HashMap<(usize, usize), &'a PlannedBlock>,
    /// Outputs whose frames another process reads or fills.
    shared: HashSet<(usize, usize)>,
}

impl Plan {
    /// Builds every block, pool and edge. Nothing is started.
    pub fn build(&self) -> Result<Assembly, BuildError> {
        self.build_with(Vec::new())
    }

    /// [`build`](Self::build) with additional readers, which read from host memory.
    pub fn build_with(&self, mut probes: Vec<Probe>) -> Result<Assembly, BuildError> {
        let mut plan = self.clone();
        for probe in &mut probes {
            probe.source = transfers::to_host(&mut plan.blocks, probe.source);
        }
        plan.assemble(probes)
    }

    fn assemble(&self, probes: Vec<Probe>) -> Result<Assembly, BuildError> {
        self.build_progress.reset();
        // Blocks first: a constructor that fails does so before memory for frames is allocated.
        let mut parts = self
            .blocks
            .iter()
            .enumerate()
            .map(|(index, block)| {
                self.build_progress.during(index, || self.part(block, Waker::default()))
            })
            .collect::<Result<Vec<Part>, _>>()?;
        for (reader, block) in self.blocks.iter().enumerate() {
            for (input, (source, port)) in block.inputs.iter().enumerate() {
                let edge = Edge::new(block.queue_frames(input));
                edge.set_when_full(block.when_full[input]);
                parts[reader].inputs.push(Arc::clone(&edge));
                parts[*source].outputs[*port].edges.push(edge);
            }
        }
        let mut frames = self.pool_frames();
        for probe in &probes {
            let (block, port) = self.origin(probe.source);
            frames[block][port] = frames[block][port].saturating_add(probe.queue + 2);
        }
        let users = self.users();
        for (index, block) in self.blocks.iter().enumerate() {
            for (port, kind) in block.ports.outputs.iter().enumerate() {
                if self.pool_of(index, port) != PortPool::Own {
                    continue;
                }
                let allocator = self.allocator_with((index, port), &users)?;
                let frames = frames[index][port];
                let units = kind.validity.units();
                let pool = Pool::new(allocator.as_ref(), frames, kind.frame_bytes(), units)
                    .map_err(|source| BuildError::Memory { block: block.name.clone(), source })?;
                parts[index].outputs[port].pool = Some(pool);
            }
        }
        for probe in probes {
            let (source, port) = probe.source;
            let edge = Edge::new(probe.queue);
            parts[source].outputs[port].edges.push(Arc::clone(&edge));
            let env = Env::detached(&probe.name);
            parts.push(Part {
                name: probe.name,
                kind: "probe",
                block: probe.block,
                counters: env.counters,
                summary: env.summary,
                events: env.events,
                wake: env.wake,
                inputs: vec![edge],
                outputs: Vec::new(),
                ports: Ports {
                    inputs: vec![self.blocks[source].ports.outputs[port].clone()],
                    outputs: Vec::new(),
                },
                thread: Thread::Shared,
                on_fault: OnFault::Stop,
                rebuild: None,
            });
        }
        Ok(Assembly { name: self.name.clone(), parts })
    }

    /// Builds the candidate for a swap of block `index`: the block, a queue for the tee of each input, a queue
    /// that keeps the frames of each output, and pools for the kept frames and for operation after the swap.
    pub fn candidate_part(&self, index: usize, wake: Waker) -> Result<Part, BuildError> {
        let block = &self.blocks[index];
        let mut part = self.part(block, wake)?;
        let frames = self.pool_frames();
        for input in &block.ports.inputs {
            part.inputs.push(Edge::new(beside_frames(input.frame_bytes())));
        }
        for (port, kind) in block.ports.outputs.iter().enumerate() {
            let kept = beside_frames(kind.frame_bytes());
            part.outputs[port].edges.push(Edge::new(kept));
            if self.pool_of(index, port) != PortPool::Own {
                continue;
            }
            let allocator = self.allocator((index, port))?;
            let units = kind.validity.units();
            let (frames, bytes) = (frames[index][port], kind.frame_bytes());
            let pool = Pool::new_with_added(allocator.as_ref(), (frames, kept), bytes, units)
                .map_err(|source| BuildError::Memory { block: block.name.clone(), source })?;
            part.outputs[port].pool = Some(pool);
        }
        Ok(part)
    }

    /// Allocator of the frames of the output (block, port): on the GPU of the block, or on the host, in pinned memory
    /// if a GPU copies to or from the frames, or in shared memory if another process reads or fills them.
    pub fn allocator(&self, output: (usize, usize)) -> Result<Box<dyn Allocator>, BuildError> {
        self.allocator_with(output, &self.users())
    }

    /// Users of frames in special memory, by the output that makes the frames.
    fn users(&self) -> Users<'_> {
        let uploads = self.blocks.iter().filter(|block| block.kind == Transfer::UPLOAD);
        let uploads = uploads.map(|block| (self.origin(block.inputs[0]), block)).collect();
        let mut shared = HashSet::new();
        let shares = |(_, block): &(usize, &PlannedBlock)| block.resources.shares_frames;
        for (index, block) in self.blocks.iter().enumerate().filter(shares) {
            shared.extend(block.inputs.iter().map(|source| self.origin(*source)));
            shared.extend((0..block.ports.outputs.len()).map(|port| (index, port)));
        }
        Users { uploads, shared }
    }

    fn allocator_with(
        &self,
        (index, port): (usize, usize),
        users: &Users<'_>,
    ) -> Result<Box<dyn Allocator>, BuildError> {
        let block = &self.blocks[index];
        let own = self.device(block)?;
        if let (Some(device), DeviceName::Cuda(_)) = (&own, block.output_device()) {
            return Ok(Box::new(DeviceAllocator(Arc::clone(device))));
        }
        let copies = match (own, users.uploads.get(&(index, port))) {
            (None, Some(upload)) => self.device(upload)?,
            (own, _) => own,
        };
        Ok(match copies {
            Some(device) => Box::new(PinnedAllocator(device)),
            None if users.shared.contains(&(index, port)) => Box::new(SharedAllocator),
            None => Box::new(HostAllocator),
        })
    }

    /// GPU with the output frames of a block; `None` for host memory.
    pub fn frames_device(&self, block: usize) -> Result<Option<Arc<Device>>, BlockError> {
        match self.blocks[block].output_device() {
            DeviceName::Cpu => Ok(None),
            DeviceName::Cuda(ordinal) => Ok(Some(Device::open(ordinal)?)),
        }
    }

    /// Opens the GPU that `block` runs on; `None` for the CPU.
    fn device(&self, block: &PlannedBlock) -> Result<Option<Arc<Device>>, BuildError> {
        let DeviceName::Cuda(ordinal) = block.device else { return Ok(None) };
        let device = Device::open(ordinal).map_err(|error| BuildError::Block {
            block: block.name.clone(),
            source: error.into(),
        })?;
        device.set_kernel_directory(self.kernel_directory.as_deref());
        device.set_tuning(Arc::clone(&self.tuning));
        Ok(Some(device))
    }

    /// Function that creates block `index` of this plan again. The new block continues to count in `counters`. `None`
    /// if the block cannot be restarted.
    #[must_use]
    pub fn rebuild(
        &self,
        index: usize,
        (counters, summary, events, wake): (Counters, Summary, BlockEvents, Waker),
    ) -> Option<Rebuild> {
        let block = &self.blocks[index];
        let env = Env { counters, summary, events, ..self.env(block, wake).ok()? };
        rebuild(block, env)
    }

    /// Environment for the constructor of `block`.
    fn env(&self, block: &PlannedBlock, wake: Waker) -> Result<Env, BuildError> {
        Ok(Env {
            name: block.name.clone(),
            device: self.device(block)?.map(|device| device as Arc<dyn Any + Send + Sync>),
            flowgraph: self.text.clone(),
            output_directory: self.output_directory.clone(),
            texts: self.texts.clone(),
            recorders: self.recorders.clone(),
            overload: self.overloads.group(self.overload_group(block)),
            timelines: self.overloads.timelines().clone(),
            updates: self.updates.clone(),
            wake,
            ..Env::detached(&block.name)
        })
    }

    /// Name of the group of live sources that drop the same intervals as `block`: that of the block which pairs their
    /// frames, also behind copies to a GPU, or its own.
    #[must_use]
    pub fn overload_group<'a>(&'a self, block: &'a PlannedBlock) -> &'a str {
        let is_read_by = |reader: &&PlannedBlock| {
            let mut inputs = 0..reader.inputs.len();
            let is_source = |input| self.blocks[self.source(reader, input).0].name == block.name;
            reader.resources.pairs_inputs && inputs.any(is_source)
        };
        self.blocks.iter().find(is_read_by).map_or(&block.name, |reader| &reader.name)
    }

    /// Builds `block`, without edges; `wake` wakes it.
    fn part(&self, block: &PlannedBlock, wake: Waker) -> Result<Part, BuildError> {
        let env = self.env(block, wake)?;
        let built = guarded(block.configured.as_ref(), &block.pending, &env, 0)
            .map_err(|source| BuildError::Block { block: block.name.clone(), source })?;
        Ok(Part {
            name: block.name.clone(),
            kind: block.kind,
            block: built,
            counters: env.counters.clone(),
            summary: env.summary.clone(),
            events: env.events.clone(),
            wake: env.wake.clone(),
            inputs: Vec::new(),
            outputs: block
                .ports
                .outputs
                .iter()
                .map(|_| PartOutput { edges: Vec::new(), pool: None })
                .collect(),
            ports: block.ports.clone(),
            thread: block.thread,
            on_fault: block.on_fault,
            rebuild: rebuild(block, env),
        })
    }
}
/// Function that creates `block` again in the environment `env`, whose counters continue; `None` if the block cannot
/// be restarted.
fn rebuild(block: &PlannedBlock, env: Env) -> Option<Rebuild> {
    if block.configured.cannot_restart().is_some() {
        return None;
    }
    let (configured, pending) = (Arc::clone(&block.configured), block.pending.clone());
    Some(Arc::new(move |begun| {
        if let Some(device) = Device::of(&env) {
            // If a fault has destroyed the CUDA context, every call on the device fails.
            device.free_bytes().map_err(|error| {
                let name = DeviceName::Cuda(device.ordinal());
                let message = format!("{name} is unusable after a fault: restart the process");
                BlockError::new(message).because(device.fault(error))
            })?;
        }
        guarded(configured.as_ref(), &pending, &env, begun)
    }))
}

fn guarded(
    configured: &dyn AnyConfigured,
    pending: &Pending,
    env: &Env,
    begun: u64,
) -> Result<Box<dyn Block>, BlockError> {
    catch_unwind(AssertUnwindSafe(|| pending.build(configured, env, begun))).unwrap_or_else(
        |cause| Err(BlockError::new(format!("it panicked: {}", panic_text(cause.as_ref())))),
    )
}
