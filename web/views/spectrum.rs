//! Power spectrum of sampled voltages.
//!
//! Mean of Hann-windowed transforms that overlap by half (Welch 1967). A tone at the centre of a bin shows its power;
//! 0 dBFS is a full-scale tone. Noise shows 1.76 dB more than its power in the width of a bin.

use super::look::MOST_ELEMENTS;
use super::scale::{SKY_FREQUENCY, decibels, reference, sample_rate_hz};
use super::{Look, Shown, TIME, View};
use fxgraph::PortType;
use fxgraph::elements::Pick;
use fxgraph_api::views::{Drawing, DrawnAs, Grid, Series};
use fxgraph_dsp::fourier::forward_f64;
use num_complex::Complex;
use std::f64::consts::PI;

pub(super) const VIEW: View =
    View { name: "spectrum", title: "power spectrum", kind: DrawnAs::Lines, shows: samples, draw };

/// Minimum number of contiguous samples for a spectrum.
const FEWEST_SAMPLES: usize = 32;

/// Whether a port carries samples, long enough for a transform.
pub(super) fn samples(port: &PortType) -> Option<Shown> {
    const SHOWN: Shown = &["sample"];
    // An axis `unzip` means that successive elements are not successive samples.
    let is_whole = port.axes.iter().all(|axis| axis.name != "unzip" || axis.len == 1);
    let last = port.axes.last().filter(|axis| axis.name == "sample" && is_whole)?;
    (last.len >= FEWEST_SAMPLES).then_some(SHOWN)
}

fn draw(look: &Look) -> Drawing {
    let is_complex = look.port.dtype.is_complex();
    let sides = if is_complex { 1 } else { 2 };
    let most = look.points.min(look.len("sample") / sides);
    // Largest power of two up to `most`.
    let bins = (most + 1).next_power_of_two() / 2;
    let length = sides * bins;
    let (powers, windows) = mean_powers(look, length);
    let (full, unit) = reference(look.port.dtype);
    // The window reduces the amplitude of a tone to one half.
    let scale = (2.0 / length as f64).powi(2) / (full * windows as f64);
    let rate_hz = sample_rate_hz(look.port);
    let values: Vec<f64> = if is_complex {
        (0..bins).map(|bin| powers[(bin + bins / 2) % bins]).collect()
    } else {
        // Half of the amplitude of a real tone is at the negative frequency.
        powers[..bins]
            .iter()
            .enumerate()
            .map(|(bin, p)| if bin == 0 { *p } else { 2.0 * p })
            .collect()
    };
    let values = values.into_iter().map(|power| decibels(power * scale));
    let (start, sign) = first_hz(look.port, rate_hz, is_complex);
    Drawing {
        x: Some(Grid {
            name: if look.port.band.is_some() { SKY_FREQUENCY } else { "frequency" }.to_owned(),
            unit: "Hz".to_owned(),
            start,
            step: sign * rate_hz / length as f64,
            len: bins,
        }),
        series: vec![Series::new("power", unit, values)],
        ..Drawing::default()
    }
}

/// Frequency of the first bin in Hz, and the sign of the steps: on the sky if the port has a band, otherwise those of the
/// samples. The steps are negative if the band is inverted.
fn first_hz(port: &PortType, rate_hz: f64, is_complex: bool) -> (f64, f64) {
    let below_centre_hz = if is_complex { rate_hz / 2.0 } else { rate_hz / 4.0 };
    match port.band {
        Some(band) => {
            let sign = band.sideband.sign();
            (band.centre_hz - sign * below_centre_hz, sign)
        }
        None if is_complex => (-below_centre_hz, 1.0),
        None => (0.0, 1.0),
    }
}

