//! A second reader for the frames of an edge.

use super::Edge;
use crate::counter::Counter;
use crate::frame::Frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The frames that a tee has dropped for lack of room, shared between the tee and its readers.
#[derive(Clone, Debug, Default)]
pub struct Dropped {
    frames: Counter,
    /// Timestamp of the newest one, plus 1; 0 before the first one.
    end: Arc<AtomicU64>,
}

impl Dropped {
    /// Number of dropped frames.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames.get()
    }

    /// Whether a frame with this timestamp or a later one was dropped.
    #[must_use]
    pub fn reaches(&self, timestamp: u64) -> bool {
        timestamp < self.end.load(Ordering::Acquire)
    }

    fn add(&self, timestamp: u64) {
        self.end.store(timestamp.saturating_add(1), Ordering::Release);
        self.frames.add(1);
    }
}

/// Copies the frames of an edge to a second reader: the candidate of a swap, or a shadow. Frames are dropped if that
/// reader falls behind, unless `may_hold_up` is set.
pub struct Tee {
    edge: Arc<Edge>,
    /// Frames before this timestamp are left out, so that several inputs begin at one timestamp.
    from: u64,
    /// Whether the reader of the edge waits for room in the tee; otherwise frames without room are dropped.
    may_hold_up: bool,
    dropped: Dropped,
}

impl Tee {
    /// A tee over `edge` for the frames from timestamp `from` on, which notes the frames without room in `dropped`.
    pub fn new(edge: Arc<Edge>, from: u64, may_hold_up: bool, dropped: Dropped) -> Self {
        Self { edge, from, may_hold_up, dropped }
    }

    /// Whether the reader of the edge waits for room in the tee.
    #[must_use]
    pub fn may_hold_up(&self) -> bool {
        self.may_hold_up
    }

    /// Number of frames dropped for lack of room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.frames()
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
            self.dropped.add(frame.header().timestamp);
        }
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        self.edge.end();
    }
}
