#![doc = include_str!("README.md")]

mod bench;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod complex_tests;
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
use crate::f_engine::samples::host::{Baseband, Decoded};
use crate::f_engine::samples::input::{Sizes, is_complex, rate_hz, sample_rejections, ticks};
use fxgraph::DeviceName;
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::diagnostic::codes;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::kind::TunedBand;
use fxgraph::{
    At, Axis, Band, BlockError, Checked, Clock, Configured, Dtype, Env, Implementation,
    Implementations, Kind, KindSpec, LiveKind, PortType, Rejection, Resources, Sideband,
    ValidityType,
};
use fxgraph_dsp::low_pass::{LowPass, Mode};
use fxgraph_dsp::mixer::Mixer;

/// Output samples that share one validity flag and one centre frequency.
pub const HEAP_SAMPLES: usize = 256;
/// Largest number of input samples per output sample.
pub const MAX_SUBSAMPLING: usize = 64;
/// Largest number of taps, as a multiple of the input samples per output sample.
pub const MAX_TAPS_PER_SAMPLE: usize = 20;
/// Output samples of a frame of the default size: half a MiB, which fits in the caches of a core.
const FRAME_SAMPLES: usize = 1 << 16;
/// Output samples of a frame of the default size on a GPU; for shorter frames the launch costs too much.
const GPU_FRAME_SAMPLES: usize = 1 << 21;
/// Largest number of output samples of a frame.
const MAX_FRAME_SAMPLES: usize = 1 << 28;
/// Default of the part of the band that passes in the mode `no_discard`.
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
    /// Frequency in the samples that becomes the centre of the output, in Hz: 0 to half of the sample rate for real
    /// samples, and for complex ones relative to the centre of their band, of either sign.
    #[param(live)]
    pub centre_hz: f64,
    /// Factor by which the band gets narrower. The band of real samples is half of the sample rate wide, that of complex
    /// ones the sample rate. Even with `mode: discard`.
    pub decimation: usize,
    /// Place of the filter's transition bands: outside the band (`discard`) or inside it (`no_discard`).
    #[param(default)]
    pub mode: Mode,
    /// Taps of the low-pass filter. By default 16 for each input sample per output sample.
    pub taps: Option<usize>,
    /// Width of the pass band in the mode `no_discard`, in Hz; by default three quarters of the band. In the
    /// mode `discard` the whole band passes.
    pub pass_bandwidth_hz: Option<f64>,
    /// Weight of the ripple in the pass band for the filter's design; the stop bands have weight 1.
    #[param(default = 0.005)]
    pub pass_weight: f64,
    /// Samples of an output frame, a multiple of 256. By default 65536; on a GPU 2097152.
    pub samples_per_frame: Option<usize>,
    /// Threads that share the samples, 0 for all cores. By default 1, because a flowgraph of many
    /// blocks already uses the cores; set more if one stream is too much for one core.
    #[param(default = 1, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

impl Ddc {
    /// Input samples for each output sample, S. The samples of the output are complex, which need half of the rate of
    /// real ones.
    fn subsampling(&self, input: &PortType) -> usize {
        let of_real = match self.mode {
            Mode::Discard => self.decimation,
            Mode::NoDiscard => self.decimation.saturating_mul(2),
        };
        if is_complex(input) { of_real / 2 } else { of_real }
    }

    fn taps(&self, input: &PortType) -> usize {
        self.taps.unwrap_or(self.subsampling(input).saturating_mul(16))
    }

    fn frame_samples(&self) -> usize {
        self.samples_per_frame.unwrap_or(FRAME_SAMPLES)
    }

    /// Least and largest frequency of the input's samples, in Hz.
    fn edges_hz(input: &PortType) -> [f64; 2] {
        let half_hz = rate_hz(input) / 2.0;
        if is_complex(input) { [-half_hz, half_hz] } else { [0.0, half_hz] }
    }

    /// Width of the band in Hz.
    fn bandwidth_hz(&self, input: &PortType) -> f64 {
        let [least_hz, most_hz] = Self::edges_hz(input);
        (most_hz - least_hz) / self.decimation as f64
    }

    /// Band of the output, in sky frequency if the input has a band.
    fn band(&self, input: &PortType) -> Band {
        let sideband = input.sideband();
        let [least_hz, most_hz] = Self::edges_hz(input);
        let middle_hz = f64::midpoint(least_hz, most_hz);
        // Without a band, frequencies are those of the samples.
        let of_band_hz = input.band.map_or(middle_hz, |band| band.centre_hz);
        Band {
            channels: 1,
            first_channel: 0,
            centre_hz: of_band_hz + sideband.sign() * (self.centre_hz - middle_hz),
            bandwidth_hz: rate_hz(input) / self.subsampling(input) as f64,
            sideband,
        }
    }

