//! Position of the stream in time: decides which timestamps belong to the stream.
//!
//! Blocks downstream accept growing timestamps only, so a frame with a wrong timestamp far ahead would
//! stop all of them. Therefore the window moves far only on evidence that a handful of foreign or
//! hostile packets cannot provide, and never back: a stream that starts again continues in a later
//! turn (period of 2^48 samples) of the timestamps, with another time base.

use super::candidates::{Candidate, MEASURABLE};
use super::layout::Layout;
use crate::io::spead::timestamp::nearest;
use fxgraph::TimeBase;
use fxgraph::changes::MAX_TIMESTAMP;
use std::time::{Duration, Instant};

/// Bits of a timestamp on the wire.
pub const WIRE_BITS: u32 = 48;
/// Packets needed to begin the stream, or to step over a gap to a time that is not in the future.
pub const FEW: u32 = 4;
/// Packets needed to move the stream to a time that it cannot have reached at its own rate.
const MANY: u32 = 64;
/// Heaps over which [`MANY`] packets must be spread.
const MANY_HEAPS: u32 = 3;
/// Least silence of the old time before [`MANY`] packets move the stream.
const SILENCE: Duration = Duration::from_millis(250);
/// Time after which [`FEW`] packets count as [`MANY`], and time by which a stream must have jumped back
/// to count as restarted.
const RESTART: Duration = Duration::from_secs(1);
/// Time for which several candidates at the start are compared.
const COMPARED: Duration = Duration::from_millis(50);
/// Tolerance, in seconds, by which packets may be ahead of the stream's clock because of jitter of the
/// network and the scheduler.
const EARLY_SECONDS: f64 = 0.1;
/// The same tolerance for packets of other senders, which do not set the clock.
const DUE_SECONDS: f64 = 1e-3;
/// Time for which a restarted stream may overlap with delayed packets from before the restart.
const OVERLAP: Duration = Duration::from_millis(100);
/// Least samples between the last frame of a time base and the first timestamp of the next one: more than any filter
/// window, dump or average spans, so that no block adds samples of both.
const LEAST_GAP: u64 = 1 << 44;
/// Lead of a stream over its clock, in seconds, from which the sender's clock must have been reset.
const LEAP_SECONDS: f64 = 1.0;
/// Largest drift of the stream's clock against the host's clock, as a fraction.
const DRIFT: f64 = 1e-4;
/// Errors of the rate of timestamps, as a fraction of real time: of a wrong stream, and of the right
/// stream measured over a short and over a long time.
const WRONG_PACE: f64 = 0.5;
const NEAR_PACE: f64 = 0.1;
const RIGHT_PACE: f64 = 0.02;

/// Position of a heap relative to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In the window, this many frames from its beginning.
    Here(usize),
    /// Just after the window, which must move by this many frames to have the heap in its last frame.
    Forward(u64),
    /// Before the window: too late.
    Late,
    /// Elsewhere: several packets are needed to show that the stream is there.
    Elsewhere,
}

/// Relation of a candidate's sender to the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A sender of the stream.
    Current,
    /// Another sender, first heard when the stream was silent.
    New,
    /// Another sender, heard while the stream continued.
    Beside,
}

/// How the stream continues at a candidate's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The stream begins.
    Begin,
    /// It continues, with or without a gap, in agreement with its clock or its senders.
    Along,
    /// It continues, with or without a gap, because enough packets agree.
    Ahead,
    /// It continues so far ahead of its clock that the sender's clock must have been reset.
    Leap,
    /// It continues before the window: the sender was restarted.
    Back,
}

/// The stream's clock relative to the host's clock.
struct Clock {
    started: Instant,
    now: Instant,
    /// Seconds from `started` to `now`.
    age_seconds: f64,
    /// Time of the last packet of the stream with new data.
    last: Instant,
    /// Least difference of the host's clock and the stream's clock, in seconds, and when a sender of the
    /// stream last confirmed it.
    offset_seconds: Option<f64>,
    measured: Instant,
}

