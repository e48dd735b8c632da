//! The block on a GPU.
#![allow(unsafe_code)] // launches on memory that the block or the job owns

use super::Pfb;
use crate::common::gpu::{self, Table};
use crate::f_engine::samples::device;
use crate::f_engine::samples::driver::{Driver, Maker, Stretch};
use crate::f_engine::samples::input::{Sizes, is_complex};
use crate::f_engine::samples::packed_input::Lending;
use crate::f_engine::samples::pol::Count;
use crate::f_engine::samples::power::{Level, Measured, summary};
use crate::f_engine::samples::schedule::{Fate, Run, Schedule};
use bytemuck::{Pod, Zeroable};
use fxgraph::cuda::{Device, DeviceArray, Grid, Kernel, Pipeline, Tunable};
use fxgraph::{BlockError, Dtype, Env, Header, Ports, Summary};
use std::sync::Arc;

/// Threads per block of the kernel: the default, and alternatives for tuning.
const THREADS: [usize; 3] = [128, 64, 256];
/// Largest number of taps for which a thread filters two samples of a spectrum instead of one.
const MOST_TAPS_OF_TWO: usize = 32;
/// Bits of the real or imaginary part of a complex sample.
const PART_BITS: usize = 32;

/// Adjacent spectra of one polarisation, in the memory layout of `pfb.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Entry {
    /// Address of the memory with the samples of the first spectrum.
    samples: u64,
    /// Offset of the first sample from `samples` in bits.
    first_bit: u64,
    /// Polarisation times spectra per polarisation, plus spectrum.
    row: u32,
    count: u32,
    /// `Fate` of the spectra: 0 filters them, 1 only measures their power, 2 clears them.
    what: u32,
    pol: u32,
}

/// Device memory of the block in bytes, without frames.
pub fn device_bytes(pfb: &Pfb, sizes: &Sizes, ports: &Ports) -> usize {
    let samples = device::device_bytes(sizes, ports);
    let entries = Table::<Entry>::device_bytes(ports.inputs.len() * sizes.spectra);
    samples + entries + size_of::<f32>() * 2 * pfb.channels * pfb.taps
}

/// The kernel, with its launch configurations.
pub fn tunable(pfb: &Pfb, ports: &Ports) -> Tunable {
    let input = &ports.inputs[0];
    Tunable {
        program: "pfb.cu",
        shape: gpu::numbers([
            ("CHANNELS", pfb.channels),
            ("TAPS", pfb.taps),
            ("UNZIP", pfb.unzip),
            ("BITS", if is_complex(input) { PART_BITS } else { input.dtype.bits() }),
            ("NATIVE", usize::from(input.dtype == Dtype::I16)),
        ]),
        ways: THREADS.map(|threads| gpu::numbers([("THREADS", threads)])).to_vec(),
    }
}

/// Launches the filter kernel for each output frame.
pub struct Filter {
    kernel: Kernel,
    /// Threads per block.
    threads: usize,
    /// Thread blocks across the samples of a spectrum.
    blocks_of_spectrum: usize,
    /// Consecutive spectra per thread block.
    most: usize,
    weights: DeviceArray<f32>,
    entries: Table<Entry>,
    /// Number of entries of the output frame so far.
    count: usize,
    /// `[pol][power, clipped]`.
    totals: Table<u64>,
    /// Number of measured samples, `[slot][pol]`; the GPU measures power and clipping.
    measured: Vec<Vec<Measured>>,
    /// Level of the whole run, for each polarisation with ADC samples.
    levels: Vec<Level>,
    summary: Summary,
}

impl Filter {
    /// The running block.
    pub fn block(
        pfb: &Pfb,
        sizes: Sizes,
        ports: &Ports,
        env: &Env,
    ) -> Result<Driver<Self>, BlockError> {
        let delays = pfb.delays_of(ports);
        let count = Count::new(env, &sizes, ports);
        let make = |device: &_, sizes: &_| Self::new(pfb, ports, env, device, sizes);
        Driver::new(sizes, &delays, count, ports, env, make)
    }

