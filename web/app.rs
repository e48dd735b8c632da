//! What all handlers share.

use crate::live::Live;
use crate::taps::Taps;
use fxgraph::Control;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Streams of events that are open at once; each holds a connection for as long as the client likes.
const STREAMS: usize = 16;

/// What all handlers share; cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub control: Control,
    pub live: Arc<Live>,
    pub events: Arc<EventCounts>,
    pub streams: Arc<Semaphore>,
    pub taps: Taps,
}

impl App {
    pub fn new(control: Control) -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS));
        Self {
            control,
            live: Arc::default(),
            events: Arc::default(),
            streams,
            taps: Taps::default(),
        }
    }
}

/// Events so far by kind, also of those that the run's log has forgotten.
#[derive(Default)]
pub(crate) struct EventCounts(Mutex<(u64, BTreeMap<&'static str, u64>)>);

impl EventCounts {
    /// The counts, with what happened since they were asked for last.
    pub fn counts(&self, control: &Control) -> BTreeMap<&'static str, u64> {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for event in control.events_since(counted.0) {
            counted.0 = event.sequence;
            *counted.1.entry(event.kind.name()).or_default() += 1;
        }
        counted.1.clone()
    }
}
