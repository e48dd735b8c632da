#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod filter_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::common::delay;
use crate::common::live::Live;
use crate::common::parallel::MAX_THREADS;
use crate::f_engine::samples::input::digitised_refusals;
use crate::f_engine::samples::schedule::Sizes;
use fxgraph::DeviceName;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::{
    Axis, Band, BlockError, Checked, Clock, Configured, Dtype, Env, Implementation,
    Implementations, Kind, KindSpec, LiveKind, PortType, Refusal, Resources, ValidityType,
};
use fxgraph_dsp::low_pass::{LowPass, Mode};
use fxgraph_dsp::mixer::Mixer;

/// Output samples that are valid, or retuned, together.
pub const HEAP_SAMPLES: usize = 256;
/// Most input samples for each output sample.
pub const MAX_SUBSAMPLING: usize = 64;
/// Most taps for each input sample that an output sample stands for.
pub const MAX_TAPS_PER_SAMPLE: usize = 20;
/// Output samples of a frame of the default size: half a MiB, which stays in the caches of a core.
const FRAME_SAMPLES: usize = 1 << 16;
/// The same on a GPU, for which less is not worth the launch.
const GPU_FRAME_SAMPLES: usize = 1 << 21;
/// Most output samples of a frame.
const MAX_FRAME_SAMPLES: usize = 1 << 28;
/// Part of the band that passes in the mode `no_discard` unless the parameters say otherwise.
const PASS: f64 = 0.75;

/// Parameters of the block `ddc`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "ddc",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Ddc {
    /// Frequency in the sampled band, 0 to half of the sample rate, that becomes the centre of the
    /// output, in Hz.
    #[param(live)]
    pub centre_hz: f64,
    /// How much narrower the band gets: it is 1/decimation of half of the sample rate. An even number
    /// with `mode: discard`.
    pub decimation: usize,
    /// What becomes of the edges of the band.
    #[param(default)]
    pub mode: Mode,
    /// Weights of the low-pass filter. By default 16 for each input sample that an output sample
    /// stands for.
    pub taps: Option<usize>,
    /// Width of what passes undiminished, in Hz, in the mode `no_discard`; by default three quarters
    /// of the band. In the mode `discard` it is the whole band.
    pub pass_bandwidth_hz: Option<f64>,
    /// How much ripple in the pass band counts for the filter's design, against 1 for what comes
    /// through from the stop bands.
    #[param(default = 0.005)]
    pub pass_weight: f64,
    /// Samples of an output frame, a multiple of 256. By default 65536; on a GPU 2097152.
    pub samples_per_frame: Option<usize>,
    /// Threads that share the samples, 0 for all cores. By default 1, because a flowgraph of many
    /// blocks already uses the cores; give more where one stream alone is too much for a core.
    #[param(default = 1, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

impl Ddc {
    /// Input samples for each output sample, S.
    fn subsampling(&self) -> usize {
        match self.mode {
            Mode::Discard => self.decimation,
            Mode::NoDiscard => self.decimation.saturating_mul(2),
        }
    }

    fn taps(&self) -> usize {
        self.taps.unwrap_or(self.subsampling().saturating_mul(16))
    }

    fn frame_samples(&self) -> usize {
        self.samples_per_frame.unwrap_or(FRAME_SAMPLES)
    }

    /// Width of the band in Hz.
    fn bandwidth_hz(&self, rate_hz: f64) -> f64 {
        rate_hz / 2.0 / self.decimation as f64
    }

    /// The part of the band in the output; of the sky, if the input says where it is from.
    fn band(&self, input: &PortType) -> Band {
        let rate_hz = input.clock.adc_sample_rate_hz;
        let (quarter_hz, width_hz) = (rate_hz / 4.0, rate_hz / self.subsampling() as f64);
        // In a Nyquist zone that is turned round the width is negative.
        let sampled = input.band.map(|band| (band.centre_hz, band.bandwidth_hz.signum()));
        let (middle_hz, sign) = sampled.unwrap_or((quarter_hz, 1.0));
        Band {
            channels: 1,
            first_channel: 0,
            centre_hz: middle_hz + sign * (self.centre_hz - quarter_hz),
            bandwidth_hz: sign * width_hz,
        }
    }

