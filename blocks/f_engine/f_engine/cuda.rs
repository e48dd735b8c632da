//! The block on a GPU, in two passes.
#![allow(unsafe_code)] // copies and launches on memory that the block or the job owns

use super::FEngine;
use super::frames::{Frames, Spectra};
use super::launch::THREADS;
use super::matrix;
use super::program::Program;
use crate::common::gpu::{self, Table};
use crate::common::live::Live;
use crate::f_engine::postproc::device_settings::{DeviceSettings, Rows};
use crate::f_engine::samples::device;
use crate::f_engine::samples::driver::{Driver, Maker, Stretch};
use crate::f_engine::samples::input::Sizes;
use crate::f_engine::samples::packed_input::Lending;
use crate::f_engine::samples::pol::Count;
use crate::f_engine::samples::schedule::{Fate, Run, Schedule};
use bytemuck::{Pod, Zeroable};
use fxgraph::cuda::{Device, DeviceArray, Grid, Pipeline};
use fxgraph::{BlockError, Env, Header, Ports};
use std::sync::Arc;

/// Size of `Row` of `spectrum_row.cuh`: the values that all channels of a spectrum share.
const ROW_BYTES: usize = 32;
/// Size of an intermediate value.
const MIDDLE_BYTES: usize = 6;
/// Thread blocks that measure the power of one run of spectra with missing samples.
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

/// Device memory of the block in bytes, without frames.
pub fn device_bytes(f_engine: &FEngine, ports: &Ports) -> usize {
    let sizes = f_engine.pfb(f_engine.spectra()).sizes(&ports.inputs);
    let samples = device::device_bytes(&sizes, ports);
    let (pols, heaps) = (ports.inputs.len(), f_engine.heaps_per_frame);
    let rows = pols * sizes.spectra;
    let tables = Table::<Entry>::device_bytes(rows)
        + Table::<f32>::device_bytes(2 * rows)
        + Table::<u8>::device_bytes(rows * ROW_BYTES)
        + Table::<u32>::device_bytes(heaps + pols * (4 + 2 * heaps));
    // The weights, roots of both passes, and the weights for the matrix units.
    let constants = 4 * sizes.window + 24 * f_engine.channels + matrix::MAX_TABLE_BYTES;
    let settings = DeviceSettings::device_bytes(pols, f_engine.channels);
    samples + rows * f_engine.channels * MIDDLE_BYTES + tables + constants + settings
}

/// Launches the two passes for each output frame.
pub struct TwoPass {
    program: Program,
    settings: DeviceSettings,
    /// Ticks from one spectrum to the next.
    step: u64,
    heap_bytes: usize,
    spectra_per_heap: usize,
    pols: usize,
    /// Intermediate values between the passes.
    middle: DeviceArray<u16>,
    /// Runs to filter, from the front; runs to measure, from the back.
    entries: Table<Entry>,
    /// Number of runs of the output frame to filter so far.
    to_filter: usize,
    /// Number of runs of the output frame to measure so far.
    to_measure: usize,
    /// `[phase, fine delay][pol][spectrum]`.
    delays: Table<f32>,
    /// `[pol][spectrum]`, for each slot.
    rows: Vec<DeviceArray<u8>>,
    /// Heaps to compute, from the front; heaps to clear, which only the host reads, from the back.
    heaps: Table<u32>,
    /// Number of heaps of the output frame to compute.
    to_make: usize,
    /// `[pol][power, clipped]` in 64 bits, then in 32 bits the counts of clamped values `[heap][pol]` and the sums of
    /// squares of the measured values `[heap][pol]`.
    counts: Table<u32>,
    frames: Frames,
    /// Validity and power of the spectra, for each slot.
    spectra: Vec<Spectra>,
}

