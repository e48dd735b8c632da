//! The reading end of an edge.

use super::{Edge, TURN};
use crate::edge::Tee;
use crate::frame::Frame;
use crate::sync::Ordering;
use crate::time_base::{BasesTaken, TimeBase};
use std::collections::VecDeque;
use std::sync::Arc;

/// The reading end of an edge.
pub struct FrameReader {
    edge: Arc<Edge>,
    /// Frames removed from the edge but not yet taken: one that the block has peeked at, and after a swap those that
    /// the new block had not yet taken from its tee.
    front: VecDeque<Arc<Frame>>,
    /// Gets a copy of every frame that leaves the edge.
    tee: Option<Tee>,
    /// Number of frames that may still be taken in this turn; further frames are hidden.
    turn: u32,
    /// Number of frames that the block has taken.
    taken: u64,
    /// Timestamp of the newest frame that has left the edge.
    newest: Option<u64>,
    /// Timestamp of the last frame that any block in this slot has taken.
    last_taken: Option<u64>,
    /// Timestamps of the frames that the block has taken in this turn.
    turn_times: [u64; TURN as usize],
    turn_taken: usize,
    /// Time base of the newest frame, and the bases of all inputs of the block.
    base: TimeBase,
    bases: BasesTaken,
    limit: Option<Limit>,
}

/// Limit of a reader to the frames of one time base.
#[derive(Clone, Copy)]
struct Limit {
    /// First timestamp of the base.
    from: u64,
    /// No more frames of the base are waited for.
    is_cut: bool,
}

impl FrameReader {
    /// The reading end of `edge`.
    pub fn new(edge: Arc<Edge>) -> Self {
        Self::of_block(edge, BasesTaken::default())
    }

    /// The reading end of `edge` for a block, which notes the time bases of the frames in `bases`.
    pub fn of_block(edge: Arc<Edge>, bases: BasesTaken) -> Self {
        let front = VecDeque::new();
        Self {
            edge,
            front,
            tee: None,
            turn: u32::MAX,
            taken: 0,
            newest: None,
            last_taken: None,
            turn_times: [0; TURN as usize],
            turn_taken: 0,
            base: TimeBase::default(),
            bases,
            limit: None,
        }
    }

    /// Begins a turn of limited length; without this call there is no limit.
    pub fn begin_turn(&mut self) {
        self.turn_taken = 0;
        self.turn = match &self.tee {
            Some(tee) if tee.may_hold_up() => TURN.min(tee.room() as u32),
            _ => TURN,
        };
    }

    /// Whether the turn is used up while frames wait that may be taken.
    #[must_use]
    pub fn wants_another_turn(&self) -> bool {
        let is_held_up =
            || self.tee.as_ref().is_some_and(|tee| tee.may_hold_up() && tee.room() == 0);
        self.turn == 0 && self.waiting() > 0 && !is_held_up()
    }

    /// Takes the next frame of this turn, if one is queued.
    pub fn pop(&mut self) -> Option<Arc<Frame>> {
        if self.turn == 0 || (self.limit.is_some() && self.peek().is_none()) {
            return None;
        }
        let frame = self.next()?;
        self.turn -= 1;
        self.taken += 1;
        self.last_taken = Some(frame.header().timestamp);
        if let Some(time) = self.turn_times.get_mut(self.turn_taken) {
            *time = frame.header().timestamp;
            self.turn_taken += 1;
        }
        Some(frame)
    }

    /// Timestamps of the frames that the block has taken in this turn.
    #[must_use]
    pub fn turn_times(&self) -> &[u64] {
        &self.turn_times[..self.turn_taken]
    }

    /// Number of frames that the block has taken so far.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Drops the next frame, if one is queued.
    pub fn skip(&mut self) {
        if let Some(frame) = self.next() {
            self.last_taken = Some(frame.header().timestamp);
        }
    }

    fn next(&mut self) -> Option<Arc<Frame>> {
        let Some(frame) = self.front.pop_front() else { return self.pop_edge() };
        self.note_held();
        Some(frame)
    }

    fn note_held(&self) {
        self.edge.held.store(self.front.len(), Ordering::Relaxed);
    }

    fn pop_edge(&mut self) -> Option<Arc<Frame>> {
        let frame = self.edge.queue.pop().ok()?;
        self.edge.popped.fetch_add(1, Ordering::Relaxed);
        self.edge.writer.wake();
        self.newest = Some(frame.header().timestamp);
        let base = frame.header().base;
        // The first base may have a sync time that its source has measured.
        if base != self.base {
            self.base = base;
            self.bases.note(base);
        }
        if let Some(tee) = &mut self.tee {
            tee.push(&frame);
        }
        Some(frame)
    }

    /// Returns the next frame of this turn without taking it.
    pub fn peek(&mut self) -> Option<&Arc<Frame>> {
        if self.turn == 0 {
            return None;
        }
        self.fill_front();
        self.front.front().filter(|frame| !self.is_beyond(frame))
    }

