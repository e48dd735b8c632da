//! Effective timestamp of an update, decided once for all blocks of the update.

use super::{Change, ConfigChange, ConfigIds, LiveValue, MAX_TIMESTAMP};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Effective timestamp of an update, shared by all blocks of the update.
///
/// One atomic number. While it is undecided, the number is the largest timestamp up to which a block has started work;
/// afterwards it is the decided timestamp. So no block starts work on later samples without knowing the timestamp.
#[derive(Clone, Debug, Default)]
pub struct When(Arc<AtomicU64>);

const DECIDED: u64 = 1 << 63;
const NEVER: u64 = u64::MAX;

/// State of an effective timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Not decided yet.
    Open,
    /// Decided: this timestamp.
    From(u64),
    /// The update is cancelled.
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
    /// Decided timestamp `from`, at most [`MAX_TIMESTAMP`].
    #[must_use]
    pub fn at(from: u64) -> Self {
        Self(Arc::new(AtomicU64::new(from.min(MAX_TIMESTAMP) | DECIDED)))
    }

    /// Current state.
    #[must_use]
    pub fn known(&self) -> Known {
        Known::of(self.0.load(Ordering::Acquire))
    }

    /// Whether `other` is the timestamp of the same update.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Notes that a block starts work on samples before timestamp `until`; returns the state.
    #[allow(clippy::must_use_candidate, reason = "it notes that the block begins")]
    pub fn begin(&self, until: u64) -> Known {
        // A decided state is larger than any timestamp, so it stays.
        Known::of(self.0.fetch_max(until.min(MAX_TIMESTAMP), Ordering::AcqRel))
    }

    /// A change of `values` at this effective timestamp.
    #[must_use]
    pub fn change(&self, values: Vec<(&'static str, LiveValue)>) -> Change {
        Change { when: self.clone(), values, begun: 0 }
    }

    /// A change of the configuration at this effective timestamp.
    #[must_use]
    pub fn config(&self, ids: impl Into<ConfigIds>) -> ConfigChange {
        ConfigChange::new(self.clone(), ids.into())
    }
}

/// An undecided effective timestamp. Dropping it cancels the update.
#[derive(Default)]
pub struct Undecided(When);

impl Undecided {
    /// A new undecided effective timestamp.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The shared effective timestamp.
    #[must_use]
    pub fn when(&self) -> &When {
        &self.0
    }

    /// Decides and returns the effective timestamp: `at`, or the end of the samples that blocks have started, if
    /// later.
    #[allow(clippy::must_use_candidate, reason = "it decides")]
    pub fn decide(self, at: u64) -> u64 {
        let latest = |begun: u64| begun.max(at);
        let decide = |begun| Some(latest(begun) | DECIDED);
        let begun = (self.0.0).fetch_update(Ordering::AcqRel, Ordering::Acquire, decide);
        begun.map_or(at, latest)
    }

    /// Decides the effective timestamp `at`, unless blocks have started later samples: then the update is cancelled.
    ///
    /// # Errors
    /// The end of the samples that blocks have started.
    pub fn decide_exactly(self, at: u64) -> Result<(), u64> {
        let decide = |begun: u64| (begun <= at).then_some(at.min(MAX_TIMESTAMP) | DECIDED);
        (self.0.0).fetch_update(Ordering::AcqRel, Ordering::Acquire, decide).map(drop)
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        let give_up = |state: u64| (state & DECIDED == 0).then_some(NEVER);
        let _ = (self.0.0).fetch_update(Ordering::AcqRel, Ordering::Acquire, give_up);
    }
}
