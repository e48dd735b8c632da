//! Code that several families use.

pub(crate) mod axes;
pub(crate) mod bench;
pub mod delay;
pub mod dither;
pub(crate) mod geometry;
pub mod gpu;
pub(crate) mod live;
pub mod packed;
pub mod parallel;
pub(crate) mod random;
pub mod real_fft;
pub(crate) mod simd;
pub(crate) mod spectra;
pub mod stacked;
pub(crate) mod versions;
