//! Start of a recording: a header may give it several times, with different resolutions.

use super::{HeaderError, Keywords};
use fxgraph_time::{SECOND_PICOSECONDS, Time};

const SECOND: i128 = SECOND_PICOSECONDS as i128;
const DAY: i128 = 86_400 * SECOND;
/// Digits of a fraction that are read: 10^20 parts of a day fit into 128 bits in picoseconds.
const MAX_DIGITS: usize = 20;

/// A time in a header.
struct Given {
    keyword: &'static str,
    time: Time,
    /// Value of the last digit in picoseconds.
    resolution: i128,
}

/// Returns the start of the recording, and a text for each time of the header that contradicts it.
///
/// `UTC_START` with `PICOSECONDS`, `MJD_START`, and the counter of the digitiser (`SYNC_TIME`, `SAMPLE_CLOCK_START`,
/// `SAMPLE_CLOCK`) are compared from the coarsest to the finest. A finer time that is within the resolution of the time
/// so far replaces it. Times that agree to their own resolution change nothing.
pub(super) fn start(keywords: &Keywords<'_>) -> Result<(Time, Vec<String>), HeaderError> {
    let utc = utc_start(keywords)?;
    let mut others = Vec::from_iter(mjd_start(keywords));
    others.extend(sample_clock(keywords)?);
    others.sort_by_key(|given| std::cmp::Reverse(given.resolution));
    let mut all = utc.into_iter().chain(others);
    let Some(mut best) = all.next() else {
        return Ok((Time::default(), Vec::new()));
    };
    let mut contradictions = Vec::new();
    for given in all {
        let difference = given.time.picoseconds_since(best.time).abs();
        if difference <= given.resolution {
            continue;
        }
        if difference <= best.resolution {
            best = given;
            continue;
        }
        contradictions.push(format!(
            "{} and {} differ by {} s; {} is used",
            best.keyword,
            given.keyword,
            difference as f64 / SECOND as f64,
            best.keyword
        ));
    }
    Ok((best.time, contradictions))
}

fn wrong(keyword: &'static str, expected: &'static str, found: &str) -> HeaderError {
    HeaderError::Value { keyword, expected, found: found.to_owned() }
}

/// Returns the digits of a fraction as picoseconds of `unit`, and the value of the last digit. Only digits are allowed.
fn fraction(digits: &str, unit: i128) -> Option<(i128, i128)> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let digits = &digits[..digits.len().min(MAX_DIGITS)];
    let parts = 10_i128.pow(digits.len() as u32);
    let value: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    is_number.then_some(((value * unit + parts / 2) / parts, (unit / parts).max(1)))
}

/// `UTC_START`, such as `2026-07-02-01:39:20.5`. `PICOSECONDS` replaces its fraction.
fn utc_start(keywords: &Keywords<'_>) -> Result<Option<Given>, HeaderError> {
    let is_fraction = |ps: &u64| *ps < SECOND_PICOSECONDS;
    let picoseconds = keywords.number("PICOSECONDS", "less than 10^12", is_fraction)?;
    let Some(text) = keywords.0.get("UTC_START") else { return Ok(None) };
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    let (part, resolution) = match picoseconds {
        Some(picoseconds) => (Some(picoseconds.into()), 1),
        None => fraction(digits, SECOND).map_or((None, 1), |(part, digit)| (Some(part), digit)),
    };
    let whole = whole.rsplit_once(['-', 'T']).and_then(|(date, day)| Time::from_date(date, day));
    let time = whole.zip(part).and_then(|(whole, part)| whole.plus_picoseconds(part));
    let time =
        time.ok_or_else(|| wrong("UTC_START", "a time such as 2026-07-02-01:39:20", text))?;
    Ok(Some(Given { keyword: "UTC_START", time, resolution }))
}

/// `MJD_START`: a modified Julian date with any number of digits.
fn mjd_start(keywords: &Keywords<'_>) -> Option<Given> {
    let text = keywords.0.get("MJD_START")?;
    let (day, digits) = text.split_once('.').unwrap_or((text, ""));
    // Some writers leave a text such as `unset` or 0 here; other times are in the header.
    let day: i64 = day.parse().ok().filter(|day| *day > 0)?;
    let (part, resolution) = fraction(digits, DAY)?;
    // The fraction of a day with a leap second is that of a day without one, as the writers compute it.
    let (second, rest) = ((part / SECOND) as i64, (part % SECOND) as u64);
    let time = Time::from_mjd(day, second, rest)?;
    Some(Given { keyword: "MJD_START", time, resolution })
}

