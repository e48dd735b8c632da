//! Parameters that change while a block runs: values that hold from a timestamp on.
//!
//! A change may concern several blocks, which are at different timestamps of the stream. Each is
//! offered its new values together with one moment that all share; when all have accepted, the moment
//! is decided, and every block goes over to its values at that timestamp. [`Changes`] keeps what a
//! block was offered until then; [`Timed`] is a value that changes, also within a frame.

mod configurations;
mod moment;

pub use configurations::{ConfigChange, Configurations, Heard};
pub use moment::{Known, Undecided, When};

use crate::error::BlockError;
use std::any::Any;
use std::collections::VecDeque;

/// The value of a parameter as a running block wants it, made off the data path.
pub type LiveValue = Box<dyn Any + Send>;

/// Timestamps from here on cannot be asked for: blocks add to them.
pub const MAX_TIMESTAMP: u64 = 1 << 62;

/// Values that a block keeps for later at most.
pub const MAX_QUEUED: usize = 256;

/// New values of a running block's parameters, all from one moment on.
pub struct Change {
    when: When,
    values: Vec<(&'static str, LiveValue)>,
    begun: u64,
}

impl Change {
    /// The new value of `parameter`, if it is among them and of this type.
    #[must_use]
    pub fn value<T: 'static>(&self, parameter: &str) -> Option<&T> {
        let (_, value) = self.values.iter().find(|(name, _)| *name == parameter)?;
        value.downcast_ref()
    }

    /// Everything before this timestamp was worked on by other blocks in the place of this one: before a
    /// fault that the place survived, or a swap.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// The same change for a block in whose place others have begun to work on everything before
    /// timestamp `begun`.
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
    /// Once it is known.
    from: Option<u64>,
    parameter: &'static str,
    value: V,
}

/// What a block was offered and has not gone over to. `V` is an enum of the kind's live
/// parameters.
pub struct Changes<V> {
    /// The block has begun to work on everything before this timestamp.
    begun: u64,
    /// In the order in which they were offered.
    queued: Vec<Queued<V>>,
}

impl<V> Default for Changes<V> {
    fn default() -> Self {
        Self { begun: 0, queued: Vec::new() }
    }
}

impl<V: 'static> Changes<V> {
    /// Keeps `change` for its moment: what [`Block::retune`](crate::Block::retune) does. Refused if
    /// too much is kept already.
    pub fn offer(&mut self, change: Change) -> Result<(), BlockError> {
        // A block to which no frame comes keeps no more than what still has something to say.
        self.hear();
        let Change { when, values, begun } = change;
        if self.queued.len() + values.len() > MAX_QUEUED {
            let text = format!("it keeps {} values for later already", self.queued.len());
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
        // A block that was made anew has begun nothing, but its place has.
        self.begun = self.begun.max(begun);
        when.begin(self.begun);
        self.queued.append(&mut typed);
        Ok(())
    }

    /// Changes of `parameter` that wait for a timestamp: that do not come with whatever the block begins
    /// next.
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

    /// The block begins to work on the `samples` samples from timestamp `start` on: the values that
    /// take effect before their end, in order, each with the timestamp from which it holds.
    pub fn begin(&mut self, start: u64, samples: u64) -> impl Iterator<Item = (u64, V)> + use<V> {
        // A timestamp is what a sender says it is: the largest one must not stop the block.
        let until = start.saturating_add(samples);
        self.begun = self.begun.max(until);
        let mut due = Vec::new();
        if !self.queued.is_empty() {
            self.hear();
            let is_due = |queued: &mut Queued<V>| queued.from.is_some_and(|from| from < until);
            due.extend(self.queued.extract_if(.., is_due));
            // Of those for one timestamp the later offered comes later.
            due.sort_by_key(|queued| queued.from);
        }
        due.into_iter().map(|queued| (queued.from.unwrap_or_default(), queued.value))
    }

    /// Learns what was decided meanwhile.
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
        // A later word on a parameter replaces what was to come from there on.
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
    /// What follows, by the timestamp from which it holds.
    later: VecDeque<(u64, V)>,
}

