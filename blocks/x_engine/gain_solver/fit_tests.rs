//! Solutions of simulated visibilities: sample covariances of Gaussian voltages.

use super::super::health::Health;
use super::*;
use fxgraph::Env;
use fxgraph_dsp::random::Random;

/// Products of samples in each visibility.
const PRODUCTS: f64 = 2000.0;

/// An array, a source and the noise of each antenna.
#[derive(Clone)]
struct Array {
    gains: Vec<Complex64>,
    noise: Vec<f64>,
    source: f64,
}

impl Array {
    fn new(antennas: usize, source: f64) -> Self {
        let gain = |n: f64| Complex64::from_polar(1.0 + 0.4 * (2.0 * n).sin(), 2.5 * n);
        Self {
            gains: (0..antennas).map(|n| gain(n as f64)).collect(),
            noise: (0..antennas).map(|n| 1.0 + 0.5 * n as f64).collect(),
            source,
        }
    }

    /// Lower triangular factor of the covariance of the voltages, by rows.
    #[allow(clippy::needless_range_loop, reason = "indices of a matrix")]
    fn factor(&self) -> Vec<Vec<Complex64>> {
        let mut rows: Vec<Vec<Complex64>> = Vec::new();
        for a in 0..self.gains.len() {
            let mut row = Vec::new();
            for b in 0..=a {
                let mut value = self.source * self.gains[a] * self.gains[b].conj();
                value += if a == b { self.noise[a] } else { 0.0 };
                let other = if a == b { &row } else { &rows[b] };
                for k in 0..b {
                    let (first, second): (Complex64, Complex64) = (row[k], other[k]);
                    value -= first * second.conj();
                }
                row.push(if a == b { value.sqrt() } else { value / rows[b][b] });
            }
            rows.push(row);
        }
        rows
    }

    /// Visibilities of [`PRODUCTS`] samples: a complex Wishart matrix, by Bartlett's decomposition.
    #[allow(clippy::needless_range_loop, reason = "indices of a matrix")]
    fn visibilities(&self, random: &mut Random) -> Vec<Complex64> {
        let (factor, n) = (self.factor(), self.gains.len());
        let mut voltages = vec![vec![Complex64::ZERO; n]; n];
        for a in 0..n {
            for b in 0..a {
                let [re, im] = random.normal_pair();
                voltages[a][b] = Complex64::new(re, im) / 2.0_f64.sqrt();
            }
            // Square root of a number with a gamma distribution, by Wilson and Hilferty.
            let (shape, [normal, _]) = (PRODUCTS - a as f64, random.normal_pair());
            let cube = 1.0 - 1.0 / (9.0 * shape) + normal / (3.0 * shape.sqrt());
            voltages[a][a] = (shape * cube.powi(3)).sqrt().into();
        }
        let row = |a: usize, k: usize| -> Complex64 {
            (0..=a).map(|b| factor[a][b] * voltages[b][k]).sum()
        };
        let rows: Vec<Vec<Complex64>> =
            (0..n).map(|a| (0..n).map(|k| row(a, k)).collect()).collect();
        let pairs = (0..n).flat_map(|a2| (0..=a2).map(move |a1| (a1, a2)));
        let product = |(a1, a2): (usize, usize)| -> Complex64 {
            rows[a1].iter().zip(&rows[a2]).map(|(x, y)| x * y.conj()).sum()
        };
        pairs.map(|pair| product(pair) / PRODUCTS).collect()
    }

    fn fit(&self, false_detection: f64) -> Fit {
        let limits = Limits { reference: 0, min_antennas: 3, iterations: 500, tolerance: 1e-9 };
        let mut fit = Fit::new(self.gains.len(), limits, false_detection);
        fit.products = vec![PRODUCTS; self.gains.len() * (self.gains.len() + 1) / 2];
        fit
    }
}

/// A solution: its result, gains and estimates, with phases relative to antenna 0 if it has a gain.
type Solved = (Result<f64, Failure>, Vec<Option<Complex64>>, Vec<Estimate>);

fn solve(array: &Array, fit: &mut Fit, random: &mut Random) -> Solved {
    fit.means = array.visibilities(random);
    let mut gains = vec![None; array.gains.len()];
    let mut estimates = vec![UNKNOWN; array.gains.len()];
    let result = fit.solve(&mut gains, &mut estimates);
    if let Some(reference) = gains[0] {
        fit.estimate(&gains, 0, &mut estimates);
        let turn: Complex64 = reference.conj() / reference.norm();
        gains.iter_mut().flatten().for_each(|gain| *gain *= turn);
    }
    (result, gains, estimates)
}

/// Logarithm of each amplitude relative to the mean, and phase relative to antenna 0.
fn relative(gains: &[Complex64]) -> Vec<[f64; 2]> {
    let mean = gains.iter().map(|gain| gain.norm().ln()).sum::<f64>() / gains.len() as f64;
    let of = |gain: &Complex64| [gain.norm().ln() - mean, (gain * gains[0].conj()).arg()];
    gains.iter().map(of).collect()
}

