//! Taps: what an output carries, seen by a reader that comes and goes while it runs.
//!
//! A tap takes part in nothing: it has a queue of its own, whose oldest frame makes room when it is full. Frames
//! are shared, not copied, on their way into it; so that the flowgraph never waits for one that a
//! tap holds, the pool they come from is lent as many buffers as the tap can hold. The copy is made by
//! whoever reads the tap, on its own thread and, for frames on a device, by a stream of its own.

use super::Control;
use crate::{Handle, Unanswered};
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::Span;
use fxgraph_core::edge::{Decimation, TapFrame, TapQueue, TapWriter};
use fxgraph_core::error::BlockError;
use fxgraph_core::error::with_causes;
use fxgraph_core::frame::{Frame, OutOfMemory, Pool, Storage};
use fxgraph_core::port::PortType;
use fxgraph_cuda::Readout;
use fxgraph_flowgraph::{self as flowgraph, BuildError, Plan, Refused};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which frames a tap gets, and how many wait for its reader.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TapOptions {
    /// One out of so many frames; 0 and 1 stand for all of them.
    pub every: u64,
    /// So many frames in a second at most; `None` for as many as there are.
    pub most_per_second: Option<f64>,
    /// Frames that wait for the reader at most; when they are more the oldest is left out.
    pub queue: usize,
}

impl Default for TapOptions {
    fn default() -> Self {
        Self { every: 1, most_per_second: None, queue: 2 }
    }
}

/// Frames that a tap waits with at most, whatever its options say: they take memory.
const MOST_QUEUED: usize = 1024;
/// Frames that a tap may hold besides those that wait: the one being read, and one that arrives while
/// the oldest leaves.
const HELD: usize = 2;
/// How long a block may take to say where its frames come from.
const FOLLOW: Duration = Duration::from_secs(5);
/// A pause between frames is at most this long.
const MOST_SECONDS: f64 = 1e6;

/// What a tap has.
#[derive(Clone, Debug)]
pub enum Tapped {
    /// A frame.
    Frame(TapFrame),
    /// Nothing within the time.
    Nothing,
    /// The output has ended, and so has the tap.
    Ended,
}

/// Why an output cannot be tapped.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// There is no such output.
    #[error("{}", .0.problems.first().map_or("the tap was refused", |first| &first.message))]
    Refused(Refused),
    /// The block did not answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// There is no memory for the frames that the tap may hold.
    #[error("no memory for the frames of a tap: {0}")]
    Memory(#[from] OutOfMemory),
    /// The device cannot be read.
    #[error("{}", with_causes(.0))]
    Device(BlockError),
}

/// A reader of a running output. Dropping it ends it.
pub struct Tap {
    output: String,
    port: PortType,
    queue: Arc<TapQueue>,
    place: Place,
    lent: Option<Lent>,
    readout: Option<Readout>,
}

/// Where an output is.
struct Place {
    control: Control,
    /// Block and output that are tapped, and those whose pool the frames come from.
    writer: (String, usize),
    origin: (String, usize),
    /// Buffers that the pool is lent.
    buffers: usize,
}

/// Buffers that a pool has for as long as there is a tap.
struct Lent {
    pool: Arc<Pool>,
    buffers: usize,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.shrink(self.buffers);
    }
}

impl Place {
    fn run(&self) -> Handle {
        self.control.0.run()
    }

    /// Lends buffers to the pool that the output's frames come from now.
    fn lend(&self, deadline: Instant) -> Result<Lent, TapError> {
        let port = self.origin.1;
        let limit = deadline.saturating_duration_since(Instant::now());
        let pool = self.run().ask(&self.origin.0, limit, move |hosted| {
            hosted.outputs.get(port).and_then(|output| output.writer.pool())
        })?;
        let plan = self.control.plan();
        let (Some(pool), Some(block)) = (pool, plan.block(&self.origin.0)) else {
            return Err(Unanswered::Ended(self.origin.0.clone()).into());
        };
        let allocator = plan.allocator((block, port)).map_err(|error| match error {
            BuildError::Block { source, .. } => TapError::Device(source),
            BuildError::Memory { source, .. } => TapError::Memory(source),
        })?;
        pool.grow(allocator.as_ref(), self.buffers)?;
        Ok(Lent { pool, buffers: self.buffers })
    }
}

impl Control {
    /// Block and port of `output` in `plan`.
    pub(super) fn find_output(plan: &Plan, output: &str) -> Result<(usize, usize), TapError> {
        let named = flowgraph::Tap { text: output.to_owned(), span: Span::default() };
        plan.find(&named).map_err(|mut problem| {
            // It was said where no file is.
            problem.span = None;
            TapError::Refused(Refused { sources: Sources::default(), problems: vec![problem] })
        })
    }

