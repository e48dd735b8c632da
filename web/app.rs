//! What all handlers share.

use crate::live::Live;
use fxgraph::Control;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Streams of events that are open at once; each holds a connection for as long as the client likes.
const STREAMS: usize = 16;

/// What all handlers share; cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub control: Control,
    pub live: Arc<Live>,
    pub streams: Arc<Semaphore>,
}

impl App {
    pub fn new(control: Control) -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS));
        Self { control, live: Arc::default(), streams }
    }
}
