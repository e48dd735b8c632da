//! Writer of observation files, version 3.04.

use super::columns::gps_date;
use super::writing::{header_line, identity};
use crate::ephemeris::{Constellation, SatelliteId};
use fxgraph_time::Time;
use std::fmt::Write as _;

/// Observations of a satellite on L1 or E1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Satellite.
    pub satellite: SatelliteId,
    /// Pseudorange in metres (C1C, C1B).
    pub pseudorange_metres: f64,
    /// Phase of the carrier in cycles, which grows with the pseudorange (L1C, L1B); `None` without a lock.
    pub carrier_cycles: Option<f64>,
    /// Whether the phase may have slipped since the epoch before.
    pub has_slipped: bool,
    /// Whether the sign of the carrier is not known yet: the phase is ambiguous by half a cycle.
    pub is_half_ambiguous: bool,
    /// Doppler shift in Hz, positive while the satellite approaches (D1C, D1B).
    pub doppler_hz: f64,
    /// Ratio of carrier power to noise power density in dB Hz (S1C, S1B).
    pub cn0_db_hz: f64,
}

/// Observation codes of the systems, as the headers list them.
const TYPES: [(Constellation, &str); 3] = [
    (Constellation::Gps, "C1C L1C D1C S1C"),
    (Constellation::Galileo, "C1B L1B D1B S1B"),
    (Constellation::Qzss, "C1C L1C D1C S1C"),
];

/// Returns the header of a file whose first epoch is `first`, with an approximate position in metres along the axes of
/// ITRF, and seconds from epoch to epoch.
#[must_use]
pub fn observation_header(
    program: &str,
    first: Time,
    position: [f64; 3],
    interval_seconds: f64,
) -> String {
    let mut text = String::new();
    let mut line = |content: &str, label: &str| text += &header_line(content, label);
    line("     3.04           OBSERVATION DATA    M", "RINEX VERSION / TYPE");
    line(&identity(program), "PGM / RUN BY / DATE");
    line("fxgraph", "MARKER NAME");
    line("", "OBSERVER / AGENCY");
    line(&format!("{:20}{:20}", "", program), "REC # / TYPE / VERS");
    line("", "ANT # / TYPE");
    let [x, y, z] = position;
    line(&format!("{x:14.4}{y:14.4}{z:14.4}"), "APPROX POSITION XYZ");
    line(&format!("{:14.4}{:14.4}{:14.4}", 0.0, 0.0, 0.0), "ANTENNA: DELTA H/E/N");
    for (constellation, types) in TYPES {
        line(&format!("{}    4 {types}", constellation.letter()), "SYS / # / OBS TYPES");
    }
    line(&format!("{interval_seconds:10.3}"), "INTERVAL");
    let ([year, month, day, hour, minute], second) = gps_date(first);
    let epoch = format!("{year:6}{month:6}{day:6}{hour:6}{minute:6}{second:13.7}     GPS");
    line(&epoch, "TIME OF FIRST OBS");
    for (constellation, types) in TYPES {
        line(&format!("{} {}", constellation.letter(), &types[4..7]), "SYS / PHASE SHIFT");
    }
    line("  0", "GLONASS SLOT / FRQ #");
    line(" C1C    0.000 C1P    0.000 C2C    0.000 C2P    0.000", "GLONASS COD/PHS/BIS");
    line("", "END OF HEADER");
    text
}

/// Appends the epoch at `time` of the receiver's clock, whose offset is `clock_seconds`.
pub fn observation_epoch(
    text: &mut String,
    time: Time,
    clock_seconds: f64,
    observations: &[Observation],
) {
    // Rounded to the 0.1 us of the line first: a line never has 60 s.
    let (whole, picoseconds) = time.to_gps();
    let ticks = (picoseconds + 50_000) / 100_000;
    let rounded =
        Time::from_gps(whole, 0).and_then(|t| t.plus_picoseconds(i128::from(ticks) * 100_000));
    let ([year, month, day, hour, minute], second) = gps_date(rounded.unwrap_or(time));
    let count = observations.len().min(999);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "> {year:04} {month:02} {day:02} {hour:02} {minute:02}{second:11.7}  0{count:3}      {:15.12}",
        fitting(clock_seconds, 99.0),
    );
    for observation in &observations[..count] {
        let Observation { satellite, pseudorange_metres, doppler_hz, cn0_db_hz, .. } = observation;
        let mut line = format!("{satellite}{}", field(*pseudorange_metres));
        match observation.carrier_cycles {
            Some(cycles) => {
                // Lock indicator: bit 0 a slip, bit 1 half a cycle.
                let indicator = u8::from(observation.has_slipped)
                    | u8::from(observation.is_half_ambiguous) << 1;
                let mut carrier = field(cycles);
                carrier.truncate(14);
                line += &carrier;
                line.push(if indicator == 0 { ' ' } else { char::from(b'0' + indicator) });
                line.push(strength(*cn0_db_hz));
            }
            None => line += &" ".repeat(16),
        }
        line += &field(*doppler_hz);
        line += &field(*cn0_db_hz);
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn fitting(value: f64, most: f64) -> f64 {
    if value.is_finite() { value.clamp(-most, most) } else { 0.0 }
}

/// A value in 14 columns, and two blanks; blank if it does not fit.
fn field(value: f64) -> String {
    if value.abs() < 999_999_999.0 { format!("{value:14.3}  ") } else { " ".repeat(16) }
}

/// Signal strength from 1 to 9 (RINEX 3.04, 5.7): 6 dB Hz each.
fn strength(cn0_db_hz: f64) -> char {
    char::from(b'0' + (cn0_db_hz / 6.0).floor().clamp(1.0, 9.0) as u8)
}
