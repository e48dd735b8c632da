//! The block: matches the inputs, and gives dumps to the thread that writes.

use super::Uvh5Sink;
use super::matching::Matching;
use super::ports::Layout;
use super::queue::Queue;
use super::writing::Writing;
use crate::io::files::FileParameters;
use crate::io::files::output_file::try_to_write;
use fxgraph::threads::Threads;
use fxgraph::{Block, BlockError, Env, Io, Next, Ports};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The running block.
pub struct Sink {
    name: String,
    files: FileParameters,
    matching: Matching,
    queue: Arc<Queue>,
    /// State of the thread before it starts.
    writing: Option<Writing>,
    threads: Threads,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    /// Creates a sink for checked `ports`.
    pub fn new(mut parameters: Uvh5Sink, ports: &Ports, layout: &Layout, env: &Env) -> Self {
        parameters.files = parameters.files.of(env);
        let queue = Arc::new(Queue::default());
        let clock = &ports.inputs[0].clock;
        let seconds = parameters.wait_seconds;
        let matching = Matching::new(ports.inputs.len(), clock, seconds, &env.counters);
        let files = parameters.files.clone();
        let writing = Writing::new(parameters, ports, layout, env, Arc::clone(&queue));
        Self {
            name: env.name.clone(),
            files,
            matching,
            queue,
            writing: Some(writing),
            threads: env.counters.threads().clone(),
            thread: None,
        }
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        // Reports a path that cannot be written before the flowgraph runs. Nothing is written yet: if
        // another block fails to start, an earlier file must survive.
        try_to_write(&self.files.path, self.files.overwrite)?;
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let thread = self
            .threads
            .spawn("write", &self.name, move || writing.run())
            .map_err(|error| BlockError::new("cannot start the writing thread").because(error))?;
        self.thread = Some(thread);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if let Some(error) = self.queue.failure() {
            return Err(error);
        }
        if !self.queue.has_room() {
            let is_over = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            if !is_over {
                return Ok(Next::Wait);
            }
            // It may have failed since the call above.
            let ended = || BlockError::new("the writing thread ended without a report");
            return Err(self.queue.failure().unwrap_or_else(ended));
        }
        match self.matching.take(io.inputs) {
            Ok(dump) => self.queue.push(dump).map(|()| Next::Again),
            Err(next) => Ok(next),
        }
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.queue.end();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let panicked = thread.join().is_err();
        match self.queue.failure() {
            Some(error) => Err(error),
            None if panicked => Err(BlockError::new("the writing thread ended without a report")),
            None => Ok(()),
        }
    }
}
