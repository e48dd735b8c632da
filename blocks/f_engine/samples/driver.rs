//! Common driver of the blocks that read digitised samples on a GPU: locates the samples of each output frame, and
//! submits one job after the other.

use super::device::{self, DeviceSamples, owes_copies};
use super::input::Sizes;
use super::packed_input::{Lending, Memory};
use super::pol::Count;
use super::schedule::{Fate, Placed, Run, Schedule};
use crate::common::live::Live;
use crate::common::versions::reject_many;
use fxgraph::changes::Change;
use fxgraph::cuda::{Device, Pipeline, frame_address};
use fxgraph::{Block, BlockError, Env, FrameMut, Header, Io, Next, Ports};
use fxgraph_dsp::delay::Piece;
use std::sync::Arc;

/// Adjacent spectra of one polarisation whose samples are contiguous in memory.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub pol: usize,
    /// Index of the first spectrum within the output frame.
    pub first: usize,
    pub count: usize,
    pub fate: Fate,
    /// Address of the memory with the samples of the first spectrum; unused if the samples are missing.
    pub address: u64,
    /// Offset of the first sample from `address` in bits.
    pub first_bit: u64,
}

/// Computation of a block on the samples. The next frames are begun while the GPU computes one; each frame in
/// flight has its own slot.
pub trait Maker: Send {
    /// Live parameters that are kept as tables in device memory.
    const TABLES: &'static [&'static str] = &[];

    /// Schedules `live`, the value of a live parameter other than the delays, for the effective timestamp `from`,
    /// which is before the end of the next output frame. The schedule itself handles the delays.
    fn update(&mut self, _from: u64, _live: Live) {}

    /// Returns whether the next output frame may begin with any live updates. If not, it may begin when the CUDA
    /// pipeline is idle.
    fn has_room(&mut self, _pipeline_is_idle: bool) -> bool {
        true
    }

    /// Begins the output frame of a slot, with these runs of `(polarisation, run)`. Returns the largest number of
    /// spectra of a stretch.
    fn begin(&mut self, slot: usize, schedule: &Schedule<Lending>, runs: &[(usize, Run)]) -> usize;

    /// Adds a stretch to the output frame with the header `output`.
    fn add(
        &mut self,
        slot: usize,
        sizes: &Sizes,
        stretch: &Stretch,
        output: &mut Header,
    ) -> Result<(), BlockError>;

    /// Fills the header and the host tables of the output frame, after all of its stretches were added.
    fn prepare(
        &mut self,
        slot: usize,
        schedule: &Schedule<Lending>,
        output: &mut Header,
    ) -> Result<(), BlockError>;

    /// Queues uploads, kernels and downloads of the output frame, whose payload is at `output`. The job of `pipeline`
    /// is in its upload stage and owns the frames.
    fn queue<J>(
        &mut self,
        pipeline: &mut Pipeline<J>,
        slot: usize,
        schedule: &Schedule<Lending>,
        output: u64,
    ) -> Result<(), BlockError>;

    /// Completes the header of the output frame after its job. Returns whether the frame has valid data. Frames are
    /// completed in order.
    fn complete(
        &mut self,
        slot: usize,
        schedule: &Schedule<Lending>,
        output: &mut Header,
    ) -> Result<bool, BlockError>;

    /// Writes the summary of the run.
    fn summarise(&self);
}

/// Output frame and slot of a job. The CUDA pipeline owns the frames that samples are read or copied from.
type Job = Option<(FrameMut, usize)>;

/// The running block.
pub struct Driver<M> {
    /// First, so that it waits for the GPU before anything else is dropped.
    pipeline: Pipeline<Job>,
    maker: M,
    samples: DeviceSamples,
    schedule: Schedule<Lending>,
    /// Runs of the output frame, with their polarisations.
    runs: Vec<(usize, Run)>,
}

impl<M: Maker> Driver<M> {
    /// Creates a block with a schedule of these sizes and delays. `make` creates its [`Maker`].
    pub fn new(
        sizes: Sizes,
        delays: &[Vec<Piece>],
        count: Count,
        ports: &Ports,
        env: &Env,
        make: impl FnOnce(&Arc<Device>, &Sizes) -> Result<M, BlockError>,
    ) -> Result<Self, BlockError> {
        let pipeline: Pipeline<Job> = Pipeline::new(env)?;
        let most = sizes.spectra;
        let room = device::capacity(&sizes);
        let stores = ports.inputs.iter().map(|input| Lending::new(input.dtype.bits(), &sizes));
        Ok(Self {
            maker: make(pipeline.device(), &sizes)?,
            samples: DeviceSamples::new(pipeline.device(), &sizes, ports)?,
            schedule: Schedule::new(sizes, &ports.inputs, delays, most, room, stores, count),
            runs: Vec::with_capacity(ports.inputs.len() * sizes.spectra),
            pipeline,
        })
    }

