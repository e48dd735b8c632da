//! JSON side file of a recording: description and origin of its arrays.

use super::json;
use fxgraph_core::dtype::UnknownDtype;
use fxgraph_core::flowgraph_texts::FlowgraphText;
use fxgraph_core::{Axis, Band, Clock, Dtype, Env, PortType, Time, ValidityType, npy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Value of `format`.
const FORMAT: &str = "fxgraph recording";
/// Largest accepted frame, in bytes.
const MAX_FRAME_BYTES: usize = 1 << 32;
/// Largest accepted number of validity units.
const MAX_UNITS: usize = 1 << 24;
/// Largest accepted number of axes of a frame or of its validity.
const MAX_AXES: usize = 16;
/// Largest accepted number of channels of the whole band.
const MAX_CHANNELS: usize = 1 << 40;
/// Largest accepted number of ADC samples per frame: 45 hours at 1.7 GHz.
const MAX_SAMPLES: u64 = 1 << 48;
/// Largest accepted number of characters of a label.
const MAX_LABEL: usize = 256;
/// Number of characters of a text that errors show.
const MAX_SHOWN: usize = 40;

/// Content of a side file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SideFile {
    /// Identifies a side file: `fxgraph recording`.
    pub format: String,
    /// Whether the recording ended regularly.
    pub complete: bool,
    /// Number of frames.
    pub frames: u64,
    /// Element type of the stream.
    pub dtype: String,
    /// Layout of the elements in the data array.
    pub layout: String,
    /// Axes of one frame; in the data array the frames come first.
    pub axes: Vec<AxisEntry>,
    /// Sample clock.
    pub clock: ClockEntry,
    /// Frequencies of the whole band.
    pub band: Option<BandEntry>,
    /// Meaning of the validity counts.
    pub validity: ValidityEntry,
    /// File or member of each array: `data`, `sequence`, `timestamp`, `config_id`, `validity`,
    /// `checksum`, annotations.
    pub arrays: BTreeMap<String, String>,
    /// Timestamp of the first frame, in ADC samples.
    pub first_timestamp: Option<u64>,
    /// Unix time of the first frame in seconds.
    pub start_unix_seconds: Option<f64>,
    /// Name of the block that wrote the recording.
    pub block: String,
    /// Version of the program that wrote the recording.
    pub fxgraph_version: String,
    /// Hash of the resolved flowgraph.
    pub config_hash: String,
    /// The resolved flowgraph, with the values in force at the first frame.
    pub flowgraph: String,
}

/// Description of the type of a stream: the part of a side file that says how to read a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamType {
    /// Element type, such as `i10p`, `i16`, `f32`, `ci8` or `cf32`.
    pub dtype: String,
    /// Layout of the elements in an array of `NumPy`; for readers, not read.
    #[serde(default)]
    pub layout: String,
    /// Axes of a frame, slowest first.
    pub axes: Vec<AxisEntry>,
    /// Sample clock.
    pub clock: ClockEntry,
    /// Frequencies of the whole band.
    #[serde(default)]
    pub band: Option<BandEntry>,
    /// Meaning of the validity counts; by default one flag per frame.
    #[serde(default)]
    pub validity: ValidityEntry,
}

/// One axis, with the coordinates of its elements: `first + i * step`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AxisEntry {
    /// Name.
    pub name: String,
    /// Number of elements.
    pub len: usize,
    /// Unit of the coordinates; for readers, not read.
    #[serde(default)]
    pub unit: String,
    /// Coordinate of element 0; times count from the frame's timestamp; for readers, not read.
    #[serde(default)]
    pub first: f64,
    /// Difference from one element to the next; for readers, not read.
    #[serde(default)]
    pub step: f64,
    /// Label of each element, for an axis without a scale.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// Sample clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockEntry {
    /// ADC sample rate in Hz.
    pub adc_sample_rate_hz: f64,
    /// Unix time of timestamp 0 in seconds.
    pub sync_time_seconds: f64,
    /// The same time, UTC, to the picosecond: `2021-11-30T21:19:58.123456789Z`. Files of older versions have only the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_time: Option<String>,
    /// ADC samples from one frame to the next.
    pub samples_per_frame: u64,
    /// ADC samples by which the signal is later than the timestamps, because of filters. Files of older versions do not
    /// have it.
    #[serde(default)]
    pub filter_delay_samples: f64,
}

