//! Inverse of a polyphase filter bank: from spectra back to samples.
//!
//! The inverse transform of spectrum n has P values v_n\[s\]. Each is a sum over the taps of the filter bank,
//!
//! v_n\[s\] = sum over t of a_s\[t\] x_{n+t}\[s\],   a_s\[t\] = sqrt(P) w\[t P + s\],
//!
//! where x_n\[s\] is sample n P + s. So each of the P branches is a filter of its own, and its inverse is a filter
//! g_s along the spectra. With one tap and equal weights a is 1 and the inverse is exact. Otherwise the filter bank
//! suppresses a part of white noise at the edges of the channels, and g_s minimises the mean square error:
//!
//! (R + q) g_s = a_s,   R\[i, j\] = sum over t of a_s\[t\] a_s\[t + i - j\]
//!
//! q is the power of the noise of the spectra (their quantisation) relative to the signal.

use crate::fourier::{Fft, inverse_f32};
use num_complex::Complex32;
use std::sync::Arc;

/// Inverse transforms of spectra.
pub struct Inverse {
    channels: usize,
    /// Real samples of two spectra at a time, instead of complex samples.
    is_real: bool,
    transform: Arc<dyn Fft<f32>>,
    buffer: Vec<Complex32>,
    scratch: Vec<Complex32>,
    scale: f32,
}

impl Inverse {
    /// Creates transforms to `channels` complex samples. Channel `channels / 2` is at 0 Hz; `channels` is even.
    #[must_use]
    pub fn complex(channels: usize) -> Self {
        Self::new(channels, channels, false)
    }

    /// Creates transforms to 2 x `channels` real samples. Channel 0 is at 0 Hz; the channel at the Nyquist frequency
    /// is taken as 0.
    #[must_use]
    pub fn real(channels: usize) -> Self {
        Self::new(channels, 2 * channels, true)
    }

    fn new(channels: usize, len: usize, is_real: bool) -> Self {
        let transform = inverse_f32(len);
        let zeros = |len| vec![Complex32::default(); len];
        Self {
            channels,
            is_real,
            scratch: zeros(transform.get_inplace_scratch_len()),
            transform,
            buffer: zeros(len),
            scale: 1.0 / (len as f32).sqrt(),
        }
    }

    /// Numbers of each spectrum's samples: 2 for each channel in either form.
    #[must_use]
    pub fn numbers(&self) -> usize {
        2 * self.channels
    }

    /// Bytes of working memory.
    #[must_use]
    pub fn bytes(channels: usize) -> usize {
        // Buffer, scratch and twiddle factors.
        6 * channels * size_of::<Complex32>()
    }

    /// Transforms two spectra, given by channel, to the samples of each. The scale is that of a unitary transform.
    pub fn run(
        &mut self,
        first: impl Fn(usize) -> Complex32,
        second: impl Fn(usize) -> Complex32,
        samples: [&mut [f32]; 2],
    ) {
        let [a, b] = samples;
        if self.is_real {
            self.real_pair(first, second, a, b);
        } else {
            self.complex_one(first, a);
            self.complex_one(second, b);
        }
    }

    fn transform(&mut self) {
        self.transform.process_with_scratch(&mut self.buffer, &mut self.scratch);
    }

    fn complex_one(&mut self, spectrum: impl Fn(usize) -> Complex32, samples: &mut [f32]) {
        if samples.is_empty() {
            return;
        }
        self.buffer.iter_mut().enumerate().for_each(|(k, value)| *value = spectrum(k));
        self.transform();
        // The factor (-1)^m moves the centre to 0 Hz.
        let mut scale = self.scale;
        for (sample, value) in samples.as_chunks_mut::<2>().0.iter_mut().zip(&self.buffer) {
            *sample = [scale * value.re, scale * value.im];
            scale = -scale;
        }
    }

