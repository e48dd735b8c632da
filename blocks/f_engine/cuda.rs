//! The block on a GPU, in two passes.
#![allow(unsafe_code)] // copies and launches on memory that the block or the job owns

use super::FEngine;
use super::frames::{Frames, Spectra};
use super::geometry::THREADS;
use super::program::Program;
use crate::gpu;
use crate::pfb::device_samples::{self, DeviceSamples, owes_copies};
use crate::pfb::lending::Lending;
use crate::pfb::schedule::{Fate, Placed, Run, Schedule, Sizes};
use crate::postproc::heaps::Filling;
use bytemuck::{Pod, Zeroable};
use fxgraph::cuda::{Arg, CudaError, DeviceArray, Grid, Lane, Pinned, frame_address};
use fxgraph::{Block, BlockError, Env, Frame, FrameMut, Io, Next, Ports, async_trait};
use num_complex::Complex32;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of what is the same for all channels of a spectrum.
const ROW_BYTES: usize = 32;
/// Blocks of threads that measure one stretch of lost spectra.
const MEASURE_BLOCKS: usize = 32;

/// `Run` of `f_engine.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Entry {
    start_bits: u64,
    first: u32,
    spectra: u32,
    pol: u32,
    unused: u32,
}

/// A table that goes to the GPU with each job.
struct Table<T> {
    device: DeviceArray<T>,
    /// For each slot.
    host: Vec<Pinned<T>>,
}

impl<T: Pod> Table<T> {
    fn new(lane: &Lane<Job>, len: usize) -> Result<Self, CudaError> {
        let device = lane.device();
        Ok(Self {
            device: DeviceArray::new(device, len)?,
            host: gpu::for_each_slot(|| Pinned::new(device, len))?,
        })
    }

    /// Queues the copy of these elements.
    fn send(&self, lane: &Lane<Job>, slot: usize, which: Range<usize>) -> Result<(), BlockError> {
        let skip = (which.start * size_of::<T>()) as u64;
        let (to, from) = (self.device.address() + skip, self.host[slot].address() + skip);
        // SAFETY: both arrays are the block's and as long; the slot is the job's.
        unsafe { lane.copy(to, from, which.len() * size_of::<T>()) }
    }

    fn argument(&self) -> Arg<'static> {
        self.device.address().into()
    }
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
    spectra: Spectra,
    filling: Filling,
}

/// Bytes in device memory that the block takes for itself.
pub fn device_bytes(f_engine: &FEngine, ports: &Ports) -> usize {
    let sizes = Sizes::new(&f_engine.pfb(f_engine.spectra()), ports);
    let samples = device_samples::device_bytes(&sizes, ports);
    let rows = ports.inputs.len() * sizes.spectra;
    let tables = rows * (size_of::<Entry>() + 2 * size_of::<f32>() + ROW_BYTES);
    let constants = 4 * sizes.window + 32 * f_engine.channels;
    samples + rows * f_engine.channels * size_of::<Complex32>() + tables + constants
}

/// The running block.
pub struct Cuda {
    /// First, so that it waits for the GPU before anything else is dropped.
    lane: Lane<Job>,
    program: Program,
    dither_seed: u64,
    heap_bytes: usize,
    samples: DeviceSamples,
    pols: usize,
    /// What is between the passes.
    middle: DeviceArray<Complex32>,
    /// Runs to be filtered, from the front; stretches to be measured, from the back.
    entries: Table<Entry>,
    /// \[phase, fine delay\]\[pol\]\[spectrum\].
    delays: Table<f32>,
    /// \[pol\]\[spectrum\].
    rows: DeviceArray<u8>,
    /// The heaps to be made.
    heaps: Table<u32>,
    /// \[pol\]\[power, clipped\] in 64 bits, then clamped values \[heap\]\[pol\] in 32.
    counts: Table<u32>,
    schedule: Schedule<Lending>,
    frames: Frames,
    /// Runs of the output frame, with their polarisations.
    runs: Vec<(usize, Run)>,
}

