//! State of the receiving thread: the time of the samples, their rate and level, and the end of the stream.

use super::assembler::{Assembler, Layout};
use super::causes::Causes;
use super::levels::Levels;
use super::{Origin, SampleSource};
use fxgraph::runtime::{BlockEvents, EventKind};
use fxgraph::{BlockError, Clock, Env, FrameMut, Time, TimeBase, host_clock};
use fxgraph_common::link::{Frames, Link};
use fxgraph_common::measured_rate::MeasuredRate;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Largest time, in seconds, that samples are taken to wait in buffers before they are read.
const DELAY_SECONDS: f64 = 0.25;
/// Samples that arrive within this time after the thread begins to read may have waited for it.
const AT_ONCE: Duration = Duration::from_millis(100);
/// Units of time in a second in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;
/// Part of a time in which the thread waits for frames, from which the flowgraph holds the sender back.
const HELD_BACK: f64 = 0.05;
/// That time.
const WAITED_OVER: Duration = Duration::from_secs(20);

/// Reason of a stream that ends because timestamps have no room for another time base.
const NO_ROOM: &str = "the sender has begun too often, and timestamps have no room for another time base: start the flowgraph again";

/// Reason why the stream ended.
pub type TextOrError = Result<String, BlockError>;

/// Frames of the flowgraph, and the time that the thread has waited for them.
struct Waited<'a> {
    link: &'a mut Link,
    waited: &'a mut Duration,
}

impl Frames for Waited<'_> {
    fn take(&mut self) -> Option<FrameMut> {
        let began = Instant::now();
        let frame = self.link.take();
        *self.waited += began.elapsed();
        frame
    }

    fn push(&mut self, frame: FrameMut) {
        self.link.push(frame);
    }
}

/// State of the receiving thread.
pub struct Receiving {
    layout: Layout,
    rate_hz: f64,
    /// Time of the first sample, if it is given.
    given: Option<Time>,
    /// Whether samples arrive as they are taken.
    is_live: bool,
    idle: Option<Duration>,
    pub causes: Causes,
    pub events: BlockEvents,
    env: Env,
    assembler: Assembler,
    levels: Levels,
    rate: MeasuredRate,
    /// Time for which the thread has waited for frames since `waiting_since`.
    waited: Duration,
    waiting_since: Instant,
    /// Begin of reading, and time in seconds that samples may have waited for it in a pipe or a socket.
    read_since: Instant,
    unread_seconds: f64,
    /// Whether the samples of the connection have begun, and whether any have.
    is_connected: bool,
    has_samples: bool,
    /// Time of the newest samples, or of the begin.
    last: Instant,
}

impl Receiving {
    /// State of the thread of `source`, with up to `window` open frames; see [`Assembler::new`].
    pub fn new(
        source: &SampleSource,
        layout: Layout,
        window: (usize, bool),
        causes: Causes,
        env: &Env,
    ) -> Self {
        let now = Instant::now();
        Self {
            layout,
            rate_hz: source.adc_sample_rate_hz,
            given: Some(source.sync_time_seconds).filter(|time| *time != Time::default()),
            is_live: source.from.is_live(),
            idle: source.finish_after_seconds.map(Duration::from_secs_f64),
            events: env.events.clone(),
            env: env.clone(),
            assembler: Assembler::new(layout, window, source.frames, causes.clone()),
            levels: Levels::new(layout.of),
            rate: MeasuredRate::default(),
            waited: Duration::ZERO,
            waiting_since: now,
            read_since: now,
            // A pipe to the standard input is there before the program.
            unread_seconds: match source.from {
                Origin::Stdin => process_seconds().unwrap_or(0.0),
                _ => 0.0,
            },
            is_connected: false,
            // A block that is built again goes on in a later time base.
            has_samples: causes.samples.get() > 0,
            last: now,
            causes,
        }
    }

    /// Notes that the thread begins to read.
    pub fn begin_reading(&mut self) {
        let now = Instant::now();
        self.unread_seconds += now.saturating_duration_since(self.read_since).as_secs_f64();
        self.read_since = now;
    }

    /// Timestamp of the sample after the newest one.
    pub fn timestamp(&self) -> u64 {
        self.assembler.timestamp()
    }

    /// Number, in the time base, of the sample after the newest one.
    pub fn newest(&self) -> u64 {
        self.assembler.newest()
    }

    /// Whether samples before number `at` are of frames that were sent.
    pub fn is_late(&self, at: u64) -> bool {
        self.assembler.is_late(at)
    }

    /// Time since the newest samples.
    pub fn silence(&self) -> Duration {
        self.last.elapsed()
    }

    /// Whether the connection has had samples.
    pub fn is_begun(&self) -> bool {
        self.is_connected
    }

    /// Notes a new connection.
    pub fn connect(&mut self) {
        self.is_connected = false;
    }

    /// Whether `raw` has the first samples of a connection.
    pub fn begins(&self, raw: &[u8]) -> bool {
        !self.is_connected && raw.len() >= self.layout.of.bytes()
    }

