//! Rate of the timestamps against real time.
//!
//! Packets do not carry the sample rate. If `adc_sample_rate_hz` is wrong, all frequencies and times of the products are
//! wrong too, and nothing else shows it.

use std::time::{Duration, Instant};

/// Time over which the rate is measured.
const INTERVAL: Duration = Duration::from_secs(10);
/// Smallest error of the rate that is reported, as a fraction. Clocks are right to 1e-4.
const WRONG: f64 = 0.01;
/// Largest difference between two measurements of a constant rate, as a fraction. Gaps, restarts and data that waited
/// differ more.
const ALIKE: f64 = 0.003;

/// Measures the rate of the timestamps of a stream.
#[derive(Default)]
pub struct MeasuredRate {
    /// Begin of the measurement, and the newest timestamp then.
    begun: Option<(Instant, u64)>,
    /// Rate of the measurement before.
    before_hz: f64,
    is_told: bool,
}

impl MeasuredRate {
    /// Notes the newest timestamp at `now`. Returns the rate in samples per second if it is not `expected_hz` and two
    /// measurements agree, once until it is right again.
    pub fn note(&mut self, now: Instant, newest: u64, expected_hz: f64) -> Option<f64> {
        let (begin, first) = *self.begun.get_or_insert((now, newest));
        let elapsed = now.saturating_duration_since(begin);
        if elapsed < INTERVAL {
            return None;
        }
        self.begun = Some((now, newest));
        let hz = newest.saturating_sub(first) as f64 / elapsed.as_secs_f64();
        let before_hz = std::mem::replace(&mut self.before_hz, hz);
        if (hz / expected_hz - 1.0).abs() <= WRONG {
            self.is_told = false;
            return None;
        }
        let is_constant = hz > 0.0 && (before_hz / hz - 1.0).abs() <= ALIKE;
        (is_constant && !std::mem::replace(&mut self.is_told, true)).then_some(hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates that are reported for a stream of 1 MHz, looked at every second, whose timestamps grow in each second by
    /// this number of samples.
    fn told(growth: impl IntoIterator<Item = u64>) -> Vec<(usize, f64)> {
        let (begin, mut rate, mut newest) = (Instant::now(), MeasuredRate::default(), 1 << 40);
        let look = |(second, samples): (usize, u64)| {
            let now = begin + Duration::from_secs(second as u64);
            let hz = rate.note(now, newest, 1e6);
            newest += samples;
            hz.map(|hz| (second, hz))
        };
        growth.into_iter().enumerate().filter_map(look).collect()
    }

    #[test]
    fn constant_wrong_rate_is_told_once() {
        assert_eq!(told([2_000_000; 100]), [(20, 2e6)]);
        assert_eq!(told([980_000; 100]), [(20, 0.98e6)]);
        assert_eq!(told([1_005_000; 100]), []);
        let again = [[2_000_000; 25], [1_000_000; 25], [2_000_000; 25]].concat();
        assert_eq!(told(again), [(20, 2e6), (70, 2e6)]);
    }

    #[test]
    fn gaps_and_data_that_waited_are_no_wrong_rate() {
        let mut growth = vec![1_000_000; 100];
        // Silence, a jump, data that waited for 3 s.
        growth[12..40].fill(0);
        growth[55] = 50_000_000;
        (growth[70], growth[71], growth[72], growth[73]) = (0, 0, 0, 4_000_000);
        assert_eq!(told(growth), []);
    }
}
