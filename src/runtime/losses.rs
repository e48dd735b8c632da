//! Lost data as events: blocks only count it, packet by packet.

use super::report::BlockStats;
use super::run::lock;
use fxgraph_core::event::{EventKind, Events};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What was told of a counter, and when.
type Told = HashMap<(String, &'static str), (u64, Instant)>;

/// What was told of the losses of a run.
#[derive(Default)]
pub(super) struct Losses(Mutex<Told>);

impl Losses {
    /// Tells of what counters have counted of which nothing was told for `interval`.
    pub fn tell(
        &self,
        stats: impl FnOnce() -> Vec<BlockStats>,
        events: &Events,
        interval: Duration,
    ) {
        // The figures of whoever comes second are the later ones.
        let mut told = lock(&self.0);
        for BlockStats { name, counters, .. } in stats() {
            for counter in counters.iter().filter(|counter| counter.is_loss) {
                let count = counter.counter.get();
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
