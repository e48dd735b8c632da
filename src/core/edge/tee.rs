//! A second way for the frames of an edge.

use super::Edge;
use crate::counter::Counter;
use crate::frame::Frame;
use std::sync::Arc;

/// A second way for the frames of an edge, to a reader that must keep up or go without.
pub struct Tee {
    edge: Arc<Edge>,
    /// Frames before this time are left out: several inputs begin at one time.
    from: u64,
    /// Whoever writes here waits for room; else frames that find none are dropped.
    may_hold_up: bool,
    dropped: Counter,
}

impl Tee {
    /// A way over `edge` for the frames from timestamp `from` on.
    pub fn new(edge: Arc<Edge>, from: u64, may_hold_up: bool) -> Self {
        Self { edge, from, may_hold_up, dropped: Counter::default() }
    }

    /// Whoever writes here waits for room.
    #[must_use]
    pub fn may_hold_up(&self) -> bool {
        self.may_hold_up
    }

    /// Frames that found no room.
    #[must_use]
    pub fn dropped(&self) -> &Counter {
        &self.dropped
    }

    /// Frames that fit in now.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.edge.is_closed() { usize::MAX } else { self.edge.depth() - self.edge.queued() }
    }

    /// Hands `frame` on, or drops and counts it.
    pub fn push(&mut self, frame: &Arc<Frame>) {
        if frame.header().timestamp < self.from {
            return;
        }
        if self.edge.has_room() {
            self.edge.push(Arc::clone(frame));
        } else {
            self.dropped.add(1);
        }
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        self.edge.end();
    }
}
