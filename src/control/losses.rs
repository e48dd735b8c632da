//! Lost data as events: blocks only count it, packet by packet.

use crate::runtime::{BlockStats, EventKind, Handle};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(100);
/// What a counter counts within this time after an event becomes one event.
const INTERVAL: Duration = Duration::from_secs(1);

/// What was told of a counter, and when.
type Told = HashMap<(String, &'static str), (u64, Instant)>;

/// Tells of what the blocks of `run` lose, on a thread of its own, until the run ends.
pub(super) fn watch(run: Handle) {
    let watching = move || {
        let mut told = Told::new();
        // Once more after the end, for what was lost on the way there.
        while !run.wait_timeout(LOOK) {
            tell(&run, &mut told, INTERVAL);
        }
        tell(&run, &mut told, Duration::ZERO);
    };
    if let Err(error) = std::thread::Builder::new().name("losses".to_owned()).spawn(watching) {
        tracing::warn!("no thread that tells of lost data: {error}");
    }
}

/// Tells of what counters have counted of which nothing was told for `interval`.
fn tell(run: &Handle, told: &mut Told, interval: Duration) {
    for BlockStats { name, counters, .. } in run.stats() {
        for counter in counters.iter().filter(|counter| counter.is_loss) {
            let count = counter.counter.get();
            let known = told.get(&(name.clone(), counter.name)).copied();
            let before = known.map_or(0, |(before, _)| before);
            if count == before || known.is_some_and(|(_, when)| when.elapsed() < interval) {
                continue;
            }
            told.insert((name.clone(), counter.name), (count, Instant::now()));
            let text = format!("{} {}", count - before, counter.name);
            run.tell(EventKind::DataLost, Some(&name), text);
        }
    }
}
