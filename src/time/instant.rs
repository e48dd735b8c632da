//! Instants.

use crate::leap::{self, DAY_SECONDS, FIRST_TAI_UTC, MJD_JULIAN_DATE, UNIX_MJD};

/// Picoseconds of a second.
pub const SECOND_PICOSECONDS: u64 = 1_000_000_000_000;
const PS: i128 = SECOND_PICOSECONDS as i128;
/// Unix times of the first second of the year 1, and of the year 10000.
const RANGE: std::ops::Range<i64> = -62_135_596_800..253_402_300_800;
/// GPS time began on 6 January 1980.
const GPS_UNIX: i64 = 315_964_800;

/// An instant in the years 1 to 9999, to the picosecond.
///
/// Differences of instants are SI seconds: a leap second counts. Before 1972, when UTC had no leap seconds, TAI - UTC
/// is taken as 10 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// SI seconds since 1970-01-01T00:00:00 UTC, rounded down.
    elapsed: i64,
    /// Picoseconds after them.
    picoseconds: u64,
}

/// Date and time of day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc {
    /// Year, 1 to 9999.
    pub year: i32,
    /// Month, 1 to 12.
    pub month: i32,
    /// Day of the month, 1 to 31.
    pub day: i32,
    /// Hour, 0 to 23.
    pub hour: i64,
    /// Minute, 0 to 59.
    pub minute: i64,
    /// Second, 0 to 59, or 60 in a leap second.
    pub second: i64,
    /// Picoseconds after them.
    pub picoseconds: u64,
}

/// A sample rate as `mantissa * 2^exponent`; `None` if it is not positive and finite.
fn parts(rate_hz: f64) -> Option<(i128, i32)> {
    if !(rate_hz > 0.0 && rate_hz.is_finite()) {
        return None;
    }
    let bits = rate_hz.to_bits();
    let (exponent, fraction) = ((bits >> 52) as i32, i128::from(bits & ((1 << 52) - 1)));
    let (mantissa, exponent) =
        if exponent == 0 { (fraction, -1074) } else { (fraction | (1 << 52), exponent - 1075) };
    let zeros = mantissa.trailing_zeros();
    Some((mantissa >> zeros, exponent + zeros as i32))
}

/// `value * 2^exponent` for an exponent that is not negative.
fn shift(value: i128, exponent: i32) -> Option<i128> {
    let by = 1_i128.checked_shl(u32::try_from(exponent).ok()?).filter(|by| *by > 0)?;
    value.checked_mul(by)
}

impl Time {
    /// Start of the second `seconds` of Unix time.
    #[must_use]
    pub fn unix(seconds: u32) -> Self {
        let seconds = i64::from(seconds);
        Self { elapsed: seconds + leap::before_unix(seconds), picoseconds: 0 }
    }

    /// Instant of a Unix time; `None` outside the years 1 to 9999.
    #[must_use]
    pub fn from_unix(seconds: i64, picoseconds: u64) -> Option<Self> {
        if !RANGE.contains(&seconds) || picoseconds >= SECOND_PICOSECONDS {
            return None;
        }
        Some(Self { elapsed: seconds + leap::before_unix(seconds), picoseconds })
    }

    /// Instant of a Unix time: the shortest decimal number that rounds to `seconds`. `None` if it is not finite or
    /// outside the years 1 to 9999.
    #[must_use]
    pub fn from_unix_f64(seconds: f64) -> Option<Self> {
        Self::from_decimal(&seconds.to_string())
    }

    /// Present time of the clock of the machine.
    #[must_use]
    pub fn now() -> Self {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let picoseconds = u64::from(since.subsec_nanos()) * 1000;
        Self::from_unix(since.as_secs() as i64, picoseconds).unwrap_or_default()
    }

    /// Unix time, rounded down, and the picoseconds after it. A leap second has the Unix time of the second after it.
    #[must_use]
    pub fn to_unix(self) -> (i64, u64) {
        let (count, is_leap) = leap::before_elapsed(self.elapsed);
        (self.elapsed - count + i64::from(is_leap), self.picoseconds)
    }

    /// Unix time as a number, which has a resolution of 0.2 us in this century.
    #[must_use]
    pub fn to_unix_f64(self) -> f64 {
        // The nearest number of the exact decimal text.
        self.decimal().parse().unwrap_or_default()
    }

    /// Picoseconds of SI time from `earlier` to `self`.
    #[must_use]
    pub fn picoseconds_since(self, earlier: Self) -> i128 {
        i128::from(self.elapsed - earlier.elapsed) * PS + i128::from(self.picoseconds)
            - i128::from(earlier.picoseconds)
    }

