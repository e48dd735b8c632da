//! Amplitude and phase of one baseline against channel. Amplitudes are powers, so decibels are 10 log10.

use super::baselines::visibilities;
use super::scale::{channel_grid, decibels};
use super::{Look, View};
use fxgraph_api::views::{Drawing, DrawnAs, Series};
use num_complex::Complex;

pub(super) const VIEW: View = View {
    name: "visibility",
    title: "visibility of one baseline",
    kind: DrawnAs::Lines,
    shows: visibilities,
    draw,
};

fn draw(look: &Look) -> Drawing {
    let (sums, group) = look.sums("channel", look.points, |value| look.on_sky(value));
    let means: Vec<Complex<f64>> =
        sums.into_iter().map(|(sum, count)| sum / count as f64).collect();
    Drawing {
        x: Some(channel_grid(look.port, look.len("channel"), group)),
        series: amplitude_and_phase(&means),
        ..Drawing::default()
    }
}

/// Returns amplitude in dB and phase in degrees of visibilities; NaN stays NaN.
pub(super) fn amplitude_and_phase(means: &[Complex<f64>]) -> Vec<Series> {
    vec![
        Series::new("amplitude", "dB", means.iter().map(|mean| decibels(mean.norm()))),
        Series::new("phase", "deg", means.iter().map(|mean| mean.arg().to_degrees())),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::made::{drawing, frame, is_near, port};
    use super::*;
    use fxgraph::{Band, Dtype, PortType};

    #[test]
    fn visibility_has_power_in_decibels_and_the_phase_on_the_sky() {
        const CHANNELS: usize = 16;
        let axes = [("channel", CHANNELS), ("baseline", 1)];
        let port = port(Dtype::Cf32, &axes, &[("channel", CHANNELS)], 1 << 20);
        // 200 at 30 degrees, except in channels 3 and 5.
        let value = |channel| match channel {
            5 => Complex::new(f64::NAN, 1.0),
            _ => Complex::from_polar(200.0, 30_f64.to_radians()),
        };
        let bytes = |value: Complex<f64>| [value.re as f32, value.im as f32].map(f32::to_ne_bytes);
        let mut frame = frame(&port, (0..CHANNELS).flat_map(|n| bytes(value(n)).concat()));
        frame.header.validity[3] = 0;
        for (bandwidth_hz, degrees) in [(1e6, 30.0), (-1e6, -30.0)] {
            let band = Some(Band::signed(CHANNELS, 0, 1e9, bandwidth_hz));
            let drawn = drawing(&VIEW, &PortType { band, ..port.clone() }, &frame, &[], CHANNELS);
            let units: Vec<&str> = drawn.series.iter().map(|series| &*series.unit).collect();
            assert_eq!(units, ["dB", "deg"]);
            for (series, expected) in drawn.series.iter().zip([23.0103, degrees]) {
                for (channel, value) in series.values.iter().enumerate() {
                    let is_as_expected = match channel {
                        3 | 5 => value.is_none(),
                        _ => value.is_some_and(|value| is_near(value, expected, 0.001)),
                    };
                    assert!(is_as_expected, "{} of {channel}: {value:?}", series.name);
                }
            }
        }
    }
}
