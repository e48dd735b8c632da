//! Where the stream is: which timestamps belong to it, and which are elsewhere.
//!
//! What follows a source takes growing time only, so a frame with a wrong time far ahead would end
//! everything behind it. Hence the window moves far only on evidence that a handful of stray or
//! hostile packets cannot give, and never back: a stream that starts again continues in the next
//! turn of the 48-bit timestamps.

use super::candidates::{Candidate, MEASURABLE};
use super::layout::Layout;
use fxgraph::retune::MAX_TIMESTAMP;
use std::time::{Duration, Instant};

/// Bits of a timestamp on the wire.
pub const WIRE_BITS: u32 = 48;
/// Packets that make a beginning, or a step over a gap to a time that is not in the future.
pub const FEW: u32 = 4;
/// Packets that show that the stream went on where it cannot have come by itself.
const MANY: u32 = 64;
/// Heaps that these must be spread over.
const MANY_HEAPS: u32 = 3;
/// How long the old time must have been silent then, at least.
const SILENCE: Duration = Duration::from_millis(250);
/// How long a few packets must have gone on to show the same, and how far back a stream must be to
/// have been restarted.
const RESTART: Duration = Duration::from_secs(1);
/// For how long several streams at the start are compared.
const COMPARED: Duration = Duration::from_millis(50);
/// How far ahead of its clock a stream may be: what network and scheduling make of its pace.
const EARLY_SECONDS: f64 = 0.1;
/// The same for packets of other senders, which do not set the clock.
const DUE_SECONDS: f64 = 1e-3;
/// For how long a restarted stream may come beside the last packets of before, which were held up.
const OVERLAP: Duration = Duration::from_millis(100);
/// How near to real time the first timestamp must be for its turn to be that of real time.
const REAL_TIME_SECONDS: f64 = 60.0;
/// Lead of a stream over its clock, in seconds, at which its clock must have been reset.
const LEAP_SECONDS: f64 = 1.0;
/// How fast the stream's clock may drift from ours.
const DRIFT: f64 = 1e-4;
/// Errors of the pace of a stream that is not real, of one that may be after a short time, and of
/// one that is.
const WRONG_PACE: f64 = 0.5;
const NEAR_PACE: f64 = 0.1;
const RIGHT_PACE: f64 = 0.02;

/// Where a heap stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In the window, this many frames from its beginning.
    Here(usize),
    /// Just behind the window, which moves by this many frames to have the heap at its end.
    Forward(u64),
    /// Before the window: too late.
    Late,
    /// Elsewhere: it takes several packets to believe that the stream is there.
    Elsewhere,
}

/// Who sends a candidate's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A sender of the stream.
    Current,
    /// Another one, first heard when the stream was silent.
    New,
    /// Another one, heard while the stream went on.
    Beside,
}

/// How the stream goes on at a candidate's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// It begins.
    Begin,
    /// After a gap, or none, by its own clock or its own senders.
    Along,
    /// After a gap, or none, as the evidence says.
    Ahead,
    /// So far ahead of the pace until now that its clock was reset.
    Leap,
    /// Before the window: it was started again.
    Back,
}

/// The stream's clock against ours.
struct Clock {
    started: Instant,
    now: Instant,
    /// When a packet of the stream last brought something new.
    last: Instant,
    /// Least difference of our clock and the stream's, in seconds, and when a sender of the stream
    /// last said so.
    offset_seconds: Option<f64>,
    measured: Instant,
}

/// The stream's time. Frames are counted from its origin.
pub struct Timeline {
    samples_per_frame: u64,
    samples_per_heap: u64,
    /// Frames in the window.
    len: u64,
    /// Frames that the newest heap may be ahead of the newest one so far.
    step: u64,
    adc_sample_rate_hz: f64,
    /// Timestamp, for the flowgraph, of the stream's timestamp 0.
    pub origin: u64,
    /// Number of the first frame in the window, once there was a heap.
    pub base: Option<u64>,
    /// Number of the newest frame with data.
    pub front: u64,
    /// Timestamp of the newest heap with data, since the origin.
    pub newest: u64,
    /// Whether a frame with data was handed on since the stream began, or began again.
    pub started: bool,
    /// None for a file, which is read at any speed.
    clock: Option<Clock>,
    /// Samples since sync time at some time, until the stream starts again.
    real_time: Option<(Instant, f64)>,
}

