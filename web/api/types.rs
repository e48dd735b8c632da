//! How ports, implementations and parameters are told.

use crate::views::baselines;
use fxgraph::{Axis, PortType};
use serde::Serialize;
use utoipa::ToSchema;

/// Most baselines that are named one by one.
const MOST_BASELINES: usize = 1 << 14;

/// One axis of a frame.
#[derive(Serialize, ToSchema)]
pub(super) struct AxisInfo {
    /// Its name: `antenna`, `channel`, `pol`, `sample`, ...
    #[schema(example = "channel")]
    name: &'static str,
    /// Number of elements.
    len: usize,
    /// What each element is, where they are different things. Of a baseline `0-2`: antenna 0 times the conjugate of
    /// antenna 2 (up to 16384 baselines; number a2 (a2 + 1) / 2 + a1 is `a1-a2`); of a product `10`: polarisation 1 of the
    /// first antenna and 0 of the second one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
}

fn axes(axes: &[Axis]) -> Vec<AxisInfo> {
    let labels = |axis: &Axis| match axis.name {
        "baseline" if axis.len <= MOST_BASELINES => baselines::names(axis.len),
        "product" => baselines::product_names(axis.len),
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

/// What flows through a port.
#[derive(Serialize, ToSchema)]
pub(super) struct Carries {
    /// All of it in one line.
    #[schema(example = "ci8 [channel 64][pol 2][spectrum 256] @ 1.712 GS/s / 131072")]
    text: String,
    /// Type of one element.
    #[schema(example = "ci8")]
    dtype: String,
    /// Axes of the payload, slowest first.
    axes: Vec<AxisInfo>,
    /// Payload bytes of one frame.
    frame_bytes: usize,
    /// Frames per second of signal time: what the block has to do to keep up with a telescope.
    frames_per_second: f64,
    /// Payload bytes per second of signal time.
    bytes_per_second: f64,
    /// Samples per second of the ADC.
    adc_sample_rate_hz: f64,
    /// Unix time of timestamp 0, in seconds.
    sync_time_seconds: f64,
    /// ADC samples from one frame to the next.
    samples_per_frame: u64,
    /// Frequencies, once there is a `channel` axis.
    band: Option<BandInfo>,
    /// Axes of the units that can be lost one by one.
    validity_axes: Vec<AxisInfo>,
    /// Count of a unit to which everything contributed.
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

/// A form of a kind.
#[derive(Serialize, ToSchema)]
pub(super) struct ImplementationInfo {
    /// The word after `implementation:`.
    #[schema(example = "cpu")]
    name: &'static str,
    /// The sort of device it runs on.
    #[schema(example = "cpu")]
    device: &'static str,
    /// One line about it.
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
    fn axes_of_visibilities_name_antennas_and_polarisations() {
        let named = axes(&[
            Axis::new("channel", 3),
            Axis::new("baseline", 6),
            Axis::new("product", 4),
            Axis::new("baseline", MOST_BASELINES + 1),
        ]);
        let labels = named.into_iter().map(|axis| axis.labels.join(" ")).collect::<Vec<_>>();
        assert_eq!(labels, ["", "0-0 0-1 1-1 0-2 1-2 2-2", "00 10 01 11", ""]);
    }
}
