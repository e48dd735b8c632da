//! The traits of running blocks, and their ports.

use crate::changes::Change;
use crate::edge::{FrameReader, FrameWriter};
use crate::error::BlockError;
use crate::frame::{Frame, FrameMut, Header};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// Result of [`Block::work`]: when to call the block again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call when an input frame arrives, an output has room, a buffer returns to a pool, or an
    /// input ends.
    Wait,
    /// Call again immediately, after other blocks had a chance to run.
    Again,
    /// Call after this time, or earlier on one of the events of [`Wait`](Self::Wait).
    After(Duration),
    /// Do not call again: outputs end once their readers have taken the queued frames.
    Finished,
}

/// A running block.
///
/// `work` takes frames from the inputs, pushes frames to the outputs, and returns within 100 ms.
/// A block waits by returning [`Next::Wait`], never by blocking. When [`Input::ended`] is true for
/// all inputs, the block flushes the data that it holds and returns [`Next::Finished`]. A block
/// without inputs ends when [`Io::stopping`] is set. A block that awaits futures implements [`AsyncBlock`].
///
/// In steady state `work` allocates nothing except the `Arc` of each pushed frame.
///
/// # Examples
///
/// The sum of two streams, `f32` `[sample]` each, whose frames have equal timestamps:
///
/// ```
/// use fxgraph_core::{Block, BlockError, Io, Next};
///
/// struct Sum;
///
/// impl Block for Sum {
///     fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
///         if io.inputs.iter_mut().any(|input| input.peek().is_none()) {
///             let is_over = io.inputs.iter().any(|input| input.ended());
///             return Ok(if is_over { Next::Finished } else { Next::Wait });
///         }
///         // Room first: a frame that is taken from an input must have somewhere to go.
///         let Some(mut sum) = io.outputs[0].take() else { return Ok(Next::Wait) };
///         let [Some(a), Some(b)] = [0, 1].map(|input| io.inputs[input].pop()) else {
///             return Ok(Next::Wait);
///         };
///         let (header, samples) = sum.parts_mut::<f32>()?;
///         header.continue_from(a.header());
///         let counts = a.header().validity.iter().zip(&b.header().validity);
///         header.validity.iter_mut().zip(counts).for_each(|(to, (a, b))| *to = *a.min(b));
///         let pairs = a.as_slice::<f32>()?.iter().zip(b.as_slice::<f32>()?);
///         samples.iter_mut().zip(pairs).for_each(|(to, (a, b))| *to = a + b);
///         io.outputs[0].push(sum);
///         Ok(Next::Again)
///     }
/// }
/// # use fxgraph_core::{edge::Harness, Axis, Clock, Dtype, PortType, Ports, ValidityType};
/// # let validity = ValidityType::flags(vec![]);
/// # let axes = vec![Axis::new("sample", 2)];
/// # let port = PortType { dtype: Dtype::F32, axes, clock: Clock::new(1.0, 2), band: None, validity };
/// # let ports = Ports { inputs: vec![port.clone(), port.clone()], outputs: vec![port] };
/// # let mut harness = Harness::new(Box::new(Sum), &ports, 2)?;
/// # for (input, count) in [(0, 1), (1, 0)] {
/// #     harness.send(input, |frame| {
/// #         frame.fill_validity(count);
/// #         frame.as_mut_slice().unwrap().copy_from_slice(&[1.0_f32, 2.0]);
/// #     });
/// # }
/// # Harness::block_on(harness.run())?;
/// # let sum = harness.receive(0).unwrap();
/// # assert_eq!((sum.as_slice::<f32>()?, sum.header().validity[0]), (&[2.0, 4.0][..], 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Block: Send {
    /// Opens sockets, files and devices. It is called on the thread that will call `work`, after every block
    /// of the flowgraph is built and before any `work`. A block without inputs starts after all
    /// blocks with inputs have started.
    ///
    /// # Errors
    ///
    /// The flowgraph does not start, and the error says why: an address in use, a file that cannot be read.
    fn start(&mut self) -> Result<(), BlockError> {
        Ok(())
    }

    /// Moves frames.
    ///
    /// # Errors
    ///
    /// A fault of the block; `on_fault` of the flowgraph says what happens then. The frames that it held are dropped.
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError>;

    /// Schedules new values of live parameters. Called between two calls of `work`; the values apply from the change's
    /// effective timestamp. They are made by [`LiveKind::live_value`](crate::LiveKind::live_value).
    fn update(&mut self, _change: Change) -> Result<(), BlockError> {
        Err(BlockError::new("its parameters cannot change while it runs"))
    }

    /// Ends the block. It is called once, after the last `work`, also when this or another block failed.
    fn finish(&mut self) -> Result<(), BlockError> {
        Ok(())
    }

    /// The [`AsyncBlock`] that the runtime calls instead, if the block awaits: see [`Awaits`].
    fn awaits(&mut self) -> Option<&mut dyn AsyncBlock> {
        None
    }
}

