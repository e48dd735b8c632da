//! Edges: bounded queues of frames between one writer and one reader.
//!
//! Both ends are plain values. The FutureSDR adapter connects them to its ports, [`Harness`]
//! drives a single block with them, and the runtime drives the candidate of a swap with them on a thread.

mod harness;
mod reader;
mod tap;
mod tap_frame;
mod tee;
mod when_full;
mod writer;

pub use harness::Harness;
pub use reader::FrameReader;
pub use tap::{Decimation, Queued, TapQueue, TapWriter};
pub use tap_frame::TapFrame;
pub use tee::Tee;
pub use when_full::WhenFull;
pub use writer::FrameWriter;

use crate::frame::Frame;
use crate::kind::Waker;
use crate::steps::step;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, ConcurrentQueue, Ordering, fence};
use concurrent_queue::PushError;
use std::sync::Arc;

/// The queue of one edge.
pub struct Edge {
    queue: ConcurrentQueue<Arc<Frame>>,
    /// The writer pushes no more frames.
    ended: AtomicBool,
    /// The reader takes no more frames. Pushed frames are discarded, so that the end of one
    /// reader stalls neither the writer nor its other readers.
    closed: AtomicBool,
    popped: AtomicU64,
    /// Number of frames that the reader has removed from the queue and not yet taken.
    held: AtomicUsize,
    /// Number of frames that the reader had removed when the last call of `drop_until_read` was made, plus 1; 0 before.
    drops_at: AtomicU64,
    /// Number of frames dropped after that call.
    dropped_in_deadlock: AtomicU64,
    /// Index of the [`WhenFull`] in its list.
    when_full: AtomicUsize,
    /// Number of frames dropped because of `when_full`, and missed by the block that a swap went back to.
    dropped: AtomicU64,
    /// Largest number of queued frames since the last call of `take_peak`.
    peak: AtomicUsize,
    /// Woken by every push and by the end of the stream.
    pub reader: Waker,
    /// Woken by every pop: wakes coalesce, so waking only when the queue was full would miss some.
    pub writer: Waker,
}

impl Edge {
    /// An edge with a queue of `depth` frames, whose writer waits for room.
    #[must_use]
    pub fn new(depth: usize) -> Arc<Self> {
        Arc::new(Self {
            queue: ConcurrentQueue::bounded(depth.max(1)),
            ended: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            popped: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            drops_at: AtomicU64::new(0),
            dropped_in_deadlock: AtomicU64::new(0),
            when_full: AtomicUsize::new(WhenFull::Wait as usize),
            dropped: AtomicU64::new(0),
            peak: AtomicUsize::new(0),
            reader: Waker::default(),
            writer: Waker::default(),
        })
    }

    /// Number of queued frames.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Length of the queue in frames.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.queue.capacity().unwrap_or(usize::MAX)
    }

    /// Number of frames that the reader has taken so far.
    #[must_use]
    pub fn popped(&self) -> u64 {
        self.popped.load(Ordering::Relaxed)
    }

    /// Number of frames that the reader has not taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queued() + self.held.load(Ordering::Relaxed)
    }

    /// Whether the queue is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Drops frames for which the queue has no room, until the reader takes the next frame: the reader waits for frames
    /// of another input, which come after the ones without room here.
    pub fn drop_until_read(&self) {
        self.drops_at.store(self.popped() + 1, Ordering::Release);
        self.writer.wake();
    }

    /// Number of frames dropped because of [`drop_until_read`](Self::drop_until_read).
    #[must_use]
    pub fn dropped_in_deadlock(&self) -> u64 {
        self.dropped_in_deadlock.load(Ordering::Relaxed)
    }

    /// Action when the queue is full.
    #[must_use]
    pub fn when_full(&self) -> WhenFull {
        WhenFull::ALL[self.when_full.load(Ordering::Acquire)]
    }

    /// Sets the action when the queue is full, also while frames flow.
    pub fn set_when_full(&self, when_full: WhenFull) {
        self.when_full.store(when_full as usize, Ordering::Release);
        self.writer.wake();
    }

    /// Number of frames dropped because the queue was full, see [`when_full`](Self::when_full), or that of the old block
    /// in a swap that was rolled back, see [`FrameReader::count_tee_dropped`].
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn drops(&self) -> bool {
        self.drops_at.load(Ordering::Acquire) == self.popped() + 1
    }

    /// Whether the writer has ended the stream.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Largest number of queued frames since the last call.
    pub fn take_peak(&self) -> usize {
        self.peak.swap(self.queued(), Ordering::Relaxed)
    }

    /// Ends the stream; queued frames can still be read.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.reader.wake();
    }

    /// Closes the reading end; queued frames are discarded.
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Pairs with the fence in `push`: either this side sees the last frame, or the writer sees the flag.
        fence(Ordering::SeqCst);
        self.discard();
        self.writer.wake();
    }

    /// Whether the reading end is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether there is room for one more frame.
    pub fn has_room(&self) -> bool {
        step();
        !self.is_full() || self.when_full().drops() || self.is_closed() || self.drops()
    }

    fn discard(&self) {
        while self.queue.pop().is_ok() {}
    }

    /// Queues a frame that the queue did not take; returns `false` if it is full. A queue of one frame takes none while
    /// its reader takes the last one, although it is not full any more.
    fn push_beside_pop(&self, mut frame: PushError<Arc<Frame>>) -> bool {
        while !self.queue.is_full() {
            match self.queue.push(frame.into_inner()) {
                Ok(()) => return true,
                Err(again) => frame = again,
            }
            std::thread::yield_now();
        }
        false
    }

    /// Queues a frame and wakes the reader.
    pub fn push(&self, frame: Arc<Frame>) {
        if self.is_closed() {
            return;
        }
        if self.when_full() == WhenFull::DropOldest {
            // The displaced frame returns to its pool here, so the queue never has more frames than its length.
            if !matches!(self.queue.force_push(frame), Ok(None)) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        } else if let Err(frame) = self.queue.push(frame)
            && !self.push_beside_pop(frame)
        {
            // A writer that waits checks for room before, unless the edge dropped frames at that time.
            let is_deadlock =
                !self.when_full().drops() && self.drops_at.load(Ordering::Acquire) > 0;
            let dropped = if is_deadlock { &self.dropped_in_deadlock } else { &self.dropped };
            dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.peak.fetch_max(self.queued(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.is_closed() {
            self.discard();
        }
        self.reader.wake();
    }
}

/// Limit of the frames that one port moves in one call of `work` (a turn). Without it, a block that takes or pushes
/// as long as possible would never return while its neighbours keep up, and would see neither a stop nor an abort.
const TURN: u32 = 16;
