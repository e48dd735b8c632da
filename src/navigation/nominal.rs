//! A constellation of satellites that needs no file: for simulations at any time.

use crate::ephemeris::{Ephemeris, Message, SatelliteId, WEEK_SECONDS, week_of};
use fxgraph_time::Time;
use std::f64::consts::{PI, TAU};

/// Planes, and satellites of each.
const PLANES: u8 = 6;
const OF_PLANE: u8 = 5;
/// Reference times are multiples of two hours.
const INTERVAL_SECONDS: f64 = 7200.0;

/// Returns the angle from -pi to pi, the range of messages.
fn signed(angle: f64) -> f64 {
    (angle + PI).rem_euclid(TAU) - PI
}

/// Returns 30 GPS satellites in six planes, with ephemerides whose reference time is the multiple of two hours nearest to
/// `time`. Orbits have the size and inclination of GPS; where satellites are in them is that of no real one, and after two
/// hours the constellation is another one.
#[must_use]
pub fn constellation(time: Time) -> Vec<Ephemeris> {
    let (week, seconds) = week_of(time);
    let reference = (seconds / INTERVAL_SECONDS).round() * INTERVAL_SECONDS;
    let is_next = reference >= WEEK_SECONDS as f64;
    let toe_seconds = if is_next { 0.0 } else { reference };
    let satellite = |n: u8| {
        let plane = f64::from(n % PLANES);
        let anomaly = f64::from(n / PLANES) * TAU / f64::from(OF_PLANE) + 0.35 * plane;
        Ephemeris {
            satellite: SatelliteId::gps(n + 1),
            message: Message::Lnav,
            week: week + u32::from(is_next),
            toe_seconds,
            toc_seconds: toe_seconds,
            transmission_seconds: 0.0,
            iode: 1,
            iodc: 1,
            sqrt_a: 5153.6,
            eccentricity: 0.01,
            mean_anomaly: signed(anomaly),
            mean_motion_difference: 4.5e-9,
            mean_motion_rate: 0.0,
            semi_major_axis_rate: 0.0,
            perigee: 0.884,
            node: signed(plane * TAU / f64::from(PLANES)),
            node_rate: -8.1e-9,
            inclination: 0.96,
            inclination_rate: -3.8e-10,
            cuc: -1.0e-6,
            cus: 5.0e-6,
            crc: 250.0,
            crs: -50.0,
            cic: -3.0e-8,
            cis: 1.0e-7,
            af0: 1e-5 * (f64::from(n) - 15.0),
            af1: -1e-11,
            af2: 0.0,
            group_delays: [-5e-9, 0.0],
            health: 0,
            accuracy: 0,
            is_long_fit: false,
            codes_on_l2: 1,
            l2_p_data_off: false,
        }
    };
    (0..PLANES * OF_PLANE).map(satellite).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::ephemeris::time_of_week;
    use fxgraph_time::sky::Place;

    #[test]
    fn a_position_is_possible_everywhere_at_any_time() {
        for seconds in [10.0, 302_400.0, 604_790.0] {
            let time = time_of_week(2190, seconds).unwrap();
            let all = constellation(time);
            for latitude in [-1.5, -0.6, 0.0, 0.84, 1.5] {
                for longitude in [-2.0, 0.2, 3.0] {
                    let place = Place { latitude, longitude, height_metres: 0.0 };
                    let is_up = |ephemeris: &&Ephemeris| {
                        let arrival = ephemeris.arrival(time, place.itrf_metres()).unwrap();
                        arrival.direction.elevation > 15.0_f64.to_radians()
                    };
                    let up = all.iter().filter(is_up).count();
                    assert!(up >= 5, "{latitude} {longitude}: {up}");
                }
            }
        }
    }
}