    /// The transforms of two real series are those of the real and the imaginary part of one complex series.
    fn real_pair(
        &mut self,
        first: impl Fn(usize) -> Complex32,
        second: impl Fn(usize) -> Complex32,
        a: &mut [f32],
        b: &mut [f32],
    ) {
        let n = self.channels;
        // The values of a real series at 0 Hz are real.
        self.buffer[0] = Complex32::new(first(0).re, second(0).re);
        self.buffer[n] = Complex32::default();
        for k in 1..n {
            let (x, y) = (first(k), second(k));
            self.buffer[k] = Complex32::new(x.re - y.im, x.im + y.re);
            self.buffer[2 * n - k] = Complex32::new(x.re + y.im, y.re - x.im);
        }
        self.transform();
        a.iter_mut().zip(&self.buffer).for_each(|(a, value)| *a = self.scale * value.re);
        b.iter_mut().zip(&self.buffer).for_each(|(b, value)| *b = self.scale * value.im);
    }
}

/// Synthesis filter, the inverse of the filter of a polyphase filter bank.
#[derive(Clone, Debug)]
pub struct Synthesis {
    /// g, `[spectrum][branch]`.
    weights: Vec<f32>,
    branches: usize,
    before: usize,
    after: usize,
    error: f64,
}

impl Synthesis {
    /// Designs the inverse of the filter with weights `analysis` `[tap][branch]`, scaled so that the sum of their
    /// squares is 1. It extends `margin` spectra beyond those that a sample is in. `noise` is q.
    ///
    /// # Panics
    /// If `analysis` is not one or several rows of `branches` weights.
    #[must_use]
    pub fn new(analysis: &[f64], branches: usize, margin: usize, noise: f64) -> Self {
        assert!(
            branches > 0 && analysis.len() >= branches,
            "a filter has a weight for each branch"
        );
        let taps = analysis.len() / branches;
        let rows = taps + 2 * margin;
        let mut weights = vec![0.0; rows * branches];
        let mut errors = 0.0;
        for s in 0..branches {
            let a: Vec<f64> =
                (0..taps).map(|t| (branches as f64).sqrt() * analysis[t * branches + s]).collect();
            let (g, error) = inverse(&a, margin, noise);
            errors += error;
            g.iter().enumerate().for_each(|(row, g)| weights[row * branches + s] = *g as f32);
        }
        Self {
            weights,
            branches,
            before: taps - 1 + margin,
            after: margin,
            error: errors / branches as f64,
        }
    }

    /// Number of spectra before that of a sample in the sum of the sample.
    #[must_use]
    pub fn before(&self) -> usize {
        self.before
    }

    /// Number of spectra after that of a sample in the sum of the sample.
    #[must_use]
    pub fn after(&self) -> usize {
        self.after
    }

    /// Expected power of the error for white noise, relative to the noise, with the noise of the spectra included.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.error
    }

    /// Computes the samples of one spectrum. `values` has the inverse transforms of this spectrum and those around
    /// it, from `before` spectra before it on, one after the other; each has 1 or 2 numbers for each branch.
    ///
    /// # Panics
    /// If a slice has the wrong length.
    pub fn run(&self, values: &[f32], samples: &mut [f32]) {
        let len = samples.len();
        samples.fill(0.0);
        let rows = values.chunks_exact(len).zip(self.weights.chunks_exact(self.branches));
        if len == self.branches {
            for (values, weights) in rows {
                let terms = values.iter().zip(weights);
                samples.iter_mut().zip(terms).for_each(|(sample, (v, g))| *sample += v * g);
            }
        } else {
            for (values, weights) in rows {
                let terms = values.as_chunks::<2>().0.iter().zip(weights);
                for ([re, im], (v, g)) in samples.as_chunks_mut::<2>().0.iter_mut().zip(terms) {
                    *re += v[0] * g;
                    *im += v[1] * g;
                }
            }
        }
    }
}

/// Returns g for the branch `a`, and the power of the error.
fn inverse(a: &[f64], margin: usize, noise: f64) -> (Vec<f64>, f64) {
    if let [a] = a {
        let mut g = vec![0.0; 1 + 2 * margin];
        let weight = if a.abs() > f64::MIN_POSITIVE { 1.0 / a } else { 0.0 };
        g[margin] = weight;
        return (g, noise * weight * weight);
    }
    let (taps, rows) = (a.len(), a.len() + 2 * margin);
    let lag = |d: usize| a.iter().zip(a.iter().skip(d)).map(|(x, y)| x * y).sum::<f64>();
    let mut r: Vec<f64> = (0..rows).map(lag).collect();
    r[0] += noise;
    // Row i is the spectrum taps - 1 + margin - i before that of the sample, in which the sample has this tap.
    let tap = |row: usize| (taps - 1 + margin).checked_sub(row).filter(|tap| *tap < taps);
    let wanted: Vec<f64> = (0..rows).map(|row| tap(row).map_or(0.0, |tap| a[tap])).collect();
    let g = solve_toeplitz(&r, &wanted);
    let error = 1.0 - g.iter().zip(&wanted).map(|(g, a)| g * a).sum::<f64>();
    (g, error)
}

