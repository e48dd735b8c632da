//! Frames of the stream: their times, frames for missing heaps, and validity of missing bytes.

use super::Window;
use crate::common::link::Frames;
use crate::io::spead::item;
use crate::io::spead::packet::VALUE_BITS;
use crate::io::stream::{self, annotations};
use crate::io::stream_source::heap::{Heap, Place, Validity};
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::frame::Annotations;
use fxgraph::runtime::EventKind;
use fxgraph::{FrameMut, TimeBase};
use std::ops::Range;

/// Largest number of frames that fill a gap.
pub(super) const MAX_FILL: u64 = 1 << 16;

impl Window {
    /// Sends open heap `index` of the stream as a frame, after frames for those that are missing before it.
    pub(super) fn emit(&mut self, index: usize, frames: &mut dyn Frames) {
        let heap = self.open.swap_remove(index);
        if let Some(place) = heap.place
            && let Some(timestamp) = self.advance(place, heap.is_whole(), frames)
        {
            self.last = Some(timestamp);
            self.causes.last_timestamp.set(timestamp as f64);
            match frames.take() {
                None => self.causes.frames_dropped.add(1),
                Some(mut frame) => {
                    self.base = self.base_of(&heap);
                    self.write(&heap, timestamp, &mut frame);
                    frames.push(frame);
                }
            }
        }
        if let Some(place) = heap.place.filter(|_| heap.is_whole()) {
            self.give_up_copies(place);
        }
        self.unused.push(heap);
    }

    /// Drops other heaps of the frame at `place`, which both senders of a takeover send.
    fn give_up_copies(&mut self, place: Place) {
        let is_copy = |heap: &Heap| {
            let is_same = |other: Place| (other.run, other.sequence) == (place.run, place.sequence);
            heap.place.is_some_and(is_same)
        };
        while let Some(copy) = self.open.iter().position(is_copy) {
            self.give_up(copy);
        }
    }

    /// Moves the stream to `place`: sends frames for missing ones before it, and returns the timestamp of its frame;
    /// `None` if the frame does not come after the last one.
    fn advance(&mut self, place: Place, is_whole: bool, frames: &mut dyn Frames) -> Option<u64> {
        let next = self.run.as_ref().and_then(|run| run.next);
        if let Some(run) = &mut self.run {
            run.sent(place.sequence, is_whole);
        }
        let Some(last) = self.last else { return Some(place.timestamp) };
        let Some((timestamp, offset)) = self.after(last, place, next.is_none()) else {
            self.causes.back.add(1);
            return None;
        };
        if timestamp >= MAX_TIMESTAMP {
            self.causes.unexpected.add(1);
            return None;
        }
        if self.offset != offset {
            self.offset = offset;
            self.env.events.add(
                EventKind::Resynchronised,
                format!(
                    "the timestamps start again from {}; those of frames continue from {timestamp}",
                    place.timestamp
                ),
            );
        }
        let gap = timestamp - last;
        let between =
            (gap / self.samples()).saturating_sub(u64::from(gap.is_multiple_of(self.samples())));
        // The number of frames of another run that are missing is known from the timestamps only.
        let lost = next.map_or(between, |next| place.sequence.saturating_sub(next));
        if lost == 0 {
            return Some(timestamp);
        }
        // Numbers without a time for their frames are not believed.
        let missing = lost.min(between);
        let is_jump = gap > self.options.max_gap_samples || missing > MAX_FILL;
        if next.is_some() || !is_jump {
            self.causes.missing.add(missing);
        }
        if is_jump {
            self.causes.time_jumps.add(1);
            let seconds = gap as f64 / self.described.port.clock.adc_sample_rate_hz;
            self.env.events.add(
                EventKind::TimeJumped,
                format!("the timestamps jumped ahead by {gap} samples ({seconds:.3} s)"),
            );
            return Some(timestamp);
        }
        self.fill(last, missing, frames);
        Some(timestamp)
    }

    /// Returns the timestamp, on the timeline of the frames, of a frame at `place` that follows one with timestamp
    /// `last`, and the difference between the timelines. `is_first` is whether it is the first one of its run.
    fn after(&self, last: u64, place: Place, is_first: bool) -> Option<(u64, u64)> {
        let raw = place.timestamp;
        // All terms are below 2^62.
        let timestamp = raw + self.offset;
        if timestamp > last {
            return Some((timestamp, self.offset));
        }
        let behind = last - timestamp;
        if !is_first || behind <= self.options.max_gap_samples {
            // Data that the sender repeats.
            return None;
        }
        // As in `spead_source`: the next multiple of 2^48 after the last frame.
        let offset = ((last.checked_sub(raw)? >> VALUE_BITS) + 1) << VALUE_BITS;
        Some((raw + offset, offset))
    }