/// Timeline of the stream. Frames are counted from `origin`.
pub struct Timeline {
    samples_per_frame: u64,
    samples_per_heap: u64,
    /// Frames in the window.
    len: u64,
    /// Frames by which a new heap may be ahead of the newest heap so far.
    step: u64,
    adc_sample_rate_hz: f64,
    /// Time base of the frames; it begins at the stream's timestamp 0.
    pub time_base: TimeBase,
    /// Number of the first frame in the window; `None` before the first heap.
    pub base: Option<u64>,
    /// Number of the newest frame with data.
    pub front: u64,
    /// Timestamp of the newest heap with data, since the origin.
    pub newest: u64,
    /// Whether a frame with data was sent since the stream began, or began again.
    pub started: bool,
    /// Clock of the stream; `None` for a file, which is read at any rate.
    clock: Option<Clock>,
    /// A host time and the samples since sync time at that time, until the stream starts again.
    real_time: Option<(Instant, f64)>,
}

impl Clock {
    /// Returns the lead of the host's clock over a stream that is `seconds` old, in seconds.
    fn offset(&self, seconds: f64) -> f64 {
        self.age_seconds - seconds
    }

    /// Sets the present time, which is the same for all packets of a system call.
    fn set(&mut self, now: Instant) {
        self.now = now;
        self.age_seconds = now.saturating_duration_since(self.started).as_secs_f64();
    }

    /// Returns the time since `then`, mostly the present time itself.
    fn since(&self, then: Instant) -> Duration {
        if then == self.now { Duration::ZERO } else { self.now.saturating_duration_since(then) }
    }
}

impl Timeline {
    /// Creates the timeline of a stream received through a window of `len` frames, whose heaps may be
    /// out of order by `stride` heaps.
    pub fn new(layout: &Layout, len: u64, stride: u64, adc_sample_rate_hz: f64) -> Self {
        Self {
            samples_per_frame: layout.samples_per_frame(),
            samples_per_heap: layout.samples_per_heap,
            len,
            step: stride.div_ceil(layout.heaps_per_frame as u64).clamp(1, (len / 2).max(1)),
            adc_sample_rate_hz,
            time_base: TimeBase::default(),
            base: None,
            front: 0,
            newest: 0,
            started: false,
            clock: None,
            real_time: None,
        }
    }

    /// Sets real time: at `at`, sync time was `seconds` ago.
    pub fn set_real_time(&mut self, at: Instant, seconds: f64) {
        self.real_time = Some((at, seconds * self.adc_sample_rate_hz));
    }

    /// Sets the present time.
    pub fn tick(&mut self, now: Instant) {
        let new = || Clock {
            started: now,
            now,
            age_seconds: 0.0,
            last: now,
            offset_seconds: None,
            measured: now,
        };
        self.clock.get_or_insert_with(new).set(now);
    }

    /// Returns the present time; `None` for a file.
    pub fn now(&self) -> Option<Instant> {
        self.clock.as_ref().map(|clock| clock.now)
    }

    /// Returns the duration of a frame in seconds.
    pub fn frame_seconds(&self) -> f64 {
        self.samples_per_frame as f64 / self.adc_sample_rate_hz
    }

    /// Extends the 48-bit timestamp `wire` to the timestamp since the origin that is nearest to the
    /// expected present time of the stream.
    pub fn unwrap(&self, wire: u64) -> u64 {
        let Some(base) = self.base else { return self.unwrap_first(wire) };
        let elapsed_seconds = self.silence().map_or(0.0, |silence| silence.as_secs_f64());
        let near = base * self.samples_per_frame;
        let near = near.saturating_add((elapsed_seconds * self.adc_sample_rate_hz) as u64);
        nearest(wire, near)
    }

    /// Extends the 48-bit timestamp `wire` before the stream has begun: to the turn nearest to real time, which
    /// is needed for a stream older than one turn.
    fn unwrap_first(&self, wire: u64) -> u64 {
        let Some(((at, samples), now)) = self.real_time.zip(self.now()) else { return wire };
        let rate = self.adc_sample_rate_hz;
        let near = samples + now.saturating_duration_since(at).as_secs_f64() * rate;
        if !(0.0..MAX_TIMESTAMP as f64 / 2.0).contains(&near) {
            return wire;
        }
        nearest(wire, near as u64)
    }

    /// Notes a packet with new data for `frame`. Returns whether `timestamp` is ahead of the stream's
    /// clock.
    pub fn accepted(&mut self, frame: u64, timestamp: u64) -> bool {
        self.front = self.front.max(frame);
        self.newest = self.newest.max(timestamp);
        let Some(clock) = &mut self.clock else { return false };
        clock.last = clock.now;
        let offset = clock.offset(timestamp as f64 / self.adc_sample_rate_hz);
        clock.offset_seconds.is_none_or(|least| offset < least)
    }

