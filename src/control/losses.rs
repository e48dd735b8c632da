//! Lost data as events: blocks only count it, packet by packet.

use crate::runtime::{BlockStats, EventKind, Handle};
use std::collections::HashMap;
use std::time::Duration;

/// What is lost within this time becomes one event for each counter.
const INTERVAL: Duration = Duration::from_secs(1);

/// Tells of what the blocks of `run` lose, on a thread of its own, until the run ends.
pub(super) fn watch(run: Handle) {
    let watching = move || {
        let mut known = HashMap::new();
        // Once more after the end, for what was lost on the way there.
        while !run.wait_timeout(INTERVAL) {
            tell(&run, &mut known);
        }
        tell(&run, &mut known);
    };
    if let Err(error) = std::thread::Builder::new().name("losses".to_owned()).spawn(watching) {
        tracing::warn!("no thread that tells of lost data: {error}");
    }
}

fn tell(run: &Handle, known: &mut HashMap<(String, &'static str), u64>) {
    for BlockStats { name, counters, .. } in run.stats() {
        for counter in counters.iter().filter(|counter| counter.is_loss) {
            let count = counter.counter.get();
            let before = known.insert((name.clone(), counter.name), count).unwrap_or_default();
            if count > before {
                let text = format!("{} {}", count - before, counter.name);
                run.tell(EventKind::DataLost, Some(&name), text);
            }
        }
    }
}
