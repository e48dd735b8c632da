//! The block on a GPU.
#![allow(unsafe_code)] // launches on memory that the job and the block own

use super::Values;
use super::groups::{Groups, Taken};
use super::shape::{BASELINE, CHANNEL, PRODUCT, ROW, SPECTRUM, Shape};
use crate::common::gpu::{Table, numbers};
use fxgraph::cuda::{
    DeviceArray, Grid, Kernel, Needs, Pipeline, Program, ProgramSource, Source, frame_address,
};
use fxgraph::diagnostic::codes;
use fxgraph::{At, Block, BlockError, Dtype, Env, Frame, FrameMut, Io, Next, Rejection};
use std::sync::Arc;

/// Threads per block, one for each real number of the output.
const THREADS: usize = 256;

pub(super) static PROGRAMS: &[ProgramSource] = &[ProgramSource {
    source: Source::embedded("average.cu", include_str!("average.cu")),
    headers: &[],
    needs: Needs::Ampere,
    cases: &[
        "SPECTRA=1 ROWS=1 CHANNELS=1024 BASELINES=3240 PRODUCTS=4 PARTS=2 DUMPS=8 FACTOR=4 OUT_BASELINES=900 \
         IN_SPECTRUM=0 IN_ROW=0 IN_CHANNEL=0 IN_BASELINE=1 IN_PRODUCT=0 OUT_SPECTRUM=0 OUT_ROW=0 OUT_CHANNEL=0 \
         OUT_BASELINE=1 OUT_PRODUCT=0 INTEGERS=1 SHARE=4",
        "SPECTRA=16 ROWS=4 CHANNELS=4096 BASELINES=1 PRODUCTS=1 PARTS=1 DUMPS=4 FACTOR=1 OUT_BASELINES=1 \
         IN_SPECTRUM=1 IN_ROW=0 IN_CHANNEL=0 IN_BASELINE=0 IN_PRODUCT=0 OUT_SPECTRUM=1 OUT_ROW=0 OUT_CHANNEL=0 \
         OUT_BASELINE=0 OUT_PRODUCT=0 INTEGERS=0 SHARE=0",
    ],
}];

/// Bytes of the block's own arrays.
pub(super) fn device_bytes(shape: &Shape) -> usize {
    shape.numbers() * shape.spectra_out() * size_of::<u64>()
        + shape.baselines.len() * size_of::<u32>()
        + Table::<u32>::device_bytes(shape.units_in())
        + Table::<u32>::device_bytes(shape.units_out())
}

/// Thread blocks for `averages` averages in time.
fn blocks(shape: &Shape, averages: usize) -> usize {
    shape.numbers().saturating_mul(averages).div_ceil(THREADS)
}

/// Diagnostic for frames that exceed the largest grid.
pub(super) fn rejection(shape: &Shape) -> Option<Rejection> {
    (blocks(shape, shape.spectra_out()) > i32::MAX as usize).then(|| {
        let message = "an output frame must have fewer than 2^39 numbers";
        Rejection::new(codes::IMPLEMENTATION, At::InputAxis(0, "channel"), message)
    })
}

/// Sums in device memory: integers of 64 bits or floats of double precision, whose zeros are the same.
type Sums = DeviceArray<u64>;

/// Frames that the kernels of a job read or write.
enum Job {
    Add { _frame: Arc<Frame> },
    Output { frame: FrameMut },
}

/// The running block. A job adds the dumps of a frame that belong to one output frame, or outputs a frame.
pub(super) struct Cuda {
    /// First field, so that its drop waits for the GPU before the other fields are dropped.
    pipeline: Pipeline<Job>,
    shape: Arc<Shape>,
    groups: Groups,
    /// Current frame, and its next dump.
    frame: Option<(Arc<Frame>, usize)>,
    add: Kernel,
    output: Kernel,
    sums: Sums,
    /// Input's index of each baseline of the output.
    baselines: DeviceArray<u32>,
    /// Validity of the input, for each job in flight.
    valid: Table<u32>,
    /// Validity of the output, for each job in flight.
    counts: Table<u32>,
}

impl Cuda {
    pub(super) fn new(shape: &Arc<Shape>, env: &Env) -> Result<Self, BlockError> {
        let pipeline = Pipeline::new(env)?;
        let device = pipeline.device();
        let Shape { input, input_units, units, .. } = &**shape;
        let divides = shape.values == Values::Mean;
        let defines = numbers([
            ("SPECTRA", input[SPECTRUM]),
            ("ROWS", input[ROW]),
            ("CHANNELS", input[CHANNEL]),
            ("BASELINES", input[BASELINE]),
            ("PRODUCTS", input[PRODUCT]),
            ("PARTS", shape.parts),
            ("DUMPS", shape.dumps),
            ("FACTOR", shape.channels),
            ("OUT_BASELINES", shape.baselines.len()),
            ("IN_SPECTRUM", input_units[SPECTRUM]),
            ("IN_ROW", input_units[ROW]),
            ("IN_CHANNEL", input_units[CHANNEL]),
            ("IN_BASELINE", input_units[BASELINE]),
            ("IN_PRODUCT", input_units[PRODUCT]),
            ("OUT_SPECTRUM", units[SPECTRUM]),
            ("OUT_ROW", units[ROW]),
            ("OUT_CHANNEL", units[CHANNEL]),
            ("OUT_BASELINE", units[BASELINE]),
            ("OUT_PRODUCT", units[PRODUCT]),
            ("INTEGERS", usize::from(shape.dtype == Dtype::Ci32)),
            ("SHARE", if divides { shape.channels_per_count as usize } else { 0 }),
        ]);
        let program = Program::compile(&PROGRAMS[0], device, defines)?;
        Ok(Self {
            groups: Groups::new(shape, &env.counters),
            frame: None,
            add: program.kernel("add", 0)?,
            output: program.kernel("output", 0)?,
            sums: DeviceArray::zeros(device, shape.numbers() * shape.spectra_out())?,
            baselines: DeviceArray::from_slice(device, &shape.baselines)?,
            valid: Table::new(device, shape.units_in())?,
            counts: Table::new(device, shape.units_out())?,
            shape: Arc::clone(shape),
            pipeline,
        })
    }

