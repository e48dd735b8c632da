//! The block on a GPU: one kernel launch for each output frame, which reads the frames of all antennas.
#![allow(unsafe_code)] // launches and copies on memory that the job and the block own

use super::AntennaStack;
use super::matching::{Heaps, Matching};
use crate::common::flagged_antennas::Flagging;
use crate::common::gpu::{self, Table};
use fxgraph::changes::Change;
use fxgraph::cuda::{Grid, Kernel, Pipeline, Tunable, frame_address};
use fxgraph::{Block, BlockError, Env, FrameMut, Io, Next, Ports};

/// Widest memory access, in bytes.
const WIDEST: usize = 16;
/// Memory accesses per thread and threads per block: the default, and alternatives for tuning.
const CUTS: [(usize, usize); 5] = [(4, 256), (2, 512), (4, 128), (8, 128), (8, 256)];

/// The running block.
pub struct Cuda {
    matching: Matching,
    heaps: Heaps,
    flagging: Flagging,
    antennas: usize,
    /// CUDA pipeline. Its jobs own the output frame, and the input frames until the kernel has read them.
    pipeline: Pipeline<FrameMut>,
    kernel: Kernel,
    grid: Grid,
    /// Source address of each antenna's part of each heap, `[heap][antenna]`; 0 for zeros.
    sources: Table<u64>,
}

/// Device memory of the block in bytes, without frames.
pub fn device_bytes(ports: &Ports) -> usize {
    Table::<u64>::device_bytes(ports.inputs.len() * ports.inputs[0].axes[0].len)
}

/// Size in bytes of the widest memory access to which all pieces are aligned.
fn vector_bytes(heaps: &Heaps) -> usize {
    1 << (heaps.bytes | heaps.first | heaps.taken | WIDEST).trailing_zeros()
}

/// The kernel, with its launch configurations.
pub fn tunable(heaps: &Heaps) -> Tunable {
    let way = |(vectors, threads)| gpu::numbers([("VECTORS", vectors), ("THREADS", threads)]);
    Tunable {
        program: "gather.cu",
        shape: gpu::numbers([("PIECE_BYTES", heaps.taken), ("VECTOR", vector_bytes(heaps))]),
        ways: CUTS.map(way).to_vec(),
    }
}

impl Cuda {
    /// Creates a stack for checked `ports`.
    pub fn new(
        parameters: &AntennaStack,
        heaps: Heaps,
        ports: &Ports,
        flagging: Flagging,
        env: &Env,
    ) -> Result<Self, BlockError> {
        let pipeline = Pipeline::new(env)?;
        let device = pipeline.device();
        let antennas = ports.inputs.len();
        let pieces = heaps.count * antennas;
        let tunable = tunable(&heaps);
        let way = device.chosen(&tunable);
        let program = gpu::program(device, tunable.program, tunable.defines(way))?;
        let kernel = program.kernel("gather", 0)?;
        let [vectors, threads] = ["VECTORS", "THREADS"].map(|name| tunable.number(way, name));
        let piece_blocks = (heaps.taken / vector_bytes(&heaps)).div_ceil(threads * vectors);
        Ok(Self {
            matching: Matching::new(parameters, ports, &env.counters),
            heaps,
            flagging,
            antennas,
            kernel,
            grid: Grid::new([piece_blocks * pieces, 1, 1], threads),
            sources: Table::new(device, pieces)?,
            pipeline,
        })
    }

    fn begin(&mut self, time: u64, mut output: FrameMut) -> Result<(), BlockError> {
        let slot = self.pipeline.begin(time)?;
        let header = output.header_mut();
        header.timestamp = time;
        let sources = self.sources.host_mut(slot)?;
        self.flagging.begin(time);
        for (antenna, input) in self.matching.take(time, &self.flagging).enumerate() {
            let address = input.as_ref().map(|input| self.pipeline.read(input)).transpose()?;
            for heap in 0..self.heaps.count {
                let unit = heap * self.antennas + antenna;
                let taken = self.heaps.taken_units;
                let flags = &mut header.validity[unit * taken..(unit + 1) * taken];
                if self.flagging.is_flagged(heap, antenna) {
                    flags.fill(0);
                    sources[unit] = 0;
                    continue;
                }
                let is_there = input
                    .as_ref()
                    .is_some_and(|i| self.heaps.copy_flags(&i.header().validity, heap, flags));
                let from = address.filter(|_| is_there);
                sources[unit] = from.map_or(0, |from| from + self.heaps.begin(heap) as u64);
            }
        }
        let to = frame_address(&output, self.pipeline.device())?;
        self.pipeline.hold(output)?;
        self.pipeline.tables();
        self.sources.send(&mut self.pipeline, slot, 0..self.heaps.count * self.antennas)?;
        self.pipeline.work()?;
        let arguments = [self.sources.address(slot).into(), to.into()];
        // SAFETY: the array belongs to the slot of the job, and the frames to the job; the kernel was compiled
        // for their sizes.
        unsafe { self.kernel.launch(self.pipeline.stream(), self.grid, &arguments) }?;
        self.pipeline.submit()
    }
}

impl Block for Cuda {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.outputs[0].has_room()
            && let Some(output) = self.pipeline.done()?
        {
            io.outputs[0].push(output);
        }
        if !self.pipeline.has_room() {
            return Ok(Next::Wait);
        }
        let time = match self.matching.ready(io) {
            Ok(time) => time,
            Err(Next::Finished) if !self.pipeline.is_idle() => return Ok(Next::Wait),
            Err(next) => return Ok(next),
        };
        let Some(output) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.begin(time, output)?;
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.flagging.offer(change)
    }
}
