//! The F-engine: digitised samples to packed spectra.

pub mod ddc;
pub mod detect;
// A kind's directory has the kind's name.
#[allow(clippy::module_inception)]
pub mod f_engine;
pub mod fft;
pub mod pfb;
pub mod pol_aligner;
pub mod postproc;
pub mod resampler;
pub(crate) mod samples;
pub mod spectral_kurtosis;
pub mod synthesiser;
