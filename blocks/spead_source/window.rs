//! Puts heaps where they belong: a window of open frames, moved by the timestamps of the packets.

use super::causes::Causes;
use super::layout::{Foreign, Layout};
pub use super::slot::SLOT_BYTES;
use super::slot::{Arrival, Slot};
use super::timeline::{Timeline, Verdict};
use crate::spead::item;
use crate::spead::packet::Packet;
use fxgraph::{Counters, FrameMut};
use std::collections::VecDeque;
use std::time::Instant;

/// Where empty frames come from and filled ones go to.
pub trait Frames {
    /// An unused frame; `None` if the flowgraph does not keep up (or is stopping).
    fn take(&mut self) -> Option<FrameMut>;
    /// A frame that is as full as it will get.
    fn push(&mut self, frame: FrameMut);
}

/// What a packet was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Data of this stream and of its time.
    Accepted,
    /// Anything else; the counters know what.
    Refused,
    /// The end of its sender's stream.
    Stop,
    /// The stream began anew, at a time so many samples back: it cannot be gone on with.
    WentBack {
        /// How far.
        samples: u64,
    },
}

struct Open {
    frame: FrameMut,
    slots: Vec<Slot>,
    whole: usize,
}

enum Entry {
    /// Nothing has arrived for it.
    Empty,
    Open(Open),
    /// There was no buffer when its first heap arrived: the whole frame is dropped.
    Dropped,
}

/// The open frames.
pub struct Window {
    layout: Layout,
    causes: Causes,
    timeline: Timeline,
    entries: VecDeque<Entry>,
    /// Heaps of empty frames that are missed only if the stream goes on behind them.
    gap: u64,
    /// Slot tables not in use.
    spare: Vec<Vec<Slot>>,
    /// Frames whose contents proved to be stray.
    unused: Vec<FrameMut>,
}

impl Window {
    /// A window of `frames` open frames, for a stream of `adc_sample_rate_hz`.
    #[must_use]
    pub fn new(
        layout: Layout,
        frames: usize,
        adc_sample_rate_hz: f64,
        counters: &Counters,
    ) -> Self {
        let frames = frames.max(1);
        Self {
            layout,
            causes: Causes::new(counters),
            timeline: Timeline::new(&layout, frames as u64, adc_sample_rate_hz),
            entries: (0..frames).map(|_| Entry::Empty).collect(),
            gap: 0,
            spare: Vec::new(),
            unused: Vec::new(),
        }
    }

