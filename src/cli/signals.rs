//! Handling of SIGINT, SIGTERM, SIGHUP and SIGXFSZ.

use crate::examples;
use crate::failure::{Failure, INTERRUPTED};
use crate::terminal::last_note;
use fxgraph::lock::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Number of signals since [`count`](Signals::count), which replaces their default action; cheap to clone.
#[derive(Clone)]
pub struct Signals(Arc<Counts>);

#[derive(Default)]
struct Counts {
    came: AtomicUsize,
    seen: AtomicUsize,
    /// Whether no number of signals ends the program.
    is_held: AtomicBool,
    /// Requests to read the flowgraph file again, if the program does that.
    reloads: Option<AtomicUsize>,
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
        Self::counting(Counts::default())
    }

    /// The same for a program that reads its configuration again at SIGHUP, unless its terminal has gone.
    pub fn count_with_reloads() -> Result<Self, Failure> {
        Self::counting(Counts { reloads: Some(AtomicUsize::new(0)), ..Counts::default() })
    }

    fn counting(counts: Counts) -> Result<Self, Failure> {
        // Under `nohup` the program must outlive its terminal.
        let hangs_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let mut signals =
            signal_hook::iterator::Signals::new([SIGINT, SIGTERM].into_iter().chain(hangs_up))
                .map_err(|error| Failure::because("cannot listen for signals", &error))?;
        let counts = Arc::new(counts);
        // Opened now: later there is no telling a terminal that has gone from a program without one.
        let asks = hangs_up.is_some() && counts.reloads.is_some();
        let terminal = asks.then(|| File::options().read(true).write(true).open("/dev/tty").ok());
        let terminal = terminal.flatten();
        let counted = Arc::clone(&counts);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                if signal == SIGHUP {
                    // When a terminal closes, both the kernel and the shell send SIGHUP.
                    if counted.came.load(Ordering::SeqCst) > 0 {
                        continue;
                    }
                    if let Some(reloads) = &counted.reloads
                        && !terminal.as_ref().is_some_and(has_gone)
                    {
                        reloads.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                }
                let came = counted.came.fetch_add(1, Ordering::SeqCst) + 1;
                if counted.starting().as_ref().is_some_and(|is_running| !is_running()) {
                    end_program(INTERRUPTED, "interrupted before the flowgraph started");
                }
                let is_further = came > 2 || (came == 2 && !counted.are_seen(came));
                if is_further && !counted.is_held.load(Ordering::SeqCst) {
                    end_program(INTERRUPTED, "ended at once by a further signal");
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

    /// With `true`, no number of signals ends the program: it must put right first what it has begun.
    pub fn hold(&self, is_held: bool) {
        self.0.is_held.store(is_held, Ordering::SeqCst);
    }

    /// Waits for `time` or for a signal; returns whether a signal arrived.
    pub fn wait(&self, time: Duration) -> bool {
        let began = Instant::now();
        while self.look() == 0 && began.elapsed() < time {
            std::thread::sleep(TICK.min(time.saturating_sub(began.elapsed())));
        }
        self.look() > 0
    }

    /// Returns whether the configuration must be read again, once for all signals so far.
    pub fn take_reload(&self) -> bool {
        self.0.reloads.as_ref().is_some_and(|reloads| reloads.swap(0, Ordering::SeqCst) > 0)
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
        lock(&self.starting)
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

/// Ends the program at once, with `text` as its last line.
pub fn end_program(status: u8, text: &str) -> ! {
    examples::remove();
    last_note(text);
    signal_hook::low_level::exit(status.into())
}

/// Whether the `terminal` of this process was closed.
pub fn has_gone(terminal: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&terminal, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|_| is_end(polled[0].revents()))
}

/// Whether a terminal with these events was closed.
pub fn is_end(events: PollFlags) -> bool {
    events.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
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
