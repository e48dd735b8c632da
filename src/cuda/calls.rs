//! Counts of what belongs to the start and the end of a run: memory that is allocated for a device,
//! and waits of the host for a device. While frames flow, they stand still.

use std::sync::atomic::{AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static WAITS: AtomicU64 = AtomicU64::new(0);

/// How often this process has done what does not belong to steady state, on all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Device and pinned memory was allocated.
    pub allocations: u64,
    /// The host waited for a device.
    pub waits: u64,
}

/// What was counted so far.
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
