//! Spectral kurtosis: detection of interference by the statistics of the power in one channel.
//!
//! The power `p = re^2 + im^2` of Gaussian noise has an exponential distribution, for which the estimator
//!
//! ```text
//! SK = (M + 1)/(M - 1) x (M S2/S1^2 - 1),   S1 = sum p,   S2 = sum p^2,   over M spectra
//! ```
//!
//! has the mean 1. Pulses raise it; signals of constant power lower it, to 0 without noise.
//!
//! The limits of a false-alarm probability are quantiles of the Pearson distribution with the first four moments of the
//! estimator. These moments are exact: for exponential power `S2/S1^2` and `S1` are independent, so that
//! `E[(S2/S1^2)^k] = E[S2^k]/E[S1^2k]`. The distribution is of type IV from 24 spectra on. Below 32 spectra its lower tail
//! is too short: noise is flagged several times as often as requested.
//!
//! Source: Nita and Gary, "Statistics of the spectral kurtosis estimator", PASP 122, 595 (2010), and "The generalized
//! spectral kurtosis estimator", MNRAS 406, L60 (2010), with N = 1 and d = 1: single spectra of complex voltages.

/// Smallest and largest number of spectra per estimate. Sums of the largest number are exact in 64 bits.
pub const SPECTRA: std::ops::RangeInclusive<usize> = 32..=1 << 16;

/// Smallest and largest probability of a false alarm per tail.
pub const FALSE_ALARM_PROBABILITY: std::ops::RangeInclusive<f64> = 1e-9..=0.1;

/// Sums over the spectra of one channel and input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Sum of the powers.
    pub s1: u64,
    /// Sum of the squares of the powers.
    pub s2: u64,
}

impl Sums {
    /// Returns the sums of 8-bit values.
    #[must_use]
    pub fn of_bytes(values: &[[i8; 2]]) -> Self {
        values.iter().fold(Self::default(), |sums, value| sums.and(power(*value)))
    }

    /// Returns the sums of 8-bit values of two polarisations, `[spectrum][pol][re, im]`.
    #[must_use]
    pub fn of_byte_pairs(values: &[[[i8; 2]; 2]]) -> [Self; 2] {
        let [mut x, mut y] = [Self::default(); 2];
        for value in values {
            x = x.and(power(value[0]));
            y = y.and(power(value[1]));
        }
        [x, y]
    }

    /// Returns the sums of 4-bit values, the real part in the upper half of each byte.
    #[must_use]
    pub fn of_nibbles(values: &[u8]) -> Self {
        values.iter().fold(Self::default(), |sums, value| sums.and(power(nibbles(*value))))
    }

    /// Returns the sums of 4-bit values of two polarisations, `[spectrum][pol]`.
    #[must_use]
    pub fn of_nibble_pairs(values: &[[u8; 2]]) -> [Self; 2] {
        let [mut x, mut y] = [Self::default(); 2];
        for value in values {
            x = x.and(power(nibbles(value[0])));
            y = y.and(power(nibbles(value[1])));
        }
        [x, y]
    }

    /// Returns the sums with one more power.
    const fn and(self, power: u32) -> Self {
        Self { s1: self.s1 + power as u64, s2: self.s2 + (power * power) as u64 }
    }

    /// Returns the spectral kurtosis of the sums over `spectra`; NaN without power.
    #[must_use]
    pub fn kurtosis(&self, spectra: usize) -> f64 {
        let m = spectra as f64;
        let s1 = self.s1 as f64;
        (m + 1.0) / (m - 1.0) * (m * self.s2 as f64 / (s1 * s1) - 1.0)
    }
}

/// Power of a complex value, at most 2^15.
const fn power([re, im]: [i8; 2]) -> u32 {
    let (re, im) = (re as i32, im as i32);
    (re * re + im * im).cast_unsigned()
}

/// Real and imaginary part of a 4-bit value.
const fn nibbles(byte: u8) -> [i8; 2] {
    let byte = byte.cast_signed();
    [byte >> 4, (byte << 4) >> 4]
}

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The estimate is within the limits, or there is no power.
    Noise,
    /// The estimate is above the upper limit: pulses.
    High,
    /// The estimate is below the lower limit: constant power.
    Low,
}

