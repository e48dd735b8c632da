//! Times of files: Unix seconds, modified Julian dates, and dates with the time of day as in ISO 8601. All are UTC
//! without leap seconds.

use crate::utc::{DAY_SECONDS as DAY, UNIX_MJD as EPOCH_MJD, Utc};

/// Largest distance of a time from the Unix epoch, in seconds: 9000 years.
const MAX_SECONDS: i64 = 9000 * 366 * DAY;

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnixTime {
    /// Whole Unix seconds.
    pub seconds: i64,
    /// Fraction of the second, at least 0 and less than 1.
    pub fraction: f64,
}

impl UnixTime {
    /// Returns the time `seconds`; `None` if it is not finite or more than 9000 years from the Unix epoch.
    #[must_use]
    pub fn new(seconds: f64) -> Option<Self> {
        let whole = seconds.floor();
        let time = Self { seconds: whole as i64, fraction: seconds - whole };
        (seconds.abs() < MAX_SECONDS as f64).then(|| time.normal())
    }

    fn normal(self) -> Self {
        let carry = self.fraction.floor();
        let fraction = self.fraction - carry;
        // A tiny negative fraction rounds to 1.
        let (carry, fraction) =
            if fraction >= 1.0 { (carry + 1.0, 0.0) } else { (carry, fraction) };
        Self { seconds: self.seconds + carry as i64, fraction }
    }

    /// Returns the time `samples` samples at `rate_hz` after `self`, rounded once; `None` if it is more than 9000
    /// years from the Unix epoch, or if the rate is not positive.
    #[must_use]
    pub fn after(self, samples: u64, rate_hz: f64) -> Option<Self> {
        let samples = samples as f64;
        let whole = (samples / rate_hz).floor();
        if !(rate_hz > 0.0 && whole.abs() < MAX_SECONDS as f64) {
            return None;
        }
        // The product is exact in a fused operation, so the fraction keeps its precision after years.
        let fraction = whole.mul_add(-rate_hz, samples) / rate_hz;
        let later =
            Self { seconds: self.seconds + whole as i64, fraction: self.fraction + fraction };
        let later = later.normal();
        (later.seconds.abs() < MAX_SECONDS).then_some(later)
    }

    /// Returns the Unix seconds; exact to 0.2 microseconds in this century.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.seconds as f64 + self.fraction
    }

    /// Returns the modified Julian date; exact to 0.4 microseconds in this century.
    #[must_use]
    pub fn mjd(self) -> f64 {
        let day = self.seconds.div_euclid(DAY) + EPOCH_MJD;
        let of_day = self.seconds.rem_euclid(DAY) as f64 + self.fraction;
        day as f64 + of_day / DAY as f64
    }

    /// Returns the time of a modified Julian date; `None` if it is not finite or more than 9000 years from the Unix
    /// epoch.
    #[must_use]
    pub fn from_mjd(mjd: f64) -> Option<Self> {
        let seconds = (mjd - EPOCH_MJD as f64) * DAY as f64;
        let is_near = seconds.abs() < MAX_SECONDS as f64;
        if !is_near {
            return None;
        }
        let day = mjd.floor();
        let of_day = (mjd - day) * DAY as f64;
        let midnight = (day as i64 - EPOCH_MJD) * DAY;
        let time = Self { seconds: midnight + of_day.floor() as i64, fraction: of_day.fract() };
        Some(time.normal())
    }

    /// Returns the date and time of day, such as `2026-11-25T14:20:40.250000000Z`, to the nanosecond.
    #[must_use]
    pub fn iso(self) -> String {
        let mut nanoseconds = (self.fraction * 1e9).round() as i64;
        let mut seconds = self.seconds;
        if nanoseconds >= 1_000_000_000 {
            (seconds, nanoseconds) = (seconds + 1, 0);
        }
        let utc = Utc::of_unix(seconds);
        let (Utc { year, month, day, .. }, [hour, minute, second]) = (utc, utc.clock());
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
    }

    /// Reads a date and time of day in UTC, such as `2026-11-25T14:20:40.25Z`; `None` if `text` is none.
    #[must_use]
    pub fn from_iso(text: &str) -> Option<Self> {
        let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00"))?;
        let (date, of_day) = text.split_once('T')?;
        let [year, month, day] = numbers(date.split('-'))?;
        let (clock, fraction) = of_day.split_once('.').unwrap_or((of_day, "0"));
        let [hour, minute, second] = numbers(clock.split(':'))?;
        let date =
            Utc { year, month: month.try_into().ok()?, day: day.try_into().ok()?, second: 0 };
        // A day that the month does not have becomes one of the next month.
        let is_date = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && Utc::of_unix(date.unix()) == date;
        // Second 60 is a leap second.
        let is_time = hour < 24 && minute < 60 && second <= 60;
        let is_fraction =
            !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
        if !(is_date && is_time && is_fraction) {
            return None;
        }
        let seconds = date.unix() + hour * 3600 + minute * 60 + second;
        let fraction = format!("0.{fraction}").parse::<f64>().ok()?;
        Some(Self { seconds, fraction }.normal())
    }
}