impl TwoPass {
    /// The running block.
    pub fn block(f_engine: &FEngine, ports: &Ports, env: &Env) -> Result<Driver<Self>, BlockError> {
        let pfb = f_engine.pfb(f_engine.spectra());
        let (sizes, delays) = (pfb.sizes(&ports.inputs), pfb.delays_of(ports));
        let count = Count::new(env, &sizes, ports);
        let make = |device: &_, sizes: &_| Self::new(f_engine, ports, env, device, sizes);
        Driver::new(sizes, &delays, count, ports, env, make)
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
        let program = Program::new(f_engine, ports, sizes, device)?;
        let gains = f_engine.gains.of_shape(&f_engine.shape(&ports.inputs));
        let order = program.cut.gain_order().into_iter().flatten().collect();
        Ok(Self {
            program,
            settings: DeviceSettings::new(device, &gains, order, f_engine.dither_seed)?,
            step: (sizes.step * sizes.ticks) as u64,
            heap_bytes: values * usize::from(f_engine.bits) / 4,
            spectra_per_heap: f_engine.spectra_per_heap,
            pols,
            middle: DeviceArray::new(device, rows * f_engine.channels * MIDDLE_BYTES / 2)?,
            entries: Table::new(device, rows)?,
            to_filter: 0,
            to_measure: 0,
            delays: Table::new(device, 2 * rows)?,
            rows: gpu::for_each_slot(|| DeviceArray::new(device, rows * ROW_BYTES))?,
            heaps: Table::new(device, heaps)?,
            to_make: 0,
            counts: Table::new(device, pols * (4 + 2 * heaps))?,
            spectra: gpu::for_each_slot(|| Ok(frames.spectra()))?,
            frames,
        })
    }

    /// Lists the phase and the fine delay of each spectrum. Both are below 1, so single precision suffices.
    fn list_delays(&mut self, slot: usize, schedule: &Schedule<Lending>) -> Result<(), BlockError> {
        let list = self.delays.host_mut(slot)?;
        let rows = list.len() / 2;
        let (phases, fine) = list.split_at_mut(rows);
        let spectra = schedule.sizes.spectra;
        let lists = phases.chunks_exact_mut(spectra).zip(fine.chunks_exact_mut(spectra));
        for (pol, (phases, fine)) in schedule.pols.iter().zip(lists) {
            if let Some(delay) = pol.constant_delay {
                phases.fill(delay.phase_turns as f32);
                fine.fill(delay.fine_samples as f32);
                continue;
            }
            for ((phase, fine), delay) in phases.iter_mut().zip(fine).zip(&pol.delays) {
                (*phase, *fine) = (delay.phase_turns as f32, delay.fine_samples as f32);
            }
        }
        Ok(())
    }

    /// Lists the heaps to compute and the heaps to clear.
    fn list_heaps(&mut self, slot: usize, header: &Header) -> Result<(), BlockError> {
        let list = self.heaps.host_mut(slot)?;
        let mut invalid = self.frames.invalid(header).peekable();
        let (mut front, mut back) = (0, list.len());
        for heap in 0..list.len() {
            if invalid.next_if_eq(&heap).is_none() {
                list[front] = heap as u32;
                front += 1;
            } else {
                back -= 1;
                list[back] = heap as u32;
            }
        }
        self.to_make = front;
        Ok(())
    }

    /// Queues the clearing of the invalid heaps of the payload at `to`.
    fn queue_clearing<J>(
        &self,
        pipeline: &Pipeline<J>,
        slot: usize,
        to: u64,
    ) -> Result<(), BlockError> {
        for heap in &self.heaps.host(slot)?[self.to_make..] {
            let address = to + (*heap as usize * self.heap_bytes) as u64;
            // SAFETY: the heap is within the frame, which the job owns.
            unsafe { pipeline.clear(address, self.heap_bytes) }?;
        }
        Ok(())
    }

    /// Queues the remaining uploads of a job, its kernels, and the download of its results.
    fn launch<J>(
        &mut self,
        pipeline: &mut Pipeline<J>,
        slot: usize,
        schedule: &Schedule<Lending>,
        to: u64,
    ) -> Result<(), BlockError> {
        self.settings.send(pipeline)?;
        self.queue_rows(pipeline, slot, schedule)?;
        self.queue_filter(pipeline, slot, schedule.sizes.spectra)?;
        self.queue_finish(pipeline, slot, schedule, to)?;
        pipeline.results()?;
        self.counts.fetch(pipeline, slot)
    }

