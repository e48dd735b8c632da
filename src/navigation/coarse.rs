//! Pseudoranges from code phases alone, for a first position before any message is decoded: with ephemerides, a rough time
//! and a rough position are known the number of whole code periods on the way.
//!
//! The result is right if the position is known within half of the shortest period times the speed of light (150 km for
//! codes of 1 ms), less 1 km for each second of error in the time (van Diggelen, A-GPS, 2009, chapter 4).

use crate::ephemeris::Ephemeris;
use crate::orbit::SPEED_OF_LIGHT;
use crate::solve::Measurement;
use fxgraph_time::Time;

const PICOSECONDS: f64 = 1e12;

/// Phase of a satellite's code at the time of reception.
#[derive(Clone, Copy, Debug)]
pub struct CodePhase<'a> {
    /// Ephemeris of the satellite.
    pub ephemeris: &'a Ephemeris,
    /// Period of the code in milliseconds.
    pub period_milliseconds: u32,
    /// Time since the start of the period, in seconds.
    pub phase_seconds: f64,
    /// Rate of the pseudorange in m/s.
    pub rate_metres_per_second: Option<f64>,
    /// Ratio of carrier power to noise power density.
    pub cn0_db_hz: f64,
}

/// Expected delay of a signal, and the remainder of the measured minus the expected one.
struct Expected {
    delay: f64,
    period: f64,
    remainder: f64,
    elevation: f64,
}

/// Returns the remainder of `value` that is nearest to `near`.
fn nearest(value: f64, period: f64, near: f64) -> f64 {
    value - period * ((value - near) / period).round()
}

impl Expected {
    fn new(phase: &CodePhase<'_>, received: Time, position: [f64; 3]) -> Option<Self> {
        let arrival = phase.ephemeris.arrival(received, position)?;
        let period = 1e-3 * f64::from(phase.period_milliseconds.max(1));
        let (seconds, picoseconds) = received.to_gps();
        let whole = i128::from(seconds) * PICOSECONDS as i128 + i128::from(picoseconds);
        let in_period =
            whole.rem_euclid((period * PICOSECONDS).round() as i128) as f64 / PICOSECONDS;
        // The satellite's clock is expected to show `in_period - delay`, and shows the phase.
        let remainder = nearest(in_period - arrival.delay - phase.phase_seconds, period, 0.0);
        let elevation = arrival.direction.elevation;
        remainder.is_finite().then_some(Self { delay: arrival.delay, period, remainder, elevation })
    }
}

/// Returns the measurements of all satellites, for the time `received`, which may be seconds wrong, and a rough `position`
/// in metres along the axes of ITRF.
#[must_use]
pub fn measurements<'a>(
    phases: &[CodePhase<'a>],
    received: Time,
    position: [f64; 3],
) -> Vec<Measurement<'a>> {
    let expected: Vec<_> =
        phases.iter().filter_map(|p| Some((p, Expected::new(p, received, position)?))).collect();
    // Errors of the time shift all delays alike: those of the others are near that of one satellite, whose code is least
    // ambiguous.
    let order = |e: &Expected| (e.period, e.elevation);
    let better = |a: &Expected, b: &Expected| order(a).partial_cmp(&order(b));
    let reference = expected
        .iter()
        .map(|(_, e)| e)
        .max_by(|a, b| better(a, b).unwrap_or(std::cmp::Ordering::Equal))
        .map_or(0.0, |e| e.remainder);
    let measurement = |(phase, e): &(&CodePhase<'a>, Expected)| Measurement {
        ephemeris: phase.ephemeris,
        pseudorange_metres: SPEED_OF_LIGHT * (e.delay + nearest(e.remainder, e.period, reference)),
        rate_metres_per_second: phase.rate_metres_per_second,
        cn0_db_hz: phase.cn0_db_hz,
    };
    expected.iter().map(measurement).collect()
}
