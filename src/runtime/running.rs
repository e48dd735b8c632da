//! Starting, watching and ending a run.

use super::assembly::{Assembly, Options};
use super::fsdr;
use super::report::{BlockStats, Report, StartError};
use super::run::{Cell, Gate, Run};
use std::sync::Arc;
use std::time::Duration;

/// Starts every block, then lets all of them work. Returns when all have started, or, if one
/// could not, when all have finished again.
///
/// Without a `tracing` subscriber of the program an inert one is installed; a program that wants
/// its own sets it first.
pub fn start(assembly: Assembly, options: Options) -> Result<Running, StartError> {
    let connections = assembly.connections()?;
    let run = Run::new(assembly.parts.iter().map(Cell::new).collect());
    let running = Running { handle: Handle { run: Arc::clone(&run) } };
    if assembly.parts.is_empty() {
        run.set_ended(None);
        return Ok(running);
    }
    fsdr::launch(assembly, &connections, options, &run)?;
    if run.gate() == Gate::Cancelled {
        return Err(StartError::Blocks(run.wait().failures));
    }
    Ok(running)
}

/// A started flowgraph. Dropping it aborts the run.
pub struct Running {
    handle: Handle,
}

/// Watches and ends a run, from any thread; cheap to clone, harmless after the end.
#[derive(Clone)]
pub struct Handle {
    run: Arc<Run>,
}

impl Handle {
    /// Figures of every block, now.
    #[must_use]
    pub fn stats(&self) -> Vec<BlockStats> {
        self.run.stats()
    }

    /// Asks for a draining stop: sources finish, and what is queued still flows to its end.
    pub fn request_stop(&self) {
        self.run.request_stop();
    }

    /// Ends the run at once; queued frames are dropped, every block's `finish` still runs.
    pub fn abort(&self) {
        self.run.abort();
    }

    /// Whether a stop was asked for, by a user or by a failure.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.run.is_stopping()
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.run.is_ended()
    }

    /// Waits until the run has ended or `timeout` has passed; `true` if it has ended.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.run.wait_timeout(timeout)
    }
}

impl Running {
    /// A handle for signal handlers, progress displays and control.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// See [`Handle::stats`].
    #[must_use]
    pub fn stats(&self) -> Vec<BlockStats> {
        self.handle.stats()
    }

    /// See [`Handle::request_stop`].
    pub fn request_stop(&self) {
        self.handle.request_stop();
    }

    /// See [`Handle::abort`].
    pub fn abort(&self) {
        self.handle.abort();
    }

    /// See [`Handle::is_ended`].
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.handle.is_ended()
    }

    /// See [`Handle::wait_timeout`].
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.handle.wait_timeout(timeout)
    }

    /// Waits until the run has ended.
    #[must_use]
    pub fn wait(self) -> Report {
        self.handle.run.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_ended() {
            self.abort();
        }
    }
}
