//! Swaps of blocks while frames flow.
//!
//! Three threads share a swap of a block with outputs: that of the caller (this module), that of the running block
//! ([`beside`], which decides everything) and that of the candidate ([`candidate`], which a shadow uses, too). A block
//! without outputs is swapped while its input queues hold the frames ([`held`]).

pub(crate) mod beside;
pub(crate) mod candidate;
mod held;
#[cfg(all(test, feature = "shuttle"))]
mod held_models;
#[cfg(all(test, feature = "shuttle"))]
mod models;

use crate::report::Unanswered;
use crate::running::Handle;
use beside::{NewCandidate, Tie};
use candidate::{GivenUp, Link, Order, Verdict, launch};
use fxgraph_core::changes::{ConfigIds, When};
use fxgraph_core::edge::Edge;
use fxgraph_flowgraph::Part;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Shortest time limit for a thread to end after the order to, and for the running block to answer.
const PARTING: Duration = Duration::from_secs(10);
/// Time limit for the running block to give up a candidate.
const GIVING_UP: Duration = Duration::from_secs(2);

/// Terms of a swap.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Configuration in the frames of the new block.
    pub ids: ConfigIds,
    /// Time within which the new block must be in the slot.
    pub limit: Duration,
    /// Time limit for a call of one of the blocks.
    pub call: Duration,
    /// The flowgraph may wait for the new block while it catches up.
    pub may_hold_up: bool,
}

/// Reason why a block was not swapped; the old block continues unaffected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSwapped {
    /// The block did not finish its frame in time, has ended, or does not exist.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// Another swap, or a shadow, of this block is in progress.
    #[error("another swap or a shadow of this block is in progress")]
    Busy,
    /// The new block, or its thread, could not be started.
    #[error("the new block could not be started: {0}")]
    NotStarted(String),
    /// The new block failed before it was in the slot.
    #[error("the new block failed before it took over: {0}")]
    Failed(String),
    /// Frames arrived faster than the new block consumed them.
    #[error("the new block is too slow: frames arrived faster than it consumed them")]
    TooSlow,
    /// No frame of the new block had the timestamp and the validity of one of the old block.
    #[error("the new block did not catch up within {} s", .0.as_secs_f64())]
    NeverCaughtUp(Duration),
    /// The new block failed in its first frames, and the old one is back.
    #[error("the new block failed and the old one was restored: {0}")]
    RolledBack(String),
    /// The flowgraph ended.
    #[error("the flowgraph ended")]
    Ended,
}

impl Handle {
    /// Swaps the block with the name of `part` for `part`: the new block catches up on the same frames,
    /// takes the slot at a frame boundary, and is rolled back if it fails in its first frames. `part` has
    /// a tee before each input and one queue after each output.
    #[cfg(test)]
    pub(crate) fn swap(&self, part: Part, terms: Terms) -> Result<(), NotSwapped> {
        let deadline = Instant::now() + terms.limit;
        let moment = fxgraph_core::changes::Undecided::new();
        let swap = self.begin_swap(part, terms, moment.when())?;
        swap.wait_ready(deadline)?;
        moment.decide(0);
        swap.finish(deadline)
    }

    /// Starts a swap of the block with the name of `part`, at the timestamp `when`, which is decided later: frames that
    /// start before it come from the old block, the others from the new one. `part` has a tee before each input
    /// and one queue after each output.
    pub(crate) fn begin_swap(
        &self,
        part: Part,
        terms: Terms,
        when: &When,
    ) -> Result<Swap, NotSwapped> {
        let deadline = Instant::now() + terms.limit;
        let name = part.name.clone();
        let Some(main) = self.run().cell(&name).map(|cell| cell.wake.clone()) else {
            return Err(Unanswered::NoSuchBlock(name).into());
        };
        let link = Link::new(main.clone());
        let tees = part.inputs.clone();
        let kept = wire(&part, &link, terms.may_hold_up);
        let samples = part.ports.outputs.iter().map(|port| port.clock.samples_per_frame).collect();
        launch(part, &terms.ids, self.run(), &link)
            .map_err(|error| NotSwapped::NotStarted(error.to_string()))?;
        let Terms { call, may_hold_up, limit, .. } = terms;
        let parting = PARTING.max(call);
        let mut swap = Swap { link, name, limit, parting, is_beside: false };
        let link = &swap.link;
        link.wait_started(deadline).map_err(NotSwapped::NotStarted)?;
        let (link, when) = (Tie(Arc::clone(link)), when.clone());
        let new = NewCandidate { link, tees, kept, when, samples, call, may_hold_up };
        // From here on dropping `swap` gives the candidate up, even if the block answers too late.
        swap.is_beside = true;
        if !self.ask(&swap.name, limit, move |hosted| hosted.put_beside(new))? {
            return Err(NotSwapped::Busy);
        }
        swap.link.order(Order::Work);
        Ok(swap)
    }
}

