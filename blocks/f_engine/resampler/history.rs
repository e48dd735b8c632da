//! Input samples that output samples still need, and their validity.

use fxgraph_dsp::resample::Samples;
use num_complex::Complex32;
use std::collections::VecDeque;

/// Adjacent input samples with the same validity.
struct Run {
    /// Index after the last sample.
    end: i64,
}

/// Samples of all rows from one index on, real and imaginary parts apart.
pub(super) struct History {
    /// Index of the first sample, and number of samples.
    base: i64,
    len: usize,
    re: Vec<Vec<f32>>,
    im: Vec<Vec<f32>>,
    runs: VecDeque<Run>,
    /// Counts of the runs, `[run][counter]`.
    counts: VecDeque<u32>,
    counters: usize,
    /// Index after the last sample that is not missing.
    valid_end: i64,
}

impl History {
    /// A history of `rows` rows with up to about `capacity` samples, and `counters` counts for each run.
    pub(super) fn new(rows: usize, is_complex: bool, capacity: usize, counters: usize) -> Self {
        let planes = |rows| (0..rows).map(|_| Vec::with_capacity(capacity)).collect();
        Self {
            base: 0,
            len: 0,
            re: planes(rows),
            im: planes(if is_complex { rows } else { 0 }),
            runs: VecDeque::new(),
            counts: VecDeque::new(),
            counters,
            valid_end: i64::MIN,
        }
    }

    /// Index after the last sample.
    pub(super) fn end(&self) -> i64 {
        self.base + self.len as i64
    }

    /// Index after the last sample that is not missing.
    pub(super) fn valid_end(&self) -> i64 {
        self.valid_end
    }

    /// Forgets everything; the next sample has index `base`.
    pub(super) fn restart(&mut self, base: i64) {
        self.forget_before(self.end());
        self.base = base;
    }

    /// Forgets the samples before index `first`.
    pub(super) fn forget_before(&mut self, first: i64) {
        let count = (first - self.base).clamp(0, self.len as i64) as usize;
        if count == 0 {
            return;
        }
        for plane in self.re.iter_mut().chain(&mut self.im) {
            plane.copy_within(count.., 0);
            plane.truncate(self.len - count);
        }
        self.base += count as i64;
        self.len -= count;
        while self.runs.front().is_some_and(|run| run.end <= self.base) {
            self.runs.pop_front();
            self.counts.drain(..self.counters);
        }
    }

    /// Appends `count` missing samples.
    pub(super) fn append_missing(&mut self, count: usize) {
        for plane in self.re.iter_mut().chain(&mut self.im) {
            plane.resize(self.len + count, 0.0);
        }
        self.len += count;
        self.extend_run(count, |_| 0);
    }

    /// Appends real samples, given by row. Their validity follows with [`append_run`](Self::append_run).
    pub(super) fn append_real<'a>(&mut self, samples: impl Fn(usize) -> &'a [f32]) {
        for (row, plane) in self.re.iter_mut().enumerate() {
            plane.extend_from_slice(samples(row));
        }
        self.len = self.re.first().map_or(0, Vec::len);
    }

    /// Appends complex samples, given by row. Their validity follows with [`append_run`](Self::append_run).
    pub(super) fn append_complex<'a>(&mut self, samples: impl Fn(usize) -> &'a [Complex32]) {
        for (row, (re, im)) in self.re.iter_mut().zip(&mut self.im).enumerate() {
            re.extend(samples(row).iter().map(|sample| sample.re));
            im.extend(samples(row).iter().map(|sample| sample.im));
        }
        self.len = self.re.first().map_or(0, Vec::len);
    }

    /// Sets the validity of the `count` samples after those whose validity is known.
    pub(super) fn append_run(&mut self, count: usize, counts: impl Fn(usize) -> u32) {
        let start = self.runs.back().map_or(self.base, |run| run.end);
        if (0..self.counters).any(|counter| counts(counter) > 0) {
            self.valid_end = start + count as i64;
        }
        self.extend_run(count, counts);
    }

    fn extend_run(&mut self, count: usize, counts: impl Fn(usize) -> u32) {
        let start = self.runs.back().map_or(self.base, |run| run.end);
        let end = start + count as i64;
        let known = self.counts.len().saturating_sub(self.counters);
        let last = self.counts.range(known..);
        match self.runs.back_mut() {
            Some(run) if last.enumerate().all(|(counter, count)| *count == counts(counter)) => {
                run.end = end;
            }
            _ => {
                self.runs.push_back(Run { end });
                self.counts.extend((0..self.counters).map(counts));
            }
        }
    }

    /// Least validity of the samples from `first` to before `end`; 0 if one of them is not held.
    pub(super) fn validity(&self, counter: usize, first: i64, end: i64) -> u32 {
        if first < self.base || end > self.end() {
            return 0;
        }
        let overlapping = self.runs.iter().enumerate().skip_while(|(_, run)| run.end <= first);
        let mut least = u32::MAX;
        for (n, run) in overlapping {
            least = least.min(self.counts[n * self.counters + counter]);
            if run.end >= end {
                break;
            }
        }
        least
    }

    /// The samples of a row from index `first` on.
    pub(super) fn samples(&self, row: usize, first: i64) -> Samples<'_> {
        let all = Samples { re: &self.re[row], im: self.im.get(row).map(Vec::as_slice) };
        all.from((first - self.base).max(0) as usize)
    }
}
