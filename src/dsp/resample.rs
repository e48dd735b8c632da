//! Polyphase filter that selects a part of a band and changes the sample rate by a rational factor.
//!
//! With L output samples for every M input samples, output sample k is at the time k M/L of the input, exactly:
//!
//! y_k = e^{-2 pi i f k} sum over n of x_n g(k M/L - n),   g(d) = A h(d) e^{2 pi i c d}
//!
//! c is the centre of the pass band in cycles per input sample, and f the frequency that becomes 0, in cycles per
//! output sample. h is a low-pass filter that is symmetric around 0, so the filter has no delay: a sinc times a
//! Kaiser window.

use crate::mixer::{Frequency, LANES, Oscillator};
use num_complex::Complex32;
use std::f64::consts::{PI, TAU};

/// Specification of the filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// Output samples for every `down` input samples; both have no common factor.
    pub up: usize,
    /// Input samples for every `up` output samples.
    pub down: usize,
    /// Centre of the pass band, in cycles per input sample.
    pub centre: f64,
    /// Width of the output's band in cycles per input sample.
    pub width: f64,
    /// Fraction of the band that is the pass band. The transition bands are centred on the edges of the band.
    pub pass: f64,
    /// Attenuation of the stop bands in dB, at least 21.
    pub stop_decibels: f64,
}

impl Design {
    /// Width of a transition band in cycles per input sample.
    fn transition(&self) -> f64 {
        (1.0 - self.pass) * self.width
    }

    /// Returns the input samples in each sum: the length of a Kaiser window for these bands, rounded up to a multiple
    /// of [`LANES`].
    ///
    /// Source: Kaiser, "Nonrecursive digital filter design using the I0-sinh window function" (1974).
    #[must_use]
    pub fn taps(&self) -> usize {
        let taps = (self.stop_decibels - 7.95) / (14.36 * self.transition()) + 1.0;
        // A conversion of a float saturates.
        (taps.ceil() as usize).saturating_add(LANES - 1) / LANES * LANES
    }

    /// Returns h at `distance` input samples from the middle; 0 from half of the taps on.
    fn low_pass(&self, distance: f64) -> f64 {
        let position = distance / (self.taps() as f64 / 2.0);
        if position.abs() >= 1.0 {
            return 0.0;
        }
        let beta = kaiser_beta(self.stop_decibels);
        let window = bessel_i0(beta * (1.0 - position * position).sqrt()) / bessel_i0(beta);
        let x = PI * self.width * distance;
        let sinc = if x == 0.0 { 1.0 } else { x.sin() / x };
        self.width * sinc * window
    }
}

/// Returns a / b as a reduced fraction with numerator and denominator up to `most`; `None` if it is no such fraction
/// within the precision of floats.
#[must_use]
pub fn fraction(a: f64, b: f64, most: u64) -> Option<(u64, u64)> {
    let [mut before, mut fraction] = [(0, 1), (1, 0)];
    let mut x = a / b;
    // The terms of a continued fraction at least double its size every other time.
    for _ in 0..128 {
        if !(x >= 0.0 && x < 2.0_f64.powi(53)) {
            return None;
        }
        let whole = x.floor() as u64;
        let next = |last: u64, before: u64| whole.checked_mul(last)?.checked_add(before);
        let (p, q) = (next(fraction.0, before.0)?, next(fraction.1, before.1)?);
        if p > most || q > most {
            return None;
        }
        (before, fraction) = (fraction, (p, q));
        let (left, right) = (q as f64 * a, p as f64 * b);
        if (left - right).abs() <= 4.0 * f64::EPSILON * right {
            return Some(fraction);
        }
        x = 1.0 / (x - whole as f64);
    }
    None
}

/// Returns the shape parameter of a Kaiser window for this attenuation.
fn kaiser_beta(decibels: f64) -> f64 {
    if decibels > 50.0 {
        0.1102 * (decibels - 8.7)
    } else {
        0.5842 * (decibels - 21.0).max(0.0).powf(0.4) + 0.078_86 * (decibels - 21.0).max(0.0)
    }
}

/// Returns the modified Bessel function of order 0, from its power series.
fn bessel_i0(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..1000 {
        term *= quarter / f64::from(k * k);
        sum += term;
        if term < sum * f64::EPSILON / 4.0 {
            break;
        }
    }
    sum
}

/// Input samples: real, or complex with both parts apart.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    /// Real parts.
    pub re: &'a [f32],
    /// Imaginary parts of complex samples.
    pub im: Option<&'a [f32]>,
}

