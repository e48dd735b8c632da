#![doc = include_str!("README.md")]

mod cpu;
#[cfg(test)]
mod tests;

use crate::common::parallel::{MAX_THREADS, threads_for};
use crate::gnss::samples::Samples;
use crate::gnss::satellites::{narrow_bands, reject_satellites};
use crate::gnss::weights::{Array, Weight, live_weights, reject_weights};
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Axis, BlockError, Checked, Configured, Dtype, Implementation, Implementations, Kind,
    KindSpec, LiveKind, PortType, Rejection, Resources, ValidityType,
};
pub use fxgraph_dsp::gnss::acquisition::{Acquired, VALUES};
use fxgraph_dsp::gnss::acquisition::{FrameSearch, Settings};
use fxgraph_dsp::gnss::{Satellite, System};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Deserialize;

/// Names of the values of a satellite in the output, in order.
pub const LABELS: [&str; VALUES] =
    ["system", "satellite", "statistic", "threshold", "doppler_hz", "code_phase_chips"];
/// Parameters of `gnss_acquisition`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "gnss_acquisition",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct GnssAcquisition {
    /// Satellites to search for.
    pub satellites: Vec<Candidate>,
    /// Largest Doppler shift of either sign, in Hz.
    #[param(default = 5000.0)]
    pub max_doppler_hz: f64,
    /// Frequency of the carrier in the samples without Doppler shift, in Hz; by default that of the input's band, or 0
    /// without a band.
    pub intermediate_hz: Option<f64>,
    /// Probability of a false detection, per satellite and search.
    #[param(default = 1e-3)]
    pub false_alarm_probability: f64,
    /// Period of the search in frames, beginning with the first frame.
    #[param(default = 50)]
    pub every_frames: u64,
    /// Weights of the antennas in the sum that is searched, `{re, im}` each; needed with several antennas.
    #[param(default, live)]
    pub weights: Vec<Weight>,
    /// Threads that share the Doppler shifts, 0 for all cores.
    #[param(default, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// A satellite to search for.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Signal, such as `gps_l1_ca`; the page of `gnss_correlator` lists all.
    pub system: System,
    /// Number of the satellite, such as 1 to 37 for `gps_l1_ca` and 193 to 202 for `qzss_l1_ca`.
    pub prn: usize,
}

/// Length of frames that suits codes of up to 8 ms.
const FRAME_SECONDS: f64 = 0.02;
/// Frames of `sample_source` are a multiple of this number of samples by default.
const HEAP_SAMPLES: f64 = 1024.0;
/// Largest Doppler shift in Hz: no orbit has more.
const MAX_DOPPLER_HZ: f64 = 1e5;

impl GnssAcquisition {
    fn settings(&self, samples: &Samples) -> Settings {
        Settings {
            samples: samples.samples,
            rate_hz: samples.rate_hz,
            carriers: samples.carriers,
            max_doppler_hz: self.max_doppler_hz,
            false_alarm_probability: self.false_alarm_probability,
        }
    }

    fn samples(&self, input: &PortType) -> Result<Samples, Vec<Rejection>> {
        let mut rejections = Vec::new();
        let samples = Samples::of_port(input, 0, self.intermediate_hz)
            .map_err(|more| rejections.extend(more))
            .ok();
        let mut reject = |parameter, message: String, help: &str| {
            rejections.push(Rejection::parameter(parameter, message).help(help));
        };
        let is_good = self.max_doppler_hz >= 0.0 && self.max_doppler_hz <= MAX_DOPPLER_HZ;
        if !is_good {
            let message = format!(
                "`max_doppler_hz` must be between 0 and 100000, got {}",
                self.max_doppler_hz
            );
            reject("max_doppler_hz", message, "5000 is the default");
        }
        let max_doppler_hz = if is_good { self.max_doppler_hz } else { 0.0 };
        let probability = self.false_alarm_probability;
        let is_good = probability > 0.0 && probability < 1.0;
        if !is_good {
            let message =
                format!("`false_alarm_probability` must be above 0 and below 1, got {probability}");
            reject("false_alarm_probability", message, "0.001 is the default");
        }
        if self.every_frames == 0 {
            let message = "`every_frames` must be at least 1, got 0".to_owned();
            reject("every_frames", message, "give 1 to search all frames");
        }
        // The search grid is defined for valid parameters only.
        if let (Some(samples), true) = (samples, rejections.is_empty()) {
            for system in System::ALL {
                let is_searched = self.satellites.iter().any(|s| s.system == system);
                if is_searched && !self.settings(&samples).can_search(system) {
                    let message = format!(
                        "frames for {} must have at least two periods of the code and fewer than 2^26 \
                         samples, got {} samples",
                        system.name(),
                        samples.samples
                    );
                    let at = At::InputAxis(0, "sample");
                    let seconds = (2.5 * system.period_seconds()).max(FRAME_SECONDS);
                    let heaps = (seconds * samples.rate_hz / HEAP_SAMPLES).ceil();
                    let help = format!(
                        "give the source frames of {:.0} ms, for example `samples_per_frame: {}`",
                        1e3 * seconds,
                        heaps * HEAP_SAMPLES
                    );
                    rejections.push(Rejection::new(codes::INPUT_AXIS, at, message).help(help));
                }
            }
        }
        let carrier_hz = |system| samples.map_or(0.0, |samples| samples.carrier_hz(system));
        let edge = |candidate: &Candidate| Satellite {
            system: candidate.system,
            prn: candidate.prn,
            // The end of the search range farther from 0 may leave the band.
            doppler_hz: max_doppler_hz.copysign(carrier_hz(candidate.system)),
            code_phase_chips: 0.0,
            carrier_turns: 0.0,
            at_timestamp: 0,
        };
        let edges: Vec<_> = self.satellites.iter().map(edge).collect();
        rejections.extend(reject_satellites(edges.iter(), samples.as_ref()));
        if let Some(samples) = &samples {
            rejections.extend(reject_weights(&self.weights, samples));
        }
        samples.filter(|_| rejections.is_empty()).ok_or(rejections)
    }
}

impl KindSpec for GnssAcquisition {
    type Shape = Samples;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        Ok(Box::new(cpu::Acquisition::new(&block.parameters, block.shape, env)?))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Samples> {
        let samples = self.samples(&inputs[0])?;
        let labels = self.satellites.iter().map(|s| s.system.label(s.prn));
        let output = PortType {
            dtype: Dtype::F64,
            axes: vec![
                Axis::labelled("satellite", labels).from_parameter("satellites"),
                Axis::labelled("value", LABELS),
            ],
            clock: inputs[0].clock,
            band: None,
            validity: ValidityType::flags(vec![]),
        };
        Ok((samples, vec![output]))
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        narrow_bands(block.parameters.satellites.iter().map(|s| s.system), &block.shape)
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let Configured { parameters, shape: samples, .. } = block;
        let threads = threads_for(parameters.threads, f64::INFINITY);
        let systems: Vec<System> = parameters.satellites.iter().map(|s| s.system).collect();
        let host_bytes = FrameSearch::host_bytes(&parameters.settings(samples), &systems, threads)
            + Array::host_bytes(samples);
        Resources { host_bytes, ..Resources::default() }
    }
}

impl LiveKind for GnssAcquisition {
    type Value = Vec<Complex32>;

    fn live_value(
        new: &Configured<Self>,
        GnssAcquisitionLive::Weights: GnssAcquisitionLive,
        _running: &Configured<Self>,
    ) -> Result<Vec<Complex32>, BlockError> {
        Ok(live_weights(&new.parameters.weights))
    }
}
