//! SIGINT, SIGTERM, SIGHUP and SIGXFSZ.

use crate::failure::{Failure, INTERRUPTED};
use crate::terminal::last_note;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Signals since [`count`](Signals::count), instead of dying from them; cheap to clone.
#[derive(Clone)]
pub struct Signals(Arc<Counts>);

#[derive(Default)]
struct Counts {
    came: AtomicUsize,
    seen: AtomicUsize,
    is_starting: AtomicBool,
}

/// How often whoever waits looks.
const TICK: Duration = Duration::from_millis(50);
/// How long a second signal waits to be acted on.
const PATIENCE: Duration = Duration::from_secs(1);

/// Turns SIGXFSZ, which kills, into an error of the write that exceeds the limit on the size of files.
pub fn report_file_size_limit() -> Result<(), Failure> {
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map(drop)
        .map_err(|error| Failure::because("cannot listen for SIGXFSZ", &error))
}

impl Signals {
    /// Counts from now on.
    ///
    /// Who counts has to look often: a block that blocks where nothing can end it must not keep
    /// the program from ending. So a second signal that nobody looks at, or a third one, ends it.
    pub fn count() -> Result<Self, Failure> {
        // `nohup` asks for a program that outlives its terminal.
        let hangs_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let mut signals =
            signal_hook::iterator::Signals::new([SIGINT, SIGTERM].into_iter().chain(hangs_up))
                .map_err(|error| Failure::because("cannot listen for signals", &error))?;
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                // A terminal that closes sends SIGHUP, and its shell sends SIGHUP again.
                if signal == SIGHUP && counted.came.load(Ordering::SeqCst) > 0 {
                    continue;
                }
                let came = counted.came.fetch_add(1, Ordering::SeqCst) + 1;
                if counted.is_starting.load(Ordering::SeqCst) {
                    last_note("interrupted before the flowgraph had started");
                    signal_hook::low_level::exit(INTERRUPTED.into());
                }
                if came > 2 || (came == 2 && !counted.are_seen(came)) {
                    signal_hook::low_level::exit(INTERRUPTED.into());
                }
            }
        });
        Ok(Self(counts))
    }

    /// Builds or starts a flowgraph, of which no frame has moved yet: a signal ends the program at
    /// once, wherever `start` may be.
    pub fn starting<T>(&self, start: impl FnOnce() -> T) -> Result<T, Failure> {
        self.0.is_starting.store(true, Ordering::SeqCst);
        if self.look() > 0 {
            return Err(Failure::Interrupted);
        }
        let started = start();
        self.0.is_starting.store(false, Ordering::SeqCst);
        Ok(started)
    }

    /// Waits for `time`, or for a signal; `true` if one came.
    pub fn wait(&self, time: Duration) -> bool {
        let began = Instant::now();
        while self.look() == 0 && began.elapsed() < time {
            std::thread::sleep(TICK.min(time.saturating_sub(began.elapsed())));
        }
        self.look() > 0
    }

    /// How many came; the caller acts on them.
    pub fn look(&self) -> usize {
        let came = self.0.came.load(Ordering::SeqCst);
        self.0.seen.fetch_max(came, Ordering::AcqRel);
        came
    }
}

impl Counts {
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

/// Whether this process was started with `signal` ignored, as the system has it.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
