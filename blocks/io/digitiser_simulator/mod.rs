#![doc = include_str!("README.md")]

mod cpu;
mod generate;
mod language;
mod periods;

use crate::common::nyquist::{self, MAX_NYQUIST_ZONE};
use crate::io::pace::{default_catch_up, reject_catch_up};
use fxgraph::diagnostic::codes;
use fxgraph::kind::{Rounded, four_digits, slow_digitiser};
use fxgraph::{
    At, Axis, Band, BlockError, Checked, Clock, Configured, Dtype, FrameSizes, Implementation,
    Implementations, Kind, KindSpec, LiveKind, PortType, Rejection, Resources, Sideband, Time,
    ValidityType,
};
use fxgraph_dsp::geometry::Direction;
use language::{Expression, Program};
use periods::Periods;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest period: several copies in double precision are needed to compute it.
const MAX_PERIOD: usize = 1 << 26;
/// Largest change of the delay over a period: the series that moves the source is short.
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
    /// Signals of the two polarisations in the signal language of the block's page. Empty is silence.
    #[param(default, live)]
    pub signals: String,
    /// Bits per sample: 2 to 10, 12 or 16.
    #[param(default = 10)]
    pub bits: u8,
    /// ADC sample rate in Hz.
    #[param(default = 1.712e9)]
    pub adc_sample_rate_hz: f64,
    /// Time of timestamp 0: Unix seconds, or a time in UTC such as `2026-11-25T14:20:40.25Z`.
    #[param(default)]
    pub sync_time_seconds: Time,
    /// Samples in a frame. With `paced` and without `frames` the plan chooses a default from `latency_seconds`.
    #[param(default = 1 << 18)]
    pub samples_per_frame: usize,
    /// Samples in a heap: the unit of validity.
    #[param(default = 4096)]
    pub samples_per_heap: usize,
    /// Period of the signals in samples.
    #[param(default = 1 << 20)]
    pub period_samples: usize,
    /// Timestamp of the first frame in ADC samples: a multiple of `samples_per_frame`, or `now` for
    /// the next multiple at the present time since `sync_time_seconds`.
    #[param(default)]
    pub first_timestamp: FirstTimestamp,
    /// Number of frames; by default the block runs until the flowgraph stops.
    pub frames: Option<u64>,
    /// Length of the stream in seconds of signal; rounded up to whole frames.
    pub duration_seconds: Option<f64>,
    /// Whether frames are sent in real time; otherwise as fast as the readers take them.
    #[param(default)]
    pub paced: bool,
    /// Rate at which a late paced stream catches up, as a multiple of real time, such as 1.25.
    #[param(default = default_catch_up())]
    pub catch_up: f64,
    /// Seed of the dither and of the noise that differs between antennas.
    #[param(default)]
    pub seed: u64,
    /// Number of this antenna: an index into `antennas_enu_metres`.
    #[param(default)]
    pub antenna: usize,
    /// Position of each antenna: east, north, up in metres.
    #[param(default)]
    pub antennas_enu_metres: Vec<[f64; 3]>,
    /// Frequency by which the receivers shift the signal down before sampling: a source delayed by tau
    /// turns by a further `-2 pi local_oscillator_hz tau`.
    #[param(default)]
    pub local_oscillator_hz: f64,
    /// Nyquist zone of the signal that is sampled, counted from 1. Even zones have an inverted spectrum.
    #[param(default = 1, range = 1..=MAX_NYQUIST_ZONE)]
    pub nyquist_zone: u32,
    /// Point source that all antennas receive.
    pub source: Option<Source>,
}

/// First timestamp of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number of ADC samples or `now`")]
pub enum FirstTimestamp {
    /// This timestamp.
    At(u64),
    /// The present time.
    Present(Present),
}

/// The present time, as a word in YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Present {
    /// The time when the block starts.
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
    /// Seed of the noise, which is identical at all antennas with the same seed.
    #[serde(default)]
    pub seed: u64,
    /// Fraction of the power that is identical in both polarisations, 0 to 1.
    #[serde(default)]
    pub polarised_fraction: f64,
}

impl Source {
    /// Returns the direction of the source at the beginning of a period.
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

    /// Returns the rate of the delay at this position, in seconds per second.
    fn delay_rate(&self, enu_metres: [f64; 3]) -> f64 {
        let [azimuth, elevation] =
            [self.azimuth_rate_degrees_per_second, self.elevation_rate_degrees_per_second];
        self.direction().delay_rate(enu_metres, azimuth, elevation)
    }
}

