//! One block taking the place of another in a running flowgraph, from outside.

use super::beside::Newcomer;
use super::companion::{GivenUp, Link, Order, Verdict, launch};
use super::report::Unanswered;
use super::running::Handle;
use fxgraph_core::edge::Edge;
use fxgraph_core::retune::When;
use fxgraph_flowgraph::Part;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a block at which nothing happens looks at its companion.
const LOOK: Duration = Duration::from_millis(100);
/// What a thread that was told to end may take for it.
const PARTING: Duration = Duration::from_secs(10);
/// What a block may take to give a newcomer up.
const GIVING_UP: Duration = Duration::from_secs(2);

/// How an exchange is to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// What frames of the new block carry.
    pub config_id: u64,
    /// After this time the new block must be in place.
    pub limit: Duration,
    /// So much later than the old block the new one may be with a frame.
    pub late: Duration,
    /// The flowgraph may wait for the new block.
    pub may_hold_up: bool,
}

/// Why a block did not take another's place, which goes on as if nothing had been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExchanged {
    /// The block did not come to the end of a frame, has ended, or is not there.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// Another block is being put into its place already.
    #[error("another change of it goes on")]
    Busy,
    /// The new block, or its thread, could not be started.
    #[error("it could not be started: {0}")]
    NotStarted(String),
    /// The new block failed before it was in place.
    #[error("it failed before it was in place: {0}")]
    Failed(String),
    /// The new block did not take frames as fast as they came.
    #[error("it is too slow: frames came faster than it took them")]
    TooSlow,
    /// No frame of the new block had the time and the validity of one of the old.
    #[error("it did not catch up within {} s", .0.as_secs_f64())]
    NeverCaughtUp(Duration),
    /// The new block failed in its first frames, and the old one is back.
    #[error("it failed in its first frames: {0}")]
    RolledBack(String),
    /// The flowgraph ended.
    #[error("the flowgraph ended")]
    Ended,
}

impl Handle {
    /// Puts `part` into the place of the block of its name: it catches up on frames that are its
    /// own to keep, changes places at a frame boundary, and gives the place back if its first
    /// frames fail. `part` has a tee before each input and one queue behind each output.
    #[cfg(test)]
    pub(crate) fn exchange(&self, part: Part, terms: Terms) -> Result<(), NotExchanged> {
        let deadline = Instant::now() + terms.limit;
        let moment = fxgraph_core::retune::Undecided::new();
        let exchange = self.begin_exchange(part, terms, moment.when())?;
        exchange.wait_ready(deadline)?;
        moment.decide(0);
        exchange.finish(deadline)
    }

    /// Begins to put `part` into the place of the block of its name, as for `exchange`, where it goes over at the
    /// timestamp that is decided: frames that start before it are the old block's, the others the new one's.
    pub(crate) fn begin_exchange(
        &self,
        part: Part,
        terms: Terms,
        when: &When,
    ) -> Result<Exchange, NotExchanged> {
        let deadline = Instant::now() + terms.limit;
        let name = part.name.clone();
        let Some(main) = self.run().cell(&name).map(|cell| cell.wake.clone()) else {
            return Err(Unanswered::NoSuchBlock(name).into());
        };
        let link = Link::new(main.clone());
        let tees = part.inputs.clone();
        let kept: Vec<Arc<Edge>> =
            part.outputs.iter().flat_map(|output| output.edges.iter().cloned()).collect();
        for pool in part.outputs.iter().filter_map(|output| output.pool.as_ref()) {
            let main = main.clone();
            pool.on_return(move || main.wake());
        }
        for (edge, is_tee) in tees.iter().map(|e| (e, true)).chain(kept.iter().map(|e| (e, false)))
        {
            let (companion, main) = (Arc::clone(&link), main.clone());
            let (by_companion, by_main) =
                if is_tee { (&edge.reader, &edge.writer) } else { (&edge.writer, &edge.reader) };
            by_companion.set(move || companion.wake_companion());
            // A block that must not be held up need not hear when its tee has room.
            if !is_tee || terms.may_hold_up {
                by_main.set(move || main.wake());
            }
        }
        let samples = part.ports.outputs.iter().map(|port| port.clock.samples_per_frame).collect();
        launch(part, terms.config_id, self.run(), &link)
            .map_err(|error| NotExchanged::NotStarted(error.to_string()))?;
        let Terms { late, may_hold_up, limit, .. } = terms;
        let mut exchange = Exchange { link, limit, is_beside: false };
        let link = &exchange.link;
        link.wait_started(deadline).map_err(NotExchanged::NotStarted)?;
        let (link, when) = (Arc::clone(link), when.clone());
        let new = Newcomer { link, tees, kept, when, samples, late, may_hold_up };
        // One that answers too late gives the newcomer up.
        exchange.is_beside = true;
        if !self.ask(&name, limit, move |hosted| hosted.put_beside(new))? {
            exchange.is_beside = false;
            return Err(NotExchanged::Busy);
        }
        exchange.link.order(Order::Work);
        exchange.link.wake_companion();
        Ok(exchange)
    }
}

