//! How long a GPU works on the jobs of a block: counted in classes, so that quantiles can be told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Classes of a decade: bounds are 12 % apart.
const PER_DECADE: f64 = 20.0;
/// Bound of the first class, and number of classes: up to 10 s, and one for all beyond.
const FIRST_NANOSECONDS: f64 = 1000.0;
const CLASSES: usize = 7 * 20 + 2;

/// Jobs by how long they took, shared between a block and whoever watches it.
#[derive(Clone, Debug)]
pub struct DeviceJobs(Arc<[AtomicU64; CLASSES]>);

/// What is known of a block's jobs on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTimes {
    /// Jobs; a frame is one, or a few.
    pub jobs: u64,
    /// Half of them took no longer.
    pub p50: Duration,
    /// 99 of 100 took no longer.
    pub p99: Duration,
}

impl Default for DeviceJobs {
    fn default() -> Self {
        Self(Arc::new(std::array::from_fn(|_| AtomicU64::new(0))))
    }
}

impl DeviceJobs {
    /// A job took so long, from its first kernel to its last.
    pub fn add(&self, nanoseconds: u64) {
        let decades = (nanoseconds as f64 / FIRST_NANOSECONDS).max(1.0).log10();
        let class = ((decades * PER_DECADE).ceil() as usize).min(CLASSES - 1);
        self.0[class].fetch_add(1, Ordering::Relaxed);
    }

    /// The times so far, up to the bounds of their classes; nothing before the first job.
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
    fn quantiles_are_those_of_the_jobs_but_for_the_width_of_a_class() {
        let jobs = DeviceJobs::default();
        assert_eq!(jobs.times(), None);
        // From 10 us to 1 ms, and one of 50 ms in a hundred and one.
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
    fn no_time_is_too_short_or_too_long() {
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
