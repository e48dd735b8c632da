//! Starts of the flowgraph. Whoever owns its run makes them, on a thread of its own; control only asks.

use super::{Control, Current};
use crate::{Prepared, RunState, StartError};
use fxgraph_core::event::EventKind;
use fxgraph_core::kind::Registry;
use fxgraph_flowgraph::{BuildError, Plan};
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
    /// Another flowgraph was asked for, and is being prepared.
    #[error("another flowgraph was asked for already, and is about to run")]
    Another,
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
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Default)]
struct Asked {
    wanted: Option<Wanted>,
    /// Another flowgraph was asked for, and has not been prepared.
    is_other_due: bool,
    /// The owner prepares another run when one has ended.
    is_held: bool,
    /// The owner starts nothing any more.
    is_over: bool,
}

impl Requests {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    /// Asks for the start of a flowgraph that is prepared; one that runs stays as it is.
    pub fn request_start(&self) -> Result<(), NotStartable> {
        // Held over the look, so that `note_started` finds what is asked for on the strength of it.
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

    /// Says that a run has started: one that was asked for again until now is this one. By the owner of
    /// the run.
    pub fn note_started(&self) {
        let mut asked = self.0.requests.asked();
        match asked.wanted {
            Some(Wanted::Start) => asked.wanted = None,
            // It was asked for while this run was about to start.
            Some(Wanted::Other(_)) => self.0.run().request_stop(),
            None => {}
        }
    }

    /// Asks for another flowgraph: the one that runs drains and the other one is built and started, or,
    /// if that cannot be, the one before again. One at a time: until it is prepared no other is taken.
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

    /// Says that another run is prepared whenever one has ended. By the owner of the run.
    pub fn hold(&self) {
        self.0.requests.asked().is_held = true;
    }

    /// Whether the flowgraph can be started again when it has ended.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.requests.asked().is_held
    }

    /// What is asked for, if something is within `timeout`. By the owner of the run.
    #[must_use]
    pub fn wait_wanted(&self, timeout: Duration) -> Option<Wanted> {
        let requests = &self.0.requests;
        let waited =
            requests.changed.wait_timeout_while(requests.asked(), timeout, |a| a.wanted.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.wanted.take()
    }

    /// What is asked for when a run has ended. If that is nothing and the flowgraph is not held, nothing is
    /// started any more, and whoever asks for it is told so. By the owner of the run.
    #[must_use]
    pub fn take_last_wanted(&self) -> Option<Wanted> {
        let mut asked = self.0.requests.asked();
        asked.is_over = asked.wanted.is_none() && !asked.is_held;
        asked.wanted.take()
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
        run.watch_losses();
        // Held meanwhile: a shadow of the run before cannot come in between.
        let mut shadows = self.locked_shadows();
        let next = Current { plan: Arc::new(plan), run, steady_state: 0 };
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = next;
        shadows.clear();
        drop(shadows);
        self.0.requests.asked().is_other_due = false;
        Ok(prepared)
    }

    /// Notes why another flowgraph was asked for and does not run. By the owner of the run.
    pub fn tell_not_started(&self, why: &str) {
        self.0.run().tell(EventKind::NotStarted, None, why.to_owned());
    }
}