impl<V> Timed<V> {
    /// A value that holds until another is set.
    pub fn new(value: V) -> Self {
        Self { now: value, later: VecDeque::new() }
    }

    /// `value` holds from timestamp `from` on; it replaces what was set for later.
    pub fn set(&mut self, from: u64, value: V) {
        self.later.retain(|(known, _)| *known < from);
        self.later.push_back((from, value));
    }

    /// The value at `timestamp`.
    pub fn at(&self, timestamp: u64) -> &V {
        let known = self.later.iter().rev().find(|(from, _)| *from <= timestamp);
        known.map_or(&self.now, |(_, value)| value)
    }

    /// Forgets what held before `timestamp` only.
    pub fn advance(&mut self, timestamp: u64) {
        while self.later.front().is_some_and(|(from, _)| *from <= timestamp) {
            if let Some((_, value)) = self.later.pop_front() {
                self.now = value;
            }
        }
    }

    /// How many timestamps from `start` on, `step` apart and at most `most`, have one value.
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
    fn a_moment_lies_behind_everything_that_was_begun() {
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
    fn the_largest_timestamp_is_one_as_any_other() {
        let moment = Undecided::new();
        let mut changes = Changes::<i32>::default();
        changes.offer(change(&moment, "gain", 1)).unwrap();
        assert_eq!(changes.begin(u64::MAX, 256).count(), 0);
        moment.decide(0);
        assert_eq!(changes.begin(u64::MAX, 256).collect::<Vec<_>>(), [(MAX_TIMESTAMP, 1)]);
    }

    #[test]
    fn changes_of_a_rebuilt_block_lie_behind_what_its_place_has_begun() {
        let (moment, late) = (Undecided::new(), Undecided::new());
        let mut rebuilt = Changes::<i32>::default();
        rebuilt.offer(change(&moment, "gain", 1).behind(700)).unwrap();
        assert_eq!(moment.decide(0), 700);
        rebuilt.offer(change(&late, "gain", 2).behind(700)).unwrap();
        assert_eq!(late.decide(300), 700);
        assert_eq!(rebuilt.begin(700, 100).collect::<Vec<_>>(), [(700, 2)]);
    }

    #[test]
    fn what_is_given_up_never_takes_effect() {
        let moment = Undecided::new();
        let mut changes = Changes::<i32>::default();
        changes.offer(change(&moment, "gain", 1)).unwrap();
        drop(moment);
        assert_eq!(begin(&mut changes, 1000), []);
        assert!(changes.queued.is_empty());
    }

    #[test]
    fn a_later_word_replaces_what_was_queued_from_there_on() {
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
    fn idle_block_keeps_the_last_value_of_many() {
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
    fn the_number_of_queued_values_is_bounded() {
        let moment = Undecided::new();
        let mut changes = Changes::<i32>::default();
        for _ in 0..MAX_QUEUED {
            changes.offer(change(&moment, "gain", 1)).unwrap();
        }
        let refused = changes.offer(change(&moment, "gain", 1)).unwrap_err();
        assert_eq!(refused.to_string(), "it keeps 256 values for later already");
        let other = Undecided::new().when().change(vec![("gain", Box::new("loud"))]);
        let refused = Changes::<i32>::default().offer(other).unwrap_err();
        assert_eq!(refused.to_string(), "`gain` is not one of its live parameters");
    }

    #[test]
    fn what_comes_with_the_next_samples_does_not_wait() {
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
    fn no_block_is_on_both_sides_of_a_moment() {
        for round in 0..200 {
            let moment = Undecided::new();
            let mut blocks = [Changes::default(), Changes::default()];
            blocks.iter_mut().for_each(|block| block.offer(change(&moment, "gain", 1)).unwrap());
            let work = |mut block: Changes<i32>| {
                // Where the change showed, and where the piece of work began that it showed in.
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
    fn a_timed_value_changes_where_it_was_set_to() {
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
