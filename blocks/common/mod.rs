//! Code shared by several families.

pub(crate) mod annotations;
pub(crate) mod antenna_numbers;
pub(crate) mod axes;
pub(crate) mod bench;
pub mod delay;
pub mod dither;
pub(crate) mod flagged_antennas;
pub(crate) mod gaps;
pub mod gpu;
pub(crate) mod live;
pub(crate) mod nyquist;
pub mod output_level;
pub mod parallel;
pub(crate) mod samples;
pub(crate) mod spectra;
pub mod stacked;
pub mod units;
pub(crate) mod versions;
pub mod visibilities;
