#![doc = include_str!("README.md")]

pub mod conformance;
pub(crate) mod cpu;
mod cuda;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::common::parallel::MAX_THREADS;
use crate::common::spectra::{self, MIN_CHANNELS, Shape, can_be_channels};
use fxgraph::DeviceName;
use fxgraph::cuda::GpuMapped;
use fxgraph::diagnostic::codes;
use fxgraph::examples::Case;
use fxgraph::{
    At, Axis, Band, Checked, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    Mapped, PortType, Rejection, Resources,
};

/// Parameters of the block `fft`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "fft",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Fft {
    /// Threads that share the spectra, 0 for all cores. By default 1, because a flowgraph of many
    /// blocks already uses the cores; set more if one antenna is too much for one core.
    #[param(default = 1, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

impl KindSpec for Fft {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, _| {
            let is_complex = spectra::are_complex(&block.ports.inputs[0]);
            let threads = block.parameters.threads;
            Ok(Box::new(Mapped(cpu::Cpu::new(block.shape, is_complex, threads)?)))
        }),
        Implementation::<Self>::cuda("cuda", "uses cuFFT", |block, env| {
            let is_complex = spectra::are_complex(&block.ports.inputs[0]);
            GpuMapped::build(env, |pipeline| cuda::Cuda::new(block.shape, is_complex, pipeline))
        })
        .device_bytes(|block| {
            // For longer transforms than these, and for other factors than 2, cuFFT may need a temporary frame.
            const ONE_PASS: usize = 8192;
            let points = block.shape.channels / block.shape.unzip;
            let is_short = points <= ONE_PASS && points.is_power_of_two();
            if is_short { 0 } else { block.ports.outputs[0].frame_bytes() }
        }),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let input = &inputs[0];
        let Some(shape) = Shape::of_samples(input) else {
            let message = format!("`fft` cannot transform `{input}`");
            let help = "connect the output of `pfb`: f32 or cf32 [pol][spectrum][sample], or cf32 \
                        with [unzip] before [sample]";
            let rejection = Rejection::new(codes::INPUT_AXIS, At::Input(0), message);
            return Err(vec![rejection.help(help)]);
        };
        if !can_be_channels(shape.channels) {
            let message = format!(
                "the number of channels must be even, at least {MIN_CHANNELS}, with the prime factors 2, 3 and 5, got {}",
                shape.channels
            );
            let at = At::InputAxis(0, "sample");
            let help = "set `channels` of the `pfb` upstream, for example to 1024";
            return Err(vec![Rejection::new(codes::INPUT_AXIS, at, message).help(help)]);
        }
        let mut output = input.clone();
        output.dtype = Dtype::Cf32;
        if let Some(last) = output.axes.last_mut() {
            let origin = last.origin.clone();
            *last = Axis::new("channel", shape.channels / shape.unzip);
            last.origin = origin;
        }
        let spectra_hz = input.clock.adc_sample_rate_hz / shape.step.max(1) as f64;
        let bandwidth_hz = spectra_hz * shape.channels as f64;
        output.band.get_or_insert(Band {
            channels: shape.channels,
            first_channel: 0,
            centre_hz: if spectra::are_complex(input) { 0.0 } else { bandwidth_hz / 2.0 },
            bandwidth_hz,
            sideband: fxgraph::Sideband::Upper,
        });
        Ok((shape, vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let shape = &block.shape;
        let transforms = (shape.pols * shape.spectra) as f64;
        let channels = shape.channels as f64;
        Resources {
            // Twiddle factors of the plan, and scratch memory.
            host_bytes: 4 * 8 * shape.channels,
            operations_per_frame: transforms * 5.0 * channels * channels.log2(),
            ..Resources::default()
        }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }
}
