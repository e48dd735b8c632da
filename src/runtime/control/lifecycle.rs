//! Starts of the flowgraph. Its owner starts runs, on its own thread; [`Control`] only passes requests on.

use super::{Control, Current};
use crate::{Prepared, RunState, StartError};
use fxgraph_core::event::EventKind;
use fxgraph_core::kind::Registry;
use fxgraph_core::lock::lock;
use fxgraph_flowgraph::{BuildError, Plan};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Request to the owner of the run.
#[derive(Clone)]
pub enum Wanted {
    /// Start the prepared run.
    Start,
    /// Run this flowgraph instead.
    Other(Box<Plan>),
}

/// Reason why a flowgraph cannot be started now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStartable {
    /// The flowgraph has not ended yet.
    #[error("the flowgraph is still draining")]
    Draining,
    /// The flowgraph has ended and cannot be started again, because the program does not hold it.
    #[error("the flowgraph has ended, and the program is about to exit")]
    Over,
    /// Another flowgraph was requested and is being prepared.
    #[error("another flowgraph was requested before and is about to run")]
    Another,
}

/// Reason why a flowgraph cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum NotPrepared {
    /// A block could not be built, or there is not enough memory.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The built blocks cannot be connected.
    #[error(transparent)]
    Start(#[from] StartError),
}

#[derive(Default)]
pub(super) struct Requests {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Default)]
struct Asked {
    wanted: Option<Wanted>,
    /// Another flowgraph was requested and is not prepared yet.
    is_other_due: bool,
    /// The owner prepares another run after the end of one.
    is_held: bool,
    /// The owner starts no more runs.
    is_over: bool,
}

impl Requests {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        lock(&self.asked)
    }
}

impl Control {
    /// Requests the start of a prepared flowgraph; has no effect on a running one.
    pub fn request_start(&self) -> Result<(), NotStartable> {
        // Locked while the state is read, so that `note_started` sees a request that is based on that state.
        let mut asked = self.0.requests.asked();
        match self.state() {
            _ if asked.is_over => return Err(NotStartable::Over),
            RunState::Starting | RunState::Running => {}
            RunState::Draining => return Err(NotStartable::Draining),
            RunState::Ended | RunState::Failed if !asked.is_held => {
                return Err(NotStartable::Over);
            }
            RunState::Prepared | RunState::Ended | RunState::Failed => {
                asked.wanted.get_or_insert(Wanted::Start);
                self.0.requests.changed.notify_all();
            }
        }
        Ok(())
    }

    /// Notes that a run has started, which also fulfils requests made until now. Only for the owner of the run.
    pub fn note_started(&self) {
        let mut asked = self.0.requests.asked();
        match asked.wanted {
            Some(Wanted::Start) => asked.wanted = None,
            // Requested while this run was about to start.
            Some(Wanted::Other(_)) => self.0.run().request_stop(),
            None => {}
        }
    }

    /// Requests another flowgraph: the running one drains, then `plan` is built and started; if that fails, the
    /// old one is started again. Further requests are rejected until `plan` is prepared.
    pub fn request_other(&self, plan: Plan) -> Result<(), NotStartable> {
        let mut asked = self.0.requests.asked();
        if asked.is_over {
            return Err(NotStartable::Over);
        }
        if asked.is_other_due {
            return Err(NotStartable::Another);
        }
        asked.wanted = Some(Wanted::Other(Box::new(plan)));
        asked.is_other_due = true;
        self.0.requests.changed.notify_all();
        if self.state() != RunState::Prepared {
            self.0.run().request_stop();
        }
        Ok(())
    }

    /// Declares that another run is prepared whenever one has ended. Only for the owner of the run.
    pub fn hold(&self) {
        self.0.requests.asked().is_held = true;
    }

    /// Whether the flowgraph can be started again when it has ended.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.requests.asked().is_held
    }

    /// Waits up to `timeout` for a request. Only for the owner of the run.
    #[must_use]
    pub fn wait_wanted(&self, timeout: Duration) -> Option<Wanted> {
        let requests = &self.0.requests;
        let waited =
            requests.changed.wait_timeout_while(requests.asked(), timeout, |a| a.wanted.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.wanted.take()
    }

    /// Returns the request at the end of a run. Without a request, and if the flowgraph is not held, later requests
    /// are rejected. Only for the owner of the run.
    #[must_use]
    pub fn take_last_wanted(&self) -> Option<Wanted> {
        let mut asked = self.0.requests.asked();
        asked.is_over = asked.wanted.is_none() && !asked.is_held;
        asked.wanted.take()
    }

    /// Builds `plan`, whose kinds are in `registry`, and returns the prepared run with its control.
    pub fn prepared(plan: Plan, registry: Registry) -> Result<(Self, Prepared), NotPrepared> {
        let prepared = Prepared::new(plan.build()?)?;
        Ok((Self::new(plan, registry, prepared.handle()), prepared))
    }

    /// Builds `plan`, and makes its prepared run the current one. The run continues the events of the run before it,
    /// which has ended or was never started. Only for the owner of the run.
    pub fn prepare(&self, plan: Plan) -> Result<Prepared, NotPrepared> {
        let prepared = Prepared::after(&self.0.run(), plan.build()?)?;
        let run = prepared.handle();
        run.watch_losses();
        self.serve(&plan.updates);
        // Locked meanwhile, so that no shadow of the old run is added in between.
        let mut shadows = self.locked_shadows();
        let next = Current::new(plan, run);
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = next;
        shadows.clear();
        drop(shadows);
        self.0.kept.note_change();
        self.0.requests.asked().is_other_due = false;
        Ok(prepared)
    }

    /// Adds an event with the reason why a requested flowgraph does not run. Only for the owner of the run.
    pub fn tell_not_started(&self, why: &str) {
        self.0.run().tell(EventKind::NotStarted, None, why.to_owned());
    }
}
