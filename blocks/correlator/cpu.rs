//! Which heaps go to which dump, and what a dump says about its inputs.

use super::accumulate::Accumulator;
use crate::stacked::Stacked;
use fxgraph::{Block, BlockError, Counter, Counters, Frame, Io, Next, async_trait};
use std::ops::Range;
use std::sync::Arc;

/// Products summed per call of `work` at most, so that a call takes some 50 ms even where the
/// processor is slow.
const PRODUCTS_PER_CALL: usize = 500_000_000;

/// The correlator on the processor.
pub(super) struct Cpu {
    shape: Stacked,
    samples_per_dump: u64,
    heaps_per_call: usize,
    accumulator: Accumulator,
    /// The frame being worked on, and its first heap that is not done.
    frame: Option<(Arc<Frame>, usize)>,
    /// The dump being summed.
    dump: Option<Dump>,
    /// Start of the first dump that the stream can fill; unknown until the first frame.
    first_dump: Option<u64>,
    /// Heaps that start before this have been summed or given up.
    next_timestamp: u64,
    /// Heaps that contributed to each baseline of the dump.
    counts: Vec<u32>,
    counters: Figures,
}

/// An interval that is being summed.
struct Dump {
    start: u64,
    /// No heap of it is to come.
    complete: bool,
}

struct Figures {
    dumps: Counter,
    dumps_incomplete: Counter,
    visibilities_saturated: Counter,
    heaps_before_first_dump: Counter,
    heaps_late: Counter,
}

impl Figures {
    fn new(counters: &Counters) -> Self {
        Self {
            dumps: counters.count("dumps", "Dumps put out."),
            dumps_incomplete: counters.count(
                "dumps_incomplete",
                "Dumps in which some baseline lacks some heap; look for lost packets upstream.",
            ),
            visibilities_saturated: counters.count(
                "visibilities_saturated",
                "Visibilities that did not fit 32 bits and were clamped; use shorter dumps or \
                 lower gains.",
            ),
            heaps_before_first_dump: counters.count(
                "heaps_before_first_dump",
                "Heaps (of all antennas) left out at the start because their dump had begun \
                 before the first one; needs no action.",
            ),
            heaps_late: counters.loss(
                "heaps_late",
                "Heaps (of all antennas) left out because their time had passed; the source \
                 sends timestamps out of order.",
            ),
        }
    }
}

impl Cpu {
    pub(super) fn new(
        shape: Stacked,
        samples_per_dump: u64,
        accumulator: Accumulator,
        counters: &Counters,
    ) -> Self {
        let products_per_heap = 4 * shape.baselines() * shape.channels * shape.spectra;
        Self {
            shape,
            samples_per_dump,
            heaps_per_call: (PRODUCTS_PER_CALL / products_per_heap).max(1),
            accumulator,
            frame: None,
            dump: None,
            first_dump: None,
            next_timestamp: 0,
            counts: vec![0; shape.baselines()],
            counters: Figures::new(counters),
        }
    }

    /// Sums the next heaps of the frame at hand: at most to the end of a dump.
    fn advance(&mut self, frame: Arc<Frame>, heap: usize) {
        let step = self.shape.samples_per_heap();
        let timestamp = frame.header().timestamp.saturating_add(heap as u64 * step);
        let dump_start = timestamp - timestamp % self.samples_per_dump;
        if timestamp < self.next_timestamp {
            self.counters.heaps_late.add(1);
            self.keep(frame, heap + 1);
            return;
        }
        // The dump in which the stream begins is put out only if it begins with it.
        let first_dump = *self
            .first_dump
            .get_or_insert(timestamp.checked_next_multiple_of(self.samples_per_dump).unwrap_or(0));
        if timestamp < first_dump {
            self.counters.heaps_before_first_dump.add(1);
            self.keep(frame, heap + 1);
            return;
        }
        let dump = self.dump.get_or_insert(Dump { start: dump_start, complete: false });
        if dump.start != dump_start {
            dump.complete = true;
            self.keep(frame, heap);
            return;
        }
        let dump_end = dump_start.saturating_add(self.samples_per_dump);
        let to_end = (dump_end - timestamp).div_ceil(step).max(1);
        let count = to_end.min((self.shape.heaps - heap).min(self.heaps_per_call) as u64);
        self.next_timestamp = timestamp.saturating_add(count * step);
        dump.complete = self.next_timestamp >= dump_end;
        self.sum(&frame, heap..heap + count as usize);
        self.keep(frame, heap + count as usize);
    }

    /// Keeps the frame while some of its heaps are to be done.
    fn keep(&mut self, frame: Arc<Frame>, heap: usize) {
        self.frame = (heap < self.shape.heaps).then_some((frame, heap));
    }

    fn sum(&mut self, frame: &Frame, heaps: Range<usize>) {
        let antennas = self.shape.antennas;
        let valid = &frame.header().validity;
        for heap in heaps.clone() {
            let valid = &valid[heap * antennas..][..antennas];
            let mut counts = self.counts.iter_mut();
            for a2 in 0..antennas {
                for (a1, count) in counts.by_ref().take(a2 + 1).enumerate() {
                    *count += u32::from(valid[a1] != 0 && valid[a2] != 0);
                }
            }
        }
        self.accumulator.add(frame.as_slice(), heaps, valid);
    }

    /// Puts out the dump; says no if there is no frame for it now.
    fn put_out(&mut self, io: &mut Io<'_>) -> bool {
        let Some(dump) = &self.dump else { return true };
        let Some(mut frame) = io.outputs[0].take() else { return false };
        let (header, payload) = frame.parts_mut();
        header.timestamp = dump.start;
        header.validity.copy_from_slice(&self.counts);
        let saturated = self.accumulator.dump(&self.counts, payload);
        io.outputs[0].push(frame);
        let full = self.samples_per_dump / self.shape.samples_per_heap();
        let incomplete = self.counts.iter().any(|&count| u64::from(count) < full);
        self.counters.dumps.add(1);
        self.counters.dumps_incomplete.add(u64::from(incomplete));
        self.counters.visibilities_saturated.add(saturated);
        self.counts.fill(0);
        self.dump = None;
        true
    }
}

#[async_trait]
impl Block for Cpu {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if self.dump.as_ref().is_some_and(|dump| dump.complete) && !self.put_out(io) {
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
        // What the stream began and did not end is worth having if it holds anything.
        if self.counts.iter().any(|&count| count > 0) && !self.put_out(io) {
            return Ok(Next::Wait);
        }
        Ok(Next::Finished)
    }
}
