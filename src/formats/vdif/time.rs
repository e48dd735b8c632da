//! Times of samples and frames.

use super::MAX_FRAME_BYTES;
use fxgraph_time::{SECOND_PICOSECONDS, Time, Utc};

/// Number of reference epochs that a header can express.
pub const EPOCHS: u8 = 64;
/// Frame numbers that a header can express.
const MAX_FRAMES_PER_SECOND: u64 = 1 << 24;

/// Begin of the first reference epoch, 2000-01-01.
const YEAR_2000: u32 = 946_684_800;

/// Returns the reference epoch of a time: half-years since 2000. `None` before 2000 and from 2032 on.
#[must_use]
pub fn epoch_of(time: Time) -> Option<u8> {
    let Utc { year, month, .. } = time.to_utc();
    let epoch = u8::try_from(2 * (i64::from(year) - 2000) + i64::from(month > 6)).ok()?;
    (epoch < EPOCHS).then_some(epoch)
}

/// Time of the beginning of a reference epoch.
#[must_use]
pub fn epoch_time(epoch: u8) -> Time {
    let month = if epoch.is_multiple_of(2) { 1 } else { 7 };
    let year = 2000 + i32::from(epoch / 2);
    let begin = Utc { year, month, day: 1, hour: 0, minute: 0, second: 0, picoseconds: 0 };
    Time::from_utc(&begin).unwrap_or_default()
}

/// Seconds from 2000-01-01 to the beginning of a reference epoch, with leap seconds.
#[must_use]
pub fn epoch_seconds(epoch: u8) -> u64 {
    epoch_time(epoch).seconds_since(Time::unix(YEAR_2000)) as u64
}

/// Time `seconds` seconds after 2000-01-01; leap seconds count.
#[must_use]
pub fn time_of(seconds: u64) -> Option<Time> {
    Time::unix(YEAR_2000).plus_picoseconds(i128::from(seconds) * i128::from(SECOND_PICOSECONDS))
}

/// Returns the number of frames per second with this payload: `rate_hz` samples per second of `sample_bits` bits (of all
/// channels). `None` if the number is not whole or beyond the range of a header, or if the payload is not a multiple of
/// 8 bytes or not a whole number of samples.
#[must_use]
pub fn frames_per_second(rate_hz: u64, sample_bits: u64, payload_bytes: u32) -> Option<u64> {
    let bits = 8 * u64::from(payload_bytes);
    let samples = bits.checked_div(sample_bits).filter(|samples| *samples > 0)?;
    let is_whole = payload_bytes.is_multiple_of(8)
        && bits.is_multiple_of(sample_bits)
        && rate_hz.is_multiple_of(samples);
    let frames = rate_hz / samples;
    (is_whole && (1..=MAX_FRAMES_PER_SECOND).contains(&frames)).then_some(frames)
}

/// Returns the sizes of payloads in bytes up to `most_bytes`, ascending, that give a whole number of
/// [`frames_per_second`].
#[must_use]
pub fn payload_sizes(rate_hz: u64, sample_bits: u64, most_bytes: u32) -> Vec<u32> {
    let most_bytes = most_bytes.min(MAX_FRAME_BYTES - 32);
    let fits = |bytes: &u32| frames_per_second(rate_hz, sample_bits, *bytes).is_some();
    (8..=most_bytes).step_by(8).filter(fits).collect()
}

/// Grid of samples on UTC seconds: sample n is n / `rate_hz` after 2000-01-01; leap seconds count.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Samples per second.
    pub rate_hz: u64,
    /// Time of timestamp 0.
    pub sync_time: Time,
    /// Samples for each `adc_samples` ADC samples.
    pub samples: u64,
    /// ADC samples for each `samples` samples.
    pub adc_samples: u64,
}

