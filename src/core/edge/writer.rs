//! The writing end of the edges of an output.

use super::{Edge, TURN};
use crate::changes::{Configurations, Heard, Known, When};
use crate::edge::TapWriter;
use crate::edge::Tee;
use crate::frame::{Frame, FrameMut, Pool};
use crate::time_base::{BasesTaken, TimeBase};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The writing end of all edges of one output port.
pub struct FrameWriter {
    edges: Vec<Arc<Edge>>,
    /// Number of edges from the front that are known to have room. Only pushes use up room, so this holds until
    /// the next push, and a writer that is woken by every reader checks each edge once per frame.
    roomy: AtomicUsize,
    /// Number of edges from the front that are known to be closed.
    closed: AtomicUsize,
    /// `None` for a port that passes frames through.
    pool: Option<Arc<Pool>>,
    sequence: u64,
    /// Configurations of the run.
    configurations: Arc<Configurations>,
    heard: Heard,
    /// Time bases of the input frames of the block.
    bases: BasesTaken,
    /// Probes of this output.
    pub taps: Vec<TapWriter>,
    /// Number of frames that may still be pushed in this turn.
    turn: u32,
    /// Timestamp of the last frame.
    last: Option<u64>,
    /// Frames up to this timestamp were pushed before the block was swapped in; they are dropped.
    after: Option<u64>,
    /// Frames that the block made, or began, before it was swapped in; they are pushed as soon as there is room.
    made_before: VecDeque<Arc<Frame>>,
    /// Timestamps and validity of pushed frames, while a candidate or shadow is compared.
    log: Option<PushLog>,
    /// Gets a copy of every pushed frame.
    tee: Option<Tee>,
    /// Timestamp of a swap that is in progress, and the frames held back from then on.
    switch: Option<Switch>,
}

/// Holds frames back from the timestamp of a swap on; the new block pushes these instead.
struct Switch {
    when: When,
    /// ADC samples per frame.
    samples: u64,
    held: VecDeque<Arc<Frame>>,
}

impl Switch {
    /// Whether a frame of this timestamp is after the swap. While the timestamp of the swap is undecided, this call
    /// moves it behind the frame.
    fn is_past(&self, timestamp: u64) -> bool {
        match self.when.begin(timestamp.saturating_add(self.samples)) {
            Known::From(from) => timestamp >= from,
            Known::Open | Known::Never => false,
        }
    }
}

/// Timestamp and validity of the pushed frames, the oldest first.
pub type PushLog = VecDeque<(u64, Vec<u32>)>;

/// Limit of the entries of a [`PushLog`].
const LOGGED: usize = 1024;

impl FrameWriter {
    /// The writing end of `edges`, whose frames come from `pool`.
    #[must_use]
    pub fn new(edges: Vec<Arc<Edge>>, pool: Option<Arc<Pool>>, config_id: u64) -> Self {
        let heard = Heard::from_start(config_id);
        Self::of_run(edges, pool, heard, Arc::default(), BasesTaken::default())
    }

    /// A writer whose frames have the configuration in `heard`, until a later entry of `configurations` takes effect.
    /// Frames without a time base get that of `bases`.
    pub fn of_run(
        edges: Vec<Arc<Edge>>,
        pool: Option<Arc<Pool>>,
        heard: Heard,
        configurations: Arc<Configurations>,
        bases: BasesTaken,
    ) -> Self {
        Self {
            edges,
            roomy: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            pool,
            sequence: 0,
            heard,
            bases,
            configurations,
            taps: Vec::new(),
            turn: u32::MAX,
            last: None,
            after: None,
            made_before: VecDeque::new(),
            log: None,
            tee: None,
            switch: None,
        }
    }

    /// Begins a turn of limited length; without this call there is no limit.
    pub fn begin_turn(&mut self) {
        self.turn = TURN;
    }

    /// Whether the turn is used up.
    pub fn wants_another_turn(&self) -> bool {
        self.turn == 0
    }

    /// See [`Output::take`](crate::Output::take).
    pub fn take(&mut self) -> Option<FrameMut> {
        if !self.has_room() {
            return None;
        }
        self.pool.as_ref()?.take()
    }

    /// See [`Output::has_room`](crate::Output::has_room).
    pub fn has_room(&self) -> bool {
        self.turn > 0 && self.readers_have_room()
    }

    /// Whether every reader has room, regardless of the limit of the turn.
    pub fn readers_have_room(&self) -> bool {
        self.all(&self.roomy, Edge::has_room)
    }

