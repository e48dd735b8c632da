//! Where the stream is: which timestamps belong to it, and which are strays.
//!
//! What follows a source takes growing time only, so a frame with a wrong time far ahead would end
//! everything behind it. Hence the window moves far only on evidence that a handful of stray or
//! hostile packets cannot give, and never back.

use super::layout::Layout;
use std::time::{Duration, Instant};

/// Bits of a timestamp on the wire.
const WIRE_BITS: u32 = 48;
/// Heaps that make a beginning, or a step over a gap to a time that is not in the future.
const FEW: u32 = 4;
/// Heaps that make frames of the beginning worth handing on.
const SOME: u32 = 8;
/// Heaps that show that the stream went on where it cannot have come by itself.
const MANY: u32 = 64;
/// Frames that these must be spread over.
const MANY_FRAMES: u32 = 3;
/// How long the old time must have been silent then, at least.
const SILENCE: Duration = Duration::from_millis(250);
/// How long, and how far back, a stream must have been to have been restarted.
const RESTART: Duration = Duration::from_secs(1);
/// How far ahead of its clock a stream may be: what network and scheduling make of its pace.
const EARLY_SECONDS: f64 = 0.1;
/// How fast the stream's clock may drift from ours.
const DRIFT: f64 = 1e-4;

/// What is to be done with a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is in the window, this many frames from its beginning.
    Here(usize),
    /// It is just behind the window, which moves by this many frames to have it at its end.
    Forward(u64),
    /// The stream is here now: the window empties itself and begins with this heap's frame.
    Jump,
    /// What has been taken in so far was stray: the window begins anew around this frame.
    Anew,
    /// It comes too late.
    Late,
    /// It is too far ahead.
    Future,
    /// The stream has gone back by so many samples, for good.
    WentBack(u64),
}

/// Heaps elsewhere that agree with each other.
#[derive(Default)]
struct Candidate {
    /// Frame and slot of the latest heap.
    place: (u64, usize),
    /// Heaps for it, less those elsewhere.
    heaps: u32,
    frames: u32,
    since: Option<Instant>,
}

impl Candidate {
    /// Takes note of a heap: heaps that agree go on in time, near each other. Says how many agree
    /// with it.
    fn witness(&mut self, frame: u64, slot: usize, near: u64, now: Option<Instant>) -> u32 {
        if self.heaps == 0 {
            *self = Self { place: (frame, slot), heaps: 1, frames: 1, since: now };
        } else if self.place.0.abs_diff(frame) > near {
            self.heaps -= 1;
            return 0;
        } else if self.place < (frame, slot) {
            self.heaps = self.heaps.saturating_add(1);
            self.frames = self.frames.saturating_add(u32::from(self.place.0 < frame));
            self.place = (frame, slot);
        }
        self.heaps
    }
}

/// The stream's clock against ours.
struct Clock {
    started: Instant,
    now: Instant,
    /// When a heap of the stream was last taken in.
    last: Instant,
    /// Least difference of our clock and the stream's, in seconds.
    offset_seconds: Option<f64>,
}

/// The stream's time.
pub struct Timeline {
    samples_per_frame: u64,
    samples_per_heap: u64,
    slots: usize,
    /// Frames in the window.
    len: u64,
    adc_sample_rate_hz: f64,
    /// Number of the first frame in the window, once there was a heap.
    pub base: Option<u64>,
    /// Whether a frame was handed on: from then on time only grows.
    pub started: bool,
    /// Heaps taken in before that.
    heaps: u32,
    /// Heaps behind the window, ahead of it, and even in the future: none of these hides another.
    candidates: [Candidate; 3],
    /// None for a file, which is read at any speed.
    clock: Option<Clock>,
}

impl Timeline {
    /// The time of a stream received through a window of `len` frames.
    pub fn new(layout: &Layout, len: u64, adc_sample_rate_hz: f64) -> Self {
        Self {
            samples_per_frame: layout.samples_per_frame(),
            samples_per_heap: layout.samples_per_heap,
            slots: layout.slots(),
            len,
            adc_sample_rate_hz,
            base: None,
            started: false,
            heaps: 0,
            candidates: Default::default(),
            clock: None,
        }
    }

    /// Says what time it is.
    pub fn tick(&mut self, now: Instant) {
        let new = || Clock { started: now, now, last: now, offset_seconds: None };
        self.clock.get_or_insert_with(new).now = now;
    }

    /// The full timestamp of which the wire carries 48 bits: the one nearest to where the stream
    /// should be now.
    pub fn unwrap(&self, wire: u64) -> u64 {
        let Some(base) = self.base else { return wire };
        let elapsed_seconds = self.silence().map_or(0.0, |silence| silence.as_secs_f64());
        let near = base * self.samples_per_frame;
        let near = near.saturating_add((elapsed_seconds * self.adc_sample_rate_hz) as u64);
        let unwrapped = nearest(wire, near);
        let frame = unwrapped / self.samples_per_frame;
        // Before the beginning is sure there is nothing to be near to.
        if self.started || (base..base + 2 * self.len).contains(&frame) { unwrapped } else { wire }
    }

