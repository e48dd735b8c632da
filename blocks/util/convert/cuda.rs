//! The form for CUDA devices: one launch for each frame.
#![allow(unsafe_code)] // launches on memory that the job and the block own

use super::Convert;
use super::numbers::{is_double, parts};
use crate::common::gpu::{self, Table};
use fxgraph::cuda::{Grid, Kernel, Lane, frame_address};
use fxgraph::{
    Block, BlockError, Configured, Counter, Dtype, Env, Frame, FrameMut, Io, Next, async_trait,
};
use std::sync::Arc;

/// Threads of a block, and numbers that each converts; as `kernels/util/convert.cu` has it.
const THREADS: usize = 256;
const RUN: usize = 8;

/// The running block.
pub(super) struct Cuda {
    lane: Lane<Job>,
    kernel: Kernel,
    grid: Grid,
    numbers: u64,
    scale: f64,
    /// Elements of a job's frame that did not fit.
    saturated: Table<u64>,
    values_saturated: Counter,
}

struct Job {
    /// Kept until the kernel has read it.
    _input: Arc<Frame>,
    output: FrameMut,
    slot: usize,
}

/// The kernel's word for the numbers of an element.
fn number(dtype: Dtype) -> String {
    dtype.to_string().trim_start_matches('c').to_uppercase()
}

impl Cuda {
    pub(super) fn new(block: &Configured<Convert>, env: &Env) -> Result<Self, BlockError> {
        let [input, output] = [&block.ports.inputs[0], &block.ports.outputs[0]];
        let lane = Lane::new(env)?;
        let device = lane.device();
        let (from, to) = (input.dtype, output.dtype);
        let parts = parts(from).unwrap_or(1);
        let defines = vec![
            ("FROM", number(from)),
            ("TO", number(to)),
            ("PARTS", parts.to_string()),
            ("DOUBLE", u8::from(is_double(from, to)).to_string()),
        ];
        let numbers = output.elements() * parts;
        let kernel = gpu::program(device, "convert.cu", defines)?.kernel("convert", 0)?;
        Ok(Self {
            saturated: Table::new(device, 1)?,
            lane,
            kernel,
            grid: Grid::new([numbers.div_ceil(THREADS * RUN), 1, 1], THREADS),
            numbers: numbers as u64,
            scale: block.parameters.scale,
            values_saturated: super::saturated(&env.counters),
        })
    }

    fn begin(&mut self, input: Arc<Frame>, mut output: FrameMut) -> Result<(), BlockError> {
        let header = output.header_mut();
        header.continue_from(input.header());
        header.validity.copy_from_slice(&input.header().validity);
        let slot = self.lane.begin(input.header().timestamp)?;
        let device = self.lane.device();
        let [from, to] = [frame_address(&input, device)?, frame_address(&output, device)?];
        self.lane.hold(Job { _input: input, output, slot })?;
        self.lane.tables();
        self.saturated.clear(&mut self.lane, slot)?;
        self.lane.work()?;
        let saturated = self.saturated.address(slot);
        let arguments =
            [from.into(), to.into(), saturated.into(), self.numbers.into(), self.scale.into()];
        // SAFETY: the kernel's arguments; the job owns the frames, which have as many numbers, and
        // no other job in flight has its slot.
        unsafe { self.kernel.launch(self.lane.stream(), self.grid, &arguments) }?;
        self.lane.results()?;
        self.saturated.fetch(&mut self.lane, slot)?;
        self.lane.submit()
    }
}

#[async_trait]
impl Block for Cuda {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.outputs[0].has_room()
            && let Some(Job { output, slot, .. }) = self.lane.done()?
        {
            self.values_saturated.add(self.saturated.host(slot)?[0]);
            io.outputs[0].push(output);
        }
        if io.inputs[0].ended() && self.lane.is_idle() {
            return Ok(Next::Finished);
        }
        if !self.lane.has_room() || io.inputs[0].peek().is_none() {
            return Ok(Next::Wait);
        }
        let Some(output) = io.outputs[0].take() else { return Ok(Next::Wait) };
        let Some(input) = io.inputs[0].pop() else { return Ok(Next::Wait) };
        self.begin(input, output)?;
        Ok(Next::Again)
    }
}
