//! Probes: readers of an output that are added and removed while it runs, and never delay it.

use crate::frame::{Frame, Pool};
use crate::sync::{AtomicBool, AtomicU64, ConcurrentQueue, Ordering};
use event_listener::{Event, Listener};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The queue between an output and its probe. When it is full, its oldest frame is dropped.
pub struct TapQueue {
    frames: ConcurrentQueue<Queued>,
    dropped: AtomicU64,
    /// The writer pushes no more frames.
    ended: AtomicBool,
    /// The reader takes no more frames.
    closed: AtomicBool,
    /// Frames now come from another pool than the one with buffers for the probe.
    moved: AtomicBool,
    pushed: Event,
}

/// A frame of the queue.
pub struct Queued {
    /// Number of frames offered before this one: a step of more than 1 between frames taken shows where, and how
    /// many, were dropped.
    pub index: u64,
    /// The frame.
    pub frame: Arc<Frame>,
}

impl TapQueue {
    /// A queue of `depth` frames.
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

    /// Number of frames dropped because the reader was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Takes the next frame. It waits until `deadline`, the end of the stream, or a frame from another
    /// pool.
    pub fn pop(&self, deadline: Instant) -> Option<Queued> {
        loop {
            // Listen before checking, so that a frame in between is not missed.
            let listener = self.pushed.listen();
            let is_over = self.ended.load(Ordering::Acquire) || self.moved.load(Ordering::Acquire);
            let frame = self.frames.pop().ok();
            if frame.is_some() || is_over || listener.wait_deadline(deadline).is_none() {
                return frame;
            }
        }
    }

    /// Waits for a frame, the end of the stream, or a frame from another pool.
    pub async fn ready(&self) {
        loop {
            // Listen before checking, so that a frame in between is not missed.
            let listener = self.pushed.listen();
            let is_over = self.ended.load(Ordering::Acquire) || self.moved.load(Ordering::Acquire);
            if is_over || !self.frames.is_empty() {
                return;
            }
            listener.await;
        }
    }

    /// Whether the stream has ended and all frames were taken.
    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) && self.frames.is_empty()
    }

    /// Whether the frames now come from another pool; resets the flag.
    pub fn has_moved(&self) -> bool {
        self.moved.swap(false, Ordering::AcqRel)
    }

    /// Closes the queue and drops the queued frames.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        while self.frames.pop().is_ok() {}
    }
}

/// Decimation of the frames of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decimation {
    /// Every n-th frame is taken.
    pub every: u64,
    /// Least time between two frames.
    pub pause: Duration,
}

/// The writing end of a probe.
pub struct TapWriter {
    queue: Arc<TapQueue>,
    /// Pool with buffers for the probe; the probe holds no frame of another pool.
    pool: Arc<Pool>,
    decimation: Decimation,
    /// Number of frames of the output.
    seen: u64,
    /// Number of frames offered: those that the decimation selects.
    offered: u64,
    last: Option<Instant>,
}

impl TapWriter {
    /// The writing end of `queue`, for frames of `pool`.
    pub fn new(queue: Arc<TapQueue>, pool: Arc<Pool>, decimation: Decimation) -> Self {
        Self { queue, pool, decimation, seen: 0, offered: 0, last: None }
    }

    /// Whether this is the writing end of `queue`.
    pub fn writes(&self, queue: &Arc<TapQueue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    /// Takes frames of this pool from now on.
    pub fn set_pool(&mut self, pool: Arc<Pool>) {
        self.pool = pool;
    }

    /// Offers a frame: the probe gets it, if the decimation selects it.
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
        let index = self.offered;
        self.offered += 1;
        let left_out = if Arc::ptr_eq(frame.home(), &self.pool) {
            let offered = Queued { index, frame: Arc::clone(frame) };
            !matches!(queue.frames.force_push(offered), Ok(None))
        } else {
            queue.moved.store(true, Ordering::Release);
            true
        };
        queue.dropped.fetch_add(u64::from(left_out), Ordering::Relaxed);
        queue.pushed.notify(1);
    }
}

impl Drop for TapWriter {
    /// Ends the stream of the probe when the output is dropped for any reason.
    fn drop(&mut self) {
        self.queue.ended.store(true, Ordering::Release);
        self.queue.pushed.notify(1);
    }
}
