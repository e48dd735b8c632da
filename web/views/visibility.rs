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
