//! The reading end of an edge.

use super::{Edge, TURN};
use crate::edge::Tee;
use crate::frame::Frame;
use crate::sync::Ordering;
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
}

impl FrameReader {
    /// The reading end of `edge`.
    pub fn new(edge: Arc<Edge>) -> Self {
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
        if self.turn == 0 {
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
        if self.front.is_empty() {
            let frame = self.pop_edge()?;
            self.front.push_back(frame);
            self.note_held();
        }
        self.front.front()
    }

    /// Number of queued frames that may be taken in this turn.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.waiting().min(self.turn as usize)
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
        // Read the flag first: a frame pushed before the end is then visible in the queue.
        self.edge.ended.load(Ordering::Acquire) && self.waiting() == 0
    }

    /// Timestamp of the newest frame that has left the edge.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        self.newest
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

    /// Puts frames back in front of the queued ones.
    pub fn put_back(&mut self, frames: VecDeque<Arc<Frame>>) {
        frames.into_iter().rev().for_each(|frame| self.front.push_front(frame));
        self.note_held();
    }

    /// Swaps the block of this edge with the candidate, which reads the tee through `companion`: each continues with
    /// the first frame that it has not taken.
    pub fn exchange(&mut self, companion: &mut Self) {
        let theirs = companion.drain();
        companion.front = std::mem::replace(&mut self.front, theirs);
        self.note_held();
        companion.note_held();
        std::mem::swap(&mut self.taken, &mut companion.taken);
    }
}

impl Drop for FrameReader {
    /// Closes the edge, so that the writer continues when the reader is dropped for any reason.
    fn drop(&mut self) {
        self.edge.close();
    }
}
