//! Leap seconds and the calendar, from SOFA.

use std::sync::LazyLock;

/// Seconds of a day without a leap second.
pub const DAY_SECONDS: i64 = 86_400;
/// Modified Julian date of 1970-01-01.
pub const UNIX_MJD: i64 = 40_587;
/// Julian date of the modified Julian date 0.
pub const MJD_JULIAN_DATE: f64 = 2_400_000.5;
/// TAI - UTC in 1972, when leap seconds began; earlier times are taken to have the same difference.
pub const FIRST_TAI_UTC: i64 = 10;

/// A leap second.
#[derive(Clone, Copy, Debug)]
pub struct Leap {
    /// Unix time of the midnight after the leap second.
    pub unix: i64,
    /// Leap seconds up to that midnight.
    pub count: i64,
}

/// All leap seconds.
static LEAPS: LazyLock<Vec<Leap>> = LazyLock::new(|| {
    let mut leaps: Vec<Leap> = Vec::new();
    // A leap second can be at the end of any month; SOFA's table ends long before the last year here.
    for (year, month) in (1972..2100).flat_map(|year| (1..=12).map(move |month| (year, month))) {
        let count = sofars::ts::dat(year, month, 1, 0.0)
            .map_or(0, |tai_utc| tai_utc.round() as i64 - FIRST_TAI_UTC);
        if count > leaps.last().map_or(0, |leap| leap.count)
            && let Some(day) = day_of(year, month, 1)
        {
            leaps.push(Leap { unix: day * DAY_SECONDS, count });
        }
    }
    leaps
});

/// Leap seconds before the Unix time `unix`.
pub fn before_unix(unix: i64) -> i64 {
    LEAPS.iter().rev().find(|leap| leap.unix <= unix).map_or(0, |leap| leap.count)
}

/// Leap seconds before `elapsed` SI seconds since 1970, and whether the instant is in a leap second.
pub fn before_elapsed(elapsed: i64) -> (i64, bool) {
    let last = LEAPS.iter().rev().find(|leap| leap.unix + leap.count - 1 <= elapsed);
    last.map_or((0, false), |leap| (leap.count, elapsed < leap.unix + leap.count))
}

/// Seconds of the day `day`, counted from 1970.
pub fn day_seconds(day: i64) -> i64 {
    let next = (day + 1) * DAY_SECONDS;
    DAY_SECONDS + before_unix(next) - before_unix(next - 1)
}

/// Day since 1970 of a date of the Gregorian calendar; `None` if there is no such date.
pub fn day_of(year: i32, month: i32, day: i32) -> Option<i64> {
    let (_, mjd) = sofars::cal::cal2jd(year, month, day).ok()?;
    Some(mjd as i64 - UNIX_MJD)
}

/// Year, month and day of the day `day`, counted from 1970.
pub fn date_of(day: i64) -> (i32, i32, i32) {
    let date = sofars::cal::jd2cal(MJD_JULIAN_DATE, (day + UNIX_MJD) as f64);
    date.map_or((1970, 1, 1), |(year, month, day, _)| (year, month, day))
}