#[test]
fn gains_are_unbiased_and_scatter_as_their_uncertainties() {
    // Standard deviations of 4000 solutions by SciPy (`least_squares`, method "lm") of voltages made by NumPy, for a
    // weak and a strong source: logarithms of the amplitudes, and phases.
    const WEAK: [[f64; 5]; 2] = [
        [0.071_91, 0.070_23, 0.101_17, 0.091_09, 0.075_31],
        [0.0, 0.074_92, 0.126_43, 0.116_22, 0.087_86],
    ];
    const STRONG: [[f64; 5]; 2] = [
        [0.003_722, 0.003_439, 0.006_150, 0.005_448, 0.004_145],
        [0.0, 0.004_828, 0.008_092, 0.007_347, 0.005_646],
    ];
    const TRIALS: usize = 2000;
    for (source, expected) in [(0.2, WEAK), (20.0, STRONG)] {
        let array = Array::new(5, source);
        let (mut fit, mut random) = (array.fit(1e-5), Random::new(1));
        let truth = relative(&array.gains);
        let mut sums = [[[0.0; 2]; 5]; 3];
        for _ in 0..TRIALS {
            let (result, gains, estimates) = solve(&array, &mut fit, &mut random);
            result.unwrap();
            let gains: Vec<Complex64> = gains.into_iter().map(Option::unwrap).collect();
            for (a, found) in relative(&gains).into_iter().enumerate() {
                let error = [found[0] - truth[a][0], Complex64::cis(found[1] - truth[a][1]).arg()];
                let stated = [estimates[a].ln_amplitude, estimates[a].phase];
                for part in 0..2 {
                    sums[0][a][part] += error[part] / TRIALS as f64;
                    sums[1][a][part] += error[part].powi(2) / TRIALS as f64;
                    sums[2][a][part] += stated[part] / TRIALS as f64;
                }
            }
        }
        for (a, part) in (0..5).flat_map(|a| [(a, 0), (a, 1)]).filter(|found| *found != (0, 1)) {
            let [bias, square, stated] = sums.map(|sum| sum[a][part]);
            let scatter = (square - bias * bias).sqrt();
            assert!((bias / scatter).abs() < 0.1, "antenna {a}: {bias} {scatter}");
            assert!((stated / scatter - 1.0).abs() < 0.1, "antenna {a}: {stated} {scatter}");
            let expected = expected[part][a];
            assert!((stated / expected - 1.0).abs() < 0.08, "antenna {a}: {stated} {expected}");
        }
    }
}

/// Fraction of `trials` solutions for which `is_detected`, with its standard deviation for a probability.
fn rate(array: &Array, probability: f64, is_detected: impl Fn(&Solved) -> bool) -> (f64, f64) {
    const TRIALS: usize = 10_000;
    let (mut fit, mut random) = (array.fit(probability), Random::new(2));
    let detected =
        (0..TRIALS).filter(|_| is_detected(&solve(array, &mut fit, &mut random))).count();
    let rate = detected as f64 / TRIALS as f64;
    (rate, (probability * (1.0 - probability) / TRIALS as f64).sqrt())
}

#[test]
fn array_without_source_has_a_signal_at_the_stated_rate() {
    for antennas in [3, 8] {
        let is_detected = |(result, ..): &Solved| *result != Err(Failure::NoSignal);
        let (found, deviation) = rate(&Array::new(antennas, 0.0), 0.02, is_detected);
        assert!((found - 0.02).abs() < 4.0 * deviation, "{antennas}: {found}");
    }
}

#[test]
fn antenna_without_signal_has_a_gain_at_the_stated_rate() {
    let mut array = Array::new(6, 0.5);
    array.gains[3] = Complex64::ZERO;
    let (found, deviation) = rate(&array, 0.02, |(_, gains, _)| gains[3].is_some());
    assert!((found - 0.02).abs() < 4.0 * deviation, "{found}");
    // The others always have one.
    let (found, _) = rate(&array, 1e-4, |(_, gains, _)| {
        gains.iter().enumerate().all(|(a, gain)| a == 3 || gain.is_some())
    });
    assert!(found > 0.999, "{found}");
}

#[test]
fn interference_in_one_antenna_does_not_disturb_the_others() {
    let quiet = Array::new(5, 0.5);
    let mut loud = quiet.clone();
    loud.noise[2] = 1e5;
    let (mut fit, mut random) = (quiet.fit(1e-5), Random::new(3));
    let truth = relative(&[0, 1, 3, 4].map(|a| quiet.gains[a]));
    let mut squares = [0.0; 2];
    for (array, square) in [(&quiet, 0), (&loud, 1)] {
        for _ in 0..300 {
            let (result, gains, _) = solve(array, &mut fit, &mut random);
            result.unwrap();
            assert!(square == 0 || (gains[2].is_none() && fit.silent[2]));
            let found = relative(&[0, 1, 3, 4].map(|a| gains[a].unwrap()));
            squares[square] += (found[3][0] - truth[3][0]).powi(2);
        }
    }
    // Without antenna 2 there are 6 baselines instead of 10.
    assert!(squares[1] < 3.0 * squares[0], "{squares:?}");
}

