//! Readers of an output that come and go while it runs, and never hold it up.

use crate::frame::{Frame, Pool};
use crate::sync::{AtomicBool, AtomicU64, ConcurrentQueue, Ordering};
use event_listener::{Event, Listener};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The queue between an output and its tap. When it is full its oldest frame makes room.
pub struct TapQueue {
    frames: ConcurrentQueue<Arc<Frame>>,
    dropped: AtomicU64,
    /// The writer pushes nothing more.
    ended: AtomicBool,
    /// The reader takes nothing more.
    closed: AtomicBool,
    /// Frames come from another pool than the one that was lent buffers.
    moved: AtomicBool,
    pushed: Event,
}

impl TapQueue {
    /// A queue for `depth` frames.
    #[must_use]
    pub fn new(depth: usize) -> Arc<Self> {
        Arc::new(Self {
            frames: ConcurrentQueue::bounded(depth.max(1)),
            dropped: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            moved: AtomicBool::new(false),
            pushed: Event::new(),
        })
    }

    /// Frames that it left out because nobody took them.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The next frame, waiting for it up to `deadline`, to the end or until frames come from another
    /// pool.
    pub fn pop(&self, deadline: Instant) -> Option<Arc<Frame>> {
        loop {
            // Listening first: a frame in between is heard of.
            let listener = self.pushed.listen();
            let is_over = self.ended.load(Ordering::Acquire) || self.moved.load(Ordering::Acquire);
            let frame = self.frames.pop().ok();
            if frame.is_some() || is_over || listener.wait_deadline(deadline).is_none() {
                return frame;
            }
        }
    }

    /// Waits until there is a frame, the end, or frames of another pool.
    pub async fn ready(&self) {
        loop {
            // Listening first: a frame in between is heard of.
            let listener = self.pushed.listen();
            let is_over = self.ended.load(Ordering::Acquire) || self.moved.load(Ordering::Acquire);
            if is_over || !self.frames.is_empty() {
                return;
            }
            listener.await;
        }
    }

    /// Nothing comes any more, and everything was taken.
    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) && self.frames.is_empty()
    }

    /// Whether the frames come from another pool; asked once each time.
    pub fn has_moved(&self) -> bool {
        self.moved.swap(false, Ordering::AcqRel)
    }

    /// Gives back the frames that wait, and takes no more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        while self.frames.pop().is_ok() {}
    }
}

/// Which frames a tap gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decimation {
    /// One out of so many frames.
    pub every: u64,
    /// Time between two of them at least.
    pub pause: Duration,
}

/// The end of a tap that an output writes.
pub struct TapWriter {
    queue: Arc<TapQueue>,
    /// What was lent buffers for the tap: it holds no frame of another one.
    pool: Arc<Pool>,
    decimation: Decimation,
    /// Frames that went by.
    seen: u64,
    last: Option<Instant>,
}

impl TapWriter {
    /// The writing end of `queue`, for frames of `pool`.
    pub fn new(queue: Arc<TapQueue>, pool: Arc<Pool>, decimation: Decimation) -> Self {
        Self { queue, pool, decimation, seen: 0, last: None }
    }

    /// Whether this is the end of `queue`.
    pub fn writes(&self, queue: &Arc<TapQueue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    /// From here on frames of this pool are taken.
    pub fn set_pool(&mut self, pool: Arc<Pool>) {
        self.pool = pool;
    }

    /// A frame goes by: the tap gets it too if it wants it.
    pub fn offer(&mut self, frame: &Arc<Frame>) {
        let is_wanted = self.seen.is_multiple_of(self.decimation.every);
        self.seen += 1;
        let is_early = || self.last.is_some_and(|last| last.elapsed() < self.decimation.pause);
        let queue = &self.queue;
        if !is_wanted || queue.closed.load(Ordering::Acquire) || is_early() {
            return;
        }
        if !self.decimation.pause.is_zero() {
            self.last = Some(Instant::now());
        }
        let left_out = if Arc::ptr_eq(frame.home(), &self.pool) {
            !matches!(queue.frames.force_push(Arc::clone(frame)), Ok(None))
        } else {
            queue.moved.store(true, Ordering::Release);
            true
        };
        queue.dropped.fetch_add(u64::from(left_out), Ordering::Relaxed);
        queue.pushed.notify(1);
    }
}

impl Drop for TapWriter {
    /// On whatever path the output goes, its tap sees the end of the stream.
    fn drop(&mut self) {
        self.queue.ended.store(true, Ordering::Release);
        self.queue.pushed.notify(1);
    }
}
