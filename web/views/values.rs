//! One measured value of each satellite, or of the only subject of the stream.

use super::satellites::{MOST_SATELLITES, name};
use super::{Look, Shown, View};
use fxgraph::PortType;
use fxgraph_api::views::{Drawing, DrawnAs, Series};

pub(super) const VIEW: View =
    View { name: "values", title: "one measured value", kind: DrawnAs::Points, shows, draw };

fn shows(port: &PortType) -> Option<Shown> {
    const SHOWN: Shown = &["satellite"];
    let has = |name| port.axis_len(name).is_some();
    let is_alone = port.axes.len() == 1 && port.axes[0].len == port.axes[0].labels.len();
    (has("value") && (has("satellite") || is_alone)).then_some(SHOWN)
}

fn draw(look: &Look) -> Drawing {
    if look.axis("satellite").is_none() {
        return Drawing { series: one(look).into_iter().collect(), ..Drawing::default() };
    }
    let (sums, _) = look.sums("satellite", usize::MAX, |value| value.re);
    let values = sums.into_iter().take(MOST_SATELLITES).enumerate();
    let series = values.map(|(satellite, (sum, count))| {
        Series::new(name(look, satellite), "", [sum / count as f64])
    });
    Drawing { series: series.collect(), ..Drawing::default() }
}

/// The selected value, by its label.
fn one(look: &Look) -> Option<Series> {
    let selected = look.selected.first()?;
    let mut value = f64::NAN;
    look.each(&look.picks(), |_, number| value = number.re);
    Some(Series::new(selected.name.clone(), "", [value]))
}

#[cfg(test)]
mod tests {
    use super::super::made::{drawing, frame, port, values};
    use super::*;
    use fxgraph::{Axis, Dtype};

    #[test]
    fn values_shows_the_selected_value_of_each_satellite() {
        let mut port = port(Dtype::F64, &[("satellite", 3), ("value", 2)], &[], 10_000);
        port.axes[1] = Axis::labelled("value", ["doppler_hz", "cn0_db_hz"]);
        let named = drawing(&VIEW, &port, &frame(&port, [0; 48]), &[], 16);
        assert_eq!(named.series[2].name, "satellite 2");
        port.axes[0] = Axis::labelled("satellite", ["G07", "G19", "E03"]);
        let frame = frame(&port, (0..6).flat_map(|n| f64::from(n).to_ne_bytes()));
        let drawn = drawing(&VIEW, &port, &frame, &[("value", 1)], 16);
        let found: Vec<f64> = (0..3).flat_map(|series| values(&drawn, series)).collect();
        assert_eq!(found, [1.0, 3.0, 5.0]);
        let names: Vec<&str> = drawn.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["G07", "G19", "E03"]);
        assert_eq!(VIEW.selects(&port).unwrap()[0].names, ["doppler_hz", "cn0_db_hz"]);
    }

    #[test]
    fn values_shows_the_selected_value_of_a_stream_of_labelled_values() {
        let mut port = port(Dtype::F64, &[("value", 3)], &[], 10_000);
        assert!(VIEW.selects(&port).is_none(), "the values have no names");
        port.axes[0] = Axis::labelled("value", ["fix", "latitude_degrees", "height_metres"]);
        assert_eq!(VIEW.selects(&port).unwrap()[0].default, 2);
        let mut frame =
            frame(&port, [1.0_f64, -30.5, 1038.0].into_iter().flat_map(f64::to_ne_bytes));
        let drawn = drawing(&VIEW, &port, &frame, &[("value", 1)], 16);
        assert_eq!(
            (drawn.series[0].name.as_str(), values(&drawn, 0)),
            ("latitude_degrees", vec![-30.5])
        );
        frame.header.validity[0] = 0;
        assert_eq!(drawing(&VIEW, &port, &frame, &[], 16).series[0].values, [None]);
    }
}
