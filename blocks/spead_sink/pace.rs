//! Spreads sending evenly over time.

use std::time::{Duration, Instant};

/// How far sending may fall behind and still catch up; what lies further back is forgiven, so
/// that a pause is never followed by a burst.
const SLACK: Duration = Duration::from_millis(2);

/// When the next bytes may go.
pub struct Pace {
    seconds_per_byte: f64,
    next: Option<Instant>,
}

impl Pace {
    /// A pace of so many bytes per second; `None` is as fast as possible.
    #[must_use]
    pub fn new(bytes_per_second: Option<f64>) -> Self {
        let seconds_per_byte = bytes_per_second.map_or(0.0, |rate| 1.0 / rate.max(1.0));
        Self { seconds_per_byte, next: None }
    }

    /// How long to wait before sending; zero is now.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Duration {
        self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now))
    }

    /// Says that `bytes` were sent at `now`.
    pub fn sent(&mut self, bytes: usize, now: Instant) {
        let earliest = now.checked_sub(SLACK).unwrap_or(now);
        let from = self.next.map_or(now, |next| next.max(earliest));
        self.next = Some(from + Duration::from_secs_f64(bytes as f64 * self.seconds_per_byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spread_over_the_time_they_stand_for() {
        let mut pace = Pace::new(Some(1e6));
        let start = Instant::now();
        let mut now = start;
        for _ in 0..100 {
            now += pace.wait(now);
            pace.sent(10_000, now);
        }
        assert_eq!(now - start, Duration::from_millis(990));
    }

    #[test]
    fn a_pause_is_not_followed_by_a_burst() {
        let mut pace = Pace::new(Some(1e6));
        let start = Instant::now();
        pace.sent(1000, start);
        let later = start + Duration::from_secs(10);
        let mut sent = 0;
        while pace.wait(later).is_zero() {
            pace.sent(1000, later);
            sent += 1;
        }
        assert!(sent <= 3, "{sent} packets at once");
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = Pace::new(None);
        let now = Instant::now();
        pace.sent(1 << 30, now);
        assert!(pace.wait(now).is_zero());
    }
}
