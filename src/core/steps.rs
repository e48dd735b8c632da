//! Steps of loops that must not grow faster than the flowgraph, counted where tests are.

#[cfg(debug_assertions)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts one step; nothing in a release build.
#[inline]
pub fn step() {
    #[cfg(debug_assertions)]
    STEPS.set(STEPS.get() + 1);
}

/// Steps that `work` takes on this thread.
#[cfg(debug_assertions)]
pub fn steps(work: impl FnOnce()) -> usize {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}
