//! The block on a GPU, with one kernel launch for each frame.
#![allow(unsafe_code)] // launches on memory that the job and the block own

use super::statistics::{State, Statistics};
use super::{Settings, Shape, SpectralKurtosis};
use crate::common::gpu::{Table, numbers};
use fxgraph::changes::Change;
use fxgraph::cuda::{Device, GpuJob, GpuMap, Grid, Kernel, Needs, Program, ProgramSource, Source};
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Configured, Env, Header, Rejection};
use std::sync::Arc;

/// Warps per thread block, one for each row.
const WARPS: usize = 8;
/// Widest memory access in bytes.
const WIDEST: usize = 16;
/// Limits of a heap: the lower and the upper one.
const LIMITS: usize = 2;

pub(super) static PROGRAMS: &[ProgramSource] = &[ProgramSource {
    source: Source::embedded("spectral_kurtosis.cu", include_str!("spectral_kurtosis.cu")),
    headers: &[],
    needs: Needs::Ampere,
    cases: &[
        "ROWS=8192 ROWS_OF_HEAP=4096 SPECTRA=256 POLS=2 K_MAJOR=0 FOUR_BIT=0 VECTOR=16 WARPS=8",
        "ROWS=8192 ROWS_OF_HEAP=4096 SPECTRA=256 POLS=2 K_MAJOR=1 FOUR_BIT=0 VECTOR=16 WARPS=8",
        "ROWS=100 ROWS_OF_HEAP=50 SPECTRA=36 POLS=2 K_MAJOR=0 FOUR_BIT=1 VECTOR=8 WARPS=8",
        "ROWS=100 ROWS_OF_HEAP=50 SPECTRA=66 POLS=2 K_MAJOR=1 FOUR_BIT=1 VECTOR=2 WARPS=8",
        "ROWS=7 ROWS_OF_HEAP=7 SPECTRA=33 POLS=2 K_MAJOR=0 FOUR_BIT=0 VECTOR=4 WARPS=8",
        "ROWS=7 ROWS_OF_HEAP=7 SPECTRA=33 POLS=1 K_MAJOR=1 FOUR_BIT=1 VECTOR=1 WARPS=8",
        "ROWS=1 ROWS_OF_HEAP=1 SPECTRA=65536 POLS=2 K_MAJOR=1 FOUR_BIT=0 VECTOR=16 WARPS=8",
    ],
}];

/// Bytes of the block's own arrays.
pub(super) fn device_bytes(shape: &Shape) -> usize {
    let limits = Table::<f64>::device_bytes(LIMITS * shape.heaps);
    Table::<u8>::device_bytes(shape.units()) + limits
}

/// Diagnostic for frames that exceed the largest grid.
pub(super) fn rejection(shape: &Shape) -> Option<Rejection> {
    (shape.rows() > i32::MAX as usize).then(|| {
        let message = "a frame must have fewer than 2^31 channels of all heaps and antennas";
        Rejection::new(codes::IMPLEMENTATION, At::InputAxis(0, "channel"), message)
    })
}

/// Whether the kernel finds one polarisation after the other; true if there is only one.
const fn is_k_major(shape: &Shape) -> bool {
    shape.k_major || shape.pols == 1
}

/// Size in bytes of the widest memory access that divides a row; with one polarisation after the other, the part of each.
fn vector_bytes(shape: &Shape) -> usize {
    let pols = if is_k_major(shape) { shape.pols } else { 1 };
    1 << ((shape.row_bytes() / pols) | WIDEST).trailing_zeros()
}

/// The running block.
pub(super) struct Cuda {
    shape: Shape,
    settings: Settings,
    kernel: Kernel,
    grid: Grid,
    /// State of each unit, `[heap][antenna][channel][pol]`: before the test as sent, after it as fetched.
    states: Table<u8>,
    /// Lower and upper limit of `M S2/S1^2`, `[heap][2]`.
    limits: Table<f64>,
    statistics: Statistics,
}

impl Cuda {
    pub(super) fn new(
        block: &Configured<SpectralKurtosis>,
        env: &Env,
        device: &Arc<Device>,
    ) -> Result<Self, BlockError> {
        let shape = block.shape;
        let defines = numbers([
            ("ROWS", shape.rows()),
            ("ROWS_OF_HEAP", shape.antennas * shape.channels),
            ("SPECTRA", shape.spectra),
            ("POLS", shape.pols),
            ("K_MAJOR", usize::from(is_k_major(&shape))),
            ("FOUR_BIT", usize::from(shape.is_4_bit)),
            ("VECTOR", vector_bytes(&shape)),
            ("WARPS", WARPS),
        ]);
        Ok(Self {
            kernel: Program::compile(&PROGRAMS[0], device, defines)?
                .kernel("spectral_kurtosis", 0)?,
            grid: Grid::new([shape.rows().div_ceil(WARPS), 1, 1], 32 * WARPS),
            states: Table::new(device, shape.units())?,
            limits: Table::new(device, LIMITS * shape.heaps)?,
            settings: Settings::new(block),
            statistics: Statistics::new(shape, env),
            shape,
        })
    }

    /// Writes the limits of each heap, and the state of each unit before the test.
    fn describe(&mut self, slot: usize, header: &Header) -> Result<(), BlockError> {
        let shape = self.shape;
        self.settings.begin(header.timestamp, shape.samples_per_frame);
        let states = self.states.host_mut(slot)?;
        let limits = self.limits.host_mut(slot)?;
        // Units of a heap of an antenna in the output, and in the input.
        let units = shape.channels * shape.pols;
        let of_input = shape.units.per_heap(shape.channels, shape.pols);
        let antennas = states.chunks_exact_mut(units).zip(header.validity.chunks_exact(of_input));
        for (index, (states, valid)) in antennas.enumerate() {
            let heap = index / shape.antennas;
            let of_heap = self.settings.at(shape.heap_timestamp(header.timestamp, heap));
            limits[LIMITS * heap..][..LIMITS]
                .copy_from_slice(&[of_heap.test.low, of_heap.test.high]);
            let rows = states.chunks_exact_mut(shape.pols).zip(of_heap.always);
            for (row, (states, is_always)) in rows.enumerate() {
                for (pol, state) in states.iter_mut().enumerate() {
                    let unit = if of_input == 1 { 0 } else { row * shape.pols + pol };
                    *state = State::before(valid[unit], of_heap.enabled, *is_always) as u8;
                }
            }
        }
        Ok(())
    }
}

impl GpuMap for Cuda {
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        let GpuJob { pipeline, slot, header, from, to } = job;
        self.describe(slot, header)?;
        pipeline.tables();
        self.states.send(pipeline, slot, 0..self.shape.units())?;
        self.limits.send(pipeline, slot, 0..LIMITS * self.shape.heaps)?;
        pipeline.work()?;
        let arguments = [
            from.into(),
            to.into(),
            self.states.address(slot).into(),
            self.limits.address(slot).into(),
        ];
        // SAFETY: the arguments match the kernel, which was compiled for the sizes of the frames; the job owns the
        // frames, and no other job in flight uses its slot.
        unsafe { self.kernel.launch(pipeline.stream(), self.grid, &arguments) }?;
        pipeline.results()?;
        self.states.fetch(pipeline, slot)
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.shape.expand(input, output);
    }

    fn complete(&mut self, slot: usize, output: &mut Header) -> Result<(), BlockError> {
        self.statistics.add(self.states.host(slot)?, output);
        Ok(())
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.settings.offer(change)
    }
}
