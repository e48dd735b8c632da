//! Which samples of one polarisation are kept, as far back as windows may still reach, and where.
//!
//! The samples themselves are elsewhere: in a stretch of memory, host or device, for `capacity` of
//! them. Kept samples stand in it one after the other; when its end is reached they are moved to the
//! front.

use std::collections::VecDeque;
use std::ops::Range;

/// A contiguous stretch of time, some of it without samples.
pub struct History {
    /// Samples that there is room for.
    capacity: usize,
    /// Place of the first kept sample.
    first: usize,
    /// Kept samples.
    len: usize,
    /// Absolute time of the first kept sample. Signed: a delay may reach before sync time.
    start: i64,
    /// Stretches without data, in order, apart from each other.
    missing: VecDeque<(i64, i64)>,
}

/// Samples that are to be moved to the front of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Place of the first one.
    pub from: usize,
    pub samples: usize,
}

impl History {
    /// Room for `capacity` samples; starts empty at time `start`.
    pub fn new(capacity: usize, start: i64) -> Self {
        Self { capacity, first: 0, len: 0, start, missing: VecDeque::new() }
    }

    /// Time after the last sample.
    pub fn end(&self) -> i64 {
        self.start + self.len as i64
    }

    /// Forgets what came before `time`; if that is past the end, continues empty from there.
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

    /// Makes room for `count` more samples without a move in between.
    #[must_use = "the samples have to be moved"]
    pub fn reserve(&mut self, count: usize) -> Option<Move> {
        if self.first + self.len + count <= self.capacity {
            return None;
        }
        let from = std::mem::take(&mut self.first);
        (self.len > 0).then_some(Move { from, samples: self.len })
    }

    /// `count` more samples, for which there is room: their place.
    pub fn push(&mut self, count: usize) -> usize {
        let at = self.first + self.len;
        self.len += count;
        debug_assert!(at + count <= self.capacity, "samples beyond the memory");
        at
    }

    /// Time after the last sample that is not missing, if that is not forgotten.
    pub fn last_present(&self) -> i64 {
        let end = self.end();
        self.missing.back().filter(|gap| gap.1 >= end).map_or(end, |gap| gap.0)
    }

    /// Says that the samples from `from` to `to`, after all earlier marks, are missing.
    pub fn mark_missing(&mut self, from: i64, to: i64) {
        match self.missing.back_mut() {
            Some(last) if last.1 >= from => last.1 = last.1.max(to),
            _ => self.missing.push_back((from, to)),
        }
    }

    /// Whether all of these samples are there.
    pub fn is_whole(&self, from: i64, to: i64) -> bool {
        let next = self.missing.partition_point(|gap| gap.1 <= from);
        from >= self.start
            && to <= self.end()
            && self.missing.get(next).is_none_or(|gap| gap.0 >= to)
    }

    /// Time of the first sample at or after `time` that is there.
    pub fn first_present(&self, time: i64) -> Option<i64> {
        let mut at = time.max(self.start);
        let next = self.missing.partition_point(|gap| gap.1 <= at);
        if let Some(gap) = self.missing.get(next).filter(|gap| gap.0 <= at) {
            at = gap.1;
        }
        (at < self.end()).then_some(at)
    }

    /// Places of what is kept.
    pub fn places(&self) -> Range<usize> {
        self.first..self.first + self.len
    }

    /// Place of the sample of time `time`, which is within what is kept.
    pub fn place(&self, time: i64) -> usize {
        self.first + (time - self.start) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_survive_the_move_to_the_front() {
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
    fn only_windows_that_touch_a_gap_are_not_whole() {
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
    fn forgetting_past_the_end_starts_anew() {
        let mut history = History::new(64, 0);
        history.push(16);
        history.mark_missing(0, 16);
        history.forget_before(1 << 50);
        assert_eq!(history.end(), 1 << 50);
        assert_eq!(history.push(8), 0);
        assert!(history.is_whole(1 << 50, (1 << 50) + 8));
    }
}
