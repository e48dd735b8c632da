//! Spreads sending evenly over time, on a schedule that follows the stream's timestamps.

use crate::pace::{CatchUp, Delay};
use fxgraph::Env;
use std::time::{Duration, Instant};

/// Largest drift of the stream's clock against the host's clock, as a fraction.
const DRIFT: f64 = 1e-4;

/// Schedule of the bytes of a stream.
pub struct Pace {
    /// Duration of a byte of the stream, in seconds.
    seconds_per_byte: f64,
    /// Rate of sending, as a multiple of the stream's rate; 0 is as fast as possible.
    rate: f64,
    /// Rate of sending while behind schedule, as a multiple of the stream's rate.
    catch_up_rate: f64,
    /// Rate of sending the newest frame, as a multiple of the stream's rate.
    speed: f64,
    adc_sample_rate_hz: f64,
    /// Timestamp of the newest frame.
    newest: u64,
    /// Time of timestamp 0 according to the earliest frame, in seconds since `epoch`.
    zero: f64,
    /// Delay of the schedule relative to `zero`, in seconds, because the sink waited for its input.
    moved: f64,
    /// Whether the sink waited for input since the newest frame.
    has_waited: bool,
    epoch: Instant,
    /// Time at which the newest frame began.
    began: Instant,
    /// Bytes sent since `due`, the due time of the first of them.
    bytes: u64,
    due: Option<Instant>,
    catch_up: CatchUp,
    /// Reporter of the delay.
    delay: Option<Delay>,
}

impl Pace {
    /// Creates a schedule of `rate` times `bytes_per_second`, which recovers a delay at `catch_up` times it, and reports
    /// the delay as the block of `env`.
    #[must_use]
    pub fn new(
        bytes_per_second: f64,
        adc_sample_rate_hz: f64,
        rate: f64,
        catch_up: f64,
        env: Option<&Env>,
    ) -> Self {
        let catch_up = catch_up.max(rate);
        Self {
            seconds_per_byte: bytes_per_second.max(1.0).recip(),
            rate,
            catch_up_rate: catch_up,
            speed: rate,
            adc_sample_rate_hz,
            newest: u64::MAX,
            zero: 0.0,
            moved: 0.0,
            has_waited: false,
            epoch: Instant::now(),
            began: Instant::now(),
            bytes: 0,
            due: None,
            catch_up: CatchUp::new(catch_up),
            delay: env.map(|env| Delay::new(catch_up, env)),
        }
    }

    /// Notes that the sink waits for input.
    pub fn wait_for_input(&mut self) {
        self.has_waited = true;
    }

    /// Begins a frame with `timestamp`.
    ///
    /// The frame is due at its timestamp, counted from `zero`, but not before the previous frame has been
    /// sent. A frame that the sink waited for is due on arrival: a source that pauses, or a slow block
    /// upstream, delays the schedule. The sink recovers such a delay, at the catch-up rate, only while
    /// frames are queued.
    pub fn begin(&mut self, timestamp: u64, now: Instant) {
        let has_waited = std::mem::take(&mut self.has_waited);
        let seconds = timestamp as f64 / self.adc_sample_rate_hz;
        self.zero += DRIFT * now.saturating_duration_since(self.began).as_secs_f64();
        self.began = now;
        let zero = now.saturating_duration_since(self.epoch).as_secs_f64() - seconds;
        let length = timestamp.saturating_sub(self.newest) as f64 / self.adc_sample_rate_hz;
        // A stream that starts again from an earlier timestamp is on time, too.
        if timestamp <= self.newest || zero < self.zero {
            (self.zero, self.moved) = (zero, 0.0);
        } else if has_waited {
            self.moved = zero - self.zero;
        } else {
            self.moved = (self.moved - length * (1.0 - self.catch_up_rate.recip())).max(0.0);
        }
        self.newest = timestamp;
        let since_epoch = self.zero + self.moved + seconds;
        let since_epoch = Duration::try_from_secs_f64(since_epoch).unwrap_or_default();
        let expected = self.epoch.checked_add(since_epoch).unwrap_or(now);
        self.due = Some(self.due().map_or(expected, |due| due.max(expected)));
        self.speed = if self.moved > 0.0 && !has_waited { self.catch_up_rate } else { self.rate };
        self.bytes = 0;
    }

    /// Returns the due time of the next byte.
    fn due(&self) -> Option<Instant> {
        let seconds = self.bytes as f64 * self.seconds_per_byte / self.speed;
        self.due?.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
    }

    /// Returns the time to wait before sending; zero is now.
    pub fn wait(&mut self, now: Instant) -> Duration {
        let Some(due) = self.due().filter(|_| self.rate > 0.0) else { return Duration::ZERO };
        if let Some(delay) = &mut self.delay {
            delay.note(now.saturating_duration_since(due), now);
        }
        self.catch_up.wait(due, now)
    }

