//! Amplitude and phase of one baseline, averaged over the channels: constant if delays and phases are tracked.

use super::baselines::visibilities;
use super::visibility::amplitude_and_phase;
use super::{Look, View};
use fxgraph_api::views::{Drawing, DrawnAs};
use num_complex::Complex;

pub(super) const VIEW: View = View {
    name: "fringe",
    title: "visibility of one baseline against time",
    kind: DrawnAs::Points,
    shows: visibilities,
    draw,
};

fn draw(look: &Look) -> Drawing {
    let (sums, _) = look.sums("channel", 1, |value| look.on_sky(value));
    let means: Vec<Complex<f64>> =
        sums.into_iter().map(|(sum, count)| sum / count as f64).collect();
    Drawing { series: amplitude_and_phase(&means), ..Drawing::default() }
}