    /// Whether `holds` is true for all edges. It is known, and stays, true for the first `known` edges.
    fn all(&self, known: &AtomicUsize, holds: impl Fn(&Edge) -> bool) -> bool {
        let before = known.load(Ordering::Relaxed);
        let more = self.edges[before..].iter().take_while(|edge| holds(edge)).count();
        known.store(before + more, Ordering::Relaxed);
        before + more == self.edges.len()
    }

    /// Whether no frame can be pushed now, because a reader has no room or the pool no buffer.
    pub fn is_held_up(&self) -> bool {
        let has_buffer = || self.pool.as_ref().is_none_or(|pool| pool.available() > 0);
        !self.readers_have_room() || !has_buffer()
    }

    /// Whether all readers are gone; `None` for an output without readers.
    pub fn is_abandoned(&self) -> Option<bool> {
        (!self.edges.is_empty()).then(|| self.all(&self.closed, Edge::is_closed))
    }

    /// See [`Output::push`](crate::Output::push).
    pub fn push(&mut self, frame: FrameMut) {
        if self.must_wait() {
            self.made_before.push_back(frame.freeze());
        } else {
            self.send(frame);
        }
    }

    /// See [`Output::pass`](crate::Output::pass).
    pub fn pass(&mut self, frame: Arc<Frame>) {
        if self.must_wait() {
            self.made_before.push_back(frame);
        } else {
            self.send_on(frame);
        }
    }

    /// Whether a frame must wait: a block that was swapped in may push a frame that it took before, when there was
    /// room.
    fn must_wait(&self) -> bool {
        self.after.is_some() && !self.readers_have_room()
    }

    fn send(&mut self, mut frame: FrameMut) {
        let header = frame.header_mut();
        header.sequence = self.sequence;
        header.config_id = self.heard.at(header.timestamp, &self.configurations);
        if header.base == TimeBase::default() {
            header.base = self.bases.at(header.timestamp);
        }
        self.send_on(frame.freeze());
    }

    fn send_on(&mut self, frame: Arc<Frame>) {
        let header = frame.header();
        if self.after.is_some_and(|after| header.timestamp <= after) {
            return;
        }
        if let Some(switch) = self.switch.as_mut().filter(|s| s.is_past(header.timestamp)) {
            self.turn = self.turn.saturating_sub(1);
            switch.held.push_back(frame);
            return;
        }
        if let Some(log) = &mut self.log {
            if log.len() == LOGGED {
                log.pop_front();
            }
            log.push_back((header.timestamp, header.validity.clone()));
        }
        if let Some(tee) = &mut self.tee {
            tee.push(&frame);
        }
        self.last = Some(header.timestamp);
        self.sequence += 1;
        self.turn = self.turn.saturating_sub(1);
        self.taps.iter_mut().for_each(|tap| tap.offer(&frame));
        *self.roomy.get_mut() = 0;
        let Some((last, others)) = self.edges.split_last() else { return };
        for edge in others {
            edge.push(Arc::clone(&frame));
        }
        last.push(frame);
    }

    /// Number of frames pushed so far.
    pub fn pushed(&self) -> u64 {
        self.sequence
    }

    /// Number of frames pushed, and of those that a swapped-in block has yet to push.
    pub fn to_be_pushed(&self) -> u64 {
        self.sequence + self.made_before.len() as u64
    }

    /// Pool of the frames.
    pub fn pool(&self) -> Option<Arc<Pool>> {
        self.pool.clone()
    }

    /// Timestamp of the last frame.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// Copies every pushed frame to `tee`; an earlier tee ends.
    pub fn set_tee(&mut self, tee: Option<Tee>) {
        self.tee = tee;
    }

    /// Holds back frames of `samples` ADC samples that start at `when` or later; another block will push frames from
    /// there on.
    pub fn set_switch(&mut self, when: When, samples: u64) {
        self.switch = Some(Switch { when, samples, held: VecDeque::new() });
    }

    /// Whether a frame is held back.
    pub fn holds_back(&self) -> bool {
        self.switch.as_ref().is_some_and(|switch| !switch.held.is_empty())
    }

    /// Whether the next frame is after the swap; it starts where the last frame ended.
    pub fn has_reached_switch(&self) -> bool {
        let Some(Switch { when, samples, .. }) = &self.switch else { return false };
        let Known::From(from) = when.known() else { return false };
        let until = self.last.map(|last| last.saturating_add(*samples));
        self.holds_back() || until.is_some_and(|until| until >= from)
    }

