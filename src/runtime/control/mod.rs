//! Control of a running flowgraph: what the terminal, REST and the web page drive.
//!
//! [`Control`] is a handle that any thread may hold. Looking at the flowgraph costs it nothing;
//! what is asked of a block happens between two of its frames, and whoever asks waits no longer
//! than a time limit.
//!
//! # Layout
//! - [`Change`]: what a change does and how it is made, before it is made
//! - `swap`: making it
//! - `shadow`: a second form of a block on the same frames
//! - `lifecycle`: starts
//! - `record`: outputs to files, with what came before an event
//! - `tap`: what an output carries, seen while it runs
//! - `retune`: parameters of running blocks, changed at a timestamp
//! - [`Update`]: a whole flowgraph against the one that runs, and what becomes of each block
//! - `apply`: making it, all of it or nothing

mod apply;
mod change;
mod lifecycle;
mod record;
mod retune;
mod shadow;
mod swap;
mod tap;
mod turns;
mod update;

pub use apply::{Interim, UpdateError, Updated};
pub use change::{Change, Difference, Way};
pub use fxgraph_core::edge::TapFrame;
pub use fxgraph_flowgraph::Refused;
pub use lifecycle::{NotPrepared, NotStartable, Wanted};
pub use record::RecordError;
pub use retune::{RetuneError, Retuned};
pub use shadow::ShadowReport;
pub use swap::SwapError;
pub use tap::{Tap, TapError, TapOptions, Tapped};
pub use update::{BlockUpdate, Step, Update};

use crate::{BlockStats, Failure, Handle, RunState};
use fxgraph_core::access::ClientFiles;
use fxgraph_core::event::{Event, EventKind};
use fxgraph_core::kind::Registry;
use fxgraph_flowgraph::Plan;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// A flowgraph under control; cheap to clone, harmless after the end.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

struct Inner {
    current: RwLock<Current>,
    registry: Registry,
    requests: lifecycle::Requests,
    /// Whose turn it is to change something.
    turns: turns::Turns,
    shadows: Mutex<Vec<shadow::Shadowed>>,
    /// Where recordings go, if any may be made.
    recordings: OnceLock<record::Place>,
    /// Recorders that were asked for so far.
    recorders_made: AtomicU64,
}

/// What runs now: a plan and the run of it, and another plan with another run after a new start.
#[derive(Clone)]
struct Current {
    plan: Arc<Plan>,
    run: Handle,
    /// See [`Control::steady_state_timestamp`].
    steady_state: u64,
}

impl Inner {
    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn run(&self) -> Handle {
        self.current().run
    }

    /// The flowgraph is as in `after` now, if it still was as in `before`: a change that outlives its run
    /// has no say in the next one. What blocks make from `steady_state` on reflects it.
    fn commit(&self, before: &Arc<Plan>, after: Arc<Plan>, steady_state: u64) -> bool {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let is_current = Arc::ptr_eq(&current.plan, before);
        if is_current {
            current.plan = after;
            current.steady_state = current.steady_state.max(steady_state);
        }
        is_current
    }
}

impl Control {
    /// Control over `run`, a run of `plan` made of the kinds in `registry`.
    #[must_use]
    pub fn new(plan: Plan, registry: Registry, run: Handle) -> Self {
        let telling = run.clone();
        plan.recorders.tell(move |block, text| {
            telling.tell(EventKind::Recorded, Some(block), text.to_owned());
        });
        run.watch_events(plan.recorders.watcher());
        run.watch_losses();
        Self(Arc::new(Inner {
            current: RwLock::new(Current { plan: Arc::new(plan), run, steady_state: 0 }),
            registry,
            requests: lifecycle::Requests::default(),
            turns: turns::Turns::default(),
            shadows: Mutex::default(),
            recordings: OnceLock::new(),
            recorders_made: AtomicU64::new(0),
        }))
    }

    /// The flowgraph that runs: its blocks, where they run and in which form, their ports and
    /// edges, its configuration. [`Drawing::of`](fxgraph_flowgraph::draw::Drawing::of) it is a picture.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        self.0.current().plan
    }

    /// Limits which files changes from now on may name: those that the flowgraph names now, and others below the
    /// directories in `allowed`. Before clients whom the operator does not trust with all files.
    pub fn limit_files(&self, allowed: ClientFiles) -> io::Result<()> {
        let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
        current.plan = Arc::new(current.plan.limited(allowed, &self.0.registry)?);
        Ok(())
    }

    /// The kinds that blocks of this flowgraph may be of.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Where the flowgraph is in its life.
    #[must_use]
    pub fn state(&self) -> RunState {
        self.0.run().state()
    }

    /// Figures of every block now, in the order of the plan, then of those that only watch.
    #[must_use]
    pub fn stats(&self) -> Vec<BlockStats> {
        self.0.run().stats()
    }

    /// Most frames that waited before each input of each block since the last call: for one that looks
    /// regularly and tells the others.
    #[must_use]
    pub fn take_queue_peaks(&self) -> Vec<(String, Vec<usize>)> {
        self.0.run().take_peaks()
    }

    /// What went wrong so far, in order.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        self.0.run().failures()
    }

    /// Number of faults of all blocks so far, also those that the run survived.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.0.run().faults()
    }

    /// Time since frames began to move, up to the end.
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