    fn low_pass(&self, rate_hz: f64) -> LowPass {
        LowPass {
            mode: self.mode,
            subsampling: self.subsampling(),
            taps: self.taps(),
            pass: self.pass_bandwidth_hz.map_or(PASS, |hz| hz / self.bandwidth_hz(rate_hz)),
            pass_weight: self.pass_weight,
        }
    }

    /// The weights of the low-pass filter.
    fn weights(&self, rate_hz: f64) -> Result<Vec<f64>, BlockError> {
        let low_pass = self.low_pass(rate_hz);
        low_pass.weights().ok_or_else(|| {
            BlockError::new(format!(
                "no filter of {} taps for these bands can be computed; give it other `taps`, or another `pass_weight`",
                low_pass.taps
            ))
        })
    }

    fn mixer(&self, rate_hz: f64) -> Result<Mixer, BlockError> {
        Ok(Mixer::new(&self.weights(rate_hz)?, self.subsampling(), self.centre_hz, rate_hz))
    }

    /// Sizes in which a heap of output samples stands for a spectrum.
    fn sizes(&self) -> Sizes {
        let subsampling = self.subsampling();
        Sizes {
            subsampling: 1,
            step: subsampling * HEAP_SAMPLES,
            window: subsampling * (HEAP_SAMPLES - 1) + self.taps(),
            spectra: self.frame_samples() / HEAP_SAMPLES,
            max_delay: 0,
        }
    }

    fn parameter_refusals(&self) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut refuse = |name, message: String, help: String| {
            refusals.push(Refusal::parameter(name, message).help(help));
        };
        let subsampling = self.subsampling();
        if !(2..=MAX_SUBSAMPLING).contains(&subsampling) || !subsampling.is_multiple_of(2) {
            let (least, most) = match self.mode {
                Mode::Discard => ("even numbers from 2", MAX_SUBSAMPLING),
                Mode::NoDiscard => ("numbers from 1", MAX_SUBSAMPLING / 2),
            };
            refuse(
                "decimation",
                format!("the band cannot be made {} times narrower", self.decimation),
                format!("{least} to {most} are possible in this mode"),
            );
            return refusals;
        }
        let taps = subsampling..=subsampling * MAX_TAPS_PER_SAMPLE;
        if !taps.contains(&self.taps()) {
            refuse(
                "taps",
                format!("`ddc` cannot filter with {} taps here", self.taps()),
                format!(
                    "{} to {} are possible, {} are usual",
                    taps.start(),
                    taps.end(),
                    16 * subsampling
                ),
            );
        }
        if !(1e-6..=1e6).contains(&self.pass_weight) {
            refuse(
                "pass_weight",
                format!("a weight of {} is out of range", self.pass_weight),
                "1e-6 to 1e6 are possible, 0.005 is usual".to_owned(),
            );
        }
        let samples = self.frame_samples();
        if samples == 0 || samples > MAX_FRAME_SAMPLES || !samples.is_multiple_of(HEAP_SAMPLES) {
            refuse(
                "samples_per_frame",
                format!("a frame cannot have {samples} samples"),
                format!("multiples of {HEAP_SAMPLES} up to {MAX_FRAME_SAMPLES} are possible"),
            );
        }
        if self.mode == Mode::Discard && self.pass_bandwidth_hz.is_some() {
            refuse(
                "pass_bandwidth_hz",
                "with `mode: discard` the whole band passes".to_owned(),
                "leave it out, or use `mode: no_discard`".to_owned(),
            );
        }
        refusals
    }

    /// Refuses frequencies that do not fit the sample rate.
    fn band_refusals(&self, rate_hz: f64) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut refuse = |name, message: String, help: String| {
            refusals.push(Refusal::parameter(name, message).help(help));
        };
        let (whole_hz, half_hz) = (rate_hz / 2.0, self.bandwidth_hz(rate_hz) / 2.0);
        // Written so that NaN is refused too.
        if !(half_hz..=whole_hz - half_hz).contains(&self.centre_hz) {
            refuse(
                "centre_hz",
                format!(
                    "a band of {} Hz around {} Hz does not lie within 0 to {whole_hz} Hz",
                    2.0 * half_hz,
                    self.centre_hz
                ),
                format!("{half_hz} to {} Hz are possible", whole_hz - half_hz),
            );
        }
        let (least_hz, most_hz) = (0.0198 * half_hz, 1.98 * half_hz);
        if let Some(hz) = self.pass_bandwidth_hz.filter(|hz| !(least_hz..=most_hz).contains(hz)) {
            refuse(
                "pass_bandwidth_hz",
                format!("{hz} Hz cannot be what passes of a band of {} Hz", 2.0 * half_hz),
                format!(
                    "{least_hz} to {most_hz} Hz are possible: the filter needs the rest of the band for its slope"
                ),
            );
        }
        refusals
    }
}

