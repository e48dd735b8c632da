//! Positions from pseudoranges of a sky of 24 satellites.

use super::orbit;
use crate::coarse::{self, CodePhase};
use crate::ephemeris::{Ephemeris, SatelliteId, time_of_week};
use crate::orbit::{SPEED_OF_LIGHT, minus, norm};
use crate::solve::{Measurement, Options, Raim, SolveError, chi_square_limit, solve};
use fxgraph_time::Time;
use fxgraph_time::sky::Place;
use std::f64::consts::TAU;

pub fn place() -> Place {
    Place { latitude: -0.536, longitude: 0.374, height_metres: 1086.6 }
}

pub fn time() -> Time {
    time_of_week(2190, 519_000.012_345).unwrap()
}

/// GPS satellites in six planes, with Galileo satellites between them.
pub fn sky() -> Vec<Ephemeris> {
    let satellite = |n: u8| {
        let plane = f64::from(n % 6);
        let id =
            if n.is_multiple_of(3) { SatelliteId::galileo(n + 1) } else { SatelliteId::gps(n + 1) };
        let anomaly = f64::from(n / 6) * TAU / 5.0 + plane * 0.35;
        let accuracy = if n.is_multiple_of(3) { 107 } else { 0 };
        Ephemeris { accuracy, ..orbit(id, plane * TAU / 6.0, anomaly) }
    };
    (0..30).map(satellite).collect()
}

/// Measurements above 10 degrees at the receiver's clock `time() + clock`.
pub fn measurements<'a>(
    sky: &'a [Ephemeris],
    clock: f64,
    galileo: f64,
    noise: f64,
) -> Vec<Measurement<'a>> {
    let position = place().itrf_metres();
    let velocity = place().enu_to_itrf([30.0, -20.0, 5.0]);
    let mut state = 1_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 24) - 0.5
    };
    let measure = |ephemeris: &'a Ephemeris| {
        let arrival = ephemeris.arrival(time(), position)?;
        let is_galileo = ephemeris.satellite.constellation.letter() == 'E';
        let offset = clock + if is_galileo { galileo } else { 0.0 };
        let tropospheric = crate::atmosphere::troposphere_metres(&place(), arrival.direction);
        // A moving receiver, by the difference of two arrivals.
        let at = |seconds: f64| {
            let moved = std::array::from_fn(|n| position[n] + velocity[n] * seconds);
            ephemeris.arrival(time().plus_seconds(seconds).unwrap(), moved).unwrap().delay
        };
        let rate = SPEED_OF_LIGHT * ((at(0.5) - at(-0.5)) + 1e-7);
        (arrival.direction.elevation > 10.0_f64.to_radians()).then(|| Measurement {
            ephemeris,
            pseudorange_metres: SPEED_OF_LIGHT * (arrival.delay + offset)
                + tropospheric
                + noise * random(),
            rate_metres_per_second: Some(rate),
            cn0_db_hz: 45.0,
        })
    };
    sky.iter().filter_map(measure).collect()
}

pub fn error_metres(position: [f64; 3]) -> f64 {
    norm(minus(position, place().itrf_metres()))
}

#[test]
fn exact_pseudoranges_give_position_clock_velocity_and_offset() {
    let sky = sky();
    let clock = 3.2e-4;
    let measured = measurements(&sky, clock, 2e-8, 0.0);
    assert!(measured.len() >= 8, "{}", measured.len());
    let received = time().plus_seconds(clock).unwrap();
    let solution = solve(received, &measured, None, &Options::default()).unwrap();
    assert!(error_metres(solution.position) < 1e-3, "{}", error_metres(solution.position));
    assert!((solution.clock_seconds - clock).abs() < 1e-11);
    assert!((solution.galileo_offset_seconds - 2e-8).abs() < 1e-11);
    assert!(solution.time.seconds_since(time()).abs() < 1e-11);
    let (velocity, drift) = solution.velocity.unwrap();
    let enu = place().itrf_to_enu(velocity);
    assert!(norm(minus(enu, [30.0, -20.0, 5.0])) < 0.02, "{enu:?}");
    assert!((drift - 1e-7).abs() < 1e-10, "{drift}");
    assert_eq!(solution.raim, Raim::Passed);
    let dops = solution.dops;
    assert!(dops.position > 0.8 && dops.position < 6.0, "{dops:?}");
    let sum = dops.horizontal.powi(2) + dops.vertical.powi(2);
    assert!((sum - dops.position.powi(2)).abs() < 1e-9);
    assert!((sum + dops.time.powi(2) - dops.geometric.powi(2)).abs() < 1e-9);
}

