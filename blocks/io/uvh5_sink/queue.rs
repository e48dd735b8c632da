//! Queue between the block and the thread that writes dumps.

use super::QUEUE;
use fxgraph::lock::lock;
use fxgraph::{BlockError, Frame};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A dump of all inputs; `None` for inputs that lack it.
pub struct Dump {
    /// Time of its beginning, in ADC samples.
    pub timestamp: u64,
    /// Frames, by number of the input.
    pub frames: Vec<Option<Arc<Frame>>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Dump>,
    /// No further dumps arrive.
    has_ended: bool,
    failure: Option<BlockError>,
    has_failed: bool,
}

/// Queue between the block and its thread.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    moved: Condvar,
}

/// Next action of the thread.
pub enum Step {
    /// Writes a dump.
    Write(Dump),
    /// The time is over without another dump.
    Idle,
    /// No dump follows.
    End,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether the thread takes another dump; it wakes the block when it does again.
    pub fn has_room(&self) -> bool {
        let state = self.state();
        state.waiting.len() < QUEUE || state.has_failed
    }

    /// Appends a dump.
    ///
    /// # Errors
    /// If writing has failed; the dump is dropped.
    pub fn push(&self, dump: Dump) -> Result<(), BlockError> {
        let mut state = self.state();
        if state.has_failed {
            let before =
                || BlockError::new("dumps are dropped since the file could not be written");
            return Err(state.failure.take().unwrap_or_else(before));
        }
        state.waiting.push_back(dump);
        self.moved.notify_all();
        Ok(())
    }

    /// The cause of a failure that has not been reported.
    pub fn failure(&self) -> Option<BlockError> {
        self.state().failure.take()
    }

    /// Ends the thread after the dumps that wait.
    pub fn end(&self) {
        self.state().has_ended = true;
        self.moved.notify_all();
    }

    /// Reports a failure, and drops the dumps that wait. Later failures follow from the first one.
    pub fn fail(&self, error: BlockError) {
        let mut state = self.state();
        if !state.has_failed {
            state.has_failed = true;
            state.failure = Some(error);
        }
        state.waiting.clear();
        self.moved.notify_all();
    }

    /// Whether writing has failed.
    pub fn has_failed(&self) -> bool {
        self.state().has_failed
    }

    /// Waits for a dump, at most for `limit`.
    pub fn next(&self, limit: Option<Duration>) -> Step {
        let mut state = self.state();
        loop {
            if let Some(dump) = state.waiting.pop_front() {
                return Step::Write(dump);
            }
            if state.has_ended || state.has_failed {
                return Step::End;
            }
            state = match limit {
                None => self.moved.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(limit) => {
                    let waited = self.moved.wait_timeout(state, limit);
                    let (state, result) = waited.unwrap_or_else(PoisonError::into_inner);
                    if result.timed_out()
                        && state.waiting.is_empty()
                        && !state.has_ended
                        && !state.has_failed
                    {
                        return Step::Idle;
                    }
                    state
                }
            };
        }
    }
}