impl Clock {
    /// By how much our clock is ahead of the time at which the stream is `seconds` old.
    fn offset(&self, seconds: f64) -> f64 {
        self.now.saturating_duration_since(self.started).as_secs_f64() - seconds
    }
}

impl Timeline {
    /// The time of a stream received through a window of `len` frames; heaps come in order but for
    /// `stride` heaps.
    pub fn new(layout: &Layout, len: u64, stride: u64, adc_sample_rate_hz: f64) -> Self {
        Self {
            samples_per_frame: layout.samples_per_frame(),
            samples_per_heap: layout.samples_per_heap,
            len,
            step: stride.div_ceil(layout.heaps_per_frame as u64).clamp(1, (len / 2).max(1)),
            adc_sample_rate_hz,
            origin: 0,
            base: None,
            front: 0,
            newest: 0,
            started: false,
            clock: None,
            real_time: None,
        }
    }

    /// At `at` sync time was `seconds` ago.
    pub fn set_real_time(&mut self, at: Instant, seconds: f64) {
        self.real_time = Some((at, seconds * self.adc_sample_rate_hz));
    }

    /// Says what time it is.
    pub fn tick(&mut self, now: Instant) {
        let new = || Clock { started: now, now, last: now, offset_seconds: None, measured: now };
        self.clock.get_or_insert_with(new).now = now;
    }

    /// What time it is; `None` for a file.
    pub fn now(&self) -> Option<Instant> {
        self.clock.as_ref().map(|clock| clock.now)
    }

    /// Length of a frame.
    pub fn frame_seconds(&self) -> f64 {
        self.samples_per_frame as f64 / self.adc_sample_rate_hz
    }

    /// The timestamp, since the origin, of which the wire carries 48 bits: the one nearest to where
    /// the stream should be now.
    pub fn unwrap(&self, wire: u64) -> u64 {
        let Some(base) = self.base else { return self.unwrap_first(wire) };
        let elapsed_seconds = self.silence().map_or(0.0, |silence| silence.as_secs_f64());
        let near = base * self.samples_per_frame;
        let near = near.saturating_add((elapsed_seconds * self.adc_sample_rate_hz) as u64);
        nearest(wire, near)
    }

    /// The timestamp of which the wire carries 48 bits, before there is a stream: in the turn of
    /// real time if that is about the time there, as of a stream that is older than a turn.
    fn unwrap_first(&self, wire: u64) -> u64 {
        let Some(((at, samples), now)) = self.real_time.zip(self.now()) else { return wire };
        let rate = self.adc_sample_rate_hz;
        let near = samples + now.saturating_duration_since(at).as_secs_f64() * rate;
        if !(0.0..MAX_TIMESTAMP as f64 / 2.0).contains(&near) {
            return wire;
        }
        let full = nearest(wire, near as u64);
        let apart_seconds = full.abs_diff(near as u64) as f64 / rate;
        if apart_seconds <= REAL_TIME_SECONDS { full } else { wire }
    }

    /// A packet for `frame` brought something new. Returns whether the stream's clock is not there
    /// yet.
    pub fn accepted(&mut self, frame: u64, timestamp: u64) -> bool {
        self.front = self.front.max(frame);
        self.newest = self.newest.max(timestamp);
        let Some(clock) = &mut self.clock else { return false };
        clock.last = clock.now;
        let offset = clock.offset(timestamp as f64 / self.adc_sample_rate_hz);
        clock.offset_seconds.is_none_or(|least| offset < least)
    }

    /// Sets the stream's clock by a packet of one of its senders.
    pub fn measure(&mut self, timestamp: u64) {
        let Some(clock) = &mut self.clock else { return };
        let elapsed = clock.now.saturating_duration_since(clock.measured).as_secs_f64();
        clock.measured = clock.now;
        let offset = clock.offset(timestamp as f64 / self.adc_sample_rate_hz);
        let least = clock.offset_seconds.map_or(offset, |least| least + DRIFT * elapsed);
        clock.offset_seconds = Some(least.min(offset));
    }

