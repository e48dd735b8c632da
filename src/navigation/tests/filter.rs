//! A filter over epochs with noise.

use super::solve::{measurements, place, sky, time};
use crate::filter::{Dynamics, Filter, clock_seconds};
use crate::orbit::{minus, norm};
use crate::solve::{Estimate, Measurement, Options, solve};

/// Noise of each pseudorange, between -1 and 1.
fn random(state: &mut u32) -> f64 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    f64::from(*state >> 8) / f64::from(1 << 23) - 1.0
}

/// The receiver at `time()` for `epochs` seconds: satellites and receiver stay where they are, so that the measurements
/// have no rates.
fn epochs(noise: f64, epochs: usize, mut each: impl FnMut(usize, &[Measurement<'_>])) {
    let sky = sky();
    let exact = measurements(&sky, 1e-5, 2e-8, 0.0);
    let mut state = 1;
    for n in 0..epochs {
        let noisy: Vec<_> = exact
            .iter()
            .map(|m| Measurement {
                pseudorange_metres: m.pseudorange_metres + noise * random(&mut state),
                rate_metres_per_second: None,
                ..*m
            })
            .collect();
        each(n, &noisy);
    }
}

fn error(position: [f64; 3]) -> f64 {
    norm(minus(position, place().itrf_metres()))
}

#[test]
fn filter_is_better_than_single_epochs() {
    let received = time().plus_seconds(1e-5).unwrap();
    let options = Options::default();
    let mut filter = Filter::new(Dynamics { acceleration: 1e-4, ..Dynamics::default() });
    let [mut single, mut filtered] = [0.0; 2];
    epochs(5.0, 120, |n, measured| {
        let solution = solve(received, measured, None, &options).unwrap();
        if !filter.has_started() {
            filter.start(received, &solution.estimate());
        }
        // The clock of the filter goes on although the simulated time does not: an epoch is a small step.
        filter.update(received, measured, &options);
        if n >= 60 {
            single += error(solution.position).powi(2) / 60.0;
            filtered += error(filter.estimate().position).powi(2) / 60.0;
        }
    });
    let [single, filtered] = [single, filtered].map(f64::sqrt);
    assert!(filtered < 0.3 * single, "{filtered} {single}");
    let estimate = filter.estimate();
    assert!((clock_seconds(&estimate) - 1e-5).abs() < 5e-9);
    let deviation = (0..3).map(|n| filter.position_covariance()[n][n]).sum::<f64>().sqrt();
    assert!(deviation > 0.05 && deviation < 2.0, "{deviation}");
}

#[test]
fn outlier_is_rejected_and_a_jump_starts_the_filter_again() {
    let received = time().plus_seconds(1e-5).unwrap();
    let options = Options::default();
    let mut filter = Filter::new(Dynamics::default());
    epochs(0.0, 20, |n, measured| {
        let mut measured = measured.to_vec();
        if n == 0 {
            let solution = solve(received, &measured, None, &options).unwrap();
            filter.start(received, &solution.estimate());
        }
        if n == 10 {
            measured[1].pseudorange_metres += 500.0;
        }
        if n > 14 {
            measured.iter_mut().for_each(|m| m.pseudorange_metres += 3e5);
        }
        let used = filter.update(received, &measured, &options);
        let expected = match n {
            10 => measured.len() - 1,
            0..15 => measured.len(),
            _ => 0,
        };
        assert_eq!(used, expected, "epoch {n}");
        if n < 15 {
            assert!(error(filter.estimate().position) < 0.2, "epoch {n}");
        }
    });
    assert!(!filter.has_started());
}

#[test]
fn velocity_comes_from_rates_and_moves_the_position() {
    let sky = sky();
    let options = Options::default();
    let measured = measurements(&sky, 0.0, 0.0, 0.0);
    let mut filter = Filter::new(Dynamics::default());
    filter.start(time(), &Estimate { position: place().itrf_metres(), ..Estimate::default() });
    filter.update(time(), &measured, &options);
    let velocity = place().itrf_to_enu(filter.estimate().velocity);
    assert!(norm(minus(velocity, [30.0, -20.0, 5.0])) < 0.1, "{velocity:?}");
    let later = time().plus_seconds(2.0).unwrap();
    filter.update(later, &[], &options);
    let moved = minus(filter.estimate().position, place().itrf_metres());
    let enu = place().itrf_to_enu(moved);
    assert!(norm(minus(enu, [60.0, -40.0, 10.0])) < 0.5, "{enu:?}");
    // A time that goes back, or that jumps.
    filter.update(time(), &measured, &options);
    assert!(!filter.has_started());
}
