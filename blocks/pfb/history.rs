//! Decoded samples of one polarisation, as far back as windows may still reach.

use std::collections::VecDeque;

/// A contiguous stretch of samples, some of them missing.
pub struct History {
    samples: Vec<i16>,
    /// Index of the first kept sample.
    first: usize,
    /// Kept samples.
    len: usize,
    /// Absolute time of the first kept sample. Signed: a delay may reach before sync time.
    start: i64,
    /// Stretches without data, in order, apart from each other.
    missing: VecDeque<(i64, i64)>,
}

impl History {
    /// Room for `capacity` samples; starts empty at time `start`.
    pub fn new(capacity: usize, start: i64) -> Self {
        Self { samples: vec![0; capacity], first: 0, len: 0, start, missing: VecDeque::new() }
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

    /// `count` more samples, zeros until the caller fills them.
    pub fn push(&mut self, count: usize) -> &mut [i16] {
        if self.first + self.len + count > self.samples.len() {
            self.samples.copy_within(self.first..self.first + self.len, 0);
            self.first = 0;
        }
        let at = self.first + self.len;
        self.len += count;
        &mut self.samples[at..at + count]
    }

    /// `count` more samples that are missing.
    pub fn push_missing(&mut self, count: usize) {
        let from = self.end();
        self.push(count).fill(0);
        self.mark_missing(from, from + count as i64);
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

    /// The samples from `from` on; `from` is within what is kept.
    pub fn from(&self, from: i64) -> &[i16] {
        let skip = (from - self.start) as usize;
        &self.samples[self.first + skip..self.first + self.len]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn samples_survive_the_move_to_the_front() {
        let mut history = History::new(32, 0);
        for block in 0..20_i16 {
            history.push(8).fill(block);
            history.forget_before(i64::from(block) * 8 - 8);
            assert_eq!(history.from(i64::from(block) * 8), [block; 8]);
        }
    }

    #[test]
    fn only_windows_that_touch_a_gap_are_not_whole() {
        let mut history = History::new(64, 100);
        history.push(8);
        history.push_missing(8);
        history.push(8);
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
        history.push_missing(16);
        history.forget_before(1 << 50);
        assert_eq!(history.end(), 1 << 50);
        history.push(8).fill(3);
        assert!(history.is_whole(1 << 50, (1 << 50) + 8));
    }
}
