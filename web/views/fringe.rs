//! Phase of one baseline, averaged over the channels: constant if delays and phases are tracked.

use super::baselines::visibilities;
use super::{Look, View};
use fxgraph_api::views::{Drawing, DrawnAs, Series};

pub(super) const VIEW: View = View {
    name: "fringe",
    title: "fringe phase of one baseline",
    kind: DrawnAs::Points,
    shows: visibilities,
    draw,
};

fn draw(look: &Look) -> Drawing {
    let (sums, _) = look.sums("channel", 1, |value| look.on_sky(value));
    let phases = sums.into_iter().map(|(sum, count)| (sum / count as f64).arg().to_degrees());
    Drawing { series: vec![Series::new("phase", "deg", phases)], ..Drawing::default() }
}
