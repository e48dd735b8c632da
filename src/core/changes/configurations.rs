//! Configuration identifiers of frames, shared by all outputs of a run.

use super::{Known, When};
use crate::lock::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Limit of the changes that are kept. An output that pushes no frame for longer skips older ones.
const KEPT: usize = 1024;

/// The `config_id` of frames by their timestamp: scheduled values of live parameters change the configuration again
/// when they take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigIds {
    /// `config_id` before the first entry of `later`.
    first: u64,
    /// Timestamps in ascending order, and the `config_id` from each of them on.
    later: Arc<[(u64, u64)]>,
}

impl ConfigIds {
    /// `first`, and then the `config_id` from each timestamp in `later` on. The timestamps are ascending.
    #[must_use]
    pub fn new(first: u64, later: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self { first, later: later.into_iter().collect() }
    }

    /// `config_id` of a frame that starts at `timestamp`.
    #[must_use]
    pub fn at(&self, timestamp: u64) -> u64 {
        let count = self.later.partition_point(|(from, _)| *from <= timestamp);
        count.checked_sub(1).map_or(self.first, |newest| self.later[newest].1)
    }
}

impl From<u64> for ConfigIds {
    /// The same `config_id` at all timestamps.
    fn from(config_id: u64) -> Self {
        Self::new(config_id, [])
    }
}

/// A configuration for frames that start at an effective timestamp or later.
#[derive(Clone)]
pub struct ConfigChange {
    when: When,
    ids: ConfigIds,
}

impl ConfigChange {
    /// A change of the configuration at `when`; `ids` counts for frames that start there or later.
    #[must_use]
    pub fn new(when: When, ids: ConfigIds) -> Self {
        Self { when, ids }
    }

    fn is_void(&self) -> bool {
        self.when.known() == Known::Never
    }

    /// Effective timestamp, once it is decided.
    fn from(&self) -> Option<u64> {
        match self.when.known() {
            Known::From(from) => Some(from),
            Known::Open | Known::Never => None,
        }
    }
}

/// Changes of the configuration of a run. An output reads changes that it has not [seen](Heard) when it
/// pushes a frame, so that an output that pushes no frames stores none.
#[derive(Default)]
pub struct Configurations {
    /// Number of changes so far.
    count: AtomicU64,
    /// The newest changes with their numbers, in the order of `say`.
    said: Mutex<VecDeque<(u64, ConfigChange)>>,
}

impl Configurations {
    fn said(&self) -> MutexGuard<'_, VecDeque<(u64, ConfigChange)>> {
        lock(&self.said)
    }

    /// Adds a change of the configuration for the frames of all outputs.
    pub fn say(&self, change: ConfigChange) {
        let mut said = self.said();
        // A later change replaces earlier ones for its timestamp or after it.
        let mut earliest = u64::MAX;
        for index in (0..said.len()).rev() {
            let (_, known) = &said[index];
            let is_contained = known.from().is_some_and(|from| from >= earliest);
            earliest = earliest.min(known.from().unwrap_or(u64::MAX));
            if is_contained || known.is_void() {
                said.remove(index);
            }
        }
        if said.len() == KEPT {
            said.pop_front();
        }
        let number = self.count.load(Ordering::Relaxed) + 1;
        said.push_back((number, change));
        self.count.store(number, Ordering::Release);
    }
}

/// State of one output with respect to the [`Configurations`] of its run.
pub struct Heard {
    ids: ConfigIds,
    /// Number of changes that the output has read.
    count: u64,
    /// Changes that have not taken effect, in the order of `say`.
    later: Vec<ConfigChange>,
}

impl Heard {
    /// The state of an output of a new run: its frames have `config_id` until a change in the [`Configurations`] of the
    /// run takes effect.
    #[must_use]
    pub fn from_start(config_id: u64) -> Self {
        Self { ids: config_id.into(), count: 0, later: Vec::new() }
    }

