//! What a block does while the flowgraph runs.

use crate::edge::{FrameReader, FrameWriter};
use crate::error::BlockError;
use crate::frame::{Frame, FrameMut, Header};
use crate::retune::Change;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// What a block wants after a call of [`Block::work`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To be called when an input frame arrives, an output gets room, a buffer comes home or an
    /// input ends.
    Wait,
    /// To be called again at once (after others had a chance to run).
    Again,
    /// To be called after this time, or earlier if something happens.
    After(Duration),
    /// Nothing more: outputs end once their readers have taken what is queued.
    Finished,
}

/// A running block.
///
/// `work` takes frames from its inputs, pushes frames to its outputs, and returns within 100 ms;
/// waiting is done by returning [`Next::Wait`], never by blocking. A block that finds
/// [`Input::ended`] on all inputs flushes what it holds and returns [`Next::Finished`]. A block
/// without inputs ends when [`Io::stopping`] says so. One that awaits futures implements [`AsyncBlock`].
///
/// Once frames flow, `work` allocates nothing of its own: the `Arc` of each frame that is pushed is all there is.
pub trait Block: Send {
    /// Opens sockets, files and devices, on the thread that will call `work`, after every block
    /// of the flowgraph is built and before any `work`. A block without inputs starts after all
    /// blocks with inputs have started.
    fn start(&mut self) -> Result<(), BlockError> {
        Ok(())
    }

    /// Moves frames.
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError>;

    /// Takes a change of its live parameters, to be gone over to when its moment comes; called between
    /// two calls of `work`. The values are those of [`LiveKind::live_value`](crate::LiveKind::live_value).
    fn retune(&mut self, _change: Change) -> Result<(), BlockError> {
        Err(BlockError::new("its parameters cannot change while it runs"))
    }

    /// Called once at the end, after the last `work`, also when this or another block failed.
    fn finish(&mut self) -> Result<(), BlockError> {
        Ok(())
    }

    /// The block that is to be called instead of this one, if it awaits: see [`Awaits`].
    fn awaits(&mut self) -> Option<&mut dyn AsyncBlock> {
        None
    }
}

/// A [`Block`] whose methods await: a network, a process, a block of FutureSDR. Each call costs an allocation, for its
/// future. A kind's constructor returns it as [`Awaits`]`(block)`.
#[async_trait]
pub trait AsyncBlock: Send {
    /// See [`Block::start`].
    async fn start(&mut self) -> Result<(), BlockError> {
        Ok(())
    }

    /// See [`Block::work`].
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError>;

    /// See [`Block::retune`].
    fn retune(&mut self, _change: Change) -> Result<(), BlockError> {
        Err(BlockError::new("its parameters cannot change while it runs"))
    }

    /// See [`Block::finish`].
    async fn finish(&mut self) -> Result<(), BlockError> {
        Ok(())
    }
}

/// Makes a [`Block`] of an [`AsyncBlock`]. The runtime calls the latter.
pub struct Awaits<B>(pub B);

/// Error of a call that ignores [`Block::awaits`].
const NO_FUTURE: &str = "the block awaits and was called without a future";

impl<B: AsyncBlock> Block for Awaits<B> {
    fn start(&mut self) -> Result<(), BlockError> {
        Err(BlockError::new(NO_FUTURE))
    }

    fn work(&mut self, _: &mut Io<'_>) -> Result<Next, BlockError> {
        Err(BlockError::new(NO_FUTURE))
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        self.0.retune(change)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        Err(BlockError::new(NO_FUTURE))
    }

    fn awaits(&mut self) -> Option<&mut dyn AsyncBlock> {
        Some(&mut self.0)
    }
}

/// Calls of a block of either sort.
impl dyn Block + '_ {
    /// See [`Block::start`].
    pub async fn call_start(&mut self) -> Result<(), BlockError> {
        match self.awaits() {
            Some(block) => block.start().await,
            None => self.start(),
        }
    }

    /// See [`Block::work`].
    pub async fn call_work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        match self.awaits() {
            Some(block) => block.work(io).await,
            None => self.work(io),
        }
    }

    /// See [`Block::finish`].
    pub async fn call_finish(&mut self) -> Result<(), BlockError> {
        match self.awaits() {
            Some(block) => block.finish().await,
            None => self.finish(),
        }
    }
}

/// The ports of a running block, in the order of its declared ports.
pub struct Io<'a> {
    /// Inputs.
    pub inputs: &'a mut [Input],
    /// Outputs.
    pub outputs: &'a mut [Output],
    /// The user asked for a draining stop: sources finish, others go on until their inputs end.
    pub stopping: bool,
}

/// The reading end of an edge.
pub struct Input {
    #[doc(hidden)]
    pub reader: FrameReader,
}

impl Input {
    /// The next frame, if one waits.
    pub fn pop(&mut self) -> Option<Arc<Frame>> {
        self.reader.pop()
    }

    /// A look at the next frame without taking it.
    pub fn peek(&mut self) -> Option<&Arc<Frame>> {
        self.reader.peek()
    }

    /// Frames that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.reader.queued()
    }

    /// The writer has finished and every frame has been taken.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.reader.ended()
    }
}

/// The writing end of one or several edges, with the pool its frames come from.
pub struct Output {
    #[doc(hidden)]
    pub writer: FrameWriter,
}

impl Output {
    /// An unused frame, if every reader has room and a buffer is free.
    ///
    /// `None` asks for [`Next::Wait`]: the block is woken when that changes.
    pub fn take(&mut self) -> Option<FrameMut> {
        self.writer.take()
    }

    /// Whether every reader has room for one more frame.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.writer.has_room()
    }

    /// Hands a frame from [`take`](Self::take) to all readers, with the next sequence number.
    pub fn push(&mut self, frame: FrameMut) {
        self.writer.push(frame);
    }

    /// Hands on a frame that came from an input, without a copy. The port must be declared
    /// with [`PortPool::PassThrough`](crate::kind::PortPool::PassThrough); ask
    /// [`has_room`](Self::has_room) first. The frame keeps its sequence number.
    pub fn pass(&mut self, frame: Arc<Frame>) {
        self.writer.pass(frame);
    }
}

impl Header {
    /// Takes over timestamp, configuration and annotations of an input frame's header.
    /// Validity is left alone, its units may differ.
    pub fn continue_from(&mut self, input: &Self) {
        self.timestamp = input.timestamp;
        self.config_id = input.config_id;
        self.annotations.copy_from(&input.annotations);
    }
}