/// Lets the edges and pools of the candidate `part` wake it and the running block; returns the queues of its outputs.
fn wire(part: &Part, link: &Arc<Link>, may_hold_up: bool) -> Vec<Arc<Edge>> {
    let main = &link.main;
    let kept: Vec<Arc<Edge>> =
        part.outputs.iter().flat_map(|output| output.edges.iter().cloned()).collect();
    for pool in part.outputs.iter().filter_map(|output| output.pool.as_ref()) {
        let main = main.clone();
        pool.on_return(move || main.wake());
    }
    let tees = part.inputs.iter().map(|edge| (edge, true));
    for (edge, is_tee) in tees.chain(kept.iter().map(|edge| (edge, false))) {
        let (candidate, main) = (Arc::clone(link), main.clone());
        let (by_candidate, by_main) =
            if is_tee { (&edge.reader, &edge.writer) } else { (&edge.writer, &edge.reader) };
        by_candidate.set(move || candidate.wake_candidate());
        // A block that must not be stalled needs no wake-up when its tee has room.
        if !is_tee || may_hold_up {
            by_main.set(move || main.wake());
        }
    }
    kept
}

/// A swap in progress: a candidate that catches up with a running block. The timestamp is decided when the candidates
/// of all swaps at that timestamp are ready. Dropping it before the end gives the candidate up.
pub(crate) struct Swap {
    link: Arc<Link>,
    /// Name of the running block.
    name: String,
    limit: Duration,
    /// Time limit for a thread to end, and for the running block to answer.
    parting: Duration,
    /// The running block may have the candidate attached.
    is_beside: bool,
}

impl Swap {
    /// Waits until the candidate has caught up.
    pub fn wait_ready(&self, deadline: Instant) -> Result<(), NotSwapped> {
        match self.link.wait_ready(deadline) {
            Some(Ok(())) => Ok(()),
            Some(Err(verdict)) => self.outcome(verdict),
            None => self.give_up(),
        }
    }

    /// Waits, once the timestamp is decided, for the result of the swap.
    pub fn finish(&self, deadline: Instant) -> Result<(), NotSwapped> {
        self.link.main.wake();
        match self.link.wait_verdict(deadline) {
            Some(verdict) => self.outcome(verdict),
            None => self.give_up(),
        }
    }

    /// Gives the candidate up. The running block decides what that means: it may have accepted the candidate meanwhile.
    fn give_up(&self) -> Result<(), NotSwapped> {
        self.link.hurry();
        let verdict = self.link.wait_verdict(Instant::now() + self.parting);
        let unanswered =
            || Err(Unanswered::Busy { block: self.name.clone(), limit: self.parting }.into());
        verdict.map_or_else(unanswered, |verdict| self.outcome(verdict))
    }

    fn outcome(&self, verdict: Verdict) -> Result<(), NotSwapped> {
        Err(match verdict {
            Verdict::Swapped => return Ok(()),
            Verdict::RolledBack(cause) => NotSwapped::RolledBack(cause),
            Verdict::GivenUp(GivenUp::TooSlow) => NotSwapped::TooSlow,
            Verdict::GivenUp(GivenUp::Failed(cause)) => NotSwapped::Failed(cause),
            Verdict::GivenUp(GivenUp::NeverCaughtUp) => NotSwapped::NeverCaughtUp(self.limit),
            Verdict::Ended => NotSwapped::Ended,
        })
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        self.link.hurry();
        let is_over = if self.is_beside {
            // The running block ends the candidate's thread, now or when it returns from its call.
            self.link.wait_verdict(Instant::now() + GIVING_UP).is_some()
        } else {
            self.link.order(Order::End);
            true
        };
        // After the end of the thread, the candidate's memory and sockets are free again.
        let _ = is_over && self.link.wait_gone(Instant::now() + self.parting);
    }
}
