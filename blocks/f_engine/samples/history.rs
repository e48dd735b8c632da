//! Bookkeeping of the buffered samples of one polarisation, as far back as windows may reach.
//!
//! The samples themselves are in a buffer of `capacity` samples, in host or device memory. They are contiguous in
//! the buffer, and are moved to its front when its end is reached.

use std::collections::VecDeque;
use std::ops::Range;

/// A contiguous range of time, with gaps of missing samples.
pub struct History {
    /// Capacity of the buffer in samples.
    capacity: usize,
    /// Place of the first sample in the buffer.
    first: usize,
    /// Number of samples in the buffer.
    len: usize,
    /// Absolute time of the first sample. Signed, because a delay may reach before sync time.
    start: i64,
    /// Gaps without data, from and to, in order and disjoint.
    missing: VecDeque<(i64, i64)>,
}

/// A move of samples to the front of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Place of the first sample before the move.
    pub from: usize,
    pub samples: usize,
}

impl History {
    /// Creates an empty history for `capacity` samples that starts at time `start`.
    pub fn new(capacity: usize, start: i64) -> Self {
        Self { capacity, first: 0, len: 0, start, missing: VecDeque::new() }
    }

    /// Time after the last sample.
    pub fn end(&self) -> i64 {
        self.start + self.len as i64
    }

    /// Drops samples before `time`. If `time` is past the end, the history is empty and continues from `time`.
    pub fn forget_before(&mut self, time: i64) {
        if time >= self.end() {
            (self.first, self.len, self.start) = (0, 0, time);
        } else if time > self.start {
            let gone = (time - self.start) as usize;
            self.first += gone;
            self.len -= gone;
            self.start = time;
        }
        while self.missing.front().is_some_and(|gap| gap.1 <= self.start) {
            self.missing.pop_front();
        }
    }

    /// Reserves space for `count` more contiguous samples. Returns the move that this needs, if any.
    #[must_use = "the caller must move the samples"]
    pub fn reserve(&mut self, count: usize) -> Option<Move> {
        if self.first + self.len + count <= self.capacity {
            return None;
        }
        let from = std::mem::take(&mut self.first);
        (self.len > 0).then_some(Move { from, samples: self.len })
    }

    /// Appends `count` samples, for which space must be reserved, and returns their place.
    pub fn push(&mut self, count: usize) -> usize {
        let at = self.first + self.len;
        self.len += count;
        debug_assert!(at + count <= self.capacity, "samples beyond the memory");
        at
    }

    /// Time after the last sample that is not missing, or the start if all are missing.
    pub fn last_present(&self) -> i64 {
        let end = self.end();
        self.missing.back().filter(|gap| gap.1 >= end).map_or(end, |gap| gap.0)
    }

    /// Marks the samples from `from` to `to` as missing. Marks must be in order of time.
    pub fn mark_missing(&mut self, from: i64, to: i64) {
        match self.missing.back_mut() {
            Some(last) if last.1 >= from => last.1 = last.1.max(to),
            _ => self.missing.push_back((from, to)),
        }
    }

    /// Returns whether all samples from `from` to `to` are present.
    pub fn is_whole(&self, from: i64, to: i64) -> bool {
        let next = self.missing.partition_point(|gap| gap.1 <= from);
        from >= self.start
            && to <= self.end()
            && self.missing.get(next).is_none_or(|gap| gap.0 >= to)
    }

    /// Time of the first present sample at or after `time`.
    pub fn first_present(&self, time: i64) -> Option<i64> {
        let mut at = time.max(self.start);
        let next = self.missing.partition_point(|gap| gap.1 <= at);
        if let Some(gap) = self.missing.get(next).filter(|gap| gap.0 <= at) {
            at = gap.1;
        }
        (at < self.end()).then_some(at)
    }

    /// Places of the samples in the buffer.
    pub fn places(&self) -> Range<usize> {
        self.first..self.first + self.len
    }

    /// Place of the sample of time `time`, which must be in the buffer.
    pub fn place(&self, time: i64) -> usize {
        self.first + (time - self.start) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_unchanged_by_move_to_front() {
        let mut history = History::new(32, 0);
        let mut memory = [0; 32];
        for block in 0..20 {
            if let Some(Move { from, samples }) = history.reserve(8) {
                memory.copy_within(from..from + samples, 0);
            }
            let at = history.push(8);
            memory[at..at + 8].fill(block);
            history.forget_before(i64::from(block) * 8 - 8);
            let at = history.place(i64::from(block) * 8);
            assert_eq!(memory[at..at + 8], [block; 8]);
        }
    }

    #[test]
    fn window_is_whole_unless_it_touches_a_gap() {
        let mut history = History::new(64, 100);
        history.push(24);
        history.mark_missing(108, 116);
        assert!(history.is_whole(100, 108) && history.is_whole(116, 124));
        assert!(!history.is_whole(100, 109) && !history.is_whole(115, 124));
        assert!(!history.is_whole(99, 101) && !history.is_whole(120, 125));
        assert_eq!(history.first_present(105), Some(105));
        assert_eq!(history.first_present(108), Some(116));
        assert_eq!(history.first_present(124), None);
    }

    #[test]
    fn history_restarts_empty_if_dropped_past_its_end() {
        let mut history = History::new(64, 0);
        history.push(16);
        history.mark_missing(0, 16);
        history.forget_before(1 << 50);
        assert_eq!(history.end(), 1 << 50);
        assert_eq!(history.push(8), 0);
        assert!(history.is_whole(1 << 50, (1 << 50) + 8));
    }
}
