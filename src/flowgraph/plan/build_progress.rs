//! Progress of the build of a plan.

use fxgraph_core::lock::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Progress of a build, for users who wait for it.
#[derive(Debug, Default)]
pub struct BuildProgress {
    current: AtomicUsize,
    slowest: Mutex<Option<(usize, Duration)>>,
}

impl BuildProgress {
    /// Index of the block that is being built, or was built last.
    #[must_use]
    pub fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Index of the block that took longest to build, and the time it took.
    #[must_use]
    pub fn slowest(&self) -> Option<(usize, Duration)> {
        *lock(&self.slowest)
    }

    /// Forgets the previous build.
    pub(crate) fn reset(&self) {
        *lock(&self.slowest) = None;
    }

    /// Calls `build`, which builds the block number `index`.
    pub(crate) fn during<T>(&self, index: usize, build: impl FnOnce() -> T) -> T {
        self.current.store(index, Ordering::Relaxed);
        let began = Instant::now();
        let built = build();
        let mut slowest = lock(&self.slowest);
        if slowest.is_none_or(|(_, longest)| began.elapsed() > longest) {
            *slowest = Some((index, began.elapsed()));
        }
        built
    }
}