/// Solves T x = b for the symmetric, positive definite Toeplitz matrix with first column `r`: Levinson's recursion.
fn solve_toeplitz(r: &[f64], b: &[f64]) -> Vec<f64> {
    let len = r.len();
    // f solves T f = (1, 0, ..., 0) for the leading rows; its reverse solves T f = (0, ..., 0, 1).
    let (mut f, mut next, mut x) = (vec![0.0; len], vec![0.0; len], vec![0.0; len]);
    (f[0], x[0]) = (1.0 / r[0], b[0] / r[0]);
    for n in 1..len {
        let with_row = |v: &[f64]| (0..n).map(|i| r[n - i] * v[i]).sum::<f64>();
        let (error, apart) = (with_row(&f), b[n] - with_row(&x));
        let scale = 1.0 / (1.0 - error * error);
        f[n] = 0.0;
        for i in 0..=n {
            let reversed = if i == 0 { 0.0 } else { f[n - i] };
            next[i] = scale * (f[i] - error * reversed);
        }
        std::mem::swap(&mut f, &mut next);
        for i in 0..=n {
            x[i] += apart * f[n - i];
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::polyphase::{Window, weights};
    use crate::random::Random;
    use num_complex::Complex64;
    use std::f64::consts::TAU;

    fn analysis(step: usize, taps: usize, window: Window, w_cutoff: f64) -> Vec<f64> {
        weights(step, taps, window, w_cutoff).into_iter().map(f64::from).collect()
    }

    /// Channels `first..first + count` of the spectrum of the filtered window, directly from their equation.
    fn spectrum(
        window: &[f64],
        w: &[f64],
        step: usize,
        first: usize,
        count: usize,
    ) -> Vec<Complex32> {
        let term = |k: usize, i: usize| {
            Complex64::from_polar(w[i] * window[i], -TAU * ((k * i) % step) as f64 / step as f64)
        };
        let channel = |k: usize| (0..w.len()).map(|i| term(k, i)).sum::<Complex64>();
        let narrow = |y: Complex64| Complex32::new(y.re as f32, y.im as f32);
        (first..first + count).map(|k| narrow(channel(k))).collect()
    }

    fn noise(len: usize) -> Vec<f64> {
        let mut random = Random::new(2);
        (0..len / 2).flat_map(|_| random.normal_pair()).collect()
    }

    /// Real samples that the synthesis makes of the spectra of `x`.
    fn round_trip(x: &[f64], channels: usize, w: &[f64], synthesis: &Synthesis) -> Vec<f32> {
        let step = 2 * channels;
        let count = (x.len() - w.len()) / step + 1;
        let spectra: Vec<Vec<Complex32>> =
            (0..count).map(|n| spectrum(&x[n * step..][..w.len()], w, step, 0, channels)).collect();
        let mut inverse = Inverse::real(channels);
        let mut values = vec![0.0; count.next_multiple_of(2) * step];
        for (n, pair) in values.chunks_exact_mut(2 * step).enumerate() {
            let at = |n: usize| {
                let spectra = &spectra;
                move |k: usize| spectra.get(n).map_or(Complex32::default(), |s| s[k])
            };
            let (a, b) = pair.split_at_mut(step);
            inverse.run(at(2 * n), at(2 * n + 1), [a, b]);
        }
        let rows = synthesis.before() + 1 + synthesis.after();
        let mut out = vec![0.0; (count + 1 - rows) * step];
        for (n, out) in out.chunks_exact_mut(step).enumerate() {
            synthesis.run(&values[n * step..][..rows * step], out);
        }
        out
    }

    #[test]
    fn plain_transform_is_inverted_except_for_the_nyquist_channel() {
        let (channels, spectra) = (16, 7);
        let step = 2 * channels;
        let w = analysis(step, 1, Window::Rect, 0.0);
        let synthesis = Synthesis::new(&w, step, 0, 0.0);
        assert_eq!((synthesis.before(), synthesis.after()), (0, 0));
        let x = noise(step * spectra);
        let out = round_trip(&x, channels, &w, &synthesis);
        assert_eq!(out.len(), x.len());
        for (x, y) in x.chunks_exact(step).zip(out.chunks_exact(step)) {
            let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
            let nyquist = x.iter().enumerate().map(|(i, x)| sign(i) * x).sum::<f64>() / step as f64;
            for (i, (x, y)) in x.iter().zip(y).enumerate() {
                assert!((x - sign(i) * nyquist - f64::from(*y)).abs() < 2e-6, "{i}: {x} {y}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn error_of_white_noise_is_that_of_the_design() {
        let channels = 32;
        let step = 2 * channels;
        // Errors in dB of the same normal equations, solved with NumPy.
        for (taps, margin, of_numpy) in [(4, 4, -22.4), (16, 16, -28.3)] {
            let w = analysis(step, taps, Window::Hann, 1.0);
            let synthesis = Synthesis::new(&w, step, margin, 1e-5);
            let designed = 10.0 * synthesis.error().log10();
            assert!((designed - of_numpy).abs() < 0.06, "{designed}");
            // All channels, so that none is missing at the Nyquist frequency: complex samples x e^{-pi i n}.
            let (count, len) = (600, 2 * step);
            let x = noise(step * (count + taps - 1));
            let mut inverse = Inverse::complex(step);
            let mut values = vec![0.0; count * len];
            for (n, values) in values.chunks_exact_mut(len).enumerate() {
                let spectrum = spectrum(&x[n * step..][..w.len()], &w, step, 0, step);
                inverse.run(|k| spectrum[k], |_| Complex32::default(), [values, &mut []]);
            }
            let rows = synthesis.before() + 1 + synthesis.after();
            let (mut square, mut samples, mut out) = (0.0, 0, vec![0.0; len]);
            for n in 0..=count - rows {
                synthesis.run(&values[n * len..][..rows * len], &mut out);
                let x = &x[(n + synthesis.before()) * step..];
                for (m, ([re, im], x)) in out.as_chunks::<2>().0.iter().zip(x).enumerate() {
                    let x = if m.is_multiple_of(2) { *x } else { -x };
                    square += (x - f64::from(*re)).powi(2) + f64::from(*im).powi(2);
                    samples += 1;
                }
            }
            // The error is in a narrow part of the spectrum, so few of its values are independent.
            let decibels = 10.0 * (square / f64::from(samples) / synthesis.error()).log10();
            assert!(decibels.abs() < 1.0, "{taps}: {decibels} dB");
        }
    }

    #[test]
    fn part_of_the_band_is_centred_at_zero() {
        let (step, first, count) = (64, 8, 16);
        let w = analysis(step, 1, Window::Rect, 0.0);
        // A tone in the middle of channel 19, 3 above the middle of the part.
        let x: Vec<f64> = (0..step).map(|i| (TAU * 19.0 * i as f64 / step as f64).cos()).collect();
        let channels = spectrum(&x, &w, step, first, count);
        let mut out = vec![0.0; 2 * count];
        Inverse::complex(count).run(|k| channels[k], |_| Complex32::default(), [&mut out, &mut []]);
        // Half of the amplitude, and noise keeps its level: sqrt(64 / 16).
        for (m, [re, im]) in out.as_chunks::<2>().0.iter().enumerate() {
            let expected = Complex64::from_polar(0.5 * 2.0, TAU * 3.0 * m as f64 / count as f64);
            let y = Complex64::new(f64::from(*re), f64::from(*im));
            assert!((y - expected).norm() < 1e-5, "{m}: {y} {expected}");
        }
    }

    #[test]
    fn toeplitz_system_is_solved() {
        let (r, b) = ([4.0, 1.0, -0.5, 0.25], [1.0, 2.0, 3.0, -1.0]);
        let x = solve_toeplitz(&r, &b);
        for i in 0..4_usize {
            let row: f64 = (0..4).map(|j| r[i.abs_diff(j)] * x[j]).sum();
            assert!((row - b[i]).abs() < 1e-12);
        }
    }
}
