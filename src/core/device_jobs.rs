//! Histogram of the times of a block's jobs on a GPU, for quantiles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bins per decade: bounds are 12 % apart.
const PER_DECADE: f64 = 20.0;
/// Upper bound of the first bin, and number of bins: up to 10 s, and one for all longer times.
const FIRST_NANOSECONDS: f64 = 1000.0;
const CLASSES: usize = 7 * 20 + 2;

/// Histogram of the times of jobs, shared between a block and its readers.
#[derive(Clone, Debug)]
pub struct DeviceJobs(Arc<[AtomicU64; CLASSES]>);

/// Times of a block's jobs on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTimes {
    /// Number of jobs; a frame is one job or a few.
    pub jobs: u64,
    /// Median time.
    pub p50: Duration,
    /// 99th percentile of the times.
    pub p99: Duration,
}

impl Default for DeviceJobs {
    fn default() -> Self {
        Self(Arc::new(std::array::from_fn(|_| AtomicU64::new(0))))
    }
}

impl DeviceJobs {
    /// Adds the time of a job, from its first kernel to its last.
    pub fn add(&self, nanoseconds: u64) {
        let decades = (nanoseconds as f64 / FIRST_NANOSECONDS).max(1.0).log10();
        let class = ((decades * PER_DECADE).ceil() as usize).min(CLASSES - 1);
        self.0[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Quantiles of the times so far, as upper bounds of their bins; `None` before the first job.
    #[must_use]
    pub fn times(&self) -> Option<JobTimes> {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let jobs: u64 = counts.iter().sum();
        let within = |percent: u64| {
            let mut seen = 0;
            let class = counts.iter().position(|count| {
                seen += count;
                seen * 100 >= jobs * percent
            });
            let decades = class.unwrap_or(CLASSES - 1) as f64 / PER_DECADE;
            Duration::from_nanos((FIRST_NANOSECONDS * 10.0_f64.powf(decades)).round() as u64)
        };
        (jobs > 0).then(|| JobTimes { jobs, p50: within(50), p99: within(99) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_one_bin() {
        let jobs = DeviceJobs::default();
        assert_eq!(jobs.times(), None);
        // 100 jobs from 10 us to 1 ms, and one of 50 ms.
        (1..=100).for_each(|n| jobs.add(n * 10_000));
        jobs.add(50_000_000);
        let times =
            jobs.times().unwrap_or(JobTimes { jobs: 0, p50: Duration::ZERO, p99: Duration::ZERO });
        assert_eq!(times.jobs, 101);
        for (found, exact_us) in [(times.p50, 510.0), (times.p99, 1000.0)] {
            let ratio = found.as_secs_f64() * 1e6 / exact_us;
            assert!((1.0..1.13).contains(&ratio), "{found:?} for {exact_us} us");
        }
    }

    #[test]
    fn add_accepts_shortest_and_longest_times() {
        for (nanoseconds, bound) in [(0, 1000), (1, 1000), (1000, 1000)] {
            let jobs = DeviceJobs::default();
            jobs.add(nanoseconds);
            assert_eq!(jobs.times().map(|times| times.p50), Some(Duration::from_nanos(bound)));
        }
        let jobs = DeviceJobs::default();
        jobs.add(u64::MAX);
        assert!(jobs.times().is_some_and(|times| times.p99 > Duration::from_secs(10)));
    }
}