    /// Moves the present time by a wait for a frame, during which a packet of the stream was in memory.
    pub fn waited(&mut self, time: Duration) {
        if let Some(clock) = &mut self.clock {
            clock.set(clock.now + time);
            clock.last = clock.now;
        }
    }

    /// Updates the stream's clock by a packet of one of its senders.
    pub fn measure(&mut self, timestamp: u64) {
        let Some(clock) = &mut self.clock else { return };
        let elapsed = clock.since(clock.measured).as_secs_f64();
        clock.measured = clock.now;
        let offset = clock.offset(timestamp as f64 / self.adc_sample_rate_hz);
        let least = clock.offset_seconds.map_or(offset, |least| least + DRIFT * elapsed);
        clock.offset_seconds = Some(least.min(offset));
    }

    /// Returns the position of a heap of frame number `frame`. `trusted`: other packets have shown that
    /// the stream is at this time.
    pub fn judge(&self, frame: u64, trusted: bool) -> Verdict {
        let Some(base) = self.base else { return Verdict::Elsewhere };
        if frame < base {
            let is_late = trusted || (base - frame <= self.len && self.is_lag(base - frame));
            return if is_late { Verdict::Late } else { Verdict::Elsewhere };
        }
        let end = base + self.len;
        let reach = if trusted { self.len } else { self.step };
        match frame {
            _ if frame > self.front.max(base) + reach => Verdict::Elsewhere,
            _ if frame < end => Verdict::Here((frame - base) as usize),
            _ => Verdict::Forward(frame - end + 1),
        }
    }

    /// Decides whether, and how, the stream continues at the time of `candidate`; `None` without enough
    /// evidence. `is_full`: there is no memory to hold more packets.
    pub fn decide(&self, candidate: &Candidate, standing: Standing, is_full: bool) -> Option<Move> {
        let base = self.base?;
        let lasting = candidate.lasting(self.now());
        let few = candidate.evidence >= FEW;
        let many = (candidate.evidence >= MANY && candidate.heaps >= MANY_HEAPS)
            || (few && lasting.is_some_and(|lasting| lasting >= RESTART));
        let alone = match standing {
            Standing::Beside => self.is_silent(RESTART),
            _ => self.is_silent(SILENCE) || (is_full && self.is_apart(candidate)),
        };
        let wrong = self.is_of_wrong_pace(candidate);
        if candidate.lowest < base {
            let goes_on = many && alone && !self.is_laggard(candidate);
            return (goes_on || wrong).then_some(Move::Back);
        }
        let is_inside = candidate.lowest < base + self.len;
        let goes_on = if standing == Standing::Current {
            is_inside || self.has_happened(candidate.lowest)
        } else {
            self.is_due(candidate.lowest) && (is_inside || many || self.is_silent(SILENCE))
        };
        if few && goes_on {
            return Some(Move::Along);
        }
        ((many && alone) || wrong).then(|| self.way_ahead(candidate))
    }

    /// Decides where the stream continued when no more packets can come.
    pub fn last_chance(
        &self,
        candidates: &[Candidate],
        standing: impl Fn(&Candidate) -> Standing,
    ) -> Option<(usize, Move)> {
        let base = self.base.filter(|_| self.is_silent(SILENCE))?;
        let is_possible = |(_, candidate): &(usize, &Candidate)| {
            let is_back = candidate.lowest < base;
            candidate.is_likely()
                && !(is_back && self.is_laggard(candidate))
                && (standing(candidate) != Standing::Beside || self.is_silent(RESTART))
        };
        let possible = candidates.iter().enumerate().filter(is_possible);
        let (index, candidate) = possible.max_by_key(|(_, candidate)| candidate.evidence)?;
        let is_back = candidate.lowest < base;
        Some((index, if is_back { Move::Back } else { self.way_ahead(candidate) }))
    }

    fn way_ahead(&self, candidate: &Candidate) -> Move {
        // A stream without a measured rate, and a file, have no clock that could have been reset.
        let is_leap = self.ahead_seconds(candidate.lowest).is_some_and(|s| s > LEAP_SECONDS);
        if is_leap { Move::Leap } else { Move::Ahead }
    }

    /// Whether packets of `candidate` came while the stream continued.
    pub fn is_beside(&self, candidate: &Candidate) -> bool {
        let times = self.clock.as_ref().zip(candidate.began);
        times.is_some_and(|(clock, began)| clock.last.saturating_duration_since(began) > OVERLAP)
    }