#[test]
fn model_that_does_not_fit_raises_the_uncertainties() {
    let array = Array::new(6, 20.0);
    let (mut fit, mut random) = (array.fit(1e-5), Random::new(4));
    let (_, gains, before) = solve(&array, &mut fit, &mut random);
    // Interference that antennas 1 and 4 have in common.
    fit.means[4 * 5 / 2 + 1] *= 1.5;
    let mut after = before.clone();
    fit.estimate(&gains, 0, &mut after);
    assert!(after[3].phase > 3.0 * before[3].phase, "{before:?} {after:?}");
}

#[test]
fn zeros_are_no_signal_and_missing_data_are_a_failure() {
    let array = Array::new(4, 0.5);
    let mut fit = array.fit(1e-5);
    let (mut gains, mut estimates) = (vec![None; 4], vec![UNKNOWN; 4]);
    fit.means = vec![Complex64::ZERO; 10];
    assert_eq!(fit.solve(&mut gains, &mut estimates), Err(Failure::NoSignal));
    fit.products.fill(0.0);
    assert_eq!(fit.solve(&mut gains, &mut estimates), Err(Failure::Unsolved));
}

#[test]
fn two_antennas_with_a_signal_are_too_few() {
    let array = Array::new(4, 2.0);
    let mut fit = array.fit(1e-5);
    fit.means = array.visibilities(&mut Random::new(5));
    // Antennas 1 and 2 deliver zeros.
    [1, 2, 3, 4, 5, 7, 8].into_iter().for_each(|n: usize| fit.means[n] = Complex64::ZERO);
    let (mut gains, mut estimates) = (vec![None; 4], vec![UNKNOWN; 4]);
    assert_eq!(fit.solve(&mut gains, &mut estimates), Err(Failure::NoSignal));
    assert!(gains.iter().all(Option::is_none));
    assert_eq!((fit.silent, fit.is_shown), (vec![false, true, true, false], false));
}

/// An array of equal antennas, whose gains have this significance.
fn equal(antennas: usize, significance: f64) -> Array {
    // That of a weak source; the noise of the source lowers it.
    let source = (significance / (PRODUCTS * (antennas - 1) as f64)).sqrt();
    Array { gains: vec![Complex64::ONE; antennas], noise: vec![1.0; antennas], source }
}

#[test]
fn source_that_is_too_weak_for_single_antennas_flags_none() {
    // An array of 64 antennas has a signal from a significance of about 6, an antenna from 11.5. Antennas that are left
    // out make those of the others smaller.
    for significance in [8.0, 10.0, 14.0, 20.0, 40.0] {
        let array = equal(64, significance);
        let (mut fit, mut random) = (array.fit(1e-5), Random::new(6));
        let mut health = Health::new(((0..64).collect(), 1), 0, 3, &Env::detached("solver"));
        let mut weak = 0;
        for _ in 0..10 {
            let (result, gains, estimates) = solve(&array, &mut fit, &mut random);
            let left_out = fit.silent.iter().filter(|is_silent| **is_silent).count();
            weak += usize::from(left_out > 32);
            // Fewer than 3 others are no source.
            assert!(left_out <= 61 || result == Err(Failure::NoSignal), "{left_out} {result:?}");
            assert!(result.is_ok() || gains.iter().all(Option::is_none));
            health.begin();
            health.add((&fit.silent, fit.is_shown), &estimates);
            health.end(0, result == Err(Failure::NoSignal));
        }
        assert!(weak >= 3 || significance > 30.0, "{significance}: {weak}");
        assert!(!health.to_flag.contains(&true), "{significance}");
        // Nor does a solution without the reference antenna show that it has no signal.
        assert_eq!(health.references, [0], "{significance}");
        assert_eq!(health.silent(), 0, "{significance}");
    }
}

#[test]
fn insensitive_antenna_is_shown_as_silent_at_less_than_half_the_stated_rate() {
    const TRIALS: usize = 2000;
    let probability: f64 = 0.02;
    // An antenna with a quarter of the sensitivity of the others, and a dead one.
    for (source, is_expected) in [(1.0, false), (0.0, true)] {
        let mut array = equal(12, 32.0 * -probability.ln());
        (array.noise[3], array.gains[3]) = (4.0, source.into());
        let (mut fit, mut random) = (array.fit(probability), Random::new(7));
        let [mut shown, mut silent] = [0; 2];
        for _ in 0..TRIALS {
            solve(&array, &mut fit, &mut random).0.unwrap();
            shown += usize::from(fit.is_shown);
            silent += usize::from(fit.is_shown && fit.silent[3]);
        }
        let rate = silent as f64 / shown as f64;
        assert!(shown > TRIALS / 4, "{shown}");
        if is_expected {
            assert!(rate > 1.0 - 2.0 * probability, "{rate}");
        } else {
            assert!(rate < probability / 2.0, "{rate}");
        }
    }
}
