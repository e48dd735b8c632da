//! One block taking the place of another in a running flowgraph, from outside.

use super::assembly::Part;
use super::beside::Newcomer;
use super::companion::{GivenUp, Link, Order, Verdict, launch};
use super::edge::Edge;
use super::report::Unanswered;
use super::running::Handle;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a block at which nothing happens looks at its companion.
const LOOK: Duration = Duration::from_millis(100);
/// What a thread that was told to end may take for it.
const PARTING: Duration = Duration::from_secs(10);

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
    pub(crate) fn exchange(&self, part: Part, terms: Terms) -> Result<(), NotExchanged> {
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
        launch(part, terms.config_id, self.run(), &link)
            .map_err(|error| NotExchanged::NotStarted(error.to_string()))?;
        let outcome = self.send(&name, &link, tees, kept, terms, deadline);
        link.order(Order::End);
        link.wake_companion();
        // Its memory and its sockets are free again then.
        let _ = link.wait_gone(Instant::now() + PARTING);
        outcome
    }

    fn send(
        &self,
        name: &str,
        link: &Arc<Link>,
        tees: Vec<Arc<Edge>>,
        kept: Vec<Arc<Edge>>,
        terms: Terms,
        deadline: Instant,
    ) -> Result<(), NotExchanged> {
        link.wait_started(deadline).map_err(NotExchanged::NotStarted)?;
        let Terms { late, may_hold_up, limit, .. } = terms;
        let new = Newcomer { link: Arc::clone(link), tees, kept, late, may_hold_up };
        if !self.ask(name, limit, move |hosted| hosted.put_beside(new))? {
            return Err(NotExchanged::Busy);
        }
        link.order(Order::Work);
        link.wake_companion();
        loop {
            if let Some(verdict) = link.wait_verdict(Instant::now() + LOOK) {
                return match verdict {
                    Verdict::Swapped => Ok(()),
                    Verdict::RolledBack(cause) => Err(NotExchanged::RolledBack(cause)),
                    Verdict::GivenUp(GivenUp::TooSlow) => Err(NotExchanged::TooSlow),
                    Verdict::GivenUp(GivenUp::Failed(cause)) => Err(NotExchanged::Failed(cause)),
                    Verdict::GivenUp(GivenUp::NeverCaughtUp) => {
                        Err(NotExchanged::NeverCaughtUp(limit))
                    }
                    Verdict::Ended => Err(NotExchanged::Ended),
                };
            }
            if Instant::now() >= deadline {
                link.hurry();
            }
            link.main.wake();
        }
    }
}
