#![doc = include_str!("README.md")]

mod programs;

pub use programs::PROGRAMS;

/// A CUDA source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// File name, as `#include` and compiler messages give it.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// What a GPU must be to run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Compute capability 8.0 or later.
    Ampere,
    /// Compute capability 9.0 exactly: `wgmma` is of Hopper alone.
    Hopper,
}

/// A source that is compiled on its own, with a block's parameters as macros.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The source.
    pub source: Source,
    /// GPUs it runs on.
    pub needs: Needs,
    /// Parameter sets that every change is compiled with: `NAME=VALUE` separated by blanks.
    pub cases: &'static [&'static str],
}

/// What programs include.
pub const HEADERS: &[Source] = &[
    Source { name: "async_copy.cuh", text: include_str!("async_copy.cuh") },
    Source { name: "axes.cuh", text: include_str!("axes.cuh") },
    Source { name: "dither.cuh", text: include_str!("dither.cuh") },
    Source { name: "f_engine.cuh", text: include_str!("f_engine.cuh") },
    Source { name: "f_engine_combs.cuh", text: include_str!("f_engine_combs.cuh") },
    Source { name: "f_engine_filter.cuh", text: include_str!("f_engine_filter.cuh") },
    Source { name: "f_engine_finish.cuh", text: include_str!("f_engine_finish.cuh") },
    Source { name: "f_engine_measure.cuh", text: include_str!("f_engine_measure.cuh") },
    Source { name: "frb_feeds.cuh", text: include_str!("frb_feeds.cuh") },
    Source { name: "frb_fft.cuh", text: include_str!("frb_fft.cuh") },
    Source { name: "frb_intensities.cuh", text: include_str!("frb_intensities.cuh") },
    Source { name: "frb_radix8.cuh", text: include_str!("frb_radix8.cuh") },
    Source { name: "frb_rows.cuh", text: include_str!("frb_rows.cuh") },
    Source { name: "frb_times.cuh", text: include_str!("frb_times.cuh") },
    Source { name: "frb_weigh.cuh", text: include_str!("frb_weigh.cuh") },
    Source { name: "gnss_samples.cuh", text: include_str!("gnss_samples.cuh") },
    Source { name: "gnss_signals.cuh", text: include_str!("gnss_signals.cuh") },
    Source { name: "half_matrix.cuh", text: include_str!("half_matrix.cuh") },
    Source { name: "int8_matrix.cuh", text: include_str!("int8_matrix.cuh") },
    Source { name: "int8_warpgroup.cuh", text: include_str!("int8_warpgroup.cuh") },
    Source { name: "packed.cuh", text: include_str!("packed.cuh") },
    Source { name: "packed_halves.cuh", text: include_str!("packed_halves.cuh") },
    Source { name: "phasor.cuh", text: include_str!("phasor.cuh") },
    Source { name: "quantise.cuh", text: include_str!("quantise.cuh") },
    Source { name: "real_fft.cuh", text: include_str!("real_fft.cuh") },
    Source { name: "short_fft.cuh", text: include_str!("short_fft.cuh") },
    Source { name: "spectrum_row.cuh", text: include_str!("spectrum_row.cuh") },
    Source { name: "transpose.cuh", text: include_str!("transpose.cuh") },
    Source { name: "types.cuh", text: include_str!("types.cuh") },
    Source { name: "voltages.cuh", text: include_str!("voltages.cuh") },
];

/// The program `name`.
#[must_use]
pub fn program(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.source.name == name)
}
