//! Where the time of a block goes, and how long frames are under way.
//!
//! All of it is counted by the thread that works and read by others: atomic numbers, no locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// In place of the time since when a block waits, while it works.
const WORKING: u64 = u64::MAX;

/// What a block waits for between two calls of its `work`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Frames; a source: whatever it makes them of.
    Input,
    /// Room in queues behind it, or a buffer that its readers hold.
    Room,
    /// Neither: a device, or a time. Not counted.
    Itself,
}

const WAITS: [For; 3] = [For::Input, For::Room, For::Itself];

/// How long a block waited for what.
pub(super) struct Waiting {
    epoch: Instant,
    /// Since when, in nanoseconds of the epoch. Whoever exchanges it counts the time up to then, so
    /// nothing is counted twice.
    since: AtomicU64,
    what: AtomicU8,
    for_input: AtomicU64,
    for_room: AtomicU64,
}

impl Waiting {
    pub fn new(epoch: Instant) -> Self {
        let zero = || AtomicU64::new(0);
        let since = AtomicU64::new(WORKING);
        Self { epoch, since, what: AtomicU8::new(0), for_input: zero(), for_room: zero() }
    }

    /// Nanoseconds of the epoch.
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// The block begins to wait.
    pub fn begin(&self, what: For) {
        self.what.store(what as u8, Ordering::Relaxed);
        self.since.store(self.now(), Ordering::Release);
    }

    /// It works again.
    pub fn end(&self) {
        let since = self.since.swap(WORKING, Ordering::AcqRel);
        if since != WORKING {
            self.count(since, self.now());
        }
    }

    fn count(&self, since: u64, until: u64) {
        let sum = match self.what() {
            For::Input => &self.for_input,
            For::Room => &self.for_room,
            For::Itself => return,
        };
        sum.fetch_add(until.saturating_sub(since), Ordering::Relaxed);
    }

    /// What is waited for now; `None` while the block works.
    pub fn waits(&self) -> Option<For> {
        let is_waiting = self.since.load(Ordering::Acquire) != WORKING;
        is_waiting.then(|| self.what())
    }

    fn what(&self) -> For {
        WAITS[usize::from(self.what.load(Ordering::Relaxed))]
    }

    /// Time waited for input and for room so far.
    pub fn totals(&self) -> [Duration; 2] {
        let (since, now) = (self.since.load(Ordering::Acquire), self.now());
        // A wait that goes on is counted up to now.
        if since < now
            && self.since.compare_exchange(since, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.count(since, now);
        }
        [&self.for_input, &self.for_room]
            .map(|sum| Duration::from_nanos(sum.load(Ordering::Relaxed)))
    }
}

/// Frames of a source that are remembered.
const REMEMBERED: usize = 4096;
/// Frames that come faster are not all remembered, so that what is goes back a second.
const SPACING: u64 = 250_000;

/// When a source pushed which samples.
pub(super) struct Pushes {
    /// Timestamp after a frame's last sample, and when it was pushed.
    entries: Box<[(AtomicU64, AtomicU64)]>,
    count: AtomicU64,
}

impl Pushes {
    pub fn new() -> Arc<Self> {
        let entries = (0..REMEMBERED).map(|_| Default::default()).collect();
        Arc::new(Self { entries, count: AtomicU64::new(0) })
    }

    fn entry(&self, number: u64) -> (u64, u64) {
        let (until, pushed) = &self.entries[number as usize % REMEMBERED];
        (until.load(Ordering::Relaxed), pushed.load(Ordering::Relaxed))
    }

    /// A frame that ends before timestamp `until` was pushed. By the source's thread only.
    pub fn note(&self, until: u64, now: u64) {
        let count = self.count.load(Ordering::Relaxed);
        if count > 0 && now.saturating_sub(self.entry(count - 1).1) < SPACING {
            return;
        }
        let entry = &self.entries[count as usize % REMEMBERED];
        entry.0.store(until, Ordering::Relaxed);
        entry.1.store(now, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Release);
    }

    /// When all samples before `until` were pushed. One that is forgotten was pushed earlier than what is
    /// said, one that was not remembered later.
    fn pushed(&self, until: u64) -> Option<u64> {
        let count = self.count.load(Ordering::Acquire);
        // The oldest one may be overwritten just now.
        let (mut low, mut high) = (count.saturating_sub(REMEMBERED as u64 - 1), count);
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle).0 < until {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (count > 0).then(|| self.entry(low.min(count - 1)).1)
    }
}

/// Smallest lag, in seconds, that a sync time is not believed to lead to: the sender counts from another
/// time, or plays a recording.
const BELIEVED: f64 = 86_400.0;

/// Real time of a source's timestamps: when the sample of timestamp 0 was taken, in seconds of the epoch.
#[derive(Debug)]
pub(super) struct Origin {
    /// By the sample that came earliest; NaN before any.
    earliest: AtomicU64,
    /// By what the block knows; NaN if it does not.
    known: AtomicU64,
    newest: AtomicU64,
}

impl Origin {
    pub fn new() -> Arc<Self> {
        let nan = || AtomicU64::new(f64::NAN.to_bits());
        Arc::new(Self { earliest: nan(), known: nan(), newest: AtomicU64::new(0) })
    }

