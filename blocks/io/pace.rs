//! Pacing against absolute time, with a limit on how fast a delay is made good.
//!
//! A piece of a stream is due at a time that depends on its place in the stream only, never on when
//! the pieces before left: a sender that slept too long, or was not scheduled for seconds, sends what
//! is overdue until it is on schedule again. [`CatchUp`] keeps that from becoming a burst.

use fxgraph::runtime::{BlockEvents, EventKind};
use fxgraph::{Env, Gauge, Refusal};
use std::time::{Duration, Instant};

/// Default of the parameter `catch_up`.
pub const CATCH_UP: f64 = 1.25;

/// Stream time that may leave at once, beyond the catch-up rate: the time for which a busy machine
/// lets a process that slept wait for a core. 20 ms of a digitiser fill two thirds of a socket buffer
/// of 32 MiB.
const CREDIT: Duration = Duration::from_millis(20);

/// A sender this much behind its schedule says so.
const BEHIND: Duration = Duration::from_secs(1);
/// A sender that said so is on schedule again within this time of it.
const ON_SCHEDULE: Duration = Duration::from_millis(100);

/// The default value of `catch_up`.
pub fn default_catch_up() -> f64 {
    CATCH_UP
}

/// A diagnostic for a value of `catch_up` that is out of range.
pub fn refuse_catch_up(catch_up: f64) -> Option<Refusal> {
    let is_valid = (1.01..=1000.0).contains(&catch_up);
    (!is_valid).then(|| {
        let message = format!("`catch_up` must be from 1.01 to 1000, got {catch_up}");
        Refusal::parameter("catch_up", message).help(format!("{CATCH_UP} is usual"))
    })
}

/// Limits how fast pieces that are overdue leave.
pub struct CatchUp {
    rate: f64,
    /// When the next piece may leave by the catch-up rate alone.
    allowed: Option<Instant>,
}

impl CatchUp {
    /// A limit of `rate` seconds of the stream per second.
    pub fn new(rate: f64) -> Self {
        Self { rate, allowed: None }
    }

    /// Returns how long a piece that is due at `due` must still wait.
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

/// Tells users how far a sender is behind its schedule.
pub struct Delay {
    gauge: Gauge,
    events: BlockEvents,
    rate: f64,
    /// While it is behind: since when, the longest delay, and the delay of the last event.
    behind: Option<(Instant, Duration, Duration)>,
}

impl Delay {
    /// Reports as the block of `env`, which catches up at `rate` times real time.
    pub fn new(rate: f64, env: &Env) -> Self {
        let help = "Time by which the block sends later than its schedule. If it stays above 1 s, the \
                    machine is too busy for this sender.";
        let gauge = env.counters.gauge("pace_delay_seconds", help);
        Self { gauge, events: env.events.clone(), rate, behind: None }
    }

    /// Notes that a piece leaves `delay` after it was due.
    pub fn note(&mut self, delay: Duration, now: Instant) {
        self.gauge.set(delay.as_secs_f64());
        let told = self.behind.map(|(_, _, told)| told);
        if delay > told.map_or(BEHIND, |told| told * 2) {
            let text = format!(
                "{:.1} s behind schedule; catches up at {} times real time",
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
                "on schedule again after {:.1} s; was up to {:.1} s behind",
                now.saturating_duration_since(*since).as_secs_f64(),
                longest.as_secs_f64()
            );
            self.events.add(EventKind::CaughtUp, text);
            self.behind = None;
        }
    }
}

/// Real time of a source: when each of its frames is due.
pub struct RealTime {
    start: Instant,
    catch_up: CatchUp,
    delay: Delay,
}

impl RealTime {
    /// The stream begins at `start`.
    pub fn new(start: Instant, delay: Delay) -> Self {
        Self { start, catch_up: CatchUp::new(delay.rate), delay }
    }

    /// Time `seconds` after the beginning of the stream.
    fn due(&self, seconds: f64) -> Instant {
        // Counted from the start each time, so that nothing adds up.
        let span = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(1 << 40));
        self.start.checked_add(span).unwrap_or(self.start)
    }

    /// Returns how long a frame that is due `seconds` after the beginning must still wait.
    pub fn wait(&self, seconds: f64, now: Instant) -> Duration {
        self.catch_up.wait(self.due(seconds), now)
    }

    /// Returns how long ago a frame was due that is due `seconds` after the beginning, and reports it.
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

    /// Frames of 1 ms that leave until `until`, at moments that are multiples of `wake` apart.
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
        // The credit, and a second at the catch-up rate.
        let sent = frames(&mut time, 0, resumed, resumed + second, tick);
        assert!((1250..=1276).contains(&sent), "{sent}");
        // 3 s are made good within 12 s, and not more than that is sent.
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
    fn delay_is_told_once_when_it_doubles_and_when_it_is_over() {
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
