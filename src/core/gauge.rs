//! Gauges of running blocks: values that go up and down.
//!
//! A gauge is a state, which holds until it is set again (a setting, the time of the last event, a total), or a
//! measurement of the data, which becomes unknown when no new one comes: a level says nothing about a stream that has
//! ended.

use crate::patience::Patience;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shortest time for which a measurement is shown.
const SHORTEST: Duration = Duration::from_secs(5);
/// Intervals between measurements for which the last one is shown.
const INTERVALS: u32 = 4;

/// A value that goes up and down, shared between a block and its readers. It is unknown until it is set.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Bits of the value.
    value: AtomicU64,
    /// How often it was set.
    count: AtomicU64,
    /// `count` of the value that is not shown any more; 0 before the first one.
    expired: AtomicU64,
}

impl Gauge {
    /// Sets the value; NaN makes it unknown.
    pub fn set(&self, value: f64) {
        self.0.value.store(value.to_bits(), Ordering::Relaxed);
        self.0.count.fetch_add(1, Ordering::Release);
    }

    /// The value, if it is known and finite.
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        let has_expired = self.count() == self.0.expired.load(Ordering::Relaxed);
        let value = f64::from_bits(self.0.value.load(Ordering::Relaxed));
        Some(value).filter(|value| value.is_finite() && !has_expired)
    }

    fn count(&self) -> u64 {
        self.0.count.load(Ordering::Acquire)
    }

    /// Makes the value unknown, until it is set again.
    pub(crate) fn expire(&self) {
        self.0.expired.store(self.count(), Ordering::Relaxed);
    }
}

/// A gauge in the list of a block's gauges.
#[derive(Clone, Debug)]
pub struct NamedGauge {
    /// Name: quantity with its unit, `digitiser_level_dbfs`, `last_received_timestamp`, ...
    pub name: &'static str,
    /// Description, and the action for the operator.
    pub help: &'static str,
    /// Name and value of the label that distinguishes gauges with one name: `input`, `0`.
    pub label: Option<(&'static str, String)>,
    /// The value.
    pub gauge: Gauge,
}

/// Lifetime of a measurement: [`INTERVALS`] times the interval between measurements, at least [`SHORTEST`].
#[derive(Debug)]
pub(crate) struct Lifetime {
    /// Frames of the block from one measurement to the next.
    frames: u32,
    /// `count` of the newest value that was seen.
    seen: u64,
    /// Longest recent interval between two measurements.
    interval: Duration,
    /// Time for which the newest measurement is shown.
    shown: Duration,
    patience: Patience,
}

impl Lifetime {
    /// Lifetime of measurements of which one comes in `frames` frames of the block.
    pub fn of_frames(frames: u64) -> Self {
        let patience = Patience::new(SHORTEST);
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        Self { frames, seen: 0, interval: Duration::ZERO, shown: SHORTEST, patience }
    }

    /// Looks at `gauge` of a block with a frame every `frame`, at least every [`Patience::LOOK`]; the clock shows `now`.
    pub fn look(&mut self, gauge: &Gauge, frame: Duration, now: Instant) {
        let count = gauge.count();
        let has_passed = self.patience.left(now).is_none();
        if count == self.seen {
            if has_passed {
                gauge.0.expired.store(count, Ordering::Relaxed);
            }
            return;
        }
        // An interval beyond the lifetime is an interruption, or the measurements have become rare: the lifetime grows step by
        // step, and shrinks again as fast.
        let interval = if self.seen == 0 { Duration::ZERO } else { self.patience.waited() };
        self.interval = interval.min(self.shown).max(self.interval / 2);
        self.shown = self
            .interval
            .max(frame.saturating_mul(self.frames))
            .saturating_mul(INTERVALS)
            .max(SHORTEST);
        self.seen = count;
        self.patience = Patience::new(self.shown);
        let _begins = self.patience.left(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gauge with its lifetime, and a clock of which every look is a tenth of a second later.
    struct Watched {
        gauge: Gauge,
        lifetime: Lifetime,
        frame: Duration,
        now: Instant,
    }

    impl Watched {
        fn new(frame: Duration) -> Self {
            Self::every(1, frame)
        }

        fn every(frames: u64, frame: Duration) -> Self {
            let (gauge, lifetime) = (Gauge::default(), Lifetime::of_frames(frames));
            Self { gauge, lifetime, frame, now: Instant::now() }
        }

        fn look(&mut self) -> bool {
            self.lifetime.look(&self.gauge, self.frame, self.now);
            self.now += Patience::LOOK;
            self.gauge.get().is_some()
        }

        /// Passes `seconds` without a measurement; returns for how many of them the value was shown.
        fn pass(&mut self, seconds: f64) -> f64 {
            let looks = (seconds / Patience::LOOK.as_secs_f64()).round() as u32;
            let shown = (0..looks).filter(|_| self.look()).count();
            shown as f64 * Patience::LOOK.as_secs_f64()
        }

        /// Measures every `seconds`, `count` times; returns how often the value was shown all the time.
        fn measure(&mut self, count: u32, seconds: f64) -> usize {
            let held = |watched: &mut Self| {
                watched.gauge.set(1.0);
                (watched.pass(seconds) - seconds).abs() < 1e-6
            };
            (0..count).filter(|_| held(self)).count()
        }
    }

    #[test]
    fn measurement_expires_after_some_intervals_and_comes_back_with_the_next_one() {
        let mut watched = Watched::new(Duration::from_millis(1));
        assert!(watched.pass(60.0) < 1e-6, "nothing was measured");
        for seconds in [0.1, 1.0, 2.0, 10.0] {
            watched.measure(20, seconds);
            assert_eq!(watched.measure(20, seconds), 20, "{seconds}");
            let shown = watched.pass(1000.0) + seconds;
            let expected = (4.0 * seconds).max(5.0);
            assert!((shown - expected).abs() < 0.35, "{seconds}: {shown}");
        }
        watched.gauge.set(2.0);
        assert_eq!(watched.gauge.get(), Some(2.0), "before the next look");
    }

    #[test]
    fn pause_of_the_program_is_no_silence() {
        let mut watched = Watched::new(Duration::from_millis(1));
        watched.measure(5, 1.0);
        for _ in 0..10 {
            watched.now += Duration::from_hours(1);
            assert!(watched.look(), "a pause counts as two looks");
        }
        assert!(watched.pass(10.0) < 5.0);
    }

    #[test]
    fn frames_of_hours_hold_their_measurements_from_the_first_one_on() {
        let mut watched = Watched::new(Duration::from_hours(1));
        assert_eq!(watched.measure(3, 3600.0), 3);
        let shown = watched.pass(20_000.0) + 3600.0;
        assert!((shown - 4.0 * 3600.0).abs() < 1.0, "{shown}");
    }

    #[test]
    fn rare_measurements_of_short_frames_are_held_once_their_interval_is_known() {
        let mut watched = Watched::new(Duration::from_millis(1));
        watched.measure(3, 60.0);
        assert_eq!(watched.measure(5, 60.0), 5);
    }

    #[test]
    fn measurements_of_every_nth_frame_are_held_from_the_first_one_on() {
        let mut watched = Watched::every(600, Duration::from_secs(1));
        assert_eq!(watched.measure(3, 600.0), 3);
    }

    #[test]
    fn interruption_does_not_prolong_the_lifetime() {
        let mut watched = Watched::new(Duration::from_millis(1));
        watched.measure(5, 1.0);
        watched.pass(100_000.0);
        watched.measure(4, 1.0);
        let shown = watched.pass(1000.0);
        assert!(shown < 5.0, "{shown}");
    }
}