/// Limits of the spectral kurtosis of Gaussian noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Lower limit.
    pub low: f64,
    /// Upper limit.
    pub high: f64,
}

impl Limits {
    /// Returns the limits that noise exceeds, and falls below, with `false_alarm_probability` each, for estimates over
    /// `spectra`. Both arguments are clamped to [`SPECTRA`] and [`FALSE_ALARM_PROBABILITY`].
    #[must_use]
    pub fn new(spectra: usize, false_alarm_probability: f64) -> Self {
        let spectra = spectra.clamp(*SPECTRA.start(), *SPECTRA.end());
        let (least, most) = (*FALSE_ALARM_PROBABILITY.start(), *FALSE_ALARM_PROBABILITY.end());
        let probability = false_alarm_probability.clamp(least, most);
        let density = Density::new(&Moments::new(spectra as f64));
        let quantile = |tail| 1.0 + density.quantile(tail, probability);
        Self { low: quantile(Tail::Lower), high: quantile(Tail::Upper) }
    }

    /// Returns the test for estimates over `spectra`.
    #[must_use]
    pub fn test(&self, spectra: usize) -> Test {
        let m = spectra as f64;
        let ratio = |limit: f64| 1.0 + limit * ((m - 1.0) / (m + 1.0));
        Test { low: ratio(self.low), high: ratio(self.high), spectra: spectra as u64 }
    }
}

/// Comparison of sums with limits. Each operation rounds at most once and none can be fused, so implementations on other
/// devices that follow [`Test::judge`] return the same verdicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Test {
    /// Lower limit of `M S2/S1^2`.
    pub low: f64,
    /// Upper limit of `M S2/S1^2`.
    pub high: f64,
    spectra: u64,
}

impl Test {
    /// Compares `sums` with the limits. The integers are at most 2^62.
    #[must_use]
    pub fn judge(&self, sums: &Sums) -> Verdict {
        let (squares, square) = ((self.spectra * sums.s2) as f64, (sums.s1 * sums.s1) as f64);
        if squares > self.high * square {
            Verdict::High
        } else if squares < self.low * square {
            Verdict::Low
        } else {
            Verdict::Noise
        }
    }
}

/// Standard deviation, squared skewness and kurtosis of the estimator over M spectra.
struct Moments {
    sigma: f64,
    skewness_squared: f64,
    kurtosis: f64,
}

impl Moments {
    fn new(m: f64) -> Self {
        let variance = 4.0 * m * m / ((m - 1.0) * (m + 2.0) * (m + 3.0));
        let skewness_squared = 4.0 * (m + 2.0) * (m + 3.0) * (5.0 * m - 7.0).powi(2)
            / ((m - 1.0) * ((m + 4.0) * (m + 5.0)).powi(2));
        let kurtosis = 3.0 * (m + 2.0) * (m + 3.0) * (((m + 98.0) * m - 185.0) * m + 78.0)
            / ((m - 1.0) * (m + 4.0) * (m + 5.0) * (m + 6.0) * (m + 7.0));
        Self { sigma: variance.sqrt(), skewness_squared, kurtosis }
    }
}

/// Tail of a distribution.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    Lower,
    Upper,
}

/// Pearson density of a variable with mean 0: `(ln f)' = -(x + c1)/(c2 x^2 + c1 x + c0)`.
struct Density {
    sigma: f64,
    c: [f64; 3],
    /// `4 c0 c2 - c1^2`, positive for type IV.
    discriminant: f64,
}