/// A newcomer that catches up beside a block, to take its place at a timestamp that is decided when all are ready
/// that change there together. Dropped before it is in place, it is given up.
pub(crate) struct Exchange {
    link: Arc<Link>,
    limit: Duration,
    /// The block knows of it.
    is_beside: bool,
}

impl Exchange {
    /// Waits until the newcomer has caught up.
    pub fn wait_ready(&self, deadline: Instant) -> Result<(), NotExchanged> {
        loop {
            match self.link.wait_ready(Instant::now() + LOOK) {
                Some(Ok(())) => return Ok(()),
                Some(Err(verdict)) => return self.outcome(verdict),
                None if self.is_hung(deadline) => {
                    return Err(NotExchanged::NeverCaughtUp(self.limit));
                }
                None => self.urge(deadline),
            }
        }
    }

    /// Once the timestamp is decided: waits until the newcomer is in place, or not.
    pub fn finish(&self, deadline: Instant) -> Result<(), NotExchanged> {
        self.link.main.wake();
        loop {
            match self.link.wait_verdict(Instant::now() + LOOK) {
                Some(verdict) => return self.outcome(verdict),
                None if self.is_hung(deadline) => {
                    return Err(NotExchanged::NeverCaughtUp(self.limit));
                }
                None => self.urge(deadline),
            }
        }
    }

    /// Whether the running block has not answered for so long that it does not come to the end of its
    /// `work`: others must not wait for it.
    fn is_hung(&self, deadline: Instant) -> bool {
        Instant::now() >= deadline + PARTING
    }

    fn urge(&self, deadline: Instant) {
        if Instant::now() >= deadline {
            self.link.hurry();
        }
        self.link.main.wake();
    }

    fn outcome(&self, verdict: Verdict) -> Result<(), NotExchanged> {
        Err(match verdict {
            Verdict::Swapped => return Ok(()),
            Verdict::RolledBack(cause) => NotExchanged::RolledBack(cause),
            Verdict::GivenUp(GivenUp::TooSlow) => NotExchanged::TooSlow,
            Verdict::GivenUp(GivenUp::Failed(cause)) => NotExchanged::Failed(cause),
            Verdict::GivenUp(GivenUp::NeverCaughtUp) => NotExchanged::NeverCaughtUp(self.limit),
            Verdict::Ended => NotExchanged::Ended,
        })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.link.hurry();
        if self.is_beside {
            // The block goes on alone then.
            let _ = self.link.wait_verdict(Instant::now() + GIVING_UP);
        }
        self.link.order(Order::End);
        self.link.wake_companion();
        // Its memory and its sockets are free again then.
        let _ = self.link.wait_gone(Instant::now() + PARTING);
    }
}
