//! Blocks that make one output frame from each input frame.

use crate::block::{Block, Io, Next};
use crate::changes::Change;
use crate::error::BlockError;
use crate::frame::{Frame, FrameMut};

/// Computes one output frame from each input frame, on the CPU. [`Mapped`] makes a block of it;
/// `fxgraph::cuda::GpuMap` is the same for GPUs.
pub trait Map: Send {
    /// Computes the payload of `output` from `input`, and changes its header if needed: timestamp, configuration,
    /// annotations and validity are already set.
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError>;

    /// Computes the validity counts of the output from those of the input. By default they are copied.
    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        output.copy_from_slice(input);
    }

    /// See [`Block::update`].
    fn update(&mut self, _change: Change) -> Result<(), BlockError> {
        Err(BlockError::new("its parameters cannot change while it runs"))
    }
}

/// Wraps a [`Map`] as a [`Block`].
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

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.0.update(change)
    }
}
