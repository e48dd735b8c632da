//! Ports and frames for tests.

use super::View;
use fxgraph::control::TapFrame;
use fxgraph::{Axis, Clock, Dtype, Header, PortType, ValidityType};
use fxgraph_api::views::Drawing;
use fxgraph_api::views::Selected;

type Axes<'a> = &'a [(&'static str, usize)];

fn named(axes: Axes) -> Vec<Axis> {
    axes.iter().map(|(name, len)| Axis::new(name, *len)).collect()
}

/// Creates a port with a clock of 1 MHz and flags for `validity`.
pub(super) fn port(dtype: Dtype, axes: Axes, validity: Axes, samples_per_frame: u64) -> PortType {
    PortType {
        dtype,
        axes: named(axes),
        clock: Clock::new(1e6, samples_per_frame),
        band: None,
        validity: ValidityType::flags(named(validity)),
    }
}

/// Creates a fully valid frame.
pub(super) fn frame(port: &PortType, payload: impl IntoIterator<Item = u8>) -> TapFrame {
    let validity = vec![port.validity.full; port.validity.units()];
    let payload: Vec<u8> = payload.into_iter().collect();
    assert_eq!(payload.len(), port.frame_bytes());
    TapFrame { header: Header { validity, ..Header::default() }, payload }
}

/// Reproducible random numbers of mean 0 and standard deviation 1 (sum of twelve uniform ones, Irwin-Hall).
pub(super) fn noise(seed: u64) -> impl Iterator<Item = f64> {
    let mut state = seed;
    let mut uniform = move || {
        // SplitMix64 (Steele, Lea, Flood 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    std::iter::repeat_with(move || (0..12).map(|_| uniform()).sum::<f64>() - 6.0)
}

/// Draws `view` of a frame with these indices, and the default indices on other axes.
pub(super) fn drawing(
    view: &View,
    port: &PortType,
    frame: &TapFrame,
    asked: Axes,
    points: usize,
) -> Drawing {
    let selects = view.selects(port).unwrap();
    let selected: Vec<Selected> = selects
        .iter()
        .map(|select| {
            let index = asked.iter().find(|(axis, _)| *axis == select.axis);
            select.at(index.map_or(select.default, |(_, index)| *index))
        })
        .collect();
    view.message(port, frame, &selected, points).drawing
}

/// Returns the values of a series, all of which must be numbers.
pub(super) fn values(drawing: &Drawing, series: usize) -> Vec<f64> {
    drawing.series[series].values.iter().map(|value| value.unwrap()).collect()
}

/// Whether two numbers differ by no more than `tolerance`.
pub(super) fn is_near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance
}
