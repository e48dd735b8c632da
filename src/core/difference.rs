//! How far two streams are apart, value by value.

use crate::elements::Elements;
use num_complex::Complex;

/// What is different in two runs of values. Values that are not numbers are equal to each other and
/// infinitely far from numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// Pairs of values.
    pub values: u64,
    /// Those that differ.
    pub values_different: u64,
    /// Largest magnitude of a difference.
    pub max: f64,
    /// Sum of the squared magnitudes of all differences.
    pub squares: f64,
    /// Sum of the squared magnitudes of the first value of each pair.
    pub power: f64,
}

impl Difference {
    /// Of the payloads of two frames of one port and one validity, without the values that are not
    /// valid.
    #[must_use]
    pub fn of(elements: &Elements, validity: &[u32], payloads: [&[u8]; 2]) -> Self {
        let mut found = Self::default();
        elements.pairs(validity, payloads, |a, b| {
            found.see(a, b);
        });
        found
    }

    /// Takes a pair of values into account. The answer is how far their real or imaginary parts are apart, whichever
    /// is more.
    pub fn see(&mut self, a: Complex<f64>, b: Complex<f64>) -> f64 {
        self.values += 1;
        self.power += a.norm_sqr();
        if a == b || (a.is_nan() && b.is_nan()) {
            return 0.0;
        }
        let apart = (a - b).norm();
        self.values_different += 1;
        if !apart.is_finite() {
            (self.max, self.squares) = (f64::INFINITY, f64::INFINITY);
            return f64::INFINITY;
        }
        self.max = self.max.max(apart);
        self.squares += apart * apart;
        (a.re - b.re).abs().max((a.im - b.im).abs())
    }

    /// Takes all that `other` has seen into account.
    pub fn add(&mut self, other: Self) {
        self.values += other.values;
        self.values_different += other.values_different;
        self.max = self.max.max(other.max);
        self.squares += other.squares;
        self.power += other.power;
    }

    /// Share of the pairs that differ.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.values_different as f64 / self.values.max(1) as f64
    }

    /// Root of the mean squared magnitude of all differences; 0 of none.
    #[must_use]
    pub fn rms(&self) -> f64 {
        (self.squares / self.values.max(1) as f64).sqrt()
    }

    /// Root mean square of all differences over that of the first values of the pairs.
    #[must_use]
    pub fn relative_rms(&self) -> f64 {
        (self.squares / self.power.max(f64::MIN_POSITIVE)).sqrt()
    }
}

/// What is different in two streams of frames, held against each other pair by pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamDifference {
    /// Pairs of frames of one time and one validity.
    pub frames: u64,
    /// Those with values that differ.
    pub frames_different: u64,
    /// Frames of either stream without a counterpart: the other one has none of that time, or less or
    /// more of its data is valid.
    pub frames_alone: u64,
    /// The values of the pairs, without those that are not valid.
    pub values: Difference,
}

impl StreamDifference {
    /// Takes a pair of frames into account, whose values are apart by `values`.
    pub fn see(&mut self, values: Difference) {
        self.frames += 1;
        self.frames_different += u64::from(values.values_different > 0);
        self.values.add(values);
    }

    /// Takes all that `other` has seen into account.
    pub fn add(&mut self, other: Self) {
        self.frames += other.frames;
        self.frames_different += other.frames_different;
        self.frames_alone += other.frames_alone;
        self.values.add(other.values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(f64, f64)]) -> Difference {
        let mut found = Difference::default();
        for (a, b) in pairs {
            found.see((*a).into(), (*b).into());
        }
        found
    }

    #[test]
    fn differences_are_magnitudes_and_add_up() {
        let mut found = of(&[(1.0, 1.0), (0.0, 3.0)]);
        found.add(of(&[(5.0, 1.0), (2.0, 2.0)]));
        assert_eq!((found.values, found.values_different), (4, 2));
        assert_eq!((found.max, found.rms()), (4.0, 2.5));
        found.see(Complex::new(0.0, 0.0), Complex::new(3.0, 4.0));
        assert_eq!((found.values, found.max), (5, 5.0));
        assert!((found.share() - 0.6).abs() < 1e-12);
    }

    #[test]
    fn frames_differ_if_one_of_their_values_does() {
        let mut stream = StreamDifference::default();
        stream.see(of(&[(1.0, 1.0), (2.0, 2.0)]));
        stream.see(of(&[(1.0, 1.0), (2.0, 4.0)]));
        stream.add(StreamDifference { frames_alone: 3, ..stream });
        assert_eq!((stream.frames, stream.frames_different, stream.frames_alone), (4, 2, 3));
        assert_eq!((stream.values.values, stream.values.values_different), (8, 2));
    }

    #[test]
    fn what_is_no_number_is_infinitely_far_from_numbers() {
        assert_eq!(of(&[(f64::NAN, f64::NAN)]).values_different, 0);
        let infinitely = of(&[(f64::NAN, 1.0)]);
        assert_eq!((infinitely.max, infinitely.rms()), (f64::INFINITY, f64::INFINITY));
        assert_eq!(of(&[(f64::INFINITY, f64::INFINITY)]).values_different, 0);
    }
}
