//! Types of ports as the process gets and describes them.

use crate::common::axes::{MAX_FRAME_BYTES, NAMES, known};
use fxgraph::dtype::UnknownDtype;
use fxgraph::{Axis, Band, Clock, Dtype, PortType, ValidityType};
use serde::Deserialize;
use serde_json::{Value, json};

/// Largest number of axes of a port.
const MAX_AXES: usize = 16;

/// Output as the process describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Described {
    dtype: String,
    axes: Vec<(String, u64)>,
    samples_per_frame: u64,
    adc_sample_rate_hz: f64,
    validity: Vec<(String, u64)>,
    full: u32,
    band: Option<DescribedBand>,
    /// Payload of a frame in bytes.
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct DescribedBand {
    channels: usize,
    first_channel: usize,
    centre_hz: f64,
    bandwidth_hz: f64,
}

/// `port` for the process.
pub fn to_json(port: &PortType) -> Value {
    let pairs =
        |axes: &[Axis]| axes.iter().map(|axis| json!([axis.name, axis.len])).collect::<Vec<_>>();
    json!({
        "dtype": port.dtype.to_string(),
        "axes": pairs(&port.axes),
        "samples_per_frame": port.clock.samples_per_frame,
        "adc_sample_rate_hz": port.clock.adc_sample_rate_hz,
        "validity": pairs(&port.validity.axes),
        "full": port.validity.full,
        "band": port.band.map(|band| json!({
            "channels": band.channels,
            "first_channel": band.first_channel,
            "centre_hz": band.centre_hz,
            "bandwidth_hz": band.signed_bandwidth_hz(),
        })),
    })
}

impl Described {
    /// The port, with the time line, the labels and the origins of `input`; or the reason why there is no such port.
    pub fn port(&self, input: &PortType) -> Result<PortType, String> {
        let dtype: Dtype = self.dtype.parse().map_err(|error: UnknownDtype| error.to_string())?;
        if self.axes.len().max(self.validity.len()) > MAX_AXES {
            return Err(format!("a port must have at most {MAX_AXES} axes"));
        }
        let axes = axes(&self.axes, &input.axes)?;
        let validity = axes_of_validity(&self.validity, input)?;
        let clock = Clock {
            adc_sample_rate_hz: self.adc_sample_rate_hz,
            samples_per_frame: self.samples_per_frame,
            ..input.clock
        };
        let band = self.band.map(|band| {
            Band::signed(band.channels, band.first_channel, band.centre_hz, band.bandwidth_hz)
        });
        let validity = ValidityType { axes: validity, full: self.full };
        let port = PortType { dtype, axes, clock, band, validity };
        if self.full == 0 {
            return Err("`full` must be at least 1, got 0".to_owned());
        }
        let size = |axes: &[Axis], bits: usize| {
            let count = axes.iter().try_fold(1_usize, |count, axis| count.checked_mul(axis.len));
            count.and_then(|count| count.checked_mul(bits)).map(|bits| bits.div_ceil(8))
        };
        let bytes = size(&port.axes, dtype.bits());
        let counts = size(&port.validity.axes, 32);
        match (bytes, counts) {
            (Some(bytes), Some(counts)) if bytes.max(counts) <= MAX_FRAME_BYTES => {
                if bytes as u64 == self.bytes {
                    Ok(port)
                } else {
                    Err(format!("a frame of {port} has {bytes} bytes, got {}", self.bytes))
                }
            }
            _ => Err(format!("a frame must have at most {MAX_FRAME_BYTES} bytes")),
        }
    }
}

fn axes_of_validity(pairs: &[(String, u64)], input: &PortType) -> Result<Vec<Axis>, String> {
    let both: Vec<Axis> = input.validity.axes.iter().chain(&input.axes).cloned().collect();
    axes(pairs, &both)
}

/// Axes with these names and lengths; those that `like` has are taken from there.
fn axes(pairs: &[(String, u64)], like: &[Axis]) -> Result<Vec<Axis>, String> {
    let axis = |(name, len): &(String, u64)| {
        let len = usize::try_from(*len).map_err(|_| format!("the axis `{name}` is too long"))?;
        let same = like.iter().find(|axis| axis.name == name);
        if let Some(same) = same.filter(|same| same.len == len) {
            return Ok(same.clone());
        }
        let name = same.map(|same| same.name).or_else(|| known(name)).ok_or_else(|| {
            format!("an axis must have one of the names {}, got `{name}`", NAMES.join(", "))
        })?;
        if len == 0 {
            return Err(format!("the axis `{name}` must have at least 1 element, got 0"));
        }
        Ok(Axis::new(name, len))
    };
    pairs.iter().map(axis).collect()
}
