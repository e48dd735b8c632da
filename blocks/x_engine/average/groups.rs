//! Assignment of dumps to averages, and headers of the output.

use super::shape::{BASELINE, CHANNEL, PRODUCT, ROW, SPECTRUM, Shape};
use crate::io::spead::packet::VALUE_BITS;
use fxgraph::{Counter, Counters, Header};
use std::ops::Range;
use std::sync::Arc;

/// Number of timestamps before they wrap in SPEAD packets.
const TURN: u64 = 1 << VALUE_BITS;

/// Current output frame, and position in the stream.
pub(super) struct Groups {
    shape: Arc<Shape>,
    /// The output frame being summed.
    group: Option<Group>,
    /// Start of the first output frame that the stream can fill; `None` before the first dump.
    first: Option<u64>,
    /// Dumps that start before this time have been summed or dropped.
    next_timestamp: u64,
    /// Validity counts of the output frame.
    counts: Vec<u32>,
    /// Whether the sums of the next output frame are invalid.
    is_spoiled: bool,
    averages: Counter,
    averages_incomplete: Counter,
    dumps_before_first_average: Counter,
    dumps_late: Counter,
}

/// An output frame that is being summed.
struct Group {
    start: u64,
    /// Whether no more of its dumps can arrive.
    is_complete: bool,
}

/// Dumps of an input frame that belong to one output frame.
pub(super) struct Taken {
    /// Indices in the input frame.
    pub dumps: Range<usize>,
    /// Index of the first one in the output frame, in dumps.
    pub place: usize,
}

impl Groups {
    pub(super) fn new(shape: &Arc<Shape>, counters: &Counters) -> Self {
        Self {
            counts: vec![0; shape.units_out()],
            shape: Arc::clone(shape),
            group: None,
            first: None,
            next_timestamp: 0,
            is_spoiled: false,
            averages: counters.count("averages", "averages output, for all baselines together"),
            averages_incomplete: counters.count(
                "averages_incomplete",
                "averages in which some value lacks some dump; look for missing data upstream",
            ),
            dumps_before_first_average: counters.count(
                "dumps_before_first_average",
                "dumps dropped because the stream began within their average; no action needed",
            ),
            dumps_late: counters.loss(
                "dumps_late",
                "dumps dropped because later ones had arrived; check the source",
            ),
        }
    }

    /// Takes dumps of a frame from index `dump` on, up to the end of an output frame; none if the output frame is
    /// complete, or if the dump `dump` is dropped. The index of the next dump is the end of the range.
    pub(super) fn take(&mut self, header: &Header, dump: usize) -> Taken {
        let step = self.shape.samples_per_dump;
        let span = self.shape.samples_out();
        let timestamp = header.timestamp.saturating_add(dump as u64 * step);
        // Averages are aligned as the dumps of a correlator are: to timestamps that start again from 0 after a wrap.
        let past = timestamp % TURN % span;
        let start = timestamp - past;
        let dropped = Taken { dumps: dump + 1..dump + 1, place: 0 };
        if timestamp < self.next_timestamp {
            self.dumps_late.add(1);
            return dropped;
        }
        // The first average is output only if the stream begins with its first dump.
        let begins = past < step;
        let first = if begins { start } else { start.saturating_add(span) };
        if timestamp < *self.first.get_or_insert(first) {
            self.dumps_before_first_average.add(1);
            return dropped;
        }
        let group = self.group.get_or_insert(Group { start, is_complete: false });
        if group.start != start {
            group.is_complete = true;
            return Taken { dumps: dump..dump, place: 0 };
        }
        let turn_end = (timestamp - timestamp % TURN).saturating_add(TURN);
        let end = start.saturating_add(span).min(turn_end);
        let count = (end - timestamp).div_ceil(step).max(1);
        let count = count.min((self.shape.input[SPECTRUM] - dump) as u64);
        self.next_timestamp = timestamp.saturating_add(count * step);
        group.is_complete = self.next_timestamp >= end;
        let taken = Taken { dumps: dump..dump + count as usize, place: (past / step) as usize };
        self.count(&header.validity, &taken);
        taken
    }

    /// Adds the input's counts of the dumps to those of the output.
    fn count(&mut self, validity: &[u32], taken: &Taken) {
        let Shape { input, input_units: from, units: to, baselines, .. } = &*self.shape;
        // Along an axis that the counts lack there is one count.
        let counted = |axis: usize| if from[axis] == 0 { 1 } else { input[axis] };
        let baselines = if from[BASELINE] == 0 { &baselines[..1] } else { baselines };
        for (dump, place) in taken.dumps.clone().zip(taken.place..) {
            let (dump, average) = (dump * from[SPECTRUM], place / self.shape.dumps * to[SPECTRUM]);
            for row in 0..counted(ROW) {
                for channel in 0..counted(CHANNEL) {
                    let average_channel = channel / self.shape.channels;
                    let source = dump + row * from[ROW] + channel * from[CHANNEL];
                    let sum = average + row * to[ROW] + average_channel * to[CHANNEL];
                    for (n, baseline) in baselines.iter().enumerate() {
                        let source = source + *baseline as usize * from[BASELINE];
                        let sum = sum + n * to[BASELINE];
                        for product in 0..counted(PRODUCT) {
                            let count = &mut self.counts[sum + product * to[PRODUCT]];
                            *count =
                                count.saturating_add(validity[source + product * from[PRODUCT]]);
                        }
                    }
                }
            }
        }
    }

    /// Returns whether the output frame is complete because no more of its dumps can arrive.
    pub(super) fn is_complete(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.is_complete)
    }

    /// Returns whether the output frame has any data, and is output although the stream has ended within it.
    pub(super) fn has_data(&self) -> bool {
        self.counts.iter().any(|count| *count > 0)
    }

    /// Marks the sums of the current output frame as invalid, because `work` failed: its counts will be 0.
    pub(super) fn spoil(&mut self) {
        self.is_spoiled = true;
    }

    /// Ends the output frame: writes its timestamp and counts to `header`, and allows the next one to begin.
    pub(super) fn end(&mut self, header: &mut Header) {
        header.timestamp = self.group.take().map_or(0, |group| group.start);
        if std::mem::take(&mut self.is_spoiled) {
            self.counts.fill(0);
        }
        header.validity.copy_from_slice(&self.counts);
        let averages = self.shape.spectra_out();
        self.averages.add(averages as u64);
        let full = self.shape.full;
        if self.counts.iter().any(|count| *count < full) {
            // Counts have the averages of a frame as their slowest axis, if they have it at all.
            let of_average = self.counts.len() / averages;
            let incomplete = self
                .counts
                .chunks_exact(of_average)
                .filter(|counts| counts.iter().any(|count| *count < full));
            self.averages_incomplete.add(incomplete.count() as u64);
        }
        self.counts.fill(0);
    }
}
