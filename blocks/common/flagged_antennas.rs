//! Live list of flagged antennas: their heaps count as missing for all blocks downstream.

use super::antenna_numbers;
use fxgraph::changes::{Change, Changes, Timed};
use fxgraph::{BlockError, Counter, Counters, FrameMut, Rejection};

/// Returns whether each of the antennas with these `numbers` is in `list`.
#[must_use]
pub fn mask(list: &[u32], numbers: &[u32]) -> Vec<bool> {
    numbers.iter().map(|number| list.contains(number)).collect()
}

/// Returns the diagnostic for a `list` that names other antennas than those with these `numbers`.
#[must_use]
pub fn rejection(list: &[u32], numbers: &[u32]) -> Option<Rejection> {
    antenna_numbers::rejection("flagged_antennas", list, numbers)
}

/// Flags of the heaps of a stream, which apply to whole heaps.
pub struct Flagging {
    flags: Timed<Vec<bool>>,
    changes: Changes<Vec<bool>>,
    heaps: usize,
    antennas: usize,
    samples_per_heap: u64,
    /// Whether each heap of the frame is flagged, `[heap][antenna]`.
    mask: Vec<bool>,
    flagged: Counter,
}

impl Flagging {
    /// The flags of `mask` for frames of `heaps` heaps and `samples_per_frame` samples.
    #[must_use]
    pub fn new(mask: Vec<bool>, heaps: usize, samples_per_frame: u64, counters: &Counters) -> Self {
        let antennas = mask.len();
        Self {
            flags: Timed::new(mask),
            changes: Changes::default(),
            heaps,
            antennas,
            samples_per_heap: samples_per_frame / heaps as u64,
            mask: vec![false; heaps * antennas],
            flagged: counters.count(
                "antenna_heaps_flagged",
                "heaps of flagged antennas, which count as missing downstream; no action needed",
            ),
        }
    }

    /// Begins the frame at `timestamp`: takes the updates that become effective before its end.
    pub fn begin(&mut self, timestamp: u64) {
        let samples = self.samples_per_heap * self.heaps as u64;
        for (from, mask) in self.changes.begin(timestamp, samples) {
            self.flags.set(from, mask);
        }
        self.flags.advance(timestamp);
        let mut flagged = 0;
        for (heap, mask) in self.mask.chunks_exact_mut(self.antennas).enumerate() {
            let timestamp = timestamp.saturating_add(heap as u64 * self.samples_per_heap);
            mask.copy_from_slice(self.flags.at(timestamp));
            flagged += mask.iter().filter(|flagged| **flagged).count();
        }
        self.flagged.add(flagged as u64);
    }

    /// Whether a heap of the frame is flagged.
    #[must_use]
    pub fn is_flagged(&self, heap: usize, antenna: usize) -> bool {
        self.mask[heap * self.antennas + antenna]
    }

    /// Clears the flagged heaps of a whole frame `[heap][antenna]...` in host memory, whose validity has the same axes.
    ///
    /// # Panics
    /// If the frame is in device memory.
    pub fn clear(&mut self, frame: &mut FrameMut) {
        self.begin(frame.header().timestamp);
        if !self.mask.contains(&true) {
            return;
        }
        let (header, payload) = frame.parts_mut::<u8>().expect(fxgraph::ON_HOST);
        let heap_bytes = payload.len() / self.mask.len();
        let heaps = payload.chunks_exact_mut(heap_bytes).zip(&mut header.validity);
        for ((heap, valid), _) in heaps.zip(&self.mask).filter(|(_, flagged)| **flagged) {
            heap.fill(0);
            *valid = 0;
        }
    }

    /// Schedules a live update of the list.
    pub fn offer(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
