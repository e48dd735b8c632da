//! Assembles heaps into frames: a window of open frames, moved by the timestamps of the packets.
#![allow(unsafe_code)] // One call that leaves a copy for later.

mod copy;
mod filling;
mod moves;
mod sending;
mod skimming;
mod time;

use super::candidates::{Candidate, Candidates};
use super::causes::Causes;
use super::layout::{Foreign, Layout, Place};
use super::senders::Senders;
pub use super::slot::SLOT_BYTES;
use super::slot::{Arrival, Slot};
use super::timeline::{Move, Timeline, Verdict};
pub use crate::common::link::Frames;
use crate::io::spead::endpoint::Endpoint;
use crate::io::spead::item;
use crate::io::spead::packet::Packet;
use crate::io::spead::second_sender::SecondSender;
pub use filling::{Copies, MAX_THREADS, Pending};
use filling::{Copying, Filling, Writers};
use fxgraph::Env;
use fxgraph::Time;
use fxgraph::runtime::EventKind;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Result of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The packet was data of this stream and of its present time.
    Accepted,
    /// The packet may be data of this stream: held until other packets confirm it.
    Held {
        /// Whether several packets agree already.
        is_likely: bool,
    },
    /// The packet was rejected; a counter has the cause.
    Rejected,
    /// The packet was a stop heap.
    Stop,
    /// The sender was restarted, and the options say that the stream ends then.
    Restarted {
        /// Number of samples by which the timestamps jumped; negative if they jumped back.
        samples: i64,
    },
}

/// Options of a window.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Open frames.
    pub frames: usize,
    /// Samples per second of the ADC.
    pub adc_sample_rate_hz: f64,
    /// Number of heaps by which heaps of one sender may be out of order because they use several sockets
    /// in turn.
    pub stride: u64,
    /// Senders of each part of the data: of an antenna, or of a digitiser's stream.
    pub senders_per_part: usize,
    /// Longest gap whose heaps count as missing; a longer gap is a jump of the stream's time.
    pub max_gap_seconds: f64,
    /// Whether the window continues with a stream that starts again.
    pub resyncs: bool,
    /// Unix time of timestamp 0, if known.
    pub sync_time: Option<Time>,
    /// Threads that fill frames.
    pub threads: usize,
    /// Frames of an interval that is dropped as a whole when the flowgraph does not keep up; `None` drops none.
    pub interval_frames: Option<u64>,
    /// Frames to which one system call may add data.
    pub frames_ahead: u64,
}

impl Options {
    /// Creates the options for `frames` open frames of one sender, over one socket.
    #[must_use]
    pub fn new(frames: usize, adc_sample_rate_hz: f64) -> Self {
        Self {
            frames: frames.max(1),
            adc_sample_rate_hz,
            stride: 1,
            senders_per_part: 1,
            max_gap_seconds: 60.0,
            resyncs: true,
            sync_time: None,
            threads: 1,
            interval_frames: None,
            frames_ahead: 1,
        }
    }
}

struct Open {
    frame: Filling,
    slots: Vec<Slot>,
    whole: usize,
}

enum Entry {
    /// No heap has arrived.
    Empty,
    Open(Open),
    /// The flowgraph did not keep up when its first heap arrived: the whole frame is dropped.
    Dropped,
}

/// The window of open frames.
pub struct Window {
    /// Dropped first: waits for copies into the frames.
    writers: Writers,
    layout: Layout,
    options: Options,
    causes: Causes,
    timeline: Timeline,
    senders: Senders,
    second_sender: SecondSender,
    candidates: Candidates,
    entries: VecDeque<Entry>,
    /// Frame in which the stream begins or continues after a gap, and its slots before that.
    leading: (u64, usize),
    /// Heaps of empty frames, which are missing only if the stream continues after them.
    gap: u64,
    /// Timestamp of the newest heap that got data in the present batch.
    newest_of_batch: Option<u64>,
    /// Slot tables not in use.
    spare: Vec<Vec<Slot>>,
    comparison: time::Comparison,
    env: Env,
}

/// A batch of a thread. If processing ends by a panic, the copies that were decided are made.
struct InBatch<'w>(&'w mut Window);

impl Drop for InBatch<'_> {
    fn drop(&mut self) {
        drop(self.0.writers.end());
    }
}

