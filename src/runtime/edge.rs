//! Edges: bounded queues of frames between one writer and one reader.
//!
//! Both ends are plain values. The FutureSDR adapter connects them to its ports; [`Harness`]
//! (below) drives a single block with them by hand.

use crate::block::{Block, BlockError, Input, Io, Next, Output};
use crate::frame::{Frame, FrameMut, HostAllocator, OutOfMemory, Pool};
use crate::kind::{Ports, Waker};
use crate::port::PortType;
use concurrent_queue::ConcurrentQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The queue of one edge.
pub struct Edge {
    queue: ConcurrentQueue<Arc<Frame>>,
    /// The writer pushes nothing more.
    ended: AtomicBool,
    /// The reader takes nothing more: what is pushed is swallowed, so that an early end of one
    /// reader stalls neither the writer nor its other readers.
    closed: AtomicBool,
    popped: AtomicU64,
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

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn has_room(&self) -> bool {
        !self.queue.is_full() || self.is_closed()
    }

    fn discard(&self) {
        while self.queue.pop().is_ok() {}
    }

    fn push(&self, frame: Arc<Frame>) {
        if self.is_closed() {
            return;
        }
        let refused = self.queue.push(frame).is_err();
        debug_assert!(!refused, "a writer asks for room before it pushes");
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
    peeked: Option<Arc<Frame>>,
    /// Frames that may still be taken in this turn; those beyond it are hidden.
    turn: u32,
    /// Frames that the block took.
    taken: u64,
}

impl FrameReader {
    pub(crate) fn new(edge: Arc<Edge>) -> Self {
        Self { edge, peeked: None, turn: u32::MAX, taken: 0 }
    }

    /// Begins a turn of limited length; without this call there is no limit.
    pub(crate) fn begin_turn(&mut self) {
        self.turn = TURN;
    }

    /// The turn is over and there is more.
    pub(crate) fn wants_another_turn(&self) -> bool {
        self.turn == 0 && self.waiting() > 0
    }

    pub(crate) fn pop(&mut self) -> Option<Arc<Frame>> {
        if self.turn == 0 {
            return None;
        }
        let frame = self.peeked.take().or_else(|| self.pop_edge())?;
        self.turn -= 1;
        self.taken += 1;
        Some(frame)
    }

    /// Frames that the block took so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Drops the next frame, if one waits.
    pub(crate) fn skip(&mut self) {
        let _ = self.peeked.take().or_else(|| self.pop_edge());
    }

    fn pop_edge(&self) -> Option<Arc<Frame>> {
        let frame = self.edge.queue.pop().ok()?;
        self.edge.popped.fetch_add(1, Ordering::Relaxed);
        self.edge.writer.wake();
        Some(frame)
    }

    pub(crate) fn peek(&mut self) -> Option<&Arc<Frame>> {
        if self.turn == 0 {
            return None;
        }
        if self.peeked.is_none() {
            self.peeked = self.pop_edge();
        }
        self.peeked.as_ref()
    }

    pub(crate) fn queued(&self) -> usize {
        self.waiting().min(self.turn as usize)
    }

    /// Whether a frame waits, in this turn or beyond it.
    pub(crate) fn waits(&self) -> bool {
        self.waiting() > 0
    }

    fn waiting(&self) -> usize {
        self.edge.queued() + usize::from(self.peeked.is_some())
    }

    pub(crate) fn ended(&self) -> bool {
        // The flag first: a frame pushed before the end is then seen in the queue.
        self.edge.ended.load(Ordering::Acquire) && self.waiting() == 0
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
    /// Frames that may still be pushed in this turn.
    turn: u32,
}

impl FrameWriter {
    pub(crate) fn new(edges: Vec<Arc<Edge>>, pool: Option<Arc<Pool>>, config_id: u64) -> Self {
        Self { edges, pool, sequence: 0, config_id, turn: u32::MAX }
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
        self.turn > 0 && self.edges.iter().all(|edge| edge.has_room())
    }

    /// Whether there were readers and all are gone; `None` if there never was one.
    pub(crate) fn is_abandoned(&self) -> Option<bool> {
        (!self.edges.is_empty()).then(|| self.edges.iter().all(|edge| edge.is_closed()))
    }

    pub(crate) fn push(&mut self, mut frame: FrameMut) {
        let header = frame.header_mut();
        header.sequence = self.sequence;
        header.config_id = self.config_id;
        self.pass(frame.freeze());
    }