impl DigitiserSimulator {
    /// Band of the samples; none in the first Nyquist zone, where the frequencies are those of the samples.
    fn band(&self) -> Option<Band> {
        let mut band = nyquist::band(self.nyquist_zone, self.adc_sample_rate_hz, None)?;
        band.centre_hz += self.local_oscillator_hz;
        Some(band)
    }

    /// Frequency by which the phase of a delayed source turns, in addition to its frequency in the samples. A frequency
    /// `f` of the samples is `zero + s f` on the sky, and phases in the samples are `s` times those on the sky (`s` the
    /// sign of the sideband): a delay of tau is the phase `-2 pi s (zero + s f) tau = -2 pi (s zero + f) tau`.
    fn turning_hz(&self) -> f64 {
        let zero_hz = f64::from(self.nyquist_zone / 2) * self.adc_sample_rate_hz;
        Sideband::of_nyquist_zone(self.nyquist_zone).sign() * (self.local_oscillator_hz + zero_hz)
    }

    /// Returns the number of frames, if limited.
    fn frame_limit(&self) -> Option<u64> {
        let by_time = self.duration_seconds.map(|seconds| {
            (seconds * self.adc_sample_rate_hz / self.samples_per_frame as f64).ceil() as u64
        });
        match (self.frames, by_time) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn check_sizes(&self, rejections: &mut Vec<Rejection>) {
        let (frame, heap, period) =
            (self.samples_per_frame, self.samples_per_heap, self.period_samples);
        if heap == 0 || !heap.is_multiple_of(8) {
            rejections.push(
                Rejection::parameter(
                    "samples_per_heap",
                    format!("`samples_per_heap` must be a positive multiple of 8, got {heap}"),
                )
                .help(format!("the nearest valid value is {}", nearest(heap, 8))),
            );
        } else if frame > MAX_FRAME {
            rejections.push(
                Rejection::parameter(
                    "samples_per_frame",
                    format!("`samples_per_frame` must be at most {MAX_FRAME}, got {frame}"),
                )
                .help(format!("give at most {MAX_FRAME}")),
            );
        } else if frame == 0 || !frame.is_multiple_of(heap) {
            rejections.push(
                Rejection::parameter(
                    "samples_per_frame",
                    format!(
                        "`samples_per_frame` must be a multiple of `samples_per_heap` ({heap}), \
                         got {frame}"
                    ),
                )
                .help(format!(
                    "the nearest multiple is {}; the largest frame is {MAX_FRAME}",
                    nearest(frame, heap).min(MAX_FRAME)
                )),
            );
        }
        let fits = frame > 0
            && period > 0
            && (period.is_multiple_of(frame) || frame.is_multiple_of(period));
        if period > MAX_PERIOD {
            let message = format!("`period_samples` must be at most {MAX_PERIOD}, got {period}");
            rejections.push(
                Rejection::parameter("period_samples", message)
                    .help(format!("give at most {MAX_PERIOD}")),
            );
        } else if period == 0 || !period.is_multiple_of(8) || !fits {
            rejections.push(
                Rejection::parameter(
                    "period_samples",
                    format!(
                        "`period_samples` must be a multiple of 8, and a multiple or a divisor of \
                         `samples_per_frame`, got {period}"
                    ),
                )
                .note(At::Parameter("samples_per_frame"), "the length of a frame comes from here")
                .help(format!(
                    "the nearest multiple of `samples_per_frame` is {}; the longest period is \
                     {MAX_PERIOD}",
                    nearest(period, frame.clamp(8, MAX_PERIOD))
                )),
            );
        }
        if let FirstTimestamp::At(first) = self.first_timestamp
            && frame > 0
            && !first.is_multiple_of(frame as u64)
        {
            let next = first.div_ceil(frame as u64).saturating_mul(frame as u64);
            let message = format!(
                "`first_timestamp` must be a multiple of `samples_per_frame` ({frame}), got {first}"
            );
            rejections.push(
                Rejection::parameter("first_timestamp", message)
                    .help(format!("the next multiple is {next}")),
            );
        }
    }

    fn check_values(&self, rejections: &mut Vec<Rejection>) {
        if !matches!(self.bits, 2..=10 | 12 | 16) {
            rejections.push(
                Rejection::parameter(
                    "bits",
                    format!("`bits` must be 2 to 10, 12 or 16, got {}", self.bits),
                )
                .help("give a width such as 10"),
            );
        }
        if !(self.adc_sample_rate_hz > 0.0 && self.adc_sample_rate_hz.is_finite()) {
            rejections.push(Rejection::parameter(
                "adc_sample_rate_hz",
                format!(
                    "`adc_sample_rate_hz` must be positive and finite, got {}",
                    self.adc_sample_rate_hz
                ),
            ));
        }
        if let Some(seconds) = self.duration_seconds
            && (seconds.is_nan() || seconds < 0.0)
        {
            let message = format!("`duration_seconds` must be at least 0, got {seconds}");
            rejections.push(Rejection::parameter("duration_seconds", message));
        }
        rejections.extend(reject_catch_up(self.catch_up));
        let Some(source) = self.source else { return };
        if self.antenna >= self.antennas_enu_metres.len() {
            rejections.push(
                Rejection::parameter(
                    "antenna",
                    format!("antenna {} has no position, which `source` needs", self.antenna),
                )
                .note(
                    At::Parameter("antennas_enu_metres"),
                    format!("{} positions are given here", self.antennas_enu_metres.len()),
                )
                .help("add the position [east, north, up] in metres to `antennas_enu_metres`"),
            );
        }
        if self.antennas_enu_metres.iter().flatten().any(|v| !v.is_finite() || v.abs() > 1e7) {
            rejections.push(Rejection::parameter(
                "antennas_enu_metres",
                "positions in `antennas_enu_metres` must be finite and within 10000 km (1e7)",
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
            let message = "direction, rates and amplitude of `source` must be finite";
            rejections.push(Rejection::parameter("source", message));
        } else if !source.direction().is_valid() {
            let message = "elevation of `source` must be from -90 to 90 degrees";
            rejections.push(Rejection::parameter("source", message));
        }
        if !self.local_oscillator_hz.is_finite() {
            let message =
                format!("`local_oscillator_hz` must be finite, got {}", self.local_oscillator_hz);
            rejections.push(Rejection::parameter("local_oscillator_hz", message));
        }
        if let Some(place) = self.antennas_enu_metres.get(self.antenna) {
            let moved_samples = source.delay_rate(*place).abs() * self.period_samples as f64;
            // Written so that NaN is rejected, too.
            let is_slow = moved_samples <= MAX_MOVED_SAMPLES;
            if !is_slow {
                rejections.push(
                    Rejection::parameter(
                        "source",
                        format!(
                            "the delay of the source must change by at most {MAX_MOVED_SAMPLES} samples \
                             over a period, got {moved_samples:.2}"
                        ),
                    )
                    .note(At::Parameter("period_samples"), "the period comes from here")
                    .help("lower the rates of `source`, or shorten `period_samples`"),
                );
            }
        }
        if !(0.0..=1.0).contains(&source.polarised_fraction) {
            rejections.push(
                Rejection::parameter(
                    "source.polarised_fraction",
                    format!(
                        "`polarised_fraction` must be between 0 and 1, got {}",
                        source.polarised_fraction
                    ),
                )
                .help("0 is unpolarised, 1 is identical in both polarisations"),
            );
        }
    }

    /// Warning about a tone of `hz` that is not in the band, or at another frequency than the given one.
    fn tone_warning(&self, hz: f64) -> Option<Rejection> {
        let rate_hz = self.adc_sample_rate_hz;
        let step_hz = rate_hz / self.period_samples as f64;
        let used = (hz / step_hz).round() * step_hz;
        let warning = |message: String, label: &str| {
            Rejection::new(codes::IMPLAUSIBLE, At::Parameter("signals"), message).label(label)
        };
        if hz.abs() > rate_hz / 2.0 {
            let alias = used.rem_euclid(rate_hz);
            let message = format!(
                "a tone of {} Hz is above half of the sample rate of {} Hz and appears at {} Hz",
                four_digits(hz),
                four_digits(rate_hz),
                four_digits(alias.min(rate_hz - alias))
            );
            let help = "lower its frequency, or raise `adc_sample_rate_hz`";
            return Some(warning(message, "aliased").help(help));
        }
        let is_near = (used - hz).abs() <= 0.1 * hz.abs();
        (!is_near).then(|| {
            let (used, step_hz) = (four_digits(used), four_digits(step_hz));
            let message = format!(
                "a tone of {} Hz becomes {used} Hz: frequencies are multiples of {step_hz} Hz",
                four_digits(hz)
            );
            let help = "raise `period_samples`, or give a multiple";
            warning(message, "rounded").help(help)
        })
    }

    /// Parses `signals`.
    fn program(&self) -> Result<Program, Box<Rejection>> {
        let program = Program::parse(&self.signals).map_err(|error| {
            let column = self.signals[..error.start].chars().count() + 1;
            let place = if error.word.is_empty() {
                format!("at the end, column {column} of the text")
            } else {
                format!("at `{}`, column {column} of the text", error.word)
            };
            let rejection = Rejection::parameter("signals", error.message).label(place);
            Box::new(match error.help {
                Some(help) => rejection.help(help),
                None => rejection,
            })
        })?;
        if program.signals.len() > 2 {
            let message = format!(
                "`signals` must have at most two signals, one per polarisation, got {}",
                program.signals.len()
            );
            let help = "define a part of a signal as a variable: `name = value;`";
            return Err(Box::new(Rejection::parameter("signals", message).help(help)));
        }
        Ok(program)
    }
}

/// Returns the positive multiple of `of` nearest to `value`.
fn nearest(value: usize, of: usize) -> usize {
    let of = of.max(1);
    (value / of + usize::from(value % of >= of.div_ceil(2))).max(1).saturating_mul(of)
}

impl KindSpec for DigitiserSimulator {
    /// The parsed `signals`.
    type Shape = Program;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        Ok(Box::new(cpu::Digitiser::new(block.parameters.clone(), block.shape.clone(), env)))
    })];

