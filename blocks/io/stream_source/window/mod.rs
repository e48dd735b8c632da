//! From packets to frames: heaps are assembled and put in order; `frames` makes frames of them, `run` follows the runs
//! of the sender, `place` tells where the stream is.

mod frames;
mod place;
mod run;

use super::causes::Causes;
use super::heap::{Arrival, Heap, OVERHEAD_BYTES, place};
use crate::common::link::Frames;
use crate::io::spead::endpoint::Endpoint;
use crate::io::spead::item;
use crate::io::spead::packet::Packet;
use crate::io::spead::second_sender::SecondSender;
use crate::io::stream::Described;
use frames::MAX_FILL;
use fxgraph::elements::Elements;
use fxgraph::recording::Checksum;
use fxgraph::runtime::EventKind;
use fxgraph::{Env, TimeBase};
use place::Pace;
use run::{Run, Stopped};
use std::time::{Duration, Instant};

/// Least and largest time without packets of the stream after which heaps do not wait any longer, and an earlier run or an earlier position of the sender
/// may take the stream over. Between them it is two frames: a sender spreads the packets of a frame over its duration.
const SILENCE_SECONDS: (f64, f64) = (1.0, 3600.0);
/// Least such time after which the newest heap does not wait any longer for its rest: the sender may have been stopped.
const STOPPED: Duration = Duration::from_secs(3);
/// Heaps outside the stream that are assembled at a time: descriptors, and other runs of the sender.
const CANDIDATES: usize = 2;

/// Largest number of heaps that are assembled at a time.
#[must_use]
pub fn heaps(window: usize) -> usize {
    window + CANDIDATES + 1
}

/// Largest memory of the heaps of the stream `described`, in bytes.
#[must_use]
pub fn host_bytes(window: usize, described: &Described) -> usize {
    heaps(window) * (described.max_heap_bytes() + OVERHEAD_BYTES)
}

/// Options of a window.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Heaps of the stream that are assembled at a time.
    pub window: usize,
    /// Longest gap that is filled, in ADC samples.
    pub max_gap_samples: u64,
}

/// Result of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The packet belongs to the stream.
    Accepted,
    /// The packet was rejected, or belongs to no run of the stream yet.
    Rejected,
    /// The sender of the stream has stopped.
    Stopped,
}

/// State of the assembly.
pub struct Window {
    described: Described,
    options: Options,
    /// See [`SILENCE_SECONDS`].
    patience: Duration,
    causes: Causes,
    second_sender: SecondSender,
    env: Env,
    elements: Elements,
    /// Whether the units of the validity divide the axes of the payload into equal parts.
    divides: bool,
    /// Heaps being assembled, and unused ones with their memory.
    open: Vec<Heap>,
    unused: Vec<Heap>,
    run: Option<Run>,
    /// Earlier runs, the oldest first.
    over: Vec<u64>,
    /// The stop heap after which the stream ends, unless it goes on.
    stopped: Option<Stopped>,
    /// Check of another text that describes the type.
    other_check: Option<u64>,
    /// Check of the last type that was rejected with a warning.
    rejected_check: Option<u64>,
    /// Sender of another type, if its heaps have no check.
    rejected_sender: Option<Endpoint>,
    /// Sender of a description of the type.
    described_by: Option<Endpoint>,
    /// Timestamp of the last frame sent to the flowgraph.
    last: Option<u64>,
    /// Difference between the timeline of the frames and that of the sender.
    offset: u64,
    /// Time base of the last frame.
    base: TimeBase,
    pace: Pace,
}

impl Window {
    /// Creates a window of the stream `described`.
    #[must_use]
    pub fn new(described: Described, options: Options, env: &Env) -> Self {
        let port = &described.port;
        let frame_seconds = port.clock.frames_per_second().recip();
        let divides = port.validity.axes.iter().all(|unit| {
            let payload = port.axes.iter().find(|axis| axis.name == unit.name);
            payload.is_none_or(|axis| axis.len.is_multiple_of(unit.len.max(1)))
        });
        Self {
            elements: Elements::new(port),
            divides,
            patience: {
                let (least, most) = SILENCE_SECONDS;
                Duration::from_secs_f64((2.0 / port.clock.frames_per_second()).clamp(least, most))
            },
            described,
            options,
            causes: Causes::new(&env.counters),
            second_sender: SecondSender::new(&env.counters, frame_seconds),
            pace: Pace::new(env.timelines.receive()),
            env: env.clone(),
            open: Vec::with_capacity(heaps(options.window)),
            unused: Vec::with_capacity(heaps(options.window)),
            run: None,
            over: Vec::new(),
            stopped: None,
            other_check: None,
            rejected_check: None,
            rejected_sender: None,
            described_by: None,
            last: None,
            offset: 0,
            base: TimeBase::default(),
        }
    }

