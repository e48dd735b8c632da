//! Satellites in the sky: direction, strength, and how well each fits the position.

use super::satellites::name;
use super::{Look, Shown, View};
use fxgraph::PortType;
use fxgraph::elements::Elements;
use fxgraph_api::views::{Drawing, DrawnAs, Series};

pub(super) const VIEW: View =
    View { name: "sky", title: "satellites in the sky", kind: DrawnAs::Sky, shows, draw };

/// Values of a satellite in this order, by the labels of the port. The others may be missing.
const VALUES: [&str; 5] =
    ["azimuth_degrees", "elevation_degrees", "cn0_db_hz", "residual_metres", "is_used"];
/// Place of C/N0 in [`VALUES`]: satellites without signal are left out.
const CN0: usize = 2;
/// Number of values without which there is nothing to draw.
const NEEDED: usize = 3;
/// Largest number of satellites in one drawing; later ones are left out.
const MOST_IN_SKY: usize = 128;

/// Index of each of [`VALUES`] on the axis `value`.
fn places(port: &PortType) -> [Option<usize>; VALUES.len()] {
    let labels = port.axes.iter().find(|axis| axis.name == "value").map(|axis| &axis.labels);
    VALUES.map(|value| labels?.iter().position(|label| label == value))
}

fn shows(port: &PortType) -> Option<Shown> {
    const SHOWN: Shown = &["satellite", "value"];
    let has_directions = places(port)[..NEEDED].iter().all(Option::is_some);
    (has_directions && port.axis_len("satellite").is_some()).then_some(SHOWN)
}

fn draw(look: &Look) -> Drawing {
    let (Some(satellite), Some(value)) = (look.axis("satellite"), look.axis("value")) else {
        return Drawing::default();
    };
    let places = places(look.port);
    let mut rows = vec![[f64::NAN; VALUES.len()]; look.len("satellite")];
    // Satellites are tracked before there is a position, without which frames are invalid: values that are not known are NaN.
    let valid = vec![look.port.validity.full; look.frame.header.validity.len()];
    let elements = Elements::new(look.port);
    elements.picked(&look.frame.payload, &valid, &look.picks(), |index, number| {
        if let Some(place) = places.iter().position(|place| *place == Some(index[value])) {
            rows[index[satellite]][place] = number.re;
        }
    });
    let heard = rows.into_iter().enumerate().filter(|(_, row)| row[CN0] > 0.0);
    let series = heard.take(MOST_IN_SKY).map(|(n, row)| Series::new(name(look, n), "", row));
    Drawing { series: series.collect(), ..Drawing::default() }
}

#[cfg(test)]
mod tests {
    use super::super::made::{drawing, frame, port};
    use super::*;
    use fxgraph::{Axis, Dtype};

    fn satellites(labels: &[&'static str]) -> PortType {
        let axes = [("satellite", 4), ("value", labels.len())];
        let mut port = port(Dtype::F64, &axes, &[], 1_000_000);
        port.axes[0] = Axis::labelled("satellite", ["G05", "G07", "G19", "E11"]);
        port.axes[1] = Axis::labelled("value", labels.iter().copied());
        port
    }

    const LABELS: [&str; 6] = [
        "system",
        "is_used",
        "azimuth_degrees",
        "elevation_degrees",
        "cn0_db_hz",
        "residual_metres",
    ];

    fn rows() -> impl Iterator<Item = u8> {
        let rows = [
            [0.0, 1.0, 301.5, 61.25, 47.0, -0.0123],
            [0.0; 6],
            [0.0, 0.0, f64::NAN, f64::NAN, 38.5, f64::NAN],
            [4.0, 0.0, 15.0, 2.5, 33.0, 12.5],
        ];
        rows.into_iter().flatten().flat_map(f64::to_ne_bytes)
    }

    #[test]
    fn sky_has_the_satellites_that_are_heard_with_their_values_in_order() {
        let port = satellites(&LABELS);
        let drawn = drawing(&VIEW, &port, &frame(&port, rows()), &[], 16);
        let found: Vec<_> =
            drawn.series.iter().map(|one| (one.name.as_str(), one.values.clone())).collect();
        assert_eq!(
            found,
            [
                ("G05", vec![Some(301.5), Some(61.25), Some(47.0), Some(-0.0123), Some(1.0)]),
                ("G19", vec![None, None, Some(38.5), None, Some(0.0)]),
                ("E11", vec![Some(15.0), Some(2.5), Some(33.0), Some(12.5), Some(0.0)]),
            ]
        );
    }

    #[test]
    fn sky_shows_satellites_before_there_is_a_position() {
        let port = satellites(&LABELS);
        let mut frame = frame(&port, rows());
        frame.header.validity = vec![0; frame.header.validity.len()];
        assert_eq!(drawing(&VIEW, &port, &frame, &[], 16).series.len(), 3);
    }

    #[test]
    fn sky_needs_directions_and_strengths() {
        assert!(VIEW.selects(&satellites(&LABELS)).unwrap().is_empty());
        assert!(VIEW.selects(&satellites(&LABELS[..4])).is_none());
        let without = satellites(&LABELS[2..5]);
        let values = [20.0_f64, 30.0, 40.0].into_iter().flat_map(f64::to_ne_bytes);
        let rest = [0.0_f64; 9].into_iter().flat_map(f64::to_ne_bytes);
        let drawn = drawing(&VIEW, &without, &frame(&without, values.chain(rest)), &[], 16);
        assert_eq!(drawn.series[0].values, [Some(20.0), Some(30.0), Some(40.0), None, None]);
    }
}
