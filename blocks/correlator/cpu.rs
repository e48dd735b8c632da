//! The correlator on the processor.

use super::accumulate::Accumulator;
use super::dumps::Dumps;
use crate::stacked::Stacked;
use fxgraph::{Block, BlockError, Frame, Io, Next, async_trait};
use std::sync::Arc;

/// Products summed per call of `work` at most, so that a call takes some 50 ms even where the
/// processor is slow.
const PRODUCTS_PER_CALL: usize = 500_000_000;

/// The correlator on the processor.
pub(super) struct Cpu {
    heaps: usize,
    heaps_per_call: usize,
    accumulator: Accumulator,
    /// The frame being worked on, and its first heap that is not done.
    frame: Option<(Arc<Frame>, usize)>,
    dumps: Dumps,
}

impl Cpu {
    pub(super) fn new(shape: Stacked, accumulator: Accumulator, dumps: Dumps) -> Self {
        let products_per_heap = 4 * shape.baselines() * shape.channels * shape.spectra;
        Self {
            heaps: shape.heaps,
            heaps_per_call: (PRODUCTS_PER_CALL / products_per_heap).max(1),
            accumulator,
            frame: None,
            dumps,
        }
    }

    /// Sums the next heaps of the frame at hand: at most to the end of a dump.
    fn advance(&mut self, frame: Arc<Frame>, heap: usize) {
        let heaps = self.dumps.take(frame.header(), heap, self.heaps_per_call);
        let next = heaps.end;
        if !heaps.is_empty() {
            self.accumulator.add(frame.as_slice(), heaps, &frame.header().validity);
        }
        self.frame = (next < self.heaps).then_some((frame, next));
    }

    /// Puts out the dump; says no if there is no frame for it now.
    fn put_out(&mut self, io: &mut Io<'_>) -> bool {
        let Some(mut frame) = io.outputs[0].take() else { return false };
        let (header, payload) = frame.parts_mut();
        self.dumps.saturated(self.accumulator.dump(self.dumps.counts(), payload));
        self.dumps.put_out(header);
        io.outputs[0].push(frame);
        true
    }
}

#[async_trait]
impl Block for Cpu {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
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
