//! Wait times of a block, latency of frames, and real time of timestamps.
//!
//! The block's thread writes all values and other threads read them: atomics, no locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Value of `since` while the block works.
const WORKING: u64 = u64::MAX;

/// Cause of a wait between two calls of `work`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Input frames; for a source: its data.
    Input,
    /// Room in a downstream queue, or a buffer that readers still hold.
    Room,
    /// Neither: a device, or a time. Not counted.
    Itself,
}

const WAITS: [For; 3] = [For::Input, For::Room, For::Itself];

/// Wait times of a block, by cause.
pub(super) struct Waiting {
    epoch: Instant,
    /// Start of the current wait, in nanoseconds since the epoch. The thread that replaces the value counts the
    /// time up to then, so that no time counts twice.
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

    /// Current time, in nanoseconds since the epoch.
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Notes that the block begins to wait.
    pub fn begin(&self, what: For) {
        self.what.store(what as u8, Ordering::Relaxed);
        self.since.store(self.now(), Ordering::Release);
    }

    /// Notes that the block works again.
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

    /// Cause of the current wait; `None` while the block works.
    pub fn waits(&self) -> Option<For> {
        let is_waiting = self.since.load(Ordering::Acquire) != WORKING;
        is_waiting.then(|| self.what())
    }

    fn what(&self) -> For {
        WAITS[usize::from(self.what.load(Ordering::Relaxed))]
    }

    /// Total time waited for input and for room.
    pub fn totals(&self) -> [Duration; 2] {
        let (since, now) = (self.since.load(Ordering::Acquire), self.now());
        // A wait in progress counts up to now.
        if since < now
            && self.since.compare_exchange(since, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.count(since, now);
        }
        [&self.for_input, &self.for_room]
            .map(|sum| Duration::from_nanos(sum.load(Ordering::Relaxed)))
    }
}

/// Number of push times stored per output of a source.
const REMEMBERED: usize = 4096;
/// Shortest interval between two stored push times, in nanoseconds, so that they cover at least 1 s.
const SPACING: u64 = 250_000;

/// Push times of the frames of a source.
pub(super) struct Pushes {
    /// Timestamp after a frame's last sample, and time of the push in nanoseconds since the epoch.
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

    /// Notes that a frame that ends before timestamp `until` was pushed at `now`. Only for the source's thread.
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

