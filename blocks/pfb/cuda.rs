//! The block on a GPU.
#![allow(unsafe_code)] // copies and launches on memory that the block or the job owns

use super::Pfb;
use super::device_samples::{self, DeviceSamples, owes_copies, samples_type};
use super::lending::Lending;
use super::power::{Level, Measured, summary};
use super::schedule::{Fate, Placed, Run, Schedule, Sizes};
use crate::gpu;
use bytemuck::{Pod, Zeroable};
use fxgraph::cuda::{DeviceArray, Grid, Kernel, Lane, Pinned, frame_address};
use fxgraph::{
    Block, BlockError, Dtype, Env, Frame, FrameMut, Io, Next, Ports, Summary, async_trait,
};
use std::sync::Arc;

/// Threads of a block of the kernel.
const THREADS: usize = 128;
/// Most taps with which a thread filters two samples of a spectrum, not one.
const MOST_TAPS_OF_TWO: usize = 32;

/// Adjacent spectra of one polarisation, as `pfb.cu` wants them.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Entry {
    /// Address of the memory that the first one's samples start in, and bits from there.
    samples: u64,
    first_bit: u64,
    /// Polarisation times spectra per polarisation, plus spectrum.
    row: u32,
    count: u32,
    /// The fate: 0 to be filtered, 1 to be measured only, 2 to be cleared.
    what: u32,
    pol: u32,
}

/// What is queued on the GPU.
struct Job {
    /// Frames that samples are read or copied from.
    inputs: Vec<Arc<Frame>>,
    output: Option<Output>,
}

/// The output frame of the job that makes it.
struct Output {
    frame: FrameMut,
    slot: usize,
    /// For each polarisation, but for what the GPU counts.
    measured: Vec<Measured>,
}

/// Bytes in device memory that the block takes for itself.
pub fn device_bytes(pfb: &Pfb, ports: &Ports) -> usize {
    let sizes = Sizes::new(pfb, ports);
    let samples = device_samples::device_bytes(&sizes, ports);
    let entries = ports.inputs.len() * sizes.spectra * size_of::<Entry>();
    samples + entries + size_of::<f32>() * sizes.window
}

/// The running block.
pub struct Cuda {
    /// First, so that it waits for the GPU before anything else is dropped.
    lane: Lane<Job>,
    kernel: Kernel,
    /// Samples that a thread filters of each spectrum.
    columns: usize,
    /// Spectra that a block of threads does one after the other.
    most: usize,
    weights: DeviceArray<f32>,
    samples: DeviceSamples,
    entries: DeviceArray<Entry>,
    /// For each slot.
    host_entries: Vec<Pinned<Entry>>,
    /// \[pol\]\[power, clipped\].
    totals: DeviceArray<u64>,
    /// For each slot.
    host_totals: Vec<Pinned<u64>>,
    schedule: Schedule<Lending>,
    /// Runs of the output frame, with their polarisations.
    runs: Vec<(usize, Run)>,
    /// Of the whole run, for each polarisation.
    levels: Vec<Level>,
    summary: Summary,
}

impl Cuda {
    pub fn new(pfb: &Pfb, ports: &Ports, env: &Env) -> Result<Self, BlockError> {
        let lane = Lane::new(env)?;
        let device = Arc::clone(lane.device());
        let (sizes, pols) = (Sizes::new(pfb, ports), ports.inputs.len());
        let input = samples_type(ports)?;
        let defines = vec![
            ("CHANNELS", pfb.channels.to_string()),
            ("TAPS", pfb.taps.to_string()),
            ("UNZIP", pfb.unzip.to_string()),
            ("BITS", input.bits().to_string()),
            ("NATIVE", u32::from(input == Dtype::I16).to_string()),
        ];
        let kernel = gpu::program(&device, "pfb.cu", defines)?.kernel("pfb", 0)?;
        let columns = if pfb.taps <= MOST_TAPS_OF_TWO { 2 } else { 1 };
        let blocks_of_spectrum = (sizes.step / columns).div_ceil(THREADS);
        // As many blocks as run at once, so that no multiprocessor waits for the others at the end;
        // but as a block begins by reading all but one of its first window's rows, not less work
        // than that.
        let at_once =
            kernel.blocks_per_multiprocessor(THREADS)? * device.properties().multiprocessors;
        let in_turn = (pols * sizes.spectra).div_ceil((at_once / blocks_of_spectrum).max(1));
        let room = device_samples::capacity(&sizes);
        let stores = ports.inputs.iter().map(|input| Lending::new(input.dtype.bits()));
        let weights = super::weights(sizes.step, pfb.taps, pfb.window, pfb.w_cutoff);
        let most_entries = pols * sizes.spectra;
        Ok(Self {
            kernel,
            columns,
            most: in_turn.max(pfb.taps),
            weights: DeviceArray::from_slice(&device, &weights)?,
            samples: DeviceSamples::new(&device, &sizes, ports)?,
            entries: DeviceArray::new(&device, most_entries)?,
            host_entries: gpu::for_each_slot(|| Pinned::new(&device, most_entries))?,
            totals: DeviceArray::new(&device, 2 * pols)?,
            host_totals: gpu::for_each_slot(|| Pinned::new(&device, 2 * pols))?,
            schedule: Schedule::new(pfb, ports, sizes.spectra, room, stores, &env.counters),
            runs: Vec::with_capacity(most_entries),
            levels: ports.inputs.iter().map(|input| Level::new(input.dtype.bits())).collect(),
            summary: env.summary.clone(),
            lane,
        })
    }

