//! Choice between launch configurations whose measured times scatter.

/// Measurements of the default and of the fastest other configuration, in turn.
const PAIRS: usize = 9;
/// Number of extreme ratios left out on each side of the interval of the gain. The median of the ratios is outside it
/// with a probability of 2 (1 + 9) / 2^9 = 4 %, for any distribution of the scatter: the probability that at most one
/// of nine ratios is on one side of the median.
const LEFT_OUT: usize = 1;
/// Smallest gain for which a launch configuration replaces the default one.
const LEAST_GAIN: f64 = 1.01;

/// Comparison of the default launch configuration with the fastest other one.
#[derive(Clone, Debug, PartialEq)]
pub struct Contest {
    /// Index of the fastest other configuration; 0 if there is no other one.
    pub other: usize,
    /// Seconds per frame with the default, and with the other configuration: medians.
    pub default_seconds: f64,
    pub other_seconds: f64,
    /// Median of the ratios (time of the default) / (time of the other configuration).
    pub ratio: f64,
    /// Limits of the median ratio, with a confidence of 96 %.
    pub interval: [f64; 2],
}

impl Contest {
    /// Whether the other configuration replaces the default one: its gain is large enough and no scatter.
    fn is_won(&self) -> bool {
        self.ratio >= LEAST_GAIN && self.interval[0] > 1.0
    }

    /// Index of the configuration to use.
    pub fn chosen(&self) -> usize {
        if self.is_won() { self.other } else { 0 }
    }

    /// Seconds per frame with the configuration to use.
    pub fn chosen_seconds(&self) -> f64 {
        if self.is_won() { self.other_seconds } else { self.default_seconds }
    }

    /// Factor by which the configuration to use is faster than the default one.
    pub fn gain(&self) -> f64 {
        if self.is_won() { self.ratio } else { 1.0 }
    }
}

/// Measures `ways` launch configurations, of which 0 is the default; `seconds` measures one of them once. The fastest
/// of one round is measured against the default in turn, so that the choice does not favour a lucky measurement, and a
/// clock that changes with temperature affects both.
///
/// # Errors
/// If a measurement fails.
pub fn contest(
    ways: usize,
    mut seconds: impl FnMut(usize) -> Result<f64, String>,
) -> Result<Contest, String> {
    let mut other = (f64::INFINITY, 0);
    for way in 1..ways {
        let measured = seconds(way)?;
        if measured < other.0 {
            other = (measured, way);
        }
    }
    let other = other.1;
    let pairs = if other == 0 { 1 } else { PAIRS };
    let [mut defaults, mut others, mut ratios] = [(); 3].map(|()| Vec::with_capacity(pairs));
    for pair in 0..pairs {
        // Each is first in turn, so that a clock that rises or falls within a pair favours none.
        let first = if pair % 2 == 0 { 0 } else { other };
        let [one, two] = [seconds(first)?, if other == 0 { 0.0 } else { seconds(other - first)? }];
        let (default, measured) = match other {
            0 => (one, one),
            _ if first == 0 => (one, two),
            _ => (two, one),
        };
        defaults.push(default);
        others.push(measured);
        ratios.push(default / measured);
    }
    [&mut defaults, &mut others, &mut ratios]
        .into_iter()
        .for_each(|values| values.sort_by(f64::total_cmp));
    let low = if other == 0 { 0 } else { LEFT_OUT };
    Ok(Contest {
        other,
        default_seconds: defaults[pairs / 2],
        other_seconds: others[pairs / 2],
        ratio: ratios[pairs / 2],
        interval: [ratios[low], ratios[pairs - 1 - low]],
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Normally distributed numbers: the sum of 12 uniform ones.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> f64 {
            let mut uniform = || {
                self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (self.0 >> 11) as f64 / (1_u64 << 53) as f64
            };
            (0..12).map(|_| uniform()).sum::<f64>() - 6.0
        }
    }

    /// Number of 1000 tunings that choose each configuration, whose times scatter by 3 %.
    fn chosen(times: &[f64]) -> Vec<u32> {
        let mut counts = vec![0; times.len()];
        for seed in 0..1000_u64 {
            let mut noise = Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let seconds = |way: usize| Ok(times[way] * (1.0 + 0.03 * noise.next()));
            counts[contest(times.len(), seconds).unwrap().chosen()] += 1;
        }
        counts
    }

    #[test]
    fn equal_configurations_keep_the_default() {
        for ways in [2, 12] {
            let kept = chosen(&vec![1e-3; ways])[0];
            // 98 % are expected: 2 % have at most one of nine ratios below 1.
            assert!(kept >= 950, "{ways} {kept}");
        }
    }

    #[test]
    fn configuration_that_is_a_tenth_faster_is_chosen() {
        let counts = chosen(&[1e-3, 1.05e-3, 0.9e-3, 1e-3]);
        assert!(counts[2] >= 950 && counts[1] + counts[3] <= 5, "{counts:?}");
    }

    #[test]
    fn gain_below_one_percent_keeps_the_default_without_scatter() {
        let of = |times: [f64; 2]| contest(2, |way| Ok(times[way])).unwrap();
        assert_eq!((of([1.0, 0.995]).chosen(), of([1.0, 0.98]).chosen()), (0, 1));
        assert!((of([1.0, 0.995]).gain() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn clock_that_rises_all_the_time_favours_no_configuration() {
        let mut measurements = 0.0;
        let contest = contest(2, |_| {
            measurements += 1.0;
            Ok(1.0 - 0.02 * measurements)
        });
        assert_eq!(contest.unwrap().chosen(), 0);
    }

    #[test]
    fn single_configuration_is_the_default() {
        let only = contest(1, |_| Ok(2.0)).unwrap();
        assert_eq!((only.chosen(), [only.ratio, only.default_seconds]), (0, [1.0, 2.0]));
        assert!(contest(2, |_| Err("no GPU".to_owned())).is_err());
    }
}
