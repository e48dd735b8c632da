//! The block on the CPU.

use super::accumulate::Accumulator;
use super::dumps::Dumps;
use super::floats::FloatAccumulator;
use crate::common::stacked::Stacked;
use fxgraph::{Block, BlockError, Frame, Io, Next};
use std::sync::Arc;

/// Largest number of products per call of `work`, so that a call takes about 50 ms even on a slow CPU.
const PRODUCTS_PER_CALL: usize = 500_000_000;

/// Sums of products, integer or floating-point.
pub(super) enum Sums {
    Integers(Accumulator),
    Floats(FloatAccumulator),
}

/// The running block.
pub(super) struct Cpu {
    heaps: usize,
    heaps_per_call: usize,
    sums: Sums,
    /// Current frame, and its next heap.
    frame: Option<(Arc<Frame>, usize)>,
    dumps: Dumps,
}

impl Cpu {
    pub(super) fn new(shape: Stacked, sums: Sums, dumps: Dumps) -> Self {
        let products_per_heap =
            shape.products() * shape.baselines() * shape.channels * shape.spectra;
        Self {
            heaps: shape.heaps,
            heaps_per_call: (PRODUCTS_PER_CALL / products_per_heap).max(1),
            sums,
            frame: None,
            dumps,
        }
    }

    /// Sums the next heaps of the current frame, at most to the end of a dump.
    fn advance(&mut self, frame: Arc<Frame>, heap: usize) {
        let heaps = self.dumps.take(frame.header(), heap, self.heaps_per_call);
        let next = heaps.end;
        if !heaps.is_empty() {
            let (payload, valid) =
                (frame.as_slice().expect(fxgraph::ON_HOST), self.dumps.present(frame.header()));
            match &mut self.sums {
                Sums::Integers(sums) => sums.add(payload, heaps, valid),
                Sums::Floats(sums) => sums.add(payload, heaps, valid),
            }
        }
        self.frame = (next < self.heaps).then_some((frame, next));
    }

    /// Outputs the dump. Returns `false` if there is no free output frame.
    fn put_out(&mut self, io: &mut Io<'_>) -> bool {
        let Some(mut frame) = io.outputs[0].take() else { return false };
        self.dumps.put_out(frame.header_mut());
        match &mut self.sums {
            Sums::Integers(sums) => {
                let (header, payload) = frame.parts_mut().expect(fxgraph::ON_HOST);
                self.dumps.saturated(sums.dump(&header.validity, payload));
            }
            Sums::Floats(sums) => {
                let (header, payload) = frame.parts_mut().expect(fxgraph::ON_HOST);
                sums.dump(&header.validity, payload);
            }
        }
        io.outputs[0].push(frame);
        true
    }
}

impl Block for Cpu {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if self.dumps.complete() && !self.put_out(io) {
            return Ok(Next::Wait);
        }
        if let Some((frame, heap)) = self.frame.take() {
            self.advance(frame, heap);
            return Ok(Next::Again);
        }
        if let Some(frame) = io.inputs[0].pop() {
            self.frame = Some((frame, 0));
            return Ok(Next::Again);
        }
        if !io.inputs[0].ended() {
            return Ok(Next::Wait);
        }
        if self.dumps.worth_having() && !self.put_out(io) {
            return Ok(Next::Wait);
        }
        Ok(Next::Finished)
    }
}
