#![doc = include_str!("README.md")]

pub mod conformance;
pub(crate) mod cpu;
mod cuda;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::common::parallel::{one_thread, refuse_threads};
use crate::common::spectra::{self, Shape};
use fxgraph::DeviceName;
use fxgraph::diagnostic::codes;
use fxgraph::examples::Case;
use fxgraph::{
    At, Axis, Band, Block, BlockError, CPU, Dtype, Env, Implementation, Kind, PortNames, PortType,
    Ports, Refusal, Resources,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of the block `fft`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fft {
    /// Threads that share the spectra, 0 for all cores. By default 1, because a flowgraph of many
    /// blocks already uses the cores; give more where one antenna alone is too much for a core.
    #[serde(default = "one_thread")]
    pub threads: usize,
}

impl Kind for Fft {
    const NAME: &'static str = "fft";
    const DOC: &'static str = include_str!("README.md");
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);
    const IMPLEMENTATIONS: &'static [Implementation] =
        &[CPU, Implementation::cuda("cuda", "with the library cuFFT")];

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let mut refusals = Vec::from_iter(refuse_threads(self.threads));
        let input = &inputs[0];
        let shape = Shape::of_samples(input);
        match shape {
            None => {
                let message = format!("`fft` cannot transform `{input}`");
                refusals.push(Refusal::new(codes::INPUT_AXIS, At::Input(0), message).help(
                    "it takes f32 or cf32 [pol][spectrum][sample], or cf32 [pol][spectrum][unzip][sample]",
                ));
            }
            Some(shape) if !shape.channels.is_power_of_two() || shape.channels < 4 => {
                let message = format!("`fft` cannot make {} channels", shape.channels);
                let at = At::InputAxis(0, "sample");
                let help = "the number of channels must be a power of two, at least 4";
                refusals.push(Refusal::new(codes::INPUT_AXIS, at, message).help(help));
            }
            Some(_) => {}
        }
        let Some(shape) = shape.filter(|_| refusals.is_empty()) else { return Err(refusals) };
        let mut output = input.clone();
        output.dtype = Dtype::Cf32;
        if let Some(last) = output.axes.last_mut() {
            let origin = last.origin.clone();
            *last = Axis::new("channel", shape.channels / shape.unzip);
            last.origin = origin;
        }
        let rate_hz = input.clock.adc_sample_rate_hz;
        output.band.get_or_insert(Band {
            channels: shape.channels,
            first_channel: 0,
            centre_hz: if spectra::are_complex(input) { 0.0 } else { rate_hz / 4.0 },
            bandwidth_hz: rate_hz * shape.channels as f64 / shape.step.max(1) as f64,
        });
        Ok(vec![output])
    }

    fn resources(&self, ports: &Ports) -> Resources {
        let Some(shape) = Shape::of_samples(&ports.inputs[0]) else { return Resources::default() };
        let transforms = (shape.pols * shape.spectra) as f64;
        let channels = shape.channels as f64;
        Resources {
            // Twiddles of the plan, and scratch.
            host_bytes: 4 * 8 * shape.channels,
            operations_per_frame: transforms * 5.0 * channels * channels.log2(),
            ..Resources::default()
        }
    }

    fn device_bytes(&self, ports: &Ports, _implementation: &str) -> usize {
        // Longer transforms than these take the library two passes, with a frame in between.
        const ONE_PASS: usize = 8192;
        let is_short = |shape: Shape| shape.channels / shape.unzip <= ONE_PASS;
        let needs_none = Shape::of_samples(&ports.inputs[0]).is_none_or(is_short);
        if needs_none { 0 } else { ports.outputs[0].frame_bytes() }
    }

    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        let shape = Shape::of_samples(&ports.inputs[0])
            .ok_or_else(|| BlockError::new("the input of `fft` is neither real nor unzipped"))?;
        let is_complex = spectra::are_complex(&ports.inputs[0]);
        match env.implementation {
            "cuda" => Ok(Box::new(cuda::Cuda::new(shape, is_complex, env)?)),
            _ => Ok(Box::new(cpu::Cpu::new(shape, is_complex, self.threads)?)),
        }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }
}
