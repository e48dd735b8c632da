//! Times of samples and frames.

use super::MAX_FRAME_BYTES;
use crate::utc::Utc;

/// Number of reference epochs that a header can express.
pub const EPOCHS: u8 = 64;
/// Frame numbers that a header can express.
const MAX_FRAMES_PER_SECOND: u64 = 1 << 24;

/// Returns the reference epoch of a Unix time: half-years since 2000. `None` before 2000 and from 2032 on.
#[must_use]
pub fn epoch_of(unix_seconds: i64) -> Option<u8> {
    // Only times in this range have a reference epoch.
    if !(946_684_800..1_956_528_000).contains(&unix_seconds) {
        return None;
    }
    let utc = Utc::of_unix(unix_seconds);
    u8::try_from((utc.year - 2000) * 2 + i64::from(utc.month > 6)).ok()
}

/// Unix time of the beginning of a reference epoch.
#[must_use]
pub fn epoch_unix(epoch: u8) -> i64 {
    let month = if epoch.is_multiple_of(2) { 1 } else { 7 };
    Utc { year: 2000 + i64::from(epoch / 2), month, day: 1, second: 0 }.unix()
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

/// Grid of samples on UTC seconds: sample n is at Unix time n / `rate_hz`.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Samples per second.
    pub rate_hz: u64,
    /// Unix time of timestamp 0, in seconds.
    pub sync_seconds: f64,
    /// Samples for each `adc_samples` ADC samples.
    pub samples: u64,
    /// ADC samples for each `samples` samples.
    pub adc_samples: u64,
}

impl Grid {
    /// Returns the number of the sample nearest to `timestamp`, counted from 1970, and the distance of the true time
    /// from it in samples, -0.5 to 0.5. `None` if the time is beyond the range of a header, or before 2000.
    #[must_use]
    pub fn sample(&self, timestamp: u64) -> Option<(u64, f64)> {
        let product = u128::from(timestamp) * u128::from(self.samples);
        let adc_samples = u128::from(self.adc_samples).max(1);
        let (whole, rest) = (product / adc_samples, product % adc_samples);
        let seconds = self.sync_seconds.floor();
        if !(0.0..=1e10).contains(&seconds) {
            return None;
        }
        let exact =
            (self.sync_seconds - seconds) * self.rate_hz as f64 + rest as f64 / adc_samples as f64;
        let near = exact.round();
        let number = seconds as u128 * u128::from(self.rate_hz) + whole + near as u128;
        // 2000-01-01, and the end of 30 bits of seconds after it.
        let second = number / u128::from(self.rate_hz.max(1));
        let is_known = (946_684_800..946_684_800 + (1 << 30)).contains(&second);
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
        assert_eq!(epoch_unix(0), 946_684_800);
        assert_eq!(epoch_unix(52), 1_767_225_600, "2026-01-01");
        assert_eq!(epoch_unix(53), 1_782_864_000, "2026-07-01");
        for epoch in 0..EPOCHS {
            let unix = epoch_unix(epoch);
            assert_eq!(epoch_of(unix), Some(epoch));
            assert_eq!(epoch_of(unix - 1), epoch.checked_sub(1));
        }
        assert_eq!(epoch_of(1_956_528_000), None);
        assert_eq!(epoch_of(i64::MAX), None);
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
        let grid =
            Grid { rate_hz: 1_000_000, sync_seconds: 1.7e9 + 0.25, samples: 1, adc_samples: 8 };
        assert_eq!(grid.sample(80), Some((1_700_000_000_250_010, 0.0)));
        assert_eq!(grid.sample(81), Some((1_700_000_000_250_010, 0.125)));
        assert_eq!(grid.sample(86), Some((1_700_000_000_250_011, -0.25)));
        let late = Grid { sync_seconds: 0.0, ..grid };
        assert_eq!(late.sample(0), None);
        assert_eq!(late.sample(u64::MAX), None);
    }

    proptest! {
        #[test]
        fn arbitrary_times_are_in_range_or_none(
            rate_hz in any::<u64>(), sync_seconds in any::<f64>(),
            samples in any::<u64>(), adc_samples in any::<u64>(), timestamp in any::<u64>(),
        ) {
            let grid = Grid { rate_hz, sync_seconds, samples, adc_samples };
            if let Some((_, offset)) = grid.sample(timestamp) {
                prop_assert!(offset.abs() <= 0.5);
            }
        }
    }
}