    /// Payload bytes of all open frames together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.len() * self.layout.slots() * self.layout.heap_bytes
    }

    /// Says what time it is; not called for a file, which is read at any speed.
    pub fn tick(&mut self, now: Instant) {
        self.timeline.tick(now);
    }

    /// Takes in one datagram.
    pub fn datagram(&mut self, datagram: &[u8], frames: &mut dyn Frames) -> Outcome {
        let packet = match Packet::parse(datagram) {
            Ok(packet) => packet,
            Err(why) => {
                self.causes.malformed(why).add(1);
                return Outcome::Refused;
            }
        };
        let unwrap = |wire| self.timeline.unwrap(wire);
        let place = match self.layout.place(&packet, unwrap) {
            Ok(place) => place,
            Err(why) => return self.not_data(&packet, why),
        };
        if packet.payload.is_empty() {
            // It would be evidence of a time of which it brings nothing.
            self.causes.length.add(1);
            return Outcome::Refused;
        }
        let index = match self.index_of(place.frame, place.slot, frames) {
            Ok(index) => index,
            Err(outcome) => return outcome,
        };
        self.open(index, frames);
        let heap = self.layout.heap_bytes;
        let Entry::Open(open) = &mut self.entries[index] else {
            self.timeline.accepted(place.frame, true);
            return Outcome::Accepted;
        };
        let slot = &mut open.slots[place.slot];
        let first = slot.is_empty();
        self.timeline.accepted(place.frame, first);
        // Layout::place has checked that heap and packet agree on the heap's length, and the parser
        // that the payload lies in it.
        let start = packet.offset as usize;
        let end = start + packet.payload.len();
        match slot.arrive(packet.heap_counter, start as u32, end as u32, heap as u32) {
            Arrival::New => {
                let to = place.slot * heap;
                open.frame.as_mut_slice::<u8>()[to + start..to + end]
                    .copy_from_slice(packet.payload);
                if first {
                    self.causes.saturated.add(u64::from(place.saturated));
                }
                if slot.whole {
                    open.whole += 1;
                    self.pass_on_whole(frames);
                }
            }
            Arrival::Duplicate => self.causes.duplicate.add(1),
            Arrival::TooManyPieces => self.causes.pieces.add(1),
        }
        Outcome::Accepted
    }

    /// Passes on everything that is open, at the end of the stream.
    pub fn flush(&mut self, frames: &mut dyn Frames) {
        self.pass_on_all(frames);
        self.gap = 0;
    }

    fn not_data(&self, packet: &Packet<'_>, why: Foreign) -> Outcome {
        if packet.value(item::STREAM_CONTROL) == Some(item::STREAM_STOP) {
            return Outcome::Stop;
        }
        if packet.pointers().any(|pointer| pointer.id == item::DESCRIPTOR) {
            self.causes.descriptors.add(1);
        } else {
            self.causes.foreign(why).add(1);
        }
        Outcome::Refused
    }

    /// Where frame number `frame` stands in the window, which moves if that is sound.
    fn index_of(
        &mut self,
        frame: u64,
        slot: usize,
        frames: &mut dyn Frames,
    ) -> Result<usize, Outcome> {
        match self.timeline.judge(frame, slot) {
            Verdict::Here(index) => Ok(index),
            Verdict::Forward(by) => {
                (0..by).for_each(|_| self.pass_on_first(frames));
                Ok(self.entries.len() - 1)
            }
            Verdict::Jump => {
                self.pass_on_all(frames);
                self.causes.jumps.add(1);
                let end = self.timeline.base.unwrap_or(frame);
                let between = (frame - end).saturating_mul(self.layout.slots() as u64);
                let gap = std::mem::take(&mut self.gap);
                self.causes.missing.add(gap.saturating_add(between));
                self.timeline.begin(frame);
                Ok(0)
            }
            Verdict::Anew => {
                for index in 0..self.entries.len() {
                    self.discard(index);
                }
                // Room for heaps that overtook the very first one.
                let room = frame.min(self.entries.len() as u64 / 2);
                self.timeline.begin(frame - room);
                Ok(room as usize)
            }
            Verdict::Late => {
                self.causes.late.add(1);
                Err(Outcome::Refused)
            }
            Verdict::Future => {
                self.causes.future.add(1);
                Err(Outcome::Refused)
            }
            Verdict::WentBack(samples) => Err(Outcome::WentBack { samples }),
        }
    }

    fn open(&mut self, index: usize, frames: &mut dyn Frames) {
        if !matches!(self.entries[index], Entry::Empty) {
            return;
        }
        self.entries[index] = match self.unused.pop().or_else(|| frames.take()) {
            None => {
                self.causes.frames_dropped.add(1);
                Entry::Dropped
            }
            Some(frame) => {
                let mut slots = self.spare.pop().unwrap_or_default();
                slots.resize_with(self.layout.slots(), Slot::default);
                slots.iter_mut().for_each(Slot::clear);
                Entry::Open(Open { frame, slots, whole: 0 })
            }
        };
    }

    /// Passes on frames at the front of the window to which nothing can be added.
    fn pass_on_whole(&mut self, frames: &mut dyn Frames) {
        if !self.timeline.is_settled() {
            return;
        }
        let slots = self.layout.slots();
        // A dropped frame in front takes nothing more. At the start the room for overtaken heaps
        // lies empty in front of the first frame; a whole frame behind it says that nothing
        // overtook it.
        loop {
            let started = self.timeline.started;
            let is_nothing = |entry: &Entry| match entry {
                Entry::Empty => !started,
                Entry::Open(_) => false,
                Entry::Dropped => true,
            };
            let nothing = self.entries.iter().take_while(|entry| is_nothing(entry)).count();
            match self.entries.get(nothing) {
                Some(Entry::Open(open)) if open.whole == slots => {
                    (0..=nothing).for_each(|_| self.pass_on_first(frames));
                }
                _ => return,
            }
        }
    }

    /// Moves the window by its whole length.
    fn pass_on_all(&mut self, frames: &mut dyn Frames) {
        self.timeline.settle();
        (0..self.entries.len()).for_each(|_| self.pass_on_first(frames));
    }

    /// Moves the window by one frame.
    fn pass_on_first(&mut self, frames: &mut dyn Frames) {
        let Some(number) = self.timeline.base else { return };
        if !self.timeline.is_settled() {
            // Too little to say that the stream is here.
            self.discard(0);
        }
        self.timeline.base = Some(number + 1);
        let first = self.entries.pop_front().unwrap_or(Entry::Empty);
        self.entries.push_back(Entry::Empty);
        match first {
            Entry::Open(open) => self.close(open, number, frames),
            Entry::Empty if self.timeline.started => self.gap += self.layout.slots() as u64,
            Entry::Empty | Entry::Dropped => {}
        }
    }

    /// Forgets what has come for the frame at `index`.
    fn discard(&mut self, index: usize) {
        let entry = std::mem::replace(&mut self.entries[index], Entry::Empty);
        let Entry::Open(Open { frame, slots, .. }) = entry else { return };
        let heaps = slots.iter().filter(|slot| !slot.is_empty()).count();
        self.causes.stray.add(heaps as u64);
        self.spare.push(slots);
        self.unused.push(frame);
    }

    fn close(&mut self, open: Open, number: u64, frames: &mut dyn Frames) {
        let Open { mut frame, slots, whole } = open;
        let (heap, per_unit) = (self.layout.heap_bytes, self.layout.heaps_per_unit());
        let (header, payload) = frame.parts_mut::<u8>();
        header.timestamp = number * self.layout.samples_per_frame();
        for (unit, heaps) in header.validity.iter_mut().zip(slots.chunks(per_unit)) {
            *unit = u32::from(heaps.iter().all(|slot| slot.whole));
        }
        if whole < slots.len() {
            // What did not arrive reads as zero, not as an old frame.
            for (slot, bytes) in slots.iter().zip(payload.chunks_exact_mut(heap)) {
                if !slot.whole {
                    bytes.fill(0);
                    self.causes.incomplete.add(u64::from(!slot.is_empty()));
                }
            }
        }
        self.causes.heaps.add(whole as u64);
        for heaps in slots.chunks(slots.len() / self.layout.heaps_per_frame) {
            self.count_missing(heaps);
        }
        self.spare.push(slots);
        frames.push(frame);
    }

    /// Counts the heaps of one time that did not come. Those before the stream's first heap and
    /// after its last one are not missing: only what comes later says that there was a gap.
    fn count_missing(&mut self, heaps: &[Slot]) {
        let missing = heaps.iter().filter(|slot| slot.is_empty()).count();
        if missing < heaps.len() {
            self.causes.missing.add(std::mem::take(&mut self.gap) + missing as u64);
            self.timeline.started = true;
        } else if self.timeline.started {
            self.gap += missing as u64;
        }
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
