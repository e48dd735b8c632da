//! The kernel of `detect_stacked.cu` for the voltages of several antennas or beams, and its launch configuration.

use super::stacked::Stack;
use crate::common::gpu::numbers;
use crate::common::units::Units;
use fxgraph::cuda::{Defines, Grid, Needs, ProgramSource, Source};

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

/// Thread blocks per launch.
pub(super) fn blocks(stack: &Stack) -> usize {
    let sums = (stack.input.antennas / stack.of_sum) * stack.sums;
    sums.saturating_mul(stack.input.channels).saturating_mul(WARP).div_ceil(THREADS)
}

pub(super) fn grid(stack: &Stack) -> Grid {
    Grid::new([blocks(stack), 1, 1], THREADS)
}

/// Macros of the kernel, without those of both kernels.
pub(super) fn defines(stack: &Stack) -> Defines {
    let input = &stack.input;
    numbers([
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
    ])
}
