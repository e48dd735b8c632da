//! Blocks that make one frame of each frame.

use crate::block::{Block, Io, Next};
use crate::error::BlockError;
use crate::frame::{Frame, FrameMut};
use crate::retune::Change;

/// What makes one frame of each frame, on the CPU. [`Mapped`] makes a block of it; `fxgraph::cuda::GpuMap` is the same
/// for GPUs.
pub trait Map: Send {
    /// Makes the payload of `output` from `input`, and what its header has to say beside: timestamp, configuration
    /// and annotations of `input` are in it already, and its validity.
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError>;

    /// Writes the validity of the output, a count for each of its units, given that of the input. By default it is
    /// the same.
    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        output.copy_from_slice(input);
    }

    /// See [`Block::retune`].
    fn retune(&mut self, _change: Change) -> Result<(), BlockError> {
        Err(BlockError::new("its parameters cannot change while it runs"))
    }
}

/// Makes a [`Block`] of a [`Map`].
pub struct Mapped<M>(pub M);

impl<M: Map> Block for Mapped<M> {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        debug_assert!(
            io.inputs.len() == 1 && io.outputs.len() == 1,
            "a map has one input and one output"
        );
        let (input, output) = (&mut io.inputs[0], &mut io.outputs[0]);
        if input.peek().is_none() {
            return Ok(if input.ended() { Next::Finished } else { Next::Wait });
        }
        let Some(mut to) = output.take() else { return Ok(Next::Wait) };
        let Some(from) = input.pop() else { return Ok(Next::Wait) };
        let header = to.header_mut();
        header.continue_from(from.header());
        self.0.validity(&from.header().validity, &mut header.validity);
        self.0.map(&from, &mut to)?;
        output.push(to);
        Ok(Next::Again)
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        self.0.retune(change)
    }
}