impl Window {
    /// Creates a window that counts and reports in `env`.
    #[must_use]
    pub fn new(layout: Layout, options: Options, env: &Env) -> Self {
        let frames = options.frames.max(1);
        let parts = layout.slots() / layout.heaps_per_frame;
        let Options { stride, adc_sample_rate_hz, senders_per_part, .. } = options;
        let heap_seconds = layout.samples_per_heap as f64 / adc_sample_rate_hz;
        let mut timeline = Timeline::new(&layout, frames as u64, stride, adc_sample_rate_hz);
        if let Some(sync_time) = options.sync_time {
            timeline.set_real_time(Instant::now(), Time::now().seconds_since(sync_time));
        }
        Self {
            writers: Writers::new(options.threads),
            layout,
            options,
            causes: Causes::new(&env.counters),
            timeline,
            senders: Senders::new(parts, senders_per_part, &env.counters),
            second_sender: SecondSender::new(&env.counters, heap_seconds),
            candidates: Candidates::default(),
            entries: (0..frames).map(|_| Entry::Empty).collect(),
            leading: (0, 0),
            gap: 0,
            newest_of_batch: None,
            spare: Vec::new(),
            comparison: time::Comparison::default(),
            env: env.clone(),
        }
    }

    /// Returns the payload bytes of all frames of the window together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.len() * self.layout.slots() * self.layout.heap_bytes
    }

    /// Returns the length of the window in samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.entries.len() as u64 * self.layout.samples_per_frame()
    }

    /// Returns the timestamp of the newest heap that got data in the last batch.
    #[must_use]
    pub fn newest_of_batch(&self) -> Option<u64> {
        self.newest_of_batch
    }

    /// Returns the senders of the stream.
    #[must_use]
    pub fn senders(&self) -> &Senders {
        &self.senders
    }

    /// Sets the present time; not called for a file, which is read at any rate.
    pub fn tick(&mut self, now: Instant) {
        self.timeline.tick(now);
    }

    /// Timestamp of the newest heap with data; `None` before the first one.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        self.timeline.base.map(|_| self.timeline.origin() + self.timeline.newest)
    }

    /// Updates the gauge of the newest timestamp.
    pub fn show(&self) {
        if self.timeline.base.is_some() {
            self.causes.last_timestamp.set(self.timeline.newest as f64);
        }
    }

    /// Processes one datagram.
    pub fn datagram(
        &mut self,
        datagram: &[u8],
        sender: Endpoint,
        frames: &mut dyn Frames,
    ) -> Outcome {
        self.process(datagram, sender, Copying::Now, frames)
    }

    /// Processes the datagrams that `thread` received, and calls `note` with the outcome of each. Returns
    /// the copies into frames that are left to make, for which the window is not needed; `copies` is
    /// their memory.
    pub fn batch<'a>(
        &mut self,
        (thread, copies): (usize, Copies),
        datagrams: impl Iterator<Item = (&'a [u8], Endpoint)>,
        frames: &mut dyn Frames,
        mut note: impl FnMut(Outcome),
    ) -> Option<Pending<'a>> {
        self.writers.begin(thread, copies);
        self.newest_of_batch = None;
        let batch = InBatch(self);
        for (datagram, sender) in datagrams {
            // `Later` is for datagrams of a batch only: they live as long as the result.
            note(batch.0.process(datagram, sender, Copying::Later, frames));
        }
        batch.0.writers.end()
    }

    fn process(
        &mut self,
        datagram: &[u8],
        sender: Endpoint,
        when: Copying,
        frames: &mut dyn Frames,
    ) -> Outcome {
        let packet = match Packet::parse(datagram) {
            Ok(packet) => packet,
            Err(why) => {
                self.causes.malformed(why).add(1);
                return Outcome::Rejected;
            }
        };
        let place = match self.layout.place(&packet, |wire| self.timeline.unwrap(wire)) {
            Ok(place) => place,
            Err(why) => return self.not_data(&packet, sender, why, frames),
        };
        if packet.payload.is_empty() {
            // Without payload, the packet must not count as evidence for its timestamp.
            self.causes.length.add(1);
            return Outcome::Rejected;
        }
        let Some(verdict) = self.admit(place, sender) else {
            return self.hold(&packet, place, (datagram, sender), frames);
        };
        let outcome = self.take(&packet, place, verdict, (sender, when), frames);
        if outcome == Outcome::Accepted && !self.candidates.list.is_empty() {
            self.look_at_candidates(frames);
        }
        outcome
    }

    /// Sends all open frames, at the end of the stream.
    pub fn flush(&mut self, frames: &mut dyn Frames) {
        // No more evidence can come: the most likely candidate is accepted.
        if self.timeline.base.is_none() {
            if let Some(best) = self.timeline.best(&self.candidates.list) {
                self.adopt(best, Move::Begin, frames);
            }
        } else {
            let standing = |candidate: &Candidate| self.standing(candidate);
            let last = self.timeline.last_chance(&self.candidates.list, standing);
            if let Some((index, how)) =
                last.filter(|(_, how)| *how != Move::Back || self.options.resyncs)
            {
                self.adopt(index, how, frames);
            }
        }
        for candidate in std::mem::take(&mut self.candidates.list) {
            self.give_up(&candidate);
        }
        self.pass_on_all(frames);
        self.gap = 0;
    }

    fn not_data(
        &mut self,
        packet: &Packet<'_>,
        sender: Endpoint,
        why: Foreign,
        frames: &mut dyn Frames,
    ) -> Outcome {
        if packet.value(item::STREAM_CONTROL) == Some(item::STREAM_STOP) {
            self.begin_before_stop(sender, frames);
            let now = self.timeline.now().unwrap_or_else(Instant::now);
            if self.senders.stop(sender, now) {
                let text = format!("{sender} sent a stop heap");
                self.env.events.add(EventKind::SenderStopped, text);
            }
            return Outcome::Stop;
        }
        if packet.pointers().any(|pointer| pointer.id == item::DESCRIPTOR) {
            self.causes.descriptors.add(1);
        } else {
            self.causes.foreign(why).add(1);
        }
        Outcome::Rejected
    }

    /// Copies a packet to the position given by `verdict`.
    fn take(
        &mut self,
        packet: &Packet<'_>,
        place: Place,
        verdict: Verdict,
        (sender, when): (Endpoint, Copying),
        frames: &mut dyn Frames,
    ) -> Outcome {
        let Some(index) = self.enter(verdict, frames) else {
            if verdict == Verdict::Late {
                self.causes.late.add(1);
                self.not_new(place, sender);
            } else {
                self.causes.future.add(1);
            }
            return Outcome::Rejected;
        };
        let (heap, part) = (self.layout.heap_bytes, self.part(place));
        let Entry::Open(open) = &mut self.entries[index] else {
            self.accepted(place, sender);
            return Outcome::Accepted;
        };
        let slot = &mut open.slots[place.slot];
        // Data of two heaps are not mixed: the heap of a sender of the stream is kept, otherwise the first one.
        let other = slot.sender_of_other_heap(packet.heap_counter);
        if let Some(other) = other {
            if self.senders.has_seat(part, other) || !self.senders.has_seat(part, sender) {
                self.causes.conflicting.add(1);
                self.not_new(place, sender);
                return Outcome::Rejected;
            }
            self.causes.replaced.add(1);
            open.whole -= usize::from(slot.whole);
            slot.clear();
        }
        let first = slot.is_empty();
        // Layout::place has checked the heap's length, and the parser that the payload is inside the heap.
        let start = packet.offset as usize;
        let end = start + packet.payload.len();
        let identity = (packet.heap_counter, sender);
        match slot.arrive(identity, start as u32, end as u32, heap as u32) {
            Arrival::New { overlaps } => {
                // Copies of a replaced heap, to any of its bytes, are made before those of this heap.
                let overlaps = overlaps || other.is_some();
                let to = place.slot * heap + start;
                let to = to..to + packet.payload.len();
                let (frame, writers) = (&mut open.frame, &mut self.writers);
                // SAFETY: `when` is `Later` only for a datagram of `batch`, which lives until the copies of
                // the batch are made.
                unsafe { frame.write(writers, to, packet.payload, overlaps, when) };
                let is_whole = slot.whole;
                open.whole += usize::from(is_whole);
                // An atomic addition waits until the copy is in memory, so 0 is not added.
                if first && place.saturated > 0 {
                    self.causes.saturated.add(u64::from(place.saturated));
                }
                self.accepted(place, sender);
                if is_whole {
                    self.pass_on_whole(frames);
                }
                return Outcome::Accepted;
            }
            Arrival::Duplicate => {
                self.causes.duplicate.add(1);
                self.not_new(place, sender);
            }
            Arrival::TooManyPieces => self.causes.pieces.add(1),
        }
        Outcome::Rejected
    }

    /// Returns the time since data were last accepted; `None` for a file.
    #[must_use]
    pub fn silence(&self) -> Option<Duration> {
        self.timeline.silence()
    }

    /// Notes a packet with new data.
    fn accepted(&mut self, place: Place, sender: Endpoint) {
        self.newest_of_batch = self.newest_of_batch.max(Some(place.timestamp));
        let is_early = self.timeline.accepted(place.frame, place.timestamp);
        let now = self.timeline.now().unwrap_or_else(Instant::now);
        if self.senders.data(self.part(place), sender, now, is_early) {
            self.timeline.measure(place.timestamp);
        }
    }

    /// Notes a packet whose data had arrived already: its sender still sends the stream.
    fn not_new(&mut self, place: Place, sender: Endpoint) {
        let now = self.timeline.now().unwrap_or_else(Instant::now);
        let part = self.part(place);
        if let Some(holder) = self.senders.other_holder(part, sender) {
            self.second_sender.note(holder, sender, now, &self.env.events);
        }
        self.senders.confirm(part, sender, now);
    }

    /// Returns the part of the stream (antenna, channel block) of a heap.
    fn part(&self, place: Place) -> usize {
        place.slot % (self.layout.slots() / self.layout.heaps_per_frame)
    }

    /// Returns the position of a single packet; `None` if more packets are needed to show that the stream
    /// is at its time. Only senders of the stream may send ahead of all data so far, other senders only up
    /// to the stream's clock; a file has no clock.
    fn admit(&self, place: Place, sender: Endpoint) -> Option<Verdict> {
        let verdict = self.timeline.judge(place.frame, false);
        match verdict {
            Verdict::Elsewhere => None,
            Verdict::Late => Some(verdict),
            Verdict::Here(_) | Verdict::Forward(_) => {
                let is_admitted = place.frame <= self.timeline.front
                    || self.senders.may_lead(self.part(place), sender)
                    || self.timeline.is_due(place.frame)
                    || self.timeline.now().is_none();
                is_admitted.then_some(verdict)
            }
        }
    }

    /// Moves the window to the position given by `verdict`. Returns the index of its frame, which is open or dropped;
    /// `None` if the position is not in the window.
    fn enter(&mut self, verdict: Verdict, frames: &mut dyn Frames) -> Option<usize> {
        let index = match verdict {
            Verdict::Here(index) => index,
            Verdict::Forward(by) => {
                (0..by).for_each(|_| self.pass_on_first(frames));
                self.entries.len() - 1
            }
            Verdict::Late | Verdict::Elsewhere => return None,
        };
        self.open(index, frames);
        Some(index)
    }

    fn open(&mut self, index: usize, frames: &mut dyn Frames) {
        if !matches!(self.entries[index], Entry::Empty) {
            return;
        }
        let interval = self.interval(self.timeline.base.unwrap_or(0) + index as u64);
        let overload = &self.env.overload;
        let is_dropped = interval.is_some_and(|interval| overload.drops(interval));
        let began = Instant::now();
        let frame = if is_dropped { None } else { frames.take() };
        // The wait for a frame is no silence of the senders: their data are in the sockets.
        self.timeline.waited(began.elapsed());
        self.entries[index] = match frame {
            None => {
                self.causes.frames_dropped.add(1);
                if let Some(interval) = interval {
                    overload.drop_rest(interval);
                }
                Entry::Dropped
            }
            Some(frame) => {
                let mut slots = self.spare.pop().unwrap_or_default();
                slots.resize_with(self.layout.slots(), Slot::default);
                slots.iter_mut().for_each(Slot::clear);
                Entry::Open(Open { frame: Filling::new(frame), slots, whole: 0 })
            }
        };
    }
}

#[cfg(test)]
mod tests;