    /// Whether no packet of the stream came since the first packet of `candidate`. A packet far from a
    /// candidate interrupts the candidate, a near packet does not.
    fn is_apart(&self, candidate: &Candidate) -> bool {
        let times = self.clock.as_ref().zip(candidate.began);
        !self.is_near(candidate.lowest) || times.is_none_or(|(clock, began)| clock.last <= began)
    }

    /// Whether `candidate` lags behind only as much as packets delayed in the network do, which is no
    /// restart.
    fn is_laggard(&self, candidate: &Candidate) -> bool {
        let lag = self.base.unwrap_or(0).saturating_sub(candidate.lowest);
        self.clock.is_some() && self.is_lag(lag)
    }

    /// Whether packets `frames` frames behind may have been delayed in the network. For a file, which has
    /// no clock, this is always possible.
    fn is_lag(&self, frames: u64) -> bool {
        self.silence().is_none_or(|silence| {
            silence < RESTART && frames as f64 * self.frame_seconds() <= RESTART.as_secs_f64()
        })
    }

    /// Whether frame number `frame` is in the window.
    pub fn is_in_window(&self, frame: u64) -> bool {
        self.base.is_some_and(|base| (base..base + self.len).contains(&frame))
    }

    /// Whether frame number `frame` is so near the window that packets of the frame do not contradict
    /// packets in the window.
    pub fn is_near(&self, frame: u64) -> bool {
        self.base.is_some_and(|base| (base..base + 2 * self.len).contains(&frame))
    }

    /// Removes and returns the candidates that are earlier parts of the stream of `candidate`, according
    /// to the host's clock, the earliest first.
    pub fn parts_before(
        &self,
        candidate: &Candidate,
        candidates: &mut Vec<Candidate>,
    ) -> Vec<Candidate> {
        let is_part = |other: &mut Candidate| {
            let Some((began, at)) = other.first.1.zip(candidate.first.1) else { return false };
            let samples = candidate.first.0.saturating_sub(other.first.0) as f64;
            let passed = at.saturating_duration_since(began).as_secs_f64();
            other.lowest <= candidate.lowest
                && began <= at
                && (samples / self.adc_sample_rate_hz - passed).abs() <= EARLY_SECONDS
        };
        let mut parts: Vec<Candidate> = candidates.extract_if(.., is_part).collect();
        parts.sort_by_key(|part| part.lowest);
        parts
    }

    /// Returns the index of the candidate that is the stream, at the start.
    pub fn choose(&self, candidates: &[Candidate], is_full: bool) -> Option<usize> {
        let now = self.now();
        let best = self.best(candidates)?;
        let chosen = &candidates[best];
        if chosen.evidence < FEW {
            return None;
        }
        // A file has no rate: there, rivals are candidates with a similar number of packets.
        let least = if now.is_some() { 2 } else { 2.max(chosen.evidence / 8) };
        let mut rivals = candidates.iter().filter(|candidate| candidate.evidence >= least);
        let is_compared = match (chosen.lasting(now), rivals.clone().nth(1).is_some()) {
            (None, has_rivals) => !has_rivals || chosen.evidence >= MANY,
            // Packets that come at once may be of a foreign sender that is too fast: the stream may follow.
            (Some(lasting), false) => {
                let stream_seconds = chosen.samples() / self.adc_sample_rate_hz;
                let is_fast = stream_seconds > lasting.as_secs_f64() * (1.0 + WRONG_PACE);
                lasting >= MEASURABLE || !is_fast
            }
            (Some(lasting), true) => {
                let is_measurable = |c: &Candidate| c.lasting(now) >= Some(MEASURABLE);
                let error = chosen.pace_error(now, self.adc_sample_rate_hz);
                lasting >= COMPARED && (error <= WRONG_PACE || rivals.all(is_measurable))
            }
        };
        (is_full || is_compared).then_some(best)
    }

    /// Returns the index of the most plausible candidate.
    pub fn best(&self, candidates: &[Candidate]) -> Option<usize> {
        let most = candidates.iter().map(|candidate| candidate.evidence).max()?;
        let rate = self.adc_sample_rate_hz;
        let key = |candidate: &Candidate| {
            let error = candidate.pace_error(self.now(), rate);
            // First the candidates at about the rate of real time, then the one with the most packets.
            (error > WRONG_PACE, error > NEAR_PACE, u32::MAX - candidate.evidence)
        };
        let worthy = candidates.iter().enumerate().filter(|(_, c)| c.evidence >= most.min(FEW));
        worthy.min_by_key(|(_, candidate)| key(candidate)).map(|(index, _)| index)
    }

