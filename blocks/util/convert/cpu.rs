//! The CPU implementation, which is the reference.

use super::Convert;
use super::level::Level;
use super::numbers;
use crate::common::parallel::Threads;
use fxgraph::{BlockError, Configured, Counter, Env, Frame, FrameMut, Map};

/// The running block.
pub(super) struct Cpu {
    convert: numbers::Convert,
    /// Factors of real and imaginary parts.
    scales: [f64; 2],
    /// Bytes of an element of input and output.
    element_bytes: [usize; 2],
    threads: Threads,
    /// Elements of the frame that did not fit, per thread.
    saturated: Vec<u64>,
    values_saturated: Counter,
    level: Option<Level>,
}

impl Cpu {
    pub(super) fn new(block: &Configured<Convert>, env: &Env) -> Result<Self, BlockError> {
        let threads = Threads::new(block.parameters.threads)?;
        let [input, output] = [&block.ports.inputs[0], &block.ports.outputs[0]];
        Ok(Self {
            convert: block.shape,
            scales: block.parameters.scales(),
            element_bytes: [input, output].map(|port| port.dtype.bytes(1)),
            saturated: vec![0; threads.count()],
            threads,
            values_saturated: super::saturated(&env.counters),
            level: Level::new(output, env),
        })
    }
}

impl Map for Cpu {
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError> {
        let [from_bytes, to_bytes] = self.element_bytes;
        let from = input.as_slice::<u8>()?;
        let (header, to) = output.parts_mut::<u8>()?;
        self.threads.each(to, to_bytes, &mut self.saturated, |first, to, saturated| {
            let from = &from[first * from_bytes..][..to.len() / to_bytes * from_bytes];
            *saturated += (self.convert)(from, to, self.scales);
        });
        self.values_saturated.add(self.saturated.iter_mut().map(std::mem::take).sum());
        if let Some(level) = &mut self.level {
            let squares = level.squares(to);
            level.annotate(header, squares);
        }
        Ok(())
    }
}
