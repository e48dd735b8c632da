//! Overload: which intervals of their streams live sources drop.
//!
//! A live source that does not keep up drops intervals of its stream as a whole, so that the rest stays
//! complete. Sources that feed one block which needs all of its inputs drop the same intervals: otherwise
//! each one would spoil intervals that the others have received.

use crate::lock::lock;
use crate::timelines::Timelines;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Used fraction of a receive buffer, of any thread of the sources, from which an interval is dropped.
const FULL: f32 = 0.6;
/// Number of intervals of which it is known whether they are dropped: more than a window has.
const KNOWN: usize = 1024;

/// An interval of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Samples per second.
    pub adc_sample_rate_hz: f64,
    /// Length in samples.
    pub samples: u64,
    /// It begins at the timestamp `number` x `samples`.
    pub number: u64,
}

/// Intervals that the live sources of one group drop.
#[derive(Clone, Debug, Default)]
pub struct Overload(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Used fractions of the receive buffers, as bits.
    fills: Vec<Weak<AtomicU32>>,
    /// The newest intervals, and whether they are dropped.
    known: VecDeque<(Interval, bool)>,
}

impl State {
    fn find(&mut self, interval: Interval) -> Option<&mut bool> {
        self.known.iter_mut().rev().find(|(known, _)| *known == interval).map(|(_, drops)| drops)
    }

    fn add(&mut self, interval: Interval, drops: bool) {
        if self.known.len() == KNOWN {
            self.known.pop_front();
        }
        self.known.push_back((interval, drops));
    }
}

impl Overload {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Adds a receiving thread.
    #[must_use]
    pub fn join(&self) -> Fill {
        let fill = Arc::new(AtomicU32::new(0));
        let mut state = self.state();
        state.fills.retain(|fill| fill.strong_count() > 0);
        if state.fills.is_empty() {
            // Decisions of earlier sources: the timestamps may begin again.
            state.known.clear();
        }
        state.fills.push(Arc::downgrade(&fill));
        Fill(fill)
    }

    /// Whether `interval` is dropped. The first source that asks decides for all.
    #[must_use]
    pub fn drops(&self, interval: Interval) -> bool {
        let mut state = self.state();
        if let Some(drops) = state.find(interval) {
            return *drops;
        }
        let fills = state.fills.iter().filter_map(Weak::upgrade);
        let drops = fills.map(|f| f32::from_bits(f.load(Ordering::Relaxed))).any(|f| f >= FULL);
        state.add(interval, drops);
        drops
    }

    /// Drops what no source has begun of `interval`.
    pub fn drop_rest(&self, interval: Interval) {
        let mut state = self.state();
        match state.find(interval) {
            Some(drops) => *drops = true,
            None => state.add(interval, true),
        }
    }
}

/// Used fraction of the receive buffers of a thread.
#[derive(Debug)]
pub struct Fill(Arc<AtomicU32>);

impl Fill {
    /// Sets the fraction, 0 to 1.
    pub fn set(&self, fraction: f32) {
        self.0.store(fraction.to_bits(), Ordering::Relaxed);
    }
}

/// The groups of a flowgraph, by name, and the timelines of all of its sources. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Overloads {
    groups: Arc<Mutex<HashMap<String, Overload>>>,
    timelines: Timelines,
}

impl Overloads {
    /// Group `name`.
    #[must_use]
    pub fn group(&self, name: &str) -> Overload {
        let mut groups = lock(&self.groups);
        groups.entry(name.to_owned()).or_default().clone()
    }

    /// Timelines of the live sources.
    #[must_use]
    pub fn timelines(&self) -> &Timelines {
        &self.timelines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(number: u64) -> Interval {
        Interval { adc_sample_rate_hz: 1e9, samples: 1 << 20, number }
    }

    #[test]
    fn the_fullest_buffer_decides_for_all_sources() {
        let overload = Overload::default();
        let (fast, slow) = (overload.join(), overload.join());
        fast.set(0.1);
        slow.set(0.5);
        assert!(!overload.drops(interval(1)));
        slow.set(0.8);
        assert!(!overload.drops(interval(1)), "decided");
        assert!(overload.drops(interval(2)));
        slow.set(0.0);
        assert!(overload.drops(interval(2)), "decided");
        assert!(!overload.drops(interval(3)));
        let other = Interval { samples: 1 << 21, ..interval(4) };
        slow.set(1.0);
        drop(slow);
        assert!(!overload.drops(other), "a source that has ended does not count");
    }

    #[test]
    fn rest_of_an_interval_is_dropped_by_all_sources() {
        let overload = Overload::default();
        assert!(!overload.drops(interval(1)));
        overload.drop_rest(interval(1));
        overload.drop_rest(interval(2));
        assert_eq!([1, 2, 3].map(|n| overload.drops(interval(n))), [true, true, false]);
    }

    #[test]
    fn decisions_end_with_their_sources() {
        let overload = Overload::default();
        let first = overload.join();
        let second = overload.join();
        overload.drop_rest(interval(1));
        drop(first);
        let third = overload.join();
        assert!(overload.drops(interval(1)));
        drop((second, third));
        let _fourth = overload.join();
        assert!(!overload.drops(interval(1)));
    }

    #[test]
    fn number_of_known_intervals_is_bounded() {
        let overload = Overload::default();
        (0..3 * KNOWN as u64).for_each(|number| overload.drop_rest(interval(number)));
        assert_eq!(overload.state().known.len(), KNOWN);
        assert!(overload.drops(interval(3 * KNOWN as u64 - 1)));
    }
}
