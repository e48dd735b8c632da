//! Probes: the data of an output, read while the flowgraph runs.
//!
//! A probe never delays the flowgraph. It has its own queue, which drops its oldest frame when full. The queue
//! shares frames and does not copy them; the pool of the frames gets as many additional buffers as the probe can
//! hold, so that the flowgraph never waits for a buffer that a probe holds. The reader of the probe copies frames
//! on its own thread and, for frames on a GPU, with its own CUDA stream.

use super::Control;
use crate::{Handle, Unanswered};
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::Span;
use fxgraph_core::edge::{Decimation, Queued, TapFrame, TapQueue, TapWriter};
use fxgraph_core::error::BlockError;
use fxgraph_core::error::with_causes;
use fxgraph_core::frame::{Frame, OutOfMemory, Pool, Storage};
use fxgraph_core::port::PortType;
use fxgraph_cuda::Readout;
use fxgraph_flowgraph::{self as flowgraph, BuildError, Plan, Rejected};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Decimation and queue length of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TapOptions {
    /// Decimation factor: one of every `every` frames; 0 and 1 mean all frames.
    pub every: u64,
    /// Maximum frame rate, in frames per second; `None` means no limit.
    pub most_per_second: Option<f64>,
    /// Length of the queue, in frames; a full queue drops its oldest frame.
    pub queue: usize,
}

impl Default for TapOptions {
    fn default() -> Self {
        Self { every: 1, most_per_second: None, queue: 2 }
    }
}

/// Longest queue of a probe in frames, which limits its memory.
const MOST_QUEUED: usize = 1024;
/// Frames that a probe may hold in addition to its queue: the one being read, and one that arrives while
/// the oldest is being dropped.
const HELD: usize = 2;
/// Time limit for a block to report the pool of its frames.
const FOLLOW: Duration = Duration::from_secs(5);
/// Longest pause between two frames of a probe, in seconds.
const MOST_SECONDS: f64 = 1e6;

/// Result of a read from a probe.
#[derive(Clone, Debug)]
pub enum Tapped {
    /// A frame.
    Frame(TapFrame),
    /// No frame within the time limit.
    Nothing,
    /// The output has ended, and the probe with it.
    Ended,
}

/// Reason why an output cannot be probed.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The output does not exist.
    #[error("{}", .0.problems.first().map_or("invalid probe", |first| &first.message))]
    Rejected(Rejected),
    /// The block did not answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// There is not enough memory for the frames that the probe may hold.
    #[error("not enough memory for the frames of the probe: {0}")]
    Memory(#[from] OutOfMemory),
    /// The device cannot be read.
    #[error("{}", with_causes(.0))]
    Device(BlockError),
}

/// A probe: a reader of an output of a running flowgraph. Dropping it removes the probe.
pub struct Tap {
    output: String,
    port: PortType,
    queue: Arc<TapQueue>,
    /// Number of frames offered up to the one taken last.
    offered: u64,
    dropped_before: u64,
    place: Place,
    lent: Option<Lent>,
    readout: Option<Readout>,
}

/// The output that a probe reads, and the pool of its frames.
struct Place {
    control: Control,
    /// Block and output that the probe reads.
    writer: (String, usize),
    /// Block and output whose pool the frames come from.
    origin: (String, usize),
    /// Number of buffers added to the pool.
    buffers: usize,
}

/// Buffers added to a pool; removed on drop.
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

    /// Adds buffers to the pool that the output's frames come from at present.
    fn lend(&self) -> Result<Lent, TapError> {
        let port = self.origin.1;
        let pool = self.run().pool(&self.origin.0, port);
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
    /// Returns the block and port of `output` in `plan`.
    pub(super) fn find_output(plan: &Plan, output: &str) -> Result<(usize, usize), TapError> {
        let named = flowgraph::Tap { text: output.to_owned(), span: Span::default() };
        plan.find(&named).map_err(|mut problem| {
            // The request is not from a file, so the diagnostic has no position.
            problem.span = None;
            TapError::Rejected(Rejected { sources: Sources::default(), problems: vec![problem] })
        })
    }

    /// Adds a probe to an output of the running flowgraph: `block`, or `block.port`, also inside templates
    /// (`f[0].fft.output`). The probe is added between two frames of the block; the call waits up to about
    /// `limit` for that.
    ///
    /// A probe never slows the flowgraph: it drops frames that its reader does not take in time. While the
    /// probe exists, a pool of the flowgraph has additional buffers.
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
        let lent = place.lend()?;
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
        let lent = Some(lent);
        let (offered, dropped_before) = (0, 0);
        Ok(Tap { output, port: carries, queue, offered, dropped_before, place, lent, readout })
    }
}

impl Tap {
    /// Name of the output: `block.port`.
    #[must_use]
    pub fn output(&self) -> &str {
        &self.output
    }

    /// Type of the frames: data type, axes, clock, frequencies.
    #[must_use]
    pub fn port(&self) -> &PortType {
        &self.port
    }

    /// Number of dropped frames, which the reader did not take in time.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Number of frames dropped between the last two frames that the reader took.
    #[must_use]
    pub fn dropped_before(&self) -> u64 {
        self.dropped_before
    }

    /// Waits, without blocking a thread, until [`Tap::next`] can return without waiting.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + use<> {
        let queue = Arc::clone(&self.queue);
        async move { queue.ready().await }
    }

    /// Returns the next frame; waits up to `timeout` for it.
    pub fn next(&mut self, timeout: Duration) -> Result<Tapped, TapError> {
        self.next_into(TapFrame::default(), timeout).map(|(tapped, _)| tapped)
    }

    /// Returns the next frame in the memory of `frame`, which is returned unused if there is none; waits up to
    /// `timeout` for a frame.
    pub fn next_into(
        &mut self,
        frame: TapFrame,
        timeout: Duration,
    ) -> Result<(Tapped, Option<TapFrame>), TapError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(Queued { index, frame: arrived }) = self.queue.pop(deadline) {
                self.dropped_before = index.saturating_sub(self.offered);
                self.offered = index + 1;
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
                let text = format!("the frames of `{}` have moved to a GPU", self.output);
                return Err(TapError::Device(BlockError::new(text)));
            }
        }
        Ok(into)
    }

    /// Adds the buffers to the new pool after a swap of the block that the frames come from.
    fn follow(&mut self) -> Result<(), TapError> {
        self.lent = None;
        let lent = self.place.lend()?;
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
        // Before the buffers are removed: so they are freed here, not when frames return to the pool.
        self.queue.close();
    }
}
