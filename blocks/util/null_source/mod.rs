#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
mod pattern;

use crate::common::axes;
use fxgraph::DeviceName;
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::frame::Header;
use fxgraph::time::SECOND_PICOSECONDS;
use fxgraph::{
    Axis, Band, Checked, Clock, Dtype, Implementation, Implementations, Kind, KindSpec, PortType,
    Rejection, Sideband, Time, TimeBase, ValidityType,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bits of the timestamps of a turn: each restart begins a later turn.
const TURN_BITS: u32 = 48;
/// Last turn with a whole turn of timestamps that blocks count.
const MAX_TURN: u64 = (MAX_TIMESTAMP >> TURN_BITS) - 1;
/// Time from the last sample before a restart to the sync time after it.
const RESTART_PICOSECONDS: i128 = 60 * SECOND_PICOSECONDS as i128;

/// Parameters of `null_source`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "null_source", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct NullSource {
    /// Element type: `i10p` (packed, 2 to 16 bits), `u8`, `i8`, `i16`, `i32`, `i64`, `f16`, `f32`, `f64`, `ci4`,
    /// `ci8`, `ci16`, `ci32`, `cf16`, `cf32`, `cf64`.
    pub dtype: String,
    /// Axes of a frame, slowest first.
    pub axes: Vec<AxisParameter>,
    /// Axes of the validity flags; by default one flag per frame.
    #[param(default)]
    pub validity_axes: Vec<AxisParameter>,
    /// Validity count of a complete unit.
    #[param(default = 1)]
    pub validity_full: u32,
    /// ADC samples from one frame to the next.
    pub samples_per_frame: u64,
    /// ADC sample rate in Hz.
    #[param(default = 1.712e9)]
    pub adc_sample_rate_hz: f64,
    /// Time of timestamp 0: Unix seconds, or a time in UTC such as `2026-11-25T14:20:40.25Z`.
    #[param(default)]
    pub sync_time_seconds: Time,
    /// ADC samples by which the signal is later than the timestamps, as behind a filter.
    #[param(default)]
    pub filter_delay_samples: f64,
    /// Timestamp of the first frame, in ADC samples.
    #[param(default)]
    pub first_timestamp: u64,
    /// Number of frames; by default the source runs until the flowgraph stops.
    pub frames: Option<u64>,
    /// Frames after which the sender starts again: the timestamps begin again at `first_timestamp`, one turn of 2^48
    /// later, and the sync time is a minute after the last sample. By default never.
    pub restart_every: Option<u64>,
    /// Period of missing units: every n-th unit of validity is flagged as missing, counted across frames; by
    /// default none. The payload of a missing unit still has the pattern.
    pub missing_every: Option<u64>,
    /// Content of the frames: `zeros`, `counter` (bytes that count up), `random`, or `untouched` (previous content
    /// of the buffer; costs no time).
    #[param(default)]
    pub pattern: Pattern,
    /// Seed of the random numbers.
    #[param(default)]
    pub seed: u64,
    /// Frequencies of the channel axis.
    pub band: Option<BandParameter>,
}

/// One axis.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AxisParameter {
    /// Name: `sample`, `heap`, `pol`, `spectrum`, `unzip`, `channel`, `antenna`, `baseline`, `product`, `beam`,
    /// `east_west`, `north_south`, `epoch`, `satellite`, `slot`, `tap`, `value` or `mean`.
    pub name: String,
    /// Number of elements.
    pub len: usize,
}

/// Frequencies of a channel axis.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BandParameter {
    /// Channels of the whole band.
    pub channels: usize,
    /// Index of the first channel of the axis in the whole band.
    #[serde(default)]
    pub first_channel: usize,
    /// Frequency at the centre of the whole band, in Hz.
    pub centre_hz: f64,
    /// Width of the whole band in Hz; negative if the spectrum is inverted (lower sideband).
    pub bandwidth_hz: f64,
    /// Sideband, in place of the sign of the width. `lower`: the spectrum is inverted. The frequency falls with the
    /// channel, and with the frequency of complex samples, and values are the complex conjugates of those of the sky.
    pub sideband: Option<Sideband>,
}

