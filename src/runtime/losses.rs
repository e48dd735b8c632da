//! Events for missing and dropped data, which blocks only count packet by packet.

use super::cell::DROPPED_AT_FULL_QUEUE;
use super::report::BlockStats;
use fxgraph_core::event::{EventKind, Events};
use fxgraph_core::lock::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Shortest time between two events of a queue that drops frames as its `when_full` says: a branch that is always too
/// slow must not displace all other events.
const BY_INTENTION: Duration = Duration::from_mins(1);

/// Last reported value and time of each counter, by block and counter.
type Told = HashMap<(String, &'static str), (u64, Instant)>;

/// Reports of the missing and dropped data of a run.
#[derive(Default)]
pub(super) struct Losses(Mutex<Told>);

impl Losses {
    /// Adds an event for each counter that has grown since its last event, at least `interval` ago.
    pub fn tell(
        &self,
        stats: impl FnOnce() -> Vec<BlockStats>,
        events: &Events,
        interval: Duration,
    ) {
        // Read inside the lock: of two threads, the second one then has the later statistics.
        let mut told = lock(&self.0);
        for BlockStats { name, counters, .. } in stats() {
            for counter in counters.iter().filter(|counter| counter.is_loss) {
                let count = counter.counter.get();
                let is_intended = counter.name == DROPPED_AT_FULL_QUEUE;
                // The end of the run reports the rest of each counter.
                let is_end = interval.is_zero();
                let interval =
                    if is_intended && !is_end { interval.max(BY_INTENTION) } else { interval };
                let known = told.get(&(name.clone(), counter.name)).copied();
                let before = known.map_or(0, |(before, _)| before);
                if count == before || known.is_some_and(|(_, when)| when.elapsed() < interval) {
                    continue;
                }
                told.insert((name.clone(), counter.name), (count, Instant::now()));
                let text = format!("{} {}", count - before, counter.name);
                events.add(EventKind::DataLost, Some(&name), text);
            }
        }
    }
}