/// Sums of the squared moduli of windowed transforms of `length`, spread over the frame, and the number of windows.
/// Windows with a missing sample are left out.
fn mean_powers(look: &Look, length: usize) -> (Vec<f64>, usize) {
    let window: Vec<f64> =
        (0..length).map(|n| (PI * n as f64 / length as f64).sin().powi(2)).collect();
    let transform = forward_f64(length);
    let mut scratch = vec![Complex::default(); transform.get_inplace_scratch_len()];
    let hop = (length / 2).max(1);
    let in_row = (look.len("sample") - length) / hop + 1;
    let all = TIME.iter().map(|name| look.len(name)).product::<usize>() * in_row;
    let step = all.div_ceil((MOST_ELEMENTS / length).max(1));
    let (mut powers, mut windows) = (vec![0.0; length], 0);
    let mut samples = Vec::with_capacity(length);
    for number in (0..all).step_by(step) {
        samples.clear();
        look.each(&picks(look, number / in_row, number % in_row * hop, length), |_, value| {
            samples.push(value);
        });
        if samples.len() < length {
            continue;
        }
        samples.iter_mut().zip(&window).for_each(|(sample, weight)| *sample *= weight);
        transform.process_with_scratch(&mut samples, &mut scratch);
        powers.iter_mut().zip(&samples).for_each(|(power, bin)| *power += bin.norm_sqr());
        windows += 1;
    }
    (powers, windows)
}

/// Selects `length` samples from `first` on in row `row`, counted along the time axes.
fn picks(look: &Look, row: usize, first: usize, length: usize) -> Vec<Pick> {
    let (mut picks, mut row) = (look.picks(), row);
    for (axis, pick) in look.port.axes.iter().zip(&mut picks).rev() {
        if axis.name == "sample" {
            *pick = Pick::of(first..first + length);
        } else if TIME.contains(&axis.name) {
            *pick = Pick::one(row % axis.len);
            row /= axis.len;
        }
    }
    picks
}

#[cfg(test)]
mod tests {
    use super::super::made::{drawing, frame, is_near, noise, port, values};
    use super::*;
    use fxgraph::{Band, Dtype};
    use std::f64::consts::TAU;

    fn bytes(samples: impl IntoIterator<Item = f64>) -> Vec<u8> {
        samples.into_iter().flat_map(f64::to_ne_bytes).collect()
    }

    #[test]
    fn half_scale_tone_has_its_level_in_its_bin() {
        let port = port(Dtype::I16, &[("sample", 8192)], &[("heap", 2)], 8192);
        let tone = |n| (0.5 * 32767.0 * (TAU * 100.0 / 1024.0 * f64::from(n)).sin()).round();
        let frame = frame(&port, (0..8192).flat_map(|n| (tone(n) as i16).to_ne_bytes()));
        let drawing = drawing(&VIEW, &port, &frame, &[], 512);
        let x = drawing.x.as_ref().unwrap();
        assert_eq!((x.start, x.step, x.len), (0.0, 1e6 / 1024.0, 512));
        assert_eq!(drawing.series[0].unit, "dBFS");
        let values = &drawing.series[0].values;
        assert!(is_near(values[100].unwrap(), -6.02, 0.01), "{values:?}");
        assert!(is_near(values[101].unwrap(), -12.04, 0.01), "the neighbours of a Hann window");
        let others = values[..98].iter().chain(&values[103..]);
        assert!(others.flatten().all(|value| *value < -90.0));
    }

    /// Power spectrum by definition, term by term.
    fn reference(samples: &[f64], length: usize) -> Vec<f64> {
        let window = |n: usize| 0.5 - 0.5 * (TAU * n as f64 / length as f64).cos();
        let sum: f64 = (0..length).map(window).sum();
        let starts: Vec<usize> = (0..=samples.len() - length).step_by(length / 2).collect();
        let power = |bin: usize| {
            let of_window = |start: &usize| {
                let term = |n: usize| {
                    let angle = -TAU * (bin * n) as f64 / length as f64;
                    Complex::from_polar(samples[start + n] * window(n), angle)
                };
                (0..length).map(term).sum::<Complex<f64>>().norm_sqr()
            };
            let mean = starts.iter().map(of_window).sum::<f64>() / starts.len() as f64;
            10.0 * (mean / (sum * sum) * if bin == 0 { 1.0 } else { 2.0 }).log10()
        };
        (0..length / 2).map(power).collect()
    }

    #[test]
    fn spectrum_of_noise_matches_the_definition() {
        let samples: Vec<f64> = noise(1).take(1024).collect();
        let port = port(Dtype::F64, &[("sample", 1024)], &[], 1024);
        let drawing = drawing(&VIEW, &port, &frame(&port, bytes(samples.clone())), &[], 32);
        for (found, expected) in values(&drawing, 0).iter().zip(reference(&samples, 64)) {
            assert!(is_near(*found, expected, 0.01), "{found} {expected}");
        }
    }

