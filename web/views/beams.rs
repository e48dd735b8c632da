//! Mean power against beam, which shows the direction of a source; successive views show its time.

use super::beam_power::MOST_BEAMS;
use super::scale::{Power, decibels};
use super::{Look, Shown, View};
use fxgraph::PortType;
use fxgraph_api::views::{Drawing, DrawnAs, Grid, Series};

pub(super) const VIEW: View =
    View { name: "beams", title: "power against beam", kind: DrawnAs::Lines, shows, draw };

fn shows(port: &PortType) -> Option<Shown> {
    const SHOWN: Shown = &["beam", "channel", "sample"];
    port.axis_len("beam").filter(|beams| *beams > MOST_BEAMS).map(|_| SHOWN)
}

fn draw(look: &Look) -> Drawing {
    let power = Power::of(look.port);
    let (sums, group) = look.sums("beam", look.points, power.of);
    let len = sums.len();
    let values = sums.into_iter().map(|(sum, count)| decibels(sum / (count as f64 * power.full)));
    let start = (group - 1) as f64 / 2.0;
    Drawing {
        x: Some(Grid {
            name: "beam".to_owned(),
            unit: String::new(),
            start,
            step: group as f64,
            len,
        }),
        series: vec![Series::new("power", power.unit, values)],
        ..Drawing::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{drawing, frame, is_near, port, values};
    use super::*;
    use fxgraph::Dtype;

    #[test]
    fn beams_shows_a_source_in_its_beam() {
        let axes = [("spectrum", 3), ("channel", 4), ("beam", 256)];
        let port = port(Dtype::F32, &axes, &[("spectrum", 3)], 3);
        // Beam 153 has ten times the intensity in the second spectrum; the third one is missing.
        let intensity = |n: usize| if n / 1024 == 1 && n % 256 == 153 { 10.0_f32 } else { 1.0 };
        let mut frame = frame(&port, (0..3072).flat_map(|n| intensity(n).to_ne_bytes()));
        frame.header.validity[2] = 0;
        let drawn = drawing(&VIEW, &port, &frame, &[], 256);
        let x = drawn.x.as_ref().unwrap();
        assert_eq!((x.name.as_str(), x.start, x.step, x.len), ("beam", 0.0, 1.0, 256));
        let power = |beam| if beam == 153 { 10.0 * 5.5_f64.log10() } else { 0.0 };
        for (beam, found) in values(&drawn, 0).into_iter().enumerate() {
            assert!(is_near(found, power(beam), 0.01), "{beam}: {found}");
        }
        // Four beams per point.
        let drawn = drawing(&VIEW, &port, &frame, &[], 64);
        let x = drawn.x.as_ref().unwrap();
        assert_eq!((x.start, x.step, x.len), (1.5, 4.0, 64));
        let found = values(&drawn, 0);
        assert!(
            is_near(found[38], 10.0 * (8.5_f64 / 4.0).log10(), 0.01)
                && is_near(found[37], 0.0, 0.01)
        );
    }

    #[test]
    fn beams_is_offered_for_more_than_64_beams() {
        let port = |beams| port(Dtype::F32, &[("channel", 4), ("beam", beams)], &[], 1);
        let names = |beams| {
            super::super::of(&port(beams)).iter().map(|(view, _)| view.name).collect::<Vec<_>>()
        };
        assert_eq!(names(64), ["band_pass", "beam_power"]);
        assert_eq!(names(65), ["band_pass", "beams"]);
    }
}
