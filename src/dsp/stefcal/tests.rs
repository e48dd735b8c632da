use super::*;

const LIMITS: Limits = Limits { reference: 0, min_antennas: 3, iterations: 500, tolerance: 1e-12 };

#[derive(Debug, PartialEq)]
struct Solution {
    gains: Vec<Option<Complex64>>,
    residual: f64,
}

struct Problem {
    measured: Vec<Complex64>,
    model: Vec<Complex64>,
    weights: Vec<f64>,
}

impl Problem {
    /// Visibilities of these gains and a model of points, with errors of this amplitude and without
    /// autocorrelations. All are functions that NumPy computes too.
    fn new(gains: &[Complex64], error: f64) -> Self {
        let mut problem = Self { measured: vec![], model: vec![], weights: vec![] };
        for a2 in 0..gains.len() {
            for a1 in 0..=a2 {
                let n = problem.model.len() as f64;
                let model = 1.0 + Complex64::from_polar(0.3, 1.7 * n);
                let noise = error * Complex64::new((3.1 * n).sin(), (5.3 * n + 1.0).sin());
                problem.measured.push(gains[a1] * model * gains[a2].conj() + noise);
                problem.model.push(model);
                problem.weights.push(if a1 == a2 { 0.0 } else { 1.0 + (2.3 * n).sin() / 2.0 });
            }
        }
        problem
    }

    fn solve(&self, antennas: usize, limits: &Limits) -> Result<Solution, Failure> {
        let Self { measured, model, weights } = self;
        let mut gains = vec![Some(Complex64::ZERO); antennas];
        let data = Data { measured, model, weights };
        let quality = Solver::new(antennas).solve(&data, limits, &mut gains)?;
        Ok(Solution { gains, residual: quality.residual })
    }
}

fn gains(antennas: usize) -> Vec<Complex64> {
    let gain = |n: f64| Complex64::from_polar(1.0 + 0.4 * (2.0 * n).sin(), 2.5 * n);
    (0..antennas).map(|n| gain(n as f64)).collect()
}

#[test]
fn gains_of_exact_visibilities_are_found_with_any_reference() {
    let gains = gains(7);
    for reference in [0, 4] {
        let limits = Limits { reference, ..LIMITS };
        let solution = Problem::new(&gains, 0.0).solve(7, &limits).unwrap();
        let turn = gains[reference].conj() / gains[reference].norm();
        for (found, gain) in solution.gains.iter().zip(&gains) {
            assert!((found.unwrap() - gain * turn).norm() < 1e-9);
        }
        assert!(solution.residual < 1e-9);
    }
}

#[test]
fn gains_of_noisy_visibilities_are_those_of_scipy() {
    // The minimum that `scipy.optimize.least_squares` finds for the same problem, method "lm", xtol = ftol = 1e-15,
    // with sqrt(weight) times the residuals of each baseline and the gain of antenna 0 real.
    const EXPECTED: [(f64, f64); 5] = [
        (0.907_048_846_527_490_4, 0.0),
        (-1.123_883_131_343_645_5, 0.814_960_603_724_144_1),
        (0.248_833_194_446_918_8, -0.711_270_965_206_530_4),
        (0.287_036_799_242_687_05, 0.820_708_462_927_180_9),
        (-1.187_524_077_620_667_7, -0.715_822_247_444_568_5),
    ];
    const RESIDUAL: f64 = 0.088_863_388_456_645_96;
    let solution = Problem::new(&gains(5), 0.2).solve(5, &LIMITS).unwrap();
    for (found, (re, im)) in solution.gains.iter().zip(EXPECTED) {
        assert!((found.unwrap() - Complex64::new(re, im)).norm() < 1e-7, "{solution:?}");
    }
    assert!((solution.residual - RESIDUAL).abs() < 1e-8);
}

#[test]
fn antennas_without_data_have_no_gain() {
    let gains = gains(6);
    let mut problem = Problem::new(&gains, 0.0);
    for other in 0..6_usize {
        let (a1, a2) = (other.min(3), other.max(3));
        problem.weights[a2 * (a2 + 1) / 2 + a1] = 0.0;
        problem.measured[a2 * (a2 + 1) / 2 + a1] = Complex64::new(f64::NAN, 0.0);
    }
    let solution = problem.solve(6, &LIMITS).unwrap();
    for (antenna, (found, gain)) in solution.gains.iter().zip(&gains).enumerate() {
        assert_eq!(found.is_none(), antenna == 3);
        assert!(found.is_none_or(|found| (found - gain).norm() < 1e-9));
    }
    let limits = Limits { min_antennas: 6, ..LIMITS };
    assert_eq!(problem.solve(6, &limits), Err(Failure::TooFewAntennas(5)));
    let limits = Limits { reference: 3, ..LIMITS };
    assert_eq!(problem.solve(6, &limits), Err(Failure::TooFewAntennas(1)));
}

#[test]
fn antenna_that_delivers_zeros_has_no_gain() {
    let mut gains = gains(6);
    gains[3] = Complex64::ZERO;
    let solution = Problem::new(&gains, 0.0).solve(6, &LIMITS).unwrap();
    for (antenna, (found, gain)) in solution.gains.iter().zip(&gains).enumerate() {
        assert_eq!(found.is_none(), antenna == 3);
        assert!(found.is_none_or(|found| (found - gain).norm() < 1e-9));
    }
}