impl Grid {
    /// Returns the number of the sample nearest to `timestamp`, counted from 2000, and the distance of the true time
    /// from it in samples, -0.5 to 0.5. `None` if the time is beyond the range of a header, or before 2000.
    #[must_use]
    pub fn sample(&self, timestamp: u64) -> Option<(u64, f64)> {
        let product = u128::from(timestamp) * u128::from(self.samples);
        let adc_samples = u128::from(self.adc_samples).max(1);
        let (whole, rest) = (product / adc_samples, product % adc_samples);
        let second = i128::from(SECOND_PICOSECONDS);
        let since = self.sync_time.picoseconds_since(Time::unix(YEAR_2000));
        let seconds = u64::try_from(since.div_euclid(second)).ok()?;
        let exact = since.rem_euclid(second) as f64 / second as f64 * self.rate_hz as f64
            + rest as f64 / adc_samples as f64;
        let near = exact.round();
        let number = u128::from(seconds) * u128::from(self.rate_hz) + whole + near as u128;
        // The end of 30 bits of seconds.
        let is_known = number / u128::from(self.rate_hz.max(1)) < 1 << 30;
        let number = u64::try_from(number).ok().filter(|_| is_known)?;
        Some((number, exact - near))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn epochs_begin_in_january_and_july() {
        assert_eq!(epoch_time(0), Time::unix(946_684_800));
        assert_eq!(epoch_time(52), Time::unix(1_767_225_600), "2026-01-01");
        assert_eq!(epoch_time(53), Time::unix(1_782_864_000), "2026-07-01");
        for epoch in 0..EPOCHS {
            let begin = epoch_time(epoch);
            assert_eq!(epoch_of(begin), Some(epoch));
            assert_eq!(epoch_of(begin.plus_picoseconds(-1).unwrap()), epoch.checked_sub(1));
            assert_eq!(time_of(epoch_seconds(epoch)), Some(begin));
        }
        assert_eq!(epoch_of(Time::unix(1_956_528_000)), None);
        // The five leap seconds from 2000 to 2017.
        assert_eq!(epoch_seconds(34), 1_483_228_800 - 946_684_800 + 5);
    }

    #[test]
    fn sizes_divide_the_second_into_frames() {
        // 64 MS/s of 2 bits: 16 MB per second.
        let sizes = payload_sizes(64_000_000, 2, 10_000);
        assert!(sizes.contains(&8000) && sizes.contains(&5000) && sizes.contains(&10_000));
        assert!(!sizes.contains(&8192) && !sizes.contains(&24));
        assert!(sizes.iter().all(|bytes| 16_000_000 % bytes == 0));
        // A prime rate, or nothing at all.
        assert!(payload_sizes(1_000_003, 2, 10_000).is_empty());
        assert!(payload_sizes(0, 2, 10_000).is_empty());
        assert!(payload_sizes(1000, 0, 100).is_empty());
    }

    #[test]
    fn sample_numbers_count_from_the_second() {
        // Complex samples of 8 ADC samples: 0.25 s after the second, and half a sample.
        let sync_time = Time::from_unix_f64(1.7e9 + 0.25).unwrap();
        let grid = Grid { rate_hz: 1_000_000, sync_time, samples: 1, adc_samples: 8 };
        // 5 leap seconds since 2000.
        let begin = (1_700_000_000 - 946_684_800 + 5) * 1_000_000 + 250_000;
        assert_eq!(grid.sample(80), Some((begin + 10, 0.0)));
        assert_eq!(grid.sample(81), Some((begin + 10, 0.125)));
        assert_eq!(grid.sample(86), Some((begin + 11, -0.25)));
        let late = Grid { sync_time: Time::default(), ..grid };
        assert_eq!(late.sample(0), None);
        assert_eq!(late.sample(u64::MAX), None);
    }

    proptest! {
        #[test]
        fn arbitrary_times_are_in_range_or_none(
            rate_hz in any::<u64>(), sync_seconds in any::<f64>(),
            samples in any::<u64>(), adc_samples in any::<u64>(), timestamp in any::<u64>(),
        ) {
            let sync_time = Time::from_unix_f64(sync_seconds).unwrap_or_default();
            let grid = Grid { rate_hz, sync_time, samples, adc_samples };
            if let Some((_, offset)) = grid.sample(timestamp) {
                prop_assert!(offset.abs() <= 0.5);
            }
        }
    }
}