impl ClockEntry {
    fn of(clock: &Clock) -> Self {
        Self {
            adc_sample_rate_hz: clock.adc_sample_rate_hz,
            sync_time_seconds: clock.sync_time.to_unix_f64(),
            sync_time: Some(clock.sync_time.to_string()),
            samples_per_frame: clock.samples_per_frame,
            filter_delay_samples: clock.filter_delay_samples,
        }
    }
}

/// Frequencies of the whole band.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BandEntry {
    /// Channels of the whole band.
    pub channels: usize,
    /// Index, in the whole band, of the first channel of the axis.
    pub first_channel: usize,
    /// Frequency of channel `channels / 2` in Hz.
    pub centre_hz: f64,
    /// Width in Hz; negative if the spectrum is inverted (lower sideband).
    pub bandwidth_hz: f64,
}

/// Meaning of the validity counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ValidityEntry {
    /// Axes of the counts of one frame.
    #[serde(default)]
    pub axes: Vec<AxisEntry>,
    /// Count of a unit without missing data.
    pub full: u32,
}

impl Default for ValidityEntry {
    fn default() -> Self {
        Self { axes: Vec::new(), full: 1 }
    }
}

/// Returns the axes with their coordinates.
fn entries(axes: &[Axis], port: &PortType) -> Vec<AxisEntry> {
    let mut samples = port.clock.samples_per_frame as f64;
    let entry = |axis: &Axis| {
        let (unit, first, step) = match (axis.name, &port.band) {
            ("channel", Some(band)) => {
                let step = band.step_hz();
                let from_centre = band.first_channel as f64 - (band.channels / 2) as f64;
                ("Hz", band.centre_hz + from_centre * step, step)
            }
            ("heap" | "spectrum" | "sample", _) => {
                samples /= axis.len as f64;
                ("s", 0.0, samples / port.clock.adc_sample_rate_hz)
            }
            _ => ("index", 0.0, 1.0),
        };
        AxisEntry {
            name: axis.name.to_owned(),
            len: axis.len,
            unit: unit.to_owned(),
            first,
            step,
            labels: axis.labels.clone(),
        }
    };
    axes.iter().map(entry).collect()
}

impl SideFile {
    /// Creates the side file of an empty recording of a stream like `port`, without origin and arrays.
    #[must_use]
    pub fn of(port: &PortType) -> Self {
        let StreamType { dtype, layout, axes, clock, band, validity } = StreamType::of(port);
        Self {
            format: FORMAT.to_owned(),
            complete: false,
            frames: 0,
            dtype,
            layout,
            axes,
            clock,
            band,
            validity,
            arrays: BTreeMap::new(),
            first_timestamp: None,
            start_unix_seconds: None,
            block: String::new(),
            fxgraph_version: env!("CARGO_PKG_VERSION").to_owned(),
            config_hash: String::new(),
            flowgraph: String::new(),
        }
    }

    /// Adds the origin: the block of `env` and its flowgraph.
    #[must_use]
    pub fn made_by(self, env: &Env) -> Self {
        Self { block: env.name.clone(), ..self.of_flowgraph(&env.flowgraph) }
    }

    /// Sets the clock of the frames.
    #[must_use]
    pub fn of_clock(mut self, clock: &Clock) -> Self {
        self.clock = ClockEntry::of(clock);
        self
    }