    /// Handles one datagram.
    pub fn datagram(
        &mut self,
        datagram: &[u8],
        sender: Endpoint,
        now: Instant,
        frames: &mut dyn Frames,
    ) -> Outcome {
        let packet = match Packet::parse(datagram) {
            Ok(packet) => packet,
            Err(why) => {
                self.causes.malformed(why);
                return Outcome::Rejected;
            }
        };
        if packet.value(item::STREAM_CONTROL) == Some(item::STREAM_STOP) {
            return self.stop(&packet, sender, now);
        }
        let found = match self.find(&packet, sender) {
            None => self.begin(&packet, sender, now, frames),
            // The packet with the items may come after others of its heap.
            Some(index) if !self.open[index].has_items() => {
                self.introduce(index, &packet, now, frames)
            }
            found => found,
        };
        let Some(index) = found else { return Outcome::Rejected };
        let heap = &mut self.open[index];
        if heap.len() as u64 != packet.heap_length {
            self.causes.foreign.add(1);
            return Outcome::Rejected;
        }
        match heap.add(&packet) {
            Arrival::New => heap.heard = now,
            Arrival::Duplicate => self.causes.duplicate.add(1),
            Arrival::TooManyPieces => self.causes.pieces.add(1),
        }
        if !self.is_current(index) {
            let is_of = |id: u64| self.run.as_ref().is_some_and(|run| run.id == id);
            if self.open[index].place.is_some_and(|place| !is_of(place.run)) {
                self.hold_stop(now);
            }
            self.consider(index, now, frames);
            return Outcome::Rejected;
        }
        if let Some(run) = &mut self.run {
            run.heard = now;
            run.sender = sender;
        }
        self.hold_stop(now);
        self.pass_on(frames);
        Outcome::Accepted
    }

    /// Completes heaps that have waited for too long at the time `now`.
    pub fn tick(&mut self, now: Instant, frames: &mut dyn Frames) {
        while let Some(index) = self.first() {
            let has_later =
                (0..self.open.len()).any(|other| other != index && self.is_current(other));
            let may_go_on = !has_later && !self.open[index].is_whole();
            let least = if may_go_on { STOPPED } else { Duration::ZERO };
            if self.silence(now).is_some_and(|silence| silence <= self.patience.max(least)) {
                break;
            }
            self.emit(index, frames);
        }
        let patience = self.patience;
        let is_old = |heap: &Heap| now.saturating_duration_since(heap.heard) > patience;
        let mut index = 0;
        while index < self.open.len() {
            if is_old(&self.open[index]) && !self.is_current(index) {
                self.give_up(index);
            } else {
                index += 1;
            }
        }
    }

    /// Sends all heaps of the stream to the flowgraph, complete or not, and frames for those that the sender sent after
    /// them: the stream has ended.
    pub fn flush(&mut self, frames: &mut dyn Frames) {
        self.stopped = None;
        while let Some(index) = self.first() {
            self.emit(index, frames);
        }
        if let Some(Run { next: Some(next), frames: Some(all), .. }) = self.run
            && let Some(last) = self.last
        {
            let lost = all.saturating_sub(next);
            self.causes.missing.add(lost);
            let span = lost.saturating_mul(self.samples());
            if span <= self.options.max_gap_samples && lost <= MAX_FILL {
                self.fill(last, lost, frames);
            }
            if lost > 0
                && let Some(run) = &mut self.run
            {
                run.sent(all - 1, false);
            }
        }
    }