impl BandParameter {
    /// Returns the band for an axis of `channels` channels, or the reason why it is invalid.
    pub fn band(&self, channels: usize) -> Result<Band, String> {
        let &Self { channels: all, first_channel, centre_hz, bandwidth_hz, sideband } = self;
        let band = Band::signed(all, first_channel, centre_hz, bandwidth_hz);
        if sideband == Some(Sideband::Upper) && bandwidth_hz < 0.0 {
            return Err(format!(
                "`bandwidth_hz` must be positive with `sideband: upper`, got {bandwidth_hz}"
            ));
        }
        let band = Band { sideband: sideband.unwrap_or(band.sideband), ..band };
        band.impossible(channels).map_or(Ok(band), Err)
    }
}

/// Content of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Zeros.
    #[default]
    Zeros,
    /// Bytes that count up modulo 251, across frames.
    Counter,
    /// Random values.
    Random,
    /// Previous content of the buffer: costs no time, for measuring blocks downstream.
    Untouched,
}

/// Reads a list of axes; adds diagnostics to `rejections`.
fn read_axes(
    list: &[AxisParameter],
    parameter: &'static str,
    rejections: &mut Vec<Rejection>,
) -> Vec<Axis> {
    let mut out: Vec<Axis> = Vec::new();
    for axis in list {
        let reject = |message: String| Rejection::parameter(parameter, message);
        match axes::known(&axis.name) {
            None => rejections.push(
                reject(format!("unknown axis `{}`", axis.name))
                    .help(format!("use one of {}", axes::NAMES.join(", "))),
            ),
            Some(name) if out.iter().any(|other| other.name == name) => {
                rejections.push(reject(format!("duplicate axis `{name}`")));
            }
            Some(name) if axis.len == 0 => {
                let message = format!("`len` of axis `{name}` must be at least 1, got 0");
                rejections.push(reject(message).help("give a length such as 1024"));
            }
            Some(name) => out.push(Axis::new(name, axis.len).from_parameter(parameter)),
        }
    }
    out
}

/// Writes the validity of frame number `frame`: `full`, except 0 for every `missing_every`-th unit.
fn write_validity(validity: &mut [u32], frame: u64, full: u32, missing_every: Option<u64>) {
    validity.fill(full);
    let Some(every) = missing_every else { return };
    let first = frame.wrapping_mul(validity.len() as u64);
    for (n, count) in validity.iter_mut().enumerate() {
        if (first.wrapping_add(n as u64) + 1).is_multiple_of(every) {
            *count = 0;
        }
    }
}

/// Timestamps and time bases of the frames.
struct Times {
    first: u64,
    step: u64,
    restart_every: u64,
    sync_time: Time,
    /// Time from one restart to the next, in picoseconds.
    turn_picoseconds: i128,
}

impl Times {
    fn new(parameters: &NullSource, port: &PortType) -> Self {
        let clock = &port.clock;
        let restart_every = parameters.restart_every.unwrap_or(u64::MAX);
        let samples = restart_every.saturating_mul(clock.samples_per_frame);
        let run = Time::picoseconds_of(samples, clock.adc_sample_rate_hz).unwrap_or(0);
        Self {
            first: parameters.first_timestamp,
            step: clock.samples_per_frame,
            restart_every,
            sync_time: clock.sync_time,
            turn_picoseconds: run + RESTART_PICOSECONDS,
        }
    }

    /// Writes the timestamp and the time base of frame number `frame`.
    fn write(&self, header: &mut Header, frame: u64) {
        // The last turn that blocks can count goes on without an end.
        let turn = (frame / self.restart_every).min(MAX_TURN);
        let frame = frame - turn * self.restart_every;
        let from = turn << TURN_BITS;
        header.timestamp =
            from.wrapping_add(self.first).wrapping_add(frame.wrapping_mul(self.step));
        if turn > 0 {
            let later = self.sync_time.plus_picoseconds(i128::from(turn) * self.turn_picoseconds);
            header.base = TimeBase { from, sync_time: later, ..TimeBase::default() };
        }
    }
}