/// Reads exactly `N` whole numbers of one to four digits.
fn numbers<'a, const N: usize>(parts: impl Iterator<Item = &'a str>) -> Option<[i64; N]> {
    let number = |part: &str| {
        let is_number = (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| part.parse().ok())?
    };
    let numbers: Vec<Option<i64>> = parts.take(N + 1).map(number).collect();
    let numbers: Option<Vec<i64>> = numbers.into_iter().collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // values are exact
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unix_time_agrees_with_known_dates() {
        // From Python's `datetime` and the definition of the modified Julian date.
        for (seconds, mjd, iso) in [
            (0.0, 40587.0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400.0, 51603.0, "2000-02-29T00:00:00.000000000Z"),
            (1_700_000_000.5, 60_262.925_931_712_96, "2023-11-14T22:13:20.500000000Z"),
            (4_102_444_799.25, 88_068.999_991_319_44, "2099-12-31T23:59:59.250000000Z"),
            (-0.5, 40_586.999_994_212_96, "1969-12-31T23:59:59.500000000Z"),
        ] {
            let time = UnixTime::new(seconds).unwrap();
            assert!((time.mjd() - mjd).abs() < 2e-11, "{seconds}: {}", time.mjd());
            assert_eq!(time.iso(), iso);
            assert_eq!(UnixTime::from_iso(iso), Some(time));
            assert_eq!(time.as_f64(), seconds);
        }
    }

    #[test]
    fn from_iso_rejects_other_texts() {
        for text in [
            "",
            "Z",
            "2026-11-25",
            "2026-11-25T14:20:40",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.-1Z",
            "+2026-01-01T00:00:00Z",
            "2026-01-01T00:00:00+01:00",
            "0000-01-01T00:00:00Z",
            "2026-1-1-1T00:00:00Z",
        ] {
            assert_eq!(UnixTime::from_iso(text), None, "{text}");
        }
    }

    #[test]
    fn after_keeps_nanoseconds_of_years_of_samples() {
        // 2^53 samples at 1.712 GHz are 61 days, and 2 samples more are 1.17 ns.
        let start = UnixTime::new(1_700_000_000.0).unwrap();
        let time = start.after((1 << 53) - 1, 1.712e9).unwrap();
        let exact = ((1_i128 << 53) - 1) * 1_000_000_000_000 / 1_712_000_000;
        let found = i128::from(time.seconds - start.seconds) * 1_000_000_000_000
            + (time.fraction * 1e12) as i128;
        assert!((found - exact).abs() < 100, "{found} for {exact} ps");
        assert_eq!(start.after(1, 0.0), None);
        assert_eq!(start.after(1, f64::NAN), None);
        assert_eq!(start.after(u64::MAX, 1e-300), None);
    }

    proptest! {
        #[test]
        fn dates_and_modified_julian_dates_round_trip(
            seconds in -50_000_000_000_i64..200_000_000_000,
            fraction in 0.0..1.0_f64,
        ) {
            let time = UnixTime { seconds, fraction };
            let again = UnixTime::from_mjd(time.mjd()).unwrap();
            let error = (again.seconds - seconds) as f64 + again.fraction - fraction;
            prop_assert!(error.abs() < 1e-4, "{error}");
            let again = UnixTime::from_iso(&time.iso()).unwrap();
            let error = (again.seconds - seconds) as f64 + again.fraction - fraction;
            prop_assert!(error.abs() < 1e-9, "{error}");
        }

        #[test]
        fn arbitrary_texts_and_numbers_do_not_panic(text in ".{0,40}", bits in any::<u64>(), n in any::<u64>()) {
            let number = f64::from_bits(bits);
            let _ = UnixTime::from_iso(&text);
            for time in [UnixTime::new(number), UnixTime::from_mjd(number)].into_iter().flatten() {
                let later = time.after(n, number.abs());
                let _ = (time.iso(), time.mjd(), later.map(UnixTime::iso));
            }
        }
    }
}
