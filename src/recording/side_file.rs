//! The JSON file beside a recording: what the numbers are, and where they came from.

use crate::dtype::UnknownDtype;
use crate::{Axis, Band, Clock, Dtype, Env, PortType, ValidityType, npy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What `format` says.
const FORMAT: &str = "fxgraph recording";
/// Largest frame that is believed.
const MAX_FRAME_BYTES: usize = 1 << 32;
/// Most validity units that are believed.
const MAX_UNITS: usize = 1 << 24;

/// The whole side file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SideFile {
    /// Says that this is a side file.
    pub format: String,
    /// Whether the stream ended before the file did.
    pub complete: bool,
    /// Frames written.
    pub frames: u64,
    /// Element type of the stream.
    pub dtype: String,
    /// How the elements stand in the data array.
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
    /// Name of the block that wrote it.
    pub block: String,
    /// Version of the program.
    pub fxgraph_version: String,
    /// Hash over the resolved flowgraph.
    pub config_hash: String,
    /// The resolved flowgraph.
    pub flowgraph: String,
}

/// One axis, with the coordinates of its elements: `first + i * step`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AxisEntry {
    /// Name.
    pub name: String,
    /// Number of elements.
    pub len: usize,
    /// Unit of the coordinates.
    pub unit: String,
    /// Coordinate of element 0; times count from the frame's timestamp.
    pub first: f64,
    /// Difference from one element to the next.
    pub step: f64,
}

/// Sample clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClockEntry {
    /// ADC sample rate in Hz.
    pub adc_sample_rate_hz: f64,
    /// Unix time of timestamp 0 in seconds.
    pub sync_time_seconds: f64,
    /// ADC samples from one frame to the next.
    pub samples_per_frame: u64,
}

/// Frequencies of the whole band.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BandEntry {
    /// Channels of the whole band.
    pub channels: usize,
    /// Index of the first recorded channel.
    pub first_channel: usize,
    /// Frequency of channel `channels / 2` in Hz.
    pub centre_hz: f64,
    /// Width in Hz.
    pub bandwidth_hz: f64,
}

/// Meaning of the validity counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ValidityEntry {
    /// Axes of the counts of one frame.
    pub axes: Vec<AxisEntry>,
    /// Count of a unit to which everything contributed.
    pub full: u32,
}

/// The axes with their coordinates.
fn entries(axes: &[Axis], port: &PortType) -> Vec<AxisEntry> {
    let mut samples = port.clock.samples_per_frame as f64;
    let entry = |axis: &Axis| {
        let (unit, first, step) = match (axis.name, &port.band) {
            ("channel", Some(band)) => {
                let step = band.bandwidth_hz / band.channels as f64;
                let from_centre = band.first_channel as f64 - (band.channels / 2) as f64;
                ("Hz", band.centre_hz + from_centre * step, step)
            }
            ("heap" | "spectrum" | "sample", _) => {
                samples /= axis.len as f64;
                ("s", 0.0, samples / port.clock.adc_sample_rate_hz)
            }
            _ => ("index", 0.0, 1.0),
        };
        AxisEntry { name: axis.name.to_owned(), len: axis.len, unit: unit.to_owned(), first, step }
    };
    axes.iter().map(entry).collect()
}

impl SideFile {
    /// The side file of an empty recording of `port`; provenance and arrays are the caller's.
    #[must_use]
    pub fn of(port: &PortType) -> Self {
        let clock = &port.clock;
        Self {
            format: FORMAT.to_owned(),
            complete: false,
            frames: 0,
            dtype: port.dtype.to_string(),
            layout: npy::layout(port.dtype).2.to_owned(),
            axes: entries(&port.axes, port),
            clock: ClockEntry {
                adc_sample_rate_hz: clock.adc_sample_rate_hz,
                sync_time_seconds: clock.sync_time_seconds,
                samples_per_frame: clock.samples_per_frame,
            },
            band: port.band.map(|band| BandEntry {
                channels: band.channels,
                first_channel: band.first_channel,
                centre_hz: band.centre_hz,
                bandwidth_hz: band.bandwidth_hz,
            }),
            validity: ValidityEntry {
                axes: entries(&port.validity.axes, port),
                full: port.validity.full,
            },
            arrays: BTreeMap::new(),
            first_timestamp: None,
            start_unix_seconds: None,
            block: String::new(),
            fxgraph_version: env!("CARGO_PKG_VERSION").to_owned(),
            config_hash: String::new(),
            flowgraph: String::new(),
        }
    }

    /// The same, with what is known of the block that `env` is for: where the numbers come from.
    #[must_use]
    pub fn made_by(self, env: &Env) -> Self {
        Self {
            block: env.name.clone(),
            config_hash: env.config_hash.clone(),
            flowgraph: env.resolved_yaml.to_string(),
            ..self
        }
    }

    /// The stream that was recorded, its axes named by what `known` gives for their names; in words what
    /// cannot be believed.
    pub fn port(&self, known: fn(&str) -> Option<&'static str>) -> Result<PortType, String> {
        if self.format != FORMAT {
            return Err(format!("`{}` is not a format known here", self.format));
        }
        let dtype: Dtype = self.dtype.parse().map_err(|error: UnknownDtype| error.to_string())?;
        let axes_of = |list: &[AxisEntry], most: usize| -> Result<Vec<Axis>, String> {
            let product = list.iter().try_fold(1usize, |p, axis| p.checked_mul(axis.len));
            if !product.is_some_and(|product| (1..=most).contains(&product)) {
                return Err("its axes are empty or too long".to_owned());
            }
            let axis = |entry: &AxisEntry| {
                let name = known(&entry.name);
                name.map(|name| Axis::new(name, entry.len))
                    .ok_or_else(|| format!("there is no axis `{}`", entry.name))
            };
            list.iter().map(axis).collect()
        };
        let clock = &self.clock;
        let rate_is_good = clock.adc_sample_rate_hz.is_finite() && clock.adc_sample_rate_hz > 0.0;
        if !rate_is_good || clock.samples_per_frame == 0 {
            return Err("its clock stands still".to_owned());
        }
        if self.band.as_ref().is_some_and(|band| band.channels == 0) {
            return Err("its band has no channels".to_owned());
        }
        Ok(PortType {
            dtype,
            axes: axes_of(&self.axes, MAX_FRAME_BYTES * 8 / dtype.bits())?,
            clock: Clock {
                adc_sample_rate_hz: clock.adc_sample_rate_hz,
                sync_time_seconds: clock.sync_time_seconds,
                samples_per_frame: clock.samples_per_frame,
            },
            band: self.band.as_ref().map(|band| Band {
                channels: band.channels,
                first_channel: band.first_channel,
                centre_hz: band.centre_hz,
                bandwidth_hz: band.bandwidth_hz,
            }),
            validity: ValidityType {
                axes: axes_of(&self.validity.axes, MAX_UNITS)?,
                full: self.validity.full.max(1),
            },
        })
    }
}
