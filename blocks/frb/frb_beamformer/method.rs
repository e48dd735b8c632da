//! Common parts of the GPU implementations: the method of computing the transforms, its kernels and their arguments.
#![allow(unsafe_code)] // a launch on memory that the caller guarantees

use super::Stages;
use super::gains::Gains;
use super::sizes::Sizes;
use super::weights::{DeviceWeights, Scaling, Stretch};
use fxgraph::cuda::{Frames, Pipeline};
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Rejection};
use std::fmt;
use std::ops::Range;

/// Method of computing the transforms, one for each implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Tensor cores after a radix-8 step in registers.
    Radix8,
    /// Tensor cores alone.
    TensorCore,
    /// Single-precision arithmetic.
    Fp32,
}

impl Method {
    /// All methods.
    pub(super) const ALL: [Self; 3] = [Self::Radix8, Self::TensorCore, Self::Fp32];

    /// Name of the implementation.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Radix8 => "radix8",
            Self::TensorCore => "tensor_core",
            Self::Fp32 => "fp32",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Kernels of an implementation, and their encoding of the weights.
pub(super) trait MethodKernels: Send {
    /// Encodes the weights of feeds with these `gains` in `words`, with the implementation's number of words per
    /// weight.
    fn write(&self, stages: &Stages, gains: &Gains, words: &mut [u32]) -> Scaling;

    /// Queues the kernels.
    ///
    /// # Safety
    /// The frames and counts of `job` must stay valid until the kernels have run.
    unsafe fn launch(
        &mut self,
        pipeline: &Pipeline<Frames>,
        job: &Job<'_>,
    ) -> Result<(), BlockError>;
}

/// Arguments of the kernels: memory of the sizes that the kernels were compiled for, and weights.
pub(super) struct Job<'a> {
    /// Address of the input frame.
    pub from: u64,
    /// Address of the output frame.
    pub to: u64,
    /// Address of the input's validity, `[time][frequency]`.
    pub units: u64,
    pub weights: &'a DeviceWeights,
    pub timestamp: u64,
    pub sizes: Sizes,
}

impl Job<'_> {
    /// Stretches of equal weights among `spectra` of the frame.
    pub(super) fn stretches(&self, spectra: Range<usize>) -> impl Iterator<Item = Stretch> + Clone {
        self.weights.stretches(self.timestamp, self.sizes.samples_per_spectrum, spectra)
    }
}

/// Macros for stream and stages that all kernels share.
pub(super) fn defines(stages: &Stages) -> Vec<(&'static str, String)> {
    let sizes = stages.sizes;
    let [in_time, in_frequency] = sizes.units;
    let numbers = [
        ("SPECTRA", sizes.spectra),
        ("CHANNELS", sizes.channels),
        ("POLS", sizes.pols),
        ("CYLINDERS", sizes.cylinders),
        ("BITS", sizes.dtype.bits() / 2),
        ("ROWS", sizes.rows),
        ("EAST_WEST", usize::from(!stages.east_west.is_empty())),
        ("ROW_BEAMS", sizes.row_beams),
        ("UNITS_IN_TIME", in_time),
        ("UNITS_IN_FREQUENCY", in_frequency),
        ("HALF_PRECISION", usize::from(stages.half_precision)),
        ("FINE", sizes.fine_channels),
    ];
    numbers.map(|(name, number)| (name, number.to_string())).to_vec()
}

/// Diagnostic of an implementation, at `at`.
pub(super) fn rejection(at: At, message: String, help: &str) -> Rejection {
    Rejection::new(codes::IMPLEMENTATION, at, message).help(help)
}
