#![doc = include_str!("README.md")]

mod antenna_gains;
mod applied;
mod corrections;
mod cpu;
mod fit;
mod health;
mod report;
mod settings;
mod sums;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::common::{antenna_numbers, visibilities};
use fxgraph::diagnostic::codes;
use fxgraph::live_updates::Target;
use fxgraph::{
    At, Axis, Band, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind,
    KindSpec, PortType, Rejection, Resources, ValidityType,
};
use fxgraph_dsp::geometry::Direction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sums::Shape;

/// Live parameter of the targets that the block changes.
const GAINS: &str = "gains";
/// Live parameter of the block in which antennas are flagged.
const FLAGGED: &str = "flagged_antennas";

/// Parts of the gains that updates correct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Amplitude and phase.
    #[default]
    Complex,
    /// Phase.
    Phase,
}

/// Parameters of `gain_solver`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "gain_solver",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("gains")
)]
pub struct GainSolver {
    /// Block of each antenna whose live parameter `gains` is changed, such as a `postproc`; or one name in which the
    /// place of the antenna replaces `*`: `f[*].postproc`.
    pub targets: Vec<String>,
    /// Adjacent channels with a common gain; must divide the channels of the input. By default all channels.
    #[param(range = 1..)]
    pub channels: Option<usize>,
    /// Dumps that are summed for a solution.
    #[param(default = 1, range = 1..=1_000_000)]
    pub dumps: usize,
    /// Number of the antenna whose phase stays as it is, by default the first one. If it has no signal, another one replaces
    /// it.
    pub reference_antenna: Option<u32>,
    /// Probability that an antenna without a signal, or an array without a source, counts as one with a signal in a
    /// solution.
    #[param(default = 1e-5, range = 1e-12..=0.5)]
    pub false_detection_probability: f64,
    /// Solutions in a row without a signal after which an antenna is named in an event, and flagged with
    /// `flag_antennas_in`. Only those solutions count in which the median significance of the antennas with a gain is at
    /// least 16 times the limit of an antenna, `-ln(false_detection_probability)`.
    #[param(default = 3, range = 1..=1_000_000)]
    pub silent_solutions: usize,
    /// Block in which antennas without a signal in all polarisations are flagged, by a live update of its
    /// `flagged_antennas`: an `antenna_stack` or a `spead_source`. Flags are added only if at least `min_antennas` antennas
    /// have a gain, and at least as many as have no signal. By default no antenna is flagged.
    pub flag_antennas_in: Option<String>,
    /// Largest factor by which an update raises or lowers an amplitude.
    #[param(default = 2.0, range = 1.0..=1e6)]
    pub max_amplitude_step: f64,
    /// Largest factor by which all updates since the start of the block raise or lower an amplitude.
    #[param(default = 10.0, range = 1.0..=1e6)]
    pub max_amplitude_change: f64,
    /// Fraction of the error, in phase and in the logarithm of the amplitude, that an update corrects. The error is known
    /// from all solutions so far, and one that is not larger than its uncertainty is not corrected.
    #[param(default = 0.5, range = 0.01..=1.0)]
    pub loop_gain: f64,
    /// Change of an antenna's gain in an hour that the solver expects: standard deviation of the logarithm of its amplitude,
    /// and of its phase in radians. The change grows with the square root of the time. Small values average the solutions of
    /// a weak source over a longer time, large values follow changes of the gains faster.
    #[param(default = 0.1, range = 0..=1000)]
    pub drift_per_hour: f64,
    /// Parts of the gains that an update corrects: `complex` (amplitude and phase) or `phase`, which leaves the
    /// amplitudes as they are.
    #[param(default)]
    pub mode: Mode,
    /// Smallest number of antennas with data and a signal for a solution. With fewer that have a signal there is no source.
    #[param(default = 3, range = 3..)]
    pub min_antennas: usize,
    /// Largest number of iterations of a solution.
    #[param(default = 200, range = 2..=100_000)]
    pub iterations: usize,
    /// Relative change of the gains from one iteration to the next below which they have converged.
    #[param(default = 1e-7, range = 1e-14..=0.1)]
    pub tolerance: f64,
    /// Position of each antenna: east, north, up in metres, if `source` is given. In a longer list, entries after the
    /// last antenna are ignored.
    #[param(default)]
    pub antennas_enu_metres: Vec<[f64; 3]>,
    /// Direction of the source, if the F-engines do not track it. By default they do, and the visibilities of a source
    /// without errors have phase 0.
    pub source: Option<Direction>,
    /// Largest phase error of the last solution, in degrees; the run fails if it is exceeded.
    #[param(range = 0..=180)]
    pub max_phase_error_degrees: Option<f64>,
    /// Largest error of a relative amplitude in the last solution; the run fails if it is exceeded.
    #[param(range = 0..)]
    pub max_amplitude_error: Option<f64>,
}