    /// Sets the flowgraph that made the frames to `text`.
    #[must_use]
    pub fn of_flowgraph(self, text: &FlowgraphText) -> Self {
        Self { config_hash: text.config_hash.clone(), flowgraph: text.yaml(), ..self }
    }

    /// Reads the text of a side file; the error names the invalid value and the reason.
    pub fn read(text: &str) -> Result<Self, String> {
        json::read(text)
    }

    /// Returns the type of the recorded stream. `known` maps the names of axes to static ones, or to `None` if
    /// unknown. The error names the invalid value and the reason.
    pub fn port(&self, known: fn(&str) -> Option<&'static str>) -> Result<PortType, String> {
        self.port_of(known).map_err(|why| json::printable(&why))
    }

    fn port_of(&self, known: fn(&str) -> Option<&'static str>) -> Result<PortType, String> {
        if self.format != FORMAT {
            return Err(format!("`format` must be `{FORMAT}`, found `{}`", short(&self.format)));
        }
        let stream = StreamType {
            dtype: self.dtype.clone(),
            layout: self.layout.clone(),
            axes: self.axes.clone(),
            clock: self.clock.clone(),
            band: self.band,
            validity: self.validity.clone(),
        };
        stream.port_of(known)
    }
}

impl ClockEntry {
    /// Time of timestamp 0: the text if there is one. The error names the invalid value and the reason.
    fn time(&self) -> Result<Time, String> {
        let number = self.sync_time_seconds;
        let time = Time::from_unix_f64(number).ok_or_else(|| {
            format!("`clock.sync_time` must be within the years 1 to 9999, found {number}")
        })?;
        let Some(text) = &self.sync_time else { return Ok(time) };
        let exact = Time::from_iso(text).ok_or_else(|| {
            format!("`clock.sync_time` must be a time in UTC, found `{}`", short(text))
        })?;
        // A program that changed the number and not the text.
        if exact.seconds_since(time).abs() > 1e-3 {
            return Err(format!(
                "`clock.sync_time` and `clock.sync_time` must be equal, found `{text}` and {number}"
            ));
        }
        Ok(exact)
    }

    /// Unix time of the signal at `timestamp` in seconds, if the clock is valid.
    #[must_use]
    pub fn unix_seconds(&self, timestamp: u64) -> Option<f64> {
        let time = self.time().ok()?.plus_samples(timestamp, self.adc_sample_rate_hz)?;
        let late = self.filter_delay_samples / self.adc_sample_rate_hz;
        Some(time.plus_seconds(late)?.to_unix_f64())
    }
}

impl StreamType {
    /// Creates the description of a stream like `port`.
    #[must_use]
    pub fn of(port: &PortType) -> Self {
        let clock = &port.clock;
        Self {
            dtype: port.dtype.to_string(),
            layout: npy::layout(port.dtype).2.to_owned(),
            axes: entries(&port.axes, port),
            clock: ClockEntry::of(clock),
            band: port.band.map(|band| BandEntry {
                channels: band.channels,
                first_channel: band.first_channel,
                centre_hz: band.centre_hz,
                bandwidth_hz: band.signed_bandwidth_hz(),
            }),
            validity: ValidityEntry {
                axes: entries(&port.validity.axes, port),
                full: port.validity.full,
            },
        }
    }

    /// Reads a description in JSON; the error names the invalid value and the reason.
    pub fn read(text: &str) -> Result<Self, String> {
        json::read(text)
    }

    /// Returns the type that is described. `known` maps the names of axes to static ones, or to `None` if unknown. The
    /// error names the invalid value and the reason.
    pub fn port(&self, known: fn(&str) -> Option<&'static str>) -> Result<PortType, String> {
        self.port_of(known).map_err(|why| json::printable(&why))
    }

