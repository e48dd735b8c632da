//! Counts of the events of a flowgraph.

use fxgraph::Control;
use fxgraph::lock::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Number of events by kind, including those no longer stored in the run's log.
#[derive(Default)]
pub(crate) struct EventCounts(Mutex<(u64, BTreeMap<&'static str, u64>)>);

impl EventCounts {
    /// Returns the counts, after adding the events since the last call.
    pub fn counts(&self, control: &Control) -> BTreeMap<&'static str, u64> {
        let mut counted = lock(&self.0);
        for event in control.events_since(counted.0) {
            counted.0 = event.sequence;
            *counted.1.entry(event.kind.name()).or_default() += 1;
        }
        counted.1.clone()
    }
}
