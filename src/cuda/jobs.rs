//! Jobs of a CUDA pipeline: their largest number, and the progress of the device in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest number of jobs in flight: one that runs, one that is ready to run, and one that may be done while its
/// block has not been woken yet.
pub const IN_FLIGHT: usize = 3;

/// Progress of the device in the jobs of a CUDA pipeline, checked before the host accesses pinned memory.
pub(super) struct Progress {
    /// Number of the CUDA pipeline in this process, from 1.
    pub pipeline: u64,
    /// Number up to which all jobs have finished.
    pub over: AtomicU64,
}

impl Progress {
    pub fn new() -> Arc<Self> {
        static LANES: AtomicU64 = AtomicU64::new(0);
        let pipeline = LANES.fetch_add(1, Ordering::Relaxed) + 1;
        Arc::new(Self { pipeline, over: AtomicU64::new(0) })
    }

    /// Whether job `number` has finished.
    pub fn is_over(&self, number: u64) -> bool {
        self.over.load(Ordering::Acquire) >= number
    }
}
