//! Pacing against absolute time, with a limit on the rate at which a delay is recovered.
//!
//! The due time of a piece of a stream depends only on its position in the stream, never on the times
//! when earlier pieces left: a sender that slept too long, or was not scheduled for seconds, sends
//! overdue pieces until it is on schedule again. [`CatchUp`] prevents a burst.

use fxgraph::runtime::{BlockEvents, EventKind};
use fxgraph::{Env, Gauge, Rejection};
use std::time::{Duration, Instant};

/// Default of the parameter `catch_up`.
pub const CATCH_UP: f64 = 1.25;

/// Stream time that may leave at once, beyond the catch-up rate: the time for which a process on a busy
/// host may wait for a core after sleeping. 20 ms of a digitiser fill two thirds of a socket buffer of
/// 32 MiB.
const CREDIT: Duration = Duration::from_millis(20);

/// Delay from which a sender reports the event `fell_behind`.
const BEHIND: Duration = Duration::from_secs(1);
/// Delay below which a sender that reported `fell_behind` is on schedule again.
const ON_SCHEDULE: Duration = Duration::from_millis(100);

/// Returns the default of the parameter `catch_up`.
#[must_use]
pub fn default_catch_up() -> f64 {
    CATCH_UP
}

/// Returns a diagnostic if `catch_up` is out of range.
#[must_use]
pub fn reject_catch_up(catch_up: f64) -> Option<Rejection> {
    let is_valid = (1.01..=1000.0).contains(&catch_up);
    (!is_valid).then(|| {
        let message = format!("`catch_up` must be between 1.01 and 1000, got {catch_up}");
        Rejection::parameter("catch_up", message).help(format!("give a rate such as {CATCH_UP}"))
    })
}

/// Limits the rate at which overdue pieces leave.
pub struct CatchUp {
    rate: f64,
    /// Time from which the catch-up rate allows the next piece to leave.
    allowed: Option<Instant>,
}

impl CatchUp {
    /// Creates a limit of `rate` seconds of the stream per second.
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self { rate, allowed: None }
    }

    /// Returns the time that a piece due at `due` must still wait.
    #[must_use]
    pub fn wait(&self, due: Instant, now: Instant) -> Duration {
        self.allowed.map_or(due, |allowed| due.max(allowed)).saturating_duration_since(now)
    }

    /// Notes that a piece of `seconds` of the stream left at `now`.
    pub fn sent(&mut self, seconds: f64, now: Instant) {
        let since = now.checked_sub(CREDIT).unwrap_or(now);
        let from = self.allowed.map_or(since, |allowed| allowed.max(since));
        let spacing = Duration::try_from_secs_f64(seconds / self.rate).unwrap_or_default();
        self.allowed = Some(from + spacing);
    }
}

/// Reports the delay of a sender behind its schedule, as a gauge and as events.
pub struct Delay {
    gauge: Gauge,
    events: BlockEvents,
    rate: f64,
    /// While the sender is behind: start time, longest delay, and delay of the last event.
    behind: Option<(Instant, Duration, Duration)>,
}

impl Delay {
    /// Reports as the block of `env`, which catches up at `rate` times real time.
    #[must_use]
    pub fn new(rate: f64, env: &Env) -> Self {
        let help =
            "time behind schedule; if it stays above 1 s, the host is too busy for this block";
        let gauge = env.counters.measurement("pace_delay_seconds", help);
        Self { gauge, events: env.events.clone(), rate, behind: None }
    }

    /// Notes that a piece leaves `delay` after it was due.
    pub fn note(&mut self, delay: Duration, now: Instant) {
        self.gauge.set(delay.as_secs_f64());
        let told = self.behind.map(|(_, _, told)| told);
        if delay > told.map_or(BEHIND, |told| told * 2) {
            let text = format!(
                "{:.1} s behind schedule; catching up at {} times real time",
                delay.as_secs_f64(),
                self.rate
            );
            self.events.add(EventKind::FellBehind, text);
            let since = self.behind.map_or(now, |(since, ..)| since);
            self.behind = Some((since, delay, delay));
        }
        let Some((since, longest, _)) = &mut self.behind else { return };
        *longest = delay.max(*longest);
        if delay < ON_SCHEDULE {
            let text = format!(
                "on schedule again after {:.1} s; the longest delay was {:.1} s",
                now.saturating_duration_since(*since).as_secs_f64(),
                longest.as_secs_f64()
            );
            self.events.add(EventKind::CaughtUp, text);
            self.behind = None;
        }
    }
}

