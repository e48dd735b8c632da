//! The end of an edge that a block takes frames from.

use super::{Edge, TURN};
use crate::edge::Tee;
use crate::frame::Frame;
use crate::sync::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

/// The reading end of an edge.
pub struct FrameReader {
    edge: Arc<Edge>,
    /// Frames that are off the edge and not taken: one that the block has looked at, and what a
    /// block that came here in exchange for another had not taken where it was.
    front: VecDeque<Arc<Frame>>,
    /// Gets what comes off the edge.
    tee: Option<Tee>,
    /// Frames that may still be taken in this turn; those beyond it are hidden.
    turn: u32,
    /// Frames that the block took.
    taken: u64,
    /// Timestamp of the newest frame that came off the edge.
    newest: Option<u64>,
    /// Timestamp of the last frame that any block took here.
    last_taken: Option<u64>,
    /// Timestamps of the frames that the block took in this turn.
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

    /// The turn is over, there is more, and it may be taken.
    #[must_use]
    pub fn wants_another_turn(&self) -> bool {
        let is_held_up =
            || self.tee.as_ref().is_some_and(|tee| tee.may_hold_up() && tee.room() == 0);
        self.turn == 0 && self.waiting() > 0 && !is_held_up()
    }

    /// The next frame of this turn, if one waits.
    pub fn pop(&mut self) -> Option<Arc<Frame>> {
        if self.turn == 0 {
            return None;
        }
        let frame = self.front.pop_front().or_else(|| self.pop_edge())?;
        self.turn -= 1;
        self.taken += 1;
        self.last_taken = Some(frame.header().timestamp);
        if let Some(time) = self.turn_times.get_mut(self.turn_taken) {
            *time = frame.header().timestamp;
            self.turn_taken += 1;
        }
        Some(frame)
    }

    /// Timestamps of the frames that the block took in this turn.
    #[must_use]
    pub fn turn_times(&self) -> &[u64] {
        &self.turn_times[..self.turn_taken]
    }

    /// Frames that the block took so far.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Drops the next frame, if one waits.
    pub fn skip(&mut self) {
        if let Some(frame) = self.front.pop_front().or_else(|| self.pop_edge()) {
            self.last_taken = Some(frame.header().timestamp);
        }
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

    /// A look at the next frame of this turn.
    pub fn peek(&mut self) -> Option<&Arc<Frame>> {
        if self.turn == 0 {
            return None;
        }
        if self.front.is_empty() {
            let frame = self.pop_edge()?;
            self.front.push_back(frame);
        }
        self.front.front()
    }

    /// Frames that wait and may be taken in this turn.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.waiting().min(self.turn as usize)
    }

    /// Whether a frame waits, in this turn or beyond it.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waiting() > 0
    }

    fn waiting(&self) -> usize {
        self.edge.queued() + self.front.len()
    }

    /// The writer has finished and every frame has been taken.
    #[must_use]
    pub fn ended(&self) -> bool {
        // The flag first: a frame pushed before the end is then seen in the queue.
        self.edge.ended.load(Ordering::Acquire) && self.waiting() == 0
    }

    /// Timestamp of the newest frame that came off the edge.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Timestamp of the last frame that any block took here, the one that is here or one before it.
    #[must_use]
    pub fn last_taken(&self) -> Option<u64> {
        self.last_taken
    }

    /// Hands every frame that comes off the edge to `tee` too; the one before it ends.
    pub fn set_tee(&mut self, tee: Option<Tee>) {
        self.tee = tee;
    }

    /// Whether there is a tee.
    #[must_use]
    pub fn has_tee(&self) -> bool {
        self.tee.is_some()
    }

    /// Frames that did not fit into the tee.
    #[must_use]
    pub fn tee_dropped(&self) -> u64 {
        self.tee.as_ref().map_or(0, |tee| tee.dropped().get())
    }

    /// Everything that waits, taken.
    pub fn drain(&mut self) -> VecDeque<Arc<Frame>> {
        let mut all = std::mem::take(&mut self.front);
        while let Some(frame) = self.pop_edge() {
            all.push_back(frame);
        }
        all
    }

    /// Frames that are taken before what waits.
    pub fn put_back(&mut self, frames: VecDeque<Arc<Frame>>) {
        frames.into_iter().rev().for_each(|frame| self.front.push_front(frame));
    }

    /// Exchanges the blocks of this edge and of its tee, which `companion` reads: each goes on with
    /// the frame that it had not taken.
    pub fn exchange(&mut self, companion: &mut Self) {
        let theirs = companion.drain();
        companion.front = std::mem::replace(&mut self.front, theirs);
        std::mem::swap(&mut self.taken, &mut companion.taken);
    }
}

impl Drop for FrameReader {
    /// On whatever path the reader goes, its writer goes on.
    fn drop(&mut self) {
        self.edge.close();
    }
}