/// Time of the digitiser's counter at the start, as recorders of the Effelsberg Direct Digitisation system write it.
fn sample_clock(keywords: &Keywords<'_>) -> Result<Option<Given>, HeaderError> {
    let clock = keywords.number("SAMPLE_CLOCK", "a rate in Hz", |_: &f64| true)?;
    let count = keywords.number("SAMPLE_CLOCK_START", "a number of samples", |_: &u64| true)?;
    let sync = keywords.0.get("SYNC_TIME").map(|text| text.split_once('.').unwrap_or((text, "")));
    let (Some(clock), Some(count), Some((seconds, digits))) = (clock, count, sync) else {
        return Ok(None);
    };
    let sync = seconds.parse().ok().filter(|seconds: &i64| *seconds > 0);
    let sync = sync.and_then(|seconds| Time::from_unix(seconds, 0)).zip(fraction(digits, SECOND));
    // 0 means that the recorder did not know the counter.
    let counted = Time::picoseconds_of(count, clock).filter(|_| count > 0);
    let Some(((sync, (part, resolution)), counted)) = sync.zip(counted) else { return Ok(None) };
    // Digitisers are synchronised at whole seconds.
    let resolution = if part == 0 { 1 } else { resolution };
    let time = sync.plus_picoseconds(part + counted);
    Ok(time.map(|time| Given { keyword: "SAMPLE_CLOCK_START", time, resolution }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(text: &str) -> (i64, u64, Vec<String>) {
        let (time, contradictions) = start(&Keywords::of(text)).unwrap();
        let (seconds, picoseconds) = time.to_unix();
        (seconds, picoseconds, contradictions)
    }

    /// The header of a recording of the Effelsberg Direct Digitisation system, `sample_meerkat.dada` of baseband.
    const EDD: &str = "UTC_START 2022-01-17-06:17:50.998315\nMJD_START 59596.262395813837\n\
        SYNC_TIME 1642399613.0\nSAMPLE_CLOCK 800000000.0\nSAMPLE_CLOCK_START 526398652416\n";

    #[test]
    fn finest_time_that_agrees_is_taken() {
        // 526398652416 / 8e8 = 657.99831552 s, exactly.
        assert_eq!(found(EDD), (1_642_400_270, 998_315_520_000, vec![]));
        let without_clock = EDD.replace("SAMPLE_CLOCK_START", "OTHER");
        let (seconds, picoseconds, contradictions) = found(&without_clock);
        // 12 digits of a day are 86.4 ns.
        assert_eq!((seconds, contradictions), (1_642_400_270, vec![]));
        assert_eq!(picoseconds, 998_315_516_800);
        let utc_only = "UTC_START 2022-01-17-06:17:50.998315\n";
        assert_eq!(found(utc_only), (1_642_400_270, 998_315_000_000, vec![]));
    }

    #[test]
    fn fraction_of_the_start_may_be_in_the_text() {
        assert_eq!(
            found("UTC_START 2013-07-02T01:39:20.25"),
            (1_372_729_160, 250_000_000_000, vec![])
        );
        for wrong in ["2013-07-02", "2013-07-02-01:39:20:1", "2013-07-02-01:39:20.x"] {
            assert!(start(&Keywords::of(&format!("UTC_START {wrong}"))).is_err(), "{wrong}");
        }
    }

    #[test]
    fn coarser_time_that_agrees_changes_nothing() {
        let whole = "UTC_START 2013-07-02-01:37:40\n";
        let expected = (1_372_729_060, 0, vec![]);
        for mjd in ["56475.067824", "56475.0678240740740740740739736849", "unset", "0"] {
            assert_eq!(found(&format!("{whole}MJD_START {mjd}\n")), expected, "{mjd}");
        }
        let exact = format!("{whole}PICOSECONDS 5\nMJD_START 56475.06782407407\n");
        assert_eq!(found(&exact), (1_372_729_060, 5, vec![]));
        assert_eq!(found("MJD_START 56475.5\n"), (1_372_766_400, 0, vec![]));
        assert_eq!(found(""), (0, 0, vec![]));
    }

    #[test]
    fn times_that_contradict_each_other_are_reported() {
        let (seconds, _, contradictions) =
            found("UTC_START 2013-07-02-01:37:40\nMJD_START 56475.109490740740\n");
        assert_eq!(seconds, 1_372_729_060);
        assert_eq!(contradictions.len(), 1);
        assert!(
            contradictions[0].starts_with("UTC_START and MJD_START differ by 3599.99"),
            "{contradictions:?}"
        );
        assert!(contradictions[0].ends_with(" s; UTC_START is used"));
    }
}
