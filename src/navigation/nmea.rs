//! Sentences of NMEA 0183: GGA, RMC, GSA and GSV.

use crate::ephemeris::{Constellation, SatelliteId};
use crate::solve::{Dops, Used};
use fxgraph_time::Time;
use fxgraph_time::sky::Place;
use std::fmt::Write as _;

/// Satellites in a GSA sentence, and in a GSV sentence.
const GSA_SATELLITES: usize = 12;
const GSV_SATELLITES: usize = 4;
/// Sentences of one GSV group have numbers of one digit.
const MAX_GSV: usize = 9 * GSV_SATELLITES;
const KNOT_METRES_PER_SECOND: f64 = 1852.0 / 3600.0;

/// A position to report.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Time of the position.
    pub time: Time,
    /// Position; `None` without a fix.
    pub place: Option<Place>,
    /// Velocity east, north and up in metres per second, if it is known.
    pub velocity: Option<[f64; 3]>,
    /// Dilution of precision.
    pub dops: Dops,
    /// Satellites, each with its C/N0 in dB Hz.
    pub satellites: &'a [(Used, f64)],
}

/// Appends a sentence with its checksum.
fn sentence(text: &mut String, content: &str) {
    let checksum = content.bytes().fold(0, |sum, byte| sum ^ byte);
    // Writing to a string cannot fail.
    let _ = write!(text, "${content}*{checksum:02X}\r\n");
}

/// Degrees and minutes of an angle in radians, with `digits` for the degrees, and its hemisphere.
fn angle(radians: f64, digits: usize, hemispheres: [char; 2]) -> String {
    let hemisphere = hemispheres[usize::from(radians < 0.0)];
    // In units of 1e-5 minutes, so that 60 minutes are a degree.
    let units = (radians.abs().to_degrees() * 6e6).round() as u64;
    let (degrees, minutes) = (units / 6_000_000, (units % 6_000_000) as f64 * 1e-5);
    format!("{degrees:0digits$}{minutes:08.5},{hemisphere}")
}

/// Latitude and longitude; empty fields without a position.
fn position(place: Option<&Place>) -> String {
    place.map_or_else(
        || ",,,".to_owned(),
        |place| {
            let latitude = angle(place.latitude, 2, ['N', 'S']);
            format!("{latitude},{}", angle(place.longitude, 3, ['E', 'W']))
        },
    )
}

/// Time of day in UTC to the hundredth of a second, and the date.
fn clock(time: Time) -> (String, String) {
    // Rounded down, so that the second stays in its minute.
    let utc = time.to_utc();
    let hundredths = utc.picoseconds / 10_000_000_000;
    (
        format!("{:02}{:02}{:02}.{hundredths:02}", utc.hour, utc.minute, utc.second),
        format!("{:02}{:02}{:02}", utc.day, utc.month, utc.year % 100),
    )
}

fn dop(value: f64) -> f64 {
    // A receiver without a fix reports 99.99.
    if value > 0.0 && value < 99.99 { value } else { 99.99 }
}

/// Number of a satellite: that of its code for GPS and Galileo, 93 to 99 for QZSS (NMEA 4.11 numbers satellites within
/// their system).
fn number(id: SatelliteId) -> u32 {
    let offset = if id.constellation == Constellation::Qzss { 92 } else { 0 };
    offset + u32::from(id.prn)
}

/// Talker of the sentences about a system, and its number in GSA.
const SYSTEMS: [(Constellation, &str, u8); 3] = [
    (Constellation::Gps, "GP", 1),
    (Constellation::Galileo, "GA", 3),
    (Constellation::Qzss, "GQ", 5),
];

impl Report<'_> {
    /// Appends the sentences GGA, RMC, GSA and GSV.
    pub fn write(&self, text: &mut String) {
        self.gga(text);
        self.rmc(text);
        for (constellation, talker, system) in SYSTEMS {
            self.gsa(text, constellation, system);
            self.gsv(text, constellation, talker);
        }
    }

    fn of(&self, constellation: Constellation) -> impl Iterator<Item = &(Used, f64)> {
        self.satellites
            .iter()
            .filter(move |(used, _)| used.satellite.constellation == constellation)
    }

    fn gga(&self, text: &mut String) {
        let (time, _) = clock(self.time);
        let used = self.satellites.iter().filter(|(used, _)| used.is_used).count();
        let quality = u8::from(self.place.is_some());
        // The height is that above the ellipsoid: separation of the geoid 0.
        let height =
            self.place.map_or(String::new(), |place| format!("{:.3}", place.height_metres));
        let content = format!(
            "GNGGA,{time},{},{quality},{:02},{:.2},{height},M,0.0,M,,",
            position(self.place.as_ref()),
            used.min(99),
            dop(self.dops.horizontal),
        );
        sentence(text, &content);
    }

    fn rmc(&self, text: &mut String) {
        let (time, date) = clock(self.time);
        let (status, mode) = if self.place.is_some() { ('A', 'A') } else { ('V', 'N') };
        let motion = self.velocity.map_or(",".to_owned(), |[east, north, _]| {
            let knots = east.hypot(north) / KNOT_METRES_PER_SECOND;
            let course = east.atan2(north).to_degrees().rem_euclid(360.0);
            format!("{:.3},{course:.2}", knots.min(9999.0))
        });
        let place = position(self.place.as_ref());
        sentence(text, &format!("GNRMC,{time},{status},{place},{motion},{date},,,{mode},V"));
    }

    fn gsa(&self, text: &mut String, constellation: Constellation, system: u8) {
        let used: Vec<u32> = self
            .of(constellation)
            .filter(|(used, _)| used.is_used)
            .map(|(used, _)| number(used.satellite))
            .take(GSA_SATELLITES)
            .collect();
        if used.is_empty() {
            return;
        }
        let satellites: String = (0..GSA_SATELLITES)
            .map(|n| used.get(n).map_or(",".to_owned(), |number| format!("{number:02},")))
            .collect();
        let Dops { position, horizontal, vertical, .. } = self.dops;
        let content = format!(
            "GNGSA,A,3,{satellites}{:.2},{:.2},{:.2},{system}",
            dop(position),
            dop(horizontal),
            dop(vertical)
        );
        sentence(text, &content);
    }

    fn gsv(&self, text: &mut String, constellation: Constellation, talker: &str) {
        let seen: Vec<_> = self.of(constellation).take(MAX_GSV).collect();
        let count = seen.len().div_ceil(GSV_SATELLITES);
        for (n, group) in seen.chunks(GSV_SATELLITES).enumerate() {
            let mut content = format!("{talker}GSV,{count},{},{:02}", n + 1, seen.len());
            for (used, cn0_db_hz) in group {
                let elevation = used.direction.elevation.to_degrees().round().clamp(-90.0, 90.0);
                let azimuth = used.direction.azimuth.to_degrees().round().rem_euclid(360.0);
                let strength = cn0_db_hz.round().clamp(0.0, 99.0);
                let id = number(used.satellite);
                content += &format!(",{id:02},{elevation:02},{azimuth:03},{strength:02}");
            }
            // Signal L1 C/A of GPS and QZSS, E1 of Galileo.
            content += if constellation == Constellation::Galileo { ",7" } else { ",1" };
            sentence(text, &content);
        }
    }
}
