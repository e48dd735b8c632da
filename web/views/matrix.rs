//! Mean visibility of all pairs of antennas, averaged over the channels.

use super::baselines::{antennas, baseline, mirrored};
use super::visibility::amplitude_and_phase;
use super::{Look, Shown, View};
use fxgraph::PortType;
use fxgraph::elements::Pick;
use fxgraph_api::views::{Drawing, DrawnAs, Side};
use num_complex::Complex;

pub(super) const VIEW: View =
    View { name: "matrix", title: "correlation matrix", kind: DrawnAs::Matrix, shows, draw };

/// Maximum number of antennas; more would make messages larger than a megabyte.
const MOST_ANTENNAS: usize = 256;

fn shows(port: &PortType) -> Option<Shown> {
    const SHOWN: Shown = &["channel", "baseline"];
    let antennas = port.axis_len("baseline").and_then(antennas)?;
    let of_two_pols = port.axis_len("product").is_none_or(|products| products == 4);
    (antennas <= MOST_ANTENNAS && of_two_pols).then_some(SHOWN)
}

fn draw(look: &Look) -> Drawing {
    let side =
        || Side { name: "antenna".to_owned(), len: antennas(look.len("baseline")).unwrap_or(0) };
    let product = look.index("product").unwrap_or(0);
    let upper = means(look, product);
    // V[a2 p2, a1 p1] is the conjugate of V[a1 p1, a2 p2].
    let lower = match mirrored(product) {
        same if same == product => upper.clone(),
        other => means(look, other),
    };
    let len = side().len;
    let pair = |place| {
        let (row, column) = (place / len, place % len);
        if row <= column {
            upper[baseline(row, column)]
        } else {
            lower[baseline(column, row)].conj()
        }
    };
    let pairs: Vec<Complex<f64>> = (0..len * len).map(pair).collect();
    Drawing {
        rows: Some(side()),
        columns: Some(side()),
        series: amplitude_and_phase(&pairs),
        ..Drawing::default()
    }
}

