//! A weak source: errors of the gains that are smaller than the noise of a solution.

use super::super::antenna_gains::{Evidence, Residual};
use super::super::corrections::Corrections;
use super::*;
use std::f64::consts::TAU;

/// Antennas, each with the same sensitivity.
const NUMBER: usize = 6;
/// Power of the source in units of the noise.
const SOURCE: f64 = 1.4e-6;
/// Drift in the time of a dump, of the logarithm of an amplitude and of a phase.
const DRIFT: f64 = 2e-3;
const LOOP_GAIN: f64 = 0.5;
/// Errors of the amplitudes (logarithms) and phases: a third of the noise of a solution to all of it.
const AMPLITUDES: [f64; NUMBER] = [0.04, -0.08, 0.1, -0.1, 0.08, -0.04];
const PHASES: [f64; NUMBER] = [0.0, 0.05, -0.07, 0.14, -0.14, 0.05];

fn weak(antenna: usize, _: usize, _: usize) -> Complex64 {
    SOURCE.sqrt() * Complex64::new(AMPLITUDES[antenna], PHASES[antenna]).exp()
}

fn no_source(_: usize, _: usize, _: usize) -> Complex64 {
    Complex64::ZERO
}

/// Antenna 2 has changed by a factor of 3 and by 90 degrees: more than seven times the noise of a solution.
fn changed(antenna: usize, pol: usize, channel: usize) -> Complex64 {
    let change = if antenna == 2 { Complex64::from_polar(3.0, TAU / 4.0) } else { Complex64::ONE };
    weak(antenna, pol, channel) * change
}

/// Standard deviations of a solution, of the logarithm of an amplitude relative to the mean and of a phase relative to an
/// antenna: the least-squares solution of baselines with the same noise, in closed form.
fn of_solution() -> [f64; 2] {
    let (n, products) = (NUMBER as f64, PRODUCTS_PER_COUNT * 2.0 * CHANNELS as f64);
    // Variance of the real part of a visibility, in units of the source.
    let variance = 1.0 / (2.0 * products * SOURCE.powi(2));
    [variance * (n - 1.0) / (n * (n - 2.0)), variance * 2.0 / n].map(f64::sqrt)
}

/// Standard deviations of the best estimates from all solutions, for a drift: where a solution removes as much variance as
/// the drift adds. Phases drift relative to the reference antenna.
fn of_all_solutions() -> [f64; 2] {
    let [amplitude, phase] = of_solution();
    [(amplitude, DRIFT.powi(2)), (phase, 2.0 * DRIFT.powi(2))].map(|(deviation, drift)| {
        let before = f64::midpoint(drift, (drift * drift + 4.0 * drift * deviation.powi(2)).sqrt());
        (before - drift).sqrt()
    })
}

fn bench(truth: fn(usize, usize, usize) -> Complex64, seed: u64) -> Bench {
    let mut input = input();
    input.axes[1] = Axis::new("baseline", NUMBER * (NUMBER + 1) / 2);
    input.axes[2].len = 1;
    input.validity.axes = vec![input.axes[1].clone()];
    let hours = STEP as f64 / 1e6 / 3600.0;
    let drift_per_hour = DRIFT / hours.sqrt();
    let kind = GainSolver { loop_gain: LOOP_GAIN, drift_per_hour, ..parameters() };
    let mut bench = Bench::of(input, 1, &kind, truth);
    bench.noise = Some(Random::new(seed));
    *bench.engines.begun.lock().unwrap() = Some(0);
    bench
}

impl Bench {
    /// Sends a dump again until the block does not ignore it, and returns its solution if it has one. The noise stays the
    /// same meanwhile, so that the noise of the solutions does not depend on the time that updates take.
    fn solution(&mut self) -> Option<Vec<Complex32>> {
        let (noise, ignored) = (self.noise.clone(), self.counter("dumps_ignored"));
        for n in 1.. {
            let solution = self.dump();
            if self.counter("dumps_ignored") < ignored + n {
                return solution.map(|(gains, _)| gains);
            }
            std::thread::sleep(Duration::from_millis(1));
            self.noise.clone_from(&noise);
        }
        None
    }

    /// Errors of each antenna with the gains in force: logarithm of the amplitude relative to the mean, and phase relative
    /// to antenna 0.
    fn errors(&self) -> Vec<[f64; 2]> {
        let in_force = self.engines.gains.lock().unwrap();
        let gain = |a| (self.truth)(a, 0, 0) * gain_in(&in_force, a, 0, 0);
        let mean = (0..NUMBER).map(|a| gain(a).norm().ln()).sum::<f64>() / NUMBER as f64;
        let error = |a| [gain(a).norm().ln() - mean, (gain(a) * gain(0).conj()).arg()];
        (0..NUMBER).map(error).collect()
    }

    /// Geometric mean of the amplitudes in force.
    fn mean_amplitude(&self) -> f64 {
        let in_force = self.engines.gains.lock().unwrap();
        let logarithms = (0..NUMBER).map(|a| gain_in(&in_force, a, 0, 0).norm().ln());
        (logarithms.sum::<f64>() / NUMBER as f64).exp()
    }
}

fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, number) = values.fold((0.0, 0), |(sum, n), value| (sum + value * value, n + 1));
    (sum / f64::from(number)).sqrt()
}

