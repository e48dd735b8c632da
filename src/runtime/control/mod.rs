//! Control of a running flowgraph: the interface for the terminal, REST and the web page.
//!
//! [`Control`] is a handle that any thread may hold. Monitoring does not slow the flowgraph. Commands
//! to a block run between two of its frames, and the caller waits no longer than a time limit.
//!
//! # Layout
//! - [`Change`]: differences and method of a change of one block, before it is made
//! - `swap`: changes of one block
//! - `shadow`: a second block on the same frames, for comparison
//! - `lifecycle`: starts
//! - `requests`: live updates that blocks request
//! - `record`: recordings of outputs, including frames from before an event
//! - `tap`: probes of outputs
//! - `live_update`: live updates of parameters
//! - `state`: live values that outlive the process
//! - `take_back`: live updates that are taken back
//! - `in_force`: values in force while others are scheduled
//! - [`Update`]: differences between a whole flowgraph and the running one, and the step for each block
//! - `apply`: atomic updates to another flowgraph
//! - `turns`: order of changes

mod apply;
mod change;
mod errors;
mod in_force;
mod lifecycle;
mod live_update;
mod record;
mod requests;
mod shadow;
mod state;
mod swap;
mod take_back;
mod tap;
mod turns;
mod update;

pub use apply::{Applied, Updated};
pub use change::{Change, Difference, Way};
pub use errors::{Interim, SwapError, UpdateError};
pub use fxgraph_core::edge::TapFrame;
pub use fxgraph_flowgraph::{Rejected, Replaced};
pub use lifecycle::{NotPrepared, NotStartable, Wanted};
pub use live_update::{LiveUpdate, LiveUpdateError, Prepared};
pub use record::RecordError;
pub use shadow::ShadowReport;
pub use state::Saving;
pub use take_back::TakenBack;
pub use tap::{Tap, TapError, TapOptions, Tapped};
pub use update::{BlockUpdate, Step, Update};

use crate::{BlockStats, Failure, Handle, RunState, Stall};
use fxgraph_core::access::ClientFiles;
use fxgraph_core::event::{Event, EventKind};
use fxgraph_core::kind::{Registry, Rejection};
use fxgraph_core::port::Clock;
use fxgraph_flowgraph::{Plan, ScheduledValue};
use in_force::Newest;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// Handle to control a flowgraph; cheap to clone, valid after the end.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

struct Inner {
    current: RwLock<Current>,
    registry: Registry,
    requests: lifecycle::Requests,
    /// Order of the callers that want to change the flowgraph.
    turns: turns::Turns,
    shadows: Mutex<Vec<shadow::Shadowed>>,
    /// Directory of requested recordings, if recordings are enabled.
    recordings: OnceLock<record::Place>,
    /// Number of recorders requested so far.
    recorders_made: AtomicU64,
    /// Number of changes of the configuration so far.
    changes: AtomicU64,
    /// Live values that outlive the process.
    kept: state::Kept,
}

/// The running flowgraph: its plan and its run. A new start replaces both.
#[derive(Clone)]
struct Current {
    plan: Arc<Plan>,
    /// Hash of the configuration with which the run began.
    began_with: Arc<str>,
    run: Handle,
    /// Timestamp from which all output reflects the changes that are not scheduled in the plan: swaps, and values that
    /// have taken effect.
    steady_state: u64,
    /// Largest effective timestamp, by clock, of live updates that took effect as soon as they could: blocks have begun
    /// the samples before.
    begun: Newest,
}

impl Inner {
    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn run(&self) -> Handle {
        self.current().run
    }

    /// Replaces the plan `before` by `after`; `false` if another plan is current, so that a change that outlives its
    /// run does not affect the next run. From timestamp `steady_state` on all output reflects `after`, but for the
    /// values that are scheduled in `after`.
    fn commit(&self, before: &Arc<Plan>, after: Arc<Plan>, steady_state: u64) -> bool {
        self.commit_begun(before, after, steady_state, None)
    }

    /// Makes a [`commit`](Self::commit); blocks with the clock in `begun` have begun all samples before the timestamp.
    fn commit_begun(
        &self,
        before: &Arc<Plan>,
        after: Arc<Plan>,
        steady_state: u64,
        begun: Option<(Clock, u64)>,
    ) -> bool {
        let steady_state = steady_state.max(self.current().passed());
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let is_current = Arc::ptr_eq(&current.plan, before);
        if is_current {
            current.plan = Arc::clone(&after);
            current.steady_state = current.steady_state.max(steady_state);
            begun.iter().for_each(|(clock, until)| current.begun.reach(clock, *until));
            let run = current.run.clone();
            drop(current);
            self.changes.fetch_add(1, Ordering::Relaxed);
            self.kept.note_change();
            tell_warnings(&run, before, &after);
        }
        is_current
    }
}

/// Adds an event for each warning about values of `after` that `before` does not have: those of a flowgraph file are
/// shown when it is read.
fn tell_warnings(run: &Handle, before: &Plan, after: &Plan) {
    for (index, block) in after.blocks.iter().enumerate() {
        let old = before.blocks.get(index);
        if old.is_some_and(|old| old.is_shared_with(block)) {
            continue;
        }
        let old = old.filter(|old| old.name == block.name);
        let known: Vec<_> = old.map(|old| old.configured.warnings()).unwrap_or_default();
        for Rejection { message, help, .. } in block.configured.warnings() {
            if known.iter().all(|known| known.message != message) {
                let help = help.map(|help| format!("; {help}")).unwrap_or_default();
                run.tell(EventKind::Warning, Some(&block.name), format!("{message}{help}"));
            }
        }
    }
}