    #[test]
    fn white_noise_has_the_same_density_in_every_bin() {
        let port = port(Dtype::F64, &[("spectrum", 64), ("sample", 1024)], &[], 65536);
        let frame = frame(&port, bytes(noise(2).take(65536)));
        let drawing = drawing(&VIEW, &port, &frame, &[], 16);
        // Both sides of the spectrum, with a noise bandwidth of 1.5 bins.
        let expected = 10.0 * (2.0 * 1.5 / 32.0_f64).log10();
        let values = values(&drawing, 0);
        assert!(values[1..].iter().all(|value| is_near(*value, expected, 0.4)), "{values:?}");
    }

    #[test]
    fn windows_with_missing_samples_are_left_out() {
        let port = port(Dtype::F64, &[("sample", 4096)], &[("heap", 4)], 4096);
        let tone = |n| (TAU / 16.0 * f64::from(n)).cos();
        let lost = |n: i32| if (1024..2048).contains(&n) { 1e9 } else { tone(n) };
        let mut frame = frame(&port, bytes((0..4096).map(lost)));
        frame.header.validity[1] = 0;
        let drawn = drawing(&VIEW, &port, &frame, &[], 256);
        let values = &drawn.series[0].values;
        assert!(is_near(values[32].unwrap(), -3.01, 0.01), "{values:?}");
        assert!(values[34..].iter().flatten().all(|value| *value < -200.0), "{values:?}");
        frame.header.validity.fill(0);
        let drawn = drawing(&VIEW, &port, &frame, &[], 256);
        assert!(drawn.series[0].values.iter().all(Option::is_none));
    }

    #[test]
    fn spectrum_of_complex_samples_is_centred_on_the_band() {
        let axes = [("pol", 2), ("sample", 2048)];
        let mut port = port(Dtype::Cf32, &axes, &[], 4 * 2048);
        let band = Band::signed(64, 0, 1.4e9, 250e3);
        port.band = Some(band);
        let sample = |n: usize| {
            let tone = Complex::from_polar(0.1, -TAU * 0.25 * n as f64);
            if n < 2048 { Complex::default() } else { tone }
        };
        let bytes = (0..4096).map(sample).flat_map(|z| [z.re as f32, z.im as f32]);
        let frame = frame(&port, bytes.flat_map(f32::to_ne_bytes));
        let drawn = drawing(&VIEW, &port, &frame, &[("pol", 1)], 1024);
        let x = drawn.x.as_ref().unwrap();
        assert_eq!((x.start, x.step, x.len), (1.4e9 - 125e3, 250e3 / 1024.0, 1024));
        let value = drawn.series[0].values[256].unwrap();
        assert!(is_near(value, -20.0, 0.01), "{value}");
        assert_eq!(drawn.series[0].unit, "dB");
        // Zero power has no value in decibels.
        let drawn = drawing(&VIEW, &port, &frame, &[("pol", 0)], 1024);
        assert!(drawn.series[0].values.iter().all(Option::is_none));
    }

    #[test]
    fn spectrum_of_an_inverted_band_has_falling_sky_frequencies() {
        let mut port = port(Dtype::I16, &[("sample", 1024)], &[], 1024);
        let zeros = vec![0; 2048];
        let axis = |port: &PortType| {
            let drawn = drawing(&VIEW, port, &frame(port, zeros.clone()), &[], 512);
            let x = drawn.x.unwrap();
            (x.name, x.start, x.step)
        };
        assert_eq!(axis(&port), ("frequency".to_owned(), 0.0, 1e6 / 1024.0));
        port.band = Some(Band::signed(1, 0, 1e9, 5e5));
        assert_eq!(axis(&port), ("sky frequency".to_owned(), 1e9 - 250e3, 1e6 / 1024.0));
        port.band = Some(Band::signed(1, 0, 1e9, -5e5));
        assert_eq!(axis(&port), ("sky frequency".to_owned(), 1e9 + 250e3, -1e6 / 1024.0));
    }

    #[test]
    fn spectrum_is_not_offered_for_short_rows_and_unfinished_transforms() {
        let offered = |axes| VIEW.selects(&port(Dtype::Cf32, axes, &[], 64)).is_some();
        assert!(offered(&[("sample", 32)]) && offered(&[("unzip", 1), ("sample", 32)]));
        assert!(!offered(&[("sample", 31)]) && !offered(&[("unzip", 4), ("sample", 32)]));
        assert!(!offered(&[("sample", 64), ("pol", 2)]));
    }
}
