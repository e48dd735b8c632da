//! Code that several families of blocks share.

pub mod annotations;
pub mod antenna_numbers;
pub mod axes;
pub mod bench;
pub mod delay;
pub mod dither;
pub mod flagged_antennas;
pub mod gaps;
pub mod gpu;
pub mod link;
pub mod live;
pub mod measured_rate;
pub mod net;
pub mod nyquist;
pub mod output_level;
pub mod pace;
pub mod parallel;
pub mod samples;
pub mod sending;
pub mod spectra;
pub mod stacked;
pub mod units;
pub mod versions;
pub mod visibilities;
