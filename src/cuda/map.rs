//! Blocks that make one frame of each frame, on a GPU.

use super::{Device, Lane, frame_address};
use fxgraph_core::retune::Change;
use fxgraph_core::{Block, BlockError, Env, Frame, FrameMut, Header, Io, Next};
use std::sync::Arc;

/// What makes one frame of each frame on a GPU: [`fxgraph_core::Map`] there. [`GpuMapped`] makes a block of it.
pub trait GpuMap: Send {
    /// Queues the work on one frame: tables that it needs, kernels, what is fetched of it.
    ///
    /// Timestamp, configuration and annotations of the input are in the output's header already, and its validity.
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError>;

    /// Writes the validity of the output, a count for each of its units, given that of the input. By default it is
    /// the same.
    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        output.copy_from_slice(input);
    }

    /// Where the payloads of `input` and `output` lie: on `device`, both.
    fn addresses(
        &mut self,
        input: &Frame,
        output: &mut FrameMut,
        device: &Device,
    ) -> Result<[u64; 2], BlockError> {
        Ok([frame_address(input, device)?, frame_address(output, device)?])
    }

    /// Whether another frame may be queued; `is_idle` says that none is on the device. If not, it is asked again when
    /// the device has finished one.
    fn has_room(&mut self, _is_idle: bool) -> bool {
        true
    }

    /// Reads what the job of `slot` has fetched, once the device has finished it, and completes the output's header.
    fn complete(&mut self, _slot: usize, _output: &mut Header) -> Result<(), BlockError> {
        Ok(())
    }

    /// See [`Block::retune`].
    fn retune(&mut self, _change: Change) -> Result<(), BlockError> {
        Err(BlockError::new("its parameters cannot change while it runs"))
    }
}

/// The frames of a job, which its lane keeps until the device has finished it.
pub struct Frames {
    _input: Arc<Frame>,
    output: FrameMut,
    slot: usize,
}

/// One frame on its way through a GPU.
pub struct GpuJob<'a> {
    /// Its lane, on which the job has begun and which holds the frames. [`Lane::work`] comes before the first launch;
    /// beginning and submitting is the driver's.
    pub lane: &'a mut Lane<Frames>,
    /// Number of the job's tables; see [`Lane::begin`].
    pub slot: usize,
    /// Header of the input frame.
    pub header: &'a Header,
    /// Address of the input's payload.
    pub from: u64,
    /// Address of the output's payload.
    pub to: u64,
}

/// Makes a [`Block`] of a [`GpuMap`].
pub struct GpuMapped<M> {
    /// First, so that it waits for the GPU before anything else is dropped.
    lane: Lane<Frames>,
    map: M,
}

impl<M: GpuMap + 'static> GpuMapped<M> {
    /// The block whose work is what `make` returns, given the block's lane, on the GPU of `env`.
    pub fn build(
        env: &Env,
        make: impl FnOnce(&Lane<Frames>) -> Result<M, BlockError>,
    ) -> Result<Box<dyn Block>, BlockError> {
        let lane = Lane::new(env)?;
        let map = make(&lane)?;
        Ok(Box::new(Self { lane, map }))
    }

    fn begin(&mut self, input: &Arc<Frame>, mut output: FrameMut) -> Result<(), BlockError> {
        let (from, to) = (input.header(), output.header_mut());
        to.continue_from(from);
        self.map.validity(&from.validity, &mut to.validity);
        let [from, to] = self.map.addresses(input, &mut output, self.lane.device())?;
        let slot = self.lane.begin(input.header().timestamp)?;
        self.lane.hold(Frames { _input: Arc::clone(input), output, slot })?;
        let Self { lane, map } = self;
        map.queue(GpuJob { lane, slot, header: input.header(), from, to })?;
        self.lane.submit()
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
            && let Some(Frames { output: mut frame, slot, .. }) = self.lane.done()?
        {
            self.map.complete(slot, frame.header_mut())?;
            output.push(frame);
        }
        let is_idle = self.lane.is_idle();
        if input.ended() && is_idle {
            return Ok(Next::Finished);
        }
        // A look at the input takes a frame off the edge: only with room for it.
        if !self.lane.has_room() || !self.map.has_room(is_idle) || input.peek().is_none() {
            return Ok(Next::Wait);
        }
        let Some(to) = output.take() else { return Ok(Next::Wait) };
        let Some(from) = input.pop() else { return Ok(Next::Wait) };
        self.begin(&from, to)?;
        Ok(Next::Again)
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        self.map.retune(change)
    }
}