    /// Submits a job for the pending copies alone, while the output frame waits for samples.
    fn submit_copies(&mut self) -> Result<(), BlockError> {
        if !owes_copies(&self.schedule) {
            return Ok(());
        }
        self.pipeline.begin(self.schedule.timestamp())?;
        self.pipeline.hold(None)?;
        self.samples.copy_histories(&mut self.schedule, &mut self.pipeline)?;
        self.pipeline.submit()
    }

    /// Submits the job of the output frame, after all of its runs were found.
    fn submit_frame(&mut self, mut output: FrameMut) -> Result<(), BlockError> {
        let slot = self.pipeline.begin(self.schedule.timestamp())?;
        self.schedule.pols.iter_mut().for_each(|pol| pol.store.begin_frame());
        let most = self.maker.begin(slot, &self.schedule, &self.runs);
        for (pol, run) in self.runs.drain(..) {
            let mut done = 0;
            while done < run.count {
                let located = self.schedule.locate(pol, &run, done);
                let address = self.samples.address(slot, pol, &located, self.pipeline.device())?;
                for from in (0..located.count).step_by(most) {
                    let stretch = Stretch {
                        pol,
                        first: run.first + done + from,
                        count: most.min(located.count - from),
                        fate: run.fate,
                        address,
                        first_bit: located.first_bit + from as u64 * located.step_bits,
                    };
                    self.maker.add(slot, &self.schedule.sizes, &stretch, output.header_mut())?;
                }
                if let Memory::Frame(frame) = located.memory {
                    self.pipeline.keep(frame)?;
                }
                done += located.count;
            }
        }
        self.maker.prepare(slot, &self.schedule, output.header_mut())?;
        let to = frame_address(&output, self.pipeline.device())?;
        self.pipeline.hold(Some((output, slot)))?;
        self.samples.copy_histories(&mut self.schedule, &mut self.pipeline)?;
        self.pipeline.tables();
        self.samples.copy_seams(&mut self.schedule, &mut self.pipeline, slot)?;
        self.maker.queue(&mut self.pipeline, slot, &self.schedule, to)?;
        self.pipeline.submit()
    }

    /// Sends the frame of a finished job.
    fn hand_on(&mut self, job: Job, io: &mut Io<'_>) -> Result<(), BlockError> {
        let Some((mut frame, slot)) = job else { return Ok(()) };
        if self.maker.complete(slot, &self.schedule, frame.header_mut())? {
            io.outputs[0].push(frame);
        }
        Ok(())
    }
}

impl<M: Maker> Block for Driver<M> {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.outputs[0].has_room()
            && let Some(job) = self.pipeline.done()?
        {
            self.hand_on(job, io)?;
        }
        if !self.pipeline.has_room() {
            return Ok(Next::Wait);
        }
        if !self.schedule.is_placed() && !self.maker.has_room(self.pipeline.is_idle()) {
            return Ok(Next::Wait);
        }
        let Self { schedule, maker, .. } = self;
        match schedule.place(io.inputs, |from, live| maker.update(from, live)) {
            Some(Placed::Here) => self.schedule.reserve_frame(),
            Some(Placed::Nowhere) if self.pipeline.is_idle() => return Ok(Next::Finished),
            Some(Placed::Nowhere) | None => return Ok(Next::Wait),
        }
        for (pol, input) in io.inputs.iter_mut().enumerate() {
            while let Some(run) = self.schedule.next_run(pol, input) {
                self.runs.push((pol, run));
            }
        }
        if !self.schedule.is_done() {
            self.submit_copies()?;
            return Ok(Next::Wait);
        }
        if self.runs.iter().any(|(_, run)| run.fate == Fate::Whole) {
            let Some(frame) = io.outputs[0].take() else {
                self.submit_copies()?;
                return Ok(Next::Wait);
            };
            self.submit_frame(frame)?;
        }
        self.runs.clear();
        self.schedule.next_frame();
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        reject_many(M::TABLES, &self.schedule.changes, &change)?;
        self.schedule.changes.offer(change)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.maker.summarise();
        Ok(())
    }
}