impl Cuda {
    pub fn new(f_engine: &FEngine, ports: &Ports, env: &Env) -> Result<Self, BlockError> {
        let lane: Lane<Job> = Lane::new(env)?;
        let device = Arc::clone(lane.device());
        let pfb = f_engine.pfb(f_engine.spectra());
        let (sizes, pols) = (Sizes::new(&pfb, ports), ports.inputs.len());
        let program = Program::new(f_engine, ports, &sizes, &device)?;
        let stores = ports.inputs.iter().map(|input| Lending::new(input.dtype.bits()));
        let (rows, heaps) = (pols * sizes.spectra, f_engine.heaps_per_frame);
        let values = f_engine.channels * f_engine.spectra_per_heap * pols;
        Ok(Self {
            program,
            dither_seed: f_engine.dither_seed,
            heap_bytes: values * usize::from(f_engine.bits) / 4,
            samples: DeviceSamples::new(&device, &sizes, ports)?,
            pols,
            middle: DeviceArray::new(&device, rows * f_engine.channels)?,
            entries: Table::new(&lane, rows)?,
            delays: Table::new(&lane, 2 * rows)?,
            rows: DeviceArray::new(&device, rows * ROW_BYTES)?,
            heaps: Table::new(&lane, heaps)?,
            counts: Table::new(&lane, pols * (4 + heaps))?,
            schedule: Schedule::new(
                &pfb,
                ports,
                sizes.spectra,
                device_samples::capacity(&sizes),
                stores,
                &env.counters,
            ),
            frames: Frames::new(f_engine, ports, env),
            runs: Vec::with_capacity(rows),
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
    fn submit_frame(&mut self, frame: FrameMut) -> Result<(), BlockError> {
        let slot = self.lane.begin(self.schedule.frame_start.cast_unsigned())?;
        let mut spectra = self.frames.begin(self.schedule.frame_start);
        let mut inputs = Vec::new();
        let (to_filter, to_measure) = self.list_entries(slot, &mut spectra, &mut inputs)?;
        self.samples.copy(&mut self.schedule, &self.lane, &mut inputs)?;
        self.list_delays(slot);
        let filling = self.frames.fill(&spectra);
        let heaps = self.list_heaps(slot, &filling, &frame)?;
        self.launch(slot, to_filter, to_measure, heaps, &frame)?;
        self.lane.submit(Job { inputs, output: Some(Output { frame, slot, spectra, filling }) })
    }

    /// Lists what is to be filtered and, from the back of the table, what is to be measured only; says
    /// in `spectra` what is valid and how much is measured; `inputs` gets the frames that windows are
    /// read from. How many entries of either sort.
    fn list_entries(
        &mut self,
        slot: usize,
        spectra: &mut Spectra,
        inputs: &mut Vec<Arc<Frame>>,
    ) -> Result<(usize, usize), BlockError> {
        let step = self.schedule.sizes.step;
        let whole = self.runs.iter().filter(|(_, run)| run.fate == Fate::Whole);
        let length = self.program.run_length(whole.map(|(_, run)| run.count).sum());
        let list = &mut self.entries.host[slot];
        let (mut to_filter, mut to_measure) = (0, 0);
        for (p, run) in self.runs.drain(..) {
            spectra.mark(p, &run, run.fate == Fate::Whole);
            if run.fate == Fate::Lost {
                continue;
            }
            spectra.measured[p].samples += (run.count * step) as u64;
            let is_whole = run.fate == Fate::Whole;
            let mut done = 0;
            while done < run.count {
                let located = self.schedule.locate(p, &run, done, length);
                let address = self.samples.address(p, &located, self.lane.device())?;
                let place = if is_whole { to_filter } else { list.len() - 1 - to_measure };
                list[place] = Entry {
                    start_bits: 8 * address + located.first_bit,
                    first: (run.first + done) as u32,
                    spectra: located.count as u32,
                    pol: p as u32,
                    unused: 0,
                };
                *(if is_whole { &mut to_filter } else { &mut to_measure }) += 1;
                done += located.count;
                inputs.extend(located.frame);
            }
        }
        // Short ones first: the blocks that follow them fill up the GPU.
        list[..to_filter].sort_unstable_by_key(|entry| entry.spectra);
        Ok((to_filter, to_measure))
    }

    /// Lists the phase and the fine delay of each spectrum: less than 1 either, so that single
    /// precision is as good as that of the channels.
    fn list_delays(&mut self, slot: usize) {
        let list = &mut self.delays.host[slot];
        let rows = list.len() / 2;
        let (phases, fine) = list.split_at_mut(rows);
        let delays = self.schedule.pols.iter().flat_map(|pol| &pol.delays);
        for ((phase, fine), delay) in phases.iter_mut().zip(fine).zip(delays) {
            (*phase, *fine) = (delay.phase_turns as f32, delay.fine_samples as f32);
        }
    }

    /// Lists the heaps to be made and queues the clearing of the others. How many are to be made.
    fn list_heaps(
        &mut self,
        slot: usize,
        filling: &Filling,
        frame: &FrameMut,
    ) -> Result<usize, BlockError> {
        let list = &mut self.heaps.host[slot];
        let payload = frame_address(frame, self.lane.device())?;
        let mut invalid = self.frames.invalid(filling).peekable();
        let mut heaps = 0;
        for heap in 0..list.len() {
            if invalid.next_if_eq(&heap).is_none() {
                list[heaps] = heap as u32;
                heaps += 1;
                continue;
            }
            let address = payload + (heap * self.heap_bytes) as u64;
            // SAFETY: the heap is within the frame, which the job owns.
            unsafe { self.lane.clear(address, self.heap_bytes) }?;
        }
        Ok(heaps)
    }

    /// Queues the kernels of a job and the copies of its tables.
    fn launch(
        &mut self,
        slot: usize,
        to_filter: usize,
        to_measure: usize,
        heaps: usize,
        frame: &FrameMut,
    ) -> Result<(), BlockError> {
        let Self { lane, program, .. } = self;
        let Program { kernels, constants, geometry, .. } = program;
        let Sizes { step, spectra, .. } = self.schedule.sizes;
        let rows = self.pols * spectra;
        let first_number = self.schedule.frame_start.cast_unsigned() / step as u64;
        let first_measured = self.entries.device.len() - to_measure;
        self.entries.send(lane, slot, 0..to_filter)?;
        self.entries.send(lane, slot, first_measured..first_measured + to_measure)?;
        self.delays.send(lane, slot, 0..2 * rows)?;
        self.heaps.send(lane, slot, 0..heaps)?;
        let counts = &self.counts.device;
        let levels = counts.address();
        let clamped = levels + (self.pols * 4 * size_of::<u32>()) as u64;
        let fine_delays = self.delays.device.address() + (rows * size_of::<f32>()) as u64;
        let stretches =
            self.entries.device.address() + (first_measured * size_of::<Entry>()) as u64;
        // SAFETY: the arguments are those of the kernels, compiled for these sizes; the job owns the
        // frames, the block the rest.
        unsafe {
            lane.clear(counts.address(), counts.bytes())?;
            if to_measure > 0 {
                let grid = Grid::new([MEASURE_BLOCKS, to_measure, 1], THREADS);
                let arguments = [stretches.into(), levels.into()];
                kernels.measure.launch(lane.stream(), grid, &arguments)?;
            }
            kernels.rows.launch(
                lane.stream(),
                Grid::new([rows.div_ceil(THREADS), 1, 1], THREADS),
                &[
                    self.delays.argument(),
                    fine_delays.into(),
                    constants.common_gains.address().into(),
                    self.rows.address().into(),
                    (spectra as u32).into(),
                    first_number.into(),
                    self.dither_seed.into(),
                ],
            )?;
            kernels.filter.launch(
                lane.stream(),
                Grid::new([geometry.column_blocks(), to_filter, 1], THREADS),
                &[
                    self.entries.argument(),
                    constants.weights.address().into(),
                    constants.filter_roots.address().into(),
                    self.middle.address().into(),
                    levels.into(),
                    (spectra as u32).into(),
                ],
            )?;
            if heaps > 0 {
                let blocks = geometry.finish_blocks * geometry.groups(&program.gpu);
                kernels.finish.launch(
                    lane.stream(),
                    Grid::new([blocks, 1, 1], THREADS),
                    &[
                        self.middle.address().into(),
                        frame_address(frame, lane.device())?.into(),
                        clamped.into(),
                        self.rows.address().into(),
                        constants.channel_gains.address().into(),
                        constants.finish_roots.address().into(),
                        self.heaps.argument(),
                        ((heaps * geometry.tiles_per_heap) as u32).into(),
                        (spectra as u32).into(),
                    ],
                )?;
            }
            lane.copy(self.counts.host[slot].address(), counts.address(), counts.bytes())
        }
    }

    /// Hands on what a job has made.
    fn hand_on(&mut self, job: Job, io: &mut Io<'_>) {
        drop(job.inputs);
        let Some(Output { mut frame, slot, mut spectra, filling }) = job.output else { return };
        let (levels, clamped) = self.counts.host[slot].split_at(4 * self.pols);
        let wide = |pair: &[u32]| u64::from(pair[0]) | u64::from(pair[1]) << 32;
        for (measured, level) in spectra.measured.iter_mut().zip(levels.chunks_exact(4)) {
            (measured.power, measured.clipped) = (wide(&level[..2]), wide(&level[2..]));
        }
        let saturated: Vec<u64> = clamped.iter().map(|count| u64::from(*count)).collect();
        let header = frame.header_mut();
        if self.frames.complete(&self.schedule, spectra, &filling, &saturated, header) {
            io.outputs[0].push(frame);
        }
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
            Some(Placed::Nowhere) if self.lane.is_idle() => return Ok(Next::Finished),
            None | Some(Placed::Nowhere) => return Ok(Next::Wait),
            Some(Placed::Here) => self.schedule.reserve_frame(),
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
        self.frames.summarise();
        Ok(())
    }
}
