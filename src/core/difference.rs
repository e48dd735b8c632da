//! Differences between two streams, value by value.

use crate::elements::Elements;
use num_complex::Complex;

/// Statistics of the differences between two sequences of values. NaN equals NaN, and its difference to any number is
/// infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// Number of pairs of values.
    pub values: u64,
    /// Number of pairs that differ.
    pub values_different: u64,
    /// Largest magnitude of a difference.
    pub max: f64,
    /// Sum of the squared magnitudes of all differences.
    pub squares: f64,
    /// Sum of the squared magnitudes of the first value of each pair.
    pub power: f64,
}

impl Difference {
    /// Compares the payloads of two frames with the same port type and validity; values that are not valid are left
    /// out.
    #[must_use]
    pub fn of(elements: &Elements, validity: &[u32], payloads: [&[u8]; 2]) -> Self {
        let mut found = Self::default();
        elements.pairs(validity, payloads, |a, b| {
            found.see(a, b);
        });
        found
    }

    /// Adds a pair of values. Returns the larger of the absolute differences of the real parts and of the imaginary
    /// parts.
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

    /// Adds the pairs of `other`.
    pub fn add(&mut self, other: Self) {
        self.values += other.values;
        self.values_different += other.values_different;
        self.max = self.max.max(other.max);
        self.squares += other.squares;
        self.power += other.power;
    }

    /// Fraction of the pairs that differ, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.values_different as f64 / self.values.max(1) as f64
    }

    /// Root mean square of the magnitudes of all differences; 0 without pairs.
    #[must_use]
    pub fn rms(&self) -> f64 {
        (self.squares / self.values.max(1) as f64).sqrt()
    }

    /// Root mean square of all differences divided by that of the first values of the pairs.
    #[must_use]
    pub fn relative_rms(&self) -> f64 {
        (self.squares / self.power.max(f64::MIN_POSITIVE)).sqrt()
    }
}

/// Statistics of the differences between two streams of frames, compared in pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamDifference {
    /// Number of pairs of frames with the same timestamp and validity.
    pub frames: u64,
    /// Number of pairs with values that differ.
    pub frames_different: u64,
    /// Number of frames of either stream without a counterpart: the other stream has no frame of that timestamp, or
    /// one with another validity.
    pub frames_alone: u64,
    /// Differences between the valid values of the pairs.
    pub values: Difference,
}

impl StreamDifference {
    /// Adds a pair of frames with the differences `values`.
    pub fn see(&mut self, values: Difference) {
        self.frames += 1;
        self.frames_different += u64::from(values.values_different > 0);
        self.values.add(values);
    }

    /// Adds the frames of `other`.
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
    fn difference_accumulates_magnitudes() {
        let mut found = of(&[(1.0, 1.0), (0.0, 3.0)]);
        found.add(of(&[(5.0, 1.0), (2.0, 2.0)]));
        assert_eq!((found.values, found.values_different), (4, 2));
        assert_eq!((found.max, found.rms()), (4.0, 2.5));
        found.see(Complex::new(0.0, 0.0), Complex::new(3.0, 4.0));
        assert_eq!((found.values, found.max), (5, 5.0));
        assert!((found.share() - 0.6).abs() < 1e-12);
    }

    #[test]
    fn stream_difference_counts_frames_with_differing_values() {
        let mut stream = StreamDifference::default();
        stream.see(of(&[(1.0, 1.0), (2.0, 2.0)]));
        stream.see(of(&[(1.0, 1.0), (2.0, 4.0)]));
        stream.add(StreamDifference { frames_alone: 3, ..stream });
        assert_eq!((stream.frames, stream.frames_different, stream.frames_alone), (4, 2, 3));
        assert_eq!((stream.values.values, stream.values.values_different), (8, 2));
    }

    #[test]
    fn difference_of_nan_and_number_is_infinite() {
        assert_eq!(of(&[(f64::NAN, f64::NAN)]).values_different, 0);
        let infinitely = of(&[(f64::NAN, 1.0)]);
        assert_eq!((infinitely.max, infinitely.rms()), (f64::INFINITY, f64::INFINITY));
        assert_eq!(of(&[(f64::INFINITY, f64::INFINITY)]).values_different, 0);
    }
}
