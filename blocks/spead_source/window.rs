//! Puts heaps where they belong: a window of open frames, moved by the timestamps of the packets.

use super::layout::{Foreign, Layout};
use crate::spead::item;
use crate::spead::packet::{Malformed, Packet};
use fxgraph::{Counter, Counters, FrameMut};
use std::collections::VecDeque;

/// Heaps that must agree on a far-away time before the window goes there.
const EVIDENCE: u32 = 4;
/// The same for going back in a stream that has been running.
const EVIDENCE_BACKWARDS: u32 = 1024;
/// Separate pieces of one heap that are kept track of.
const MAX_PIECES: usize = 64;

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
    /// Data, used or not; the counters know.
    Data,
    /// The end of its sender's stream.
    Stop,
}

/// What is counted, by cause.
pub struct Causes {
    heaps: Counter,
    missing: Counter,
    incomplete: Counter,
    frames_dropped: Counter,
    descriptors: Counter,
    jumps: Counter,
    saturated: Counter,
    not_spead: Counter,
    flavour: Counter,
    truncated: Counter,
    length: Counter,
    offset: Counter,
    foreign: Counter,
    misaligned: Counter,
    late: Counter,
    future: Counter,
    duplicate: Counter,
    pieces: Counter,
}

impl Causes {
    /// The counters of a source.
    #[must_use]
    pub fn new(counters: &Counters) -> Self {
        let count = |name, help| counters.count(name, help);
        Self {
            heaps: count("heaps_received", "heaps that arrived whole"),
            missing: counters.loss(
                "heaps_missing",
                "heaps of which nothing arrived; look at the sender, the switch and packets_dropped_by_kernel",
            ),
            incomplete: counters.loss(
                "heaps_incomplete",
                "heaps of which some packets never arrived; they are marked missing",
            ),
            frames_dropped: counters.loss(
                "frames_dropped",
                "whole frames dropped because the flowgraph did not keep up; find the slowest block",
            ),
            descriptors: count("heaps_descriptor", "packets with descriptors, which are not needed"),
            jumps: count(
                "window_jumps",
                "times the stream went on at a far-away timestamp; look for restarted senders",
            ),
            saturated: count("samples_saturated", "samples the digitiser says it clipped"),
            not_spead: count("packets_not_spead", "datagrams that are not SPEAD; find who sends them"),
            flavour: count(
                "packets_wrong_flavour",
                "SPEAD of another version or flavour than SPEAD-64-48 version 4",
            ),
            truncated: count("packets_truncated", "packets shorter than they say; look at the MTU"),
            length: count(
                "packets_wrong_length",
                "packets whose lengths contradict themselves or this stream's heap size",
            ),
            offset: count("packets_outside_heap", "packets whose payload lies outside their heap"),
            foreign: count(
                "packets_foreign",
                "packets of another stream, polarisation, antenna or channel range",
            ),
            misaligned: count(
                "packets_misaligned",
                "packets whose timestamp is no multiple of the heap's length",
            ),
            late: counters.loss(
                "packets_too_late",
                "packets for frames that had already been passed on; a larger window may help",
            ),
            future: counters.loss(
                "packets_too_far_ahead",
                "packets with an implausible timestamp far from the others",
            ),
            duplicate: count("packets_duplicate", "packets that had arrived before"),
            pieces: counters.loss("packets_too_fragmented", "packets of a heap in too many pieces"),
        }
    }

    fn malformed(&self, why: Malformed) -> &Counter {
        match why {
            Malformed::NotSpead => &self.not_spead,
            Malformed::Flavour => &self.flavour,
            Malformed::Truncated => &self.truncated,
            Malformed::Length => &self.length,
            Malformed::Offset => &self.offset,
        }
    }

    fn foreign(&self, why: Foreign) -> &Counter {
        match why {
            Foreign::Stream => &self.foreign,
            Foreign::HeapLength => &self.length,
            Foreign::Misaligned => &self.misaligned,
        }
    }
}

