//! Positions through an ionosphere whose model is received late or never.

use crate::atmosphere::{AzEl, Ionosphere, troposphere_metres};
use crate::ephemeris::{Ephemeris, Klobuchar, time_of_week};
use crate::filter::{Dynamics, Filter};
use crate::nominal::constellation;
use crate::orbit::{SPEED_OF_LIGHT, minus, norm};
use crate::solve::{Measurement, Options, Raim, solve};
use fxgraph_time::Time;
use fxgraph_time::sky::Place;

/// Model of 1 January 2022 (IGS, `brdc0010.22n`).
const MODEL: Klobuchar = Klobuchar {
    alpha: [1.211e-8, -7.451e-9, -5.960e-8, 1.192e-7],
    beta: [1.167e5, -2.458e5, -6.554e4, 1.114e6],
};
/// Seconds of an epoch before the reference time of the satellites.
const DAY: f64 = 86_400.0;

fn place() -> Place {
    Place { latitude: 0.84, longitude: 0.19, height_metres: 500.0 }
}

fn at(seconds: f64) -> Time {
    time_of_week(2190, 5.0 * DAY + seconds).unwrap()
}

/// Exact measurements above 10 degrees, behind the troposphere and `scale` times the ionosphere of the model.
fn measurements(sky: &[Ephemeris], time: Time, scale: f64) -> Vec<Measurement<'_>> {
    let measure = |ephemeris| {
        let arrival = Ephemeris::arrival(ephemeris, time, place().itrf_metres())?;
        let direction: AzEl = arrival.direction;
        let delay = troposphere_metres(&place(), direction)
            + scale * MODEL.delay_metres(&place(), direction, time);
        (direction.elevation > 10.0_f64.to_radians()).then_some(Measurement {
            ephemeris,
            pseudorange_metres: SPEED_OF_LIGHT * arrival.delay + delay,
            rate_metres_per_second: None,
            cn0_db_hz: 45.0,
        })
    };
    sky.iter().filter_map(measure).collect()
}

/// Errors east, north and up in standard deviations, and their length in metres.
fn errors(position: [f64; 3], covariance: &[[f64; 3]; 3]) -> ([f64; 3], f64) {
    let error = minus(position, place().itrf_metres());
    let enu = place().itrf_to_enu(error);
    let axes = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let deviations = std::array::from_fn(|n| {
        let axis = place().enu_to_itrf(axes[n]);
        let row = |i: usize| (0..3).map(|j| covariance[i][j] * axis[j]).sum::<f64>();
        enu[n] / (0..3).map(|i| axis[i] * row(i)).sum::<f64>().sqrt()
    });
    (deviations, norm(error))
}

#[test]
fn deviations_contain_an_ionosphere_without_a_model() {
    let options = Options { ionosphere: Ionosphere::Unknown, ..Options::default() };
    let (mut squares, mut count) = (0.0, 0.0);
    for hour in 0..24 {
        let time = at(3600.0 * f64::from(hour));
        let sky = constellation(time);
        for scale in [0.0, 1.0, 2.0] {
            let measured = measurements(&sky, time, scale);
            let solution = solve(time, &measured, None, &options).unwrap();
            assert!(matches!(solution.raim, Raim::Passed | Raim::Unavailable), "hour {hour}");
            let (deviations, metres) = errors(solution.position, &solution.covariance);
            let largest = deviations.into_iter().map(f64::abs).fold(0.0, f64::max);
            assert!(largest < 2.0, "hour {hour}, {scale} times: {deviations:?}, {metres} m");
            squares += deviations.into_iter().map(|d| d.powi(2)).sum::<f64>();
            count += 3.0;
            let ignored = solve(time, &measured, None, &Options::default()).unwrap();
            let of_ignored = norm(minus(ignored.position, place().itrf_metres()));
            assert!(scale < 2.0 || metres < of_ignored, "hour {hour}: {metres} {of_ignored}");
        }
    }
    // Noise and orbits, which are exact here, have a part in the deviations.
    let rms = f64::sqrt(squares / count);
    assert!((0.1..1.0).contains(&rms), "{rms}");
}

#[test]
fn error_of_a_model_is_found_by_the_filter_and_a_new_model_replaces_it() {
    let start = at(14.0 * 3600.0);
    let sky = constellation(start);
    let dynamics = Dynamics { acceleration: 1e-3, ..Dynamics::default() };
    let mut filter = Filter::new(dynamics);
    let mut error = |n: u32, ionosphere: Ionosphere| {
        let time = start.plus_seconds(f64::from(n)).unwrap();
        let options = Options { ionosphere, ..Options::default() };
        let measured = measurements(&sky, time, 1.0);
        if !filter.has_started() {
            filter.start(time, &solve(time, &measured, None, &options).unwrap().estimate());
        }
        assert_eq!(filter.update(time, &measured, &options), measured.len());
        let (deviations, metres) =
            errors(filter.estimate().position, &filter.position_covariance());
        assert!(deviations.into_iter().all(|d| d.abs() < 2.0), "epoch {n}: {deviations:?}");
        (metres, (0..3).map(|n| filter.position_covariance()[n][n]).sum::<f64>().sqrt())
    };
    let first = error(0, Ionosphere::Unknown);
    let last = (1..300).map(|n| error(n, Ionosphere::Unknown)).last().unwrap();
    assert!(last.0 < 0.7 * first.0 && last.1 < 0.9 * first.1, "{first:?} {last:?}");
    let modelled = error(300, Ionosphere::Broadcast(MODEL));
    assert!(modelled.0 < 0.7 * last.0 && modelled.1 < last.1, "{last:?} {modelled:?}");
    let later = (301..360).map(|n| error(n, Ionosphere::Broadcast(MODEL))).last().unwrap();
    assert!(later.0 < last.0, "{last:?} {later:?}");
}
