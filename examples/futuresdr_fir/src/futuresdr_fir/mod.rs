#![doc = include_str!("README.md")]

#[cfg(test)]
mod tests;

use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Block, BlockError, Checked, Configured, Dtype, Env, Implementation, Implementations, Kind,
    KindSpec, PortType, Ports, Rejection, Resources,
};
use fxgraph_futuresdr::futuresdr::blocks::{Fir, FirBuilder};
use fxgraph_futuresdr::futuresdr::futuredsp::{
    DecimatingFirFilter, Filter, firdes::lowpass, windows::hamming,
};
use fxgraph_futuresdr::{BUFFER_BYTES, Host, Sample, Timing};
use num_complex::Complex32;

/// Largest number of taps for which FutureSDR's stream buffers have room.
const MAX_TAPS: usize = 4095;
/// Largest decimation for which FutureSDR's stream buffers have room.
const MAX_DECIMATION: usize = 1024;

/// Parameters of `futuresdr_fir`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "futuresdr_fir",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct FuturesdrFir {
    /// Frequency at which the amplitude is one half, in Hz; less than half of the sample rate.
    pub cutoff_hz: f64,
    /// Number of filter taps, odd, up to 4095.
    #[param(default = 63, range = 1..=MAX_TAPS)]
    pub taps: usize,
    /// Number of input samples per output sample, 1 to 1024.
    #[param(default = 1, range = 1..=MAX_DECIMATION)]
    pub decimation: usize,
    /// Number of samples of an output frame; by default that of an input frame divided by `decimation`.
    pub samples_per_frame: Option<usize>,
}

impl FuturesdrFir {
    fn timing(&self) -> Timing {
        Timing::fir(self.taps, self.decimation)
    }

    fn taps(&self, input: &PortType) -> Vec<f32> {
        lowpass(self.cutoff_hz / sample_rate_hz(input), &hamming(self.taps, false))
    }

    fn host<T: Sample>(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError>
    where
        DecimatingFirFilter<T, T, Vec<f32>>: Filter<T, T, f32> + Send,
    {
        let (decimation, taps) = (self.decimation, self.taps(&ports.inputs[0]));
        let host = Host::<T, T>::new(&self.timing(), ports, env, move |graph| {
            let filter: Fir<T, T, f32, _> =
                FirBuilder::decimating_with_taps::<T, T, Vec<f32>>(decimation, taps.clone());
            let filter = graph.add(filter)?;
            graph.chain(&[filter])
        })?;
        Ok(Box::new(host))
    }
}

fn sample_rate_hz(input: &PortType) -> f64 {
    input.clock.frames_per_second() * input.elements() as f64
}

impl KindSpec for FuturesdrFir {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> =
        &[Implementation::cpu(|block, env| match block.ports.inputs[0].dtype {
            Dtype::F32 => block.parameters.host::<f32>(&block.ports, env),
            _ => block.parameters.host::<Complex32>(&block.ports, env),
        })];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        let input = &inputs[0];
        let mut rejections = Vec::new();
        if self.taps.is_multiple_of(2) {
            let message = format!("`taps` must be odd, got {}", self.taps);
            rejections.push(Rejection::parameter("taps", message));
        }
        let half_hz = sample_rate_hz(input) / 2.0;
        if !(self.cutoff_hz > 0.0 && self.cutoff_hz < half_hz) {
            let message = format!(
                "`cutoff_hz` must be greater than 0 and less than {half_hz}, got {}",
                self.cutoff_hz
            );
            rejections.push(Rejection::parameter("cutoff_hz", message));
        }
        if ![Dtype::F32, Dtype::Cf32].contains(&input.dtype) {
            let message = format!("`futuresdr_fir` needs f32 or cf32 samples, got `{input}`");
            let help = "insert a `convert` or a `ddc` before this block";
            rejections.push(Rejection::new(codes::INPUT_DTYPE, At::Input(0), message).help(help));
        }
        if !rejections.is_empty() {
            return Err(rejections);
        }
        Ok(((), vec![self.timing().output(input, input.dtype, self.samples_per_frame)?]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let output = &block.ports.outputs[0];
        // One multiplication and one addition per tap, for each part of a complex sample.
        let parts = if output.dtype == Dtype::Cf32 { 2.0 } else { 1.0 };
        let operations_per_frame =
            2.0 * parts * (output.elements() * block.parameters.taps) as f64;
        // One buffer before and one after the filter.
        let host_bytes = 2 * BUFFER_BYTES;
        Resources { host_bytes, operations_per_frame, ..Resources::default() }
    }
}