/// Which bytes of a heap have arrived: disjoint, sorted, not touching.
#[derive(Default)]
struct Slot {
    pieces: Vec<(u32, u32)>,
    /// Counter of the heap that came first; another heap for the same place is a duplicate.
    heap_counter: u64,
    whole: bool,
}

enum Arrival {
    New,
    Duplicate,
    TooManyPieces,
}

impl Slot {
    fn clear(&mut self) {
        self.pieces.clear();
        self.whole = false;
    }

    fn is_empty(&self) -> bool {
        !self.whole && self.pieces.is_empty()
    }

    fn arrive(&mut self, counter: u64, start: u32, end: u32, heap: u32) -> Arrival {
        if self.whole || (!self.pieces.is_empty() && self.heap_counter != counter) {
            return Arrival::Duplicate;
        }
        self.heap_counter = counter;
        if start == 0 && end == heap {
            self.whole = true;
            return Arrival::New;
        }
        // Everything that overlaps or touches [start, end) becomes one piece with it.
        let first = self.pieces.partition_point(|piece| piece.1 < start);
        let last = self.pieces.partition_point(|piece| piece.0 <= end);
        if first == last {
            if self.pieces.len() == MAX_PIECES {
                return Arrival::TooManyPieces;
            }
            self.pieces.insert(first, (start, end));
        } else {
            let (from, to) = (self.pieces[first].0, self.pieces[last - 1].1);
            if last - first == 1 && from <= start && end <= to {
                return Arrival::Duplicate;
            }
            self.pieces[first] = (from.min(start), to.max(end));
            self.pieces.drain(first + 1..last);
        }
        self.whole = self.pieces[0] == (0, heap);
        Arrival::New
    }
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

/// Far-away packets that agree with each other.
#[derive(Default)]
struct Candidate {
    frame: u64,
    last_place: Option<(u64, usize)>,
    heaps: u32,
}

/// The open frames.
pub struct Window {
    layout: Layout,
    causes: Causes,
    entries: VecDeque<Entry>,
    /// Frame number of `entries[0]`, once there was a packet.
    base: Option<u64>,
    candidate: Candidate,
    /// Accepted packets so far, up to [`EVIDENCE`]: with fewer, the first one may have been a stray.
    settled: u32,
    /// Whether a frame was passed on; what is missing before the first is not missed.
    started: bool,
    /// Heaps of empty frames that are missed only if the stream goes on behind them.
    gap: u64,
    /// Slot tables not in use.
    spare: Vec<Vec<Slot>>,
}

impl Window {
    /// A window of `frames` open frames.
    #[must_use]
    pub fn new(layout: Layout, frames: usize, counters: &Counters) -> Self {
        Self {
            layout,
            causes: Causes::new(counters),
            entries: (0..frames.max(1)).map(|_| Entry::Empty).collect(),
            base: None,
            candidate: Candidate::default(),
            settled: 0,
            started: false,
            gap: 0,
            spare: Vec::new(),
        }
    }

    /// Takes in one datagram.
    pub fn datagram(&mut self, datagram: &[u8], frames: &mut dyn Frames) -> Outcome {
        let packet = match Packet::parse(datagram) {
            Ok(packet) => packet,
            Err(why) => {
                self.causes.malformed(why).add(1);
                return Outcome::Data;
            }
        };
        let place = match self.layout.place(&packet) {
            Ok(place) => place,
            Err(why) => return self.not_data(&packet, why),
        };
        let Some(index) = self.index_of(place.frame, place.slot, frames) else {
            return Outcome::Data;
        };
        self.settled = (self.settled + 1).min(EVIDENCE);
        self.candidate.heaps = 0;
        self.open(index, frames);
        let heap = self.layout.heap_bytes;
        let Entry::Open(open) = &mut self.entries[index] else { return Outcome::Data };
        let slot = &mut open.slots[place.slot];
        // Layout::place has checked that heap and packet agree on the heap's length, and the parser
        // that the payload lies in it.
        let start = packet.offset as usize;
        let end = start + packet.payload.len();
        if start == end {
            return Outcome::Data;
        }
        let first = slot.is_empty();
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
        Outcome::Data
    }

