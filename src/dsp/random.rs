//! Reproducible random numbers: the same seed gives the same signal on every host.

/// Increment of the state per number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The `SplitMix64` generator (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence with this seed.
    #[inline]
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates sequence number `index` of `seed`, uncorrelated with the others.
    #[must_use]
    pub fn of(seed: u64, index: u64) -> Self {
        let mut outer = Self(seed);
        let mut inner = Self(outer.bits() ^ index);
        Self(inner.bits())
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns the generator after `count` more calls of [`bits`](Self::bits).
    #[inline]
    #[must_use]
    pub fn after(&self, count: u64) -> Self {
        Self(self.0.wrapping_add(count.wrapping_mul(STEP)))
    }

    /// Returns a number uniform in the open interval (0, 1).
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// Returns two independent normal values with mean 0 and variance 1, by the Box-Muller transform.
    #[inline]
    pub fn normal_pair(&mut self) -> [f64; 2] {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * self.uniform()).sin_cos();
        [radius * cos, radius * sin]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn normal_values_have_mean_0_variance_1_and_kurtosis_3() {
        let mut random = Random::new(1);
        let n = 200_000;
        let values: Vec<f64> = (0..n / 2).flat_map(|_| random.normal_pair()).collect();
        let moment = |p: i32| values.iter().map(|v| v.powi(p)).sum::<f64>() / f64::from(n);
        assert!(moment(1).abs() < 0.01);
        assert!((moment(2) - 1.0).abs() < 0.02);
        assert!((moment(4) - 3.0).abs() < 0.1);
    }

    #[test]
    fn after_skips_numbers() {
        let mut random = Random::new(5);
        let mut later = random.after(3);
        (0..3).for_each(|_| _ = random.bits());
        assert_eq!(later.bits(), random.bits());
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn parts_of_one_seed_are_uncorrelated() {
        let (mut a, mut b) = (Random::of(3, 0), Random::of(3, 1));
        let sum: f64 = (0..100_000).map(|_| (a.uniform() - 0.5) * (b.uniform() - 0.5)).sum();
        assert!((sum / 100_000.0 * 12.0).abs() < 0.02);
    }
}
