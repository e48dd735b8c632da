//! Orbits and positions with known answers.
#![allow(clippy::unwrap_used)]

mod filter;
mod ionosphere;
mod message_time;
mod nmea;
mod orbit;
mod solve;

use crate::ephemeris::{Ephemeris, Message, SatelliteId};

/// The orbit of a GPS satellite; satellites of the same plane follow at `anomaly`.
pub fn orbit(satellite: SatelliteId, node: f64, anomaly: f64) -> Ephemeris {
    Ephemeris {
        satellite,
        message: Message::Lnav,
        week: 2190,
        toe_seconds: 518_400.0,
        toc_seconds: 518_384.0,
        transmission_seconds: 511_218.0,
        iode: 39,
        iodc: 39,
        sqrt_a: 5153.6,
        eccentricity: 0.0112,
        mean_anomaly: anomaly,
        mean_motion_difference: 3.988e-9,
        semi_major_axis_rate: 0.0,
        mean_motion_rate: 0.0,
        perigee: 0.884,
        node,
        node_rate: -8.13e-9,
        inclination: 0.9864,
        inclination_rate: -3.78e-10,
        cuc: -7.36e-6,
        cus: 4.70e-6,
        crc: 299.75,
        crs: -141.125,
        cic: -3.17e-8,
        cis: 1.96e-7,
        af0: 4.69e-4,
        af1: -1.0e-11,
        af2: 1e-18,
        group_delays: [5.12e-9, 0.0],
        health: 0,
        accuracy: 0,
        is_long_fit: false,
        codes_on_l2: 1,
        l2_p_data_off: false,
    }
}