    /// Queues the sums of dumps of a frame.
    fn add(&mut self, frame: &Arc<Frame>, taken: &Taken) -> Result<(), BlockError> {
        let values = frame_address(frame, self.pipeline.device())?;
        let slot = self.pipeline.begin(frame.header().timestamp)?;
        self.pipeline.hold(Job::Add { _frame: Arc::clone(frame) })?;
        let validity = &frame.header().validity;
        let mut valid = 0;
        if validity.contains(&0) {
            self.valid.host_mut(slot)?.copy_from_slice(validity);
            self.pipeline.tables();
            self.valid.send(&mut self.pipeline, slot, 0..validity.len())?;
            valid = self.valid.address(slot);
        }
        self.pipeline.work()?;
        let Taken { dumps, place } = taken;
        let of_average = self.shape.dumps;
        let averages = (place + dumps.len()).div_ceil(of_average) - place / of_average;
        let grid = Grid::new([blocks(&self.shape, averages), 1, 1], THREADS);
        let arguments = [
            values.into(),
            valid.into(),
            self.baselines.address().into(),
            self.sums.address().into(),
            (dumps.start as i32).into(),
            (dumps.len() as i32).into(),
            (*place as i64).into(),
        ];
        // SAFETY: the arguments match the kernel, which was compiled for these sizes; the job owns the frame, and no
        // other job in flight uses its slot.
        unsafe { self.add.launch(self.pipeline.stream(), grid, &arguments) }?;
        self.pipeline.submit()
    }

    /// Queues the output frame. Returns `false` if there is no free output frame.
    fn output(&mut self, io: &mut Io<'_>) -> Result<bool, BlockError> {
        let Some(mut frame) = io.outputs[0].take() else { return Ok(false) };
        self.groups.end(frame.header_mut());
        let values = frame_address(&frame, self.pipeline.device())?;
        let slot = self.pipeline.begin(frame.header().timestamp)?;
        self.counts.host_mut(slot)?.copy_from_slice(&frame.header().validity);
        self.pipeline.hold(Job::Output { frame })?;
        self.pipeline.tables();
        self.counts.send(&mut self.pipeline, slot, 0..self.shape.units_out())?;
        self.pipeline.work()?;
        let averages = self.shape.spectra_out();
        let grid = Grid::new([blocks(&self.shape, averages), 1, 1], THREADS);
        let arguments = [
            self.sums.address().into(),
            self.counts.address(slot).into(),
            values.into(),
            (averages as i64).into(),
        ];
        // SAFETY: the arguments match the kernel; sums and counts live as long as the block, and the job holds the frame
        // of `values`.
        unsafe { self.output.launch(self.pipeline.stream(), grid, &arguments) }?;
        self.pipeline.submit()?;
        Ok(true)
    }

    fn step(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.outputs[0].has_room()
            && let Some(job) = self.pipeline.done()?
        {
            if let Job::Output { frame } = job {
                io.outputs[0].push(frame);
            }
        }
        if !self.pipeline.has_room() {
            return Ok(Next::Wait);
        }
        let next = |is_queued| if is_queued { Next::Again } else { Next::Wait };
        if self.groups.is_complete() {
            return self.output(io).map(next);
        }
        if let Some((frame, dump)) =
            self.frame.take().or_else(|| io.inputs[0].pop().map(|frame| (frame, 0)))
        {
            let taken = self.groups.take(frame.header(), dump);
            if !taken.dumps.is_empty() {
                self.add(&frame, &taken)?;
            }
            let next = taken.dumps.end;
            self.frame = (next < self.shape.input[SPECTRUM]).then_some((frame, next));
            return Ok(Next::Again);
        }
        if !io.inputs[0].ended() {
            return Ok(Next::Wait);
        }
        if self.groups.has_data() {
            return self.output(io).map(next);
        }
        Ok(if self.pipeline.is_idle() { Next::Finished } else { Next::Wait })
    }
}

impl Block for Cuda {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let next = self.step(io);
        if next.is_err() {
            // With `on_fault: skip` the block continues.
            self.groups.spoil();
        }
        next
    }
}
