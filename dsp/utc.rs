//! UTC: leap seconds and Julian dates.

/// Leap seconds: Unix time of the first second with each difference between TAI and UTC. Earlier times have 10 s.
/// The last leap second was at the end of 2016; the International Earth Rotation and Reference Systems Service has
/// announced none since.
const LEAPS: [(i64, i64); 27] = [
    (78_796_800, 11),
    (94_694_400, 12),
    (126_230_400, 13),
    (157_766_400, 14),
    (189_302_400, 15),
    (220_924_800, 16),
    (252_460_800, 17),
    (283_996_800, 18),
    (315_532_800, 19),
    (362_793_600, 20),
    (394_329_600, 21),
    (425_865_600, 22),
    (489_024_000, 23),
    (567_993_600, 24),
    (631_152_000, 25),
    (662_688_000, 26),
    (709_948_800, 27),
    (741_484_800, 28),
    (773_020_800, 29),
    (820_454_400, 30),
    (867_715_200, 31),
    (915_148_800, 32),
    (1_136_073_600, 33),
    (1_230_768_000, 34),
    (1_341_100_800, 35),
    (1_435_708_800, 36),
    (1_483_228_800, 37),
];
/// TAI - UTC before the first leap second.
const FIRST: i64 = 10;
/// Julian date of Unix time 0.
const UNIX_JULIAN_DATE: f64 = 2_440_587.5;
/// Seconds of a day without a leap second.
const DAY: f64 = 86_400.0;

/// Returns TAI - UTC at a Unix time, in seconds.
#[must_use]
pub fn tai_minus_utc(unix_seconds: f64) -> f64 {
    let last = LEAPS.iter().rev().find(|(from, _)| unix_seconds >= *from as f64);
    last.map_or(FIRST, |(_, difference)| *difference) as f64
}

/// Returns the Unix time `elapsed_seconds` after the Unix time `begin`. A leap second between them makes it smaller
/// than the sum; within a leap second it stays at the beginning of the next day.
#[must_use]
pub fn unix_after(begin: f64, elapsed_seconds: f64) -> f64 {
    let begin_difference = tai_minus_utc(begin);
    let sum = begin + elapsed_seconds;
    let mut unix = sum;
    for (from, difference) in LEAPS {
        let later = difference as f64 - begin_difference;
        if later > 0.0 && sum - (later - 1.0) >= from as f64 {
            unix = (sum - later).max(from as f64);
        }
    }
    unix
}

/// Returns the Julian date of a Unix time, UTC. Its resolution is 40 us. A day that ends with a leap second has
/// 86 401 s, as in astropy and SOFA.
#[must_use]
pub fn julian_date(unix_seconds: f64) -> f64 {
    let day = (unix_seconds / DAY).floor();
    let next = ((day + 1.0) * DAY) as i64;
    let is_longer = LEAPS.iter().any(|(from, _)| *from == next);
    let length = if is_longer { DAY + 1.0 } else { DAY };
    UNIX_JULIAN_DATE + day + (unix_seconds - day * DAY) / length
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether two numbers agree to 1e-7.
    fn is(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-7
    }

    #[test]
    fn leap_seconds_begin_new_days() {
        assert!(LEAPS.iter().all(|(from, _)| from % 86_400 == 0));
        let steps = LEAPS.windows(2).all(|w| w[1].0 > w[0].0 && w[1].1 == w[0].1 + 1);
        assert!(steps);
        // 1 July 1972, 1 January 2017.
        for (unix, before, after) in [(78_796_800.0, 10.0, 11.0), (1_483_228_800.0, 36.0, 37.0)] {
            assert!(is(tai_minus_utc(unix - 0.5), before));
            assert!(is(tai_minus_utc(unix), after));
        }
    }

    #[test]
    fn unix_after_counts_a_leap_second_once() {
        let midnight = 1_483_228_800.0;
        assert!(is(unix_after(midnight - 10.0, 9.5), midnight - 0.5));
        // The leap second itself.
        assert!(is(unix_after(midnight - 10.0, 10.5), midnight));
        assert!(is(unix_after(midnight - 10.0, 11.0), midnight));
        assert!(is(unix_after(midnight - 10.0, 12.0), midnight + 1.0));
        assert!(is(unix_after(midnight, 12.0), midnight + 12.0));
        // From 2015-01-01: two leap seconds.
        let begin = 1_420_070_400.0;
        assert!(is(unix_after(begin, midnight - begin + 2.0 + 5.0), midnight + 5.0));
    }

    #[test]
    fn julian_date_of_j2000_is_known() {
        // 2000-01-01T12:00:00 UTC.
        assert!(is(julian_date(946_728_000.0), 2_451_545.0));
        // astropy: 2016-12-31T23:00:00, a day of 86 401 s.
        assert!((julian_date(1_483_225_200.0) - 2_457_754.458_322_241_4).abs() < 1e-9);
    }
}