    /// Queues only the copies that are due, while the output frame waits for samples.
    fn submit_copies(&mut self) -> Result<(), BlockError> {
        if !owes_copies(&self.schedule) {
            return Ok(());
        }
        self.lane.begin(self.schedule.frame_start.cast_unsigned())?;
        let mut inputs = Vec::new();
        self.samples.copy(&mut self.schedule, &self.lane, &mut inputs)?;
        self.lane.submit(Job { inputs, output: None })
    }

    /// Queues the output frame, all of whose runs are known.
    fn submit_frame(&mut self, mut frame: FrameMut) -> Result<(), BlockError> {
        let slot = self.lane.begin(self.schedule.frame_start.cast_unsigned())?;
        let mut inputs = Vec::new();
        let mut measured = vec![Measured::default(); self.levels.len()];
        let entries = self.list_entries(slot, &mut frame, &mut inputs, &mut measured)?;
        self.samples.copy(&mut self.schedule, &self.lane, &mut inputs)?;
        self.schedule.annotate(frame.header_mut());
        let Sizes { step, .. } = self.schedule.sizes;
        let blocks = [(step / self.columns).div_ceil(THREADS), entries, 1];
        let (lane, host_entries) = (&self.lane, &self.host_entries[slot]);
        // SAFETY: the arguments are those of the kernel; the job owns the frames, the block the rest.
        unsafe {
            let bytes = entries * size_of::<Entry>();
            lane.copy(self.entries.address(), host_entries.address(), bytes)?;
            lane.clear(self.totals.address(), self.totals.bytes())?;
            self.kernel.launch(
                lane.stream(),
                Grid::new(blocks, THREADS),
                &[
                    self.entries.address().into(),
                    self.weights.address().into(),
                    frame_address(&frame, lane.device())?.into(),
                    self.totals.address().into(),
                ],
            )?;
            let totals = self.host_totals[slot].address();
            lane.copy(totals, self.totals.address(), self.totals.bytes())?;
        }
        self.lane.submit(Job { inputs, output: Some(Output { frame, slot, measured }) })
    }

    /// Writes the list of the slot's entries, the validity of `frame`, and how many samples are
    /// measured; `inputs` gets the frames that windows are read from. How many entries.
    fn list_entries(
        &mut self,
        slot: usize,
        frame: &mut FrameMut,
        inputs: &mut Vec<Arc<Frame>>,
        measured: &mut [Measured],
    ) -> Result<usize, BlockError> {
        let Sizes { step, spectra, .. } = self.schedule.sizes;
        let list = &mut self.host_entries[slot];
        let mut entries = 0;
        for (p, run) in self.runs.drain(..) {
            let validity = &mut frame.header_mut().validity[p * spectra + run.first..][..run.count];
            validity.fill(u32::from(run.fate == Fate::Whole));
            if run.fate != Fate::Lost {
                measured[p].samples += (run.count * step) as u64;
            }
            let mut done = 0;
            while done < run.count {
                let located = self.schedule.locate(p, &run, done, self.most);
                let samples = self.samples.address(p, &located, self.lane.device())?;
                list[entries] = Entry {
                    samples,
                    first_bit: located.first_bit,
                    row: (p * spectra + run.first + done) as u32,
                    count: located.count as u32,
                    what: run.fate as u32,
                    pol: p as u32,
                };
                inputs.extend(located.frame);
                entries += 1;
                done += located.count;
            }
        }
        Ok(entries)
    }

    /// Hands on what a job has made.
    fn hand_on(&mut self, job: Job, io: &mut Io<'_>) {
        drop(job.inputs);
        let Some(Output { mut frame, slot, mut measured }) = job.output else { return };
        let totals = self.host_totals[slot].chunks_exact(2);
        for ((measured, totals), level) in measured.iter_mut().zip(totals).zip(&mut self.levels) {
            (measured.power, measured.clipped) = (totals[0], totals[1]);
            level.add(*measured);
        }
        self.schedule.annotate_measured(frame.header_mut(), &measured);
        io.outputs[0].push(frame);
    }
}

#[async_trait]
impl Block for Cuda {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.outputs[0].has_room()
            && let Some(job) = self.lane.done()?
        {
            self.hand_on(job, io);
        }
        if !self.lane.has_room() {
            return Ok(Next::Wait);
        }
        match self.schedule.place(io.inputs) {
            Some(Placed::Here) => self.schedule.reserve_frame(),
            Some(Placed::Nowhere) if self.lane.is_idle() => return Ok(Next::Finished),
            Some(Placed::Nowhere) | None => return Ok(Next::Wait),
        }
        for (p, input) in io.inputs.iter_mut().enumerate() {
            while let Some(run) = self.schedule.next_run(p, input) {
                self.runs.push((p, run));
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

    async fn finish(&mut self) -> Result<(), BlockError> {
        self.summary.set(summary(&self.levels));
        Ok(())
    }
}
