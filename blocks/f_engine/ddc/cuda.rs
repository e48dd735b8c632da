//! The block on a GPU.
#![allow(unsafe_code)] // launches on memory that the block or the job owns

use super::cpu::count;
use super::{Ddc, HEAP_SAMPLES};
use crate::common::gpu::{self, Table};
use crate::common::live::Live;
use crate::f_engine::samples::device;
use crate::f_engine::samples::driver::{Driver, Maker, Stretch};
use crate::f_engine::samples::lending::Lending;
use crate::f_engine::samples::schedule::{Fate, Run, Schedule, Sizes};
use bytemuck::{Pod, Zeroable};
use fxgraph::cuda::{Device, DeviceArray, Grid, Kernel, Lane, Tunable};
use fxgraph::retune::Timed;
use fxgraph::{BlockError, Dtype, Env, Header, Ports};
use fxgraph_dsp::mixer::Frequency;
use std::sync::Arc;

/// Warps of a block of the kernel, threads of a warp, and the rows that it goes along.
const WARPS: usize = 4;
const WARP: usize = 32;
const ROWS: usize = 16;
/// Output samples of a row: the longer a row, the less is filtered twice.
const ROW_SAMPLES: [usize; 3] = [256, 128, 64];
/// Warps that a frame should give the GPU work for.
const ENOUGH_WARPS: usize = 2048;
/// Largest weight on the device, as a power of two: halves reach to 65504.
const LARGEST_LOG2: i32 = 13;

/// Adjacent heaps, as `ddc.cu` wants them.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Entry {
    /// Address of the memory that the first one's samples start in, and bits from there.
    samples: u64,
    first_bit: u64,
    /// Of the frame's first output sample, and from one input sample to the next, in turns of 2^-64.
    phase: u64,
    turn: u64,
    /// Number of the first one within the frame.
    heap: u32,
    count: u32,
    /// The fate: 0 to be filtered, others to be cleared.
    what: u32,
    unused: u32,
}

/// Bytes in device memory that the block takes for itself.
pub fn device_bytes(ddc: &Ddc, sizes: &Sizes, ports: &Ports) -> usize {
    device::device_bytes(sizes, ports)
        + Table::<Entry>::device_bytes(sizes.spectra)
        + size_of::<f32>() * ddc.taps()
}

/// The kernel, with the ways to cut it.
pub fn tunable(ddc: &Ddc, ports: &Ports) -> Tunable {
    let input = ports.inputs[0].dtype;
    let mut rows = ROW_SAMPLES;
    // The longest that leaves enough of them comes first.
    let warps = |row: &usize| ddc.frame_samples() / (ROWS * row);
    let first = rows.iter().position(|row| warps(row) >= ENOUGH_WARPS);
    let first = first.unwrap_or(ROW_SAMPLES.len() - 1);
    rows[..=first].rotate_right(1);
    Tunable {
        program: "ddc.cu",
        shape: gpu::numbers([
            ("SUBSAMPLING", ddc.subsampling()),
            ("TAPS", ddc.taps()),
            ("BITS", input.bits()),
            ("NATIVE", usize::from(input == Dtype::I16)),
        ]),
        ways: rows.map(|row| gpu::numbers([("ROW", row), ("WARPS", WARPS)])).to_vec(),
    }
}

/// What is made of the samples.
pub struct Converter {
    kernel: Kernel,
    /// Heaps that a block of threads makes at most.
    most: usize,
    /// The low-pass filter, as large as halves can be.
    filter: DeviceArray<f32>,
    /// From the kernel's sums to output samples.
    scale: f32,
    frequency: Timed<Frequency>,
    sample_bits: u64,
    entries: Table<Entry>,
    /// Entries of the output frame so far.
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
        let rate_hz = input.clock.adc_sample_rate_hz;
        let tunable = tunable(ddc, ports);
        let way = device.chosen(&tunable);
        let program = gpu::program(device, tunable.program, tunable.defines(way))?;
        let weights = ddc.weights(rate_hz)?;
        let largest = weights.iter().fold(f64::MIN_POSITIVE, |most, h| most.max(h.abs()));
        let scale = 2.0_f64.powi(LARGEST_LOG2 - 1 - largest.log2().floor() as i32);
        let filter: Vec<f32> = weights.iter().map(|h| (scale * h) as f32).collect();
        // As in `packed_halves.cuh`.
        let sample_scale = 2.0_f64.powi(if input.dtype.bits() > 10 { 12 } else { 10 });
        Ok(Self {
            kernel: program.kernel("ddc", 0)?,
            most: WARPS * ROWS * tunable.number(way, "ROW") / HEAP_SAMPLES,
            filter: DeviceArray::from_slice(device, &filter)?,
            scale: (sample_scale / scale) as f32,
            frequency: Timed::new(Frequency::new(ddc.centre_hz, rate_hz)),
            sample_bits: input.dtype.bits() as u64,
            entries: Table::new(device, sizes.spectra)?,
            count: 0,
            start: 0,
        })
    }
}

impl Maker for Converter {
    fn retune(&mut self, from: u64, live: Live) {
        if let Live::Mixer(mixer) = live {
            self.frequency.set(from, mixer.frequency());
        }
    }

    fn begin(&mut self, _: usize, schedule: &Schedule<Lending>, _: &[(usize, Run)]) -> usize {
        self.count = 0;
        self.start = schedule.timestamp();
        self.frequency.advance(self.start);
        self.most
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
        let mut done = 0;
        while done < count {
            let t = self.start + ((first + done) * sizes.step) as u64;
            let frequency = *self.frequency.at(t);
            // All of an entry have one frequency.
            let same = self.frequency.run(t, sizes.step as u64, count - done);
            self.entries.host_mut(slot)?[self.count] = Entry {
                samples: address,
                first_bit: first_bit + done as u64 * heap_bits,
                phase: frequency.phase(self.start),
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
        lane: &mut Lane<J>,
        slot: usize,
        _: &Schedule<Lending>,
        output: u64,
    ) -> Result<(), BlockError> {
        self.entries.send(lane, slot, 0..self.count)?;
        lane.work()?;
        let arguments = [
            self.entries.address(slot).into(),
            self.filter.address().into(),
            output.into(),
            self.scale.into(),
        ];
        let grid = Grid::new([self.count, 1, 1], WARPS * WARP);
        // SAFETY: the arguments are those of the kernel; the job owns the frames, the block the rest.
        unsafe { self.kernel.launch(lane.stream(), grid, &arguments) }?;
        lane.results()
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