    /// Notes that `bytes` were sent at `now`.
    pub fn sent(&mut self, bytes: usize, now: Instant) {
        self.bytes += bytes as u64;
        self.catch_up.sent(bytes as f64 * self.seconds_per_byte, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schedule for frames of 1000 bytes and 1 ms.
    fn pace(rate: f64) -> Pace {
        pace_in(rate, &Env::detached("sink"))
    }

    fn pace_in(rate: f64, env: &Env) -> Pace {
        Pace::new(1e6, 1e6, rate, 1.25, Some(env))
    }

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Sends frame number `n`, which arrives at `arrives`, in pieces of 100 bytes, from when the sink is
    /// `free`; returns when the frame is sent. A sink that sleeps wakes late by `late`.
    fn send(pace: &mut Pace, n: u64, free: Instant, arrives: Instant, late: Duration) -> Instant {
        let mut now = free.max(arrives);
        if arrives > free {
            pace.wait_for_input();
        }
        pace.begin(1000 * n, now);
        for _ in 0..10 {
            let wait = pace.wait(now);
            if !wait.is_zero() {
                now += wait + late;
            }
            pace.sent(100, now);
        }
        now
    }

    #[test]
    fn late_wake_ups_keep_the_mean_rate() {
        let mut pace = pace(1.0);
        let start = pace.epoch;
        let late = Duration::from_micros(700);
        let end = (0..10_000).fold(start, |now, n| send(&mut pace, n, now, start, late));
        let behind = (end - start).as_secs_f64() - 10.0;
        assert!((-0.001..0.002).contains(&behind), "{behind} s behind after 10 s");
    }

    #[test]
    fn frame_is_spread_over_its_duration_divided_by_the_rate() {
        let mut pace = pace(1.1);
        let start = pace.epoch;
        let mut out = start;
        for n in 0..100 {
            let arrives = start + n as u32 * MILLISECOND;
            out = send(&mut pace, n, out, arrives, Duration::ZERO);
            // The last tenth of the frame is sent after 9/10 of the time.
            let took = (out - arrives).as_secs_f64();
            assert!(n == 0 || (0.000_8..0.000_83).contains(&took), "{took}");
        }
    }

    #[test]
    fn stalled_sender_recovers_at_the_catch_up_rate() {
        let mut pace = pace(1.1);
        let start = pace.epoch;
        let mut now = start;
        for n in 0..1000 {
            now = send(&mut pace, n, now, start + n as u32 * MILLISECOND, Duration::ZERO);
        }
        // Meanwhile 2000 frames wait before it.
        let resumed = now + Duration::from_secs(2);
        now = resumed;
        let mut n = 1000;
        while now < resumed + Duration::from_secs(1) {
            now = send(&mut pace, n, now, start + n as u32 * MILLISECOND, Duration::ZERO);
            n += 1;
        }
        assert!((2250..=2280).contains(&n), "{} frames in a second", n - 1000);
        while n < 12_000 {
            now = send(&mut pace, n, now, start + n as u32 * MILLISECOND, Duration::ZERO);
            n += 1;
        }
        let behind = now - (start + 12_000 * MILLISECOND);
        assert!(behind <= MILLISECOND, "{behind:?}");
    }

    #[test]
    fn pause_of_the_stream_is_not_followed_by_a_burst() {
        let mut pace = pace(1.1);
        let start = pace.epoch;
        let mut out = send(&mut pace, 0, start, start, Duration::ZERO);
        // The timestamps jump by the length of the pause, or start again from 0.
        for (n, seconds) in [(10_000, 10), (0, 12)] {
            let later = start + Duration::from_secs(seconds);
            out = send(&mut pace, n, out, later, Duration::ZERO);
            assert!(out - later > Duration::from_micros(790), "{:?}", out - later);
        }
    }

    /// Returns the value of the gauge `pace_delay_seconds`.
    fn behind(env: &Env) -> f64 {
        let gauges = env.counters.gauges();
        let named = gauges.iter().find(|named| named.name == "pace_delay_seconds");
        named.and_then(|named| named.gauge.get()).unwrap_or_default()
    }

    #[test]
    fn silent_source_does_not_put_the_sink_behind_schedule() {
        let env = Env::detached("sink");
        let mut pace = pace_in(1.1, &env);
        let start = pace.epoch;
        let mut out = start;
        for n in 0..1000 {
            let silence = if n < 500 { 0 } else { 10_000 };
            let arrives = start + (n + silence) as u32 * MILLISECOND;
            out = send(&mut pace, n, out, arrives, Duration::ZERO);
            assert!(behind(&env) < 1e-4, "frame {n} is {} s behind", behind(&env));
            let took = (out - arrives).as_secs_f64();
            assert!(n == 0 || (0.000_79..0.000_83).contains(&took), "frame {n} took {took} s");
        }
    }

    #[test]
    fn frames_delayed_by_a_slow_block_are_sent_at_the_catch_up_rate() {
        for rate in [1.0, 1.1] {
            let mut pace = pace(rate);
            let start = pace.epoch;
            let mut now = start;
            // The block upstream sends no frame for 2 s, and then all frames at once.
            let arrives = |n: u64| start + (n as u32 * MILLISECOND).max(Duration::from_secs(2));
            let mut n = 0;
            while now < start + Duration::from_secs(3) {
                let at = if n == 0 { start } else { arrives(n) };
                now = send(&mut pace, n, now, at, Duration::ZERO);
                n += 1;
            }
            assert!((1240..=1280).contains(&n), "{n} frames in a second");
            while n < 12_000 {
                now = send(&mut pace, n, now, arrives(n), Duration::ZERO);
                n += 1;
            }
            let behind = now - (start + 12_000 * MILLISECOND);
            assert!(behind <= 2 * MILLISECOND, "{behind:?}");
        }
    }

    #[test]
    fn rate_of_zero_never_waits() {
        let mut pace = pace(0.0);
        let now = pace.epoch;
        pace.begin(0, now);
        pace.sent(1 << 30, now);
        assert!(pace.wait(now).is_zero());
    }
}