/// Schedule of a source in real time.
pub struct RealTime {
    start: Instant,
    catch_up: CatchUp,
    delay: Delay,
}

impl RealTime {
    /// Creates the schedule of a stream that begins at `start`.
    #[must_use]
    pub fn new(start: Instant, delay: Delay) -> Self {
        Self { start, catch_up: CatchUp::new(delay.rate), delay }
    }

    /// Returns the time `seconds` after the beginning of the stream.
    fn due(&self, seconds: f64) -> Instant {
        // Computed from the start each time, so that rounding errors do not add up.
        let span = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(1 << 40));
        self.start.checked_add(span).unwrap_or(self.start)
    }

    /// Returns the time that a frame due `seconds` after the beginning must still wait.
    #[must_use]
    pub fn wait(&self, seconds: f64, now: Instant) -> Duration {
        self.catch_up.wait(self.due(seconds), now)
    }

    /// Returns, and reports, the delay of a frame due `seconds` after the beginning.
    pub fn note(&mut self, seconds: f64, now: Instant) -> Duration {
        let delay = now.saturating_duration_since(self.due(seconds));
        self.delay.note(delay, now);
        delay
    }

    /// Notes that a frame of `length` seconds left at `now`.
    pub fn sent(&mut self, length: f64, now: Instant) {
        self.catch_up.sent(length, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends frames of 1 ms from `from` until `until`, waking every `wake`; returns the number of the next frame.
    fn frames(
        time: &mut RealTime,
        first: u64,
        from: Instant,
        until: Instant,
        wake: Duration,
    ) -> u64 {
        let (mut frame, mut now) = (first, from);
        while now < until {
            while time.wait((frame + 1) as f64 * 1e-3, now).is_zero() {
                time.note((frame + 1) as f64 * 1e-3, now);
                time.sent(1e-3, now);
                frame += 1;
            }
            now += wake;
        }
        frame
    }

    #[test]
    fn stalled_source_catches_up_at_its_rate_and_stays_on_schedule() {
        let start = Instant::now();
        let env = Env::detached("source");
        let mut time = RealTime::new(start, Delay::new(1.25, &env));
        let second = Duration::from_secs(1);
        let tick = Duration::from_micros(100);
        let resumed = start + 3 * second;
        // The credit of 20 ms, and a second at the catch-up rate.
        let sent = frames(&mut time, 0, resumed, resumed + second, tick);
        assert!((1250..=1276).contains(&sent), "{sent}");
        // A delay of 3 s is recovered within 12 s, and no more frames are sent.
        let sent = frames(&mut time, sent, resumed + second, resumed + 13 * second, tick);
        assert!((15_998..=16_000).contains(&sent), "{sent}");
    }

    #[test]
    fn source_that_always_wakes_late_keeps_up() {
        let start = Instant::now();
        let mut time = RealTime::new(start, Delay::new(1.25, &Env::detached("source")));
        let end = start + Duration::from_secs(10);
        let sent = frames(&mut time, 0, start, end, Duration::from_millis(20));
        assert!(sent >= 9_960, "{sent} of 10000 frames");
    }

    #[test]
    fn delay_is_reported_at_start_at_doubling_and_at_the_end() {
        let env = Env::detached("source");
        let mut delay = Delay::new(1.25, &env);
        let now = Instant::now();
        let milliseconds = [0, 900, 1100, 1500, 2100, 2300, 50, 0, 900];
        let mut kinds = Vec::new();
        for delay_ms in milliseconds {
            let before = delay.behind;
            delay.note(Duration::from_millis(delay_ms), now);
            kinds.push(match (before, delay.behind) {
                (None, Some(_)) => "behind",
                (Some(_), None) => "over",
                (Some((.., old)), Some((.., new))) if old != new => "doubled",
                _ => "",
            });
        }
        assert_eq!(kinds, ["", "", "behind", "", "", "doubled", "over", "", ""]);
    }
}
