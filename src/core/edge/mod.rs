//! Edges: bounded queues of frames between one writer and one reader.
//!
//! Both ends are plain values. The FutureSDR adapter connects them to its ports; [`Harness`]
//! drives a single block with them by hand, the runtime a companion on a thread.

mod harness;
mod reader;
mod tap;
mod tap_frame;
mod tee;
mod writer;

pub use harness::Harness;
pub use reader::FrameReader;
pub use tap::{Decimation, TapQueue, TapWriter};
pub use tap_frame::TapFrame;
pub use tee::Tee;
pub use writer::FrameWriter;

use crate::frame::Frame;
use crate::kind::Waker;
use crate::steps::step;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, ConcurrentQueue, Ordering, fence};
use std::sync::Arc;

/// The queue of one edge.
pub struct Edge {
    queue: ConcurrentQueue<Arc<Frame>>,
    /// The writer pushes nothing more.
    ended: AtomicBool,
    /// The reader takes nothing more: what is pushed is swallowed, so that an early end of one
    /// reader stalls neither the writer nor its other readers.
    closed: AtomicBool,
    popped: AtomicU64,
    /// Most frames that waited at once since somebody looked.
    peak: AtomicUsize,
    /// Woken by every push and by the end of the stream.
    pub reader: Waker,
    /// Woken by every pop: wakes coalesce, and waking only a full queue would lose some.
    pub writer: Waker,
}

impl Edge {
    /// An edge for `depth` frames.
    #[must_use]
    pub fn new(depth: usize) -> Arc<Self> {
        Arc::new(Self {
            queue: ConcurrentQueue::bounded(depth.max(1)),
            ended: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            popped: AtomicU64::new(0),
            peak: AtomicUsize::new(0),
            reader: Waker::default(),
            writer: Waker::default(),
        })
    }

    /// Frames that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Frames the queue holds at most.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.queue.capacity().unwrap_or(usize::MAX)
    }

    /// Frames that the reader took so far.
    #[must_use]
    pub fn popped(&self) -> u64 {
        self.popped.load(Ordering::Relaxed)
    }

    /// Most frames that waited at once since the last call.
    pub fn take_peak(&self) -> usize {
        self.peak.swap(self.queued(), Ordering::Relaxed)
    }

    /// No more frames will come; what is queued is still read.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.reader.wake();
    }

    /// The reader takes no more frames, not even those that wait.
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Pairs with the fence in `push`: of a last frame and the flag, one side sees the other's.
        fence(Ordering::SeqCst);
        self.discard();
        self.writer.wake();
    }

    /// The reader takes nothing more.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether one more frame fits in.
    pub fn has_room(&self) -> bool {
        step();
        !self.queue.is_full() || self.is_closed()
    }

    fn discard(&self) {
        while self.queue.pop().is_ok() {}
    }

    /// Queues a frame and wakes the reader.
    pub fn push(&self, frame: Arc<Frame>) {
        if self.is_closed() {
            return;
        }
        let refused = self.queue.push(frame).is_err();
        debug_assert!(!refused, "a writer asks for room before it pushes");
        self.peak.fetch_max(self.queued(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.is_closed() {
            self.discard();
        }
        self.reader.wake();
    }
}

/// Frames that one port moves in one call of `work`. A block that takes or pushes as long as it
/// can would never return where its neighbours keep up, and hear neither a stop nor an abort.
const TURN: u32 = 16;
