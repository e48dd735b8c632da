#![doc = include_str!("README.md")]

/// The source file at this path in this crate.
macro_rules! source {
    ($path:literal) => {
        $crate::Source { name: $crate::file_name($path), text: include_str!($path) }
    };
}

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
    source!("common/async_copy.cuh"),
    source!("common/dither.cuh"),
    source!("common/half_matrix.cuh"),
    source!("common/int8_warpgroup.cuh"),
    source!("common/packed.cuh"),
    source!("common/quantise.cuh"),
    source!("common/short_fft.cuh"),
    source!("common/types.cuh"),
    source!("f_engine/f_engine.cuh"),
    source!("f_engine/f_engine_combs.cuh"),
    source!("f_engine/f_engine_filter.cuh"),
    source!("f_engine/f_engine_finish.cuh"),
    source!("f_engine/f_engine_measure.cuh"),
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

/// `path` without its directory.
const fn file_name(path: &'static str) -> &'static str {
    let mut at = path.len();
    while at > 0 && path.as_bytes()[at - 1] != b'/' {
        at -= 1;
    }
    path.split_at(at).1
}

/// The program `name`.
#[must_use]
pub fn program(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.source.name == name)
}
