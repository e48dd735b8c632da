//! Counter of loop steps in debug builds, for tests that the work grows no faster than the flowgraph.

#[cfg(debug_assertions)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts one step; does nothing in release builds.
#[inline]
pub fn step() {
    #[cfg(debug_assertions)]
    STEPS.set(STEPS.get() + 1);
}

/// Number of steps that `work` takes on this thread.
#[cfg(debug_assertions)]
pub fn steps(work: impl FnOnce()) -> usize {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}
