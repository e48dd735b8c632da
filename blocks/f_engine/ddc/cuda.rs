//! The block on a GPU.
#![allow(unsafe_code)] // launches on memory that the block or the job owns

use super::cpu::count;
use super::{Ddc, HEAP_SAMPLES};
use crate::common::gpu::{self, Table};
use crate::common::live::Live;
use crate::f_engine::samples::device;
use crate::f_engine::samples::driver::{Driver, Maker, Stretch};
use crate::f_engine::samples::input::{Sizes, is_complex, rate_hz};
use crate::f_engine::samples::packed_input::Lending;
use crate::f_engine::samples::schedule::{Fate, Run, Schedule};
use bytemuck::{Pod, Zeroable};
use fxgraph::changes::Timed;
use fxgraph::cuda::{Device, DeviceArray, Grid, Kernel, Pipeline, Tunable};
use fxgraph::{BlockError, Dtype, Env, Header, PortType, Ports};
use fxgraph_dsp::mixer::Frequency;
use std::sync::Arc;

/// Warps per thread block, threads per warp, and rows per warp.
const WARPS: usize = 4;
const WARP: usize = 32;
const ROWS: usize = 16;
/// Output samples per row; longer rows compute fewer overlapping samples twice.
const ROW_SAMPLES: [usize; 3] = [256, 128, 64];
/// Threads per block of the kernel for complex samples: the default, and alternatives for tuning.
const COMPLEX_THREADS: [usize; 2] = [128, 256];
/// Number of warps per frame that keeps the GPU busy.
const ENOUGH_WARPS: usize = 2048;
/// Log2 of the largest weight on the device; the range of `f16` ends at 65504.
const LARGEST_LOG2: i32 = 13;

/// Adjacent heaps, in the memory layout of `ddc.cu` and `ddc_complex.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Entry {
    /// Address of the memory with the samples of the first heap.
    samples: u64,
    /// Offset of the first sample from `samples` in bits.
    first_bit: u64,
    /// Oscillator phase at the frame's first output sample, in units of 2^-64 turns.
    phase: u64,
    /// Phase step from one input sample to the next, in units of 2^-64 turns.
    turn: u64,
    /// Index of the first heap within the frame.
    heap: u32,
    count: u32,
    /// `Fate` of the heaps: 0 filters them, other values clear them.
    what: u32,
    unused: u32,
}

/// Device memory of the block in bytes, without frames.
pub fn device_bytes(ddc: &Ddc, sizes: &Sizes, ports: &Ports) -> usize {
    device::device_bytes(sizes, ports)
        + Table::<Entry>::device_bytes(sizes.spectra)
        + size_of::<f32>() * ddc.taps(&ports.inputs[0])
}

/// The kernel, with its launch configurations.
pub fn tunable(ddc: &Ddc, ports: &Ports) -> Tunable {
    let input = &ports.inputs[0];
    let (subsampling, taps) = (ddc.subsampling(input), ddc.taps(input));
    let rows = |row: usize| ddc.frame_samples() / row;
    if is_complex(input) {
        // A thread for each of the S phases of a row.
        let ways = longest_first(|row| rows(row) * subsampling / WARP).into_iter();
        let of_row = |row| COMPLEX_THREADS.map(|threads| [("ROW", row), ("THREADS", threads)]);
        return Tunable {
            program: "ddc_complex.cu",
            shape: gpu::numbers([("SUBSAMPLING", subsampling), ("TAPS", taps)]),
            ways: ways.flat_map(of_row).map(gpu::numbers).collect(),
        };
    }
    Tunable {
        program: "ddc.cu",
        shape: gpu::numbers([
            ("SUBSAMPLING", subsampling),
            ("TAPS", taps),
            ("BITS", input.dtype.bits()),
            ("NATIVE", usize::from(input.dtype == Dtype::I16)),
        ]),
        ways: longest_first(|row| rows(row) / ROWS)
            .map(|row| gpu::numbers([("ROW", row), ("WARPS", WARPS)]))
            .to_vec(),
    }
}

/// Output samples per row; the longest rows that make enough `warps` come first.
fn longest_first(warps: impl Fn(usize) -> usize) -> [usize; 3] {
    let mut rows = ROW_SAMPLES;
    let first = rows.iter().position(|row| warps(*row) >= ENOUGH_WARPS);
    let first = first.unwrap_or(ROW_SAMPLES.len() - 1);
    rows[..=first].rotate_right(1);
    rows
}

/// Division of a frame among thread blocks.
struct Division {
    /// Largest number of heaps per entry.
    most: usize,
    /// Thread blocks per entry.
    blocks: usize,
    threads: usize,
}

impl Division {
    fn new(ddc: &Ddc, input: &PortType, tunable: &Tunable, way: usize) -> Self {
        let row = tunable.number(way, "ROW");
        if is_complex(input) {
            let threads = tunable.number(way, "THREADS");
            let most = threads / ddc.subsampling(input);
            return Self { most, blocks: HEAP_SAMPLES / row, threads };
        }
        Self { most: WARPS * ROWS * row / HEAP_SAMPLES, blocks: 1, threads: WARPS * WARP }
    }
}