/// Mean visibility of each baseline.
fn means(look: &Look, product: usize) -> Vec<Complex<f64>> {
    let mut sums = vec![(Complex::default(), 0); look.len("baseline")];
    let mut picks = look.thinned(&["baseline"]);
    if let Some(axis) = look.axis("product") {
        picks[axis] = Pick::one(product);
    }
    let Some(axis) = look.axis("baseline") else { return Vec::new() };
    look.each(&picks, |index, value| {
        let (sum, count) = &mut sums[index[axis]];
        *sum += look.on_sky(value);
        *count += 1;
    });
    sums.into_iter().map(|(sum, count)| sum / f64::from(count)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::made::{drawing, frame, is_near, port};
    use super::super::{fringe, visibility};
    use super::*;
    use fxgraph::control::TapFrame;
    use fxgraph::{Dtype, PortType};
    use std::f64::consts::TAU;

    const CHANNELS: usize = 64;
    const ANTENNAS: usize = 3;
    /// Delay of each antenna, in samples.
    const DELAYS: [f64; ANTENNAS] = [0.0, 0.25, -0.5];
    /// Phase of each polarisation, in turns.
    const TURNS: [f64; 2] = [0.0, 0.125];

    /// Voltage of one input: the modulus depends on the antenna, the phase on delay and polarisation.
    fn voltage(antenna: usize, pol: usize, channel: usize) -> Complex<f64> {
        let turns = TURNS[pol] - DELAYS[antenna] * channel as f64 / (2 * CHANNELS) as f64;
        Complex::from_polar((antenna + 1) as f64, TAU * turns)
    }

    /// Visibilities of these voltages, term by term as the correlator defines them; baseline 1-2 is missing.
    fn dump() -> (PortType, TapFrame) {
        let axes = [("channel", CHANNELS), ("baseline", 6), ("product", 4)];
        let port = port(Dtype::Cf32, &axes, &[("baseline", 6)], 1 << 20);
        let mut payload = Vec::new();
        for channel in 0..CHANNELS {
            for (a1, a2) in [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)] {
                for (p1, p2) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                    let one = voltage(a1, p1, channel) * voltage(a2, p2, channel).conj();
                    let is_missing = (a1, a2) == (1, 2);
                    let one = if is_missing { Complex::new(-2.0_f64.powi(31), 1.0) } else { one };
                    payload.extend((one.re as f32).to_ne_bytes());
                    payload.extend((one.im as f32).to_ne_bytes());
                }
            }
        }
        let mut frame = frame(&port, payload);
        frame.header.validity[4] = 0;
        (port, frame)
    }

    /// Expected amplitude in dB and phase in degrees.
    fn told(value: Complex<f64>) -> [f64; 2] {
        [10.0 * value.norm().log10(), value.arg().to_degrees()]
    }

    fn mean(a1: usize, p1: usize, a2: usize, p2: usize) -> Complex<f64> {
        let one = |channel| voltage(a1, p1, channel) * voltage(a2, p2, channel).conj();
        (0..CHANNELS).map(one).sum::<Complex<f64>>() / CHANNELS as f64
    }

    #[test]
    fn matrix_places_every_pair_in_both_orders() {
        let (port, frame) = dump();
        for (product, (p1, p2)) in [(0, 0), (1, 0), (0, 1), (1, 1)].into_iter().enumerate() {
            let drawn = drawing(&VIEW, &port, &frame, &[("product", product)], 16);
            assert_eq!(drawn.rows, Some(Side { name: "antenna".to_owned(), len: ANTENNAS }));
            for (place, (row, column)) in (0..9).map(|n| (n, (n / 3, n % 3))) {
                let found = [0, 1].map(|series: usize| drawn.series[series].values[place]);
                if [(1, 2), (2, 1)].contains(&(row, column)) {
                    assert_eq!(found, [None; 2]);
                    continue;
                }
                let expected = told(mean(row, p1, column, p2));
                for (found, expected) in found.into_iter().zip(expected) {
                    let found = found.unwrap();
                    assert!(is_near(found, expected, 0.06), "{row} {column}: {found} {expected}");
                }
            }
        }
    }

    #[test]
    fn delay_is_a_phase_slope_and_fringe_is_its_mean() {
        let (port, frame) = dump();
        let asked = [("baseline", 3), ("product", 1)];
        let drawn = drawing(&visibility::VIEW, &port, &frame, &asked, CHANNELS);
        let grouped = drawing(&visibility::VIEW, &port, &frame, &asked, 16);
        for channel in 0..CHANNELS {
            let one = |channel| voltage(0, 1, channel) * voltage(2, 0, channel).conj();
            let found = [0, 1].map(|series: usize| drawn.series[series].values[channel].unwrap());
            for (found, expected) in found.into_iter().zip(told(one(channel))) {
                assert!(is_near(found, expected, 0.06), "{channel}: {found} {expected}");
            }
            let first = channel / 4 * 4;
            let mean = (first..first + 4).map(one).sum::<Complex<f64>>() / 4.0;
            let found = grouped.series[1].values[channel / 4].unwrap();
            assert!(is_near(found, told(mean)[1], 0.06));
        }
        let drawn = drawing(&fringe::VIEW, &port, &frame, &asked, 16);
        for (series, expected) in drawn.series.iter().zip(told(mean(0, 1, 2, 0))) {
            let found = series.values[0].unwrap();
            assert!(is_near(found, expected, 0.06), "{}: {found}", series.name);
        }
        // Values of an inverted spectrum are the conjugates of those on the sky.
        let band = Some(fxgraph::Band::signed(CHANNELS, 0, 1e9, -1e8));
        let inverted = fxgraph::PortType { band, ..port.clone() };
        for view in [&fringe::VIEW, &visibility::VIEW, &VIEW] {
            let phases = [&port, &inverted].map(|port| {
                let drawn = drawing(view, port, &frame, &asked, 16);
                drawn.series.last().unwrap().values.iter().flatten().sum::<f64>()
            });
            assert!(is_near(phases[0], -phases[1], 1e-9), "{phases:?}");
        }
        let missing = drawing(&fringe::VIEW, &port, &frame, &[("baseline", 4)], 16);
        assert!(missing.series.iter().all(|series| series.values == [None]));
    }

    #[test]
    fn selects_label_baselines_and_products() {
        let (port, frame) = dump();
        let selects = visibility::VIEW.selects(&port).unwrap();
        assert_eq!((selects[0].names[3].as_str(), selects[0].default), ("0-2", 1));
        assert_eq!(selects[1].names, ["00", "10", "01", "11"]);
        let selected = [selects[0].at(3), selects[1].at(1)];
        let message = visibility::VIEW.message(&port, &frame, &selected, 16);
        let told = serde_json::to_value(&message).unwrap();
        assert_eq!(told["selected"][0]["name"], "0-2");
        assert_eq!(told["valid"], 0.8333);
        assert_eq!(told["kind"], "lines");
        assert_eq!(VIEW.selects(&port).unwrap().len(), 1, "it shows all baselines");
    }
}
