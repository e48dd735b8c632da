//! The CPU implementation, which is the reference.

use super::{NullSource, Pattern, Times, write_validity};
use fxgraph::{Block, BlockError, Dtype, Io, Next, PortType};

/// The running block.
pub struct Source {
    dtype: Dtype,
    pattern: Pattern,
    seed: u64,
    times: Times,
    full: u32,
    missing_every: Option<u64>,
    frame: u64,
    frames: u64,
}

impl Source {
    /// Creates a source with these parameters for `port`.
    pub fn new(parameters: &NullSource, port: &PortType) -> Self {
        Self {
            dtype: port.dtype,
            pattern: parameters.pattern,
            seed: parameters.seed,
            times: Times::new(parameters, port),
            full: port.validity.full,
            missing_every: parameters.missing_every,
            frame: 0,
            frames: parameters.frames.unwrap_or(u64::MAX),
        }
    }
}

impl Block for Source {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.frame == self.frames {
            return Ok(Next::Finished);
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.pattern.fill(self.dtype, self.seed, self.frame, frame.as_mut_slice()?);
        self.times.write(frame.header_mut(), self.frame);
        let validity = &mut frame.header_mut().validity;
        write_validity(validity, self.frame, self.full, self.missing_every);
        io.outputs[0].push(frame);
        self.frame += 1;
        Ok(Next::Again)
    }
}