    /// SI seconds from `earlier` to `self`.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        let picoseconds = self.picoseconds_since(earlier);
        (picoseconds.div_euclid(PS)) as f64 + picoseconds.rem_euclid(PS) as f64 / PS as f64
    }

    /// Instant `picoseconds` of SI time later; `None` outside the years 1 to 9999.
    #[must_use]
    pub fn plus_picoseconds(self, picoseconds: i128) -> Option<Self> {
        let sum = picoseconds.checked_add(i128::from(self.picoseconds))?;
        let elapsed = i128::from(self.elapsed) + sum.div_euclid(PS);
        let elapsed = i64::try_from(elapsed).ok()?;
        let (count, _) = leap::before_elapsed(elapsed);
        let later = Self { elapsed, picoseconds: sum.rem_euclid(PS) as u64 };
        RANGE.contains(&(elapsed - count)).then_some(later)
    }

    /// Instant `seconds` of SI time later, to the picosecond; `None` outside the years 1 to 9999.
    #[must_use]
    pub fn plus_seconds(self, seconds: f64) -> Option<Self> {
        let whole = seconds.floor();
        if whole.is_nan() || whole.abs() >= 1e12 {
            return None;
        }
        let picoseconds = ((seconds - whole) * PS as f64).round() as i128;
        self.plus_picoseconds(whole as i128 * PS + picoseconds)
    }

    /// Instant `samples` samples at `rate_hz` later: the exact quotient, rounded to a picosecond. `None` outside the years
    /// 1 to 9999, or if the rate is not positive and finite.
    #[must_use]
    pub fn plus_samples(self, samples: u64, rate_hz: f64) -> Option<Self> {
        self.plus_picoseconds(Self::picoseconds_of(samples, rate_hz)?)
    }

    /// Picoseconds of `samples` samples at `rate_hz`: the exact quotient, rounded. `None` if it has more than 127 bits, or
    /// if the rate is not positive and finite.
    #[must_use]
    pub fn picoseconds_of(samples: u64, rate_hz: f64) -> Option<i128> {
        let (mantissa, exponent) = parts(rate_hz)?;
        let (samples, rate) = if exponent < 0 {
            (shift(samples.into(), -exponent)?, mantissa)
        } else {
            (samples.into(), shift(mantissa, exponent)?)
        };
        let (whole, rest) = (samples / rate, samples % rate);
        let of_rest = rest.checked_mul(PS)?.checked_add(rate / 2)? / rate;
        whole.checked_mul(PS)?.checked_add(of_rest)
    }

    /// Number of samples at `rate_hz` from `earlier` to `self`, rounded to the nearest. `None` if it has more than 120
    /// bits, or if the rate is not positive and finite.
    #[must_use]
    pub fn samples_since(self, earlier: Self, rate_hz: f64) -> Option<i128> {
        let (mantissa, exponent) = parts(rate_hz)?;
        let picoseconds = self.picoseconds_since(earlier);
        let of_seconds = picoseconds.div_euclid(PS).checked_mul(mantissa)?;
        let of_rest = picoseconds.rem_euclid(PS).checked_mul(mantissa)?;
        let (whole, rest, unit) = if exponent < 0 {
            // Slower rates have no samples within 10000 years.
            let unit = shift(1, -exponent)?;
            (of_seconds.div_euclid(unit), of_seconds.rem_euclid(unit), unit)
        } else {
            (shift(of_seconds, exponent)?, 0, 1)
        };
        let of_rest = shift(of_rest, exponent.max(0))?;
        let (parts, unit) = (rest.checked_mul(PS)?.checked_add(of_rest)?, unit.checked_mul(PS)?);
        whole.checked_add((parts.checked_add(unit / 2)?) / unit)
    }

    /// TAI as seconds since 1970-01-01T00:00:00 TAI, rounded down, and the picoseconds after them.
    #[must_use]
    pub fn to_tai(self) -> (i64, u64) {
        (self.elapsed + FIRST_TAI_UTC, self.picoseconds)
    }

    /// Seconds since the begin of GPS time on 1980-01-06, rounded down, and the picoseconds after them. A week has
    /// 604800 of them.
    #[must_use]
    pub fn to_gps(self) -> (i64, u64) {
        (self.elapsed - Self::unix(GPS_UNIX as u32).elapsed, self.picoseconds)
    }

    /// Instant of a GPS time; `None` outside the years 1 to 9999.
    #[must_use]
    pub fn from_gps(seconds: i64, picoseconds: u64) -> Option<Self> {
        let since = i128::from(seconds) * PS + i128::from(picoseconds);
        Self::unix(GPS_UNIX as u32).plus_picoseconds(since)
    }

    /// Day since 1970, and second of the day.
    fn day(self) -> (i64, i64) {
        let (count, is_leap) = leap::before_elapsed(self.elapsed);
        let unix = self.elapsed - count;
        // In a leap second, `unix` is the last second of the day.
        (unix.div_euclid(DAY_SECONDS), unix.rem_euclid(DAY_SECONDS) + i64::from(is_leap))
    }

    /// Date and time of day in UTC.
    #[must_use]
    pub fn to_utc(self) -> Utc {
        let (day, of_day) = self.day();
        let (year, month, date) = leap::date_of(day);
        let minutes = (of_day / 60).min(1439);
        Utc {
            year,
            month,
            day: date,
            hour: minutes / 60,
            minute: minutes % 60,
            second: of_day - 60 * minutes,
            picoseconds: self.picoseconds,
        }
    }

    /// Instant of a date and time of day in UTC; `None` if there is no such time. Second 60 is a leap second; where there
    /// was none, it is the second after.
    #[must_use]
    pub fn from_utc(utc: &Utc) -> Option<Self> {
        let day = leap::day_of(utc.year, utc.month, utc.day)?;
        let is_time = (0..24).contains(&utc.hour)
            && (0..60).contains(&utc.minute)
            && (0..=60).contains(&utc.second);
        if !is_time {
            return None;
        }
        let before = utc.hour * 3600 + utc.minute * 60;
        let minute = Self::from_unix(day * DAY_SECONDS + before, 0)?;
        minute.plus_picoseconds(i128::from(utc.second) * PS + i128::from(utc.picoseconds))
    }

    /// Modified Julian date: day, second of the day (86400 in a leap second), and picoseconds after them.
    #[must_use]
    pub fn to_mjd(self) -> (i64, i64, u64) {
        let (day, of_day) = self.day();
        (day + UNIX_MJD, of_day, self.picoseconds)
    }

    /// Instant of a modified Julian date, day and second of the day; `None` outside the years 1 to 9999.
    #[must_use]
    pub fn from_mjd(day: i64, second: i64, picoseconds: u64) -> Option<Self> {
        let midnight = day.checked_sub(UNIX_MJD)?.checked_mul(DAY_SECONDS)?;
        let since = i128::from(second) * PS + i128::from(picoseconds);
        Self::from_unix(midnight, 0)?.plus_picoseconds(since)
    }

    /// Seconds of the UTC day: 86401 if it ends with a leap second.
    #[must_use]
    pub fn day_seconds(self) -> i64 {
        leap::day_seconds(self.day().0)
    }

    /// The instant in the same second with other picoseconds; a value of a second or more is that of the last one.
    #[must_use]
    pub fn with_picoseconds(self, picoseconds: u64) -> Self {
        Self { picoseconds: picoseconds.min(SECOND_PICOSECONDS - 1), ..self }
    }

    /// Fraction of the UTC day; a day with a leap second has 86401 s, as in SOFA and astropy.
    fn day_fraction(self) -> f64 {
        let seconds = self.day().1 as f64 + self.picoseconds as f64 / PS as f64;
        seconds / self.day_seconds() as f64
    }

    /// Modified Julian date, which has a resolution of 0.6 us in this century.
    #[must_use]
    pub fn to_mjd_f64(self) -> f64 {
        self.to_mjd().0 as f64 + self.day_fraction()
    }

    /// Instant of a modified Julian date, to 0.1 us: `None` if it is not finite or outside the years 1 to 9999.
    #[must_use]
    pub fn from_mjd_f64(mjd: f64) -> Option<Self> {
        if mjd.is_nan() || mjd.abs() >= 1e7 {
            return None;
        }
        let day = mjd.floor();
        let length = leap::day_seconds(day as i64 - UNIX_MJD) as f64;
        // The number has no digits beyond.
        let seconds = ((mjd - day) * length * 1e7).round() / 1e7;
        Self::from_mjd(day as i64, 0, 0)?.plus_seconds(seconds)
    }

    /// Julian date in two parts, UTC, as SOFA takes it: that of midnight, and the fraction of the day.
    #[must_use]
    pub fn to_julian_date(self) -> [f64; 2] {
        [MJD_JULIAN_DATE + self.to_mjd().0 as f64, self.day_fraction()]
    }
}
