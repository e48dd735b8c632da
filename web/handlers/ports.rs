//! Types of ports in responses.

use crate::views::baselines;
use fxgraph::{Axis, PortType};
use fxgraph_api::ports::{AxisInfo, BandInfo, Carries};

/// Largest number of baselines with labels.
const MOST_BASELINES: usize = 1 << 14;

fn axes(axes: &[Axis]) -> Vec<AxisInfo> {
    let labels = |axis: &Axis| match axis.name {
        "baseline" if axis.len <= MOST_BASELINES => baselines::names(axis.len),
        "product" if axis.labels.is_empty() => baselines::product_names(axis.len),
        _ => axis.labels.clone(),
    };
    let info =
        |axis: &Axis| AxisInfo { name: axis.name.to_owned(), len: axis.len, labels: labels(axis) };
    axes.iter().map(info).collect()
}

/// Describes the frames at `port`.
pub(super) fn carries(port: &PortType) -> Carries {
    Carries {
        text: port.to_string(),
        dtype: port.dtype.to_string(),
        axes: axes(&port.axes),
        frame_bytes: port.frame_bytes(),
        frames_per_second: port.clock.frames_per_second(),
        bytes_per_second: port.bytes_per_second(),
        adc_sample_rate_hz: port.clock.adc_sample_rate_hz,
        sync_time_seconds: port.clock.sync_time.to_unix_f64(),
        sync_time: port.clock.sync_time.to_string(),
        samples_per_frame: port.clock.samples_per_frame,
        filter_delay_samples: port.clock.filter_delay_samples,
        band: port.band.map(|band| BandInfo {
            channels: band.channels,
            first_channel: band.first_channel,
            centre_hz: band.centre_hz,
            bandwidth_hz: band.signed_bandwidth_hz(),
        }),
        validity_axes: axes(&port.validity.axes),
        validity_full: port.validity.full,
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
