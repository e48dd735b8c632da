//! Frames that leave the window: in order, with the validity of their heaps.

use super::{Entry, Frames, Open, Window};
use crate::io::spead_source::slot::Slot;

impl Window {
    /// Sends the frames at the front of the window to which nothing can be added.
    pub(super) fn pass_on_whole(&mut self, frames: &mut dyn Frames) {
        let slots = self.layout.slots();
        // A dropped frame in front accepts no more data. At the start, empty frames for overtaken heaps
        // precede the first frame; a complete frame after them shows that no heap was overtaken.
        loop {
            let started = self.timeline.started;
            let is_nothing = |entry: &Entry| match entry {
                Entry::Empty => !started,
                Entry::Open(_) => false,
                Entry::Dropped => true,
            };
            let nothing = self.entries.iter().take_while(|entry| is_nothing(entry)).count();
            match self.entries.get(nothing) {
                Some(Entry::Open(open)) if open.whole == slots || self.is_led(nothing, open) => {
                    (0..=nothing).for_each(|_| self.pass_on_first(frames));
                }
                _ => return,
            }
        }
    }

    /// Whether the frame at `index` is complete except for heaps before the stream's first heap.
    fn is_led(&self, index: usize, open: &Open) -> bool {
        let (frame, before) = self.leading;
        self.timeline.base.is_some_and(|base| base + index as u64 == frame)
            && open.whole + before >= open.slots.len()
            && open.slots[before..].iter().all(|slot| slot.whole)
    }

    /// Moves the window by its whole length.
    pub(super) fn pass_on_all(&mut self, frames: &mut dyn Frames) {
        (0..self.entries.len()).for_each(|_| self.pass_on_first(frames));
    }

    /// Moves the window by one frame.
    pub(super) fn pass_on_first(&mut self, frames: &mut dyn Frames) {
        let Some(number) = self.timeline.base else { return };
        self.timeline.base = Some(number + 1);
        let first = self.entries.pop_front().unwrap_or(Entry::Empty);
        self.entries.push_back(Entry::Empty);
        match first {
            Entry::Open(open) => self.close(open, number, frames),
            Entry::Empty if self.timeline.started => self.gap += self.layout.slots() as u64,
            Entry::Empty => {}
            // The stream went on after the gap.
            Entry::Dropped => self.causes.missing.add(std::mem::take(&mut self.gap)),
        }
    }

    fn close(&mut self, open: Open, number: u64, frames: &mut dyn Frames) {
        let Open { frame, slots, whole } = open;
        let mut frame = frame.close(&mut self.writers);
        let (heap, per_unit) = (self.layout.heap_bytes, self.layout.heaps_per_unit());
        let (header, payload) = frame.parts_mut::<u8>().expect(fxgraph::ON_HOST);
        header.base = self.timeline.time_base;
        header.timestamp = self.timeline.origin() + number * self.layout.samples_per_frame();
        for (unit, heaps) in header.validity.iter_mut().zip(slots.chunks(per_unit)) {
            *unit = u32::from(heaps.iter().all(|slot| slot.whole));
        }
        if whole < slots.len() {
            // Missing heaps read as zero, not as the data of an old frame.
            for (slot, bytes) in slots.iter().zip(payload.chunks_exact_mut(heap)) {
                if !slot.whole {
                    bytes.fill(0);
                    self.causes.incomplete.add(u64::from(!slot.is_empty()));
                }
            }
        }
        self.causes.heaps.add(whole as u64);
        for heaps in slots.chunks(slots.len() / self.layout.heaps_per_frame) {
            self.count_missing(heaps);
        }
        self.spare.push(slots);
        frames.push(frame);
    }

    /// Counts the missing heaps of one timestamp. Heaps before the stream's first heap and after its last
    /// heap are not missing: only a later heap shows that there was a gap.
    fn count_missing(&mut self, heaps: &[Slot]) {
        let missing = heaps.iter().filter(|slot| slot.is_empty()).count();
        if missing < heaps.len() {
            self.causes.missing.add(std::mem::take(&mut self.gap) + missing as u64);
            self.timeline.started = true;
        } else if self.timeline.started {
            self.gap += missing as u64;
        }
    }
}