    fn low_pass(&self, input: &PortType) -> LowPass {
        LowPass {
            mode: self.mode,
            subsampling: self.subsampling(input),
            taps: self.taps(input),
            pass: self.pass_bandwidth_hz.map_or(PASS, |hz| hz / self.bandwidth_hz(input)),
            pass_weight: self.pass_weight,
        }
    }

    /// Weights of the low-pass filter, `[tap]`.
    ///
    /// # Errors
    /// If the design of the filter does not converge.
    fn weights(&self, input: &PortType) -> Result<Vec<f64>, BlockError> {
        let low_pass = self.low_pass(input);
        low_pass.weights().ok_or_else(|| {
            BlockError::new(format!(
                "the design of a filter with {} taps does not converge; change `taps` or `pass_weight`",
                low_pass.taps
            ))
        })
    }

    fn mixer(&self, input: &PortType) -> Result<Mixer, BlockError> {
        let (weights, subsampling) = (self.weights(input)?, self.subsampling(input));
        Ok(Mixer::new(&weights, subsampling, self.centre_hz, rate_hz(input)))
    }

    /// Sizes for the schedule, which treats each heap of output samples as one spectrum.
    fn sizes(&self, input: &PortType) -> Sizes {
        let subsampling = self.subsampling(input);
        Sizes {
            ticks: ticks(input),
            step: subsampling * HEAP_SAMPLES,
            window: subsampling * (HEAP_SAMPLES - 1) + self.taps(input),
            spectra: self.frame_samples() / HEAP_SAMPLES,
            max_delay: 0,
            // Without delays there are no phases.
            sideband: Sideband::Upper,
        }
    }

    fn parameter_rejections(&self, input: &PortType) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |name, message: String, help: String| {
            rejections.push(Rejection::parameter(name, message).help(help));
        };
        let subsampling = self.subsampling(input);
        let is_divided = self.mode == Mode::NoDiscard || self.decimation.is_multiple_of(2);
        if !(2..=MAX_SUBSAMPLING).contains(&subsampling) || !is_divided {
            // Complex samples have twice the band of real ones at the same rate.
            let twice = if is_complex(input) { 2 } else { 1 };
            let (number, least, most) = match self.mode {
                Mode::Discard => ("an even number", 2 * twice, MAX_SUBSAMPLING * twice),
                Mode::NoDiscard => ("a number", twice, MAX_SUBSAMPLING / 2 * twice),
            };
            reject(
                "decimation",
                format!(
                    "`decimation` must be {number} from {least} to {most}, got {}",
                    self.decimation
                ),
                "set for example `decimation: 8`".to_owned(),
            );
            return rejections;
        }
        let taps = subsampling..=subsampling * MAX_TAPS_PER_SAMPLE;
        if !taps.contains(&self.taps(input)) {
            reject(
                "taps",
                format!(
                    "`taps` must be between {} and {} with this `decimation`, got {}",
                    taps.start(),
                    taps.end(),
                    self.taps(input)
                ),
                format!("omit it for the default of {}", 16 * subsampling),
            );
        }
        if !(1e-6..=1e6).contains(&self.pass_weight) {
            reject(
                "pass_weight",
                format!("`pass_weight` must be between 1e-6 and 1e6, got {}", self.pass_weight),
                "omit it for the default of 0.005".to_owned(),
            );
        }
        let samples = self.frame_samples();
        if samples == 0 || samples > MAX_FRAME_SAMPLES || !samples.is_multiple_of(HEAP_SAMPLES) {
            reject(
                "samples_per_frame",
                format!(
                    "`samples_per_frame` must be a multiple of {HEAP_SAMPLES} up to {MAX_FRAME_SAMPLES}, got {samples}"
                ),
                format!("omit it for the default of {FRAME_SAMPLES}"),
            );
        }
        if self.mode == Mode::Discard && self.pass_bandwidth_hz.is_some() {
            reject(
                "pass_bandwidth_hz",
                "`pass_bandwidth_hz` needs `mode: no_discard`; with `discard` the whole band passes"
                    .to_owned(),
                "omit it, or set `mode: no_discard`".to_owned(),
            );
        }
        rejections
    }

    /// Diagnostics for frequencies that do not fit the sample rate.
    fn band_rejections(&self, input: &PortType) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |name, message: String, help: String| {
            rejections.push(Rejection::parameter(name, message).help(help));
        };
        let ([least_hz, most_hz], half_hz) =
            (Self::edges_hz(input), self.bandwidth_hz(input) / 2.0);
        // NaN is in no range, so it is rejected too.
        if !(least_hz + half_hz..=most_hz - half_hz).contains(&self.centre_hz) {
            reject(
                "centre_hz",
                format!(
                    "a band of {} Hz around {} Hz is not within {least_hz} to {most_hz} Hz",
                    2.0 * half_hz,
                    self.centre_hz
                ),
                format!("set `centre_hz` between {} and {}", least_hz + half_hz, most_hz - half_hz),
            );
        }
        let (least_hz, most_hz) = (0.0198 * half_hz, 1.98 * half_hz);
        if let Some(hz) = self.pass_bandwidth_hz.filter(|hz| !(least_hz..=most_hz).contains(hz)) {
            reject(
                "pass_bandwidth_hz",
                format!(
                    "`pass_bandwidth_hz` must be between {least_hz} and {most_hz} for a band of {} Hz, got {hz}",
                    2.0 * half_hz
                ),
                "set a narrower pass band: the filter needs the rest of the band for its slope"
                    .to_owned(),
            );
        }
        rejections
    }
}

