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

/// What the numbers of a satellite in the output are, in their order.
pub const LABELS: [&str; 6] =
    ["system", "satellite", "statistic", "threshold", "doppler_hz", "code_phase_chips"];
/// Numbers of a satellite in the output.
pub const VALUES: usize = LABELS.len();

/// What a search found; in the order of [`LABELS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acquired {
    /// The signal.
    pub system: System,
    /// The satellite.
    pub prn: usize,
    /// Largest power over the mean one; 0 if nothing was searched.
    pub statistic: f64,
    /// What the statistic has to pass.
    pub threshold: f64,
    /// Shift of the carrier in Hz.
    pub doppler_hz: f64,
    /// Phase of the code at the frame's timestamp, in chips.
    pub code_phase_chips: f64,
}

impl Acquired {
    /// As it stands in a frame.
    #[must_use]
    pub fn values(&self) -> [f64; VALUES] {
        let [system, prn] = [self.system.number() as f64, self.prn as f64];
        [system, prn, self.statistic, self.threshold, self.doppler_hz, self.code_phase_chips]
    }

    /// From a frame; none if it says nothing sensible or nothing was found.
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
    /// Which satellites to look for.
    pub satellites: Vec<Candidate>,
    /// Largest Doppler shift of either sign, in Hz.
    #[param(default = 5000.0)]
    pub max_doppler_hz: f64,
    /// Where the band's carrier lies in the samples, in Hz, before the satellites' Doppler shifts.
    #[param(default)]
    pub intermediate_hz: f64,
    /// How probable it is that a satellite is found that is not there, in each search.
    #[param(default = 1e-3)]
    pub false_alarm_probability: f64,
    /// One frame of so many is searched, beginning with the first.
    #[param(default = 50)]
    pub every_frames: u64,
    /// Threads that share the Doppler shifts, 0 for all cores.
    #[param(default, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// A satellite to look for.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Its signal: `gps_l1_ca` or `galileo_e1b`.
    pub system: System,
    /// Its number: 1 to 37 for `gps_l1_ca`, 1 to 50 for `galileo_e1b`.
    pub prn: usize,
}

/// Largest Doppler shift: no orbit has more.
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
            let message = format!("a Doppler shift of {} Hz is out of range", self.max_doppler_hz);
            refuse("max_doppler_hz", message, "0 to 100000");
        }
        let max_doppler_hz = if is_good { self.max_doppler_hz } else { 0.0 };
        if !self.intermediate_hz.is_finite() {
            let message = "the intermediate frequency is not finite".to_owned();
            refuse("intermediate_hz", message, "0 if the band is centred on the carrier");
        }
        let probability = self.false_alarm_probability;
        let is_good = probability > 0.0 && probability < 1.0;
        if !is_good {
            let message = format!("{probability} is not a probability of false alarms");
            refuse("false_alarm_probability", message, "above 0 and below 1");
        }
        if self.every_frames == 0 {
            refuse("every_frames", "every 0 frames is never".to_owned(), "1 searches all of them");
        }
        // There are cells to search only where the numbers mean something.
        if let (Some(samples), true) = (samples, refusals.is_empty()) {
            for system in System::ALL {
                let is_searched = self.satellites.iter().any(|s| s.system == system);
                if is_searched && Grid::new(self, system, &samples).is_none() {
                    let message = format!(
                        "frames of {} samples are too short or too long for {}",
                        samples.samples,
                        system.name()
                    );
                    let at = At::InputAxis(0, "sample");
                    let help = "two periods of the code or more, and fewer than 2^26 samples";
                    refusals.push(Refusal::new(codes::INPUT_AXIS, at, message).help(help));
                }
            }
        }
        let edge = |candidate: &Candidate| Satellite {
            system: candidate.system,
            prn: candidate.prn,
            // The far end of the search is what may leave the band.
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
