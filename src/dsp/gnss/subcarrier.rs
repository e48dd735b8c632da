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
    /// CBOC(6,1,1/11) with the opposite sign of BOC(6,1).
    Difference,
    /// TMBOC(6,1,4/33): of each 33 chips four are BOC(6,1), the others BOC(1,1).
    TimeMultiplexed,
    /// A rectangle in the first half of each chip; the second half belongs to another code.
    FirstHalf,
    /// A rectangle in the second half of each chip.
    SecondHalf,
}

/// Chips of TMBOC(6,1,4/33) that are BOC(6,1), of each 33 (IS-GPS-800).
const FAST_CHIPS: [usize; 4] = [0, 4, 6, 29];

impl Subcarrier {
    /// Returns the number of entries of a chip.
    #[must_use]
    pub const fn entries_per_chip(self) -> usize {
        match self {
            Self::None => 1,
            Self::Sine(half_periods) => half_periods,
            // The wave begins in the middle of a half period.
            Self::Cosine(half_periods) => 2 * half_periods,
            // Half periods of the faster wave.
            Self::Sum | Self::Difference | Self::TimeMultiplexed => 12,
            Self::FirstHalf | Self::SecondHalf => 2,
        }
    }

    /// Returns the number of chips after which the shapes repeat.
    #[must_use]
    pub const fn shapes(self) -> usize {
        if matches!(self, Self::TimeMultiplexed) { 33 } else { 1 }
    }

    /// Returns the level of an entry of a chip; the mean power is 1.
    #[must_use]
    pub fn level(self, chip: usize, entry: usize) -> f64 {
        let sign = |is_first: bool| if is_first { 1.0 } else { -1.0 };
        let [slow, fast] = [sign(entry < 6), sign(entry.is_multiple_of(2))];
        let [more, less] = [10.0_f64, 1.0].map(|parts| (parts / 11.0).sqrt());
        let half = |at: usize| if entry == at { std::f64::consts::SQRT_2 } else { 0.0 };
        match self {
            Self::None => 1.0,
            Self::Sine(_) => fast,
            Self::Cosine(_) => sign(entry.div_ceil(2).is_multiple_of(2)),
            Self::Sum => more * slow + less * fast,
            Self::Difference => more * slow - less * fast,
            Self::TimeMultiplexed if FAST_CHIPS.contains(&(chip % self.shapes())) => fast,
            Self::TimeMultiplexed => slow,
            Self::FirstHalf => half(0),
            Self::SecondHalf => half(1),
        }
    }

    /// Returns the levels as integers, with a common factor.
    ///
    /// The waves of CBOC have the levels 79 and 25, the smallest integers whose ratio is the square root of 10 within
    /// 0.1 %.
    #[must_use]
    pub fn whole_level(self, chip: usize, entry: usize) -> i8 {
        let factor = match self {
            Self::Sum | Self::Difference => 82.87,
            Self::FirstHalf | Self::SecondHalf => std::f64::consts::FRAC_1_SQRT_2,
            _ => 1.0,
        };
        (factor * self.level(chip, entry)).round() as i8
    }

    /// Returns half the width of the main lobes in chip rates: the band that the signal needs on either side.
    #[must_use]
    pub fn main_lobe(self) -> f64 {
        match self {
            Self::None => 1.0,
            // A square wave has a lobe on either side.
            Self::Sine(half_periods) | Self::Cosine(half_periods) => {
                0.5 * half_periods as f64 + 1.0
            }
            // Those of BOC(1,1); half a chip has twice the width.
            _ => 2.0,
        }
    }

    /// Returns the offset of an early and a late replica in chips, on the slope of the correlation peak.
    #[must_use]
    pub fn spacing_chips(self) -> f64 {
        match self {
            Self::None | Self::FirstHalf | Self::SecondHalf => 0.25,
            Self::Sine(half_periods) | Self::Cosine(half_periods) => 0.3 / half_periods as f64,
            Self::Sum => 0.15,
            // The peak of BOC(6,1) has a width of 1/12 chip to its minimum on either side.
            Self::Difference | Self::TimeMultiplexed => 0.06,
        }
    }

    /// Returns the part of the signal's power within `half` chip rates of the carrier on either side.
    #[must_use]
    pub fn power_within(self, half: f64) -> f64 {
        const STEPS: u32 = 2000;
        let (len, shapes) = (self.entries_per_chip(), self.shapes());
        let levels: Vec<f64> = (0..shapes * len).map(|n| self.level(n / len, n % len)).collect();
        let width = len as f64;
        let density = |x: f64| {
            let turned =
                |(n, level): (usize, &f64)| *level * Complex64::cis(-TAU * x * n as f64 / width);
            let of_chip = |chip: &[f64]| {
                (chip.iter().enumerate().map(turned).sum::<Complex64>() / width).norm_sqr()
            };
            let angle = PI * x / width;
            let mean = levels.chunks_exact(len).map(of_chip).sum::<f64>() / shapes as f64;
            mean * (angle.sin() / angle).powi(2)
        };
        let middle = |step: u32| half * (f64::from(step) + 0.5) / f64::from(STEPS);
        2.0 * half / f64::from(STEPS) * (0..STEPS).map(|step| density(middle(step))).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Subcarrier; 9] = [
        Subcarrier::None,
        Subcarrier::Sine(2),
        Subcarrier::Sine(12),
        Subcarrier::Cosine(2),
        Subcarrier::Sum,
        Subcarrier::Difference,
        Subcarrier::TimeMultiplexed,
        Subcarrier::FirstHalf,
        Subcarrier::SecondHalf,
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
            let count = subcarrier.shapes() * len;
            let squares = (0..count).map(|n| subcarrier.level(n / len, n % len).powi(2));
            let power = squares.sum::<f64>() / count as f64;
            assert!((power - 1.0).abs() < 1e-12, "{subcarrier:?}: {power}");
            let part = subcarrier.power_within(200.0);
            assert!(part > 0.97 && part < 1.001, "{subcarrier:?}: {part}");
        }
    }

    #[test]
    fn square_waves_have_the_sign_of_their_sine_or_cosine() {
        for half_periods in [2, 4, 12] {
            let angle = |x: f64| PI * half_periods as f64 * x;
            for (subcarrier, wave) in [
                (Subcarrier::Sine(half_periods), (|a: f64| a.sin()) as fn(f64) -> f64),
                (Subcarrier::Cosine(half_periods), |a: f64| a.cos()),
            ] {
                let len = subcarrier.entries_per_chip();
                for entry in 0..len {
                    let expected = wave(angle((entry as f64 + 0.5) / len as f64)).signum();
                    assert!(
                        (subcarrier.level(0, entry) - expected).abs() < 1e-12,
                        "{subcarrier:?}"
                    );
                }
            }
        }
    }
}
