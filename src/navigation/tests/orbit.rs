//! Orbits against NumPy: rotations of the plane of the orbit into an inertial frame and of that with the Earth, Kepler's
//! equation by bisection, velocities by differences.

use super::orbit;
use crate::atmosphere::{AzEl, troposphere_metres};
use crate::ephemeris::{Klobuchar, Message, SatelliteId, time_of_week, week_of};
use fxgraph_time::sky::Place;

fn assert_close(a: [f64; 3], b: [f64; 3], most: f64) {
    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < most), "{a:?} {b:?}");
}

#[test]
fn states_are_those_of_rotated_ellipses() {
    let cases = [
        (
            SatelliteId::gps(1),
            514_800.0,
            [13_053_211.744_7, -22_137_439.708_8, -6_218_901.396_7],
            [651.18959, -445.70768, 3123.21428],
            4.690_594e-4,
        ),
        (
            SatelliteId::gps(1),
            523_400.25,
            [13_052_004.986_0, -13_541_329.368_2, 18_331_720.367_6],
            [-22.07003, 2395.39395, 1791.72987],
            4.689_471e-4,
        ),
        (
            SatelliteId::galileo(1),
            514_800.0,
            [13_053_212.340_2, -22_137_439.575_7, -6_218_900.575_9],
            [651.18936, -445.70764, 3123.21408],
            4.690_594e-4,
        ),
    ];
    for (satellite, seconds, position, velocity, clock) in cases {
        let ephemeris = orbit(satellite, -1.0366, -0.6242);
        let at = |seconds: f64| ephemeris.state(time_of_week(2190, seconds).unwrap()).unwrap();
        let state = at(seconds);
        assert_close(state.position, position, 2e-4);
        assert_close(state.velocity, velocity, 2e-5);
        assert!((state.clock - clock).abs() < 1e-10, "{}", state.clock);
        let rate = (at(seconds + 50.0).clock - at(seconds - 50.0).clock) / 100.0;
        assert!((state.clock_rate - rate).abs() < 1e-15, "{} {rate}", state.clock_rate);
    }
}

#[test]
fn reference_times_are_in_the_nearest_week() {
    let mut ephemeris = orbit(SatelliteId::gps(1), 0.0, 0.0);
    ephemeris.toe_seconds = 0.0;
    ephemeris.toc_seconds = 604_784.0;
    assert_eq!(week_of(ephemeris.toc().unwrap()), (2189, 604_784.0));
    ephemeris.toe_seconds = 604_784.0;
    ephemeris.toc_seconds = 0.0;
    assert_eq!(week_of(ephemeris.toc().unwrap()), (2191, 0.0));
}

#[test]
fn elements_of_no_orbit_have_no_state() {
    let good = orbit(SatelliteId::gps(1), 0.0, 0.0);
    let now = good.toe().unwrap();
    assert!(good.state(now).is_some());
    assert!(good.state(now.plus_seconds(14_401.0).unwrap()).is_none());
    for bad in [
        crate::Ephemeris { sqrt_a: 0.0, ..good },
        crate::Ephemeris { eccentricity: 1.0, ..good },
        crate::Ephemeris { node: f64::NAN, ..good },
        crate::Ephemeris { toe_seconds: f64::INFINITY, ..good },
        crate::Ephemeris { week: u32::MAX, ..good },
    ] {
        assert!(bad.state(now).is_none(), "{bad:?}");
    }
}

#[test]
fn galileo_has_a_group_delay_for_each_message() {
    let mut ephemeris = orbit(SatelliteId::galileo(1), 0.0, 0.0);
    ephemeris.group_delays = [1e-9, 2e-9];
    for (message, delay) in [(Message::Fnav, 1e-9), (Message::Inav, 2e-9)] {
        ephemeris.message = message;
        assert!((ephemeris.single_frequency_delay() - delay).abs() < 1e-24);
    }
}

#[test]
fn atmosphere_is_that_of_its_models() {
    let place = Place {
        latitude: 40.0_f64.to_radians(),
        longitude: -100.0_f64.to_radians(),
        height_metres: 0.0,
    };
    let towards = |azimuth: f64, elevation: f64| AzEl {
        azimuth: azimuth.to_radians(),
        elevation: elevation.to_radians(),
    };
    let model = Klobuchar {
        alpha: [3.82e-8, 1.49e-8, -1.79e-7, 0.0],
        beta: [1.43e5, 0.0, -3.28e5, 1.13e5],
    };
    // RTKLIB's `ionmodel`, by day and by night, and `tropmodel` with a humidity of 70 %.
    for (azimuth, elevation, seconds, expected) in
        [(210.0, 20.0, 74_700.0, 23.784_147_585), (30.0, 60.0, 10_800.0, 4.959_788_048)]
    {
        let time = time_of_week(2190, seconds).unwrap();
        let metres = model.delay_metres(&place, towards(azimuth, elevation), time);
        assert!((metres - expected).abs() < 1e-6, "{metres} m");
    }
    for (height_metres, elevation, expected) in
        [(0.0, 90.0, 2.428_521_373), (0.0, 20.0, 7.100_521_476), (1086.6, 35.0, 3.667_546_328)]
    {
        let place = Place { height_metres, ..place };
        let metres = troposphere_metres(&place, towards(0.0, elevation));
        assert!((metres - expected).abs() < 1e-4, "{metres} m");
    }
    assert!(troposphere_metres(&place, towards(0.0, -1.0)).abs() < 1e-12);
}