/// Panels of the numerical integration.
const PANELS: usize = 1024;
/// Nodes and weights of Gauss-Legendre integration from -1 to 1.
const NODES: [(f64, f64); 5] = [
    (-0.906_179_845_938_664, 0.236_926_885_056_189_1),
    (-0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
    (0.0, 0.568_888_888_888_888_9),
    (0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
    (0.906_179_845_938_664, 0.236_926_885_056_189_1),
];
/// Logarithm of the smallest density, relative to the largest, that counts.
const NEGLIGIBLE: f64 = -70.0;

impl Density {
    fn new(moments: &Moments) -> Self {
        let Moments { sigma, skewness_squared: b1, kurtosis: b2 } = moments;
        let scale = 10.0 * b2 - 12.0 * b1 - 18.0;
        let c = [
            sigma * sigma * (4.0 * b2 - 3.0 * b1) / scale,
            sigma * b1.sqrt() * (b2 + 3.0) / scale,
            (2.0 * b2 - 3.0 * b1 - 6.0) / scale,
        ];
        Self { sigma: *sigma, c, discriminant: 4.0 * c[0] * c[2] - c[1] * c[1] }
    }

    /// Variable at `u`, from minus to plus infinity. Both tails fall exponentially in `u`.
    fn variable(&self, u: f64) -> f64 {
        self.sigma * u.sinh()
    }

    /// Logarithm of the density in `u`, without a constant.
    fn logarithm(&self, u: f64) -> f64 {
        let [c0, c1, c2] = self.c;
        let x = self.variable(u);
        let root = self.discriminant.sqrt();
        let angle = ((2.0 * c2 * x + c1) / root).atan();
        let offset = c1 - c1 / (2.0 * c2);
        // Relative to the value at x = 0, so that large coefficients keep the precision.
        let quadratic = (x * (c2 * x + c1) / c0).ln_1p() / (2.0 * c2);
        u.cosh().ln() - quadratic - 2.0 * offset / root * angle
    }

    /// Deviation from the mean beyond which `tail` has `probability`.
    fn quantile(&self, tail: Tail, probability: f64) -> f64 {
        // The density in `u` has one maximum.
        let is_rising = |u: f64| self.logarithm(u + 1e-4) > self.logarithm(u);
        let top = bisect([-20.0, 20.0], |u| !is_rising(u));
        let largest = self.logarithm(top);
        let is_negligible = |u: f64| self.logarithm(u) - largest < NEGLIGIBLE;
        let first = bisect([top - 200.0, top], |u| !is_negligible(u));
        let last = bisect([top, top + 200.0], is_negligible);
        let mass = |from: f64, to: f64| {
            let (middle, half) = (f64::midpoint(from, to), (to - from) / 2.0);
            let at = |u: f64| (self.logarithm(u) - largest).exp();
            half * NODES.iter().map(|(node, weight)| weight * at(middle + half * node)).sum::<f64>()
        };
        let width = (last - first) / PANELS as f64;
        let total: f64 = (0..PANELS)
            .map(|n| mass(first + n as f64 * width, first + (n + 1) as f64 * width))
            .sum();
        // From the end of the tail, so that small sums keep the precision.
        let (end, step) = match tail {
            Tail::Lower => (first, width),
            Tail::Upper => (last, -width),
        };
        let wanted = probability * total;
        let (mut sum, mut from) = (0.0, end);
        for n in 1..=PANELS {
            let to = end + n as f64 * step;
            let of_panel = mass(from, to).abs();
            if sum + of_panel >= wanted {
                break;
            }
            (sum, from) = (sum + of_panel, to);
        }
        let within = bisect([0.0, step.abs()], |part| {
            sum + mass(from, from + part * step.signum()).abs() >= wanted
        });
        self.variable(from + within * step.signum())
    }
}

/// Smallest number in a range for which `is_beyond` is true; it is true for all larger ones.
fn bisect([mut low, mut high]: [f64; 2], is_beyond: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if is_beyond(middle) { high = middle } else { low = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Limits computed with SciPy, from exact rational moments and the normalised density of type IV
    /// (`scipy.special.loggamma`, `scipy.integrate.quad`): spectra, probability, lower and upper limit.
    #[rustfmt::skip]
    const OF_SCIPY: [(usize, f64, f64, f64); 16] = [
        (32, 1e-2, 0.475_958_537_720_139_8, 2.082_105_592_474_481),
        (32, 1.349_898_031_630_1e-3, 0.387_701_812_084_076_5, 2.731_479_235_600_359_4),
        (32, 1e-6, 0.197_210_944_797_294_92, 6.239_843_062_166_093),
        (64, 1e-2, 0.579_935_809_065_307_6, 1.750_955_667_407_279_5),
        (64, 1e-6, 0.260_872_887_562_289_6, 4.257_049_334_391_276),
        (128, 1e-4, 0.523_348_831_491_624_7, 2.118_976_470_685_676),
        (256, 1e-2, 0.756_217_926_580_416, 1.345_958_669_306_96),
        (256, 1.349_898_031_630_1e-3, 0.698_158_974_886_891_9, 1.495_971_601_987_828_6),
        (256, 1e-4, 0.637_477_983_572_853_1, 1.693_538_065_825_093_6),
        (256, 1e-6, 0.548_822_321_439_439_1, 2.073_949_836_043_559),
        (1024, 1.349_898_031_630_1e-3, 0.834_186_169_075_862, 1.216_954_809_568_665_8),
        (4096, 1e-6, 0.866_082_478_199_971_4, 1.169_427_471_163_708_7),
        (6104, 1.349_898_031_630_1e-3, 0.927_268_999_772_619_2, 1.081_441_633_924_021_2),
        (16384, 1e-4, 0.944_338_778_706_348_4, 1.060_883_278_193_147),
        (65536, 1e-2, 0.982_047_874_540_780_6, 1.018_400_680_964_936),
        (65536, 1e-6, 0.963_913_595_999_010_9, 1.038_284_618_559_949),
    ];

    #[test]
    fn limits_equal_those_of_scipy() {
        for (spectra, probability, low, high) in OF_SCIPY {
            let limits = Limits::new(spectra, probability);
            for (found, expected) in [(limits.low, low), (limits.high, high)] {
                let off = (found / expected - 1.0).abs();
                assert!(off < 1e-9, "{spectra} {probability}: {found} instead of {expected}");
            }
        }
    }

    #[test]
    fn distribution_is_of_type_iv_for_every_number_of_spectra() {
        for spectra in SPECTRA {
            let density = Density::new(&Moments::new(spectra as f64));
            assert!(density.discriminant > 0.0, "{spectra}");
        }
    }

    /// Number of estimates of Gaussian noise below and above the limits.
    fn alarms(spectra: usize, probability: f64, trials: usize) -> [f64; 2] {
        let limits = Limits::new(spectra, probability);
        let mut random = Random::new(spectra as u64);
        let mut counts = [0.0; 2];
        for _ in 0..trials {
            let (mut s1, mut s2) = (0.0, 0.0);
            for _ in 0..spectra {
                // Power of complex Gaussian noise.
                let power = -random.uniform().ln();
                s1 += power;
                s2 += power * power;
            }
            let m = spectra as f64;
            let kurtosis = (m + 1.0) / (m - 1.0) * (m * s2 / (s1 * s1) - 1.0);
            counts[0] += f64::from(u8::from(kurtosis < limits.low));
            counts[1] += f64::from(u8::from(kurtosis > limits.high));
        }
        counts
    }

    #[test]
    fn noise_exceeds_the_limits_with_the_requested_probability() {
        const TRIALS: usize = 1_000_000;
        const PROBABILITY: f64 = 1.349_898_031_630_1e-3;
        let expected = TRIALS as f64 * PROBABILITY;
        let sigma = (expected * (1.0 - PROBABILITY)).sqrt();
        for (tail, count) in ["low", "high"].iter().zip(alarms(32, PROBABILITY, TRIALS)) {
            assert!((count - expected).abs() < 5.0 * sigma, "{tail}: {count}, not {expected}");
        }
    }

    #[test]
    fn lower_tail_of_256_spectra_is_rarer_than_requested_as_the_page_says() {
        const TRIALS: usize = 200_000;
        let [low, high] = alarms(256, 0.01, TRIALS).map(|count| count / TRIALS as f64);
        // 0.00955 and 0.00977 in 4 million trials with NumPy; 5 sigma of a binomial distribution.
        let sigma = (0.0097_f64 / TRIALS as f64).sqrt();
        assert!((low - 0.009_546).abs() < 5.0 * sigma, "{low}");
        assert!((high - 0.009_765).abs() < 5.0 * sigma, "{high}");
    }

    #[test]
    fn limits_are_finite_and_ordered_for_all_arguments() {
        for spectra in [0, 32, 33, 100, 1 << 16, usize::MAX] {
            let mut inner: Option<Limits> = None;
            for probability in [0.1, 1e-3, 1e-6, 1e-9, 0.0] {
                let limits = Limits::new(spectra, probability);
                assert!(0.0 < limits.low && limits.low < 1.0, "{spectra} {limits:?}");
                assert!(1.0 < limits.high && limits.high.is_finite(), "{spectra} {limits:?}");
                if let Some(inner) = inner {
                    assert!(limits.low <= inner.low && limits.high >= inner.high);
                }
                inner = Some(limits);
            }
        }
    }

    #[test]
    fn largest_sums_do_not_overflow() {
        let spectra = *SPECTRA.end();
        let sums = Sums::of_bytes(&vec![[-128, -128]; spectra]);
        assert_eq!(sums, Sums { s1: 1 << 31, s2: 1 << 46 });
        // Constant power: M S2/S1^2 = 1.
        assert!(sums.kurtosis(spectra).abs() < 1e-12);
        assert_eq!(Limits::new(spectra, 1e-9).test(spectra).judge(&sums), Verdict::Low);
    }

    #[test]
    fn input_without_power_is_not_flagged() {
        let sums = Sums::of_bytes(&[[0, 0]; 64]);
        assert!(sums.kurtosis(64).is_nan());
        assert_eq!(Limits::new(64, 0.1).test(64).judge(&sums), Verdict::Noise);
    }

    #[test]
    fn sums_of_every_layout_are_those_of_plain_integers() {
        let mut random = Random::new(11);
        let bytes: Vec<u8> = (0..4 * 300).map(|_| (random.uniform() * 256.0) as u8).collect();
        let signed = |bits: u8, width: u32| {
            let value = i64::from(bits);
            if value >= 1 << (width - 1) { value - (1 << width) } else { value }
        };
        let sums = |values: &[[i64; 2]]| {
            let powers = values.iter().map(|[re, im]| (re * re + im * im) as u64);
            Sums { s1: powers.clone().sum(), s2: powers.map(|p| p * p).sum() }
        };
        let of_8: Vec<_> = bytes.chunks(2).map(|b| [signed(b[0], 8), signed(b[1], 8)]).collect();
        let of_4: Vec<_> = bytes.iter().map(|b| [signed(b >> 4, 4), signed(b & 15, 4)]).collect();
        let pol = |values: &[[i64; 2]], pol: usize| {
            sums(&values.iter().skip(pol).step_by(2).copied().collect::<Vec<_>>())
        };
        assert_eq!(Sums::of_bytes(bytemuck::cast_slice(&bytes)), sums(&of_8));
        assert_eq!(Sums::of_nibbles(&bytes), sums(&of_4));
        let expected = [pol(&of_8, 0), pol(&of_8, 1)];
        assert_eq!(Sums::of_byte_pairs(bytemuck::cast_slice(&bytes)), expected);
        let expected = [pol(&of_4, 0), pol(&of_4, 1)];
        assert_eq!(Sums::of_nibble_pairs(bytes.as_chunks().0), expected);
    }

    #[test]
    fn judgement_agrees_with_the_kurtosis() {
        let limits = Limits::new(100, 0.01);
        let test = limits.test(100);
        for s2 in 100_000..400_000 {
            let sums = Sums { s1: 3000, s2 };
            let kurtosis = sums.kurtosis(100);
            let expected = if kurtosis > limits.high {
                Verdict::High
            } else if kurtosis < limits.low {
                Verdict::Low
            } else {
                Verdict::Noise
            };
            assert_eq!(test.judge(&sums), expected, "{kurtosis}");
        }
    }
}
