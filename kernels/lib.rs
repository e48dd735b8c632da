#![doc = include_str!("README.md")]

/// Source file at `$path` in this crate.
macro_rules! source {
    ($path:literal) => {
        fxgraph_core::gpu::Source::embedded($path, include_str!($path))
    };
}

mod programs;

pub use programs::PROGRAMS;

use fxgraph_core::gpu::{ProgramSource, Source};

/// Headers that programs may include.
pub const HEADERS: &[Source] = &[
    source!("common/async_copy.cuh"),
    source!("common/dither.cuh"),
    source!("common/half_matrix.cuh"),
    source!("common/int8_warpgroup.cuh"),
    source!("common/packed.cuh"),
    source!("common/quantise.cuh"),
    source!("common/short_fft.cuh"),
    source!("common/types.cuh"),
    source!("f_engine/ddc.cuh"),
    source!("f_engine/f_engine.cuh"),
    source!("f_engine/f_engine_combs.cuh"),
    source!("f_engine/f_engine_filter.cuh"),
    source!("f_engine/f_engine_finish.cuh"),
    source!("f_engine/f_engine_measure.cuh"),
    source!("f_engine/middle.cuh"),
    source!("f_engine/packed_halves.cuh"),
    source!("f_engine/phasor.cuh"),
    source!("f_engine/real_fft.cuh"),
    source!("f_engine/spectrum_row.cuh"),
    source!("frb/frb_feeds.cuh"),
    source!("frb/frb_fft.cuh"),
    source!("frb/frb_intensities.cuh"),
    source!("frb/frb_radix8.cuh"),
    source!("frb/frb_rows.cuh"),
    source!("frb/frb_times.cuh"),
    source!("frb/frb_weigh.cuh"),
    source!("gnss/gnss_samples.cuh"),
    source!("gnss/gnss_signals.cuh"),
    source!("util/axes.cuh"),
    source!("util/transpose.cuh"),
    source!("x_engine/int8_matrix.cuh"),
    source!("x_engine/voltages.cuh"),
];

/// The program `name`.
#[must_use]
pub fn program(name: &str) -> Option<&'static ProgramSource> {
    PROGRAMS.iter().find(|program| program.source.name == name)
}