impl GainSolver {
    /// Names of the targets of `antennas` antennas.
    fn targets_of(&self, antennas: usize) -> Vec<String> {
        match self.targets.as_slice() {
            [pattern] if pattern.contains("[*]") => {
                (0..antennas).map(|n| pattern.replacen("[*]", &format!("[{n}]"), 1)).collect()
            }
            targets => targets.to_vec(),
        }
    }

    /// Place of the reference antenna among those with these `numbers`.
    fn reference(&self, numbers: &[u32]) -> usize {
        self.reference_antenna
            .and_then(|number| antenna_numbers::place(numbers, number))
            .unwrap_or_default()
    }

    fn check_antennas(&self, numbers: &[u32], rejections: &mut Vec<Rejection>) {
        let antennas = numbers.len();
        let note = (At::InputAxis(0, "baseline"), "baselines are set here");
        let mut reject = |name, message: String| {
            rejections.push(Rejection::parameter(name, message).note(note.0.clone(), note.1));
        };
        let targets = self.targets_of(antennas);
        if targets.len() != antennas {
            let message = format!(
                "`targets` must have {antennas} blocks, one for each antenna, got {}",
                targets.len()
            );
            reject("targets", message);
        } else if let Some((n, name)) =
            targets.iter().enumerate().find(|(n, name)| targets[..*n].contains(name))
        {
            let message =
                format!("`targets` must be different blocks, got `{name}` again as number {n}");
            reject("targets", message);
        }
        if self.min_antennas > antennas {
            let message = format!(
                "`min_antennas` must be at most the number of antennas, {antennas}, got {}",
                self.min_antennas
            );
            reject("min_antennas", message);
        }
        if self.source.is_some() && self.antennas_enu_metres.len() < antennas {
            let message = format!(
                "`antennas_enu_metres` must have {antennas} positions, got {}",
                self.antennas_enu_metres.len()
            );
            reject("antennas_enu_metres", message);
        }
        if self.antennas_enu_metres.iter().flatten().any(|v| !v.is_finite() || v.abs() > 1e7) {
            let message = "`antennas_enu_metres` must be within 10000 km".to_owned();
            reject("antennas_enu_metres", message);
        }
        if self.source.is_some_and(|source| !source.is_valid()) {
            let message =
                "azimuth of `source` must be finite, and elevation from -90 to 90 degrees";
            rejections.push(Rejection::parameter("source", message));
        }
        let reference = self.reference_antenna.as_slice();
        let rejection = antenna_numbers::rejection("reference_antenna", reference, numbers);
        rejections.extend(rejection.map(|rejection| rejection.note(note.0.clone(), note.1)));
    }

    fn check_channels(&self, input: &PortType, channels: usize, rejections: &mut Vec<Rejection>) {
        let of_group = self.channels.unwrap_or(channels);
        if !channels.is_multiple_of(of_group) {
            let message = format!(
                "`channels` must divide the {channels} channels of the input, got {of_group}"
            );
            rejections.push(Rejection::parameter("channels", message));
        }
        let is_part = input.band.is_some_and(|band| band.channels != channels);
        if is_part && of_group != channels {
            let message = "`channels` must be all channels of an input that has a part of the band";
            rejections.push(
                Rejection::parameter("channels", message)
                    .help("omit `channels`, or correlate the whole band"),
            );
        }
        if input.band.is_none() {
            let message = "the input must have a band: the noise of visibilities follows from the width of a channel";
            rejections.push(
                Rejection::new(codes::INPUT_AXIS, At::Input(0), message)
                    .help("set `band` of the source"),
            );
        }
    }
}

