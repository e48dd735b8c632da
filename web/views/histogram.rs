//! Histogram of sample values: a bell for noise, two peaks for a tone, full outer bins if clipped.

use super::scale::{bits, decibels, largest, reference};
use super::{Look, View, spectrum};
use fxgraph::Dtype;
use fxgraph_api::views::{Drawing, DrawnAs, Figure, Grid, Series};
use std::collections::BTreeMap;

pub(super) const VIEW: View = View {
    name: "histogram",
    title: "histogram of samples",
    kind: DrawnAs::Lines,
    shows: spectrum::samples,
    draw,
};

fn draw(look: &Look) -> Drawing {
    let dtype = look.port.dtype;
    let mut samples = Vec::new();
    look.each(&look.thinned(&[]), |_, value| samples.push(value));
    let size = samples.iter().flat_map(|z| [z.re, z.im]).filter(|part| part.is_finite());
    let size = size.fold(0.0, |most: f64, part| most.max(part.abs()));
    let bins = Bins::new(dtype, size, look.points);
    let counted = |name, part: fn(&num_complex::Complex<f64>) -> f64| {
        Series::new(name, "samples", bins.count(samples.iter().map(part)))
    };
    let series = if dtype.is_complex() {
        vec![counted("real", |z| z.re), counted("imaginary", |z| z.im)]
    } else {
        vec![counted("samples", |z| z.re)]
    };
    let all = samples.len() as f64;
    let (full, unit) = reference(dtype);
    let power = samples.iter().map(num_complex::Complex::norm_sqr).sum::<f64>() / all;
    let mut figures =
        BTreeMap::from([("rms".to_owned(), Figure::new(decibels(power / full), unit))]);
    if let Some(largest) = largest(dtype) {
        let clipped = samples.iter().filter(|z| z.re.abs() >= largest || z.im.abs() >= largest);
        figures.insert("clipped".to_owned(), Figure::new(clipped.count() as f64 / all, ""));
    }
    let x = Grid {
        name: "value".to_owned(),
        unit: String::new(),
        start: bins.first + (bins.width - bins.spacing) / 2.0,
        step: bins.width,
        len: bins.len,
    };
    Drawing { x: Some(x), series, figures, ..Drawing::default() }
}

/// Equal intervals of values.
struct Bins {
    /// Smallest value of the first bin.
    first: f64,
    width: f64,
    /// Distance between two possible values.
    spacing: f64,
    len: usize,
}

impl Bins {
    /// Creates at most `points` bins: for integers of 1, 2, 4, ... values each, for other types over -`size` to `size`.
    fn new(dtype: Dtype, size: f64, points: usize) -> Self {
        let (codes, first) = match (dtype, bits(dtype)) {
            (Dtype::U8, _) => (256, 0.0),
            (_, Some(bits)) => (1_usize << bits, -f64::from(1_u32 << (bits - 1))),
            _ => {
                let size = if size > 0.0 { size } else { 1.0 };
                let width = 2.0 * size / points as f64;
                return Self { first: -size, width, spacing: 0.0, len: points };
            }
        };
        let width = codes.div_ceil(points).next_power_of_two();
        Self { first, width: width as f64, spacing: 1.0, len: codes / width }
    }

    fn count(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut counts = vec![0.0; self.len];
        for value in values.filter(|value| value.is_finite()) {
            let bin = ((value - self.first) / self.width) as usize;
            counts[bin.min(self.len - 1)] += 1.0;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{drawing, frame, is_near, noise, port, values};
    use super::*;

    #[test]
    fn histogram_has_one_bin_per_digitiser_code() {
        let port = port(Dtype::Packed(10), &[("sample", 64)], &[("heap", 2)], 64);
        // 0, 1, -512, 511, repeated.
        let bits = "0000000000_0000000001_1000000000_0111111111".replace('_', "");
        let byte = |n: usize| u8::from_str_radix(&bits[8 * n..8 * n + 8], 2).unwrap();
        let mut frame = frame(&port, (0..80).map(|n| byte(n % 5)));
        let drawn = drawing(&VIEW, &port, &frame, &[], 4096);
        let x = drawn.x.as_ref().unwrap();
        assert_eq!((x.start, x.step, x.len), (-512.0, 1.0, 1024));
        let counts = values(&drawn, 0);
        assert_eq!([0, 512, 513, 1023].map(|code| counts[code] as u32), [16; 4]);
        assert!(is_near(counts.iter().sum(), 64.0, 0.0));
        assert_eq!(drawn.figures["clipped"].value, Some(0.5));

        frame.header.validity[0] = 0;
        let drawn = drawing(&VIEW, &port, &frame, &[], 256);
        let x = drawn.x.as_ref().unwrap();
        assert_eq!((x.start, x.step, x.len), (-510.5, 4.0, 256));
        let counts = values(&drawn, 0);
        assert_eq!([0, 128, 255].map(|code| counts[code] as u32), [8, 16, 8]);
    }

    #[test]
    fn full_scale_sine_has_0_dbfs() {
        let port = port(Dtype::I8, &[("sample", 4096)], &[], 4096);
        let sine = |n| (127.0 * (std::f64::consts::TAU * f64::from(n) / 64.0).sin()).round() as i8;
        let frame = frame(&port, (0..4096).map(|n| sine(n).cast_unsigned()));
        let rms = &drawing(&VIEW, &port, &frame, &[], 64).figures["rms"];
        assert!(is_near(rms.value.unwrap(), 0.0, 0.02) && rms.unit == "dBFS", "{rms:?}");
    }

    #[test]
    fn histogram_of_floats_covers_their_range() {
        let port = port(Dtype::Cf32, &[("pol", 1), ("sample", 65536)], &[], 65536);
        let parts = noise(3).map(|x| (x as f32).to_ne_bytes()).take(2 * 65536);
        let frame = frame(&port, parts.flatten());
        let drawn = drawing(&VIEW, &port, &frame, &[], 64);
        let x = drawn.x.as_ref().unwrap();
        for series in 0..2 {
            let counts = values(&drawn, series);
            assert!(is_near(counts.iter().sum::<f64>(), 65536.0, 30.0), "up to rounding");
            let places = counts.iter().enumerate().map(|(n, c)| (x.start + x.step * n as f64, c));
            let variance =
                places.map(|(value, count)| value * value * count).sum::<f64>() / 65536.0;
            assert!(is_near(variance, 1.0, 0.02), "{variance}");
        }
        let rms = drawn.figures["rms"].value.unwrap();
        assert!(is_near(rms, 3.01, 0.05), "{rms}");
        assert!(!drawn.figures.contains_key("clipped"));
    }
}