    /// Sends `count` frames without data after the one with timestamp `last`.
    pub(super) fn fill(&mut self, last: u64, count: u64, frames: &mut dyn Frames) {
        for number in 1..=count {
            let ahead = number.checked_mul(self.samples());
            let timestamp = ahead.and_then(|ahead| last.checked_add(ahead));
            let Some(timestamp) = timestamp.filter(|timestamp| *timestamp < MAX_TIMESTAMP) else {
                return;
            };
            self.last = Some(timestamp);
            match frames.take() {
                None => self.causes.frames_dropped.add(1),
                Some(mut frame) => {
                    if let Ok((header, payload)) = frame.parts_mut::<u8>() {
                        header.timestamp = timestamp;
                        header.base = self.base;
                        header.validity.fill(0);
                        header.annotations.copy_from(&Annotations::default());
                        payload.fill(0);
                    }
                    frames.push(frame);
                }
            }
        }
    }

    /// Time base of the frame of `heap`: that of the sender and, after a restart of the sender, with the difference
    /// between the timelines.
    fn base_of(&self, heap: &Heap) -> TimeBase {
        let Some(bytes) = heap.whole_item(item::TIME_BASE, Some(stream::BASE_BYTES)) else {
            // A heap without the item, or of which the item is missing.
            return if self.base.from < self.offset {
                self.after_restart(TimeBase::default())
            } else {
                self.base
            };
        };
        let base = stream::read_base(bytes).unwrap_or_default();
        let uncertainty = heap.value(item::TIME_BASE_UNCERTAINTY);
        let uncertainty_seconds = stream::read_uncertainty(&base, uncertainty);
        self.after_restart(TimeBase { uncertainty_seconds, ..base })
    }

    fn after_restart(&self, of_sender: TimeBase) -> TimeBase {
        if self.offset == 0 {
            return of_sender;
        }
        // The sender's timestamp `from`, at which it had its sync time, is later here.
        let of_type = self.described.port.clock.sync_time;
        let sync_time = of_sender.sync_time.or(Some(of_type));
        TimeBase { from: of_sender.from + self.offset, sync_time, ..of_sender }
    }

    /// Writes `heap` to `frame`.
    fn write(&self, heap: &Heap, timestamp: u64, frame: &mut FrameMut) {
        // Frames of a source on the CPU are in host memory.
        let Ok((header, payload)) = frame.parts_mut::<u8>() else { return };
        header.timestamp = timestamp;
        header.base = self.base;
        let counts = &mut header.validity;
        let known = heap.write_validity(counts, self.described.port.validity.full);
        if known != Validity::Known {
            counts.fill(0);
        }
        let mut is_whole = known == Validity::Known;
        heap.write_data(payload, |missing| {
            is_whole = false;
            self.flag(missing, counts);
        });
        let annotations = &mut header.annotations;
        annotations.copy_from(&Annotations::default());
        match heap
            .whole_item(item::ANNOTATIONS, None)
            .map(|text| annotations::read(text, annotations))
        {
            None => is_whole &= !heap.has(item::ANNOTATIONS),
            Some(Ok(unknown)) => self.causes.annotations_unknown.add(unknown),
            Some(Err(_)) => {
                annotations.copy_from(&Annotations::default());
                self.causes.annotations_malformed.add(1);
            }
        }
        if known == Validity::Wrong {
            self.causes.invalid.add(1);
        } else if is_whole {
            self.causes.heaps.add(1);
        } else {
            self.causes.incomplete.add(1);
        }
    }

    /// Sets the counts of all units that have any of the bytes `missing` to 0.
    fn flag(&self, missing: Range<usize>, counts: &mut [u32]) {
        let bits = self.described.bits();
        let all = self.described.port.elements();
        let (first, end) = (missing.start * 8 / bits, (missing.end * 8).div_ceil(bits).min(all));
        if !self.divides || (first == 0 && end == all) {
            counts.fill(0);
            return;
        }
        self.elements.counts(first..end, |unit| {
            if let Some(count) = counts.get_mut(unit) {
                *count = 0;
            }
        });
    }
}