    /// Whether what has been taken in is enough to hand frames on.
    pub fn is_settled(&self) -> bool {
        // Half of them may be lost before the window has to move on.
        let held = self.slots.saturating_mul(self.len as usize) / 2;
        self.started || self.heaps >= SOME.min(u32::try_from(held).unwrap_or(SOME)).max(1)
    }

    /// There will be no more evidence: what has come is handed on.
    pub fn settle(&mut self) {
        self.heaps = u32::MAX;
    }

    /// A heap was taken in; `is_new` if it is the first packet of it.
    pub fn accepted(&mut self, frame: u64, is_new: bool) {
        self.forget_candidates();
        self.heaps = self.heaps.saturating_add(u32::from(is_new));
        let Some(clock) = &mut self.clock else { return };
        let elapsed = clock.now.saturating_duration_since(clock.last).as_secs_f64();
        clock.last = clock.now;
        let stream = frame as f64 * self.samples_per_frame as f64 / self.adc_sample_rate_hz;
        let offset = clock.now.saturating_duration_since(clock.started).as_secs_f64() - stream;
        let least = clock.offset_seconds.map_or(offset, |least| least + DRIFT * elapsed);
        clock.offset_seconds = Some(least.min(offset));
    }

    /// Where a heap in slot `slot` of frame number `frame` stands.
    pub fn judge(&mut self, frame: u64, slot: usize) -> Verdict {
        let Some(base) = self.base else { return Verdict::Anew };
        let end = base + self.len;
        if (base..end).contains(&frame) {
            return Verdict::Here((frame - base) as usize);
        }
        // One packet may move the window a little, so that a stray one cannot empty it.
        if frame >= end && frame - end < (self.len / 2).max(1) {
            return Verdict::Forward(frame - end + 1);
        }
        let has_happened = self.has_happened(frame);
        let candidate = match (self.started, frame < base, has_happened) {
            (false, ..) | (_, true, _) => &mut self.candidates[0],
            (_, _, true) => &mut self.candidates[1],
            _ => &mut self.candidates[2],
        };
        let agree = candidate.witness(frame, slot, self.len, self.clock.as_ref().map(|c| c.now));
        let is_many = agree >= MANY && candidate.frames >= MANY_FRAMES;
        let since = candidate.since;
        if !self.started {
            // A stray may have come first: the majority is right.
            if agree >= self.heaps.saturating_mul(2).clamp(FEW, MANY) {
                return Verdict::Anew;
            }
        } else if frame >= end {
            if (has_happened && agree >= FEW) || (is_many && self.is_silent()) {
                return Verdict::Jump;
            }
        } else if is_many && self.is_silent() {
            let back = (base - frame).saturating_mul(self.samples_per_frame);
            if base - frame > self.len && self.is_restart(back, since) {
                return Verdict::WentBack(back);
            }
        }
        if frame < base { Verdict::Late } else { Verdict::Future }
    }

    /// The window begins with frame number `base`, on the evidence of a candidate.
    pub fn begin(&mut self, base: u64) {
        self.base = Some(base);
        self.heaps = 0;
        self.forget_candidates();
        // What came before was stray, and so was the clock's offset: of a stray in the future it
        // would say for ever that it has happened.
        if !self.started
            && let Some(clock) = &mut self.clock
        {
            clock.offset_seconds = None;
        }
    }

    fn forget_candidates(&mut self) {
        self.candidates.iter_mut().for_each(|candidate| candidate.heaps = 0);
    }

    /// How long nothing of the stream has come.
    fn silence(&self) -> Option<Duration> {
        self.clock.as_ref().map(|clock| clock.now.saturating_duration_since(clock.last))
    }

    /// Whether that is longer than the stream ever pauses.
    fn is_silent(&self) -> bool {
        let heap_seconds = self.samples_per_heap as f64 / self.adc_sample_rate_hz;
        let pause = Duration::try_from_secs_f64(4.0 * heap_seconds).unwrap_or(Duration::MAX);
        self.silence().is_none_or(|silence| silence >= pause.max(SILENCE))
    }

    /// Whether frame number `frame` does not lie in the future, as far as we can tell.
    fn has_happened(&self, frame: u64) -> bool {
        let Some(clock) = &self.clock else { return false };
        let Some(offset) = clock.offset_seconds else { return false };
        let stream = frame as f64 * self.samples_per_frame as f64 / self.adc_sample_rate_hz;
        let now = clock.now.saturating_duration_since(clock.started).as_secs_f64();
        stream <= now - offset + EARLY_SECONDS
    }

    /// Whether a stream that is `back` samples back, and has been `since` then, is no laggard.
    fn is_restart(&self, back: u64, since: Option<Instant>) -> bool {
        let Some(clock) = &self.clock else { return true };
        let since = since.unwrap_or(clock.now);
        back as f64 > RESTART.as_secs_f64() * self.adc_sample_rate_hz
            && clock.now.saturating_duration_since(since) >= RESTART
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
