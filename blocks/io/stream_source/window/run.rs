//! The run of the sender that is the stream: another run begins, continues it, or it ends.

use super::{Outcome, Window};
use crate::common::link::Frames;
use crate::io::spead::endpoint::Endpoint;
use crate::io::spead::item;
use crate::io::spead::packet::Packet;
use crate::io::stream_source::heap::Place;
use fxgraph::runtime::EventKind;
use std::time::{Duration, Instant};

/// Runs of the sender that are remembered as over.
const RUNS: usize = 16;

/// The run of the sender that is the stream at present.
pub(super) struct Run {
    pub id: u64,
    pub sender: Endpoint,
    /// Sequence of the next frame; unknown before the first one.
    pub next: Option<u64>,
    /// Which of the last 64 frames before it were whole, the last one in bit 0.
    whole: u64,
    /// Time of the newest packet.
    pub heard: Instant,
    /// Number of frames of the run, once the sender has told it.
    pub frames: Option<u64>,
    /// Runs of senders that took this one over, the oldest first.
    takeovers: Vec<Takeover>,
}

/// A run whose frames continue another run.
#[derive(Clone, Copy)]
struct Takeover {
    id: u64,
    /// Difference between the numbers of a frame in the run that is continued and in this one, modulo 2^64.
    ahead: u64,
}

/// A stop heap.
#[derive(Clone, Copy)]
pub(super) struct Stopped {
    /// Run that it ends, if that is known.
    run: Option<u64>,
    /// Time of the stop heap, or of the newest packet after it.
    at: Instant,
}

impl Run {
    /// Number, in this run, of frame `sequence` of run `id`; `None` if that run does not continue this one.
    fn number(&self, id: u64, sequence: u64) -> Option<u64> {
        if id == self.id {
            return Some(sequence);
        }
        let takeover = self.takeovers.iter().find(|takeover| takeover.id == id)?;
        Some(sequence.wrapping_add(takeover.ahead))
    }

    /// Notes that frame `sequence` is sent, and all before it.
    pub(super) fn sent(&mut self, sequence: u64, is_whole: bool) {
        let ahead = self.next.map(|next| sequence.saturating_sub(next).saturating_add(1));
        let by = ahead.and_then(|ahead| u32::try_from(ahead).ok());
        let before = by.and_then(|by| self.whole.checked_shl(by)).unwrap_or(0);
        self.whole = before | u64::from(is_whole);
        self.next = Some(sequence.saturating_add(1));
    }

    /// Whether frame `sequence` was sent, and all its bytes had arrived.
    pub(super) fn was_whole(&self, sequence: u64) -> bool {
        let before = self.next.and_then(|next| next.checked_sub(1)?.checked_sub(sequence));
        before.is_some_and(|before| before < u64::from(u64::BITS) && self.whole >> before & 1 == 1)
    }
}

impl Window {
    /// Returns `place` in the numbers of the stream: frames of a run that took the stream over continue it.
    pub(super) fn in_stream(&mut self, place: Place, sender: Endpoint) -> Place {
        let samples = self.samples();
        let Some(run) = &mut self.run else { return place };
        if let Some(sequence) = run.number(place.run, place.sequence) {
            return Place { run: run.id, sequence, ..place };
        }
        let (Some(next), Some(last)) = (run.next, self.last) else { return place };
        if !place.is_taken_over || self.over.contains(&place.run) {
            return place;
        }
        // The last frame sent to the flowgraph has the number before `next`.
        let ahead = i128::from(place.timestamp) + i128::from(self.offset) - i128::from(last);
        if ahead % i128::from(samples) != 0 {
            return place;
        }
        let number = i128::from(next) - 1 + ahead / i128::from(samples);
        let Ok(sequence) = u64::try_from(number) else { return place };
        if run.takeovers.len() == RUNS {
            run.takeovers.remove(0);
        }
        run.takeovers
            .push(Takeover { id: place.run, ahead: sequence.wrapping_sub(place.sequence) });
        // The stream goes on, although the sender before may have stopped.
        self.stopped = None;
        self.env.events.add(
            EventKind::Resynchronised,
            format!(
                "the sender {sender} takes the stream over from {} at timestamp {}",
                run.sender, place.timestamp
            ),
        );
        Place { run: run.id, sequence, ..place }
    }

    /// Makes the run of a heap at `place` the stream.
    pub(super) fn adopt(
        &mut self,
        place: Place,
        sender: Endpoint,
        now: Instant,
        frames: &mut dyn Frames,
    ) {
        while let Some(index) = self.first() {
            self.emit(index, frames);
        }
        if let Some(before) = &self.run {
            if before.id != place.run {
                self.over.push(before.id);
                self.over.extend(before.takeovers.iter().map(|takeover| takeover.id));
                let surplus = self.over.len().saturating_sub(RUNS);
                self.over.drain(..surplus);
            }
            self.causes.resyncs.add(1);
            self.env.events.add(
                EventKind::Resynchronised,
                format!(
                    "the sender {sender} began another run at timestamp {}, after {}",
                    place.timestamp, before.sender
                ),
            );
        }
        self.over.retain(|run| *run != place.run);
        // The stop heap of the run before does not end this one; that of this run may have overtaken its data.
        self.stopped =
            self.stopped.filter(|stopped| stopped.run.is_none_or(|run| run == place.run));
        self.run = Some(Run {
            id: place.run,
            sender,
            next: None,
            whole: 0,
            heard: now,
            frames: None,
            takeovers: Vec::new(),
        });
        self.pass_on(frames);
        self.make_room(frames);
    }

    /// Handles a stop heap; heaps that it overtook are accepted later, too.
    pub(super) fn stop(&mut self, packet: &Packet<'_>, sender: Endpoint, now: Instant) -> Outcome {
        let is_known = match &self.run {
            Some(run) => run.sender == sender,
            None => self.described_by == Some(sender),
        };
        let run = packet.value(item::RUN);
        let sequence = packet.value(item::SEQUENCE);
        let number = |known: &Run| {
            let sequence = sequence.unwrap_or_default();
            run.map_or(Some(sequence), |run| known.number(run, sequence))
        };
        let is_run = self.run.as_ref().is_none_or(|known| number(known).is_some());
        if !is_known || !is_run {
            self.causes.stops_rejected.add(1);
            return Outcome::Rejected;
        }
        self.causes.stops.add(1);
        if let Some(run) = &mut self.run {
            // Senders without an identifier have no number of frames.
            run.frames = sequence.and_then(|_| number(run)).filter(|_| run.id != 0);
        }
        let run = self.run.as_ref().map(|known| known.id).or(run);
        if self.stopped.is_none_or(|stopped| stopped.run != run) {
            self.stopped = Some(Stopped { run, at: now });
            self.env.events.add(EventKind::SenderStopped, format!("stop heap from {sender}"));
        }
        Outcome::Stopped
    }

    /// Time since the stop heap of the stream, or since the newest packet of it, or of a run that may follow, after the
    /// stop heap; `None` if the stream goes on.
    #[must_use]
    pub fn stopped(&self, now: Instant) -> Option<Duration> {
        self.stopped.map(|stopped| now.saturating_duration_since(stopped.at))
    }

    /// Notes at the time `now` that data come although the sender has stopped: the stop heap overtook them, or they are
    /// of another run, which becomes the stream when enough of a heap has arrived.
    pub(super) fn hold_stop(&mut self, now: Instant) {
        if let Some(stopped) = &mut self.stopped {
            stopped.at = now;
        }
    }
}