    fn ports(&self, _inputs: &[PortType]) -> Checked<Program> {
        let mut rejections = Vec::new();
        self.check_sizes(&mut rejections);
        self.check_values(&mut rejections);
        let program = self.program().map_err(|rejection| rejections.push(*rejection));
        let (Ok(program), true) = (program, rejections.is_empty()) else { return Err(rejections) };
        let heaps = self.samples_per_frame / self.samples_per_heap;
        let port = PortType {
            dtype: Dtype::Packed(self.bits),
            axes: vec![
                Axis::new("sample", self.samples_per_frame).from_parameter("samples_per_frame"),
            ],
            clock: Clock {
                sync_time: self.sync_time_seconds,
                ..Clock::new(self.adc_sample_rate_hz, self.samples_per_frame as u64)
            },
            band: self.band(),
            validity: ValidityType::flags(vec![
                Axis::new("heap", heaps).from_parameter("samples_per_frame"),
            ]),
        };
        Ok((program, vec![port.clone(), port]))
    }

    fn frame_sizes(&self) -> Option<FrameSizes> {
        // `frames` counts frames, so their size sets the length of the stream.
        if !self.paced || self.frames.is_some() {
            return None;
        }
        let (heap, period) = (self.samples_per_heap as u64, self.period_samples as u64);
        let mut frame = FrameSizes::of_heaps(
            "samples_per_frame",
            self.adc_sample_rate_hz,
            heap,
            self.bits.into(),
        )?;
        frame.sizes.retain(|size| {
            let begins = match self.first_timestamp {
                FirstTimestamp::At(first) => first.is_multiple_of(*size),
                FirstTimestamp::Present(_) => true,
            };
            let fits_period = period.is_multiple_of(*size) || size.is_multiple_of(period.max(1));
            *size <= MAX_FRAME as u64 && begins && fits_period
        });
        Some(frame)
    }