impl NullSource {
    /// Samples that the sender counts until it starts again after `frames` frames, or the reason why it can't.
    fn samples_until_restart(&self, frames: u64) -> Result<u64, String> {
        if frames == 0 {
            return Err("`restart_every` must be at least 1, got 0".to_owned());
        }
        let samples = frames.checked_mul(self.samples_per_frame);
        let samples = samples.and_then(|samples| samples.checked_add(self.first_timestamp));
        samples.filter(|samples| *samples <= 1 << (TURN_BITS - 1)).ok_or_else(|| {
            format!(
                "the timestamps of `restart_every` frames must be below 2^47, got {frames} frames"
            )
        })
    }

    pub(crate) fn output(&self) -> Result<PortType, Vec<Rejection>> {
        let mut rejections = Vec::new();
        let dtype = self.dtype.parse::<Dtype>().unwrap_or_else(|unknown| {
            let names = Dtype::WHOLE_BYTES.map(|dtype| dtype.to_string()).join(", ");
            let help = if self.dtype.starts_with("cu") {
                "read complex samples of unsigned integers, as of an RTL-SDR, with `sigmf_source`"
                    .to_owned()
            } else {
                format!("use one of i10p (packed, 2 to 16 bits), {names}")
            };
            rejections.push(Rejection::parameter("dtype", unknown.to_string()).help(help));
            Dtype::U8
        });
        let axes = read_axes(&self.axes, "axes", &mut rejections);
        let validity_axes = read_axes(&self.validity_axes, "validity_axes", &mut rejections);
        if axes::checked_elements(&axes, axes::MAX_FRAME_BYTES * 8 / dtype.bits()).is_none() {
            rejections.push(Rejection::parameter("axes", "a frame must have at most 4 GiB"));
        }
        if axes::checked_elements(&validity_axes, 1 << 24).is_none() {
            let message = "a frame must have at most 16777216 validity flags";
            rejections.push(Rejection::parameter("validity_axes", message));
        }
        if self.validity_full == 0 {
            let message = "`validity_full` must be at least 1, got 0";
            rejections.push(Rejection::parameter("validity_full", message));
        }
        if self.missing_every == Some(0) {
            rejections.push(
                Rejection::parameter("missing_every", "`missing_every` must be at least 1, got 0")
                    .help("1 flags all units as missing; omit `missing_every` for none"),
            );
        }
        let restart = self.restart_every.map(|frames| self.samples_until_restart(frames));
        if let Some(Err(why)) = restart {
            let help = "give a number of frames such as 1000, or omit `restart_every` for none";
            rejections.push(Rejection::parameter("restart_every", why).help(help));
        }
        if self.samples_per_frame == 0 {
            let message = "`samples_per_frame` must be at least 1, got 0";
            rejections.push(
                Rejection::parameter("samples_per_frame", message)
                    .help("give a length such as 4096"),
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
        let channels = axes.iter().find(|axis| axis.name == "channel").map_or(1, |axis| axis.len);
        let band = self.band.map(|band| band.band(channels)).transpose();
        let band = band.unwrap_or_else(|why| {
            let help = "give finite frequencies, and let `first_channel` plus the length of the axis be at most \
                        `channels`";
            rejections.push(Rejection::parameter("band", why).help(help));
            None
        });
        if !rejections.is_empty() {
            return Err(rejections);
        }
        Ok(PortType {
            dtype,
            axes,
            clock: Clock {
                sync_time: self.sync_time_seconds,
                filter_delay_samples: self.filter_delay_samples,
                ..Clock::new(self.adc_sample_rate_hz, self.samples_per_frame)
            },
            band,
            validity: ValidityType { axes: validity_axes, full: self.validity_full },
        })
    }
}

impl KindSpec for NullSource {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, _| {
            Ok(Box::new(cpu::Source::new(&block.parameters, &block.ports.outputs[0])))
        }),
        Implementation::cuda(
            "cuda",
            "fills each frame once and sends it repeatedly",
            |block, env| {
                Ok(Box::new(cuda::Cuda::new(&block.parameters, &block.ports.outputs[0], env)?))
            },
        ),
    ];