    /// Whether `candidate` advances at the rate of real time, while the present stream does not.
    fn is_of_wrong_pace(&self, candidate: &Candidate) -> bool {
        let now = self.now();
        let Some(lasting) = candidate.lasting(now).filter(|lasting| *lasting >= RESTART) else {
            return false;
        };
        let samples = self.newest.saturating_sub(candidate.stream_then) as f64;
        let pace = samples / self.adc_sample_rate_hz / lasting.as_secs_f64();
        candidate.seen >= u64::from(MANY)
            && candidate.pace_error(now, self.adc_sample_rate_hz) <= RIGHT_PACE
            && (pace - 1.0).abs() >= WRONG_PACE
    }

    /// Moves the window to frame number `base`; `front` is the newest frame with data.
    pub fn begin(&mut self, base: u64, front: u64) {
        (self.base, self.front) = (Some(base), front);
    }

    /// Notes that the window reaches up to frame number `frame`.
    pub fn reach(&mut self, frame: u64) {
        self.front = self.front.max(frame);
    }

    /// Timestamp, for the flowgraph, of the stream's timestamp 0.
    pub fn origin(&self) -> u64 {
        self.time_base.from
    }

    /// Starts the stream again with time base `base`. `near`: a host time and the stream's timestamp at that time,
    /// if they are known.
    pub fn start_again(&mut self, base: TimeBase, near: Option<(Instant, u64)>) {
        self.time_base = base;
        (self.base, self.newest) = (None, 0);
        // Real time was counted from the old sync time.
        self.real_time = near.map(|(at, timestamp)| (at, timestamp as f64));
        self.forget_pace();
    }

    /// Moves the stream, which goes on, to time base `base` and by `ahead` samples, a multiple of 2^48.
    pub fn change_base(&mut self, base: TimeBase, ahead: i128) {
        self.time_base = base;
        if ahead == 0 {
            return;
        }
        self.newest = u64::try_from(i128::from(self.newest) + ahead).unwrap_or(0);
        let frame = self.newest / self.samples_per_frame;
        self.begin(frame, frame);
        self.forget_pace();
    }

    /// First timestamp at which the stream can start again, a multiple of 2^48; `None` if timestamps have no room.
    pub fn next_origin(&self) -> Option<u64> {
        let end = self.base.map_or(0, |base| base.saturating_add(self.len));
        let reached = self.origin().saturating_add(end.saturating_mul(self.samples_per_frame));
        let after = ((reached.saturating_add(LEAST_GAP) >> WIRE_BITS) + 1) << WIRE_BITS;
        (after < MAX_TIMESTAMP).then_some(after)
    }

    /// Forgets the stream's clock, because the sender's clock was reset.
    pub fn forget_pace(&mut self) {
        self.started = false;
        if let Some(clock) = &mut self.clock {
            clock.offset_seconds = None;
        }
    }

    /// Returns the time since the last packet of the stream with new data; `None` for a file.
    pub fn silence(&self) -> Option<Duration> {
        self.clock.as_ref().map(|clock| clock.since(clock.last))
    }

    /// Whether the stream has been silent for `at_least`, and for longer than 4 heaps last.
    fn is_silent(&self, at_least: Duration) -> bool {
        let heap_seconds = self.samples_per_heap as f64 / self.adc_sample_rate_hz;
        let pause = Duration::try_from_secs_f64(4.0 * heap_seconds).unwrap_or(Duration::MAX);
        self.silence().is_none_or(|silence| silence >= pause.max(at_least))
    }

    /// Returns the lead of frame number `frame` over the stream's clock in seconds, if it is known.
    fn ahead_seconds(&self, frame: u64) -> Option<f64> {
        let clock = self.clock.as_ref()?;
        let stream = frame as f64 * self.samples_per_frame as f64 / self.adc_sample_rate_hz;
        Some(clock.offset_seconds? - clock.offset(stream))
    }

    /// Whether the stream's clock has reached frame number `frame`, so that any sender may send it.
    pub fn is_due(&self, frame: u64) -> bool {
        self.ahead_seconds(frame).is_some_and(|seconds| seconds <= DUE_SECONDS)
    }

    /// Whether frame number `frame` is known not to be in the future.
    fn has_happened(&self, frame: u64) -> bool {
        self.ahead_seconds(frame).is_some_and(|seconds| seconds <= EARLY_SECONDS)
    }
}