/// Shows the group delay of the filter.
fn show_group_delay(block: &Configured<Ddc>, env: &Env) {
    let rate_hz = block.ports.inputs[0].clock.adc_sample_rate_hz;
    delay::show_group_delay(&env.counters, block.parameters.taps(), 1, rate_hz);
}

impl KindSpec for Ddc {
    type Shape = Sizes;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| {
            show_group_delay(block, env);
            Ok(Box::new(cpu::Cpu::new(&block.parameters, block.shape, &block.ports, env)?))
        }),
        Implementation::<Self>::cuda(
            "cuda",
            "products of matrices of halves on tensor cores",
            |block, env| {
                show_group_delay(block, env);
                let Configured { parameters, ports, shape, .. } = block;
                Ok(Box::new(cuda::Converter::block(parameters, *shape, ports, env)?))
            },
        )
        .suited(|mut ddc| {
            ddc.samples_per_frame.get_or_insert(GPU_FRAME_SAMPLES);
            ddc
        })
        .tunable(|block| Some(cuda::tunable(&block.parameters, &block.ports)))
        .device_bytes(|block| cuda::device_bytes(&block.parameters, &block.shape, &block.ports)),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Sizes> {
        let input = &inputs[0];
        let mut refusals = self.parameter_refusals();
        refusals.extend(digitised_refusals(Self::NAME, 0, input));
        if refusals.is_empty() {
            refusals.extend(self.band_refusals(input.clock.adc_sample_rate_hz));
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let (samples, subsampling) = (self.frame_samples(), self.subsampling());
        let heap = Axis::new("heap", samples / HEAP_SAMPLES).from_parameter("samples_per_frame");
        let output = PortType {
            dtype: Dtype::Cf32,
            axes: vec![Axis::new("sample", samples).from_parameter("samples_per_frame")],
            clock: Clock { samples_per_frame: (samples * subsampling) as u64, ..input.clock },
            band: Some(self.band(input)),
            validity: ValidityType::flags(vec![heap]),
        };
        Ok((self.sizes(), vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let ddc = &block.parameters;
        Resources {
            host_bytes: cpu::host_bytes(ddc, &block.shape),
            holds: vec![1],
            operations_per_frame: ddc.frame_samples() as f64 * (4 * ddc.taps() + 6) as f64,
            ..Resources::default()
        }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        bench::benchmarks(device)
    }
}

impl LiveKind for Ddc {
    type Value = Live;

    fn live_value(
        new: &Configured<Self>,
        DdcLive::CentreHz: DdcLive,
        _: &Configured<Self>,
    ) -> Result<Live, BlockError> {
        let rate_hz = new.ports.inputs[0].clock.adc_sample_rate_hz;
        Ok(Live::Mixer(new.parameters.mixer(rate_hz)?))
    }
}
