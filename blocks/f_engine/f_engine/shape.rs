//! Parameters of the kernels, and their limits.

use super::FEngine;
use super::launch::Cut;
use crate::f_engine::postproc::Layout;
use fxgraph::cuda::Properties;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, Ports, Rejection};

/// Range of channels that the kernels support.
const MIN_CHANNELS: usize = 1024;
const MAX_CHANNELS: usize = 32768;
/// Largest number of taps whose weights and samples fit in registers.
const MAX_TAPS: usize = 32;
/// The spectra per heap must be a multiple of this, so that kernels write whole words of a channel.
pub const HEAP_UNIT: usize = 16;

/// Parameters that the kernels are compiled for.
#[derive(Clone, Copy, Debug)]
pub struct KernelShape {
    pub channels: usize,
    pub pols: usize,
    pub taps: usize,
    pub sample_bits: usize,
    /// Whether samples are `i16` in the host's byte order instead of packed.
    pub native_samples: bool,
    /// Bits of each real and imaginary part of the output, 8 or 4.
    pub value_bits: usize,
    pub k_major: bool,
    pub spectra_per_heap: usize,
}

impl KernelShape {
    /// Parameters for a block with these ports.
    pub fn new(f_engine: &FEngine, ports: &Ports) -> Self {
        let samples = ports.inputs[0].dtype;
        Self {
            channels: f_engine.channels,
            pols: ports.inputs.len(),
            taps: f_engine.taps,
            sample_bits: samples.bits(),
            native_samples: samples == Dtype::I16,
            value_bits: usize::from(f_engine.bits),
            k_major: f_engine.layout == Layout::KMajor,
            spectra_per_heap: f_engine.spectra_per_heap,
        }
    }

    /// Diagnostics if the kernels do not support this shape, on `gpu` if there is one.
    pub fn rejections(&self, gpu: Option<&Properties>) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |at: At, message: String| {
            let help = "set `implementation: cpu`, or use `pfb`, `fft` and `postproc`";
            rejections.push(Rejection::new(codes::IMPLEMENTATION, at, message).help(help));
        };
        let is_known = (MIN_CHANNELS..=MAX_CHANNELS).contains(&self.channels);
        if !is_known || !self.channels.is_power_of_two() {
            let message = format!(
                "`two_pass` needs a power of two from {MIN_CHANNELS} to {MAX_CHANNELS} channels, got {}",
                self.channels
            );
            reject(At::Parameter("channels"), message);
        }
        if self.taps > MAX_TAPS {
            let message = format!("`two_pass` supports up to {MAX_TAPS} taps, got {}", self.taps);
            reject(At::Parameter("taps"), message);
        }
        if !self.spectra_per_heap.is_multiple_of(HEAP_UNIT) {
            let message = format!(
                "`two_pass` needs a multiple of {HEAP_UNIT} spectra per heap, got {}",
                self.spectra_per_heap
            );
            reject(At::Parameter("spectra_per_heap"), message);
        }
        if let (Some(gpu), true) = (gpu, rejections.is_empty())
            && let Err(message) = Cut::find(self, gpu)
        {
            rejections.push(Rejection::new(codes::IMPLEMENTATION, At::Implementation, message));
        }
        rejections
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::f_engine::f_engine::launch::tests::{h200, shape};

    #[test]
    fn two_pass_rejects_unsupported_shape_at_its_parameter() {
        for (shape, parameter) in [
            (shape(512), "channels"),
            (shape(65536), "channels"),
            (KernelShape { taps: 33, ..shape(1024) }, "taps"),
            (KernelShape { spectra_per_heap: 40, ..shape(1024) }, "spectra_per_heap"),
        ] {
            for gpu in [None, Some(&h200())] {
                let places: Vec<At> = shape.rejections(gpu).into_iter().map(|r| r.at).collect();
                assert_eq!(places, [At::Parameter(parameter)]);
            }
        }
    }
}