    /// Passes on everything that is open.
    pub fn flush(&mut self, frames: &mut dyn Frames) {
        for _ in 0..self.entries.len() {
            self.pass_on_first(frames);
        }
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
        Outcome::Data
    }

    /// Where frame number `frame` stands in the window, which moves if that is plausible.
    fn index_of(&mut self, frame: u64, slot: usize, frames: &mut dyn Frames) -> Option<usize> {
        let len = self.entries.len() as u64;
        // Room for heaps that overtook the very first one.
        let start = frame.saturating_sub(len / 2);
        let base = *self.base.get_or_insert(start);
        if frame >= base && frame < base + len {
            return Some((frame - base) as usize);
        }
        // One packet may move the window a little, so that a stray one cannot flush it.
        let ahead = (len / 2).max(1);
        if frame >= base && frame < base + len + ahead {
            let move_by = frame - (base + len - 1);
            (0..move_by).for_each(|_| self.pass_on_first(frames));
            return Some((len - 1) as usize);
        }
        let is_late = frame < base;
        let needed =
            if is_late && self.settled == EVIDENCE { EVIDENCE_BACKWARDS } else { EVIDENCE };
        if !self.agrees(frame, slot, needed) {
            let cause = if is_late { &self.causes.late } else { &self.causes.future };
            cause.add(1);
            return None;
        }
        self.flush(frames);
        self.causes.jumps.add(1);
        self.base = Some(start);
        Some((frame - start) as usize)
    }

    /// Whether enough heaps in a row agree that the stream is at `frame` now.
    fn agrees(&mut self, frame: u64, slot: usize, needed: u32) -> bool {
        let candidate = &mut self.candidate;
        if candidate.heaps == 0 || candidate.frame.abs_diff(frame) > self.entries.len() as u64 {
            *candidate = Candidate { frame, last_place: None, heaps: 0 };
        }
        // Several packets of one heap are one witness.
        if candidate.last_place != Some((frame, slot)) {
            candidate.last_place = Some((frame, slot));
            candidate.frame = frame;
            candidate.heaps += 1;
        }
        candidate.heaps >= needed
    }

    fn open(&mut self, index: usize, frames: &mut dyn Frames) {
        if !matches!(self.entries[index], Entry::Empty) {
            return;
        }
        self.entries[index] = match frames.take() {
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
        let slots = self.layout.slots();
        while let Some(Entry::Open(open)) = self.entries.front()
            && open.whole == slots
        {
            self.pass_on_first(frames);
        }
        // At the start the room for overtaken heaps lies empty in front of the first frame; a
        // whole frame behind it says that nothing overtook it.
        if !self.started {
            let empty = self.entries.iter().take_while(|e| matches!(e, Entry::Empty)).count();
            if let Some(Entry::Open(open)) = self.entries.get(empty)
                && open.whole == slots
                && self.settled == EVIDENCE.min(slots as u32)
            {
                (0..=empty).for_each(|_| self.pass_on_first(frames));
                self.pass_on_whole(frames);
            }
        }
    }

    /// Moves the window by one frame.
    fn pass_on_first(&mut self, frames: &mut dyn Frames) {
        let Some(number) = self.base else { return };
        self.base = Some(number + 1);
        let first = self.entries.pop_front().unwrap_or(Entry::Empty);
        self.entries.push_back(Entry::Empty);
        match first {
            Entry::Open(open) => self.close(open, number, frames),
            Entry::Empty if self.started => self.gap += self.layout.slots() as u64,
            Entry::Empty | Entry::Dropped => {}
        }
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
                    let cause = if slot.is_empty() {
                        &self.causes.missing
                    } else {
                        &self.causes.incomplete
                    };
                    cause.add(1);
                }
            }
        }
        self.causes.heaps.add(whole as u64);
        self.causes.missing.add(std::mem::take(&mut self.gap));
        self.started = true;
        self.spare.push(slots);
        frames.push(frame);
    }
}

/// Memory of one slot at worst, for the plan.
pub const SLOT_BYTES: usize = size_of::<Slot>() + MAX_PIECES * size_of::<(u32, u32)>();

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
