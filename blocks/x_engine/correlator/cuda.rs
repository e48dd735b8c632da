//! The block on a GPU.
#![allow(unsafe_code)] // work on frames and tables that jobs own

use super::architecture::Architecture;
use super::dumps::Dumps;
use super::sums::Sums;
use crate::common::stacked::Stacked;
use crate::common::units::Units;
use fxgraph::cuda::{Device, IN_FLIGHT, Pinned, Pipeline, frame_address};
use fxgraph::{Block, BlockError, Dtype, Env, Frame, FrameMut, Io, Next};
use std::ops::Range;
use std::sync::Arc;

/// The running block. A job adds the heaps of a frame that belong to one dump, or outputs a dump.
pub(super) struct Cuda {
    shape: Stacked,
    dumps: Dumps,
    /// Current frame, and its next heap.
    frame: Option<(Arc<Frame>, usize)>,
    pipeline: Pipeline<Job>,
    tables: Vec<Tables>,
    sums: Sums,
}

/// Frame that the kernels of a job read or write.
enum Job {
    Add {
        _frame: Arc<Frame>,
    },
    PutOut {
        output: FrameMut,
        /// Slot of the tables of the job.
        slot: usize,
    },
}

/// Host memory of the tables of a job, for upload and download.
struct Tables {
    /// `[heap][antenna]`
    valid: Pinned<u32>,
    /// Whether each visibility is missing: `[baseline]`, or `[channel][baseline][product]`.
    missing: Pinned<u8>,
    saturated: Pinned<u64>,
}

/// Number of flags of missing visibilities.
pub(super) fn missing_flags(shape: &Stacked) -> usize {
    match shape.units {
        Units::Heap => shape.baselines(),
        Units::Channel => shape.channels * shape.products() * shape.baselines(),
    }
}

impl Tables {
    fn new(device: &Arc<Device>, shape: &Stacked) -> Result<Self, BlockError> {
        Ok(Self {
            valid: Pinned::new(device, shape.heaps * shape.antennas)?,
            missing: Pinned::new(device, missing_flags(shape))?,
            saturated: Pinned::new(device, 1)?,
        })
    }
}

impl Cuda {
    pub(super) fn new(
        shape: Stacked,
        spectra_per_dump: u64,
        dumps: Dumps,
        architecture: fn(Dtype, (usize, usize)) -> Architecture,
        env: &Env,
    ) -> Result<Self, BlockError> {
        let pipeline = Pipeline::new(env)?;
        let device = pipeline.device();
        let architecture = architecture(shape.dtype, device.properties().capability);
        tracing::info!(block = env.name, ?architecture, "dumps of {spectra_per_dump} spectra");
        let sums = Sums::new(device, architecture, shape, spectra_per_dump)?;
        let tables =
            (0..IN_FLIGHT).map(|_| Tables::new(device, &shape)).collect::<Result<_, _>>()?;
        Ok(Self { shape, dumps, frame: None, tables, sums, pipeline })
    }

    /// Queues the next heaps of the current frame, at most to the end of a dump.
    fn advance(&mut self, frame: Arc<Frame>, heap: usize) -> Result<(), BlockError> {
        let heaps = self.dumps.take(frame.header(), heap, self.shape.heaps);
        let next = heaps.end;
        self.add(&frame, heaps)?;
        self.frame = (next < self.shape.heaps).then_some((frame, next));
        Ok(())
    }

    fn add(&mut self, frame: &Arc<Frame>, heaps: Range<usize>) -> Result<(), BlockError> {
        let antennas = self.shape.antennas;
        let valid = self.dumps.present(frame.header());
        let valid = &valid[heaps.start * antennas..heaps.end * antennas];
        if valid.iter().all(|&v| v == 0) {
            return Ok(());
        }
        let payload = frame_address(frame, self.pipeline.device())?;
        let slot = self.pipeline.begin(frame.header().timestamp)?;
        self.pipeline.hold(Job::Add { _frame: Arc::clone(frame) })?;
        self.pipeline.work()?;
        let table = if valid.contains(&0) {
            let table = &mut self.tables[slot].valid;
            table.get_mut()?[..valid.len()].copy_from_slice(valid);
            Some(table)
        } else {
            None
        };
        // SAFETY: the job owns the frame.
        unsafe { self.sums.add(&mut self.pipeline, payload, heaps, table) }?;
        self.pipeline.submit()
    }

    /// Queues the output of the dump. Returns `false` if there is no free output frame.
    fn put_out(&mut self, io: &mut Io<'_>) -> Result<bool, BlockError> {
        let Some(mut output) = io.outputs[0].take() else { return Ok(false) };
        self.dumps.put_out(output.header_mut());
        let header = output.header();
        let payload = frame_address(&output, self.pipeline.device())?;
        let slot = self.pipeline.begin(header.timestamp)?;
        let Tables { missing, saturated, .. } = &mut self.tables[slot];
        let some_missing = header.validity.contains(&0);
        if some_missing {
            let flags = missing.get_mut()?.iter_mut().zip(&header.validity);
            flags.for_each(|(flag, count)| *flag = u8::from(*count == 0));
        }
        let missing = some_missing.then_some(missing);
        self.pipeline.hold(Job::PutOut { output, slot })?;
        self.pipeline.work()?;
        // SAFETY: the job owns the frame.
        unsafe { self.sums.put_out(&mut self.pipeline, payload, missing, saturated) }?;
        self.pipeline.submit()?;
        Ok(true)
    }

    fn step(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.outputs[0].has_room()
            && let Some(job) = self.pipeline.done()?
        {
            if let Job::PutOut { output, slot } = job {
                self.dumps.saturated(self.tables[slot].saturated.get()?[0]);
                io.outputs[0].push(output);
            }
        }
        if !self.pipeline.has_room() {
            return Ok(Next::Wait);
        }
        let next = |queued| if queued { Next::Again } else { Next::Wait };
        if self.dumps.complete() {
            return self.put_out(io).map(next);
        }
        let at_hand = self.frame.take().or_else(|| io.inputs[0].pop().map(|frame| (frame, 0)));
        if let Some((frame, heap)) = at_hand {
            self.advance(frame, heap)?;
            return Ok(Next::Again);
        }
        if !io.inputs[0].ended() {
            return Ok(Next::Wait);
        }
        if self.dumps.worth_having() {
            return self.put_out(io).map(next);
        }
        Ok(if self.pipeline.is_idle() { Next::Finished } else { Next::Wait })
    }
}

impl Block for Cuda {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let next = self.step(io);
        if next.is_err() {
            // With `on_fault: skip` the block continues.
            self.dumps.spoil();
        }
        next
    }
}
