//! Powers of the voltages of several antennas or beams on a GPU, with one kernel launch for each frame.
#![allow(unsafe_code)] // launches on memory that the job and the block own

use super::stacked::Stack;
use super::{Products, spectra_missing};
use crate::common::gpu::{Table, numbers};
use crate::common::units::Units;
use fxgraph::cuda::{Device, GpuJob, GpuMap, Grid, Kernel, Needs, Program, ProgramSource, Source};
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Counter, Env, Rejection};
use std::sync::Arc;

/// Threads per block: a warp for each sum of a channel.
const THREADS: usize = 256;
const WARP: usize = 32;

pub(super) const PROGRAM: ProgramSource = ProgramSource {
    source: Source::embedded("detect_stacked.cu", include_str!("detect_stacked.cu")),
    headers: &[],
    needs: Needs::Ampere,
    cases: &[
        "HEAPS=4 ANTENNAS=64 CHANNELS=1024 HEAP_SPECTRA=256 BITS=8 K_MAJOR=0 POLS=2 BEAMS=0 CHANNEL_UNITS=0 OF_SUM=64 SUMS=16 SPECTRA=64 PRODUCTS=2 INVERTED=1",
        "HEAPS=3 ANTENNAS=5 CHANNELS=7 HEAP_SPECTRA=20 BITS=4 K_MAJOR=1 POLS=2 BEAMS=0 CHANNEL_UNITS=1 OF_SUM=1 SUMS=2 SPECTRA=30 PRODUCTS=0 INVERTED=0",
        "HEAPS=1 ANTENNAS=2 CHANNELS=7 HEAP_SPECTRA=20 BITS=8 K_MAJOR=1 POLS=1 BEAMS=0 CHANNEL_UNITS=0 OF_SUM=2 SUMS=20 SPECTRA=1 PRODUCTS=0 INVERTED=0",
        "HEAPS=2 ANTENNAS=3 CHANNELS=7 HEAP_SPECTRA=20 BITS=8 K_MAJOR=1 POLS=1 BEAMS=1 CHANNEL_UNITS=0 OF_SUM=1 SUMS=4 SPECTRA=10 PRODUCTS=0 INVERTED=0",
        "HEAPS=2 ANTENNAS=3 CHANNELS=7 HEAP_SPECTRA=20 BITS=8 K_MAJOR=1 POLS=2 BEAMS=1 CHANNEL_UNITS=1 OF_SUM=1 SUMS=4 SPECTRA=10 PRODUCTS=2 INVERTED=1",
    ],
};

/// Bytes of the block's own arrays.
pub(super) fn device_bytes(stack: &Stack) -> usize {
    Table::<u32>::device_bytes(stack.units())
}

/// Thread blocks per launch.
fn blocks(stack: &Stack) -> usize {
    let sums = (stack.input.antennas / stack.of_sum) * stack.sums;
    sums.saturating_mul(stack.input.channels).saturating_mul(WARP).div_ceil(THREADS)
}

/// Diagnostic for frames that exceed the largest grid.
pub(super) fn rejection(stack: &Stack) -> Option<Rejection> {
    (blocks(stack) > i32::MAX as usize).then(|| {
        let message = "a frame must have fewer than 2^34 sums of a channel";
        Rejection::new(codes::IMPLEMENTATION, At::InputAxis(0, "spectrum"), message)
    })
}

/// The running block.
pub(super) struct Cuda {
    stack: Stack,
    kernel: Kernel,
    grid: Grid,
    /// Validity of the input, for each job in flight.
    valid: Table<u32>,
    spectra_missing: Counter,
}

impl Cuda {
    pub(super) fn new(stack: Stack, env: &Env, device: &Arc<Device>) -> Result<Self, BlockError> {
        let input = &stack.input;
        let defines = numbers([
            ("HEAPS", input.heaps),
            ("ANTENNAS", input.antennas),
            ("CHANNELS", input.channels),
            ("HEAP_SPECTRA", input.spectra),
            ("BITS", input.dtype.bits() / 2),
            ("K_MAJOR", usize::from(input.k_major)),
            ("POLS", stack.pols()),
            ("BEAMS", usize::from(stack.of_beams)),
            ("CHANNEL_UNITS", usize::from(input.units == Units::Channel)),
            ("OF_SUM", stack.of_sum),
            ("SUMS", stack.sums),
            ("SPECTRA", stack.spectra),
            ("INVERTED", usize::from(stack.sideband.is_inverted())),
            (
                "PRODUCTS",
                match stack.products {
                    Products::Power => 0,
                    Products::Intensity => 1,
                    Products::Stokes => 2,
                },
            ),
        ]);
        Ok(Self {
            kernel: Program::compile(&PROGRAM, device, defines)?.kernel("detect_stacked", 0)?,
            grid: Grid::new([blocks(&stack), 1, 1], THREADS),
            valid: Table::new(device, stack.units())?,
            spectra_missing: spectra_missing(env),
            stack,
        })
    }
}

impl GpuMap for Cuda {
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        let GpuJob { pipeline, slot, header, from, to } = job;
        self.valid.host_mut(slot)?.copy_from_slice(&header.validity);
        pipeline.tables();
        self.valid.send(pipeline, slot, 0..header.validity.len())?;
        pipeline.work()?;
        let arguments = [self.valid.address(slot).into(), from.into(), to.into()];
        // SAFETY: the arguments match the kernel, which was compiled for the sizes of the frames; the job owns the
        // frames, and no other job in flight uses its slot.
        Ok(unsafe { self.kernel.launch(pipeline.stream(), self.grid, &arguments) }?)
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.spectra_missing.add(self.stack.validity(input, output));
    }
}