    fn ports(&self, _inputs: &[PortType]) -> Checked<()> {
        Ok(((), vec![self.output()?]))
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        bench::benchmarks(device)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph::Ports;
    use fxgraph::{Next, edge::Harness};
    use half::f16;

    fn parameters(json: serde_json::Value) -> NullSource {
        serde_json::from_value(json).unwrap()
    }

    fn run(source: &NullSource) -> Vec<(u64, Vec<u8>)> {
        let ports = Ports { inputs: vec![], outputs: source.outputs(&[]).unwrap() };
        let block = Box::new(cpu::Source::new(source, &ports.outputs[0]));
        let mut harness = Harness::new(block, &ports, 2).unwrap();
        let mut frames = Vec::new();
        loop {
            let next = Harness::block_on(harness.run()).unwrap();
            while let Some(frame) = harness.receive(0) {
                assert!(frame.header().validity.iter().all(|v| *v == source.validity_full));
                frames.push((frame.header().timestamp, frame.as_slice::<u8>().unwrap().to_vec()));
            }
            if next == Next::Finished {
                return frames;
            }
        }
    }

    #[test]
    fn null_source_sends_the_requested_frames_with_a_running_counter() {
        let source = parameters(serde_json::json!({
            "dtype": "i16", "axes": [{"name": "sample", "len": 100}], "samples_per_frame": 50,
            "frames": 5, "first_timestamp": 7, "pattern": "counter",
        }));
        let frames = run(&source);
        assert_eq!(frames.iter().map(|f| f.0).collect::<Vec<_>>(), [7, 57, 107, 157, 207]);
        let mut bytes = frames.iter().flat_map(|f| &f.1).enumerate();
        assert!(bytes.all(|(i, b)| i % 251 == usize::from(*b)));
    }

    #[test]
    fn missing_every_flags_units_evenly_across_frames() {
        let source = parameters(serde_json::json!({
            "dtype": "i8", "axes": [{"name": "heap", "len": 5}], "validity_axes": [{"name": "heap", "len": 5}],
            "samples_per_frame": 5, "validity_full": 3, "missing_every": 4,
        }));
        let units = |frame| {
            let mut validity = [7; 5];
            write_validity(&mut validity, frame, source.validity_full, source.missing_every);
            validity
        };
        let found = [0, 1, 2, 3].map(units).concat();
        let expected = [3, 3, 3, 0].repeat(5);
        assert_eq!(found, expected);
        let none = NullSource { missing_every: Some(0), ..source };
        assert!(none.outputs(&[]).unwrap_err()[0].message.contains("`missing_every`"));
    }

    #[test]
    fn sender_starts_again_a_turn_later_with_a_later_sync_time() {
        let source = parameters(serde_json::json!({
            "dtype": "i8", "axes": [{"name": "sample", "len": 100}], "samples_per_frame": 100, "frames": 5,
            "first_timestamp": 7, "adc_sample_rate_hz": 100.0, "sync_time_seconds": 1000, "restart_every": 2,
        }));
        let output = source.output().unwrap();
        let times = Times::new(&source, &output);
        let headers = (0..5).map(|frame| {
            let mut header = Header::default();
            times.write(&mut header, frame);
            (header.timestamp, header.base)
        });
        // Two frames are two seconds; a minute passes until the next sync time.
        let base = |turn: u64, seconds| TimeBase {
            from: turn << 48,
            sync_time: Some(Time::unix(seconds)),
            ..TimeBase::default()
        };
        let expected = [
            (7, TimeBase::default()),
            (107, TimeBase::default()),
            ((1 << 48) + 7, base(1, 1062)),
            ((1 << 48) + 107, base(1, 1062)),
            ((2 << 48) + 7, base(2, 1124)),
        ];
        assert_eq!(headers.collect::<Vec<_>>(), expected);
        let mut last = Header::default();
        times.write(&mut last, 1 << 40);
        assert!(last.timestamp > last.base.from && last.timestamp < 1 << 62, "{last:?}");
        for restart_every in [0, 1 << 41, u64::MAX] {
            let impossible = NullSource { restart_every: Some(restart_every), ..source.clone() };
            let why = &impossible.outputs(&[]).unwrap_err()[0].message;
            assert!(why.contains("restart_every"), "{why}");
        }
    }

    #[test]
    fn random_complex_bytes_exclude_the_most_negative_value() {
        for dtype in ["ci8", "ci4"] {
            let source = parameters(serde_json::json!({
                "dtype": dtype, "axes": [{"name": "sample", "len": 4096}], "samples_per_frame": 1,
                "frames": 2, "pattern": "random",
            }));
            let frames = run(&source);
            assert_ne!(frames[0].1, frames[1].1);
            assert_eq!(frames, run(&source));
            let bytes = || frames.iter().flat_map(|f| f.1.iter().copied());
            if dtype == "ci8" {
                assert!(bytes().all(|b| b != 0x80));
            } else {
                assert!(bytes().all(|b| b >> 4 != 8 && b & 15 != 8));
            }
        }
    }

    #[test]
    fn random_floats_of_every_width_fill_minus_one_to_one() {
        for dtype in ["f16", "f32", "f64", "cf16", "cf32", "cf64"] {
            let source = parameters(serde_json::json!({
                "dtype": dtype, "axes": [{"name": "sample", "len": 4096}], "samples_per_frame": 1,
                "frames": 1, "pattern": "random",
            }));
            let bytes = &run(&source)[0].1;
            let values: Vec<f64> = match &dtype[dtype.len() - 2..] {
                "16" => bytes.as_chunks().0.iter().map(|b| f16::from_ne_bytes(*b).into()).collect(),
                "32" => bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b).into()).collect(),
                _ => bytes.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect(),
            };
            let parts = if dtype.starts_with('c') { 2 } else { 1 };
            assert_eq!(values.len(), parts * 4096);
            assert!(values.iter().all(|value| value.abs() <= 1.0), "{dtype}");
            let power = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
            assert!((power - 1.0 / 3.0).abs() < 0.03, "{dtype}: {power}");
        }
    }

    #[test]
    fn page_and_parameters_list_every_type_and_axis() {
        let schema = (crate::kinds().get("null_source").unwrap().schema)().to_value().to_string();
        // The page names the types, and links to the names of axes.
        let names_of_axes = include_str!("../../../docs/src/reference/files.md");
        let types = Dtype::WHOLE_BYTES.map(|dtype| (dtype.to_string(), NullSource::PAGE));
        let axes = axes::NAMES.iter().map(|name| (name.to_string(), names_of_axes));
        for (name, page) in types.into_iter().chain(axes) {
            let quoted = format!("`{name}`");
            assert!(schema.contains(&quoted), "{name} is not in the parameters' docs");
            assert!(page.contains(&quoted), "{name} is not on its page");
        }
    }

    #[test]
    fn null_source_rejects_a_band_that_does_not_fit_the_axis() {
        let band = |channels: usize, first_channel: usize, bandwidth_hz: f64| {
            let source = NullSource {
                band: Some(BandParameter {
                    channels,
                    first_channel,
                    centre_hz: 1e9,
                    bandwidth_hz,
                    sideband: None,
                }),
                ..parameters(serde_json::json!({
                    "dtype": "u8", "axes": [{"name": "channel", "len": 4}], "samples_per_frame": 8,
                }))
            };
            source.outputs(&[]).map_err(|rejections| rejections[0].message.clone())
        };
        assert!(band(8, 4, 1e8).is_ok());
        for first_channel in [5, usize::MAX] {
            let rejected = band(8, first_channel, 1e8).unwrap_err();
            assert_eq!(rejected, "the channel axis must be within the band of 8 channels");
        }
        assert!(band(0, 0, 1e8).is_err() && band(8, 0, f64::INFINITY).is_err());
    }

    #[test]
    fn bad_parameters_are_all_reported_at_once() {
        let source = parameters(serde_json::json!({
            "dtype": "i99", "axes": [{"name": "chanel", "len": 1}, {"name": "pol", "len": 0}],
            "samples_per_frame": 0, "adc_sample_rate_hz": -1.0,
        }));
        assert_eq!(source.outputs(&[]).unwrap_err().len(), 5);
        let huge = parameters(serde_json::json!({
            "dtype": "u8", "axes": [{"name": "pol", "len": u64::MAX}, {"name": "sample", "len": u64::MAX}],
            "samples_per_frame": 1,
        }));
        assert_eq!(huge.outputs(&[]).unwrap_err().len(), 1);
    }
}