    pub(crate) fn pass(&mut self, frame: Arc<Frame>) {
        self.sequence += 1;
        self.turn = self.turn.saturating_sub(1);
        let Some((last, others)) = self.edges.split_last() else { return };
        for edge in others {
            edge.push(Arc::clone(&frame));
        }
        last.push(frame);
    }

    pub(crate) fn pushed(&self) -> u64 {
        self.sequence
    }
}

impl Drop for FrameWriter {
    /// On whatever path the writer goes, its readers see the end of the stream.
    fn drop(&mut self) {
        self.edges.iter().for_each(|edge| edge.end());
    }
}

/// Drives one block by hand, without a runtime: for tests, conformance and benchmarks of blocks.
pub struct Harness {
    block: Box<dyn Block>,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    to_inputs: Vec<(Arc<Edge>, FrameWriter)>,
    from_outputs: Vec<FrameReader>,
    /// What [`Io::stopping`] says.
    pub stopping: bool,
    finished: bool,
}

impl Harness {
    /// `block` with these ports, and queues and pools of `depth` frames on each.
    pub fn new(block: Box<dyn Block>, ports: &Ports, depth: usize) -> Result<Self, OutOfMemory> {
        let pool = |port: &PortType| {
            // Besides the queue, frames may be held by the block and by the test.
            Pool::new(&HostAllocator, 2 * depth + 2, port.frame_bytes(), port.validity.units())
        };
        let mut harness = Self {
            block,
            inputs: Vec::new(),
            outputs: Vec::new(),
            to_inputs: Vec::new(),
            from_outputs: Vec::new(),
            stopping: false,
            finished: false,
        };
        for port in &ports.inputs {
            let edge = Edge::new(depth);
            harness.inputs.push(Input { reader: FrameReader::new(Arc::clone(&edge)) });
            let writer = FrameWriter::new(vec![Arc::clone(&edge)], Some(pool(port)?), 0);
            harness.to_inputs.push((edge, writer));
        }
        for port in &ports.outputs {
            let edge = Edge::new(depth);
            harness.from_outputs.push(FrameReader::new(Arc::clone(&edge)));
            let writer = FrameWriter::new(vec![edge], Some(pool(port)?), 0);
            harness.outputs.push(Output { writer });
        }
        Ok(harness)
    }

    /// A frame for input `input`, filled by `fill`, pushed; `false` if there was no room.
    pub fn send(&mut self, input: usize, fill: impl FnOnce(&mut FrameMut)) -> bool {
        let writer = &mut self.to_inputs[input].1;
        let Some(mut frame) = writer.take() else { return false };
        fill(&mut frame);
        writer.push(frame);
        true
    }

    /// Hands `frame`, the output of another block, to input `input`; `false` if there was no room.
    pub fn share(&mut self, input: usize, frame: Arc<Frame>) -> bool {
        let writer = &mut self.to_inputs[input].1;
        let has_room = writer.has_room();
        if has_room {
            writer.pass(frame);
        }
        has_room
    }

    /// Ends input `input`.
    pub fn end(&mut self, input: usize) {
        self.to_inputs[input].0.end();
    }

    /// Starts the block.
    pub async fn start(&mut self) -> Result<(), BlockError> {
        self.block.start().await
    }

    /// One call of the block's `work`.
    pub async fn step(&mut self) -> Result<Next, BlockError> {
        let mut io =
            Io { inputs: &mut self.inputs, outputs: &mut self.outputs, stopping: self.stopping };
        let next = self.block.work(&mut io).await?;
        self.finished |= next == Next::Finished;
        Ok(next)
    }

    /// Calls `work` until the block waits or has finished.
    pub async fn run(&mut self) -> Result<Next, BlockError> {
        loop {
            match self.step().await? {
                Next::Again => {}
                Next::After(time) => {
                    async_io::Timer::after(time).await;
                }
                next => return Ok(next),
            }
        }
    }

    /// The next frame of output `output`.
    pub fn receive(&mut self, output: usize) -> Option<Arc<Frame>> {
        self.from_outputs[output].pop()
    }

    /// Calls the block's `finish`.
    pub async fn finish(&mut self) -> Result<(), BlockError> {
        self.block.finish().await
    }

    /// Blocks the thread until `future` is done; for tests that are not async.
    pub fn block_on<T>(future: impl Future<Output = T>) -> T {
        async_io::block_on(future)
    }
}