    /// Queues the kernel that computes the rows: the values that all channels of a spectrum share.
    fn queue_rows<J>(
        &mut self,
        pipeline: &mut Pipeline<J>,
        slot: usize,
        schedule: &Schedule<Lending>,
    ) -> Result<(), BlockError> {
        let spectra = schedule.sizes.spectra;
        let rows = self.pols * spectra;
        self.delays.send(pipeline, slot, 0..2 * rows)?;
        let phases = self.delays.address(slot);
        let of = Rows {
            phases,
            fine_delays: phases + (rows * size_of::<f32>()) as u64,
            to: self.rows[slot].address(),
            spectra,
            start: schedule.timestamp(),
            step: self.step,
        };
        // SAFETY: the kernel takes these arguments, and all memory belongs to the slot or the block.
        unsafe { self.settings.make_rows(pipeline, &mut self.program.kernels.rows, THREADS, &of) }
    }

    /// Uploads the run tables, then queues the power kernel for runs with missing samples and the filter
    /// kernel for the others.
    fn queue_filter<J>(
        &mut self,
        pipeline: &mut Pipeline<J>,
        slot: usize,
        spectra: usize,
    ) -> Result<(), BlockError> {
        let (to_filter, to_measure) = (self.to_filter, self.to_measure);
        let Program { kernels, constants, cut, matrix, .. } = &mut self.program;
        let first_measured = self.entries.slot_len() - to_measure;
        let entries = self.entries.address(slot);
        let stretches = entries + (first_measured * size_of::<Entry>()) as u64;
        let levels = self.counts.address(slot);
        self.entries.send(pipeline, slot, 0..to_filter)?;
        self.entries.send(pipeline, slot, first_measured..first_measured + to_measure)?;
        self.counts.clear(pipeline, slot)?;
        pipeline.work()?;
        // SAFETY: the arguments match the kernels, compiled for these sizes; the job owns the frames and
        // the memory of the slot, and the block all other memory.
        unsafe {
            if to_measure > 0 {
                let grid = Grid::new([MEASURE_BLOCKS, to_measure, 1], THREADS);
                let arguments = [stretches.into(), levels.into()];
                kernels.measure.launch(pipeline.stream(), grid, &arguments)?;
            }
            let mut arguments = [
                entries.into(),
                constants.weights.address().into(),
                constants.filter_roots.address().into(),
                self.middle.address().into(),
                levels.into(),
                (spectra as u32).into(),
                matrix.as_ref().map_or(0.0, |matrix| matrix.scale).into(),
            ];
            if let Some(matrix) = matrix {
                arguments[1] = matrix.weights.address().into();
                let grid = Grid::new([matrix.cut.column_blocks(), to_filter, 1], matrix::THREADS);
                matrix.kernel.launch(pipeline.stream(), grid, &arguments)?;
            } else {
                // The last argument is for the matrix units only.
                let grid = Grid::new([cut.column_blocks(), to_filter, 1], THREADS);
                kernels.filter.launch(pipeline.stream(), grid, &arguments[..6])?;
            }
        }
        Ok(())
    }

    /// Queues the second pass for the listed heaps of the payload at `to`, with one launch for all
    /// adjacent spectra with the same gains.
    fn queue_finish<J>(
        &mut self,
        pipeline: &Pipeline<J>,
        slot: usize,
        schedule: &Schedule<Lending>,
        to: u64,
    ) -> Result<(), BlockError> {
        let Program { constants, cut, gpu, .. } = &self.program;
        let (roots, tiles_per_heap) = (constants.finish_roots.address(), cut.tiles_per_heap);
        let unscale = self.program.unscale;
        let spectra = schedule.sizes.spectra;
        let grid = Grid::new([cut.finish_blocks * cut.groups(gpu), 1, 1], cut.finish_threads);
        let clamped = self.counts.address(slot) + (self.pols * 4 * size_of::<u32>()) as u64;
        let units = self.pols * self.heaps.slot_len();
        let squares = clamped + (units * size_of::<u32>()) as u64;
        let list = &self.heaps.host(slot)?[..self.to_make];
        let mut done = 0;
        while done < spectra {
            let t = schedule.timestamp() + done as u64 * self.step;
            let stretch = self.settings.stretch(t, self.step, spectra - done);
            let end = done + stretch.count;
            let of_heap = |spectrum: usize| spectrum / self.spectra_per_heap;
            let first = list.partition_point(|heap| (*heap as usize) < of_heap(done));
            let past = list.partition_point(|heap| (*heap as usize) <= of_heap(end - 1));
            let listed = self.heaps.address(slot) + (first * size_of::<u32>()) as u64;
            let arguments = [
                self.middle.address().into(),
                to.into(),
                clamped.into(),
                squares.into(),
                self.rows[slot].address().into(),
                stretch.each.into(),
                roots.into(),
                listed.into(),
                (((past - first) * tiles_per_heap) as u32).into(),
                (spectra as u32).into(),
                (done as u32).into(),
                (end as u32).into(),
                unscale.into(),
            ];
            if past > first {
                let kernel = self.program.kernels.finish.of(stretch.differ);
                // SAFETY: the arguments match the kernel; the job holds both frames and the tables.
                unsafe { kernel.launch(pipeline.stream(), grid, &arguments) }?;
            }
            done = end;
        }
        Ok(())
    }
}