#[test]
fn undetermined_and_useless_data_are_failures() {
    let mut star = Problem::new(&gains(4), 0.0);
    // Only the baselines with antenna 0.
    [4, 7, 8].into_iter().for_each(|n: usize| star.weights[n] = 0.0);
    assert_eq!(star.solve(4, &LIMITS), Err(Failure::Undetermined));
    let mut zeros = Problem::new(&gains(4), 0.0);
    zeros.measured.fill(Complex64::ZERO);
    assert_eq!(zeros.solve(4, &LIMITS), Err(Failure::TooFewAntennas(1)));
    let mut infinite = Problem::new(&gains(4), 0.0);
    infinite.measured[3].re = f64::INFINITY;
    assert_eq!(infinite.solve(4, &LIMITS), Err(Failure::NotConverged));
    let limits = Limits { iterations: 2, ..LIMITS };
    assert_eq!(Problem::new(&gains(5), 0.2).solve(5, &limits), Err(Failure::NotConverged));
}

#[test]
fn antennas_of_is_the_inverse_of_the_number_of_baselines() {
    assert_eq!(
        [0, 1, 2, 3, 6, 10, 11].map(antennas_of),
        [None, Some(1), None, Some(2), Some(3), Some(4), None]
    );
    assert_eq!(antennas_of(usize::MAX), None);
}

/// Means of products of voltages of antennas with these gains, a source and noise, packed as visibilities.
fn covariance(gains: &[Complex64], source: f64) -> Vec<Complex64> {
    let pairs = (0..gains.len()).flat_map(|a2| (0..=a2).map(move |a1| (a1, a2)));
    let value = |(a1, a2): (usize, usize)| {
        let noise = if a1 == a2 { 1.0 + 0.5 * a1 as f64 } else { 0.0 };
        source * gains[a1] * gains[a2].conj() + noise
    };
    pairs.map(value).collect()
}

#[test]
fn uncertainties_are_those_of_simulated_voltages() {
    // Standard deviations of 4000 solutions by `scipy.optimize.least_squares` for means of 2000 products of voltages
    // that NumPy made. Their own deviation is 1.1 %.
    const EXPECTED: [(f64, [f64; 5], [f64; 5]); 2] = [
        (
            0.2,
            [0.07191, 0.07023, 0.10117, 0.09109, 0.07531],
            [0.0, 0.07492, 0.12643, 0.11622, 0.08786],
        ),
        (
            20.0,
            [0.003_722, 0.003_439, 0.006_150, 0.005_448, 0.004_145],
            [0.0, 0.004_828, 0.008_092, 0.007_347, 0.005_646],
        ),
    ];
    for (source, amplitudes, phases) in EXPECTED {
        let measured = covariance(&gains(5), source);
        let (products, model, mut weights) = (vec![2000.0; 15], vec![Complex64::ONE; 15], vec![]);
        weigh(&measured, &products, &mut weights);
        let data = Data { measured: &measured, model: &model, weights: &weights };
        let (mut solver, mut found) = (Solver::new(5), vec![None; 5]);
        solver.solve(&data, &LIMITS, &mut found).unwrap();
        let mut estimates = vec![Estimate { significance: 0.0, ln_amplitude: 0.0, phase: 0.0 }; 5];
        Errors::new(5).estimate(&data, &products, &found, (0, 1.0), &mut estimates);
        for ((estimate, amplitude), phase) in estimates.iter().zip(amplitudes).zip(phases) {
            assert!((estimate.ln_amplitude / amplitude - 1.0).abs() < 0.04, "{estimates:?}");
            assert!((estimate.phase - phase).abs() <= 0.04 * phase + 1e-12, "{estimates:?}");
        }
    }
}

#[test]
fn significance_is_that_of_numpy() {
    // For the covariances above, by NumPy.
    const EXPECTED: [f64; 5] =
        [109.195_145_9, 121.501_840_28, 36.158_502_21, 45.653_736_26, 82.277_400_74];
    let measured = covariance(&gains(5), 0.2);
    let (products, model, mut weights) = (vec![2000.0; 15], vec![Complex64::ONE; 15], vec![]);
    weigh(&measured, &products, &mut weights);
    let data = Data { measured: &measured, model: &model, weights: &weights };
    let mut found = vec![None; 5];
    Solver::new(5).solve(&data, &LIMITS, &mut found).unwrap();
    let mut significances = vec![0.0; 5];
    Errors::new(5).significances(&data, &products, &found, &mut significances);
    for (found, expected) in significances.iter().zip(EXPECTED) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{significances:?}");
    }
}

#[test]
fn antenna_without_autocorrelation_has_no_weight() {
    let mut measured = covariance(&gains(3), 1.0);
    measured[2] = Complex64::ZERO;
    let mut weights = vec![];
    weigh(&measured, &[10.0; 6], &mut weights);
    let powers = (measured[0] * measured[5]).re;
    assert!(weights.iter().enumerate().all(|(n, weight)| (*weight > 0.0) == (n == 3)));
    assert!((weights[3] - 10.0 / powers).abs() < 1e-12);
}

#[test]
#[allow(clippy::float_cmp, reason = "limits are exact")]
fn false_alarm_is_that_of_scipy() {
    // `scipy.special.gammaincc(n, sum)`.
    for (n, sum, expected) in [
        (1, 2.5, 0.082_084_998_623_898_8),
        (6, 20.0, 7.190_884_052_842_894e-5),
        (10, 8.0, 0.716_624_258_727_011),
        (2016, 2190.0, 7.953_472_671_095_01e-5),
        (3, 0.1, 0.999_845_346_929_735_4),
    ] {
        let found = false_alarm(n, sum);
        assert!((found / expected - 1.0).abs() < 1e-9, "{n} {sum}: {found}");
    }
    assert_eq!([false_alarm(0, 1.0), false_alarm(3, 0.0), false_alarm(3, 1e9)], [1.0, 1.0, 0.0]);
}
