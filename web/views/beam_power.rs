//! Mean power of each beam.

use super::scale::{Power, decibels};
use super::{Look, Shown, View};
use fxgraph::PortType;
use fxgraph_api::views::{Drawing, DrawnAs, Series};

pub(super) const VIEW: View =
    View { name: "beam_power", title: "power of each beam", kind: DrawnAs::Points, shows, draw };

/// Largest number of lines that one plot can show.
pub(super) const MOST_BEAMS: usize = 64;

fn shows(port: &PortType) -> Option<Shown> {
    const SHOWN: Shown = &["beam", "channel", "sample"];
    port.axis_len("beam").filter(|beams| *beams <= MOST_BEAMS).map(|_| SHOWN)
}

fn draw(look: &Look) -> Drawing {
    let power = Power::of(look.port);
    let (sums, _) = look.sums("beam", usize::MAX, power.of);
    let series = sums.into_iter().enumerate().map(|(beam, (sum, count))| {
        let mean = sum / (count as f64 * power.full);
        Series::new(format!("beam {beam}"), power.unit, [decibels(mean)])
    });
    Drawing { series: series.collect(), ..Drawing::default() }
}

#[cfg(test)]
mod tests {
    use super::super::made::{drawing, frame, is_near, port};
    use super::*;
    use fxgraph::Dtype;

    #[test]
    fn beam_power_averages_each_beam() {
        let axes = [("heap", 2), ("beam", 3), ("channel", 4), ("spectrum", 8)];
        let port = port(Dtype::Ci8, &axes, &[("heap", 2)], 64);
        // Beam b is (10 b, 10 b) in the first heap; the second heap is missing.
        let value = |n| if n < 96 { 10 * (n / 32) as u8 } else { 99 };
        let mut frame = frame(&port, (0..192).flat_map(|n| [value(n); 2]));
        frame.header.validity[1] = 0;
        let drawn = drawing(&VIEW, &port, &frame, &[], 16);
        let names: Vec<&str> = drawn.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["beam 0", "beam 1", "beam 2"]);
        assert_eq!(drawn.series[0].values, [None]);
        for beam in [1, 2] {
            let expected = 10.0 * (200.0 * f64::from(beam * beam) / (127.0 * 127.0)).log10();
            let found = drawn.series[beam as usize].values[0].unwrap();
            assert!(is_near(found, expected, 0.01), "{found} {expected}");
        }
    }

    #[test]
    fn beam_power_samples_large_frames() {
        let axes = [("beam", 2), ("channel", 2048), ("spectrum", 4096)];
        let port = port(Dtype::Ci4, &axes, &[], 1 << 24);
        // (1, 0) and (2, 0).
        let frame = frame(&port, (0..1 << 24).map(|n| if n < 1 << 23 { 0x10 } else { 0x20 }));
        let drawn = drawing(&VIEW, &port, &frame, &[], 16);
        let found = [0, 1].map(|beam: usize| drawn.series[beam].values[0].unwrap());
        let expected = [-16.9, -10.88];
        assert!(found.iter().zip(expected).all(|(a, b)| is_near(*a, b, 0.01)), "{found:?}");
    }
}