#[test]
fn errors_below_the_noise_of_a_solution_converge_to_the_accuracy_of_all_solutions() {
    let mut bench = bench(weak, 1);
    let (mut measured, mut errors) = (Vec::new(), Vec::new());
    for n in 0..800 {
        let gains = bench.solution();
        // The level is 1 also if antennas without a significant gain leave a solution and return.
        let mean = bench.mean_amplitude();
        assert!((mean - 1.0).abs() < 1e-5, "{n}: {mean}");
        if n >= 200 {
            let gains = gains.into_iter().flatten().skip(1);
            measured.extend(gains.filter(|gain| *gain != Complex32::ZERO));
            errors.extend(bench.errors().into_iter().skip(1));
        }
    }
    let part = |part: usize| rms(errors.iter().map(|error| error[part]));
    let found = [part(0), part(1)];
    let of_solution = of_solution();
    let noise = [
        rms(measured.iter().map(|gain| f64::from(gain.norm().ln()))),
        rms(measured.iter().map(|gain| f64::from(gain.arg()))),
    ];
    for ((noise, of_solution), (found, expected)) in
        noise.into_iter().zip(of_solution).zip(found.into_iter().zip(of_all_solutions()))
    {
        // To first order, and for antennas without errors.
        assert!((noise / of_solution - 1.0).abs() < 0.3, "{noise} {of_solution}");
        // The error that is not corrected is at most as large as the uncertainty of the estimate.
        assert!(found < 2.0 * expected && found < of_solution / 3.0, "{found} {expected}");
    }
    let missing = 600 * (NUMBER - 1) - measured.len();
    assert!((10..600).contains(&missing), "some antennas leave some solutions: {missing}");
}

#[test]
fn noise_alone_updates_nothing() {
    let mut bench = bench(no_source, 2);
    assert!((0..200).all(|_| bench.dump().is_none()));
    assert_eq!(bench.counter("solutions_without_signal"), 200);
    assert!(bench.engines.gains.lock().unwrap().is_empty());
}

#[test]
fn changed_antenna_is_followed_in_20_solutions_and_the_others_stay() {
    let mut bench = bench(weak, 3);
    (0..200).for_each(|_| drop(bench.solution()));
    bench.truth = changed;
    let before = bench.errors();
    assert!((before[2][1] - TAU / 4.0).abs() < 0.1, "{before:?}");
    (0..20).for_each(|_| drop(bench.solution()));
    // At most a fifth of the change is left.
    let after = bench.errors();
    let [amplitude, phase] = after[2];
    assert!(amplitude.abs() < 3_f64.ln() / 5.0, "{amplitude}");
    assert!(phase.abs() < TAU / 20.0, "{phase}");
    for a in [1, 3, 4, 5] {
        // Amplitudes relative to antenna 0: the mean has changed.
        let relative = |errors: &[[f64; 2]]| [errors[a][0] - errors[0][0], errors[a][1]];
        let (before, after) = (relative(&before), relative(&after));
        for (part, of_all) in of_all_solutions().into_iter().enumerate() {
            let change = after[part] - before[part];
            assert!(change.abs() < 3.0 * of_all, "antenna {a}: {change} {of_all}");
        }
    }
}

#[test]
fn change_by_a_client_is_corrected_without_the_noise_of_a_solution() {
    let mut bench = bench(weak, 4);
    (0..200).for_each(|_| drop(bench.solution()));
    // After a dump without a source no update is in progress, which would replace the gains of the client.
    bench.truth = no_source;
    assert!(bench.solution().is_none());
    bench.truth = weak;
    let before = bench.errors()[3][1];
    let gain = bench.engines.gain(3, 0, 0) * Complex64::cis(1.0);
    let gain = json!({"f[3]": {"gains": [{"re": gain.re, "im": gain.im}]}});
    bench.engines.set(&gain, bench.dump * STEP);
    assert!((bench.errors()[3][1] - before - 1.0).abs() < 1e-5);
    bench.solution();
    bench.solution();
    // The first of both updates is in force when the second solution is there.
    let error = bench.errors()[3][1];
    let expected = [1.0 - LOOP_GAIN, (1.0 - LOOP_GAIN).powi(2)];
    let accuracy = 3.0 * of_all_solutions()[1];
    assert!(expected.iter().any(|e| (error - e).abs() < accuracy), "{error} {accuracy}");
}

#[test]
fn antenna_without_a_significant_correction_leaves_those_of_the_others_as_they_are() {
    let (shape, _) = parameters().ports(&[input()]).unwrap();
    let exact = |value| Some(Evidence { value, variance: 1e-8 });
    let factors = |amplitudes: [Option<Evidence>; ANTENNAS]| {
        let mut corrections = Corrections::new(&parameters(), &shape);
        let phase = Evidence { value: 0.0, variance: 1.0 };
        let residuals = amplitudes.map(|a| a.map(|amplitude| Residual { amplitude, phase }));
        corrections.set(&residuals, (0, 0));
        corrections.factors.chunks_exact(2).map(|factors| factors[0].norm().ln()).collect()
    };
    let others = [exact(0.3), exact(-0.1), exact(-0.14)];
    let dead: Vec<f64> = factors([others[0], others[1], others[2], None]);
    let uncertain: Vec<f64> =
        factors([others[0], others[1], others[2], Some(Evidence { value: 0.5, variance: 1.0 })]);
    assert!(dead.iter().zip([-0.28, 0.12, 0.16, 0.0]).all(|(a, b)| (a - b).abs() < 1e-6));
    assert!(dead.iter().zip(&uncertain).all(|(a, b)| (a - b).abs() < 1e-12), "{uncertain:?}");
    assert!(dead[3] == 0.0 && uncertain[3] == 0.0);
    // A significant one moves the mean.
    let significant: Vec<f64> = factors([others[0], others[1], others[2], exact(0.5)]);
    assert!((significant[3] + 0.36).abs() < 1e-6, "{significant:?}");
    assert!(significant.iter().sum::<f64>().abs() < 1e-9);
}
