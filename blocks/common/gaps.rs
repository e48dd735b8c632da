//! Data that are missing between two frames, and not flagged in any.

/// Longest gap whose data count as missing; in a longer one the time of the stream jumped. The same value as the default
/// of `max_gap_seconds` of `spead_source`.
const MAX_GAP_SECONDS: f64 = 60.0;

/// Limit of the gaps of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Gaps {
    /// Longest gap in ADC samples.
    longest: u64,
}

impl Gaps {
    /// Limit for a stream of this rate.
    #[must_use]
    pub fn new(adc_sample_rate_hz: f64) -> Self {
        Self { longest: (MAX_GAP_SECONDS * adc_sample_rate_hz) as u64 }
    }

    /// Number of whole units of `unit` ADC samples that are missing in a gap of `samples` ADC samples; 0 after a jump of
    /// the time.
    #[must_use]
    pub fn missing(self, samples: u64, unit: u64) -> u64 {
        if samples > self.longest { 0 } else { samples / unit.max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_of_a_minute_counts_and_a_longer_one_is_a_jump_of_the_time() {
        let gaps = Gaps::new(1000.0);
        assert_eq!(gaps.missing(59_999, 100), 599);
        assert_eq!(gaps.missing(60_000, 100), 600);
        assert_eq!(gaps.missing(60_001, 100), 0);
    }
}
