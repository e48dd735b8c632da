//! Writer of navigation files, version 3.04.

use super::columns::{gps_date, number, scientific};
use super::navigation::Navigation;
use crate::ephemeris::{Constellation, Ephemeris, Message};
use fxgraph_time::Time;
use std::fmt::Write as _;

/// A line of a header: content in 60 columns, label in 20.
pub fn header_line(content: &str, label: &str) -> String {
    let content: String = content.chars().take(60).collect();
    format!("{content:60}{label:20}\n")
}

/// Program and present date.
pub fn identity(program: &str) -> String {
    let utc = Time::now().to_utc();
    let date = format!(
        "{:04}{:02}{:02} {:02}{:02}{:02} UTC",
        utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second
    );
    format!("{program:20.20}{:20}{date:20}", "")
}

/// Returns the text of a navigation file.
#[must_use]
pub fn navigation_file(program: &str, navigation: &Navigation) -> String {
    let mut text =
        header_line("     3.04           N: GNSS NAV DATA    M: MIXED", "RINEX VERSION / TYPE");
    text += &header_line(&identity(program), "PGM / RUN BY / DATE");
    let four = |name: &str, values: [f64; 4]| {
        let values: String = values.iter().map(|value| number(*value, 4, 12)).collect();
        header_line(&format!("{name:4} {values}"), "IONOSPHERIC CORR")
    };
    if let Some(klobuchar) = navigation.klobuchar {
        text += &four("GPSA", klobuchar.alpha);
        text += &four("GPSB", klobuchar.beta);
    }
    if let Some(ne_quick) = navigation.ne_quick {
        let [a, b, c] = ne_quick.ionisation;
        text += &four("GAL", [a, b, c, 0.0]);
    }
    if let Some(utc) = navigation.utc {
        let content = format!(
            "GPUT {}{}{:7}{:5}",
            number(utc.a0, 10, 17),
            number(utc.a1, 9, 16),
            utc.reference_seconds.clamp(0.0, 604_800.0),
            utc.reference_week.min(9999),
        );
        text += &header_line(&content, "TIME SYSTEM CORR");
        let leaps = format!(
            "{:6}{:6}{:6}{:6}",
            utc.leap_seconds,
            utc.leap_seconds_after,
            utc.leap_week.min(9999),
            utc.leap_day
        );
        text += &header_line(&leaps, "LEAP SECONDS");
    }
    text += &header_line("", "END OF HEADER");
    for ephemeris in &navigation.ephemerides {
        record(&mut text, ephemeris);
    }
    text
}

/// Appends the record of an ephemeris; nothing if its times are no instants.
fn record(text: &mut String, ephemeris: &Ephemeris) {
    let Some(toc) = ephemeris.toc() else { return };
    let ([year, month, day, hour, minute], second) = gps_date(toc);
    let e = ephemeris;
    let is_galileo = e.satellite.constellation == Constellation::Galileo;
    let [first_delay, second_delay] = e.group_delays;
    let sources = match e.message {
        // Messages of E1-B and E5b, clock of both; message of E5a, clock of E1 and E5a.
        Message::Inav => 0b10_0000_0101,
        Message::Fnav => 0b01_0000_0010,
        Message::Lnav | Message::Cnav => e.codes_on_l2,
    };
    let fit = if e.is_long_fit { 6.0 } else { 4.0 };
    // Without an estimate the accuracy is -1 for Galileo; the largest index of GPS means more than 6144 m.
    let accuracy = e.accuracy_metres().unwrap_or(if is_galileo { -1.0 } else { 8192.0 });
    let lines = [
        [f64::from(e.iode), e.crs, e.mean_motion_difference, e.mean_anomaly],
        [e.cuc, e.eccentricity, e.cus, e.sqrt_a],
        [e.toe_seconds, e.cic, e.node, e.cis],
        [e.inclination, e.crc, e.perigee, e.node_rate],
        [
            e.inclination_rate,
            f64::from(sources),
            f64::from(e.week),
            f64::from(u8::from(e.l2_p_data_off)),
        ],
        [
            accuracy,
            f64::from(e.health),
            first_delay,
            if is_galileo { second_delay } else { f64::from(e.iodc) },
        ],
        [e.transmission_seconds, if is_galileo { 0.0 } else { fit }, 0.0, 0.0],
    ];
    let clock: String = [e.af0, e.af1, e.af2].into_iter().map(scientific).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} {year:04} {month:02} {day:02} {hour:02} {minute:02} {:02}{clock}",
        e.satellite, second as u32
    );
    for line in lines {
        let values: String = line.into_iter().map(scientific).collect();
        let _ = writeln!(text, "    {values}");
    }
}
