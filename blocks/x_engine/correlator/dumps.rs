//! Assignment of heaps to dumps, and headers of the dumps.

use super::flagged::Flagged;
use crate::common::gaps::Gaps;
use crate::common::stacked::Stacked;
use crate::common::units::Units;
use crate::io::spead::packet::VALUE_BITS;
use fxgraph::{Clock, Counter, Counters, Header};
use std::ops::Range;

/// Number of timestamps before they wrap in SPEAD packets.
const TURN: u64 = 1 << VALUE_BITS;

/// Current dump, and position in the stream.
pub(super) struct Dumps {
    shape: Stacked,
    samples_per_dump: u64,
    /// The dump being summed.
    dump: Option<Dump>,
    /// End of the last dump that was output.
    last_end: Option<u64>,
    gaps: Gaps,
    /// Start of the first dump that the stream can fill; `None` before the first frame.
    first_dump: Option<u64>,
    /// Heaps that start before this time have been summed or dropped.
    next_timestamp: u64,
    /// Number of heaps that contributed to each baseline of the dump, `[baseline]`.
    counts: Vec<u32>,
    /// Counts of each visibility, if the input has flags for each channel and polarisation.
    flagged: Option<Flagged>,
    /// Whether the sums of the next dump are invalid.
    is_spoiled: bool,
    counters: Figures,
}

/// A dump that is being summed.
struct Dump {
    start: u64,
    /// Whether no more heaps of the dump can arrive.
    complete: bool,
}

struct Figures {
    dumps: Counter,
    dumps_incomplete: Counter,
    dumps_missing: Counter,
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
            dumps_missing: counters.loss(
                "dumps_missing",
                "dumps between others that are not output, as none of their heaps arrived; look for missing data \
                 upstream",
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
    /// Creates the state for dumps with `clock`.
    pub(super) fn new(shape: Stacked, clock: &Clock, counters: &Counters) -> Self {
        Self {
            shape,
            samples_per_dump: clock.samples_per_frame,
            dump: None,
            last_end: None,
            gaps: Gaps::new(clock.adc_sample_rate_hz),
            first_dump: None,
            next_timestamp: 0,
            counts: vec![0; shape.baselines()],
            flagged: (shape.units == Units::Channel).then(|| Flagged::new(&shape)),
            is_spoiled: false,
            counters: Figures::new(counters),
        }
    }

    /// Takes the heaps of a frame, from `heap` on, to add to the current dump: at most `most`, and at most to the end
    /// of the dump. Call it again from the end of the range, after the output of the dump if it is complete. The
    /// range is empty if a heap is left out, or if the dump must be output first.
    pub(super) fn take(&mut self, header: &Header, heap: usize, most: usize) -> Range<usize> {
        let step = self.shape.samples_per_heap();
        let timestamp = header.timestamp.saturating_add(heap as u64 * step);
        // Dumps are aligned to the timestamps in SPEAD packets, which start again from 0 after each wrap.
        let past_start = timestamp % TURN % self.samples_per_dump;
        let dump_start = timestamp - past_start;
        let left_out = heap + 1..heap + 1;
        if timestamp < self.next_timestamp {
            self.counters.heaps_late.add(1);
            return left_out;
        }
        // The first dump is output only if the stream begins at its start.
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
        self.count_heaps(&header.validity, heaps.clone());
        heaps
    }

    fn count_heaps(&mut self, valid: &[u32], heaps: Range<usize>) {
        let Some(mut flagged) = self.flagged.take() else { return self.count(valid, heaps) };
        flagged.count(valid, heaps.clone());
        self.count(flagged.present(), heaps);
        self.flagged = Some(flagged);
    }

    /// Returns the flags `[heap][antenna]` of the heaps that [`take`](Self::take) returned last from the frame with
    /// `header`: 0 where no data of the antenna are valid.
    pub(super) fn present<'a>(&'a self, header: &'a Header) -> &'a [u32] {
        self.flagged.as_ref().map_or(&header.validity, Flagged::present)
    }

    fn count(&mut self, valid: &[u32], heaps: Range<usize>) {
        let antennas = self.shape.antennas;
        let mut rows = &valid[heaps.start * antennas..heaps.end * antennas];
        while !rows.is_empty() {
            // Consecutive heaps mostly lack the same antennas, usually none, and are counted together.
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

    /// Returns whether the dump can be output because no more of its heaps can arrive.
    pub(super) fn complete(&self) -> bool {
        self.dump.as_ref().is_some_and(|dump| dump.complete)
    }

    /// Returns whether the dump has any data, and is output although the stream has ended within it.
    pub(super) fn worth_having(&self) -> bool {
        self.counts.iter().any(|&count| count > 0)
    }

    /// Marks the sums since the last dump as invalid, because `work` failed and heaps that were counted may not be
    /// in the sums. The next dump has counts of 0.
    pub(super) fn spoil(&mut self) {
        self.is_spoiled = true;
    }

    /// Ends the dump: writes its timestamp and counts to `header`, and allows the next dump to begin.
    pub(super) fn put_out(&mut self, header: &mut Header) {
        let start = self.dump.take().map_or(0, |dump| dump.start);
        header.timestamp = start;
        let gap = self.last_end.map_or(0, |end| start.saturating_sub(end));
        self.counters.dumps_missing.add(self.gaps.missing(gap, self.samples_per_dump));
        self.last_end = Some(start.saturating_add(self.samples_per_dump));
        let is_spoiled = std::mem::take(&mut self.is_spoiled);
        if is_spoiled {
            self.counts.fill(0);
        }
        match &mut self.flagged {
            None => header.validity.copy_from_slice(&self.counts),
            Some(flagged) => flagged.put_out(&mut header.validity),
        }
        if is_spoiled {
            header.validity.fill(0);
        }
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
