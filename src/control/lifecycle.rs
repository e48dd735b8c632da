//! Starts of the flowgraph. Whoever owns its run makes them, on a thread of its own; control only asks.

use super::Control;
use crate::flowgraph::{BuildError, Plan};
use crate::kind::Registry;
use crate::runtime::{EventKind, Prepared, RunState, StartError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the owner of the run is to do.
#[derive(Clone)]
pub enum Wanted {
    /// Start what is prepared.
    Start,
    /// Run this flowgraph instead.
    Other(Box<Plan>),
}

/// Why a flowgraph cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStartable {
    /// It has not come to its end.
    #[error("it still drains")]
    Draining,
    /// It was not started to be held.
    #[error("it has ended, and the program with it")]
    Over,
}

/// Why a flowgraph cannot be started, not even when that is asked for.
#[derive(Debug, thiserror::Error)]
pub enum NotPrepared {
    /// A block, or memory, could not be had.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// What was built does not fit together.
    #[error(transparent)]
    Start(#[from] StartError),
}

#[derive(Default)]
pub(super) struct Requests {
    wanted: Mutex<Option<Wanted>>,
    changed: Condvar,
    /// The owner prepares another run when one has ended.
    is_held: AtomicBool,
}

impl Requests {
    fn wanted(&self) -> MutexGuard<'_, Option<Wanted>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    /// Asks for the start of a flowgraph that is prepared; one that runs stays as it is.
    pub fn request_start(&self) -> Result<(), NotStartable> {
        // Held over the look, so that `note_started` finds what is asked for on the strength of it.
        let mut wanted = self.0.requests.wanted();
        match self.state() {
            RunState::Starting | RunState::Running => {}
            RunState::Draining => return Err(NotStartable::Draining),
            RunState::Ended | RunState::Failed if !self.is_held() => {
                return Err(NotStartable::Over);
            }
            RunState::Prepared | RunState::Ended | RunState::Failed => {
                wanted.get_or_insert(Wanted::Start);
                self.0.requests.changed.notify_all();
            }
        }
        Ok(())
    }

    /// Says that a run has started: one that was asked for again until now is this one. By the owner of
    /// the run.
    pub fn note_started(&self) {
        let mut wanted = self.0.requests.wanted();
        if matches!(*wanted, Some(Wanted::Start)) {
            *wanted = None;
        }
    }

    /// Asks for another flowgraph: the one that runs drains and the other one is built and started, or,
    /// if that cannot be, the one before again.
    pub fn request_other(&self, plan: Plan) {
        self.0.requests.wanted().replace(Wanted::Other(Box::new(plan)));
        self.0.requests.changed.notify_all();
        if self.state() != RunState::Prepared {
            self.0.run().request_stop();
        }
    }

    /// Says that another run is prepared whenever one has ended. By the owner of the run.
    pub fn hold(&self) {
        self.0.requests.is_held.store(true, Ordering::Release);
    }

    /// Whether the flowgraph can be started again when it has ended.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.requests.is_held.load(Ordering::Acquire)
    }

    /// What is asked for, if something is within `timeout`. By the owner of the run.
    #[must_use]
    pub fn wait_wanted(&self, timeout: Duration) -> Option<Wanted> {
        let requests = &self.0.requests;
        let waited =
            requests.changed.wait_timeout_while(requests.wanted(), timeout, |w| w.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }

    /// Builds `plan`, made of the kinds in `registry`: a run that is about to start, under control.
    pub fn prepared(plan: Plan, registry: Registry) -> Result<(Self, Prepared), NotPrepared> {
        let prepared = Prepared::new(plan.build()?)?;
        Ok((Self::new(plan, registry, prepared.handle()), prepared))
    }

    /// Builds `plan` and goes over to a run of it that is about to start; its events follow those of
    /// the run before, which has ended or was never started. By the owner of the run.
    pub fn prepare(&self, plan: Plan) -> Result<Prepared, NotPrepared> {
        let prepared = Prepared::after(&self.0.run(), plan.build()?)?;
        let run = prepared.handle();
        self.locked_shadows().clear();
        self.0.steady_state.store(0, Ordering::Release);
        run.watch_losses();
        *self.0.plan.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(plan);
        *self.0.run.write().unwrap_or_else(PoisonError::into_inner) = run;
        Ok(prepared)
    }

    /// Notes why another flowgraph was asked for and does not run. By the owner of the run.
    pub fn tell_not_started(&self, why: &str) {
        self.0.run().tell(EventKind::NotStarted, None, why.to_owned());
    }
}
