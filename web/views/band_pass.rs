//! Mean power of each channel.

use super::scale::{Power, channel_grid, decibels};
use super::{Look, Shown, View};
use fxgraph::PortType;
use fxgraph_api::views::{Drawing, DrawnAs, Series};

pub(super) const VIEW: View =
    View { name: "band_pass", title: "power of each channel", kind: DrawnAs::Lines, shows, draw };

fn shows(port: &PortType) -> Option<Shown> {
    const SHOWN: Shown = &["channel"];
    // An axis `unzip` means that the transform is not finished.
    let is_whole = port.axes.iter().all(|axis| axis.name != "unzip" || axis.len == 1);
    let has = |name| port.axis_len(name).is_some();
    (has("channel") && !has("baseline") && is_whole).then_some(SHOWN)
}

fn draw(look: &Look) -> Drawing {
    let power = Power::of(look.port);
    let (sums, group) = look.sums("channel", look.points, power.of);
    let values = sums.into_iter().map(|(sum, count)| decibels(sum / (count as f64 * power.full)));
    Drawing {
        x: Some(channel_grid(look.port, look.len("channel"), group)),
        series: vec![Series::new("power", power.unit, values)],
        ..Drawing::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{drawing, frame, is_near, port, values};
    use super::*;
    use fxgraph::{Band, Dtype};

    const AXES: [(&str, usize); 5] =
        [("heap", 2), ("antenna", 2), ("channel", 32), ("pol", 2), ("spectrum", 4)];

    /// (channel, 0) of antenna 1, polarisation 1; zeros elsewhere; 127 in the second heap.
    fn payload() -> Vec<u8> {
        let mut payload = Vec::new();
        for index in 0..2 * 2 * 32 * 2 * 4 {
            let (pol, channel) = (index / 4 % 2, index / 8 % 32);
            let (antenna, heap) = (index / 256 % 2, index / 512);
            let is_one = antenna == 1 && pol == 1;
            let value = if is_one { channel } else { 0 };
            payload.extend([if heap == 1 { 127 } else { value as u8 }, 0]);
        }
        payload
    }

    #[test]
    fn band_pass_averages_valid_samples_only() {
        let mut port = port(Dtype::Ci8, &AXES, &[("heap", 2), ("antenna", 2)], 4096);
        port.band = Some(Band::signed(64, 32, 1e9, 64e6));
        let mut frame = frame(&port, payload());
        frame.header.validity = vec![1, 1, 1, 0];
        let one = [("antenna", 1), ("pol", 1)];
        let drawn = drawing(&VIEW, &port, &frame, &one, 32);
        let x = drawn.x.as_ref().unwrap();
        assert_eq!((x.name.as_str(), x.start, x.step, x.len), ("sky frequency", 1e9, 1e6, 32));
        assert_eq!(drawn.series[0].values[0], None, "zero power has no value in decibels");
        let level = |power: f64| 10.0 * (power / (127.0 * 127.0)).log10();
        for channel in 1..32 {
            let found = drawn.series[0].values[channel].unwrap();
            assert!(is_near(found, level((channel * channel) as f64), 0.01), "{channel}: {found}");
        }
        // Two channels per point.
        let drawn = drawing(&VIEW, &port, &frame, &one, 16);
        let x = drawn.x.as_ref().unwrap();
        assert_eq!((x.start, x.step, x.len), (1e9 + 0.5e6, 2e6, 16));
        let found = values(&drawn, 0);
        assert!(is_near(found[5], level(110.5), 0.01) && is_near(found[0], level(0.5), 0.01));
        // Antenna 0 has both heaps, one of them with zeros.
        let drawn = drawing(&VIEW, &port, &frame, &[], 16);
        assert!(values(&drawn, 0).iter().all(|value| is_near(*value, -3.01, 0.01)));
    }

    #[test]
    fn band_pass_treats_real_channels_as_intensities() {
        let port = port(Dtype::F32, &[("spectrum", 2), ("channel", 16)], &[], 32);
        let frame = frame(&port, (0..32).flat_map(|_| 1000.0_f32.to_ne_bytes()));
        let drawn = drawing(&VIEW, &port, &frame, &[], 16);
        assert!(values(&drawn, 0).iter().all(|value| is_near(*value, 30.0, 0.0)));
    }

    #[test]
    fn band_pass_without_band_shows_channel_numbers() {
        let port = port(Dtype::Cf32, &[("spectrum", 1), ("channel", 100)], &[], 200);
        let frame = frame(&port, (0..100).flat_map(|_| [1.0_f32, 0.0]).flat_map(f32::to_ne_bytes));
        let drawn = drawing(&VIEW, &port, &frame, &[], 16);
        let x = drawn.x.as_ref().unwrap();
        // Groups of 7 channels, the last of 2.
        assert_eq!(
            (x.name.as_str(), x.unit.as_str(), x.start, x.step, x.len),
            ("channel", "", 3.0, 7.0, 15)
        );
        assert!(values(&drawn, 0).iter().all(|value| is_near(*value, 0.0, 0.0)));
    }
}