    fn fill_front(&mut self) {
        // A frame that leaves the edge goes into the tee, which has room for those of the turn.
        if self.turn > 0
            && self.front.is_empty()
            && let Some(frame) = self.pop_edge()
        {
            self.front.push_back(frame);
            self.note_held();
        }
    }

    fn is_beyond(&self, frame: &Frame) -> bool {
        self.limit.is_some_and(|limit| frame.header().base.from > limit.from)
    }

    /// Whether the next frame is of a later time base than those that the limit shows.
    #[must_use]
    pub fn has_later_base(&self) -> bool {
        self.front.front().is_some_and(|frame| self.is_beyond(frame))
    }

    /// Time base of the next frame, if one is queued.
    pub fn next_base(&mut self) -> Option<TimeBase> {
        self.fill_front();
        self.front.front().map(|frame| frame.header().base)
    }

    /// Shows the frames of `base` only, until [`end_limit`](Self::end_limit): the input counts as ended before the first
    /// frame of a later base and, with `is_cut`, when no frame is queued. Frames of earlier bases are dropped; returns
    /// their number.
    pub fn limit_to(&mut self, base: &TimeBase, is_cut: bool) -> u64 {
        self.limit = Some(Limit { from: base.from, is_cut });
        let mut dropped = 0;
        while self.next_base().is_some_and(|next| next.from < base.from) {
            self.skip();
            dropped += 1;
        }
        dropped
    }

    /// Shows the frames of all time bases.
    pub fn end_limit(&mut self) {
        self.limit = None;
    }

    /// Length of the queue of the edge in frames.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.edge.depth()
    }

    /// Whether the queue of the edge is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.edge.is_full()
    }

    /// Number of queued frames that may be taken in this turn.
    #[must_use]
    pub fn queued(&self) -> usize {
        if self.has_later_base() { 0 } else { self.waiting().min(self.turn as usize) }
    }

    /// Whether a frame is queued, in this turn or beyond it.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waiting() > 0
    }

    fn waiting(&self) -> usize {
        self.edge.queued() + self.front.len()
    }

    /// Whether the writer has finished and every frame has been taken.
    #[must_use]
    pub fn ended(&self) -> bool {
        let is_cut = self.limit.is_some_and(|limit| limit.is_cut) && self.waiting() == 0;
        if is_cut || self.has_later_base() {
            return true;
        }
        // Read the flag first: a frame pushed before the end is then visible in the queue.
        self.edge.ended.load(Ordering::Acquire) && self.waiting() == 0
    }

    /// Timestamp of the newest frame that has left the edge.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Time base of the newest frame that has left the edge.
    #[must_use]
    pub fn base(&self) -> TimeBase {
        self.base
    }

    /// Timestamp of the last frame that the block in this slot, or one before it, has taken.
    #[must_use]
    pub fn last_taken(&self) -> Option<u64> {
        self.last_taken
    }

    /// Copies every frame that leaves the edge to `tee`; an earlier tee ends.
    pub fn set_tee(&mut self, tee: Option<Tee>) {
        self.tee = tee;
    }

    /// Whether a tee is set.
    #[must_use]
    pub fn has_tee(&self) -> bool {
        self.tee.is_some()
    }

    /// Number of frames that did not fit into the tee.
    #[must_use]
    pub fn tee_dropped(&self) -> u64 {
        self.tee.as_ref().map_or(0, |tee| tee.dropped().get())
    }

    /// Takes all queued frames.
    pub fn drain(&mut self) -> VecDeque<Arc<Frame>> {
        let mut all = std::mem::take(&mut self.front);
        self.note_held();
        while let Some(frame) = self.pop_edge() {
            all.push_back(frame);
        }
        all
    }

    /// Counts the frames that did not fit into the tee as dropped by this edge, for a block that has read the tee and
    /// continues without them here; returns their number.
    #[must_use]
    pub fn count_tee_dropped(&self) -> u64 {
        let dropped = self.tee_dropped();
        self.edge.dropped.fetch_add(dropped, Ordering::Relaxed);
        dropped
    }

    /// Puts frames back in front of the queued ones.
    pub fn put_back(&mut self, frames: VecDeque<Arc<Frame>>) {
        frames.into_iter().rev().for_each(|frame| self.front.push_front(frame));
        self.note_held();
    }

    /// Swaps the block of this edge with the candidate, which reads the tee through `candidate`: each continues with
    /// the first frame that it has not taken.
    pub fn swap(&mut self, candidate: &mut Self) {
        let theirs = candidate.drain();
        candidate.front = std::mem::replace(&mut self.front, theirs);
        self.note_held();
        candidate.note_held();
        std::mem::swap(&mut self.taken, &mut candidate.taken);
    }
}

impl Drop for FrameReader {
    /// Closes the edge, so that the writer continues when the reader is dropped for any reason.
    fn drop(&mut self) {
        self.edge.close();
    }
}
