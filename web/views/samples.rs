//! Samples against time: the first ones of the frame, as they are.

use super::scale::sample_rate_hz;
use super::{Look, View, spectrum};
use fxgraph::elements::Pick;
use fxgraph_api::views::{Drawing, DrawnAs, Grid, Series};
use num_complex::Complex;

pub(super) const VIEW: View = View {
    name: "samples",
    title: "samples against time",
    kind: DrawnAs::Lines,
    shows: spectrum::samples,
    draw,
};

fn draw(look: &Look) -> Drawing {
    let len = look.points.min(look.len("sample"));
    let missing = Complex::new(f64::NAN, f64::NAN);
    let mut samples = vec![missing; len];
    if let Some(axis) = look.axis("sample") {
        let mut picks = look.picks();
        for (at, pick) in picks.iter_mut().enumerate() {
            if at == axis {
                *pick = Pick::of(0..len);
            } else if pick.count() > 1 {
                // The first heap or spectrum: successive elements of others are not successive samples.
                *pick = Pick::one(0);
            }
        }
        look.each(&picks, |index, value| samples[index[axis]] = value);
    }
    let series =
        |name, part: fn(&Complex<f64>) -> f64| Series::new(name, "", samples.iter().map(part));
    let series = if look.port.dtype.is_complex() {
        vec![series("real", |z| z.re), series("imaginary", |z| z.im)]
    } else {
        vec![series("value", |z| z.re)]
    };
    let step = sample_rate_hz(look.port).recip();
    let x = Grid { name: "time".to_owned(), unit: "s".to_owned(), start: 0.0, step, len };
    Drawing { x: Some(x), series, ..Drawing::default() }
}

#[cfg(test)]
mod tests {
    use super::super::made::{drawing, frame, port};
    use super::*;
    use fxgraph::Dtype;

    #[test]
    fn samples_are_those_at_the_start_of_the_frame_with_gaps_where_they_are_missing() {
        let port = port(Dtype::I16, &[("sample", 64)], &[("heap", 4)], 64);
        let payload = (0..64).flat_map(|n: i16| (n - 20).to_ne_bytes());
        let mut frame = frame(&port, payload);
        frame.header.validity[1] = 0;
        let drawn = drawing(&VIEW, &port, &frame, &[], 32);
        let grid = drawn.x.as_ref().unwrap();
        assert_eq!((grid.len, grid.step, grid.unit.as_str()), (32, 1e-6, "s"));
        let values = &drawn.series[0].values;
        assert_eq!(
            (values[0], values[15], values[16], values[31]),
            (Some(-20.0), Some(-5.0), None, None)
        );
    }

    #[test]
    fn complex_samples_have_two_parts() {
        let port = port(Dtype::Cf32, &[("sample", 64)], &[], 64);
        let payload = (0..64).flat_map(|n| [n as f32, -1.5]).flat_map(f32::to_ne_bytes);
        let drawn = drawing(&VIEW, &port, &frame(&port, payload), &[], 64);
        assert_eq!(drawn.series[0].values[63], Some(63.0));
        assert_eq!(drawn.series[1].values[7], Some(-1.5));
    }
}