    /// Time since the newest packet of the stream; `None` before the first one.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Option<Duration> {
        self.run.as_ref().map(|run| now.saturating_duration_since(run.heard))
    }

    /// Sender of the stream, for messages.
    #[must_use]
    pub fn sender(&self) -> Option<Endpoint> {
        self.run.as_ref().map(|run| run.sender).or(self.described_by)
    }

    /// Number of bytes of all heaps in memory.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.open.iter().chain(&self.unused).map(Heap::capacity).sum()
    }

    /// Timestamp of the last frame on the timeline of the sender; 0 before the first one.
    fn sender_timestamp(&self) -> u64 {
        self.last.map_or(0, |last| last.saturating_sub(self.offset))
    }

    fn samples(&self) -> u64 {
        self.described.port.clock.samples_per_frame
    }

    fn is_silent(&self, now: Instant) -> bool {
        self.silence(now).is_none_or(|silence| silence > self.patience)
    }

    fn find(&self, packet: &Packet<'_>, sender: Endpoint) -> Option<usize> {
        let is_it = |heap: &Heap| heap.counter == packet.heap_counter && heap.sender == sender;
        self.open.iter().position(is_it)
    }

    /// Whether open heap `index` belongs to the run and comes after the frames sent.
    fn is_current(&self, index: usize) -> bool {
        let (Some(run), Some(place)) = (&self.run, self.open[index].place) else { return false };
        run.id == place.run && run.next.is_none_or(|next| place.sequence >= next)
    }

    /// Begins the heap of `packet`; returns its index, or counts why it is rejected.
    fn begin(
        &mut self,
        packet: &Packet<'_>,
        sender: Endpoint,
        now: Instant,
        frames: &mut dyn Frames,
    ) -> Option<usize> {
        if packet.heap_length > self.described.max_heap_bytes() as u64 {
            self.causes.foreign.add(1);
            return None;
        }
        let mut heap = self.unused.pop().unwrap_or_else(|| Heap::new(sender, now));
        heap.begin(packet, sender, now);
        self.open.push(heap);
        self.introduce(self.open.len() - 1, packet, now, frames)
    }

    /// Takes the items of `packet`, if it has them, for its heap `index`; returns the new index of the heap, or counts
    /// why it is rejected.
    fn introduce(
        &mut self,
        index: usize,
        packet: &Packet<'_>,
        now: Instant,
        frames: &mut dyn Frames,
    ) -> Option<usize> {
        let sender = self.open[index].sender;
        let check = packet.value(item::TYPE_CHECK);
        let is_type = match check {
            Some(check) => check == self.described.check || Some(check) == self.other_check,
            None => self.rejected_sender != Some(sender),
        };
        let has_type = packet.pointers().any(|pointer| pointer.id == item::TYPE);
        let place = place(packet, self.samples(), self.sender_timestamp());
        if !is_type && !has_type && (check.is_some() || place.is_some()) {
            self.causes.other_type.add(1);
            return self.drop_heap(index);
        }
        let place = place.filter(|_| is_type);
        let heap = &mut self.open[index];
        if place.is_some() || has_type {
            heap.take_items(packet);
        }
        if place.is_some() && !heap.fits(&self.described) {
            self.causes.foreign.add(1);
            return self.drop_heap(index);
        }
        // Only frames of the type take the stream over.
        let place = place.map(|place| self.in_stream(place, sender));
        self.open[index].place = place;
        if let (Some(place), Some(run)) = (place, &self.run)
            && !self.is_silent(now)
        {
            let is_late = run.id == place.run && run.next.is_some_and(|next| place.sequence < next);
            let rejection = if is_late && run.was_whole(place.sequence) {
                Some(&self.causes.duplicate)
            } else if is_late {
                Some(&self.causes.late)
            } else {
                self.over.contains(&place.run).then_some(&self.causes.other_run)
            };
            if let Some(cause) = rejection {
                cause.add(1);
                if run.sender != sender {
                    self.second_sender.note(run.sender, sender, now, &self.env.events);
                }
                return self.drop_heap(index);
            }
        }
        self.make_room(frames);
        // Making room may have moved the heap, or sent it.
        self.find(packet, sender)
    }

    /// Closes heaps until there are no more than allowed: of the stream the first ones, of others the oldest.
    fn make_room(&mut self, frames: &mut dyn Frames) {
        let current = |window: &Self| {
            (0..window.open.len()).filter(|index| window.is_current(*index)).count()
        };
        while current(self) > self.options.window {
            let Some(index) = self.first() else { return };
            self.emit(index, frames);
        }
        let allowed = if self.run.is_some() { CANDIDATES } else { self.options.window };
        while self.open.len() - current(self) > allowed {
            let others = (0..self.open.len()).filter(|index| !self.is_current(*index));
            let Some(oldest) = others.min_by_key(|index| self.open[*index].heard) else { return };
            self.give_up(oldest);
        }
    }

    /// Returns the first heap of the stream.
    fn first(&self) -> Option<usize> {
        let current = (0..self.open.len()).filter(|index| self.is_current(*index));
        // Of two copies of a frame, from both senders of a takeover, the whole one.
        let order = |heap: &Heap| (heap.place.map(|place| place.sequence), !heap.is_whole());
        current.min_by_key(|index| order(&self.open[*index]))
    }

    /// Drops a heap that does not belong to the stream.
    fn give_up(&mut self, index: usize) {
        let heap = &self.open[index];
        let is_description = heap.has(item::DESCRIPTOR) || heap.has(item::TYPE);
        let is_copy = heap
            .place
            .zip(self.run.as_ref())
            .is_some_and(|(place, run)| run.id == place.run && run.was_whole(place.sequence));
        if is_copy {
            self.causes.duplicate.add(heap.packets());
        } else if !is_description {
            self.causes.unexpected.add(1);
        }
        self.drop_heap(index);
    }

    /// Drops a heap without a count.
    fn drop_heap(&mut self, index: usize) -> Option<usize> {
        let heap = self.open.swap_remove(index);
        self.unused.push(heap);
        None
    }

    /// Sends heaps of the stream that need not wait.
    fn pass_on(&mut self, frames: &mut dyn Frames) {
        while let Some(index) = self.first() {
            let (heap, run) = (&self.open[index], &self.run);
            let next = run.as_ref().and_then(|run| run.next);
            let is_next = next.is_none() || heap.place.map(|place| place.sequence) == next;
            if !(heap.is_whole() && is_next) {
                return;
            }
            self.emit(index, frames);
        }
    }

    /// Considers a heap outside the stream: its description of the type, and whether its run becomes the stream.
    fn consider(&mut self, index: usize, now: Instant, frames: &mut dyn Frames) {
        let heap = &self.open[index];
        if heap.is_whole() && (heap.has(item::TYPE) || heap.has(item::DESCRIPTOR)) {
            self.causes.descriptors.add(1);
            self.read_type(index);
            if self.open[index].place.is_none() {
                let heap = self.open.swap_remove(index);
                self.unused.push(heap);
                return;
            }
        }
        let heap = &self.open[index];
        let Some(place) = heap.place else {
            if heap.is_whole() {
                self.give_up(index);
            }
            return;
        };
        if !heap.is_mostly_here() {
            return;
        }
        let is_new = match &self.run {
            None => true,
            Some(run) if run.id == place.run => self.is_silent(now),
            Some(_) => self.is_silent(now) || !self.over.contains(&place.run),
        };
        if is_new {
            let sender = heap.sender;
            self.adopt(place, sender, now, frames);
        }
    }

    /// Reads the type in open heap `index`.
    fn read_type(&mut self, index: usize) {
        let heap = &self.open[index];
        let Some(text) = heap.whole_item(item::TYPE, None) else { return };
        let mut checksum = Checksum::default();
        checksum.add(text);
        let (check, sender) = (u64::from(checksum.value()), heap.sender);
        match self.described.difference(text) {
            None => {
                self.described_by = Some(sender);
                self.rejected_sender = self.rejected_sender.filter(|rejected| *rejected != sender);
                if check != self.described.check {
                    self.other_check = Some(check);
                }
            }
            Some(why) => {
                self.open[index].place = None;
                self.rejected_sender = Some(sender);
                if self.rejected_check != Some(check) {
                    self.rejected_check = Some(check);
                    self.env.events.add(
                        EventKind::Warning,
                        format!(
                            "the stream of {sender} is rejected: {why}; its frames are dropped"
                        ),
                    );
                }
            }
        }
    }
}
