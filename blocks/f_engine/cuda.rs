//! The block on a GPU, in two passes.
#![allow(unsafe_code)] // copies and launches on memory that the block or the job owns

use super::FEngine;
use super::frames::{Frames, Spectra};
use super::geometry::THREADS;
use super::program::Program;
use crate::gpu;
use crate::pfb::device_samples;
use crate::pfb::driver::{Driver, Maker, Stretch};
use crate::pfb::lending::Lending;
use crate::pfb::schedule::{Fate, Run, Schedule, Sizes};
use bytemuck::{Pod, Zeroable};
use fxgraph::cuda::{Arg, CudaError, Device, DeviceArray, Grid, Lane, Pinned, frame_address};
use fxgraph::{BlockError, Env, Frame, FrameMut, Header, Ports};
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
    fn new(device: &Arc<Device>, len: usize) -> Result<Self, CudaError> {
        Ok(Self {
            device: DeviceArray::new(device, len)?,
            host: gpu::for_each_slot(|| Pinned::new(device, len))?,
        })
    }

    /// Queues the copy of these elements.
    fn send<J>(&self, lane: &Lane<J>, slot: usize, which: Range<usize>) -> Result<(), BlockError> {
        let skip = (which.start * size_of::<T>()) as u64;
        let (to, from) = (self.device.address() + skip, self.host[slot].address() + skip);
        // SAFETY: both arrays are the block's and as long; the slot is the job's.
        unsafe { lane.copy(to, from, which.len() * size_of::<T>()) }
    }

    fn argument(&self) -> Arg<'static> {
        self.device.address().into()
    }
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

/// The two passes: what is made of the samples.
pub struct TwoPass {
    program: Program,
    dither_seed: u64,
    heap_bytes: usize,
    pols: usize,
    /// What is between the passes.
    middle: DeviceArray<Complex32>,
    /// Stretches to be filtered, from the front; those to be measured, from the back.
    entries: Table<Entry>,
    /// Stretches of the output frame of either sort so far.
    to_filter: usize,
    to_measure: usize,
    /// \[phase, fine delay\]\[pol\]\[spectrum\].
    delays: Table<f32>,
    /// \[pol\]\[spectrum\].
    rows: DeviceArray<u8>,
    /// The heaps to be made.
    heaps: Table<u32>,
    /// \[pol\]\[power, clipped\] in 64 bits, then clamped values \[heap\]\[pol\] in 32.
    counts: Table<u32>,
    frames: Frames,
    /// For each slot.
    spectra: Vec<Spectra>,
}

impl TwoPass {
    /// The running block.
    pub fn block(f_engine: &FEngine, ports: &Ports, env: &Env) -> Result<Driver<Self>, BlockError> {
        let pfb = f_engine.pfb(f_engine.spectra());
        Driver::new(&pfb, ports, env, |device, sizes| {
            Self::new(f_engine, ports, env, device, sizes)
        })
    }

    fn new(
        f_engine: &FEngine,
        ports: &Ports,
        env: &Env,
        device: &Arc<Device>,
        sizes: &Sizes,
    ) -> Result<Self, BlockError> {
        let pols = ports.inputs.len();
        let (rows, heaps) = (pols * sizes.spectra, f_engine.heaps_per_frame);
        let values = f_engine.channels * f_engine.spectra_per_heap * pols;
        let frames = Frames::new(f_engine, ports, env);
        Ok(Self {
            program: Program::new(f_engine, ports, sizes, device)?,
            dither_seed: f_engine.dither_seed,
            heap_bytes: values * usize::from(f_engine.bits) / 4,
            pols,
            middle: DeviceArray::new(device, rows * f_engine.channels)?,
            entries: Table::new(device, rows)?,
            to_filter: 0,
            to_measure: 0,
            delays: Table::new(device, 2 * rows)?,
            rows: DeviceArray::new(device, rows * ROW_BYTES)?,
            heaps: Table::new(device, heaps)?,
            counts: Table::new(device, pols * (4 + heaps))?,
            spectra: gpu::for_each_slot(|| Ok(frames.spectra()))?,
            frames,
        })
    }

    /// Lists the phase and the fine delay of each spectrum: less than 1 either, so that single
    /// precision is as good as that of the channels.
    fn list_delays(&mut self, slot: usize, schedule: &Schedule<Lending>) {
        let list = &mut self.delays.host[slot];
        let rows = list.len() / 2;
        let (phases, fine) = list.split_at_mut(rows);
        let delays = schedule.pols.iter().flat_map(|pol| &pol.delays);
        for ((phase, fine), delay) in phases.iter_mut().zip(fine).zip(delays) {
            (*phase, *fine) = (delay.phase_turns as f32, delay.fine_samples as f32);
        }
    }

