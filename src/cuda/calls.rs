//! Counts of memory allocations for devices and of waits of the host for a device. Both happen only at the start and
//! the end of a run, not while frames flow.

use std::sync::atomic::{AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static WAITS: AtomicU64 = AtomicU64::new(0);

/// Number of calls in this process that do not occur in steady state, over all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Number of allocations of device and pinned memory.
    pub allocations: u64,
    /// Number of waits of the host for a device.
    pub waits: u64,
}

/// Returns the counts so far.
#[must_use]
pub fn calls() -> Calls {
    let [allocations, waits] = [&ALLOCATIONS, &WAITS].map(|count| count.load(Ordering::Relaxed));
    Calls { allocations, waits }
}

pub(super) fn count_allocation() {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn count_wait() {
    WAITS.fetch_add(1, Ordering::Relaxed);
}
