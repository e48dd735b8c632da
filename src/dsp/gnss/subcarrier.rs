//! Subcarriers: the shape of a chip, divided into equal entries within which the signal is constant.

use num_complex::Complex64;
use std::f64::consts::{PI, TAU};

/// Shape of the chips of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subcarrier {
    /// Rectangular chips: BPSK.
    None,
    /// Square wave in sine phase with this number of half periods in a chip: 2 for BOC(1,1).
    Sine(usize),
    /// Square wave in cosine phase with this number of half periods in a chip: 2 for BOCcos(1,1).
    Cosine(usize),
    /// CBOC(6,1,1/11): the sum of BOC(1,1) with 10/11 of the power and BOC(6,1) with 1/11.
    Sum,
}

impl Subcarrier {
    /// Returns the number of entries of a chip.
    #[must_use]
    pub const fn entries_per_chip(self) -> usize {
        match self {
            Self::None => 1,
            Self::Sine(halves) => halves,
            // The wave begins in the middle of a half period.
            Self::Cosine(halves) => 2 * halves,
            // Half periods of the faster wave.
            Self::Sum => 12,
        }
    }

    /// Returns the level of an entry of a chip; the mean power is 1.
    #[must_use]
    pub fn level(self, entry: usize) -> f64 {
        let sign = |is_first: bool| if is_first { 1.0 } else { -1.0 };
        let alternating = |entry: usize| sign(entry.is_multiple_of(2));
        match self {
            Self::None => 1.0,
            Self::Sine(_) => alternating(entry),
            Self::Cosine(_) => alternating(entry.div_ceil(2)),
            Self::Sum => {
                let [slow, fast] = [10.0_f64, 1.0].map(|parts| (parts / 11.0).sqrt());
                slow * sign(entry < 6) + fast * alternating(entry)
            }
        }
    }

    /// Returns the levels as integers, with a common factor.
    ///
    /// The waves of CBOC have the levels 79 and 25, the smallest integers whose ratio is the square root of 10 within
    /// 0.1 %.
    #[must_use]
    pub fn whole_level(self, entry: usize) -> i8 {
        let factor = if self == Self::Sum { 82.87 } else { 1.0 };
        (factor * self.level(entry)).round() as i8
    }

    /// Returns half the width of the main lobes in chip rates: the band that the signal needs on either side.
    #[must_use]
    pub fn main_lobe(self) -> f64 {
        match self {
            Self::None => 1.0,
            // A square wave has a lobe on either side.
            Self::Sine(halves) | Self::Cosine(halves) => 0.5 * halves as f64 + 1.0,
            Self::Sum => 2.0,
        }
    }

    /// Returns the offset of an early and a late replica in chips, on the slope of the correlation peak.
    #[must_use]
    pub fn spacing_chips(self) -> f64 {
        match self {
            Self::None => 0.5,
            Self::Sine(halves) | Self::Cosine(halves) => 0.3 / halves as f64,
            Self::Sum => 0.15,
        }
    }

    /// Returns the part of the signal's power within `half` chip rates of the carrier on either side.
    #[must_use]
    pub fn power_within(self, half: f64) -> f64 {
        const STEPS: u32 = 2000;
        let len = self.entries_per_chip();
        let chip: Vec<f64> = (0..len).map(|entry| self.level(entry)).collect();
        let len = len as f64;
        let density = |x: f64| {
            let turned =
                |(n, level): (usize, &f64)| *level * Complex64::cis(-TAU * x * n as f64 / len);
            let sum: Complex64 = chip.iter().enumerate().map(turned).sum();
            let angle = PI * x / len;
            (sum / len).norm_sqr() * (angle.sin() / angle).powi(2)
        };
        let middle = |step: u32| half * (f64::from(step) + 0.5) / f64::from(STEPS);
        2.0 * half / f64::from(STEPS) * (0..STEPS).map(|step| density(middle(step))).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Subcarrier; 5] = [
        Subcarrier::None,
        Subcarrier::Sine(2),
        Subcarrier::Sine(12),
        Subcarrier::Cosine(2),
        Subcarrier::Sum,
    ];

    #[test]
    fn main_lobes_contain_most_of_the_power() {
        // SciPy's integral of sinc^2, and Simpson's rule over the transforms of BOC(1,1) and BOC(6,1) in closed form.
        for (subcarrier, expected) in [(Subcarrier::None, 0.902_823), (Subcarrier::Sum, 0.799_395)]
        {
            let part = subcarrier.power_within(subcarrier.main_lobe());
            assert!((part - expected).abs() < 1e-5, "{part}");
        }
        let part = Subcarrier::Sum.power_within(7.0);
        assert!((part - 0.943_944).abs() < 1e-5, "{part}");
    }

    #[test]
    fn mean_power_is_1_and_all_of_it_is_in_a_wide_band() {
        for subcarrier in ALL {
            let len = subcarrier.entries_per_chip();
            let power = (0..len).map(|n| subcarrier.level(n).powi(2)).sum::<f64>() / len as f64;
            assert!((power - 1.0).abs() < 1e-12, "{subcarrier:?}: {power}");
            let part = subcarrier.power_within(200.0);
            assert!(part > 0.97 && part < 1.001, "{subcarrier:?}: {part}");
        }
    }

    #[test]
    fn square_waves_have_the_sign_of_their_sine_or_cosine() {
        for halves in [2, 4, 12] {
            let angle =
                |x: f64| PI * halves as f64 * x;
            for (subcarrier, wave) in [
                (Subcarrier::Sine(halves), (|a: f64| a.sin()) as fn(f64) -> f64),
                (Subcarrier::Cosine(halves), |a: f64| a.cos()),
            ] {
                let len = subcarrier.entries_per_chip();
                for entry in 0..len {
                    let expected = wave(angle((entry as f64 + 0.5) / len as f64)).signum();
                    assert!((subcarrier.level(entry) - expected).abs() < 1e-12, "{subcarrier:?}");
                }
            }
        }
    }
}
