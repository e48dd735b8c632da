//! Mean power of the GNSS correlator taps of each satellite: a peak where code and replica are aligned.

use super::satellites::{MOST_SATELLITES, name};
use super::scale::decibels;
use super::{Look, Shown, View};
use fxgraph::PortType;
use fxgraph_api::views::{Drawing, DrawnAs, Grid, Series};

pub(super) const VIEW: View = View {
    name: "taps",
    title: "correlation with each satellite",
    kind: DrawnAs::Lines,
    shows,
    draw,
};

fn shows(port: &PortType) -> Option<Shown> {
    const SHOWN: Shown = &["satellite", "tap"];
    SHOWN.iter().all(|name| port.axis_len(name).is_some()).then_some(SHOWN)
}

fn draw(look: &Look) -> Drawing {
    let (satellites, taps) = (look.len("satellite").min(MOST_SATELLITES), look.len("tap"));
    let mut sums = vec![(0.0, 0_u64); satellites * taps];
    if let (Some(satellite), Some(tap)) = (look.axis("satellite"), look.axis("tap")) {
        look.each(&look.thinned(&["satellite", "tap"]), |index, value| {
            if let Some((sum, count)) = sums.get_mut(index[satellite] * taps + index[tap]) {
                *sum += value.norm_sqr();
                *count += 1;
            }
        });
    }
    let series = sums.chunks(taps.max(1)).enumerate().map(|(satellite, sums)| {
        let powers = sums.iter().map(|(sum, count)| decibels(sum / *count as f64));
        Series::new(name(look, satellite), "dB", powers)
    });
    Drawing {
        x: Some(Grid {
            name: "tap".to_owned(),
            unit: String::new(),
            start: 0.0,
            step: 1.0,
            len: taps,
        }),
        series: series.collect(),
        ..Drawing::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{drawing, frame, is_near, port, values};
    use super::*;
    use fxgraph::Dtype;

    #[test]
    fn taps_shows_the_mean_power_of_each_correlator_tap() {
        let axes = [("epoch", 2), ("satellite", 3), ("antenna", 2), ("tap", 3)];
        let port = port(Dtype::Cf32, &axes, &[], 10_000);
        // Amplitude 10^satellite at the middle tap, half at its neighbours; zero for antenna 0.
        let sum = |n: usize| {
            let (tap, antenna, satellite) = (n % 3, n / 3 % 2, n / 6 % 3);
            let scale = if tap == 1 { 1.0 } else { 0.5 };
            [scale * antenna as f32 * 10_f32.powi(satellite as i32), 0.0]
        };
        let frame = frame(&port, (0..36).flat_map(sum).flat_map(f32::to_ne_bytes));
        let drawn = drawing(&VIEW, &port, &frame, &[("antenna", 1)], 16);
        assert_eq!(drawn.x.as_ref().unwrap().len, 3);
        for satellite in 0..3 {
            let peak = 20.0 * satellite as f64;
            let expected = [peak - 6.02, peak, peak - 6.02];
            let found = values(&drawn, satellite);
            assert!(found.iter().zip(expected).all(|(a, b)| is_near(*a, b, 0.01)), "{found:?}");
        }
        let silent = drawing(&VIEW, &port, &frame, &[("antenna", 0)], 16);
        assert_eq!(silent.series[0].values, [None; 3]);
    }
}
