#![doc = include_str!("README.md")]

mod cpu;
mod generate;
mod language;
mod periods;

use crate::io::pace::{default_catch_up, refuse_catch_up};
use fxgraph::{
    At, Axis, BlockError, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind,
    KindSpec, LiveKind, PortType, Refusal, Resources, ValidityType,
};
use fxgraph_dsp::geometry::Direction;
use language::{Expression, Program};
use periods::Periods;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest period: it is made in double precision, several times over.
const MAX_PERIOD: usize = 1 << 26;
/// Most that the delay may change over a period: the series that moves the source is short.
const MAX_MOVED_SAMPLES: f64 = 0.2;
/// Longest frame.
const MAX_FRAME: usize = 1 << 28;

/// Parameters of `digitiser_simulator`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "digitiser_simulator",
    page = "README.md",
    examples("example.yaml"),
    outputs("pol0", "pol1")
)]
pub struct DigitiserSimulator {
    /// Signals of the two polarisations in the block's language; see its page. Empty is silence.
    #[param(default, live)]
    pub signals: String,
    /// Bits of a sample: 2 to 10, 12 or 16.
    #[param(default = 10)]
    pub bits: u8,
    /// ADC sample rate in Hz.
    #[param(default = 1.712e9)]
    pub adc_sample_rate_hz: f64,
    /// Unix time of timestamp 0 in seconds.
    #[param(default)]
    pub sync_time_seconds: f64,
    /// Samples of a frame.
    #[param(default = 1 << 18)]
    pub samples_per_frame: usize,
    /// Samples of a heap: the unit that can be lost on the way.
    #[param(default = 4096)]
    pub samples_per_heap: usize,
    /// Samples after which the signals repeat.
    #[param(default = 1 << 20)]
    pub period_samples: usize,
    /// Timestamp of the first frame in ADC samples: a multiple of `samples_per_frame`, or `now` for
    /// the next one of the present time since `sync_time_seconds`.
    #[param(default)]
    pub first_timestamp: FirstTimestamp,
    /// Number of frames; without it the block goes on until the flowgraph stops.
    pub frames: Option<u64>,
    /// Length of the stream in seconds of signal; rounded up to whole frames.
    pub duration_seconds: Option<f64>,
    /// Whether frames leave in real time, or as fast as they are taken.
    #[param(default)]
    pub paced: bool,
    /// How many times real time a paced stream that is late catches up at, like 1.25.
    #[param(default = default_catch_up())]
    pub catch_up: f64,
    /// Selects dither and the noise that is different at each antenna.
    #[param(default)]
    pub seed: u64,
    /// Which antenna this is: an index into `antennas_enu_metres`.
    #[param(default)]
    pub antenna: usize,
    /// Place of each antenna: east, north, up in metres.
    #[param(default)]
    pub antennas_enu_metres: Vec<[f64; 3]>,
    /// Frequency that the receivers take off before they sample: a source that comes later by
    /// tau is turned by `-2 pi local_oscillator_hz tau` more.
    #[param(default)]
    pub local_oscillator_hz: f64,
    /// Point source that all antennas see.
    pub source: Option<Source>,
}

/// When a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number of ADC samples or `now`")]
pub enum FirstTimestamp {
    /// At this timestamp.
    At(u64),
    /// At the present time.
    Present(Present),
}

/// The word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Present {
    /// When the block starts.
    Now,
}

impl Default for FirstTimestamp {
    fn default() -> Self {
        Self::At(0)
    }
}

/// A point source of noise.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Azimuth in degrees, from north through east.
    pub azimuth_degrees: f64,
    /// Elevation above the horizon in degrees.
    pub elevation_degrees: f64,
    /// Change of the azimuth. The delay of each antenna changes linearly over the period.
    #[serde(default)]
    pub azimuth_rate_degrees_per_second: f64,
    /// Change of the elevation.
    #[serde(default)]
    pub elevation_rate_degrees_per_second: f64,
    /// Standard deviation in each polarisation; full scale is 1.
    pub amplitude: f64,
    /// Selects the noise; the same at all antennas.
    #[serde(default)]
    pub seed: u64,
    /// Part of the power that is the same in both polarisations, 0 to 1.
    #[serde(default)]
    pub polarised_fraction: f64,
}

impl Source {
    /// Where it stands.
    #[must_use]
    pub fn direction(&self) -> Direction {
        Direction {
            azimuth_degrees: self.azimuth_degrees,
            elevation_degrees: self.elevation_degrees,
        }
    }

    fn is_moving(&self) -> bool {
        self.azimuth_rate_degrees_per_second != 0.0 || self.elevation_rate_degrees_per_second != 0.0
    }