#[test]
fn wrong_pseudorange_is_excluded_and_two_wrong_ones_are_reported() {
    let sky = sky();
    let mut measured = measurements(&sky, 0.0, 0.0, 1.0);
    let wrong = measured[2].ephemeris.satellite;
    measured[2].pseudorange_metres += 300.0;
    let solution = solve(time(), &measured, None, &Options::default()).unwrap();
    assert_eq!(solution.raim, Raim::Excluded(wrong));
    assert!(error_metres(solution.position) < 5.0, "{}", error_metres(solution.position));
    let excluded = solution.satellites.iter().find(|s| s.satellite == wrong).unwrap();
    assert!(!excluded.is_used && (excluded.residual_metres - 300.0).abs() < 30.0);
    measured[4].pseudorange_metres -= 700.0;
    let solution = solve(time(), &measured, None, &Options::default()).unwrap();
    assert_eq!(solution.raim, Raim::Failed);
}

#[test]
fn time_of_reception_takes_one_satellite_from_the_check() {
    let sky = sky();
    // Position, clock, offset of Galileo and time are six unknowns.
    let measured = measurements(&sky, 0.0, 0.0, 0.0);
    let options = Options { time_uncertainty: 1.0, ..Options::default() };
    let raim = |measured: &[Measurement<'_>]| {
        let solution = solve(time(), measured, Some(place().itrf_metres()), &options);
        solution.map(|solution| solution.raim)
    };
    assert_eq!(raim(&measured[..6]), Ok(Raim::Unavailable));
    assert_eq!(raim(&measured[..7]), Ok(Raim::Passed));
}

#[test]
fn gross_fault_of_any_satellite_is_excluded() {
    let sky = sky();
    let exact = measurements(&sky, 0.0, 0.0, 0.0);
    for n in 0..exact.len() {
        for metres in [-1e9, -3e5, -3e4, 3e4, 3e5, 1e7, f64::NAN] {
            let mut measured = exact.clone();
            measured[n].pseudorange_metres += metres;
            let solution = solve(time(), &measured, None, &Options::default()).unwrap();
            let error = error_metres(solution.position);
            assert!(error < 1e-2, "{metres} m of satellite {n}: {error} m");
        }
    }
}

#[test]
fn covariance_is_that_of_the_errors() {
    let sky = sky();
    let options = Options::default();
    // Each measurement has its own variance; the errors of positions from noise with it have the covariance's size.
    let measured = measurements(&sky, 0.0, 0.0, 0.0);
    let exact = solve(time(), &measured, None, &options).unwrap();
    let expected: f64 = (0..3).map(|n| exact.covariance[n][n]).sum();
    let deviation = |ephemeris: &Ephemeris| {
        let used = exact.satellites.iter().find(|s| s.satellite == ephemeris.satellite).unwrap();
        let thermal = 207.0_f64.powi(2) * 10.0_f64.powf(-4.5);
        (thermal
            + ephemeris.accuracy_metres().unwrap().powi(2)
            + (0.5 / used.direction.elevation.sin()).powi(2))
        .sqrt()
    };
    // Independent errors of one satellite at a time: their effects add up as the covariance says.
    let variance: f64 = (0..measured.len())
        .map(|n| {
            let mut wrong = measured.clone();
            wrong[n].pseudorange_metres += deviation(wrong[n].ephemeris);
            let solution = solve(time(), &wrong, None, &options).unwrap();
            error_metres(solution.position).powi(2)
        })
        .sum();
    assert!((variance / expected - 1.0).abs() < 1e-2, "{variance} {expected}");
}

#[test]
fn low_and_unhealthy_satellites_are_not_used() {
    let mut sky = sky();
    sky.iter_mut().step_by(7).for_each(|ephemeris| ephemeris.health = 63);
    let measured = measurements(&sky, 0.0, 0.0, 0.0);
    let mask = 25.0_f64.to_radians();
    let options = Options { elevation_mask: mask, ..Options::default() };
    let solution = solve(time(), &measured, None, &options).unwrap();
    assert!(error_metres(solution.position) < 1e-3);
    for (used, measured) in solution.satellites.iter().zip(&measured) {
        let expected = used.direction.elevation >= mask && measured.ephemeris.health == 0;
        assert_eq!(used.is_used, expected, "{}", used.satellite);
    }
}