    /// A reader of an output of the running flowgraph: `block`, or `block.port`, also inside templates
    /// (`f[0].fft.output`). It is there from the next frame on, between two frames of the block; the call
    /// waits up to about `limit` for that.
    ///
    /// A tap never slows the flowgraph: what its reader does not take in time is left out of it. For as
    /// long as it is there the flowgraph's pools are some frames larger.
    pub fn tap(&self, output: &str, options: TapOptions, limit: Duration) -> Result<Tap, TapError> {
        let deadline = Instant::now() + limit;
        let plan = self.plan();
        let (block, port) = Self::find_output(&plan, output)?;
        let (origin, origin_port) = plan.origin((block, port));
        let depth = options.queue.clamp(1, MOST_QUEUED);
        let place = Place {
            control: self.clone(),
            writer: (plan.blocks[block].name.clone(), port),
            origin: (plan.blocks[origin].name.clone(), origin_port),
            buffers: depth + HELD,
        };
        let carries = plan.blocks[block].ports.outputs[port].clone();
        let device = plan.frames_device(origin).map_err(TapError::Device)?;
        let bytes = carries.frame_bytes();
        let readout = device.map(|device| Readout::new(&device, bytes)).transpose();
        let readout = readout.map_err(|error| TapError::Device(error.into()))?;
        let lent = place.lend(deadline)?;
        let queue = TapQueue::new(depth);
        let most_per_second = options.most_per_second.filter(|most| *most > 0.0);
        let pause_seconds = most_per_second.map_or(0.0, |most| (1.0 / most).min(MOST_SECONDS));
        let decimation = Decimation {
            every: options.every.max(1),
            pause: Duration::from_secs_f64(pause_seconds),
        };
        let writer = TapWriter::new(Arc::clone(&queue), Arc::clone(&lent.pool), decimation);
        let left = deadline.saturating_duration_since(Instant::now());
        self.0.run().ask(&place.writer.0, left, move |hosted| {
            if let Some(output) = hosted.outputs.get_mut(port) {
                output.writer.taps.push(writer);
            }
        })?;
        let output = format!("{}.{}", place.writer.0, plan.blocks[block].output_names[port]);
        Ok(Tap { output, port: carries, queue, place, lent: Some(lent), readout })
    }
}

impl Tap {
    /// What is tapped: `block.port`.
    #[must_use]
    pub fn output(&self) -> &str {
        &self.output
    }

    /// What its frames are: data type, axes, clock, frequencies.
    #[must_use]
    pub fn port(&self) -> &PortType {
        &self.port
    }

    /// Frames that it was to get and that nobody took in time.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Waits, without a thread, until [`Tap::next`] has something to say at once.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + use<> {
        let queue = Arc::clone(&self.queue);
        async move { queue.ready().await }
    }

    /// The next frame; waits up to `timeout` for one.
    pub fn next(&mut self, timeout: Duration) -> Result<Tapped, TapError> {
        self.next_into(TapFrame::default(), timeout).map(|(tapped, _)| tapped)
    }

    /// The next frame in the memory of `frame`, which comes back if there is none; waits up to `timeout` for
    /// one.
    pub fn next_into(
        &mut self,
        frame: TapFrame,
        timeout: Duration,
    ) -> Result<(Tapped, Option<TapFrame>), TapError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(arrived) = self.queue.pop(deadline) {
                return Ok((Tapped::Frame(self.copy(&arrived, frame)?), None));
            }
            if self.queue.is_over() {
                return Ok((Tapped::Ended, Some(frame)));
            }
            if self.queue.has_moved() {
                match self.follow() {
                    Err(TapError::Unanswered(Unanswered::Ended(_))) => {
                        return Ok((Tapped::Ended, Some(frame)));
                    }
                    followed => followed?,
                }
            } else if Instant::now() >= deadline {
                return Ok((Tapped::Nothing, Some(frame)));
            }
        }
    }

    fn copy(&mut self, frame: &Frame, mut into: TapFrame) -> Result<TapFrame, TapError> {
        match (frame.storage(), &mut self.readout) {
            (Storage::Host(_), _) => {
                into.copy_from(frame).map_err(|error| TapError::Device(error.into()))?;
            }
            (Storage::Device(_), Some(readout)) => {
                into.header.copy_from(frame.header());
                readout.read(frame, &mut into.payload).map_err(TapError::Device)?;
            }
            (Storage::Device(_), None) => {
                let text = format!("the frames of {} have moved to a device", self.output);
                return Err(TapError::Device(BlockError::new(text)));
            }
        }
        Ok(into)
    }

    /// Lends buffers to the pool that frames come from after another block took the place of the
    /// one that made them.
    fn follow(&mut self) -> Result<(), TapError> {
        self.lent = None;
        let lent = self.place.lend(Instant::now() + FOLLOW)?;
        let (pool, queue) = (Arc::clone(&lent.pool), Arc::clone(&self.queue));
        let (block, port) = self.place.writer.clone();
        self.place.run().ask(&block, FOLLOW, move |hosted| {
            let taps = hosted.outputs.get_mut(port).map(|output| &mut output.writer.taps);
            let own = taps.and_then(|taps| taps.iter_mut().find(|tap| tap.writes(&queue)));
            if let Some(own) = own {
                own.set_pool(pool);
            }
            queue.has_moved();
        })?;
        self.lent = Some(lent);
        Ok(())
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let queue = Arc::clone(&self.queue);
        let (block, port) = self.place.writer.clone();
        self.place.run().tell_block(&block, move |hosted| {
            if let Some(output) = hosted.outputs.get_mut(port) {
                output.writer.taps.retain(|tap| !tap.writes(&queue));
            }
        });
        // Before the buffers go: they are freed here rather than as frames come home.
        self.queue.close();
    }
}