    /// Time at which all samples before `until` had been pushed, in nanoseconds since the epoch: the next stored push
    /// time, or the oldest or newest one if `until` is beyond those stored. `None` before the first push.
    fn pushed(&self, until: u64) -> Option<u64> {
        let count = self.count.load(Ordering::Acquire);
        // The oldest entry may be being overwritten.
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

/// Lag in seconds from which on a sync time is ignored: the sender counts from another time, or plays a recording.
const BELIEVED: f64 = 86_400.0;
/// Largest drift of the clock of a source against that of the host that is no lag, as a fraction. Oscillators without a
/// reference are off by less; a block that is slower than the stream by more has a growing lag.
const DRIFT: f64 = 1e-4;

/// Real time of a source's timestamps: the time of timestamp 0, in seconds since the epoch.
#[derive(Debug)]
pub(super) struct Origin {
    /// Time derived from the earliest sample, which follows later samples by at most [`DRIFT`]; NaN before the first
    /// one.
    earliest: AtomicU64,
    /// Time of the last sample, in seconds since the epoch.
    noted: AtomicU64,
    /// Time known to the block; NaN if unknown.
    known: AtomicU64,
    newest: AtomicU64,
}

impl Origin {
    pub fn new() -> Arc<Self> {
        let nan = || AtomicU64::new(f64::NAN.to_bits());
        Arc::new(Self { earliest: nan(), noted: nan(), known: nan(), newest: AtomicU64::new(0) })
    }

    /// Notes that all samples before timestamp `until`, at `rate_hz`, were pushed `now` seconds after the
    /// epoch. Only for the source's thread.
    pub fn note(&self, until: u64, rate_hz: f64, now: f64) {
        let zero = now - until as f64 / rate_hz;
        let earliest = f64::from_bits(self.earliest.load(Ordering::Relaxed));
        // A stream that restarts from an earlier timestamp has another time of timestamp 0. A step of less than 1 s
        // is no restart, because the outputs of one source may be some frames apart.
        let newest = self.newest.load(Ordering::Relaxed);
        let is_new = earliest.is_nan() || (until as f64) < newest as f64 - rate_hz;
        self.newest.store(if is_new { until } else { until.max(newest) }, Ordering::Relaxed);
        let noted = f64::from_bits(self.noted.swap(now.to_bits(), Ordering::Relaxed));
        let followed = earliest + DRIFT * (now - noted).max(0.0);
        let earliest = if is_new { zero } else { zero.min(followed) };
        self.earliest.store(earliest.to_bits(), Ordering::Relaxed);
    }

    /// Sets the time known to the block.
    pub fn set_known(&self, zero: Option<f64>) {
        self.known.store(zero.unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
    }

    /// Time of timestamp 0, in seconds since the epoch; `None` before the first sample.
    pub fn zero(&self) -> Option<f64> {
        let [earliest, known] =
            [&self.earliest, &self.known].map(|zero| f64::from_bits(zero.load(Ordering::Relaxed)));
        let is_believed = (earliest - known).abs() < BELIEVED;
        Some(if is_believed { known } else { earliest }).filter(|zero| zero.is_finite())
    }
}

/// Upper bounds of the bins of the latency histogram, in seconds; one more bin has no bound.
pub const LATENCY_BOUNDS_SECONDS: [f64; 13] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// Histogram of the latencies of frames from source to sink.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Number of frames in each bin of [`LATENCY_BOUNDS_SECONDS`], and above the last bound.
    pub counts: [u64; LATENCY_BOUNDS_SECONDS.len() + 1],
    /// Sum of all latencies.
    pub sum: Duration,
}

/// Latencies of the frames that a sink consumes.
#[derive(Default)]
pub(super) struct Latency {
    counts: [AtomicU64; LATENCY_BOUNDS_SECONDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Latency {
    /// Notes that the sink has consumed, at `now`, the samples before timestamp `until` from `sources`. Their latency
    /// counts from the time at which the last source had pushed them.
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
    fn wait_read_while_in_progress_counts_once() {
        let waiting = Waiting::new(Instant::now());
        assert_eq!(waiting.totals(), [Duration::ZERO; 2]);
        waiting.begin(For::Room);
        let pause = Duration::from_millis(5);
        std::thread::sleep(pause);
        let [_, seen] = waiting.totals();
        assert!(seen >= pause, "a wait in progress counts");
        waiting.end();
        waiting.begin(For::Input);
        waiting.end();
        let [input, room] = waiting.totals();
        assert!(room >= seen && input < pause, "{input:?} {room:?}");
        assert!(input + room <= Duration::from_nanos(waiting.now()));
        assert_eq!(waiting.totals(), [input, room], "no wait counts while the block works");
    }

    #[test]
    fn latency_of_a_frame_counts_from_its_last_sample() {
        let (first, second) = (Pushes::new(), Pushes::new());
        let latency = Latency::default();
        latency.note(&[Arc::clone(&first)], 100, 5);
        assert_eq!(latency.get(), Latencies::default(), "no frame was pushed yet");
        let millisecond = 1_000_000;
        for n in 1..=10_000 {
            first.note(100 * n, n * millisecond);
            second.note(100 * n, (n + 3) * millisecond);
        }
        let until = 100 * 9_990;
        // The two sources pushed samples up to `until` at 9990 and 9993 ms.
        latency.note(&[first.clone(), second], until, 10_000 * millisecond);
        assert_eq!(latency.get().sum, Duration::from_millis(7));
        assert_eq!(latency.get().counts[3], 1);
        // Between two frames the later one counts; for frames that are not stored any more, the oldest stored one.
        assert_eq!(first.pushed(until - 50), Some(9_990 * millisecond));
        assert_eq!(first.pushed(1), Some((10_000 - REMEMBERED as u64 + 2) * millisecond));
        assert_eq!(first.pushed(u64::MAX), Some(10_000 * millisecond));
    }

    #[test]
    fn pushes_at_high_frame_rate_are_thinned() {
        let pushes = Pushes::new();
        for n in 0..1000 {
            pushes.note(n, n * SPACING / 10);
        }
        assert_eq!(pushes.count.load(Ordering::Relaxed), 100);
        let late = pushes.pushed(500).unwrap_or_default() - 500 * SPACING / 10;
        assert!(late < SPACING);
    }

    #[test]
    fn origin_without_sync_time_follows_the_earliest_sample() {
        let origin = Origin::new();
        assert_eq!(origin.zero(), None);
        // A sample per second; the first frame was 3 s late, the third one is on time.
        for (until, now) in [(10, 1013.0), (20, 1021.0), (30, 1030.0), (40, 1047.5)] {
            origin.note(until, 1.0, now);
        }
        // The fourth frame came 17.5 s after the third one, and 7.5 s late.
        assert_eq!(origin.zero(), Some(1000.0 + 17.5 * DRIFT));
        origin.note(5, 1.0, 2000.0);
        assert_eq!(origin.zero(), Some(1995.0), "timestamp 0 has another time now");
    }

    /// A time of a stream, in seconds, by the time on the clock of the host.
    type Course = fn(f64) -> f64;

    /// Largest and last lag, in seconds, in `seconds` of a stream that begins at 1000 s. Each second the source pushes at
    /// the time `pushed` the samples up to the time `sampled`, and the block has consumed those up to `consumed`.
    fn lags(seconds: u32, [pushed, sampled, consumed]: [Course; 3]) -> [f64; 2] {
        let (origin, rate) = (Origin::new(), 1e6);
        let lag = |second: u32| {
            let second = f64::from(second);
            let now = 1000.0 + pushed(second);
            origin.note((sampled(second) * rate) as u64, rate, now);
            now - origin.zero().unwrap_or(f64::NAN) - consumed(second)
        };
        (1..=seconds).map(lag).fold([0.0, 0.0], |[largest, _], lag| [lag.max(largest), lag])
    }

    #[test]
    fn drift_of_the_digitiser_is_no_lag() {
        const MONTH: u32 = 30 * 86_400;
        // Every 7th push waits for the scheduler, and the block has a latency of 50 ms.
        let jitter: Course = |second| second + if second % 7.0 == 0.0 { 0.02 } else { 0.0 };
        let drifts: [[Course; 2]; 4] = [
            [|second| second * (1.0 - 1e-5), |second| second * (1.0 - 1e-5) - 0.05],
            [|second| second * (1.0 + 1e-5), |second| second * (1.0 + 1e-5) - 0.05],
            [|second| second * (1.0 - 9.9e-5), |second| second * (1.0 - 9.9e-5) - 0.05],
            [|second| second * (1.0 + 1e-4), |second| second * (1.0 + 1e-4) - 0.05],
        ];
        for [sampled, consumed] in drifts {
            let [lag, _] = lags(MONTH, [jitter, sampled, consumed]);
            assert!((0.05..0.08).contains(&lag), "{lag}");
        }
    }

    #[test]
    fn slow_block_lags_whether_or_not_it_delays_its_source() {
        let on_time: Course = |second| second;
        let slow: Course = |second| second * 0.99;
        let slower_by_a_thousandth: Course = |second| second * 0.999;
        for (seconds, consumed) in [(210, slow), (2_300, slower_by_a_thousandth)] {
            for sampled in [on_time, consumed] {
                let [_, lag] = lags(seconds, [on_time, sampled, consumed]);
                assert!(lag > 2.0, "{seconds} {lag}");
            }
        }
        // A delay of 5 s, as of a pause after which all data follow, shows for hours.
        let behind: Course = |second| second.min(60.0).max(second - 5.0);
        let [largest, last] = lags(4 * 3600, [on_time, behind, behind]);
        assert!(largest > 4.9 && (3.5..3.6).contains(&last), "{largest} {last}");
    }

    #[test]
    fn pause_over_which_timestamps_continue_is_no_lag() {
        let after: Course = |second| if second < 60.0 { second } else { second + 600.0 };
        assert!(lags(300, [after, after, after])[0] < 1e-3);
    }

    #[test]
    fn origin_known_to_the_source_is_used_unless_a_day_off() {
        let origin = Origin::new();
        origin.set_known(Some(990.0));
        assert_eq!(origin.zero(), None, "no sample has arrived");
        origin.note(10, 1.0, 1013.0);
        assert_eq!(origin.zero(), Some(990.0));
        origin.set_known(Some(-1e9));
        assert_eq!(origin.zero(), Some(1003.0));
    }
}
