//! Place of the stream in time, to which timestamps of live values refer.

use super::Window;
use fxgraph::timelines::{Place, Received};
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Time after which it is known whether a stream runs in real time.
const MEASURED: Duration = Duration::from_secs(1);
/// Largest difference between the time of the stream and real time, in seconds: packets wait in buffers for less.
const APART_SECONDS: f64 = 1.0;
/// The same as a fraction of the time that was measured, which a stream at another rate exceeds sooner.
const APART_FRACTION: f64 = 0.3;

/// Measurement of the stream against the clock of the host.
pub(super) struct Pace {
    received: Received,
    /// Timestamp with which the measurement began, and when.
    began: Option<(u64, Instant)>,
    /// Timestamp and time of the last look.
    looked: Option<(u64, Instant)>,
    /// Whether the stream ran otherwise than in real time at the last look.
    is_apart: bool,
}

impl Pace {
    pub fn new(received: Received) -> Self {
        Self { received, began: None, looked: None, is_apart: false }
    }

    /// Whether a stream of `rate` samples per second that is at `timestamp` at the time `now` runs in real time.
    fn runs_in_real_time(&mut self, timestamp: u64, rate: f64, now: Instant) -> bool {
        let (from, at) = *self.began.get_or_insert((timestamp, now));
        let real = now.saturating_duration_since(at);
        let apart = (timestamp.saturating_sub(from) as f64 / rate - real.as_secs_f64()).abs();
        let is_slow = real >= MEASURED && apart > APART_FRACTION * real.as_secs_f64();
        if apart > APART_SECONDS || is_slow {
            (self.began, self.is_apart) = (Some((timestamp, now)), true);
        } else if real >= MEASURED {
            self.is_apart = false;
        }
        !self.is_apart
    }
}

impl Window {
    /// Publishes the place of the stream, from the frames sent at the time `now`.
    pub fn publish_place(&mut self, now: Instant) {
        let Some(timestamp) = self.last else { return };
        let pace = &mut self.pace;
        let is_due = |(seen, at): (u64, Instant)| {
            seen != timestamp && now.saturating_duration_since(at) >= LOOK
        };
        if !pace.looked.is_none_or(is_due) {
            return;
        }
        pace.looked = Some((timestamp, now));
        let clock = &self.described.port.clock;
        let adc_sample_rate_hz = clock.adc_sample_rate_hz;
        // A restored value waits for the first data, which show whether the stream counts as before.
        let is_live = pace.runs_in_real_time(timestamp, adc_sample_rate_hz, now);
        let sync_time = Some(clock.sync_time);
        let place = Place { adc_sample_rate_hz, sync_time, timestamp, at: now };
        pace.received.set(is_live.then_some(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fxgraph::timelines::Timelines;

    #[test]
    fn stream_at_another_rate_than_real_time_has_no_place_for_long() {
        let start = Instant::now();
        for (speed, is_live) in
            [(1.0, true), (0.98, true), (0.5, false), (3.0, false), (0.0, false)]
        {
            let mut pace = Pace::new(Timelines::default().receive());
            let at = |pace: &mut Pace, seconds: f64| {
                let now = start + Duration::from_secs_f64(seconds);
                pace.runs_in_real_time((seconds * speed * 1e6) as u64, 1e6, now)
            };
            assert!(at(&mut pace, 0.0), "the first data have a place");
            let live = (12..40).filter(|tick| at(&mut pace, f64::from(*tick) * 0.1)).count();
            assert_eq!(live, if is_live { 28 } else { 0 }, "{speed}");
        }
        // A jump, after which the stream goes on.
        let mut pace = Pace::new(Timelines::default().receive());
        let mut at = |seconds: f64, ahead: u64| {
            let now = start + Duration::from_secs_f64(seconds);
            pace.runs_in_real_time((seconds * 1e6) as u64 + ahead, 1e6, now)
        };
        assert!(at(0.0, 0) && !at(2.0, 1 << 40) && at(3.1, 1 << 40));
    }
}
