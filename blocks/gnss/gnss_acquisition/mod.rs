#![doc = include_str!("README.md")]

mod cpu;
mod search;
#[cfg(test)]
mod tests;

use crate::common::parallel::{MAX_THREADS, threads_for};
use crate::gnss::samples::Samples;
use crate::gnss::satellites::refuse_satellites;
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Axis, Checked, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Refusal, Resources, ValidityType,
};
use fxgraph_dsp::gnss::{Satellite, System};
use schemars::JsonSchema;
use search::Grid;
use serde::Deserialize;

/// Names of the values of a satellite in the output, in order.
pub const LABELS: [&str; 6] =
    ["system", "satellite", "statistic", "threshold", "doppler_hz", "code_phase_chips"];
/// Number of values of a satellite in the output.
pub const VALUES: usize = LABELS.len();

/// Result of a search, in the order of [`LABELS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acquired {
    /// The signal.
    pub system: System,
    /// The satellite.
    pub prn: usize,
    /// Largest power divided by the mean power; 0 without a search.
    pub statistic: f64,
    /// Value that the statistic must exceed.
    pub threshold: f64,
    /// Shift of the carrier in Hz.
    pub doppler_hz: f64,
    /// Phase of the code at the frame's timestamp, in chips.
    pub code_phase_chips: f64,
}

impl Acquired {
    /// Returns the values as in a frame.
    #[must_use]
    pub fn values(&self) -> [f64; VALUES] {
        let [system, prn] = [self.system.number() as f64, self.prn as f64];
        [system, prn, self.statistic, self.threshold, self.doppler_hz, self.code_phase_chips]
    }

    /// Reads the values from a frame; `None` if they are invalid or nothing was found.
    #[must_use]
    pub fn found(values: [f64; VALUES]) -> Option<Self> {
        let [system, prn, statistic, threshold, doppler_hz, code_phase_chips] = values;
        let is_found = statistic > threshold && (doppler_hz + code_phase_chips).is_finite();
        let system = System::numbered(system)?;
        let prn = system.satellite(prn)?;
        is_found.then_some(Self { system, prn, statistic, threshold, doppler_hz, code_phase_chips })
    }
}

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
    /// Frequency of the carrier in the samples without Doppler shift, in Hz.
    #[param(default)]
    pub intermediate_hz: f64,
    /// Probability of a false detection, per satellite and search.
    #[param(default = 1e-3)]
    pub false_alarm_probability: f64,
    /// Period of the search in frames, beginning with the first frame.
    #[param(default = 50)]
    pub every_frames: u64,
    /// Threads that share the Doppler shifts, 0 for all cores.
    #[param(default, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// A satellite to search for.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Signal: `gps_l1_ca` or `galileo_e1b`.
    pub system: System,
    /// Number of the satellite: 1 to 37 for `gps_l1_ca`, 1 to 50 for `galileo_e1b`.
    pub prn: usize,
}

/// Largest Doppler shift in Hz: no orbit has more.
const MAX_DOPPLER_HZ: f64 = 1e5;

impl GnssAcquisition {
    fn samples(&self, input: &PortType) -> Result<Samples, Vec<Refusal>> {
        let mut refusals = Vec::new();
        let samples = Samples::of_port(input, 0).map_err(|more| refusals.extend(more)).ok();
        let mut refuse = |parameter, message: String, help: &str| {
            refusals.push(Refusal::parameter(parameter, message).help(help));
        };
        let is_good = self.max_doppler_hz >= 0.0 && self.max_doppler_hz <= MAX_DOPPLER_HZ;
        if !is_good {
            let message = format!(
                "`max_doppler_hz` must be between 0 and 100000, got {}",
                self.max_doppler_hz
            );
            refuse("max_doppler_hz", message, "5000 is the default");
        }
        let max_doppler_hz = if is_good { self.max_doppler_hz } else { 0.0 };
        if !self.intermediate_hz.is_finite() {
            let message = format!("`intermediate_hz` must be finite, got {}", self.intermediate_hz);
            refuse("intermediate_hz", message, "give 0 if the band is centred on the carrier");
        }
        let probability = self.false_alarm_probability;
        let is_good = probability > 0.0 && probability < 1.0;
        if !is_good {
            let message =
                format!("`false_alarm_probability` must be above 0 and below 1, got {probability}");
            refuse("false_alarm_probability", message, "0.001 is the default");
        }
        if self.every_frames == 0 {
            let message = "`every_frames` must be at least 1, got 0".to_owned();
            refuse("every_frames", message, "give 1 to search all frames");
        }
        // The search grid is defined for valid parameters only.
        if let (Some(samples), true) = (samples, refusals.is_empty()) {
            for system in System::ALL {
                let is_searched = self.satellites.iter().any(|s| s.system == system);
                if is_searched && Grid::new(self, system, &samples).is_none() {
                    let message = format!(
                        "frames for {} must have at least two periods of the code and fewer than 2^26 \
                         samples, got {} samples",
                        system.name(),
                        samples.samples
                    );
                    let at = At::InputAxis(0, "sample");
                    let help = "change the frame length of the source, for example to 20 ms";
                    refusals.push(Refusal::new(codes::INPUT_AXIS, at, message).help(help));
                }
            }
        }
        let edge = |candidate: &Candidate| Satellite {
            system: candidate.system,
            prn: candidate.prn,
            // The end of the search range farther from 0 may leave the band.
            doppler_hz: max_doppler_hz.copysign(self.intermediate_hz),
            code_phase_chips: 0.0,
            carrier_turns: 0.0,
            at_timestamp: 0,
        };
        let edges: Vec<_> = self.satellites.iter().map(edge).collect();
        let rate_hz = samples.map(|samples| samples.rate_hz);
        refusals.extend(refuse_satellites(edges.iter(), self.intermediate_hz, rate_hz));
        samples.filter(|_| refusals.is_empty()).ok_or(refusals)
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

    fn resources(block: &Configured<Self>) -> Resources {
        let Configured { parameters, shape: samples, .. } = block;
        let threads = threads_for(parameters.threads, f64::INFINITY);
        let host_bytes = |system: System| {
            let count = parameters.satellites.iter().filter(|s| s.system == system).count();
            let grid = Grid::new(parameters, system, samples).filter(|_| count > 0);
            grid.map_or(0, |grid| grid.host_bytes(count, threads))
        };
        Resources {
            host_bytes: System::ALL.into_iter().map(host_bytes).sum::<usize>()
                + 8 * samples.samples,
            ..Resources::default()
        }
    }
}
