//! Which heaps go to which dump, and what a dump says about its inputs.

use crate::common::stacked::Stacked;
use crate::io::spead::packet::VALUE_BITS;
use fxgraph::{Counter, Counters, Header};
use std::ops::Range;

/// Timestamps on the wire.
const TURN: u64 = 1 << VALUE_BITS;

/// The dump that is being summed, and where the stream is.
pub(super) struct Dumps {
    shape: Stacked,
    samples_per_dump: u64,
    /// The dump being summed.
    dump: Option<Dump>,
    /// Start of the first dump that the stream can fill; unknown until the first frame.
    first_dump: Option<u64>,
    /// Heaps that start before this have been summed or given up.
    next_timestamp: u64,
    /// Heaps that contributed to each baseline of the dump.
    counts: Vec<u32>,
    /// Whether the sums of the next dump are wrong.
    is_spoiled: bool,
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
            dumps: counters.count("dumps", "dumps output"),
            dumps_incomplete: counters.count(
                "dumps_incomplete",
                "dumps in which some baseline lacks some heap; look for missing packets upstream",
            ),
            visibilities_saturated: counters.count(
                "visibilities_saturated",
                "visibilities that did not fit 32 bits and were clamped; use shorter dumps or \
                 lower gains",
            ),
            heaps_before_first_dump: counters.count(
                "heaps_before_first_dump",
                "heaps (of all antennas) left out because the stream began within their dump; \
                 no action needed",
            ),
            heaps_late: counters.loss(
                "heaps_late",
                "heaps (of all antennas) dropped because of earlier timestamps; check the order \
                 of the source's timestamps",
            ),
        }
    }
}

impl Dumps {
    /// Dumps of that many ADC samples, none begun.
    pub(super) fn new(shape: Stacked, samples_per_dump: u64, counters: &Counters) -> Self {
        Self {
            shape,
            samples_per_dump,
            dump: None,
            first_dump: None,
            next_timestamp: 0,
            counts: vec![0; shape.baselines()],
            is_spoiled: false,
            counters: Figures::new(counters),
        }
    }

    /// The heaps of a frame, from `heap` on, that are to be added to the dump now: at most `most`
    /// and at most to the end of the dump. What comes after the end of the range is asked for
    /// again, after the dump was put out if it is complete. The range is empty where a
    /// heap is left out, and where the dump has to be put out first.
    pub(super) fn take(&mut self, header: &Header, heap: usize, most: usize) -> Range<usize> {
        let step = self.shape.samples_per_heap();
        let timestamp = header.timestamp.saturating_add(heap as u64 * step);
        // Dumps are aligned to the timestamps on the wire, which start again in each turn.
        let past_start = timestamp % TURN % self.samples_per_dump;
        let dump_start = timestamp - past_start;
        let left_out = heap + 1..heap + 1;
        if timestamp < self.next_timestamp {
            self.counters.heaps_late.add(1);
            return left_out;
        }
        // The dump in which the stream begins is put out only if it begins with it.
        let first_dump = *self.first_dump.get_or_insert(match past_start {
            0 => timestamp,
            _ => dump_start.checked_add(self.samples_per_dump).unwrap_or(0),
        });
        if timestamp < first_dump {
            self.counters.heaps_before_first_dump.add(1);
            return left_out;
        }
        let dump = self.dump.get_or_insert(Dump { start: dump_start, complete: false });
        if dump.start != dump_start {
            dump.complete = true;
            return heap..heap;
        }
        let turn_end = (timestamp - timestamp % TURN).saturating_add(TURN);
        let dump_end = dump_start.saturating_add(self.samples_per_dump).min(turn_end);
        let to_end = (dump_end - timestamp).div_ceil(step).max(1);
        let count = to_end.min((self.shape.heaps - heap).min(most) as u64);
        self.next_timestamp = timestamp.saturating_add(count * step);
        dump.complete = self.next_timestamp >= dump_end;
        let heaps = heap..heap + count as usize;
        self.count(&header.validity, heaps.clone());
        heaps
    }

    fn count(&mut self, valid: &[u32], heaps: Range<usize>) {
        let antennas = self.shape.antennas;
        let mut rows = &valid[heaps.start * antennas..heaps.end * antennas];
        while !rows.is_empty() {
            // Heaps in a row lack the same antennas, mostly none: they are counted together.
            let (row, _) = rows.split_at(antennas);
            let heaps = rows.chunks_exact(antennas).take_while(|other| *other == row).count();
            let mut counts = self.counts.iter_mut();
            for a2 in 0..antennas {
                let has_a2 = row[a2] != 0;
                for (valid, count) in row[..=a2].iter().zip(counts.by_ref()) {
                    *count += if has_a2 && *valid != 0 { heaps as u32 } else { 0 };
                }
            }
            rows = &rows[heaps * antennas..];
        }
    }

    /// Whether no heap of the dump is to come.
    pub(super) fn complete(&self) -> bool {
        self.dump.as_ref().is_some_and(|dump| dump.complete)
    }

    /// Whether the dump holds anything: it is then worth having though the stream has ended.
    pub(super) fn worth_having(&self) -> bool {
        self.counts.iter().any(|&count| count > 0)
    }

    /// Heaps that contributed to each baseline of the dump.
    pub(super) fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Gives up the sums since the last dump: work on them failed, and heaps that were counted may not be in them. The next
    /// dump says that nothing contributed.
    pub(super) fn spoil(&mut self) {
        self.is_spoiled = true;
    }

    /// Ends the dump: what it says about itself goes to `header`, and the next one can begin.
    pub(super) fn put_out(&mut self, header: &mut Header) {
        header.timestamp = self.dump.take().map_or(0, |dump| dump.start);
        if std::mem::take(&mut self.is_spoiled) {
            self.counts.fill(0);
        }
        header.validity.copy_from_slice(&self.counts);
        let full = self.samples_per_dump / self.shape.samples_per_heap();
        let incomplete = self.counts.iter().any(|&count| u64::from(count) < full);
        self.counters.dumps.add(1);
        self.counters.dumps_incomplete.add(u64::from(incomplete));
        self.counts.fill(0);
    }

    /// Counts visibilities that did not fit 32 bits.
    pub(super) fn saturated(&self, visibilities: u64) {
        self.counters.visibilities_saturated.add(visibilities);
    }
}