#[test]
fn time_of_reception_is_found_from_ranges() {
    let sky = sky();
    let measured = measurements(&sky, 0.0, 0.0, 0.0);
    // The satellites are computed for an instant 0.4 s late.
    let late = time().plus_seconds(0.4).unwrap();
    let options = Options { time_uncertainty: 10.0, ..Options::default() };
    let solution = solve(late, &measured, Some(place().itrf_metres()), &options).unwrap();
    assert!(error_metres(solution.position) < 0.5, "{}", error_metres(solution.position));
    assert!((solution.time.seconds_since(time())).abs() < 1e-3);
}

#[test]
fn code_phases_give_the_position_without_a_message() {
    let sky = sky();
    let exact = measurements(&sky, 0.0, 0.0, 0.0);
    // A receiver whose clock is 0.9 s late, and which believes to be 60 km away.
    let late = time().plus_seconds(0.9).unwrap();
    let guess = place().enu_to_itrf([50e3, -30e3, 10e3]);
    let guess: [f64; 3] = std::array::from_fn(|n| place().itrf_metres()[n] + guess[n]);
    let phase = |m: &Measurement<'_>| {
        let is_galileo = m.ephemeris.satellite.constellation.letter() == 'E';
        let period_milliseconds = if is_galileo { 4 } else { 1 };
        let shown = time().plus_seconds(-m.pseudorange_metres / SPEED_OF_LIGHT).unwrap();
        let picoseconds = shown.to_gps().1 % (u64::from(period_milliseconds) * 1_000_000_000);
        (period_milliseconds, 1e-12 * picoseconds as f64)
    };
    let phases: Vec<CodePhase<'_>> = exact
        .iter()
        .map(|m| CodePhase {
            ephemeris: m.ephemeris,
            period_milliseconds: phase(m).0,
            phase_seconds: phase(m).1,
            rate_metres_per_second: m.rate_metres_per_second,
            cn0_db_hz: m.cn0_db_hz,
        })
        .collect();
    let measured = coarse::measurements(&phases, late, guess);
    assert_eq!(measured.len(), exact.len());
    let options = Options { time_uncertainty: 2.0, ..Options::default() };
    let solution = solve(late, &measured, Some(guess), &options).unwrap();
    // The orbits bend by half a metre in a second.
    assert!(error_metres(solution.position) < 2.0, "{}", error_metres(solution.position));
    assert!(solution.time.seconds_since(time()).abs() < 0.01);
    assert_eq!(solution.raim, Raim::Passed);
    // Once more from there.
    let measured = coarse::measurements(&phases, solution.time, solution.position);
    let again = solve(solution.time, &measured, Some(solution.position), &options).unwrap();
    assert!(error_metres(again.position) < 0.01, "{}", error_metres(again.position));
}

#[test]
fn satellites_that_determine_no_position_are_errors() {
    let sky = sky();
    let measured = measurements(&sky, 0.0, 0.0, 0.0);
    let options = Options::default();
    let is_few = |result: Result<_, SolveError>| matches!(result, Err(SolveError::Few { .. }));
    assert!(is_few(solve(time(), &measured[..3], None, &options)));
    assert!(is_few(solve(time(), &[], None, &options)));
    let same = [measured[1]; 6];
    assert_eq!(solve(time(), &same, None, &options), Err(SolveError::Geometry));
    let mut nan = measured.clone();
    nan.iter_mut().for_each(|m| m.pseudorange_metres = f64::NAN);
    assert!(solve(time(), &nan, None, &options).is_err());
    let mut far = measured;
    far.iter_mut().for_each(|m| m.pseudorange_metres *= 0.2);
    assert!(solve(time(), &far, None, &options).is_err());
}

#[test]
fn chi_square_limits_are_those_of_scipy() {
    for (freedom, probability, expected) in [
        (1, 1e-3, 10.828),
        (1, 1e-5, 19.511),
        (2, 1e-5, 23.026),
        (4, 1e-5, 28.473),
        (8, 1e-3, 26.124),
        (8, 1e-7, 47.972),
        (20, 1e-5, 59.045),
    ] {
        let limit = chi_square_limit(freedom, probability);
        assert!((limit / expected - 1.0).abs() < 0.05, "{freedom}: {limit} {expected}");
    }
}
