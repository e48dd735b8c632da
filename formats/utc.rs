//! Calendar dates of Unix times, and times of samples. Unix time has no leap seconds.

/// Seconds of a day.
pub const DAY_SECONDS: i64 = 86_400;
/// Modified Julian date of 1970-01-01.
pub const UNIX_MJD: i64 = 40_587;

/// Date and time of day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc {
    /// Year.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Second of the day, 0 to 86399.
    pub second: u32,
}

impl Utc {
    /// Date of a Unix time in whole seconds; the calendar is the Gregorian one for all years.
    #[must_use]
    pub fn of_unix(unix_seconds: i64) -> Self {
        let (day, second) =
            (unix_seconds.div_euclid(DAY_SECONDS), unix_seconds.rem_euclid(DAY_SECONDS));
        // Days since 0000-03-01, in eras of 400 years, whose years begin in March.
        let days = day + 719_468;
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Self {
            year: year + era * 400 + i64::from(month <= 2),
            month: month as u8,
            day: (of_year - (153 * from_march + 2) / 5 + 1) as u8,
            second: second as u32,
        }
    }

    /// Unix time in whole seconds.
    #[must_use]
    pub fn unix(&self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let from_march = (i64::from(self.month) + 9) % 12;
        let of_year = (153 * from_march + 2) / 5 + i64::from(self.day) - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        days * DAY_SECONDS + i64::from(self.second)
    }

    /// Hour, minute and second of the day.
    #[must_use]
    pub fn clock(&self) -> [u32; 3] {
        [self.second / 3600, self.second / 60 % 60, self.second % 60]
    }
}

/// Time as whole seconds and picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Unix time, rounded down.
    pub seconds: i64,
    /// Picoseconds since `seconds`.
    pub picoseconds: u64,
}

/// Picoseconds of a second.
pub const SECOND_PICOSECONDS: u64 = 1_000_000_000_000;

impl Time {
    /// Time of ADC sample `timestamp`, rounded to a picosecond. `None` if it is beyond the years -200000 to 200000,
    /// or if a number is not finite.
    ///
    /// Sample rates are exact to a millihertz. `sync_seconds`, the Unix time of timestamp 0, has the resolution of
    /// an `f64`, 0.2 us; whole seconds are exact.
    #[must_use]
    pub fn of_sample(sync_seconds: f64, rate_hz: f64, timestamp: u64) -> Option<Self> {
        let rate_mhz = (rate_hz * 1e3).round();
        if !(1.0..1e18).contains(&rate_mhz) || !(-6e12..6e12).contains(&sync_seconds) {
            return None;
        }
        let (rate_mhz, samples) = (rate_mhz as u128, u128::from(timestamp) * 1000);
        let (seconds, rest) = (samples / rate_mhz, samples % rate_mhz);
        let picoseconds = (rest * u128::from(SECOND_PICOSECONDS) + rate_mhz / 2) / rate_mhz;
        let fraction = (sync_seconds - sync_seconds.floor()) * SECOND_PICOSECONDS as f64;
        let picoseconds = picoseconds as u64 + fraction.round() as u64;
        let seconds = i64::try_from(seconds).ok().filter(|seconds| *seconds < 6_000_000_000_000)?;
        Some(Self {
            seconds: sync_seconds.floor() as i64
                + seconds
                + (picoseconds / SECOND_PICOSECONDS) as i64,
            picoseconds: picoseconds % SECOND_PICOSECONDS,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_of_known_unix_times_are_right() {
        for (unix, expected) in [
            (0, (1970, 1, 1, 0)),
            (951_782_399, (2000, 2, 28, 86_399)),
            (951_782_400, (2000, 2, 29, 0)),
            (1_767_225_600, (2026, 1, 1, 0)),
            (-1, (1969, 12, 31, 86_399)),
        ] {
            let utc = Utc::of_unix(unix);
            assert_eq!((utc.year, utc.month, utc.day, utc.second), expected);
        }
    }

    #[test]
    fn time_of_sample_is_exact_after_years() {
        // 10 years of 1.712 GS/s, and one sample: 584.1 ps.
        let ten_years = 315_360_000 * 1_712_000_000;
        let time = Time::of_sample(1.6e9, 1.712e9, ten_years + 1).unwrap();
        assert_eq!(time, Time { seconds: 1_915_360_000, picoseconds: 584 });
        let half = Time::of_sample(0.75, 1e6, 500_000).unwrap();
        assert_eq!(half, Time { seconds: 1, picoseconds: 250_000_000_000 });
        assert_eq!(Time::of_sample(f64::NAN, 1e6, 0), None);
        assert_eq!(Time::of_sample(0.0, 1e3, u64::MAX), None);
    }

    proptest! {
        #[test]
        fn unix_times_survive_the_calendar(unix in -60_000_000_000_000_i64..60_000_000_000_000) {
            prop_assert_eq!(Utc::of_unix(unix).unix(), unix);
        }

        #[test]
        fn arbitrary_samples_have_a_time_or_none(
            sync in any::<f64>(), rate in any::<f64>(), timestamp in any::<u64>(),
        ) {
            if let Some(time) = Time::of_sample(sync, rate, timestamp) {
                prop_assert!(time.picoseconds < SECOND_PICOSECONDS);
            }
        }
    }
}