    /// The state of an output that joins a run; changes before are ignored.
    pub fn new(ids: impl Into<ConfigIds>, configurations: &Configurations) -> Self {
        let count = configurations.count.load(Ordering::Acquire);
        Self { ids: ids.into(), count, later: Vec::new() }
    }

    /// `config_id` of a frame that starts at `timestamp` and is pushed now.
    pub fn at(&mut self, timestamp: u64, configurations: &Configurations) -> u64 {
        if configurations.count.load(Ordering::Acquire) != self.count {
            let said = configurations.said();
            let new = said.iter().filter(|(number, _)| *number > self.count);
            self.later.extend(new.map(|(_, change)| change.clone()));
            self.count = said.back().map_or(self.count, |(number, _)| *number);
            drop(said);
            self.later.drain(..self.later.len().saturating_sub(KEPT));
        }
        if !self.later.is_empty() {
            let has_come =
                |change: &ConfigChange| change.from().is_some_and(|from| from <= timestamp);
            // A later change includes earlier ones.
            if let Some(newest) = self.later.iter().rposition(has_come) {
                self.ids = self.later[newest].ids.clone();
                self.later.drain(..=newest);
            }
            self.later.retain(|change| !change.is_void());
        }
        self.ids.at(timestamp)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Undecided;
    use super::*;

    fn say(configurations: &Configurations, at: u64, config_id: u64) {
        let moment = Undecided::new();
        configurations.say(moment.when().config(config_id));
        moment.decide(at);
    }

    #[test]
    fn idle_output_keeps_bounded_number_of_changes() {
        const DAY: u64 = 86_400;
        let configurations = Configurations::default();
        let mut idle = Heard::new(0, &configurations);
        let mut waiting = Heard::new(0, &configurations);
        for second in 1..=DAY {
            say(&configurations, 1000 * second, second);
            // This output pushes frames with one timestamp repeatedly.
            assert_eq!(waiting.at(500, &configurations), 0);
        }
        assert_eq!((idle.later.len(), configurations.said().len()), (0, KEPT));
        assert_eq!(waiting.later.len(), KEPT);
        for heard in [&mut idle, &mut waiting] {
            assert_eq!(heard.at(1000 * DAY - 1, &configurations), DAY - 1);
            assert_eq!(heard.at(1000 * DAY, &configurations), DAY);
            assert!(heard.later.is_empty());
        }
    }

    #[test]
    fn frames_have_last_configuration_in_effect() {
        let configurations = Configurations::default();
        let mut heard = Heard::new(1, &configurations);
        let (open, void) = (Undecided::new(), Undecided::new());
        configurations.say(open.when().config(2));
        configurations.say(void.when().config(3));
        assert_eq!(heard.at(1000, &configurations), 1);
        drop(void);
        open.decide(2000);
        say(&configurations, 3000, 4);
        assert_eq!([1999, 2000].map(|time| heard.at(time, &configurations)), [1, 2]);
        // This change replaces the one for 3000.
        say(&configurations, 2500, 5);
        assert_eq!([2499, 3000].map(|time| heard.at(time, &configurations)), [2, 5]);
        let mut candidate_part = Heard::new(6, &configurations);
        assert_eq!(candidate_part.at(9000, &configurations), 6);
        let mut first = Heard::from_start(6);
        assert_eq!([2499, 2500].map(|time| first.at(time, &configurations)), [2, 5]);
    }

    #[test]
    fn change_counts_from_its_timestamp_with_the_later_changes_that_it_contains() {
        let configurations = Configurations::default();
        let mut heard = Heard::new(1, &configurations);
        let moment = Undecided::new();
        configurations.say(moment.when().config(ConfigIds::new(2, [(1000, 3), (2000, 4)])));
        assert_eq!(heard.at(1500, &configurations), 1);
        moment.decide(1600);
        let found = [1599, 1600, 1999, 2000].map(|time| heard.at(time, &configurations));
        assert_eq!(found, [1, 3, 3, 4]);
        // A frame of an earlier time, as of a source that repeats data.
        assert_eq!(heard.at(900, &configurations), 2);
    }
}
