//! Reader of navigation files.

use super::columns::Line;
use super::{Fault, RinexError, header};
use crate::ephemeris::{
    Constellation, Ephemeris, Klobuchar, Message, NeQuick, SatelliteId, UtcParameters,
    WEEK_SECONDS, week_of,
};
use fxgraph_time::Time;

/// Lines of a record after the first one.
const ORBIT_LINES: usize = 7;

/// Content of a navigation file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Navigation {
    /// Ephemerides of GPS, Galileo and QZSS, in the order of the file.
    pub ephemerides: Vec<Ephemeris>,
    /// Model of the ionosphere by GPS.
    pub klobuchar: Option<Klobuchar>,
    /// Model of the ionosphere by Galileo.
    pub ne_quick: Option<NeQuick>,
    /// Relation of GPS time to UTC.
    pub utc: Option<UtcParameters>,
}

impl Navigation {
    /// Returns the plausible ephemeris of `satellite` whose reference time is nearest to `time`, and not more than
    /// [`MAX_AGE_SECONDS`](crate::orbit::MAX_AGE_SECONDS) from it; of two that are equally near, the later one of the file.
    #[must_use]
    pub fn nearest(&self, satellite: SatelliteId, time: Time) -> Option<&Ephemeris> {
        let newest_first = self.ephemerides.iter().rev();
        // The clock and health of F/NAV are those of E5a.
        let is_of_l1 = |e: &&Ephemeris| e.message != Message::Fnav;
        let all =
            newest_first.filter(is_of_l1).filter(|e| e.satellite == satellite && e.is_plausible());
        let apart = |e: &Ephemeris| e.toe().map_or(f64::MAX, |toe| time.seconds_since(toe).abs());
        let nearest = all.min_by(|a, b| apart(a).total_cmp(&apart(b)))?;
        (apart(nearest) <= crate::orbit::MAX_AGE_SECONDS).then_some(nearest)
    }

    /// Returns all satellites of the file, each once, in order.
    #[must_use]
    pub fn satellites(&self) -> Vec<SatelliteId> {
        let mut all: Vec<_> = self.ephemerides.iter().map(|e| e.satellite).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Reads a navigation file.
pub fn read_navigation(text: &str) -> Result<Navigation, RinexError> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(n, text)| Line { number: n + 1, text })
        .filter(|line| !line.text.trim().is_empty());
    let mut navigation = Navigation::default();
    let version = header::read(&mut lines, &mut navigation)?;
    let mut record: Vec<Line<'_>> = Vec::new();
    for line in lines {
        // In version 2 all lines may begin with blanks, and records of GPS have the same length.
        let begins = match version {
            2 => record.len() > ORBIT_LINES,
            _ => !line.text.starts_with(' '),
        };
        if begins {
            read_record(version, &record, &mut navigation)?;
            record.clear();
        }
        // Lines beyond those of any record are of systems that are skipped.
        if record.len() < 2 * ORBIT_LINES {
            record.push(line);
        }
    }
    read_record(version, &record, &mut navigation)?;
    Ok(navigation)
}