    fn rounded(block: &Configured<Self>) -> Vec<Rounded> {
        let parameters = &block.parameters;
        let Some(given) = parameters.duration_seconds.filter(|seconds| *seconds > 0.0) else {
            return Vec::new();
        };
        let step = parameters.samples_per_frame as f64 / parameters.adc_sample_rate_hz;
        let used = (given / step).ceil() * step;
        vec![Rounded { parameter: "duration_seconds", unit: "s", given, used, step }]
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        let parameters = &block.parameters;
        let rate_hz = parameters.adc_sample_rate_hz;
        let tones = block.shape.frequencies_hz().into_iter();
        let tones = tones.filter_map(|hz| parameters.tone_warning(hz));
        slow_digitiser("adc_sample_rate_hz", rate_hz).into_iter().chain(tones).collect()
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let Configured { parameters, shape: program, .. } = block;
        let packed = 2 * parameters.period_samples * usize::from(parameters.bits) / 8;
        // While periods are computed: the variables, the operands, and the buffers for delaying the source.
        let signals = program.signals.iter().map(|signal| &signal.expression);
        let deepest = program.variables.iter().chain(signals).map(Expression::signals_held);
        let held = program.variables.len() + deepest.max().unwrap_or(1);
        let transforms = match parameters.source {
            Some(source) if source.is_moving() || parameters.turning_hz() != 0.0 => 8,
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
        Ok(Periods::new(&new.parameters, &new.shape, |_| ()))
    }
}

#[cfg(test)]
mod tests;
