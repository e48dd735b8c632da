//! Oscillator, and the filter shifted in frequency by the oscillator.
//!
//! With f in turns per sample, mixing and filtering are one sum of samples with complex weights:
//!
//! y_j = sum over k of x_{Sj+k} h_k e^{-2 pi i f (S j + k)} = e^{-2 pi i f S j} sum of x_{Sj+k} g_k

use num_complex::{Complex32, Complex64};
use std::f64::consts::TAU;

/// Output samples that share a factor computed from their time.
pub const ANCHOR: usize = 64;
/// Weights in a vector.
pub const LANES: usize = 16;

/// Frequency in turns per sample, in units of 2^-128, so that the phase is precise at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frequency(u128);

impl Frequency {
    /// Creates the frequency `hz`, from 0 up to the rate, for samples at `rate_hz`.
    #[must_use]
    pub fn new(hz: f64, rate_hz: f64) -> Self {
        // Long division. Each step is exact: the remainder stays below the rate.
        let mut rest = hz;
        let mut turns = 0;
        for _ in 0..u128::BITS {
            rest *= 2.0;
            turns <<= 1;
            if rest >= rate_hz {
                rest -= rate_hz;
                turns |= 1;
            }
        }
        Self(turns)
    }

    /// Creates the frequency `hz` of either sign and any magnitude, for samples at `rate_hz`.
    #[must_use]
    pub fn aliased(hz: f64, rate_hz: f64) -> Self {
        let Self(turns) = Self::new(hz.abs() % rate_hz, rate_hz);
        Self(if hz < 0.0 { turns.wrapping_neg() } else { turns })
    }

    /// Returns the phase at sample `t`, in units of 2^-64 turns.
    #[inline]
    #[must_use]
    pub fn phase(self, t: u64) -> u64 {
        (self.0.wrapping_mul(u128::from(t)) >> 64) as u64
    }

    /// Returns e^{-2 pi i f t}.
    #[inline]
    #[must_use]
    pub fn phasor(self, t: u64) -> Complex64 {
        // Signed, so that small angles have full precision.
        let turns = self.phase(t).cast_signed() as f64 / 2.0_f64.powi(64);
        let (sin, cos) = (TAU * turns).sin_cos();
        Complex64::new(cos, -sin)
    }
}

/// Oscillator that turns every S-th sample of a stream.
#[derive(Clone, Debug)]
pub struct Oscillator {
    frequency: Frequency,
    subsampling: usize,
    /// e^{-2 pi i f S j}.
    table: Vec<Complex64>,
}

impl Oscillator {
    /// Creates an oscillator for samples that are `subsampling` samples of the frequency's rate apart.
    #[must_use]
    pub fn new(frequency: Frequency, subsampling: usize) -> Self {
        let table = (0..ANCHOR).map(|j| frequency.phasor((j * subsampling) as u64)).collect();
        Self { frequency, subsampling, table }
    }

    /// Multiplies adjacent samples, the first of which has time `t`, by e^{-2 pi i f t}.
    pub fn turn(&self, t: u64, samples: &mut [Complex32]) {
        for (n, samples) in samples.chunks_mut(ANCHOR).enumerate() {
            let anchor = self.frequency.phasor(t + (n * ANCHOR * self.subsampling) as u64);
            for (sample, factor) in samples.iter_mut().zip(&self.table) {
                let factor = anchor * factor;
                *sample *= Complex32::new(factor.re as f32, factor.im as f32);
            }
        }
    }
}

/// Mixer and decimating filter for one centre frequency.
#[derive(Clone, Debug)]
pub struct Mixer {
    oscillator: Oscillator,
    /// Real and imaginary parts of g for each tap, padded with zeros to a multiple of [`LANES`].
    re: Vec<f32>,
    im: Vec<f32>,
}

impl Mixer {
    /// Creates a mixer with the low-pass `filter` h, whose pass band is moved to `centre_hz`.
    #[must_use]
    pub fn new(filter: &[f64], subsampling: usize, centre_hz: f64, rate_hz: f64) -> Self {
        let frequency = Frequency::aliased(centre_hz, rate_hz);
        let turned = |(k, h): (usize, &f64)| frequency.phasor(k as u64) * h;
        let weights: Vec<Complex64> = filter.iter().enumerate().map(turned).collect();
        let padded = |part: fn(&Complex64) -> f64| {
            let mut parts: Vec<f32> = weights.iter().map(|g| part(g) as f32).collect();
            parts.resize(filter.len().next_multiple_of(LANES), 0.0);
            parts
        };
        Self {
            oscillator: Oscillator::new(frequency, subsampling),
            re: padded(|g| g.re),
            im: padded(|g| g.im),
        }
    }

    /// Returns the frequency of the oscillator.
    #[inline]
    #[must_use]
    pub fn frequency(&self) -> Frequency {
        self.oscillator.frequency
    }

    /// Returns the real and imaginary parts of g for each tap, padded with zeros to a multiple of [`LANES`].
    #[inline]
    #[must_use]
    pub fn weights(&self) -> (&[f32], &[f32]) {
        (&self.re, &self.im)
    }

    /// Applies the oscillator's phase to the sums of adjacent output samples, the first of which starts at input
    /// sample `t`.
    pub fn turn(&self, t: u64, sums: &mut [Complex32]) {
        self.oscillator.turn(t, sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_is_exact_after_days() {
        // 3/7 of the rate is not a binary fraction: sample t has the phase 3 t / 7 turns.
        let frequency = Frequency::new(3e8, 7e8);
        for t in [0_u64, 1, 5, 1 << 40, 1_712_000_000 * 86_400 * 30 + 3, 1 << 61] {
            let expected = (3 * (t % 7) % 7) as f64 / 7.0;
            let turns = frequency.phase(t) as f64 / 2.0_f64.powi(64);
            let apart = (turns - expected).rem_euclid(1.0);
            assert!(apart.min(1.0 - apart) < 1e-15, "{t}: {turns} {expected}");
        }
    }

    #[test]
    fn negative_and_aliased_frequencies_turn_backwards_and_modulo_the_rate() {
        for (hz, alias_hz) in [(-1.0, 6.0), (-15.0, 6.0), (9.0, 2.0), (-7.0, 0.0)] {
            let [a, b] = [hz, alias_hz].map(|hz| Frequency::aliased(hz, 7.0));
            for t in [1, 1 << 40, 1 << 62] {
                assert!((a.phasor(t) - b.phasor(t)).norm() < 1e-15, "{hz} {t}");
            }
        }
    }

    #[test]
    fn quarter_of_the_rate_turns_by_quarter_turns() {
        let frequency = Frequency::new(0.25, 1.0);
        let expected = [(1.0, 0.0), (0.0, -1.0), (-1.0, 0.0), (0.0, 1.0)];
        for (t, (re, im)) in expected.into_iter().enumerate() {
            let got = frequency.phasor(t as u64 + (1 << 50));
            assert!((got - Complex64::new(re, im)).norm() < 1e-15, "{t}: {got}");
        }
    }
}
