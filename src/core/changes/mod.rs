//! Live updates: new values of parameters that take effect at a timestamp while blocks run.
//!
//! An update may concern several blocks, which are at different timestamps of the stream. Each block is
//! offered its new values and a shared [`When`]. When all blocks have accepted, the effective timestamp
//! is decided, and every block applies its values from that timestamp on. [`Changes`] keeps the values of a
//! block until then; [`Timed`] is a value that changes, also within a frame.

mod configurations;
mod moment;

pub use configurations::{ConfigChange, ConfigIds, Configurations, Heard};
pub use moment::{Known, Undecided, When};

use crate::error::BlockError;
use std::any::Any;
use std::collections::VecDeque;

/// Value of a live parameter for a running block, computed off the data path.
pub type LiveValue = Box<dyn Any + Send>;

/// Largest effective timestamp; blocks add to timestamps, which must not overflow.
pub const MAX_TIMESTAMP: u64 = 1 << 62;

/// Limit of the scheduled values of a block.
pub const MAX_QUEUED: usize = 256;

/// New values of live parameters of a running block, with one effective timestamp.
pub struct Change {
    when: When,
    values: Vec<(&'static str, LiveValue)>,
    begun: u64,
}

impl Change {
    /// New value of `parameter`, if it changes and has this type.
    #[must_use]
    pub fn value<T: 'static>(&self, parameter: &str) -> Option<&T> {
        let (_, value) = self.values.iter().find(|(name, _)| *name == parameter)?;
        value.downcast_ref()
    }

    /// Timestamp before which earlier blocks in the slot have started work on everything: blocks before a restart or
    /// a swap.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Sets [`begun`](Self::begun).
    #[must_use]
    pub fn behind(self, begun: u64) -> Self {
        Self { begun, ..self }
    }

    /// Names of the parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.values.iter().map(|(parameter, _)| *parameter)
    }
}

struct Queued<V> {
    when: When,
    /// Effective timestamp, once it is known.
    from: Option<u64>,
    parameter: &'static str,
    value: V,
}

/// Scheduled values of a block that have not taken effect. `V` is the value type of the kind, usually an enum of its
/// live parameters.
pub struct Changes<V> {
    /// The block has started work on everything before this timestamp.
    begun: u64,
    /// Scheduled values, in the order of `offer`.
    queued: Vec<Queued<V>>,
}

impl<V> Default for Changes<V> {
    fn default() -> Self {
        Self { begun: 0, queued: Vec::new() }
    }
}

impl<V: 'static> Changes<V> {
    /// Schedules `change`; [`Block::update`](crate::Block::update) calls it. Returns an error if
    /// more than [`MAX_QUEUED`] values would be scheduled.
    pub fn offer(&mut self, change: Change) -> Result<(), BlockError> {
        // Removes replaced values, also while no frames arrive.
        self.hear();
        let Change { when, values, begun } = change;
        if self.queued.len() + values.len() > MAX_QUEUED {
            let text = format!(
                "{} scheduled values are pending; the limit is {MAX_QUEUED}",
                self.queued.len()
            );
            return Err(BlockError::new(text));
        }
        let mut typed = Vec::with_capacity(values.len());
        for (parameter, value) in values {
            let Ok(value) = value.downcast() else {
                let text = format!("`{parameter}` is not one of its live parameters");
                return Err(BlockError::new(text));
            };
            typed.push(Queued { when: when.clone(), from: None, parameter, value: *value });
        }
        // A block that was restarted has begun nothing, but earlier blocks in its slot have.
        self.begun = self.begun.max(begun);
        when.begin(self.begun);
        self.queued.append(&mut typed);
        Ok(())
    }

    /// Number of scheduled values of `parameter` that do not take effect with the next samples that the block
    /// begins.
    #[must_use]
    pub fn waiting(&self, parameter: &str) -> usize {
        let waits = |queued: &&Queued<V>| match queued.when.known() {
            _ if queued.parameter != parameter => false,
            Known::Open => true,
            Known::From(from) => from > self.begun,
            Known::Never => false,
        };
        self.queued.iter().filter(waits).count()
    }

    /// Notes that the block starts work on `samples` samples from timestamp `start` on. Returns the values that
    /// take effect before the end of these samples, in order, each with its effective timestamp.
    pub fn begin(&mut self, start: u64, samples: u64) -> impl Iterator<Item = (u64, V)> + use<V> {
        // Senders choose timestamps: the largest one must not overflow.
        let until = start.saturating_add(samples);
        self.begun = self.begun.max(until);
        let mut due = Vec::new();
        if !self.queued.is_empty() {
            self.hear();
            let is_due = |queued: &mut Queued<V>| queued.from.is_some_and(|from| from < until);
            due.extend(self.queued.extract_if(.., is_due));
            // The sort is stable: values for one timestamp stay in the order of `offer`.
            due.sort_by_key(|queued| queued.from);
        }
        due.into_iter().map(|queued| (queued.from.unwrap_or_default(), queued.value))
    }

    /// Reads effective timestamps that were decided since the last call.
    fn hear(&mut self) {
        let mut has_heard = false;
        self.queued.retain_mut(|queued| {
            if queued.from.is_none() {
                match queued.when.begin(self.begun) {
                    Known::From(from) => queued.from = Some(from),
                    Known::Open => return true,
                    Known::Never => return false,
                }
                has_heard = true;
            }
            true
        });
        if !has_heard {
            return;
        }
        // A later value of a parameter replaces values scheduled for its timestamp or after it.
        let known: Vec<_> = self.queued.iter().map(|q| (q.parameter, q.from)).collect();
        let mut next = 0;
        self.queued.retain(|queued| {
            next += 1;
            let replaces = |(parameter, from): &(&str, Option<u64>)| {
                *parameter == queued.parameter && from.is_some() && *from <= queued.from
            };
            !known[next..].iter().any(replaces)
        });
    }
}

