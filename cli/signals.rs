//! SIGINT and SIGTERM.

use crate::failure::{Failure, INTERRUPTED};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Signals since [`count`](Signals::count), instead of dying from them.
pub struct Signals(Arc<Counts>);

#[derive(Default)]
struct Counts {
    came: AtomicUsize,
    seen: AtomicUsize,
}

/// How often whoever waits looks.
const TICK: Duration = Duration::from_millis(50);
/// How long a second signal waits to be acted on.
const PATIENCE: Duration = Duration::from_secs(1);

impl Signals {
    /// Counts from now on.
    ///
    /// Who counts has to look often: a block that blocks where nothing can end it must not keep
    /// the program from ending. So a second signal that nobody looks at, or a third one, ends it.
    pub fn count() -> Result<Self, Failure> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
            .map_err(|error| Failure::because("cannot listen for signals", &error))?;
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        std::thread::spawn(move || {
            for _ in signals.forever() {
                let came = counted.came.fetch_add(1, Ordering::AcqRel) + 1;
                if came > 2 || (came == 2 && !counted.are_seen(came)) {
                    signal_hook::low_level::exit(INTERRUPTED.into());
                }
            }
        });
        Ok(Self(counts))
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
        let came = self.0.came.load(Ordering::Acquire);
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
