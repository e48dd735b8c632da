#![doc = include_str!("README.md")]
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod beams;
pub mod correlator;
pub mod decimate;
pub mod delay;
pub mod dither;
pub mod fourier;
pub mod fringe;
pub mod geometry;
pub mod gnss;
pub mod kurtosis;
pub mod low_pass;
pub mod mixer;
pub mod packed;
pub mod permutation;
pub mod polyphase;
pub mod power;
pub mod random;
pub mod real_fft;
pub mod remez;
pub mod resample;
pub mod rotate;
pub mod simd;
pub mod stefcal;
pub mod synthesis;
pub mod transpose;
pub mod unzip;