impl Maker for TwoPass {
    const TABLES: &'static [&'static str] = &["gains"];

    fn update(&mut self, from: u64, live: Live) {
        self.settings.update(from, live);
    }

    fn has_room(&mut self, pipeline_is_idle: bool) -> bool {
        self.settings.has_room(pipeline_is_idle)
    }

    fn begin(&mut self, slot: usize, schedule: &Schedule<Lending>, runs: &[(usize, Run)]) -> usize {
        (self.to_filter, self.to_measure) = (0, 0);
        self.spectra[slot].begin(schedule.timestamp());
        let whole = runs.iter().filter(|(_, run)| run.fate == Fate::Whole);
        self.program.run_length(whole.map(|(_, run)| run.count))
    }

    fn add(
        &mut self,
        slot: usize,
        sizes: &Sizes,
        stretch: &Stretch,
        _: &mut Header,
    ) -> Result<(), BlockError> {
        let Stretch { pol, first, count, fate, address, first_bit } = *stretch;
        self.spectra[slot].mark(pol, first..first + count, fate == Fate::Whole);
        let list = self.entries.host_mut(slot)?;
        let place = match fate {
            Fate::Whole => {
                self.to_filter += 1;
                self.to_filter - 1
            }
            Fate::Ending => {
                self.to_measure += 1;
                list.len() - self.to_measure
            }
            Fate::Lost => return Ok(()),
        };
        self.spectra[slot].measured[pol].samples += (count * sizes.step) as u64;
        list[place] = Entry {
            start_bits: 8 * address + first_bit,
            first: first as u32,
            spectra: count as u32,
            pol: pol as u32,
            unused: 0,
        };
        Ok(())
    }

    fn prepare(
        &mut self,
        slot: usize,
        schedule: &Schedule<Lending>,
        output: &mut Header,
    ) -> Result<(), BlockError> {
        // Short runs first, so that the thread blocks after them keep the GPU busy.
        self.entries.host_mut(slot)?[..self.to_filter].sort_unstable_by_key(|entry| entry.spectra);
        self.settings.advance(schedule.timestamp());
        self.list_delays(slot, schedule)?;
        self.frames.fill(&self.spectra[slot], output);
        self.list_heaps(slot, output)
    }

    fn queue<J>(
        &mut self,
        pipeline: &mut Pipeline<J>,
        slot: usize,
        schedule: &Schedule<Lending>,
        output: u64,
    ) -> Result<(), BlockError> {
        self.queue_clearing(pipeline, slot, output)?;
        self.heaps.send(pipeline, slot, 0..self.to_make)?;
        self.launch(pipeline, slot, schedule, output)
    }

    fn complete(
        &mut self,
        slot: usize,
        schedule: &Schedule<Lending>,
        output: &mut Header,
    ) -> Result<bool, BlockError> {
        let (levels, counts) = self.counts.host(slot)?.split_at(4 * self.pols);
        let (clamped, squares) = counts.split_at(counts.len() / 2);
        let spectra = &mut self.spectra[slot];
        let wide = |pair: &[u32]| u64::from(pair[0]) | u64::from(pair[1]) << 32;
        for (measured, level) in spectra.measured.iter_mut().zip(levels.chunks_exact(4)) {
            (measured.power, measured.clipped) = (wide(&level[..2]), wide(&level[2..]));
        }
        let [saturated, squares] =
            [clamped, squares].map(|counts| counts.iter().map(|count| u64::from(*count)));
        Ok(self.frames.complete(schedule, spectra, saturated, squares, output))
    }

    fn summarise(&self) {
        self.frames.summarise();
    }
}