    /// Cancels the swap: frames held back are pushed as soon as there is room.
    pub fn end_switch(&mut self) {
        if let Some(Switch { held, .. }) = self.switch.take() {
            self.made_before.extend(held);
        }
    }

    /// Starts or ends the log of pushed frames.
    pub fn set_log(&mut self, is_logged: bool) {
        self.log = is_logged.then(VecDeque::new);
    }

    /// Log of pushed frames; empty if logging is off.
    pub fn log(&mut self) -> &mut PushLog {
        self.log.get_or_insert_default()
    }

    /// Pushes frames that the block made before it was swapped in, as far as there is room; `true` if none is
    /// left.
    pub fn push_made_before(&mut self) -> bool {
        while self.readers_have_room()
            && let Some(frame) = self.made_before.pop_front()
        {
            // A frame that the block passed through is shared and keeps its sequence number.
            match FrameMut::try_from(frame) {
                Ok(frame) => self.send(frame),
                Err(frame) => self.send_on(frame),
            }
        }
        self.made_before.is_empty()
    }

    /// Swaps the block of this port with that of `candidate`, which has made the frames `made` so far. Sequence
    /// numbers continue, and the last frame of the old block is followed by the next frame of the new one. Returns the
    /// frames of the old block that were held back.
    pub fn swap(
        &mut self,
        candidate: &mut Self,
        made: VecDeque<Arc<Frame>>,
    ) -> VecDeque<Arc<Frame>> {
        std::mem::swap(&mut self.pool, &mut candidate.pool);
        // The configuration belongs to the block: it moves with the block, also if the swap is undone.
        std::mem::swap(&mut self.heard, &mut candidate.heard);
        let held = self.switch.take().map(|switch| (switch.when.known(), switch.held));
        self.after = match &held {
            Some((Known::From(from), held)) if !held.is_empty() => from.checked_sub(1),
            _ => self.last,
        };
        candidate.after = None;
        self.made_before = made;
        self.log = self.log.take().map(|_| VecDeque::new());
        held.map(|(_, held)| held).unwrap_or_default()
    }
}

impl Drop for FrameWriter {
    /// Ends the stream of the readers when the writer is dropped for any reason.
    fn drop(&mut self) {
        self.edges.iter().for_each(|edge| edge.end());
    }
}

// Steps are counted in debug builds.
#[cfg(all(test, debug_assertions))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::FrameReader;
    use super::*;
    use crate::frame::HostAllocator;
    use crate::steps::steps;

    /// Number of checks for room on edges while `readers` take one frame each and the writer checks after each.
    fn asked(readers: usize) -> usize {
        let pool = Pool::new(&HostAllocator, 1, 16, 0).unwrap();
        let edges: Vec<Arc<Edge>> = (0..readers).map(|_| Edge::new(1)).collect();
        let mut ends: Vec<FrameReader> = edges.iter().cloned().map(FrameReader::new).collect();
        let mut writer = FrameWriter::new(edges, Some(pool), 0);
        let frame = writer.take().unwrap();
        writer.push(frame);
        steps(|| {
            for (number, reader) in ends.iter_mut().enumerate() {
                assert!(!writer.has_room(), "{number} of {readers} readers have taken the frame");
                assert!(reader.pop().is_some());
                assert_eq!(writer.is_abandoned(), Some(false));
            }
            assert!(writer.has_room());
        })
    }

    #[test]
    fn writer_woken_by_every_reader_checks_each_edge_at_most_twice() {
        for readers in [1, 10, 1000] {
            let asked = asked(readers);
            assert!(asked <= 2 * readers, "{readers} edges are checked {asked} times");
        }
    }

    #[test]
    fn writer_whose_readers_left_in_any_order_is_abandoned() {
        let edges: Vec<Arc<Edge>> = (0..4).map(|_| Edge::new(1)).collect();
        let mut ends: Vec<FrameReader> = edges.iter().cloned().map(FrameReader::new).collect();
        let writer = FrameWriter::new(edges, None, 0);
        for left in [2, 0, 1] {
            assert_eq!(writer.is_abandoned(), Some(false));
            drop(ends.remove(left));
        }
        assert_eq!(writer.is_abandoned(), Some(false));
        ends.clear();
        assert_eq!(writer.is_abandoned(), Some(true));
        assert!(writer.readers_have_room(), "no reader is waited for");
    }
}