impl<'a> Samples<'a> {
    /// The samples from index `first` on.
    #[must_use]
    pub fn from(&self, first: usize) -> Samples<'a> {
        Samples { re: &self.re[first..], im: self.im.map(|im| &im[first..]) }
    }
}

/// Resampler for one design and one oscillator.
#[derive(Clone, Debug)]
pub struct Resampler {
    up: usize,
    down: usize,
    taps: usize,
    /// Real and imaginary parts of g, `[phase][tap]`.
    re: Vec<f32>,
    im: Vec<f32>,
    oscillator: Oscillator,
}

impl Resampler {
    /// Creates a resampler whose output has frequency `zero`, in cycles per output sample, at 0.
    ///
    /// White noise with a variance of 1 at the input has `variance` at the output.
    #[must_use]
    pub fn new(design: &Design, zero: Frequency, variance: f64) -> Self {
        let (up, taps) = (design.up, design.taps());
        let distance = |phase: usize, tap: usize| {
            phase as f64 / up as f64 + taps as f64 / 2.0 - 1.0 - tap as f64
        };
        let all = || (0..up).flat_map(move |phase| (0..taps).map(move |tap| (phase, tap)));
        let low_pass: Vec<f64> = all().map(|(p, t)| design.low_pass(distance(p, t))).collect();
        let power = low_pass.iter().map(|h| h * h).sum::<f64>() / up as f64;
        let scale = (variance / power).sqrt();
        let (mut re, mut im) = (Vec::with_capacity(up * taps), Vec::with_capacity(up * taps));
        for (h, (phase, tap)) in low_pass.iter().zip(all()) {
            let (sin, cos) = (TAU * (design.centre * distance(phase, tap)).fract()).sin_cos();
            re.push((scale * h * cos) as f32);
            im.push((scale * h * sin) as f32);
        }
        Self { up, down: design.down, taps, re, im, oscillator: Oscillator::new(zero, 1) }
    }

    /// Input samples in each sum.
    #[must_use]
    pub fn taps(&self) -> usize {
        self.taps
    }

    /// Returns the first input sample in the sum of output sample `k`, and the phase of the filter.
    fn place(&self, k: u64) -> (i64, usize) {
        let (up, position) = (self.up as u128, u128::from(k) * self.down as u128);
        let first = (position / up) as i64 - (self.taps / 2) as i64 + 1;
        (first, (position % up) as usize)
    }

    /// Returns the index of the first input sample in the sum of output sample `k`.
    #[must_use]
    pub fn first_input(&self, k: u64) -> i64 {
        self.place(k).0
    }

    /// Returns the index after the last input sample in the sum of output sample `k`.
    #[must_use]
    pub fn end_input(&self, k: u64) -> i64 {
        self.place(k).0 + self.taps as i64
    }

    /// Returns the first output sample whose sum can have input sample `n` or a later one.
    #[must_use]
    pub fn first_output(&self, n: i64) -> u64 {
        // The last sample of the sum is floor(k M/L) + taps/2, so floor(k M/L) >= n - taps/2.
        let least = (n - (self.taps / 2) as i64).max(0);
        let k = (least as u128 * self.up as u128).div_ceil(self.down as u128);
        u64::try_from(k).unwrap_or(u64::MAX)
    }

    /// Computes adjacent output samples from `k` on. `x` begins with the first input sample of the first sum.
    ///
    /// # Panics
    /// If `x` ends before the last sum does.
    pub fn run(&self, k: u64, x: &Samples<'_>, out: &mut [Complex32]) {
        let (mut first, mut phase) = (0, self.place(k).1);
        let (whole, rest) = (self.down / self.up, self.down % self.up);
        for out in &mut *out {
            let weights = phase * self.taps..(phase + 1) * self.taps;
            let (re, im) = (&self.re[weights.clone()], &self.im[weights]);
            let [a, b] = products(&x.re[first..][..self.taps], re, im);
            *out = match x.im {
                None => Complex32::new(a, b),
                Some(x) => {
                    let [c, d] = products(&x[first..][..self.taps], re, im);
                    Complex32::new(a - d, b + c)
                }
            };
            (first, phase) = (first + whole, phase + rest);
            if phase >= self.up {
                (first, phase) = (first + 1, phase - self.up);
            }
        }
        self.oscillator.turn(k, out);
    }
}

