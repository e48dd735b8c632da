//! Edges: bounded queues of frames between one writer and one reader.
//!
//! Both ends are plain values. The FutureSDR adapter connects them to its ports; [`Harness`]
//! drives a single block with them by hand, a [companion](super::companion) on a thread.

pub use super::harness::Harness;

use super::tap::TapWriter;
use super::tee::Tee;
use crate::frame::{Frame, FrameMut, Pool};
use crate::kind::Waker;
use crate::retune::{Coming, ConfigChange};
use concurrent_queue::ConcurrentQueue;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

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
    pub(crate) reader: Waker,
    /// Woken by every pop: wakes coalesce, and waking only a full queue would lose some.
    pub(crate) writer: Waker,
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
    pub(super) fn take_peak(&self) -> usize {
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

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn has_room(&self) -> bool {
        !self.queue.is_full() || self.is_closed()
    }

    fn discard(&self) {
        while self.queue.pop().is_ok() {}
    }

    pub(super) fn push(&self, frame: Arc<Frame>) {
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

/// The reading end of an edge.
pub(crate) struct FrameReader {
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
    /// Timestamps of the frames that the block took in this turn.
    turn_times: [u64; TURN as usize],
    turn_taken: usize,
}

impl FrameReader {
    pub(crate) fn new(edge: Arc<Edge>) -> Self {
        let front = VecDeque::new();
        Self {
            edge,
            front,
            tee: None,
            turn: u32::MAX,
            taken: 0,
            newest: None,
            turn_times: [0; TURN as usize],
            turn_taken: 0,
        }
    }

    /// Begins a turn of limited length; without this call there is no limit.
    pub(crate) fn begin_turn(&mut self) {
        self.turn_taken = 0;
        self.turn = match &self.tee {
            Some(tee) if tee.may_hold_up() => TURN.min(tee.room() as u32),
            _ => TURN,
        };
    }

    /// The turn is over, there is more, and it may be taken.
    pub(crate) fn wants_another_turn(&self) -> bool {
        let is_held_up =
            || self.tee.as_ref().is_some_and(|tee| tee.may_hold_up() && tee.room() == 0);
        self.turn == 0 && self.waiting() > 0 && !is_held_up()
    }

    pub(crate) fn pop(&mut self) -> Option<Arc<Frame>> {
        if self.turn == 0 {
            return None;
        }
        let frame = self.front.pop_front().or_else(|| self.pop_edge())?;
        self.turn -= 1;
        self.taken += 1;
        if let Some(time) = self.turn_times.get_mut(self.turn_taken) {
            *time = frame.header().timestamp;
            self.turn_taken += 1;
        }
        Some(frame)
    }

    /// Timestamps of the frames that the block took in this turn.
    pub(crate) fn turn_times(&self) -> &[u64] {
        &self.turn_times[..self.turn_taken]
    }

    /// Frames that the block took so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Drops the next frame, if one waits.
    pub(crate) fn skip(&mut self) {
        let _ = self.front.pop_front().or_else(|| self.pop_edge());
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

    pub(crate) fn peek(&mut self) -> Option<&Arc<Frame>> {
        if self.turn == 0 {
            return None;
        }
        if self.front.is_empty() {
            let frame = self.pop_edge()?;
            self.front.push_back(frame);
        }
        self.front.front()
    }

    pub(crate) fn queued(&self) -> usize {
        self.waiting().min(self.turn as usize)
    }

    /// Whether a frame waits, in this turn or beyond it.
    pub(crate) fn waits(&self) -> bool {
        self.waiting() > 0
    }

    fn waiting(&self) -> usize {
        self.edge.queued() + self.front.len()
    }

    pub(crate) fn ended(&self) -> bool {
        // The flag first: a frame pushed before the end is then seen in the queue.
        self.edge.ended.load(Ordering::Acquire) && self.waiting() == 0
    }

    /// Timestamp of the newest frame that came off the edge.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Hands every frame that comes off the edge to `tee` too; the one before it ends.
    pub(crate) fn set_tee(&mut self, tee: Option<Tee>) {
        self.tee = tee;
    }

    /// Whether there is a tee.
    pub(crate) fn has_tee(&self) -> bool {
        self.tee.is_some()
    }

    /// Frames that did not fit into the tee.
    pub(crate) fn tee_dropped(&self) -> u64 {
        self.tee.as_ref().map_or(0, |tee| tee.dropped().get())
    }

    /// Everything that waits, taken.
    pub(crate) fn drain(&mut self) -> VecDeque<Arc<Frame>> {
        let mut all = std::mem::take(&mut self.front);
        while let Some(frame) = self.pop_edge() {
            all.push_back(frame);
        }
        all
    }

    /// Exchanges the blocks of this edge and of its tee, which `companion` reads: each goes on with
    /// the frame that it had not taken.
    pub(crate) fn exchange(&mut self, companion: &mut Self) {
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

/// The writing end of all edges of one output port.
pub(crate) struct FrameWriter {
    edges: Vec<Arc<Edge>>,
    /// `None` for a port that passes frames through.
    pool: Option<Arc<Pool>>,
    sequence: u64,
    config_id: u64,
    /// What becomes of `config_id`, in the order in which it was said.
    config_changes: Vec<ConfigChange>,
    /// Readers beside the flowgraph.
    pub(crate) taps: Vec<TapWriter>,
    /// Frames that may still be pushed in this turn.
    turn: u32,
    /// Timestamp of the last frame.
    last: Option<u64>,
    /// Frames up to this time went out before the block came here, and are dropped.
    after: Option<u64>,
    /// Frames that the block made, or began, before it came here; they go out as soon as there is room.
    made_before: VecDeque<Arc<Frame>>,
    /// What was pushed, if somebody compares.
    log: Option<PushLog>,
    /// Gets what is pushed.
    tee: Option<Tee>,
}

/// Timestamps and validity of the frames pushed, the oldest first.
pub(crate) type PushLog = VecDeque<(u64, Vec<u32>)>;

/// Entries of a [`PushLog`] that are kept.
const LOGGED: usize = 1024;

impl FrameWriter {
    pub(crate) fn new(edges: Vec<Arc<Edge>>, pool: Option<Arc<Pool>>, config_id: u64) -> Self {
        Self {
            edges,
            pool,
            sequence: 0,
            config_id,
            config_changes: Vec::new(),
            taps: Vec::new(),
            turn: u32::MAX,
            last: None,
            after: None,
            made_before: VecDeque::new(),
            log: None,
            tee: None,
        }
    }

    /// Begins a turn of limited length; without this call there is no limit.
    pub(crate) fn begin_turn(&mut self) {
        self.turn = TURN;
    }

    /// The turn is over, for no other reason than its length.
    pub(crate) fn wants_another_turn(&self) -> bool {
        self.turn == 0
    }

    pub(crate) fn take(&mut self) -> Option<FrameMut> {
        if !self.has_room() {
            return None;
        }
        self.pool.as_ref()?.take()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.turn > 0 && self.readers_have_room()
    }

    /// Whether every reader has room, whatever may be pushed in this turn.
    pub(crate) fn readers_have_room(&self) -> bool {
        self.edges.iter().all(|edge| edge.has_room())
    }

    /// Whether nothing can be pushed now, for want of room or of a buffer.
    pub(crate) fn is_held_up(&self) -> bool {
        let has_buffer = || self.pool.as_ref().is_none_or(|pool| pool.available() > 0);
        !self.readers_have_room() || !has_buffer()
    }

    /// Whether there were readers and all are gone; `None` if there never was one.
    pub(crate) fn is_abandoned(&self) -> Option<bool> {
        (!self.edges.is_empty()).then(|| self.edges.iter().all(|edge| edge.is_closed()))
    }

    /// Has frames carry another `config_id` from a moment on.
    pub(crate) fn expect(&mut self, change: ConfigChange) {
        self.config_changes.push(change);
    }

    /// Goes over to what frames that start at `timestamp` carry.
    fn change_config(&mut self, timestamp: u64) {
        let mut index = 0;
        while let Some(change) = self.config_changes.get(index) {
            match change.at(timestamp) {
                Coming::Now(config_id) => {
                    self.config_id = config_id;
                    // What was said before is contained in what was said later.
                    self.config_changes.drain(..=index);
                    index = 0;
                }
                Coming::Never => {
                    self.config_changes.remove(index);
                }
                Coming::Later => index += 1,
            }
        }
    }

    pub(crate) fn push(&mut self, frame: FrameMut) {
        if self.must_wait() {
            self.made_before.push_back(frame.freeze());
        } else {
            self.send(frame);
        }
    }

    pub(crate) fn pass(&mut self, frame: Arc<Frame>) {
        if self.must_wait() {
            self.made_before.push_back(frame);
        } else {
            self.send_on(frame);
        }
    }

    /// A block that came here may hold a frame that it took where there was room.
    fn must_wait(&self) -> bool {
        self.after.is_some() && !self.readers_have_room()
    }

    fn send(&mut self, mut frame: FrameMut) {
        if !self.config_changes.is_empty() {
            self.change_config(frame.header().timestamp);
        }
        let header = frame.header_mut();
        header.sequence = self.sequence;
        header.config_id = self.config_id;
        self.send_on(frame.freeze());
    }

    fn send_on(&mut self, frame: Arc<Frame>) {
        let header = frame.header();
        if self.after.is_some_and(|after| header.timestamp <= after) {
            return;
        }
        if let Some(log) = &mut self.log {
            if log.len() == LOGGED {
                log.pop_front();
            }
            log.push_back((header.timestamp, header.validity.clone()));
        }
        if let Some(tee) = &mut self.tee {
            tee.push(&frame);
        }
        self.last = Some(header.timestamp);
        self.sequence += 1;
        self.turn = self.turn.saturating_sub(1);
        self.taps.iter_mut().for_each(|tap| tap.offer(&frame));
        let Some((last, others)) = self.edges.split_last() else { return };
        for edge in others {
            edge.push(Arc::clone(&frame));
        }
        last.push(frame);
    }

    pub(crate) fn pushed(&self) -> u64 {
        self.sequence
    }

    /// Frames pushed, and those that a newcomer has brought.
    pub(crate) fn to_be_pushed(&self) -> u64 {
        self.sequence + self.made_before.len() as u64
    }

    /// Where the frames come from.
    pub(crate) fn pool(&self) -> Option<Arc<Pool>> {
        self.pool.clone()
    }

    /// Timestamp of the last frame.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last
    }

    /// Hands every frame that is pushed to `tee` too; the one before it ends.
    pub(crate) fn set_tee(&mut self, tee: Option<Tee>) {
        self.tee = tee;
    }

    /// Begins to log what is pushed, or ends it.
    pub(crate) fn set_log(&mut self, is_logged: bool) {
        self.log = is_logged.then(VecDeque::new);
    }

    /// What was pushed; empty if nobody compares.
    pub(crate) fn log(&mut self) -> &mut PushLog {
        self.log.get_or_insert_default()
    }

    /// Pushes what the block made before it came here, as far as there is room; `true` if nothing
    /// of it is left.
    pub(crate) fn push_made_before(&mut self) -> bool {
        while self.readers_have_room()
            && let Some(frame) = self.made_before.pop_front()
        {
            // A frame that the block passed through is shared, and keeps its number as always.
            match FrameMut::try_from(frame) {
                Ok(frame) => self.send(frame),
                Err(frame) => self.send_on(frame),
            }
        }
        self.made_before.is_empty()
    }

    /// Exchanges the blocks of this port and of `companion`, which has made the frames `made` on the
    /// side: numbers go on, and after the last frame comes the next one of the block that is new here.
    pub(crate) fn exchange(&mut self, companion: &mut Self, made: VecDeque<Arc<Frame>>) {
        std::mem::swap(&mut self.pool, &mut companion.pool);
        std::mem::swap(&mut self.config_id, &mut companion.config_id);
        // They concern the block that is here no more, or again.
        std::mem::swap(&mut self.config_changes, &mut companion.config_changes);
        self.after = self.last;
        companion.after = None;
        self.made_before = made;
        self.log = self.log.take().map(|_| VecDeque::new());
    }
}

impl Drop for FrameWriter {
    /// On whatever path the writer goes, its readers see the end of the stream.
    fn drop(&mut self) {
        self.edges.iter().for_each(|edge| edge.end());
    }
}