/// Launches the kernel for each output frame.
pub struct Converter {
    kernel: Kernel,
    division: Division,
    /// Weights of the low-pass filter, scaled by a power of two to the largest values that `f16` allows.
    filter: DeviceArray<f32>,
    /// Factor from the kernel's sums to output samples.
    scale: f32,
    frequency: Timed<Frequency>,
    sample_bits: u64,
    entries: Table<Entry>,
    /// Number of entries of the output frame so far.
    count: usize,
    /// Timestamp of the output frame.
    start: u64,
}

impl Converter {
    /// The running block.
    pub fn block(
        ddc: &Ddc,
        sizes: Sizes,
        ports: &Ports,
        env: &Env,
    ) -> Result<Driver<Self>, BlockError> {
        let make = |device: &_, sizes: &_| Self::new(ddc, ports, device, sizes);
        Driver::new(sizes, &[], count(env), ports, env, make)
    }

    fn new(
        ddc: &Ddc,
        ports: &Ports,
        device: &Arc<Device>,
        sizes: &Sizes,
    ) -> Result<Self, BlockError> {
        let input = &ports.inputs[0];
        let rate_hz = rate_hz(input);
        let tunable = tunable(ddc, ports);
        let way = device.chosen(&tunable);
        let program = gpu::program(device, tunable.program, tunable.defines(way))?;
        let weights = ddc.weights(input)?;
        let largest = weights.iter().fold(f64::MIN_POSITIVE, |most, h| most.max(h.abs()));
        let scale = 2.0_f64.powi(LARGEST_LOG2 - 1 - largest.log2().floor() as i32);
        let filter: Vec<f32> = weights.iter().map(|h| (scale * h) as f32).collect();
        let sample_scale = match input.dtype.bits() {
            _ if is_complex(input) => 1.0,
            // As in `packed_halves.cuh`.
            bits => 2.0_f64.powi(if bits > 10 { 12 } else { 10 }),
        };
        Ok(Self {
            kernel: program.kernel("ddc", 0)?,
            division: Division::new(ddc, input, &tunable, way),
            filter: DeviceArray::from_slice(device, &filter)?,
            scale: (sample_scale / scale) as f32,
            frequency: Timed::new(Frequency::aliased(ddc.centre_hz, rate_hz)),
            sample_bits: input.dtype.bits() as u64,
            entries: Table::new(device, sizes.spectra)?,
            count: 0,
            start: 0,
        })
    }
}

impl Maker for Converter {
    fn update(&mut self, from: u64, live: Live) {
        if let Live::Mixer(mixer) = live {
            self.frequency.set(from, mixer.frequency());
        }
    }

    fn begin(&mut self, _: usize, schedule: &Schedule<Lending>, _: &[(usize, Run)]) -> usize {
        self.count = 0;
        self.start = schedule.timestamp();
        self.frequency.advance(self.start);
        self.division.most
    }

    fn add(
        &mut self,
        slot: usize,
        sizes: &Sizes,
        stretch: &Stretch,
        output: &mut Header,
    ) -> Result<(), BlockError> {
        let Stretch { first, count, fate, address, first_bit, .. } = *stretch;
        output.validity[first..first + count].fill(u32::from(fate == Fate::Whole));
        let heap_bits = sizes.step as u64 * self.sample_bits;
        let step = (sizes.step * sizes.ticks) as u64;
        let mut done = 0;
        while done < count {
            let t = self.start + (first + done) as u64 * step;
            let frequency = *self.frequency.at(t);
            // All heaps of an entry have the same frequency.
            let same = self.frequency.run(t, step, count - done);
            self.entries.host_mut(slot)?[self.count] = Entry {
                samples: address,
                first_bit: first_bit + done as u64 * heap_bits,
                phase: frequency.phase(self.start / sizes.ticks as u64),
                turn: frequency.phase(1),
                heap: (first + done) as u32,
                count: same as u32,
                what: u32::from(fate != Fate::Whole),
                unused: 0,
            };
            self.count += 1;
            done += same;
        }
        Ok(())
    }

    fn prepare(
        &mut self,
        _: usize,
        schedule: &Schedule<Lending>,
        output: &mut Header,
    ) -> Result<(), BlockError> {
        output.timestamp = schedule.timestamp();
        Ok(())
    }

    fn queue<J>(
        &mut self,
        pipeline: &mut Pipeline<J>,
        slot: usize,
        _: &Schedule<Lending>,
        output: u64,
    ) -> Result<(), BlockError> {
        self.entries.send(pipeline, slot, 0..self.count)?;
        pipeline.work()?;
        let arguments = [
            self.entries.address(slot).into(),
            self.filter.address().into(),
            output.into(),
            self.scale.into(),
        ];
        let grid = Grid::new([self.count, self.division.blocks, 1], self.division.threads);
        // SAFETY: the arguments match the kernel; the job owns the frames, and the block all other memory.
        unsafe { self.kernel.launch(pipeline.stream(), grid, &arguments) }?;
        pipeline.results()
    }

    fn complete(
        &mut self,
        _: usize,
        _: &Schedule<Lending>,
        _: &mut Header,
    ) -> Result<bool, BlockError> {
        Ok(true)
    }

    fn summarise(&self) {}
}
