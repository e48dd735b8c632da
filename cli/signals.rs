//! Handling of SIGINT, SIGTERM, SIGHUP and SIGXFSZ.

use crate::examples;
use crate::failure::{Failure, INTERRUPTED};
use crate::terminal::last_note;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of signals since [`count`](Signals::count), which replaces their default action; cheap to clone.
#[derive(Clone)]
pub struct Signals(Arc<Counts>);

#[derive(Default)]
struct Counts {
    came: AtomicUsize,
    seen: AtomicUsize,
    starting: Mutex<Option<IsRunning>>,
}

/// Returns whether the flowgraph that is being started runs already.
type IsRunning = Box<dyn Fn() -> bool + Send>;

/// Time between two checks while waiting.
const TICK: Duration = Duration::from_millis(50);
/// Time for the program to see a second signal before the signal ends it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ignores SIGXFSZ, so that a write beyond the limit on the size of files returns an error.
pub fn report_file_size_limit() -> Result<(), Failure> {
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map(drop)
        .map_err(|error| Failure::because("cannot listen for SIGXFSZ", &error))
}

impl Signals {
    /// Starts counting.
    ///
    /// The caller must call [`look`](Self::look) often. A block stuck in a system call must not keep the program
    /// alive: a second signal that the caller does not see within [`PATIENCE`], or a third one, ends the program.
    pub fn count() -> Result<Self, Failure> {
        // Under `nohup` the program must outlive its terminal.
        let hangs_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let mut signals =
            signal_hook::iterator::Signals::new([SIGINT, SIGTERM].into_iter().chain(hangs_up))
                .map_err(|error| Failure::because("cannot listen for signals", &error))?;
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                // When a terminal closes, both the kernel and the shell send SIGHUP.
                if signal == SIGHUP && counted.came.load(Ordering::SeqCst) > 0 {
                    continue;
                }
                let came = counted.came.fetch_add(1, Ordering::SeqCst) + 1;
                if counted.starting().as_ref().is_some_and(|is_running| !is_running()) {
                    examples::remove();
                    last_note("interrupted before the flowgraph started");
                    signal_hook::low_level::exit(INTERRUPTED.into());
                }
                if came > 2 || (came == 2 && !counted.are_seen(came)) {
                    examples::remove();
                    signal_hook::low_level::exit(INTERRUPTED.into());
                }
            }
        });
        Ok(Self(counts))
    }

    /// Calls `start`, which builds or starts a flowgraph. A signal during the call ends the program at once, unless
    /// `is_running`: then frames have moved, and the caller sees the signal after the call.
    pub fn starting<T>(
        &self,
        is_running: impl Fn() -> bool + Send + 'static,
        start: impl FnOnce() -> T,
    ) -> Result<T, Failure> {
        *self.0.starting() = Some(Box::new(is_running));
        if self.look() > 0 {
            return Err(Failure::Interrupted);
        }
        let started = start();
        *self.0.starting() = None;
        Ok(started)
    }

    /// Waits for `time` or for a signal; returns whether a signal arrived.
    pub fn wait(&self, time: Duration) -> bool {
        let began = Instant::now();
        while self.look() == 0 && began.elapsed() < time {
            std::thread::sleep(TICK.min(time.saturating_sub(began.elapsed())));
        }
        self.look() > 0
    }

    /// Returns the number of signals so far and marks them as seen.
    pub fn look(&self) -> usize {
        let came = self.0.came.load(Ordering::SeqCst);
        self.0.seen.fetch_max(came, Ordering::AcqRel);
        came
    }
}

impl Counts {
    fn starting(&self) -> MutexGuard<'_, Option<IsRunning>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn are_seen(&self, came: usize) -> bool {
        let began = Instant::now();
        while self.seen.load(Ordering::Acquire) < came {
            if began.elapsed() >= PATIENCE {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

/// Whether `signal` is ignored in this process, according to `/proc/self/status`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_after_the_first_frames_is_left_to_the_caller() {
        let signals = Signals::count().unwrap();
        let start = || {
            signal_hook::low_level::raise(SIGINT).unwrap();
            signals.wait(Duration::from_mins(1))
        };
        assert!(signals.starting(|| true, start).unwrap());
    }
}