impl Control {
    /// Creates the control over `run`, a run of `plan`, whose kinds are in `registry`.
    #[must_use]
    pub fn new(plan: Plan, registry: Registry, run: Handle) -> Self {
        let telling = run.clone();
        plan.recorders.tell(move |block, text| {
            telling.tell(EventKind::Recorded, Some(block), text.to_owned());
        });
        run.watch_events(plan.recorders.watcher());
        run.watch_losses();
        let updates = plan.updates.clone();
        let control = Self(Arc::new(Inner {
            current: RwLock::new(Current::new(plan, run)),
            registry,
            requests: lifecycle::Requests::default(),
            turns: turns::Turns::default(),
            shadows: Mutex::default(),
            recordings: OnceLock::new(),
            recorders_made: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            kept: state::Kept::default(),
        }));
        control.serve(&updates);
        control
    }

    /// Returns the plan of the running flowgraph: its blocks with their devices and implementations, ports and
    /// edges, and its configuration, with all scheduled values; [`plan_in_force`](Self::plan_in_force) leaves them out.
    /// [`Drawing::of`](fxgraph_flowgraph::draw::Drawing::of) draws it.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        self.0.current().plan
    }

    /// Returns the plan of the running flowgraph with the values of live parameters in force at the newest timestamp of
    /// the data, for display.
    #[must_use]
    pub fn plan_in_force(&self) -> Arc<Plan> {
        self.0.current().in_force(&self.0.registry).0
    }

    /// Hash of the configuration with which the run began, before live updates and swaps.
    #[must_use]
    pub fn began_with(&self) -> Arc<str> {
        self.0.current().began_with
    }

    /// Number of changes of the configuration so far: live updates, swaps, and other flowgraphs.
    #[must_use]
    pub fn change_count(&self) -> u64 {
        self.0.changes.load(Ordering::Relaxed)
    }

    /// Returns the [plan in force](Self::plan_in_force), and the values of live parameters that take effect later, by
    /// timestamp.
    #[must_use]
    pub fn in_force_and_scheduled(&self) -> (Arc<Plan>, Vec<ScheduledValue>) {
        self.0.current().in_force(&self.0.registry)
    }

    /// Limits the files that later changes may name to those that the flowgraph names now and those below the
    /// directories in `allowed`. Call it before clients connect that may not access all files.
    ///
    /// # Errors
    /// If an allowed directory cannot be opened.
    pub fn limit_files(&self, allowed: ClientFiles) -> io::Result<()> {
        let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
        current.plan = Arc::new(current.plan.limited(allowed, &self.0.registry)?);
        Ok(())
    }

    /// Returns the kinds of blocks available to this flowgraph.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Adds an event, of `block` if given.
    pub fn tell(&self, kind: EventKind, block: Option<&str>, text: &str) {
        self.0.run().tell(kind, block, text.to_owned());
    }

    /// Lifecycle state of the flowgraph.
    #[must_use]
    pub fn state(&self) -> RunState {
        self.0.run().state()
    }

    /// Current statistics of every block, in the order of the plan, then of blocks that only monitor.
    #[must_use]
    pub fn stats(&self) -> Vec<BlockStats> {
        self.0.run().stats()
    }

    /// Highest fill of each input queue of each block since the last call, in frames. For a single caller that polls
    /// regularly, because each call resets the values.
    #[must_use]
    pub fn take_queue_peaks(&self) -> Vec<(String, Vec<usize>)> {
        self.0.run().take_peaks()
    }

    /// Failures so far, in the order in which they happened.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        self.0.run().failures()
    }

    /// Number of faults of all blocks so far, including those that the run survived.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.0.run().faults()
    }

    /// Blocks that no frame passes and that are the cause themselves, while the flowgraph runs.
    #[must_use]
    pub fn stalls(&self) -> Vec<Stall> {
        self.0.run().stalls()
    }

    /// Time from the first frame to the end, or to now.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.run().elapsed()
    }

    /// See [`Handle::events_since`].
    #[must_use]
    pub fn events_since(&self, sequence: u64) -> Vec<Event> {
        self.0.run().events_since(sequence)
    }

    /// See [`Handle::wait_events`].
    #[must_use]
    pub fn wait_events(&self, sequence: u64, timeout: Duration) -> Vec<Event> {
        self.0.run().wait_events(sequence, timeout)
    }

    /// See [`Handle::next_events`].
    pub async fn next_events(&self, sequence: u64) -> Vec<Event> {
        self.0.run().next_events(sequence).await
    }

    /// See [`Handle::request_stop`].
    pub fn request_stop(&self) {
        self.0.run().request_stop();
    }

    /// See [`Handle::abort`].
    pub fn abort(&self) {
        self.0.run().abort();
    }

    /// Waits until the flowgraph has ended or `timeout` has passed; `true` if it has ended.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.0.run().wait_timeout(timeout)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tap_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