    /// All samples before timestamp `until`, at `rate_hz`, were pushed `now` seconds after the epoch. By
    /// the source's thread only.
    pub fn note(&self, until: u64, rate_hz: f64, now: f64) {
        let zero = now - until as f64 / rate_hz;
        let earliest = f64::from_bits(self.earliest.load(Ordering::Relaxed));
        // A stream that starts again from an earlier timestamp counts from another time.
        // Outputs of one source may be some frames apart.
        let newest = self.newest.load(Ordering::Relaxed);
        let is_new = earliest.is_nan() || (until as f64) < newest as f64 - rate_hz;
        self.newest.store(if is_new { until } else { until.max(newest) }, Ordering::Relaxed);
        if is_new || zero < earliest {
            self.earliest.store(zero.to_bits(), Ordering::Relaxed);
        }
    }

    /// Sets what the block knows.
    pub fn set_known(&self, zero: Option<f64>) {
        self.known.store(zero.unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
    }

    /// The time of timestamp 0; `None` before the first sample.
    pub fn zero(&self) -> Option<f64> {
        let [earliest, known] =
            [&self.earliest, &self.known].map(|zero| f64::from_bits(zero.load(Ordering::Relaxed)));
        let is_believed = (earliest - known).abs() < BELIEVED;
        Some(if is_believed { known } else { earliest }).filter(|zero| zero.is_finite())
    }
}

/// Upper bounds of the classes of latencies, in seconds; one more has no bound.
pub const LATENCY_BOUNDS_SECONDS: [f64; 13] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// How many frames took how long from source to sink.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Frames of each class of [`LATENCY_BOUNDS_SECONDS`], and of those beyond.
    pub counts: [u64; LATENCY_BOUNDS_SECONDS.len() + 1],
    /// Sum of all.
    pub sum: Duration,
}

/// The latencies of what a sink takes.
#[derive(Default)]
pub(super) struct Latency {
    counts: [AtomicU64; LATENCY_BOUNDS_SECONDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Latency {
    /// The sink is done at `now` with samples before timestamp `until`, which come from `sources`. It
    /// is measured from when the last of them had pushed these samples.
    pub fn note(&self, sources: &[Arc<Pushes>], until: u64, now: u64) {
        let pushed = sources.iter().filter_map(|source| source.pushed(until)).max();
        let Some(pushed) = pushed else { return };
        let nanoseconds = now.saturating_sub(pushed);
        let seconds = nanoseconds as f64 / 1e9;
        let class = LATENCY_BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
        self.counts[class].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub fn get(&self) -> Latencies {
        Latencies {
            counts: std::array::from_fn(|class| self.counts[class].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_counted_once_whoever_looks() {
        let waiting = Waiting::new(Instant::now());
        assert_eq!(waiting.totals(), [Duration::ZERO; 2]);
        waiting.begin(For::Room);
        let pause = Duration::from_millis(5);
        std::thread::sleep(pause);
        let [_, seen] = waiting.totals();
        assert!(seen >= pause, "a wait that goes on counts");
        waiting.end();
        waiting.begin(For::Input);
        waiting.end();
        let [input, room] = waiting.totals();
        assert!(room >= seen && input < pause, "{input:?} {room:?}");
        assert!(input + room <= Duration::from_nanos(waiting.now()));
        assert_eq!(waiting.totals(), [input, room], "nothing is counted while it works");
    }

    #[test]
    fn a_frame_is_as_late_as_the_last_of_its_samples() {
        let (first, second) = (Pushes::new(), Pushes::new());
        let latency = Latency::default();
        latency.note(&[Arc::clone(&first)], 100, 5);
        assert_eq!(latency.get(), Latencies::default(), "nothing was pushed yet");
        let millisecond = 1_000_000;
        for n in 1..=10_000 {
            first.note(100 * n, n * millisecond);
            second.note(100 * n, (n + 3) * millisecond);
        }
        let until = 100 * 9_990;
        // Samples up to here came at 9990 and 9993 ms.
        latency.note(&[first.clone(), second], until, 10_000 * millisecond);
        assert_eq!(latency.get().sum, Duration::from_millis(7));
        assert_eq!(latency.get().counts[3], 1);
        // Between two frames the later one counts, and what is forgotten is late at least so much.
        assert_eq!(first.pushed(until - 50), Some(9_990 * millisecond));
        assert_eq!(first.pushed(1), Some((10_000 - REMEMBERED as u64 + 2) * millisecond));
        assert_eq!(first.pushed(u64::MAX), Some(10_000 * millisecond));
    }

    #[test]
    fn frames_that_come_fast_are_remembered_now_and_then() {
        let pushes = Pushes::new();
        for n in 0..1000 {
            pushes.note(n, n * SPACING / 10);
        }
        assert_eq!(pushes.count.load(Ordering::Relaxed), 100);
        let late = pushes.pushed(500).unwrap_or_default() - 500 * SPACING / 10;
        assert!(late < SPACING);
    }

    #[test]
    fn origin_without_sync_time_is_that_of_the_earliest_sample() {
        let origin = Origin::new();
        assert_eq!(origin.zero(), None);
        // A sample per second; the first frame was 3 s late, the third one is on time.
        for (until, now) in [(10, 1013.0), (20, 1021.0), (30, 1030.0), (40, 1047.5)] {
            origin.note(until, 1.0, now);
        }
        assert_eq!(origin.zero(), Some(1000.0));
        origin.note(5, 1.0, 2000.0);
        assert_eq!(origin.zero(), Some(1995.0), "it counts from another time now");
    }

    #[test]
    fn origin_that_a_source_knows_holds_unless_it_is_days_off() {
        let origin = Origin::new();
        origin.set_known(Some(990.0));
        assert_eq!(origin.zero(), None, "nothing has come");
        origin.note(10, 1.0, 1013.0);
        assert_eq!(origin.zero(), Some(990.0));
        origin.set_known(Some(-1e9));
        assert_eq!(origin.zero(), Some(1003.0));
    }
}
