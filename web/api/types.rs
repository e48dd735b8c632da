//! Ports and implementations in responses.

use crate::views::baselines;
use fxgraph::{Axis, PortType};
use serde::Serialize;
use utoipa::ToSchema;

/// Largest number of baselines with labels.
const MOST_BASELINES: usize = 1 << 14;

/// One axis of a frame.
#[derive(Serialize, ToSchema)]
pub(super) struct AxisInfo {
    /// Name: `antenna`, `channel`, `pol`, `sample`, ...
    #[schema(example = "channel")]
    name: &'static str,
    /// Number of elements.
    len: usize,
    /// Labels of the elements, if any. A baseline `0-2` is antenna 0 times the conjugate of antenna 2 (labels for up
    /// to 16384 baselines; index a2 (a2 + 1) / 2 + a1 is `a1-a2`). A product `10` is polarisation 1 of the first
    /// antenna and polarisation 0 of the second one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
}

fn axes(axes: &[Axis]) -> Vec<AxisInfo> {
    let labels = |axis: &Axis| match axis.name {
        "baseline" if axis.len <= MOST_BASELINES => baselines::names(axis.len),
        "product" if axis.labels.is_empty() => baselines::product_names(axis.len),
        _ => axis.labels.clone(),
    };
    let info = |axis: &Axis| AxisInfo { name: axis.name, len: axis.len, labels: labels(axis) };
    axes.iter().map(info).collect()
}

/// Frequencies of the `channel` axis.
#[derive(Serialize, ToSchema)]
pub(super) struct BandInfo {
    /// Channels of the whole band.
    channels: usize,
    /// Index, in the whole band, of the first channel of the axis.
    first_channel: usize,
    /// Frequency at the centre of the whole band, in Hz.
    centre_hz: f64,
    /// Width of the whole band in Hz.
    bandwidth_hz: f64,
}

/// Type of the frames at a port.
#[derive(Serialize, ToSchema)]
pub(super) struct Carries {
    /// Summary in one line.
    #[schema(example = "ci8 [channel 64][pol 2][spectrum 256] @ 1.712 GS/s / 131072")]
    text: String,
    /// Type of one element.
    #[schema(example = "ci8")]
    dtype: String,
    /// Axes of the payload, slowest first.
    axes: Vec<AxisInfo>,
    /// Payload bytes of one frame.
    frame_bytes: usize,
    /// Frames per second of signal time: the rate that keeps up with a telescope.
    frames_per_second: f64,
    /// Payload bytes per second of signal time.
    bytes_per_second: f64,
    /// Sample rate of the ADC in Hz.
    adc_sample_rate_hz: f64,
    /// Unix time of timestamp 0, in seconds.
    sync_time_seconds: f64,
    /// ADC samples from one frame to the next.
    samples_per_frame: u64,
    /// Frequencies of the `channel` axis, if present.
    band: Option<BandInfo>,
    /// Axes of the validity units.
    validity_axes: Vec<AxisInfo>,
    /// Validity count of a complete unit.
    validity_full: u32,
}

impl From<&PortType> for Carries {
    fn from(port: &PortType) -> Self {
        Self {
            text: port.to_string(),
            dtype: port.dtype.to_string(),
            axes: axes(&port.axes),
            frame_bytes: port.frame_bytes(),
            frames_per_second: port.clock.frames_per_second(),
            bytes_per_second: port.bytes_per_second(),
            adc_sample_rate_hz: port.clock.adc_sample_rate_hz,
            sync_time_seconds: port.clock.sync_time_seconds,
            samples_per_frame: port.clock.samples_per_frame,
            band: port.band.map(|band| BandInfo {
                channels: band.channels,
                first_channel: band.first_channel,
                centre_hz: band.centre_hz,
                bandwidth_hz: band.bandwidth_hz,
            }),
            validity_axes: axes(&port.validity.axes),
            validity_full: port.validity.full,
        }
    }
}

/// An implementation of a kind.
#[derive(Serialize, ToSchema)]
pub(super) struct ImplementationInfo {
    /// Name, the value of the key `implementation`.
    #[schema(example = "cpu")]
    name: &'static str,
    /// Device family: `cpu` or `cuda`.
    #[schema(example = "cpu")]
    device: &'static str,
    /// Summary in one line.
    summary: &'static str,
}

impl From<&fxgraph::ImplementationInfo> for ImplementationInfo {
    fn from(form: &fxgraph::ImplementationInfo) -> Self {
        Self { name: form.name, device: form.device, summary: form.summary }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_label_baselines_and_products() {
        let named = axes(&[
            Axis::new("channel", 3),
            Axis::new("baseline", 6),
            Axis::new("product", 4),
            Axis::new("baseline", MOST_BASELINES + 1),
            Axis::labelled("product", ["I", "Q", "U", "V"]),
        ]);
        let labels = named.into_iter().map(|axis| axis.labels.join(" ")).collect::<Vec<_>>();
        assert_eq!(labels, ["", "0-0 0-1 1-1 0-2 1-2 2-2", "00 10 01 11", "", "I Q U V"]);
    }
}