fn read_record(
    version: u32,
    record: &[Line<'_>],
    navigation: &mut Navigation,
) -> Result<(), RinexError> {
    let [first, lines @ ..] = record else { return Ok(()) };
    if first.text.starts_with('>') {
        // Version 4 names the type of the next record, which begins with a line of its own unless it is an ephemeris.
        return match (first.text(2, 3), first.text(6, 1), first.text(10, 4)) {
            ("ION", "G", "LNAV") => read_klobuchar(lines, navigation),
            ("ION", "E", "IFNV") => read_ne_quick(lines, navigation),
            _ => Ok(()),
        };
    }
    let letter = if version == 2 { Some('G') } else { first.text.chars().next() };
    let Some(constellation) = Constellation::ALL.into_iter().find(|c| Some(c.letter()) == letter)
    else {
        return Ok(());
    };
    let prn = if version == 2 { first.value(0, 2)? } else { first.value(1, 2)? };
    if !(1.0..100.0).contains(&prn) {
        return Err(first.error(Fault::Satellite));
    }
    let satellite = SatelliteId { constellation, prn: prn as u8 };
    let is_long_record = lines.len() > ORBIT_LINES;
    if version == 4 && is_long_record {
        // CNAV has other elements in more lines.
        return Ok(());
    }
    let (epoch, clock_at, orbit_at) = if version == 2 {
        (first.epoch([(3, 2), (6, 2), (9, 2), (12, 2), (15, 2), (17, 5)])?, 22, 3)
    } else {
        (first.epoch([(4, 4), (9, 2), (12, 2), (15, 2), (18, 2), (21, 2)])?, 23, 4)
    };
    let Some(orbit) = lines.get(..ORBIT_LINES) else {
        return Err(first.error(Fault::Short(ORBIT_LINES + 1)));
    };
    let mut clock = [0.0; 3];
    for (n, value) in clock.iter_mut().enumerate() {
        *value = first.value(clock_at + 19 * n, 19)?;
    }
    let mut values = [[0.0; 4]; ORBIT_LINES];
    for (line, values) in orbit.iter().zip(&mut values) {
        for (n, value) in values.iter_mut().enumerate() {
            *value = line.value(orbit_at + 19 * n, 19)?;
        }
    }
    navigation.ephemerides.push(ephemeris(satellite, epoch, clock, &values));
    Ok(())
}

/// Values of a record as an ephemeris; fields that do not fit their range become the largest value.
fn ephemeris(
    satellite: SatelliteId,
    epoch: Time,
    [af0, af1, af2]: [f64; 3],
    values: &[[f64; 4]; ORBIT_LINES],
) -> Ephemeris {
    let is_galileo = satellite.constellation == Constellation::Galileo;
    let [
        [iode, crs, mean_motion_difference, mean_anomaly],
        [cuc, eccentricity, cus, sqrt_a],
        [toe_seconds, cic, node, cis],
        [inclination, crc, perigee, node_rate],
        [inclination_rate, codes_on_l2, _, l2_p],
        [accuracy, health, delay, iodc_or_delay],
        [transmission, fit, _, _],
    ] = *values;
    // Files have the full week, the week modulo 1024, or that of Galileo: the epoch is always full.
    let (toc_week, toc_seconds) = week_of(epoch);
    let half = 0.5 * WEEK_SECONDS as f64;
    let later = u32::from(toc_seconds - toe_seconds > half);
    let earlier = u32::from(toe_seconds - toc_seconds > half);
    let message = match (is_galileo, codes_on_l2 as u16 & 2) {
        (false, _) => Message::Lnav,
        (true, 2) => Message::Fnav,
        (true, _) => Message::Inav,
    };
    let iode = iode as u16;
    Ephemeris {
        satellite,
        message,
        week: (toc_week + later).saturating_sub(earlier),
        toe_seconds,
        toc_seconds,
        // Beyond two weeks it is not known (0.9999E9).
        transmission_seconds: if transmission.abs() < 2.0 * WEEK_SECONDS as f64 {
            transmission
        } else {
            0.0
        },
        iode,
        iodc: if is_galileo { iode } else { iodc_or_delay as u16 },
        sqrt_a,
        eccentricity,
        mean_anomaly,
        mean_motion_difference,
        semi_major_axis_rate: 0.0,
        mean_motion_rate: 0.0,
        perigee,
        node,
        node_rate,
        inclination,
        inclination_rate,
        cuc,
        cus,
        crc,
        crs,
        cic,
        cis,
        af0,
        af1,
        af2,
        group_delays: [delay, if is_galileo { iodc_or_delay } else { 0.0 }],
        health: health as u16,
        accuracy: accuracy_index(is_galileo, accuracy),
        // Hours, or the flag itself.
        is_long_fit: !is_galileo && (fit > 4.5 || (0.5..1.5).contains(&fit)),
        codes_on_l2: codes_on_l2 as u16,
        l2_p_data_off: !is_galileo && l2_p > 0.5,
    }
}

/// Index of an accuracy in metres.
fn accuracy_index(is_galileo: bool, metres: f64) -> u8 {
    let constellation = if is_galileo { Constellation::Galileo } else { Constellation::Gps };
    let none = if is_galileo { 255 } else { 15 };
    let reaches = |index: &u8| {
        let of_index = crate::ephemeris::accuracy_metres(constellation, *index);
        of_index.is_some_and(|of_index| metres <= of_index * 1.001)
    };
    if metres < 0.0 { none } else { (0..none).find(reaches).unwrap_or(none) }
}

/// Values after the date of an `ION` record of version 4, at most 9.
fn ion_values(lines: &[Line<'_>]) -> Result<[f64; 9], RinexError> {
    let mut values = [0.0; 9];
    let places = [(0, 23), (0, 42), (0, 61)]
        .into_iter()
        .chain((0..4).map(|n| (1, 4 + 19 * n)))
        .chain((0..2).map(|n| (2, 4 + 19 * n)));
    for (value, (line, column)) in values.iter_mut().zip(places) {
        if let Some(line) = lines.get(line) {
            *value = line.value(column, 19)?;
        }
    }
    Ok(values)
}

fn read_klobuchar(lines: &[Line<'_>], navigation: &mut Navigation) -> Result<(), RinexError> {
    let [a0, a1, a2, a3, b0, b1, b2, b3, _] = ion_values(lines)?;
    navigation.klobuchar = Some(Klobuchar { alpha: [a0, a1, a2, a3], beta: [b0, b1, b2, b3] });
    Ok(())
}

fn read_ne_quick(lines: &[Line<'_>], navigation: &mut Navigation) -> Result<(), RinexError> {
    let [a, b, c, storms, ..] = ion_values(lines)?;
    navigation.ne_quick = Some(NeQuick { ionisation: [a, b, c], storms: storms as u8 });
    Ok(())
}
