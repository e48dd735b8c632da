//! The block: discards frames.

use super::NullSink;
use fxgraph::{Block, BlockError, Configured, Counter, Counters, Env, Io, Next, PortType};

/// The running block.
pub struct Sink {
    full: Vec<u32>,
    frames: Counter,
    missing: Counter,
}

impl Sink {
    /// Creates a sink for `inputs`.
    pub fn of(block: &Configured<NullSink>, env: &Env) -> Self {
        Self::new(&block.ports.inputs, &env.counters)
    }

    pub fn new(inputs: &[PortType], counters: &Counters) -> Self {
        Self {
            full: inputs.iter().map(|port| port.validity.full).collect(),
            frames: counters.count("frames_dropped_here", "frames consumed; grows with the stream"),
            missing: counters.count(
                "units_missing",
                "validity units without all their data; look for missing data upstream",
            ),
        }
    }
}

impl Block for Sink {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        for (input, full) in io.inputs.iter_mut().zip(&self.full) {
            while let Some(frame) = input.pop() {
                self.frames.add(1);
                let missing = frame.header().validity.iter().filter(|v| *v < full).count();
                self.missing.add(missing as u64);
            }
        }
        if io.inputs.iter().all(fxgraph::Input::ended) {
            return Ok(Next::Finished);
        }
        Ok(Next::Wait)
    }
}
