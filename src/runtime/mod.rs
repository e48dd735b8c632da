//! Runs flowgraphs on FutureSDR.
//!
//! # Layout
//! - [`edge`]: bounded queues of frames between blocks
//! - [`assembly`]: what is started
//! - [`event`]: what happens to a run
//! - [`hosted`]: a running block, and what is asked of it between two frames
//! - [`report`]: what a run says about itself
//! - [`running`]: starting, watching and ending a run
//! - `companion`: a second block beside a running one, and how they change places
//! - `exchange`: one block taking the place of another, from outside
//! - `shadow`: a block kept beside another, whose frames are compared
//! - `tally`: what is counted in one place, whichever block is there
//! - `replace`: the same for blocks without outputs
//! - `tap`: readers that come and go
//! - `timing`: where the time of a block goes, and how long frames are under way
//! - `losses`: lost data as events
//! - `stalls`: blocks that no frame passes
//! - `run`, `cell`: what the blocks of a run and its handles share; what is of one block
//! - `models`: edges, mailboxes and probes under many orders of their threads (feature `shuttle`)
//! - `fsdr`: the only room that names FutureSDR

pub mod assembly;
mod attend;
mod beside;
mod cell;
mod companion;
pub mod edge;
pub mod event;
pub(crate) mod exchange;
mod fsdr;
mod harness;
pub mod hosted;
mod losses;
mod replace;
pub mod report;
mod run;
pub mod running;
pub(crate) mod shadow;
mod stalls;
mod tally;
pub(crate) mod tap;
mod tee;
mod timing;

pub use assembly::{Assembly, OnFault, Options, Part, PartOutput, Rebuild, Thread};
pub use event::{BlockEvents, Event, EventKind};
pub use exchange::NotExchanged;
pub use hosted::Hosted;
pub use report::{
    BlockStats, Failure, Queue, Report, RunState, StartError, State, Unanswered, with_causes,
};
pub use running::{Handle, Prepared, Running, start};
pub use shadow::{Compared, Pair};
pub use timing::{LATENCY_BOUNDS_SECONDS, Latencies};

#[cfg(all(test, feature = "shuttle"))]
mod models;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