    fn port_of(&self, known: fn(&str) -> Option<&'static str>) -> Result<PortType, String> {
        let unknown = |_: UnknownDtype| format!("`dtype` is unknown: `{}`", short(&self.dtype));
        let dtype: Dtype = self.dtype.parse().map_err(unknown)?;
        let &ClockEntry { adc_sample_rate_hz, samples_per_frame, filter_delay_samples, .. } =
            &self.clock;
        if !(adc_sample_rate_hz.is_finite() && adc_sample_rate_hz > 0.0) {
            return Err(format!(
                "`clock.adc_sample_rate_hz` must be positive and finite, found {adc_sample_rate_hz}"
            ));
        }
        if !(1..=MAX_SAMPLES).contains(&samples_per_frame) {
            return Err(format!(
                "`clock.samples_per_frame` must be from 1 to {MAX_SAMPLES}, found {samples_per_frame}"
            ));
        }
        let sync_time = self.clock.time()?;
        if !filter_delay_samples.is_finite() {
            return Err("`clock.filter_delay_samples` must be finite".to_owned());
        }
        if self.validity.full == 0 {
            return Err("`validity.full` must be at least 1, found 0".to_owned());
        }
        Ok(PortType {
            dtype,
            axes: axes_of(&self.axes, "axes", MAX_FRAME_BYTES * 8 / dtype.bits(), known)?,
            clock: Clock { adc_sample_rate_hz, sync_time, samples_per_frame, filter_delay_samples },
            band: self.band.as_ref().map(BandEntry::band).transpose()?,
            validity: ValidityType {
                axes: axes_of(&self.validity.axes, "validity.axes", MAX_UNITS, known)?,
                full: self.validity.full,
            },
        })
    }
}

impl BandEntry {
    fn band(&self) -> Result<Band, String> {
        let &Self { channels, first_channel, centre_hz, bandwidth_hz } = self;
        if !(1..=MAX_CHANNELS).contains(&channels) {
            return Err(format!(
                "`band.channels` must be from 1 to {MAX_CHANNELS}, found {channels}"
            ));
        }
        if first_channel >= channels {
            return Err(format!(
                "`band.first_channel` must be less than `band.channels`, found {first_channel} of {channels}"
            ));
        }
        Ok(Band::signed(channels, first_channel, centre_hz, bandwidth_hz))
    }
}

/// Reads the axes under `key`, which must have at most `most` elements in total.
fn axes_of(
    list: &[AxisEntry],
    key: &str,
    most: usize,
    known: fn(&str) -> Option<&'static str>,
) -> Result<Vec<Axis>, String> {
    if list.len() > MAX_AXES {
        return Err(format!("`{key}` must have at most {MAX_AXES} axes, found {}", list.len()));
    }
    let axis = |(number, entry): (usize, &AxisEntry)| {
        let unknown =
            || format!("`{key}[{number}].name`: there is no axis `{}`", short(&entry.name));
        let name = known(&entry.name).ok_or_else(unknown)?;
        let is_label = |label: &String| label.chars().count() <= MAX_LABEL;
        let labels = &entry.labels;
        if !(labels.is_empty() || labels.len() == entry.len && labels.iter().all(is_label)) {
            return Err(format!(
                "`{key}[{number}].labels` must have one label of at most {MAX_LABEL} characters for each of {} \
                 elements, found {}",
                entry.len,
                labels.len()
            ));
        }
        Ok(Axis { labels: labels.clone(), ..Axis::new(name, entry.len) })
    };
    let axes = list.iter().enumerate().map(axis).collect::<Result<_, String>>()?;
    let product = list.iter().try_fold(1usize, |product, axis| product.checked_mul(axis.len));
    if !product.is_some_and(|product| (1..=most).contains(&product)) {
        let lens: Vec<String> = list.iter().map(|axis| axis.len.to_string()).collect();
        let lens = lens.join(" x ");
        return Err(format!("`{key}` must have 1 to {most} elements, found {lens}"));
    }
    Ok(axes)
}

/// Truncates `text` for an error.
fn short(text: &str) -> &str {
    text.char_indices().nth(MAX_SHOWN).map_or(text, |(end, _)| &text[..end])
}