/// A [`Block`] whose methods await, for example a network or a process. Each call allocates a future. A kind's
/// constructor returns it as [`Awaits`]`(block)`.
#[async_trait]
pub trait AsyncBlock: Send {
    /// See [`Block::start`].
    async fn start(&mut self) -> Result<(), BlockError> {
        Ok(())
    }

    /// See [`Block::work`].
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError>;

    /// See [`Block::update`].
    fn update(&mut self, _change: Change) -> Result<(), BlockError> {
        Err(BlockError::new("its parameters cannot change while it runs"))
    }

    /// See [`Block::finish`].
    async fn finish(&mut self) -> Result<(), BlockError> {
        Ok(())
    }
}

/// Wraps an [`AsyncBlock`] as a [`Block`]. The runtime calls the [`AsyncBlock`].
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

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.0.update(change)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        Err(BlockError::new(NO_FUTURE))
    }

    fn awaits(&mut self) -> Option<&mut dyn AsyncBlock> {
        Some(&mut self.0)
    }
}

/// Calls of a [`Block`] or of the [`AsyncBlock`] in it.
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
    /// Whether a draining stop was requested: sources finish, other blocks continue until their inputs end.
    pub stopping: bool,
}

/// The reading end of an edge.
pub struct Input {
    #[doc(hidden)]
    pub reader: FrameReader,
}

impl Input {
    /// Takes the next frame, if one is queued.
    pub fn pop(&mut self) -> Option<Arc<Frame>> {
        self.reader.pop()
    }

    /// Returns the next frame without taking it.
    pub fn peek(&mut self) -> Option<&Arc<Frame>> {
        self.reader.peek()
    }

    /// Number of queued frames.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.reader.queued()
    }

    /// Whether the writer has finished and every frame has been taken.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.reader.ended()
    }
}

/// The writing end of one or several edges, with the pool of its frames.
pub struct Output {
    #[doc(hidden)]
    pub writer: FrameWriter,
}

impl Output {
    /// Takes an unused frame, if every reader has room and a buffer is free.
    ///
    /// On `None` the block returns [`Next::Wait`]; it is woken when there is room and a buffer.
    pub fn take(&mut self) -> Option<FrameMut> {
        self.writer.take()
    }

    /// Whether every reader has room for one more frame.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.writer.has_room()
    }

    /// Pushes a frame from [`take`](Self::take) to all readers, with the next sequence number.
    pub fn push(&mut self, frame: FrameMut) {
        self.writer.push(frame);
    }

    /// Pushes a frame of an input, without a copy. The port must be declared
    /// with [`PortPool::PassThrough`](crate::kind::PortPool::PassThrough); check
    /// [`has_room`](Self::has_room) first. The frame keeps its sequence number.
    pub fn pass(&mut self, frame: Arc<Frame>) {
        self.writer.pass(frame);
    }
}

impl Header {
    /// Copies timestamp, time base, configuration and annotations from the header of an input frame.
    /// Validity is not copied, because its units may differ.
    pub fn continue_from(&mut self, input: &Self) {
        self.timestamp = input.timestamp;
        self.base = input.base;
        self.config_id = input.config_id;
        self.annotations.copy_from(&input.annotations);
    }
}