/// Returns the sums of x times real and imaginary parts of the weights, as many as a multiple of [`LANES`].
#[inline]
fn products(x: &[f32], re: &[f32], im: &[f32]) -> [f32; 2] {
    let mut sums = [[0.0_f32; LANES]; 2];
    let rows = x.as_chunks::<LANES>().0.iter().zip(re.as_chunks().0).zip(im.as_chunks().0);
    for ((x, re), im) in rows {
        let (re, im): (&[f32; LANES], &[f32; LANES]) = (re, im);
        for l in 0..LANES {
            sums[0][l] += x[l] * re[l];
            sums[1][l] += x[l] * im[l];
        }
    }
    sums.map(|lanes| lanes.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use num_complex::Complex64;

    fn design(up: usize, down: usize, centre: f64, width: f64) -> Design {
        Design { up, down, centre, width, pass: 0.8, stop_decibels: 80.0 }
    }

    /// The output samples `from..from + count` for the input x(n), n >= `first_input(from)`.
    fn output(
        resampler: &Resampler,
        from: u64,
        count: usize,
        x: impl Fn(i64) -> Complex64,
        is_complex: bool,
    ) -> Vec<Complex32> {
        let input = resampler.first_input(from)..resampler.end_input(from + count as u64);
        let values: Vec<Complex64> = input.map(x).collect();
        let [re, im] = [|x: &Complex64| x.re as f32, |x: &Complex64| x.im as f32]
            .map(|part| values.iter().map(part).collect::<Vec<f32>>());
        let mut out = vec![Complex32::default(); count];
        let x = Samples { re: &re, im: is_complex.then_some(im.as_slice()) };
        resampler.run(from, &x, &mut out);
        out
    }

    /// e^{2 pi i f n}, with the phase reduced before it is rounded.
    fn wave(f: f64, n: f64) -> Complex64 {
        Complex64::from_polar(1.0, TAU * (f * n).fract())
    }

    fn double(y: Complex32) -> Complex64 {
        Complex64::new(f64::from(y.re), f64::from(y.im))
    }

    #[test]
    fn tone_in_the_pass_band_has_the_phase_of_its_time() {
        // Up, down, centre, width, whether the input is complex.
        for (up, down, centre, width, is_complex) in [
            (4, 107, 0.21, 4.0 / 107.0, false),
            (8, 107, 0.13, 4.0 / 107.0, false),
            (64, 107, -0.15, 64.0 / 107.0, true),
            (128, 107, 0.1, 64.0 / 107.0, true),
            (1, 8, 0.3, 0.125, false),
            (1, 1, 0.0, 0.5, true),
        ] {
            let design = design(up, down, centre, width);
            let ratio = up as f64 / down as f64;
            let zero = Frequency::aliased(centre / ratio, 1.0);
            let resampler = Resampler::new(&design, zero, 1.0);
            // Amplitude of a wave e^{...}: noise in the band keeps its variance.
            for offset in [-0.38, 0.0, 0.123, 0.38] {
                let f = centre + offset * width;
                let x = |n: i64| {
                    let wave = wave(f, n as f64);
                    if is_complex { wave } else { Complex64::new(2.0 * wave.re, 0.0) }
                };
                let count = if cfg!(miri) { 4 } else { 700 };
                let mut amplitude = None;
                for from in [0, 1000] {
                    let out = output(&resampler, from, count, x, is_complex);
                    for (j, y) in out.iter().enumerate() {
                        let k = from as f64 + j as f64;
                        let expected = wave(offset * width / ratio, k);
                        let y = double(*y) / expected;
                        let amplitude = *amplitude.get_or_insert(y.re);
                        assert!(
                            (y - amplitude).norm() < 3e-4 * amplitude,
                            "{design:?} {offset} {k}: {y}"
                        );
                    }
                }
                let power = 20.0 * (amplitude.unwrap_or(0.0) * width.sqrt()).log10();
                assert!(power.abs() < 0.3, "{power} dB");
            }
        }
    }

    #[test]
    fn tone_in_the_stop_band_is_attenuated_as_designed() {
        for (up, down, width, stop_decibels) in
            [(4, 107, 4.0 / 107.0, 60.0), (64, 107, 64.0 / 107.0, 80.0), (3, 4, 0.5, 100.0)]
        {
            let design = Design { stop_decibels, ..design(up, down, 0.0, width) };
            let resampler = Resampler::new(&design, Frequency::aliased(0.0, 1.0), 1.0);
            let count = if cfg!(miri) { 2 } else { 200 };
            let largest = |f: f64| {
                let out = output(&resampler, 17, count, |n| wave(f, n as f64), true);
                out.iter().map(|y| y.norm()).fold(0.0, f32::max)
            };
            let pass = largest(0.0);
            let edge = width / 2.0 + design.transition() / 2.0;
            for i in 0..40 {
                let f = edge + (0.5 - edge) * f64::from(i) / 39.0;
                for f in [f, -f] {
                    let decibels = 20.0 * f64::from(largest(f) / pass).log10();
                    assert!(decibels < 1.5 - stop_decibels, "{design:?} {f}: {decibels} dB");
                }
            }
        }
    }

    #[test]
    fn output_equals_that_of_scipy() {
        // scipy.signal.resample_poly(x, 3, 5, window=h) of SciPy 1.17.1, where h is firwin(16 x 3 + 1, 0.5 / 3,
        // window=("kaiser", beta), scale=False) for 40 dB; times the factor that keeps the variance of noise.
        let design = Design { pass: 0.6, stop_decibels: 40.0, ..design(3, 5, 0.0, 0.5) };
        assert_eq!(design.taps(), 16);
        let resampler = Resampler::new(&design, Frequency::aliased(0.0, 1.0), 1.0);
        let x = |n: i64| match n {
            0..60 => Complex64::new(((n * 37 + 11) % 101 - 50) as f64 / 50.0, 0.0),
            _ => Complex64::default(),
        };
        let out = output(&resampler, 0, 36, x, false);
        for (k, expected) in SCIPY {
            let y = double(out[*k]);
            assert!((y - expected).norm() < 1e-6, "{k}: {y} {expected}");
        }
    }

    /// Index and value of output samples.
    const SCIPY: &[(usize, f64)] = &[
        (0, -0.478_938_337),
        (1, 0.109_651_664),
        (2, 0.065_505_707),
        (7, -0.011_798_908),
        (16, -0.731_945_117),
        (17, -0.307_025_577),
        (18, -0.178_761_090),
        (30, -0.241_081_288),
        (35, 0.427_189_278),
    ];

    #[test]
    fn noise_keeps_its_variance() {
        let mut random = Random::new(7);
        let noise: Vec<f64> = (0..20_000).flat_map(|_| random.normal_pair()).collect();
        for (up, down, width) in [(8, 107, 4.0 / 107.0), (2, 3, 0.5)] {
            if cfg!(miri) {
                continue;
            }
            let design = design(up, down, 0.22, width);
            let zero = Frequency::aliased(0.22 * down as f64 / up as f64, 1.0);
            let resampler = Resampler::new(&design, zero, 1.0);
            let count = 35_000 * up / down;
            let x = |n: i64| Complex64::new(noise[(n + 2000) as usize], 0.0);
            let out = output(&resampler, 0, count, x, false);
            let power = out.iter().map(|y| f64::from(y.norm_sqr())).sum::<f64>() / count as f64;
            assert!((power - 1.0).abs() < 0.1, "{power}");
        }
    }

    #[test]
    fn parts_of_a_stream_equal_the_whole() {
        let design = design(8, 107, 0.2, 4.0 / 107.0);
        let resampler = Resampler::new(&design, Frequency::aliased(-0.1, 1.0), 1.0);
        let x = |n: i64| wave(0.19, n as f64);
        let whole = output(&resampler, 100, 300, x, true);
        for (from, count) in [(100, 1), (101, 64), (165, 235)] {
            let part = output(&resampler, from as u64, count, x, true);
            for (a, b) in part.iter().zip(&whole[from - 100..]) {
                assert!((a - b).norm() < 1e-6);
            }
        }
    }

    #[test]
    fn rates_have_their_reduced_fraction() {
        for (a, b, expected) in [
            (1.712e9, 64e6, Some((107, 4))),
            (1.712e9, 128e6, Some((107, 8))),
            (1.712e6, 1.712e6, Some((1, 1))),
            (1e6, 3e6, Some((1, 3))),
            (4.0, 4.0 / 3.0, Some((3, 1))),
            (999_983.0, 1_000_003.0, Some((999_983, 1_000_003))),
            (1.0, PI, None),
            (1e-300, 1e300, None),
            (1e300, 1e-300, None),
            (f64::NAN, 1.0, None),
        ] {
            assert_eq!(fraction(a, b, 1 << 24), expected, "{a} {b}");
        }
    }

    #[test]
    fn first_output_is_the_first_whose_sum_has_the_sample() {
        for (up, down) in [(4, 107), (128, 107), (1, 1)] {
            let width = (up as f64 / down as f64).min(1.0) * 0.5;
            let resampler =
                Resampler::new(&design(up, down, 0.0, width), Frequency::aliased(0.0, 1.0), 1.0);
            for n in [-5, 0, 1, 1000, 123_457, 1 << 50] {
                let k = resampler.first_output(n);
                assert!(resampler.end_input(k) > n, "{up} {down} {n}");
                assert!(k == 0 || resampler.end_input(k - 1) <= n, "{up} {down} {n}");
            }
        }
    }
}