impl KindSpec for GainSolver {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let numbers = visibilities::antennas(&block.ports.inputs[0]).unwrap_or_default();
        Ok(Box::new(cpu::Solver::new(&block.parameters, &block.shape, numbers, env)))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let input = &inputs[0];
        let lengths: Vec<_> = input.axes.iter().map(|axis| (axis.name, axis.len)).collect();
        let (
            Dtype::Ci32 | Dtype::Cf32,
            &[("channel", channels), ("baseline", baselines), ("product", products @ (1 | 4))],
        ) = (input.dtype, lengths.as_slice())
        else {
            let message = format!("`gain_solver` cannot read `{input}`");
            let help = "connect a `correlator`: ci32 or cf32 [channel][baseline][product]";
            return Err(vec![Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help)]);
        };
        let Some(numbers) = visibilities::antennas(input) else {
            let message = format!("{baselines} baselines are not those of all pairs of antennas");
            let at = At::InputAxis(0, "baseline");
            return Err(vec![Rejection::new(codes::INPUT_AXIS, at, message)]);
        };
        let mut rejections = Vec::new();
        let antennas = numbers.len();
        self.check_antennas(&numbers, &mut rejections);
        self.check_channels(input, channels, &mut rejections);
        rejections.extend(sums::reject_validity(input));
        let samples = input.clock.samples_per_frame.checked_mul(self.dumps as u64);
        let samples = samples.filter(|samples| *samples < 1 << 60);
        if samples.is_none() {
            let message = "a solution must take fewer than 2^60 ADC samples";
            rejections.push(Rejection::parameter("dumps", message).help("use fewer dumps"));
        }
        let Some(samples_per_frame) = samples.filter(|_| rejections.is_empty()) else {
            return Err(rejections);
        };
        let shape = Shape::new(self, input, antennas);
        let pol = Axis::labelled("pol", ["0", "1"].iter().take(products.isqrt()).copied());
        let is_labelled = !input.axes[1].labels.is_empty();
        let labels = numbers.iter().filter(|_| is_labelled).map(u32::to_string).collect();
        let antenna = Axis { labels, ..Axis::new("antenna", antennas) };
        let axes = vec![antenna, pol, Axis::new("channel", shape.groups())];
        let band = input.band.map(|band| {
            let channel_hz = band.step_hz();
            // Mean frequency of the group in the middle.
            let first = shape.groups() / 2 * shape.of_group;
            let from_first = first as f64 + (shape.of_group - 1) as f64 / 2.0;
            Band {
                channels: shape.groups(),
                first_channel: 0,
                centre_hz: band.channel_hz(0) + from_first * channel_hz,
                bandwidth_hz: channels as f64 * channel_hz.abs(),
                ..band
            }
        });
        let output = PortType {
            dtype: Dtype::Cf32,
            axes: axes.clone(),
            clock: Clock { samples_per_frame, ..input.clock },
            band,
            validity: ValidityType::flags(axes),
        };
        Ok((shape, vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let antennas = block.shape.antennas;
        let names = block.parameters.targets_of(antennas).into_iter().enumerate();
        let updates = names.map(|(n, name)| Target {
            block: name,
            parameter: GAINS,
            named_by: format!("targets.{n}"),
        });
        let flagging = block.parameters.flag_antennas_in.iter().map(|name| Target {
            block: name.clone(),
            parameter: FLAGGED,
            named_by: "flag_antennas_in".to_owned(),
        });
        Resources {
            host_bytes: sums::host_bytes(&block.shape),
            operations_per_frame: 8.0 * block.ports.inputs[0].elements() as f64,
            updates: updates.chain(flagging).collect(),
            ..Resources::default()
        }
    }
}
