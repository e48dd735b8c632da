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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::made::{drawing, frame, is_near, port};
    use super::*;
    use fxgraph::{Band, Dtype, PortType};

    #[test]
    fn fringe_is_the_mean_of_the_valid_channels_on_the_sky() {
        let axes = [("channel", 2), ("baseline", 1)];
        let port = port(Dtype::Cf32, &axes, &[("channel", 2)], 1 << 20);
        // The mean of 200 and 200j is 141.4 at 45 degrees.
        let values = [200_f32, 0.0, 0.0, 200.0];
        let mut frame = frame(&port, values.into_iter().flat_map(f32::to_ne_bytes));
        for (validity, bandwidth_hz, expected) in [
            ([1, 1], 1e6, Some([21.505, 45.0])),
            ([1, 1], -1e6, Some([21.505, -45.0])),
            ([1, 0], 1e6, Some([23.010, 0.0])),
            ([0, 0], 1e6, None),
        ] {
            frame.header.validity = validity.to_vec();
            let band = Some(Band::signed(2, 0, 1e9, bandwidth_hz));
            let drawn = drawing(&VIEW, &PortType { band, ..port.clone() }, &frame, &[], 16);
            for (index, series) in drawn.series.iter().enumerate() {
                let (found, expected) = (series.values[0], expected.map(|both| both[index]));
                let is_as_expected = match expected {
                    Some(expected) => is_near(found.unwrap(), expected, 0.001),
                    None => found.is_none(),
                };
                assert!(is_as_expected, "{}: {found:?}, not {expected:?}", series.name);
            }
            assert_eq!(drawn.series.len(), 2);
        }
    }
}