/// Sets the metric of the filter's group delay.
fn show_group_delay(block: &Configured<Ddc>, env: &Env) {
    let input = &block.ports.inputs[0];
    let (taps, tick_rate_hz) = (block.parameters.taps(input), input.clock.adc_sample_rate_hz);
    delay::show_group_delay(&env.counters, taps, block.shape.ticks, tick_rate_hz);
}

impl KindSpec for Ddc {
    type Shape = Sizes;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| {
            show_group_delay(block, env);
            let Configured { parameters: ddc, ports, shape, .. } = block;
            if is_complex(&ports.inputs[0]) {
                Ok(Box::new(cpu::Cpu::<Baseband>::new(ddc, *shape, ports, env)?))
            } else {
                Ok(Box::new(cpu::Cpu::<Decoded>::new(ddc, *shape, ports, env)?))
            }
        }),
        Implementation::<Self>::cuda(
            "cuda",
            "half-precision matrix products on tensor cores; for complex samples single-precision arithmetic",
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
        let mut rejections = self.parameter_rejections(input);
        rejections.extend(sample_rejections(Self::NAME, 0, input));
        if rejections.is_empty() {
            rejections.extend(self.band_rejections(input));
        }
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let (samples, ticks, subsampling) =
            (self.frame_samples(), ticks(input), self.subsampling(input));
        if (samples * subsampling) as u64 > MAX_TIMESTAMP / ticks as u64 {
            let message = format!(
                "a frame of {samples} samples exceeds the range of timestamps: each takes {subsampling} samples of \
                 {ticks} ticks"
            );
            return Err(vec![Rejection::new(codes::RATE, At::Input(0), message)]);
        }
        let heap = Axis::new("heap", samples / HEAP_SAMPLES).from_parameter("samples_per_frame");
        let output = PortType {
            dtype: Dtype::Cf32,
            axes: vec![Axis::new("sample", samples).from_parameter("samples_per_frame")],
            clock: Clock {
                samples_per_frame: (samples * subsampling * ticks) as u64,
                ..input.clock.behind_filter((self.taps(input) * ticks) as f64, ticks as f64)
            },
            band: Some(self.band(input)),
            validity: ValidityType::flags(vec![heap]),
        };
        Ok((self.sizes(input), vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let (ddc, input) = (&block.parameters, &block.ports.inputs[0]);
        let parts = if is_complex(input) { 2 } else { 1 };
        let operations = 4 * parts * ddc.taps(input) + 6;
        Resources {
            host_bytes: cpu::host_bytes(ddc, input, &block.shape),
            holds: vec![1],
            operations_per_frame: ddc.frame_samples() as f64 * operations as f64,
            ..Resources::default()
        }
    }

    fn tuned_band(block: &Configured<Self>) -> Option<TunedBand> {
        let (ddc, input) = (&block.parameters, &block.ports.inputs[0]);
        Some(TunedBand {
            parameter: "centre_hz",
            value_hz: ddc.centre_hz,
            bandwidth_hz: ddc.bandwidth_hz(input),
            edges_hz: Self::edges_hz(input),
        })
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
        Ok(Live::Mixer(new.parameters.mixer(&new.ports.inputs[0])?))
    }
}