    fn new(
        pfb: &Pfb,
        ports: &Ports,
        env: &Env,
        device: &Arc<Device>,
        sizes: &Sizes,
    ) -> Result<Self, BlockError> {
        let pols = ports.inputs.len();
        let tunable = tunable(pfb, ports);
        let way = device.chosen(&tunable);
        let threads = tunable.number(way, "THREADS");
        let program = gpu::program(device, tunable.program, tunable.defines(way))?;
        let kernel = program.kernel("pfb", 0)?;
        let columns = if pfb.taps <= MOST_TAPS_OF_TWO { 2 } else { 1 };
        let blocks_of_spectrum = (2 * pfb.channels / columns).div_ceil(threads);
        // As many thread blocks as are resident, so that all multiprocessors finish together. Each block
        // starts by reading all but one row of its first window, so give it at least as much work again.
        let at_once =
            kernel.blocks_per_multiprocessor(threads)? * device.properties().multiprocessors;
        let in_turn = (pols * sizes.spectra).div_ceil((at_once / blocks_of_spectrum).max(1));
        let weights = pfb.weights(&ports.inputs[0]);
        let most_entries = pols * sizes.spectra;
        Ok(Self {
            kernel,
            threads,
            blocks_of_spectrum,
            most: in_turn.max(pfb.taps),
            weights: DeviceArray::from_slice(device, &weights)?,
            entries: Table::new(device, most_entries)?,
            count: 0,
            totals: Table::new(device, 2 * pols)?,
            measured: gpu::for_each_slot(|| Ok(vec![Measured::default(); pols]))?,
            levels: Level::of_inputs(&ports.inputs, &env.counters),
            summary: env.summary.clone(),
        })
    }
}

impl Maker for Filter {
    fn begin(&mut self, slot: usize, _: &Schedule<Lending>, _: &[(usize, Run)]) -> usize {
        self.count = 0;
        self.measured[slot].fill(Measured::default());
        self.most
    }

    fn add(
        &mut self,
        slot: usize,
        sizes: &Sizes,
        stretch: &Stretch,
        output: &mut Header,
    ) -> Result<(), BlockError> {
        let Stretch { pol, first, count, fate, address, first_bit } = *stretch;
        let row = pol * sizes.spectra + first;
        output.validity[row..row + count].fill(u32::from(fate == Fate::Whole));
        if fate != Fate::Lost {
            self.measured[slot][pol].samples += (count * sizes.step) as u64;
        }
        self.entries.host_mut(slot)?[self.count] = Entry {
            samples: address,
            first_bit,
            row: row as u32,
            count: count as u32,
            what: fate as u32,
            pol: pol as u32,
        };
        self.count += 1;
        Ok(())
    }

    fn prepare(
        &mut self,
        _: usize,
        schedule: &Schedule<Lending>,
        output: &mut Header,
    ) -> Result<(), BlockError> {
        schedule.annotate(output);
        Ok(())
    }

    fn queue<J>(
        &mut self,
        pipeline: &mut Pipeline<J>,
        slot: usize,
        _: &Schedule<Lending>,
        output: u64,
    ) -> Result<(), BlockError> {
        let grid = Grid::new([self.blocks_of_spectrum, self.count, 1], self.threads);
        self.entries.send(pipeline, slot, 0..self.count)?;
        self.totals.clear(pipeline, slot)?;
        pipeline.work()?;
        let arguments = [
            self.entries.address(slot).into(),
            self.weights.address().into(),
            output.into(),
            self.totals.address(slot).into(),
        ];
        // SAFETY: the arguments match the kernel; the job owns the frames, and the block all other memory.
        unsafe { self.kernel.launch(pipeline.stream(), grid, &arguments) }?;
        pipeline.results()?;
        self.totals.fetch(pipeline, slot)
    }

    fn complete(
        &mut self,
        slot: usize,
        schedule: &Schedule<Lending>,
        output: &mut Header,
    ) -> Result<bool, BlockError> {
        if self.levels.is_empty() {
            return Ok(true);
        }
        let measured = &mut self.measured[slot];
        let totals = self.totals.host(slot)?.chunks_exact(2);
        for ((measured, totals), level) in measured.iter_mut().zip(totals).zip(&mut self.levels) {
            (measured.power, measured.clipped) = (totals[0], totals[1]);
            level.add(*measured);
        }
        schedule.annotate_measured(output, measured);
        Ok(true)
    }

    fn summarise(&self) {
        self.summary.set(summary(&self.levels));
    }
}
