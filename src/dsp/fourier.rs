//! Fourier transforms of RustFFT, which is generic: a crate that plans a transform itself compiles all its algorithms.
//! They are compiled here, for all crates.

use realfft::RealFftPlanner;
use rustfft::FftPlanner;
use std::sync::Arc;

pub use realfft::{ComplexToReal, RealToComplex};
pub use rustfft::Fft;

/// Plans the transform `X_k = sum_n x_n exp(-2 pi i n k / len)` in single precision.
#[must_use]
pub fn forward_f32(len: usize) -> Arc<dyn Fft<f32>> {
    FftPlanner::new().plan_fft_forward(len)
}

/// Plans the transform `x_n = sum_k X_k exp(2 pi i n k / len)`, which is not divided by `len`, in single precision.
#[must_use]
pub fn inverse_f32(len: usize) -> Arc<dyn Fft<f32>> {
    FftPlanner::new().plan_fft_inverse(len)
}

/// Plans the transform of [`forward_f32`] in double precision.
#[must_use]
pub fn forward_f64(len: usize) -> Arc<dyn Fft<f64>> {
    FftPlanner::new().plan_fft_forward(len)
}

/// Plans the transform of [`inverse_f32`] in double precision.
#[must_use]
pub fn inverse_f64(len: usize) -> Arc<dyn Fft<f64>> {
    FftPlanner::new().plan_fft_inverse(len)
}

/// Transforms of real numbers in double precision; each length is planned once.
pub struct RealTransforms(RealFftPlanner<f64>);

impl RealTransforms {
    /// Makes a list without transforms.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(RealFftPlanner::new())
    }

    /// Returns the transform of `len` real numbers to `len / 2 + 1` complex ones.
    pub fn forward(&mut self, len: usize) -> Arc<dyn RealToComplex<f64>> {
        self.0.plan_fft_forward(len)
    }

    /// Returns the transform of `len / 2 + 1` complex numbers to `len` real ones, which is not divided by `len`.
    pub fn inverse(&mut self, len: usize) -> Arc<dyn ComplexToReal<f64>> {
        self.0.plan_fft_inverse(len)
    }
}
