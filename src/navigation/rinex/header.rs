//! Header of navigation files.

use super::columns::Line;
use super::{Fault, Navigation, RinexError};

/// Reads the header from `lines`; returns the version.
pub fn read<'a>(
    lines: &mut impl Iterator<Item = Line<'a>>,
    navigation: &mut Navigation,
) -> Result<u32, RinexError> {
    let first = lines.next().unwrap_or(Line { number: 1, text: "" });
    if first.label() != "RINEX VERSION / TYPE" {
        return Err(first.error(Fault::NoRinex));
    }
    let version = first.value(0, 9)?.floor() as u32;
    let kind = first.text(20, 1);
    if !(2..=4).contains(&version) || kind != "N" {
        return Err(first.error(Fault::Version(first.text(0, 40).chars().take(40).collect())));
    }
    let mut last = first;
    for line in lines {
        last = line;
        match line.label() {
            "END OF HEADER" => return Ok(version),
            "ION ALPHA" => klobuchar(navigation, &line, 2, true)?,
            "ION BETA" => klobuchar(navigation, &line, 2, false)?,
            "IONOSPHERIC CORR" => ionosphere(navigation, &line)?,
            "DELTA-UTC: A0,A1,T,W" => {
                let fields = [(3, 19), (22, 19), (41, 9), (50, 9)];
                utc(navigation, &line, fields)?;
            }
            "TIME SYSTEM CORR" if line.text(0, 4) == "GPUT" => {
                utc(navigation, &line, [(5, 17), (22, 16), (38, 7), (45, 5)])?;
            }
            "LEAP SECONDS" => leap_seconds(navigation, &line)?,
            _ => {}
        }
    }
    Err(last.error(Fault::NoHeaderEnd))
}

fn four(line: &Line<'_>, from: usize) -> Result<[f64; 4], RinexError> {
    let mut values = [0.0; 4];
    for (n, value) in values.iter_mut().enumerate() {
        *value = line.value(from + 12 * n, 12)?;
    }
    Ok(values)
}

fn klobuchar(
    navigation: &mut Navigation,
    line: &Line<'_>,
    from: usize,
    is_alpha: bool,
) -> Result<(), RinexError> {
    let values = four(line, from)?;
    let model = navigation.klobuchar.get_or_insert_default();
    *(if is_alpha { &mut model.alpha } else { &mut model.beta }) = values;
    Ok(())
}

fn ionosphere(navigation: &mut Navigation, line: &Line<'_>) -> Result<(), RinexError> {
    match line.text(0, 4) {
        "GPSA" => klobuchar(navigation, line, 5, true),
        "GPSB" => klobuchar(navigation, line, 5, false),
        "GAL" => {
            let [a, b, c, _] = four(line, 5)?;
            navigation.ne_quick.get_or_insert_default().ionisation = [a, b, c];
            Ok(())
        }
        _ => Ok(()),
    }
}

fn utc(
    navigation: &mut Navigation,
    line: &Line<'_>,
    fields: [(usize, usize); 4],
) -> Result<(), RinexError> {
    let [a0, a1, seconds, week] = fields;
    let utc = navigation.utc.get_or_insert_default();
    utc.a0 = line.value(a0.0, a0.1)?;
    utc.a1 = line.value(a1.0, a1.1)?;
    utc.reference_seconds = line.value(seconds.0, seconds.1)?;
    utc.reference_week = line.value(week.0, week.1)? as u32;
    Ok(())
}

fn leap_seconds(navigation: &mut Navigation, line: &Line<'_>) -> Result<(), RinexError> {
    let utc = navigation.utc.get_or_insert_default();
    utc.leap_seconds = line.value(0, 6)? as i8;
    // Files of version 2 have the present number only.
    utc.leap_seconds_after = line.number(6, 6)?.map_or(utc.leap_seconds, |after| after as i8);
    utc.leap_week = line.value(12, 6)? as u32;
    utc.leap_day = line.value(18, 6)? as u8;
    Ok(())
}
