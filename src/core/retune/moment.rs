//! When a change takes effect: decided once for all blocks that it concerns.

use super::{Change, ConfigChange, LiveValue, MAX_TIMESTAMP};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// When a change takes effect: a timestamp that all blocks it concerns agree on.
///
/// While it is open it holds how far they have come, afterwards what was decided: one atomic number,
/// so that no block begins to work on what lies behind the timestamp before it knows of it.
#[derive(Clone, Debug, Default)]
pub struct When(Arc<AtomicU64>);

const DECIDED: u64 = 1 << 63;
const NEVER: u64 = u64::MAX;

/// What is known of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Not decided yet.
    Open,
    /// From this timestamp on.
    From(u64),
    /// The change is called off.
    Never,
}

impl Known {
    fn of(state: u64) -> Self {
        match state {
            NEVER => Self::Never,
            decided if decided & DECIDED != 0 => Self::From(decided & !DECIDED),
            _ => Self::Open,
        }
    }
}

impl When {
    /// At timestamp `from`, or at [`MAX_TIMESTAMP`] if that is earlier.
    #[must_use]
    pub fn at(from: u64) -> Self {
        Self(Arc::new(AtomicU64::new(from.min(MAX_TIMESTAMP) | DECIDED)))
    }

    /// What is known of it.
    #[must_use]
    pub fn known(&self) -> Known {
        Known::of(self.0.load(Ordering::Acquire))
    }

    /// A block begins to work on what lies before timestamp `until`.
    #[allow(clippy::must_use_candidate, reason = "it notes that the block begins")]
    pub fn begin(&self, until: u64) -> Known {
        // What is decided is larger than any timestamp and stays.
        Known::of(self.0.fetch_max(until.min(MAX_TIMESTAMP), Ordering::AcqRel))
    }

    /// A change at this moment.
    #[must_use]
    pub fn change(&self, values: Vec<(&'static str, LiveValue)>) -> Change {
        Change { when: self.clone(), values, begun: 0 }
    }

    /// The identity of frames made from this moment on.
    #[must_use]
    pub fn config(&self, config_id: u64) -> ConfigChange {
        ConfigChange::new(self.clone(), config_id)
    }
}

/// A moment before it is decided. Dropped, it is one that never comes: what was offered is void.
#[derive(Default)]
pub struct Undecided(When);

impl Undecided {
    /// A moment that is not decided.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The moment, for those who wait for it.
    #[must_use]
    pub fn when(&self) -> &When {
        &self.0
    }

    /// Decides: `at`, or what the blocks have begun already ends, if that is later.
    #[allow(clippy::must_use_candidate, reason = "it decides")]
    pub fn decide(self, at: u64) -> u64 {
        let latest = |begun: u64| begun.max(at);
        let decide = |begun| Some(latest(begun) | DECIDED);
        let begun = (self.0.0).fetch_update(Ordering::AcqRel, Ordering::Acquire, decide);
        begun.map_or(at, latest)
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        let give_up = |state: u64| (state & DECIDED == 0).then_some(NEVER);
        let _ = (self.0.0).fetch_update(Ordering::AcqRel, Ordering::Acquire, give_up);
    }
}