    /// Where a heap of frame number `frame` stands. Of packets that are `trusted` others have shown
    /// that the stream is there.
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

    /// How the stream goes on at the time of `candidate`, if there is evidence enough.
    /// `is_full`: there is no room to wait for more.
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

    /// Where the stream went on if no more packets come that could show it.
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
        // A stream without pace, and a file, have no clock that could have been set.
        let is_leap = self.ahead_seconds(candidate.lowest).is_some_and(|s| s > LEAP_SECONDS);
        if is_leap { Move::Leap } else { Move::Ahead }
    }

    /// Whether packets of `candidate` came while the stream went on.
    pub fn is_beside(&self, candidate: &Candidate) -> bool {
        let times = self.clock.as_ref().zip(candidate.began);
        times.is_some_and(|(clock, began)| clock.last.saturating_duration_since(began) > OVERLAP)
    }

    /// Whether none of the stream's packets came since the first one of `candidate`: those that are
    /// far from it interrupt it, those that are near do not.
    fn is_apart(&self, candidate: &Candidate) -> bool {
        let times = self.clock.as_ref().zip(candidate.began);
        !self.is_near(candidate.lowest) || times.is_none_or(|(clock, began)| clock.last <= began)
    }

    /// Whether `candidate` lags behind a little, as packets do that were held up on the way: it was
    /// not started again.
    fn is_laggard(&self, candidate: &Candidate) -> bool {
        let lag = self.base.unwrap_or(0).saturating_sub(candidate.lowest);
        self.clock.is_some() && self.is_lag(lag)
    }

    /// Whether packets may be `frames` frames behind for having been held up on the way. A file has no
    /// clock: there they always may.
    fn is_lag(&self, frames: u64) -> bool {
        self.silence().is_none_or(|silence| {
            silence < RESTART && frames as f64 * self.frame_seconds() <= RESTART.as_secs_f64()
        })
    }

    /// Whether frame number `frame` is in the window.
    pub fn is_in_window(&self, frame: u64) -> bool {
        self.base.is_some_and(|base| (base..base + self.len).contains(&frame))
    }

    /// Whether frame number `frame` is so near the window that packets there do not contradict those
    /// in it.
    pub fn is_near(&self, frame: u64) -> bool {
        self.base.is_some_and(|base| (base..base + 2 * self.len).contains(&frame))
    }

    /// Those of `candidates` that are earlier parts of the stream of `candidate`, by our clock, the
    /// earliest first.
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

    /// Which of the candidates at the start is the stream.
    pub fn choose(&self, candidates: &[Candidate], is_full: bool) -> Option<usize> {
        let now = self.now();
        let best = self.best(candidates)?;
        let chosen = &candidates[best];
        if chosen.evidence < FEW {
            return None;
        }
        // A file has no pace: there rivals are those with about as many packets.
        let least = if now.is_some() { 2 } else { 2.max(chosen.evidence / 8) };
        let mut rivals = candidates.iter().filter(|candidate| candidate.evidence >= least);
        let is_compared = match (chosen.lasting(now), rivals.clone().nth(1).is_some()) {
            (None, has_rivals) => !has_rivals || chosen.evidence >= MANY,
            // Packets that come at once may be of a stray that is too fast: the stream may follow.
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

    /// The most consistent one of the candidates.
    pub fn best(&self, candidates: &[Candidate]) -> Option<usize> {
        let most = candidates.iter().map(|candidate| candidate.evidence).max()?;
        let rate = self.adc_sample_rate_hz;
        let key = |candidate: &Candidate| {
            let error = candidate.pace_error(self.now(), rate);
            // Whatever is about as fast as real time; then the most packets.
            (error > WRONG_PACE, error > NEAR_PACE, u32::MAX - candidate.evidence)
        };
        let worthy = candidates.iter().enumerate().filter(|(_, c)| c.evidence >= most.min(FEW));
        worthy.min_by_key(|(_, candidate)| key(candidate)).map(|(index, _)| index)
    }

    /// Whether `candidate` keeps the pace of real time, which the stream so far does not.
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

    /// The window begins with frame number `base`, of the time of a candidate.
    pub fn begin(&mut self, base: u64, front: u64) {
        (self.base, self.front) = (Some(base), front);
    }

    /// The window reaches up to frame number `frame`.
    pub fn reach(&mut self, frame: u64) {
        self.front = self.front.max(frame);
    }

    /// The stream starts again: its timestamp 0 is in the next turn of 48 bits.
    pub fn start_again(&mut self) {
        self.origin = self.next_origin();
        (self.base, self.newest) = (None, 0);
        // It was counted from the sync time before.
        self.real_time = None;
        self.forget_pace();
    }

    /// Whether there is a turn left.
    pub fn can_start_again(&self) -> bool {
        self.next_origin() < MAX_TIMESTAMP
    }

    fn next_origin(&self) -> u64 {
        let end = self.base.map_or(0, |base| base.saturating_add(self.len));
        let reached = self.origin.saturating_add(end.saturating_mul(self.samples_per_frame));
        ((reached >> WIRE_BITS) + 1) << WIRE_BITS
    }

    /// The stream's clock was reset.
    pub fn forget_pace(&mut self) {
        self.started = false;
        if let Some(clock) = &mut self.clock {
            clock.offset_seconds = None;
        }
    }

    /// How long nothing of the stream has come.
    pub fn silence(&self) -> Option<Duration> {
        self.clock.as_ref().map(|clock| clock.now.saturating_duration_since(clock.last))
    }

    /// Whether that is `at_least` so long, and longer than the stream ever pauses.
    fn is_silent(&self, at_least: Duration) -> bool {
        let heap_seconds = self.samples_per_heap as f64 / self.adc_sample_rate_hz;
        let pause = Duration::try_from_secs_f64(4.0 * heap_seconds).unwrap_or(Duration::MAX);
        self.silence().is_none_or(|silence| silence >= pause.max(at_least))
    }

    /// How far frame number `frame` is ahead of the pace of the stream so far, as far as we can tell.
    fn ahead_seconds(&self, frame: u64) -> Option<f64> {
        let clock = self.clock.as_ref()?;
        let stream = frame as f64 * self.samples_per_frame as f64 / self.adc_sample_rate_hz;
        Some(clock.offset_seconds? - clock.offset(stream))
    }

    /// Whether the stream's clock is at frame number `frame`, so that it may come from any sender.
    pub fn is_due(&self, frame: u64) -> bool {
        self.ahead_seconds(frame).is_some_and(|seconds| seconds <= DUE_SECONDS)
    }

    /// Whether frame number `frame` does not lie in the future, as far as we can tell.
    fn has_happened(&self, frame: u64) -> bool {
        self.ahead_seconds(frame).is_some_and(|seconds| seconds <= EARLY_SECONDS)
    }
}

/// The number with the lowest 48 bits of `wire` that is nearest to `near`.
fn nearest(wire: u64, near: u64) -> u64 {
    let turn = 1_u64 << WIRE_BITS;
    let ahead = wire.wrapping_sub(near) & (turn - 1);
    if ahead < turn / 2 {
        near.saturating_add(ahead)
    } else {
        // One turn less, unless that would be before the beginning.
        near.checked_sub(turn - ahead).unwrap_or(wire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_wrap_is_no_jump() {
        let turn = 1 << WIRE_BITS;
        assert_eq!(nearest(5, turn - 3), turn + 5);
        assert_eq!(nearest(turn - 3, turn + 5), turn - 3);
        assert_eq!(nearest(5, 3), 5);
        assert_eq!(nearest(turn - 3, 5), turn - 3);
        assert_eq!(nearest(7, 6 * turn), 6 * turn + 7);
    }

    proptest! {
        #[test]
        fn a_timestamp_near_the_expected_one_is_found_again_in_every_turn(
            near in 0_u64..1 << 60, by in -(1_i64 << 46)..1_i64 << 46,
        ) {
            let full = near.saturating_add_signed(by);
            prop_assert_eq!(nearest(full & ((1 << WIRE_BITS) - 1), near), full);
        }
    }
}
