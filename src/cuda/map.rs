//! GPU blocks with one output frame per input frame.

use super::{Device, Pipeline, frame_address};
use fxgraph_core::changes::Change;
use fxgraph_core::{Block, BlockError, Env, Frame, FrameMut, Header, Io, Next};
use std::sync::Arc;

/// Work of a GPU block with one output frame per input frame, as [`fxgraph_core::Map`] on the CPU. [`GpuMapped`] is the
/// block.
///
/// # Shapes
///
/// [`GpuJob::from`] and [`GpuJob::to`] are device addresses of payloads, row-major in the axes of the ports.
///
/// # Examples
///
/// Squares of `f32` numbers, with a kernel that is compiled when the block is built:
///
/// ```no_run
/// use fxgraph_core::gpu::{Needs, ProgramSource, Source};
/// use fxgraph_core::{Block, BlockError, Env};
/// use fxgraph_cuda::{GpuJob, GpuMap, GpuMapped, Grid, Kernel, Program};
///
/// static SQUARE: ProgramSource = ProgramSource {
///     source: Source::embedded(
///         "square.cu",
///         r#"extern "C" __global__ void square(const float *from, float *to, unsigned long long count) {
///             unsigned long long n = blockIdx.x * 256ull + threadIdx.x;
///             if (n < count) to[n] = from[n] * from[n];
///         }"#,
///     ),
///     headers: &[],
///     needs: Needs::Ampere,
///     cases: &[""],
/// };
///
/// struct Square {
///     kernel: Kernel,
///     count: usize,
/// }
///
/// impl GpuMap for Square {
///     fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
///         job.pipeline.work()?;
///         let grid = Grid::new([self.count.div_ceil(256), 1, 1], 256);
///         let arguments = [job.from.into(), job.to.into(), (self.count as u64).into()];
///         // SAFETY: the arguments match the kernel, and both frames, which the job owns, have `count` numbers.
///         unsafe { self.kernel.launch(job.pipeline.stream(), grid, &arguments) }?;
///         Ok(())
///     }
/// }
///
/// /// The block for frames of `count` numbers, as `Implementation::cuda` wants it.
/// fn build(env: &Env, count: usize) -> Result<Box<dyn Block>, BlockError> {
///     GpuMapped::build(env, |pipeline| {
///         let kernel = Program::compile(&SQUARE, pipeline.device(), vec![])?.kernel("square", 0)?;
///         Ok(Square { kernel, count })
///     })
/// }
/// # let _ = build;
/// ```
pub trait GpuMap: Send {
    /// Queues the work on one frame: copies of tables, kernels, copies of results.
    ///
    /// The output's header already has the timestamp, configuration number and annotations of the input, and the
    /// [validity](Self::validity).
    ///
    /// # Errors
    ///
    /// If the driver rejects a call; it ends the block.
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError>;

    /// Writes the validity of the output, a count per validity unit, given that of the input. By default both are the
    /// same.
    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        output.copy_from_slice(input);
    }

    /// Returns the addresses of the payloads of `input` and `output`; by default both are on `device`.
    fn addresses(
        &mut self,
        input: &Frame,
        output: &mut FrameMut,
        device: &Device,
    ) -> Result<[u64; 2], BlockError> {
        Ok([frame_address(input, device)?, frame_address(output, device)?])
    }

    /// Whether another frame may be queued; `is_idle` is whether the device has no frame. If not, the block asks again
    /// when the device has finished one.
    fn has_room(&mut self, _is_idle: bool) -> bool {
        true
    }

    /// Reads the results of the job of `slot`, which the device has finished, and completes the output's header.
    fn complete(&mut self, _slot: usize, _output: &mut Header) -> Result<(), BlockError> {
        Ok(())
    }

    /// See [`Block::update`].
    fn update(&mut self, _change: Change) -> Result<(), BlockError> {
        Err(BlockError::new("its parameters cannot change while it runs"))
    }
}

/// Frames of a job, which the CUDA pipeline keeps until the device has finished the job.
pub struct Frames {
    _input: Arc<Frame>,
    output: FrameMut,
    slot: usize,
}

/// Job of one frame.
pub struct GpuJob<'a> {
    /// CUDA pipeline, in which the job has begun and which holds the frames. Call [`Pipeline::work`] before the first
    /// launch; [`GpuMapped`] begins and submits the job.
    pub pipeline: &'a mut Pipeline<Frames>,
    /// Slot of the job, for its tables; see [`Pipeline::begin`].
    pub slot: usize,
    /// Header of the input frame.
    pub header: &'a Header,
    /// Address of the input's payload.
    pub from: u64,
    /// Address of the output's payload.
    pub to: u64,
}

/// [`Block`] that runs a [`GpuMap`].
pub struct GpuMapped<M> {
    /// First field, so that its drop waits for the GPU before the other fields are dropped.
    pipeline: Pipeline<Frames>,
    map: M,
}

impl<M: GpuMap + 'static> GpuMapped<M> {
    /// Creates the block on the GPU of `env`; `make` returns its work, given the CUDA pipeline of the block.
    ///
    /// # Errors
    /// If the CUDA pipeline cannot be created, or if `make` fails.
    pub fn build(
        env: &Env,
        make: impl FnOnce(&Pipeline<Frames>) -> Result<M, BlockError>,
    ) -> Result<Box<dyn Block>, BlockError> {
        let pipeline = Pipeline::new(env)?;
        let map = make(&pipeline)?;
        Ok(Box::new(Self { pipeline, map }))
    }

    fn begin(&mut self, input: &Arc<Frame>, mut output: FrameMut) -> Result<(), BlockError> {
        let (from, to) = (input.header(), output.header_mut());
        to.continue_from(from);
        self.map.validity(&from.validity, &mut to.validity);
        let [from, to] = self.map.addresses(input, &mut output, self.pipeline.device())?;
        let slot = self.pipeline.begin(input.header().timestamp)?;
        self.pipeline.hold(Frames { _input: Arc::clone(input), output, slot })?;
        let Self { pipeline, map } = self;
        map.queue(GpuJob { pipeline, slot, header: input.header(), from, to })?;
        self.pipeline.submit()
    }
}

impl<M: GpuMap + 'static> Block for GpuMapped<M> {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        debug_assert!(
            io.inputs.len() == 1 && io.outputs.len() == 1,
            "a map has one input and one output"
        );
        let (input, output) = (&mut io.inputs[0], &mut io.outputs[0]);
        while output.has_room()
            && let Some(Frames { output: mut frame, slot, .. }) = self.pipeline.done()?
        {
            self.map.complete(slot, frame.header_mut())?;
            output.push(frame);
        }
        let is_idle = self.pipeline.is_idle();
        if input.ended() && is_idle {
            return Ok(Next::Finished);
        }
        // Peeking takes a frame off the edge, so check for room first.
        if !self.pipeline.has_room() || !self.map.has_room(is_idle) || input.peek().is_none() {
            return Ok(Next::Wait);
        }
        let Some(to) = output.take() else { return Ok(Next::Wait) };
        let Some(from) = input.pop() else { return Ok(Next::Wait) };
        self.begin(&from, to)?;
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.map.update(change)
    }
}