    /// Change of the delay at this place, in seconds per second.
    fn delay_rate(&self, enu_metres: [f64; 3]) -> f64 {
        let [azimuth, elevation] =
            [self.azimuth_rate_degrees_per_second, self.elevation_rate_degrees_per_second];
        self.direction().delay_rate(enu_metres, azimuth, elevation)
    }
}

impl DigitiserSimulator {
    /// Number of frames, if it is limited.
    fn frame_limit(&self) -> Option<u64> {
        let by_time = self.duration_seconds.map(|seconds| {
            (seconds * self.adc_sample_rate_hz / self.samples_per_frame as f64).ceil() as u64
        });
        match (self.frames, by_time) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn check_sizes(&self, refusals: &mut Vec<Refusal>) {
        let (frame, heap, period) =
            (self.samples_per_frame, self.samples_per_heap, self.period_samples);
        if heap == 0 || !heap.is_multiple_of(8) {
            refusals.push(
                Refusal::parameter(
                    "samples_per_heap",
                    format!("a heap of {heap} samples does not fill whole bytes"),
                )
                .help(format!("{} is the nearest multiple of 8", nearest(heap, 8))),
            );
        } else if frame > MAX_FRAME {
            refusals.push(
                Refusal::parameter(
                    "samples_per_frame",
                    format!("a frame of {frame} samples is too long"),
                )
                .help(format!("the most is {MAX_FRAME}")),
            );
        } else if frame == 0 || !frame.is_multiple_of(heap) {
            refusals.push(
                Refusal::parameter(
                    "samples_per_frame",
                    format!("a frame of {frame} samples is not whole heaps of {heap}"),
                )
                .help(format!(
                    "{} is the nearest; the most is {MAX_FRAME}",
                    nearest(frame, heap).min(MAX_FRAME)
                )),
            );
        }
        let fits = frame > 0
            && period > 0
            && (period.is_multiple_of(frame) || frame.is_multiple_of(period));
        if period > MAX_PERIOD {
            let message = format!("a period of {period} samples is more than is kept in memory");
            refusals.push(
                Refusal::parameter("period_samples", message)
                    .help(format!("the most is {MAX_PERIOD}")),
            );
        } else if period == 0 || !period.is_multiple_of(8) || !fits {
            refusals.push(
                Refusal::parameter(
                    "period_samples",
                    format!("a period of {period} samples is not whole frames"),
                )
                .note(At::Parameter("samples_per_frame"), "the length of a frame comes from here")
                .help(format!(
                    "{} is the nearest; the most is {MAX_PERIOD}",
                    nearest(period, frame.clamp(8, MAX_PERIOD))
                )),
            );
        }
        if let FirstTimestamp::At(first) = self.first_timestamp
            && frame > 0
            && !first.is_multiple_of(frame as u64)
        {
            let next = first.div_ceil(frame as u64).saturating_mul(frame as u64);
            refusals.push(
                Refusal::parameter("first_timestamp", "frames start at multiples of their length")
                    .help(format!("{next} is the next")),
            );
        }
    }

    fn check_values(&self, refusals: &mut Vec<Refusal>) {
        if !matches!(self.bits, 2..=10 | 12 | 16) {
            refusals.push(
                Refusal::parameter(
                    "bits",
                    format!("there are no digitisers of {} bits", self.bits),
                )
                .help("2 to 10, 12 and 16 bits are known"),
            );
        }
        if !(self.adc_sample_rate_hz > 0.0 && self.adc_sample_rate_hz.is_finite()) {
            refusals.push(Refusal::parameter(
                "adc_sample_rate_hz",
                format!("{} Hz is not a sample rate", self.adc_sample_rate_hz),
            ));
        }
        if !self.sync_time_seconds.is_finite() {
            refusals.push(Refusal::parameter("sync_time_seconds", "the sync time is no number"));
        }
        if self.duration_seconds.is_some_and(|seconds| seconds.is_nan() || seconds < 0.0) {
            refusals.push(Refusal::parameter("duration_seconds", "a duration is 0 or more"));
        }
        refusals.extend(refuse_catch_up(self.catch_up));
        let Some(source) = self.source else { return };
        if self.antenna >= self.antennas_enu_metres.len() {
            refusals.push(
                Refusal::parameter("antenna", format!("antenna {} has no place", self.antenna))
                    .note(
                        At::Parameter("antennas_enu_metres"),
                        format!("{} antennas are placed here", self.antennas_enu_metres.len()),
                    )
                    .help("a source needs to know where the antenna stands"),
            );
        }
        if self.antennas_enu_metres.iter().flatten().any(|v| !v.is_finite() || v.abs() > 1e7) {
            refusals.push(Refusal::parameter(
                "antennas_enu_metres",
                "an antenna stands farther than 10000 km away",
            ));
        }
        let values = [
            source.azimuth_degrees,
            source.elevation_degrees,
            source.azimuth_rate_degrees_per_second,
            source.elevation_rate_degrees_per_second,
            source.amplitude,
        ];
        if values.iter().any(|value| !value.is_finite()) {
            refusals.push(Refusal::parameter("source", "direction and amplitude must be finite"));
        }
        if !self.local_oscillator_hz.is_finite() {
            refusals
                .push(Refusal::parameter("local_oscillator_hz", "the frequency must be finite"));
        }
        if let Some(place) = self.antennas_enu_metres.get(self.antenna) {
            let moved_samples = source.delay_rate(*place).abs() * self.period_samples as f64;
            // Written so that NaN is refused too.
            let is_slow = moved_samples <= MAX_MOVED_SAMPLES;
            if !is_slow {
                refusals.push(
                    Refusal::parameter(
                        "source",
                        format!("the source moves by {moved_samples:.2} samples over a period"),
                    )
                    .note(At::Parameter("period_samples"), "the period comes from here")
                    .help(format!("up to {MAX_MOVED_SAMPLES} samples are possible")),
                );
            }
        }
        if !(0.0..=1.0).contains(&source.polarised_fraction) {
            refusals.push(
                Refusal::parameter(
                    "source.polarised_fraction",
                    format!("{} is not a fraction", source.polarised_fraction),
                )
                .help("0 (unpolarised) to 1 (the same in both polarisations)"),
            );
        }
    }

    /// The text of `signals`, read.
    fn program(&self) -> Result<Program, Box<Refusal>> {
        let program = Program::parse(&self.signals).map_err(|error| {
            let column = self.signals[..error.start].chars().count() + 1;
            let place = if error.word.is_empty() {
                format!("at the end, column {column} of the text")
            } else {
                format!("at `{}`, column {column} of the text", error.word)
            };
            let refusal = Refusal::parameter("signals", error.message).label(place);
            Box::new(match error.help {
                Some(help) => refusal.help(help),
                None => refusal,
            })
        })?;
        if program.signals.len() > 2 {
            let message = format!("{} signals for two polarisations", program.signals.len());
            let help = "parts that are used by others are defined as `name = value;`";
            return Err(Box::new(Refusal::parameter("signals", message).help(help)));
        }
        Ok(program)
    }
}

/// The multiple of `of`, at least one, nearest to `value`.
fn nearest(value: usize, of: usize) -> usize {
    let of = of.max(1);
    (value / of + usize::from(value % of >= of.div_ceil(2))).max(1).saturating_mul(of)
}

impl KindSpec for DigitiserSimulator {
    /// What `signals` says.
    type Shape = Program;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        Ok(Box::new(cpu::Digitiser::new(block.parameters.clone(), block.shape.clone(), env)))
    })];

    fn ports(&self, _inputs: &[PortType]) -> Checked<Program> {
        let mut refusals = Vec::new();
        self.check_sizes(&mut refusals);
        self.check_values(&mut refusals);
        let program = self.program().map_err(|refusal| refusals.push(*refusal));
        let (Ok(program), true) = (program, refusals.is_empty()) else { return Err(refusals) };
        let heaps = self.samples_per_frame / self.samples_per_heap;
        let port = PortType {
            dtype: Dtype::Packed(self.bits),
            axes: vec![
                Axis::new("sample", self.samples_per_frame).from_parameter("samples_per_frame"),
            ],
            clock: Clock {
                adc_sample_rate_hz: self.adc_sample_rate_hz,
                sync_time_seconds: self.sync_time_seconds,
                samples_per_frame: self.samples_per_frame as u64,
            },
            band: None,
            validity: ValidityType::flags(vec![
                Axis::new("heap", heaps).from_parameter("samples_per_frame"),
            ]),
        };
        Ok((program, vec![port.clone(), port]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let Configured { parameters, shape: program, .. } = block;
        let packed = 2 * parameters.period_samples * usize::from(parameters.bits) / 8;
        // While periods are made: the variables, the operands, and what the delays of a source need.
        let signals = program.signals.iter().map(|signal| &signal.expression);
        let deepest = program.variables.iter().chain(signals).map(Expression::signals_held);
        let held = program.variables.len() + deepest.max().unwrap_or(1);
        let transforms = match parameters.source {
            Some(source) if source.is_moving() || parameters.local_oscillator_hz != 0.0 => 8,
            Some(_) => 6,
            None => 3,
        };
        let making =
            parameters.period_samples.saturating_mul(size_of::<f64>() * (held + transforms));
        Resources { host_bytes: packed.saturating_add(making), ..Resources::default() }
    }
}

impl LiveKind for DigitiserSimulator {
    type Value = Periods;

    fn live_value(
        new: &Configured<Self>,
        DigitiserSimulatorLive::Signals: DigitiserSimulatorLive,
        _: &Configured<Self>,
    ) -> Result<Periods, BlockError> {
        Ok(Periods::new(&new.parameters, &new.shape))
    }
}

#[cfg(test)]
mod tests;
