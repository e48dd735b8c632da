//! A second reader for the frames of an edge.

use super::Edge;
use crate::counter::Counter;
use crate::frame::Frame;
use std::sync::Arc;

/// Copies the frames of an edge to a second reader: the candidate of a swap, or a shadow. Frames are dropped if that
/// reader falls behind, unless `may_hold_up` is set.
pub struct Tee {
    edge: Arc<Edge>,
    /// Frames before this timestamp are left out, so that several inputs begin at one timestamp.
    from: u64,
    /// Whether the reader of the edge waits for room in the tee; otherwise frames without room are dropped.
    may_hold_up: bool,
    dropped: Counter,
}

impl Tee {
    /// A tee over `edge` for the frames from timestamp `from` on.
    pub fn new(edge: Arc<Edge>, from: u64, may_hold_up: bool) -> Self {
        Self { edge, from, may_hold_up, dropped: Counter::default() }
    }

    /// Whether the reader of the edge waits for room in the tee.
    #[must_use]
    pub fn may_hold_up(&self) -> bool {
        self.may_hold_up
    }

    /// Number of frames dropped for lack of room.
    #[must_use]
    pub fn dropped(&self) -> &Counter {
        &self.dropped
    }

    /// Number of frames that fit now.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.edge.is_closed() { usize::MAX } else { self.edge.depth() - self.edge.queued() }
    }

    /// Queues `frame`, or drops and counts it.
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