    /// Begins the time base of a connection, or of another run of the sender, whose first samples `raw` have just arrived.
    pub fn begin(&mut self, raw: &[u8], link: &mut Link) {
        let (now, samples) = (Instant::now(), raw.len() / self.layout.of.bytes());
        let seconds = samples as f64 / self.rate_hz;
        self.causes.connections.add(u64::from(!self.is_connected));
        self.is_connected = true;
        (self.levels, self.rate) = (Levels::new(self.layout.of), MeasuredRate::default());
        let is_first = !std::mem::replace(&mut self.has_samples, true);
        if !is_first {
            let silent = now.saturating_duration_since(self.last).as_secs_f64() - seconds;
            self.begin_later_base(silent.max(0.0), link);
        }
        self.last = now;
        if is_first && let Some(given) = self.given {
            self.env.counters.real_time().set_sync_time(given);
            return;
        }
        if !self.is_live {
            return;
        }
        // The newest samples were taken when they arrived, or before.
        let measured = Time::now().plus_seconds(-seconds).unwrap_or_default();
        let may_have_waited = is_first && now.saturating_duration_since(self.read_since) < AT_ONCE;
        let unread = if may_have_waited { self.unread_seconds } else { 0.0 };
        let error =
            host_clock::error_seconds().unwrap_or(f64::INFINITY) + DELAY_SECONDS + seconds + unread;
        let base = TimeBase {
            sync_time: Some(measured),
            uncertainty_seconds: error,
            ..self.assembler.base
        };
        self.assembler.base = base;
        self.causes.sync_time.set(measured.to_unix_f64());
        self.causes.uncertainty.set(error);
        let clock = Clock::new(self.rate_hz, 1).in_base(&base);
        self.env.counters.real_time().set_zero(clock.sync_time.to_unix_f64());
    }

    /// Begins a later time base after a silence of `seconds`.
    fn begin_later_base(&mut self, seconds: f64, link: &mut Link) {
        let missing = (seconds * self.rate_hz).round() as u64;
        self.causes.missing.add(missing);
        self.causes.restarts.add(1);
        let mut frames = Waited { link, waited: &mut self.waited };
        // Timestamps without room end the stream: see `Assembler::is_full`.
        self.assembler.begin_base(self.causes.restarts.get(), &mut frames);
        let text = format!(
            "the stream goes on after {seconds:.2} s: about {missing} samples are missing by the clock of this host, uncertain \
             by {DELAY_SECONDS} s. The timestamps continue at {}",
            self.assembler.base.from
        );
        self.events.add(EventKind::Resynchronised, text);
    }

    /// Adds samples in a row. Returns the bytes of the whole ones.
    pub fn append(&mut self, raw: &[u8], link: &mut Link) -> usize {
        self.place(self.assembler.newest(), raw, link)
    }

    /// Adds samples, the first of which has the number `at` in the time base. Returns the bytes of the whole ones.
    pub fn place(&mut self, at: u64, raw: &[u8], link: &mut Link) -> usize {
        let whole = raw.len() - raw.len() % self.layout.of.bytes();
        if whole == 0 {
            return 0;
        }
        let raw = &raw[..whole];
        let now = Instant::now();
        if let Some(warning) = self.levels.look(raw, now) {
            self.events.add(EventKind::Warning, warning);
        }
        self.assembler.place(at, raw, &mut Waited { link, waited: &mut self.waited });
        // Samples that wait while the flowgraph holds the thread do not count as silence.
        self.last = Instant::now();
        if self.is_live {
            self.note_rate();
        }
        whole
    }

    fn note_rate(&mut self) {
        let wrong = self.rate.note(self.last, self.assembler.newest(), self.rate_hz);
        let elapsed = self.last.saturating_duration_since(self.waiting_since);
        let held_back = self.waited.as_secs_f64() > HELD_BACK * elapsed.as_secs_f64();
        if elapsed > WAITED_OVER {
            (self.waited, self.waiting_since) = (Duration::ZERO, self.last);
        }
        let Some(hz) = wrong else { return };
        let cause = if held_back && hz < self.rate_hz {
            "the flowgraph holds the sender back: find the slowest block"
        } else {
            "all frequencies and times are wrong unless the sender is a file: correct `adc_sample_rate_hz`, or the rate of \
             the sender"
        };
        let text = format!(
            "samples arrive at {hz:.4e} per second, and `adc_sample_rate_hz` is {}: {cause}",
            self.rate_hz
        );
        self.events.add(EventKind::Warning, text);
    }

    /// Sends the frames that are open: no more samples come for now.
    pub fn pause(&mut self, link: &mut Link) {
        self.assembler.flush(&mut Waited { link, waited: &mut self.waited });
    }

    /// Returns the reason if the stream ends.
    pub fn tick(&mut self, link: &Link) -> Option<String> {
        if link.stopping() {
            return Some("the flowgraph was stopped".to_owned());
        }
        if self.assembler.has_sent_all() {
            return Some("all frames were received".to_owned());
        }
        if self.assembler.is_full() {
            return Some(NO_ROOM.to_owned());
        }
        let idle = self.idle?;
        let is_idle = self.last.elapsed() >= idle;
        is_idle.then(|| format!("no data for {} s (finish_after_seconds)", idle.as_secs_f64()))
    }
}

/// Time since the start of this process.
fn process_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Field 22 of all, the 20th after the name in brackets.
    let start: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let now = clock_gettime(ClockId::Boottime);
    Some((now.tv_sec as f64 - start / TICKS_PER_SECOND).max(0.0) + now.tv_nsec as f64 * 1e-9)
}

#[cfg(test)]
mod tests {
    #[test]
    fn process_has_run_for_a_moment() {
        let seconds = super::process_seconds();
        assert!(seconds.is_some_and(|seconds| (0.0..1e5).contains(&seconds)), "{seconds:?}");
    }
}