/// A value that changes at timestamps.
#[derive(Clone, Debug)]
pub struct Timed<V> {
    now: V,
    /// Later values with their effective timestamps.
    later: VecDeque<(u64, V)>,
}

impl<V> Timed<V> {
    /// A value that is in effect until another one is set.
    pub fn new(value: V) -> Self {
        Self { now: value, later: VecDeque::new() }
    }

    /// Sets `value` from timestamp `from` on; values set for `from` or later are replaced.
    pub fn set(&mut self, from: u64, value: V) {
        self.later.retain(|(known, _)| *known < from);
        self.later.push_back((from, value));
    }

    /// Value at `timestamp`.
    pub fn at(&self, timestamp: u64) -> &V {
        let known = self.later.iter().rev().find(|(from, _)| *from <= timestamp);
        known.map_or(&self.now, |(_, value)| value)
    }

    /// Removes values that were in effect only before `timestamp`.
    pub fn advance(&mut self, timestamp: u64) {
        while self.later.front().is_some_and(|(from, _)| *from <= timestamp) {
            if let Some((_, value)) = self.later.pop_front() {
                self.now = value;
            }
        }
    }

    /// Number of timestamps `start`, `start + step`, ... with the same value, at most `most`.
    pub fn run(&self, start: u64, step: u64, most: usize) -> usize {
        let next = self.later.iter().find(|(from, _)| *from > start);
        next.map_or(most, |(from, _)| most.min((from - start).div_ceil(step) as usize))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn change(moment: &Undecided, parameter: &'static str, value: i32) -> Change {
        moment.when().change(vec![(parameter, Box::new(value))])
    }

    fn begin(changes: &mut Changes<i32>, until: u64) -> Vec<(u64, i32)> {
        changes.begin(0, until).collect()
    }

    #[test]
    fn effective_timestamp_is_after_all_begun_samples() {
        let moment = Undecided::new();
        let (mut ahead, mut behind) = (Changes::<i32>::default(), Changes::<i32>::default());
        assert_eq!(begin(&mut ahead, 700), []);
        ahead.offer(change(&moment, "gain", 1)).unwrap();
        behind.offer(change(&moment, "gain", 2)).unwrap();
        assert_eq!(begin(&mut behind, 100), []);
        assert_eq!(begin(&mut ahead, 800), []);
        assert_eq!(moment.decide(500), 800);
        assert_eq!(begin(&mut behind, 800), []);
        assert_eq!(begin(&mut behind, 801), [(800, 2)]);
        assert_eq!(begin(&mut ahead, 900), [(800, 1)]);
        assert_eq!(begin(&mut ahead, 1000), []);
    }

    #[test]
    fn begin_at_largest_timestamp_does_not_overflow() {
        let moment = Undecided::new();
        let mut changes = Changes::<i32>::default();
        changes.offer(change(&moment, "gain", 1)).unwrap();
        assert_eq!(changes.begin(u64::MAX, 256).count(), 0);
        moment.decide(0);
        assert_eq!(changes.begin(u64::MAX, 256).collect::<Vec<_>>(), [(MAX_TIMESTAMP, 1)]);
    }

    #[test]
    fn effective_timestamp_is_after_samples_begun_by_earlier_blocks() {
        let (moment, late) = (Undecided::new(), Undecided::new());
        let mut rebuilt = Changes::<i32>::default();
        rebuilt.offer(change(&moment, "gain", 1).behind(700)).unwrap();
        assert_eq!(moment.decide(0), 700);
        rebuilt.offer(change(&late, "gain", 2).behind(700)).unwrap();
        assert_eq!(late.decide(300), 700);
        assert_eq!(rebuilt.begin(700, 100).collect::<Vec<_>>(), [(700, 2)]);
    }

    #[test]
    fn cancelled_change_never_takes_effect() {
        let moment = Undecided::new();
        let mut changes = Changes::<i32>::default();
        changes.offer(change(&moment, "gain", 1)).unwrap();
        drop(moment);
        assert_eq!(begin(&mut changes, 1000), []);
        assert!(changes.queued.is_empty());
    }

    #[test]
    fn later_offer_replaces_values_from_its_timestamp_on() {
        let mut changes = Changes::<i32>::default();
        for (at, parameter, value) in [
            (100, "gain", 1),
            (300, "gain", 2),
            (300, "seed", 3),
            (500, "gain", 4),
            (200, "gain", 5),
        ] {
            let moment = Undecided::new();
            changes.offer(change(&moment, parameter, value)).unwrap();
            assert_eq!(moment.decide(at), at);
        }
        assert_eq!(begin(&mut changes, 1000), [(100, 1), (200, 5), (300, 3)]);
    }

    #[test]
    fn idle_block_keeps_only_last_value() {
        let mut changes = Changes::<i32>::default();
        for value in 0..3 * MAX_QUEUED as i32 {
            let moment = Undecided::new();
            changes.offer(change(&moment, "gain", value)).unwrap();
            moment.decide(0);
        }
        assert!(changes.queued.len() <= 2);
        assert_eq!(begin(&mut changes, 1), [(0, 3 * MAX_QUEUED as i32 - 1)]);
    }

    #[test]
    fn offer_rejects_more_than_256_values_and_unknown_types() {
        let moment = Undecided::new();
        let mut changes = Changes::<i32>::default();
        for _ in 0..MAX_QUEUED {
            changes.offer(change(&moment, "gain", 1)).unwrap();
        }
        let rejected = changes.offer(change(&moment, "gain", 1)).unwrap_err();
        assert_eq!(rejected.to_string(), "256 scheduled values are pending; the limit is 256");
        let other = Undecided::new().when().change(vec![("gain", Box::new("loud"))]);
        let rejected = Changes::<i32>::default().offer(other).unwrap_err();
        assert_eq!(rejected.to_string(), "`gain` is not one of its live parameters");
    }

    #[test]
    fn waiting_excludes_values_due_with_next_samples() {
        let mut changes = Changes::<i32>::default();
        let later = Undecided::new();
        changes.offer(change(&later, "gain", 1)).unwrap();
        assert_eq!(changes.waiting("gain"), 1);
        later.decide(100);
        assert_eq!(begin(&mut changes, 50), []);
        let at_once = Undecided::new();
        changes.offer(change(&at_once, "gain", 2)).unwrap();
        assert_eq!((changes.waiting("gain"), changes.waiting("seed")), (2, 0));
        assert_eq!(at_once.decide(0), 50);
        assert_eq!(changes.waiting("gain"), 1);
    }

    #[test]
    fn all_blocks_apply_change_at_same_timestamp() {
        for round in 0..200 {
            let moment = Undecided::new();
            let mut blocks = [Changes::default(), Changes::default()];
            blocks.iter_mut().for_each(|block| block.offer(change(&moment, "gain", 1)).unwrap());
            let work = |mut block: Changes<i32>| {
                // Effective timestamp of the change, and start of the samples in which it took effect.
                (0..).find_map(|n| {
                    let found = block.begin(10 * n, 10).next();
                    found.map(|(from, _)| (from, 10 * n))
                })
            };
            std::thread::scope(|scope| {
                let running = blocks.map(|block| scope.spawn(move || work(block)));
                for _ in 0..round {
                    std::hint::spin_loop();
                }
                let at = moment.decide(0);
                for block in running {
                    let (from, begun) = block.join().unwrap().unwrap();
                    assert_eq!(from, at);
                    assert!((begun..begun + 10).contains(&at), "{at} {begun}");
                }
            });
        }
    }

    #[test]
    fn timed_value_changes_at_set_timestamps() {
        let mut gain = Timed::new(0);
        gain.set(100, 1);
        gain.set(300, 3);
        gain.set(200, 2);
        assert_eq!([0, 99, 100, 199, 200, 1000].map(|t| *gain.at(t)), [0, 0, 1, 1, 2, 2]);
        assert_eq!([gain.run(0, 30, 9), gain.run(95, 5, 9), gain.run(200, 1, 9)], [4, 1, 9]);
        gain.advance(150);
        assert_eq!([0, 199, 200].map(|t| *gain.at(t)), [1, 1, 2]);
    }
}