    /// Lists the heaps to be made and queues the clearing of the others. How many are to be made.
    fn list_heaps<J>(
        &mut self,
        lane: &Lane<J>,
        slot: usize,
        frame: &Frame,
    ) -> Result<usize, BlockError> {
        let list = &mut self.heaps.host[slot];
        let payload = frame_address(frame, lane.device())?;
        let mut invalid = self.frames.invalid(frame.header()).peekable();
        let mut heaps = 0;
        for heap in 0..list.len() {
            if invalid.next_if_eq(&heap).is_none() {
                list[heaps] = heap as u32;
                heaps += 1;
                continue;
            }
            let address = payload + (heap * self.heap_bytes) as u64;
            // SAFETY: the heap is within the frame, which the job owns.
            unsafe { lane.clear(address, self.heap_bytes) }?;
        }
        Ok(heaps)
    }

    /// Queues the kernels of a job and the copies of its tables.
    fn launch<J>(
        &mut self,
        lane: &Lane<J>,
        slot: usize,
        schedule: &Schedule<Lending>,
        heaps: usize,
        frame: &Frame,
    ) -> Result<(), BlockError> {
        let Self { program, to_filter, to_measure, .. } = self;
        let (to_filter, to_measure) = (*to_filter, *to_measure);
        let Program { kernels, constants, geometry, .. } = program;
        let Sizes { step, spectra, .. } = schedule.sizes;
        let rows = self.pols * spectra;
        let first_number = schedule.frame_start.cast_unsigned() / step as u64;
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
}

impl Maker for TwoPass {
    fn begin(&mut self, slot: usize, schedule: &Schedule<Lending>, runs: &[(usize, Run)]) -> usize {
        (self.to_filter, self.to_measure) = (0, 0);
        self.spectra[slot].begin(schedule.frame_start);
        let whole = runs.iter().filter(|(_, run)| run.fate == Fate::Whole);
        self.program.run_length(whole.map(|(_, run)| run.count).sum())
    }

    fn add(&mut self, slot: usize, sizes: &Sizes, stretch: &Stretch, _: &mut Header) {
        let Stretch { pol, first, count, fate, address, first_bit } = *stretch;
        self.spectra[slot].mark(pol, first..first + count, fate == Fate::Whole);
        let list = &mut self.entries.host[slot];
        let place = match fate {
            Fate::Whole => {
                self.to_filter += 1;
                self.to_filter - 1
            }
            Fate::Ending => {
                self.to_measure += 1;
                list.len() - self.to_measure
            }
            Fate::Lost => return,
        };
        self.spectra[slot].measured[pol].samples += (count * sizes.step) as u64;
        list[place] = Entry {
            start_bits: 8 * address + first_bit,
            first: first as u32,
            spectra: count as u32,
            pol: pol as u32,
            unused: 0,
        };
    }

    fn queue<J>(
        &mut self,
        lane: &Lane<J>,
        slot: usize,
        schedule: &Schedule<Lending>,
        output: &mut FrameMut,
    ) -> Result<(), BlockError> {
        // Short ones first: the blocks that follow them fill up the GPU.
        self.entries.host[slot][..self.to_filter].sort_unstable_by_key(|entry| entry.spectra);
        self.list_delays(slot, schedule);
        self.frames.fill(&self.spectra[slot], output.header_mut());
        let heaps = self.list_heaps(lane, slot, output)?;
        self.launch(lane, slot, schedule, heaps, output)
    }

    fn complete(&mut self, slot: usize, schedule: &Schedule<Lending>, output: &mut Header) -> bool {
        let (levels, clamped) = self.counts.host[slot].split_at(4 * self.pols);
        let spectra = &mut self.spectra[slot];
        let wide = |pair: &[u32]| u64::from(pair[0]) | u64::from(pair[1]) << 32;
        for (measured, level) in spectra.measured.iter_mut().zip(levels.chunks_exact(4)) {
            (measured.power, measured.clipped) = (wide(&level[..2]), wide(&level[2..]));
        }
        let saturated = clamped.iter().map(|count| u64::from(*count));
        self.frames.complete(schedule, spectra, saturated, output)
    }

    fn summarise(&self) {
        self.frames.summarise();
    }
}
