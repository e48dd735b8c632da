//! What the kernels are compiled for, and what they cannot do.

use super::FEngine;
use super::cut::Cut;
use crate::f_engine::postproc::Layout;
use fxgraph::cuda::Properties;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, Ports, Refusal};

/// Channels that the kernels can make.
const MIN_CHANNELS: usize = 1024;
const MAX_CHANNELS: usize = 32768;
/// Most taps whose weights and samples fit the registers.
const MAX_TAPS: usize = 32;
/// Spectra of a heap are a multiple of this, so that whole words of a channel are written.
pub const HEAP_UNIT: usize = 16;

/// What the kernels are compiled for.
#[derive(Clone, Copy, Debug)]
pub struct KernelShape {
    pub channels: usize,
    pub pols: usize,
    pub taps: usize,
    pub sample_bits: usize,
    /// Samples are 16-bit integers of the host.
    pub native_samples: bool,
    /// 8 or 4.
    pub value_bits: usize,
    pub k_major: bool,
    pub spectra_per_heap: usize,
}

impl KernelShape {
    /// Of a block between these ports.
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

    /// Why the kernels cannot do this, on `gpu` if there is one.
    pub fn refusals(&self, gpu: Option<&Properties>) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut refuse = |at: At, message: String, help: String| {
            let help =
                format!("{help}; `implementation: cpu`, or `pfb`, `fft` and `postproc`, do others");
            refusals.push(Refusal::new(codes::IMPLEMENTATION, at, message).help(help));
        };
        if !(MIN_CHANNELS..=MAX_CHANNELS).contains(&self.channels) {
            let message = format!("`two_pass` cannot make {} channels", self.channels);
            let help = format!("it makes {MIN_CHANNELS} to {MAX_CHANNELS}");
            refuse(At::Parameter("channels"), message, help);
        }
        if self.taps > MAX_TAPS {
            let message = format!("`two_pass` cannot filter with {} taps", self.taps);
            let help = format!("the weights of up to {MAX_TAPS} stay in registers");
            refuse(At::Parameter("taps"), message, help);
        }
        if !self.spectra_per_heap.is_multiple_of(HEAP_UNIT) {
            let message =
                format!("`two_pass` cannot make heaps of {} spectra", self.spectra_per_heap);
            let help = format!("it makes them of {HEAP_UNIT} spectra each: give a multiple");
            refuse(At::Parameter("spectra_per_heap"), message, help);
        }
        if let (Some(gpu), true) = (gpu, refusals.is_empty())
            && let Err(message) = Cut::find(self, gpu)
        {
            refusals.push(Refusal::new(codes::IMPLEMENTATION, At::Implementation, message));
        }
        refusals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::f_engine::f_engine::cut::tests::{h200, shape};

    #[test]
    fn what_the_kernels_cannot_make_is_refused_at_its_parameter() {
        for (shape, parameter) in [
            (shape(512), "channels"),
            (shape(65536), "channels"),
            (KernelShape { taps: 33, ..shape(1024) }, "taps"),
            (KernelShape { spectra_per_heap: 40, ..shape(1024) }, "spectra_per_heap"),
        ] {
            for gpu in [None, Some(&h200())] {
                let places: Vec<At> = shape.refusals(gpu).into_iter().map(|r| r.at).collect();
                assert_eq!(places, [At::Parameter(parameter)]);
            }
        }
    }
}
