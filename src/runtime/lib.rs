//! Runs flowgraphs on FutureSDR, watches them and changes them.
//!
//! # Layout
//! - [`control`]: what the terminal, REST and the web page drive
//! - `connections`: how the parts of an assembly hang together
//! - [`hosted`]: a running block, and what is asked of it between two frames
//! - [`report`]: what a run says about itself
//! - [`running`]: starting, watching and ending a run
//! - `companion`: a second block beside a running one, and how they change places
//! - `exchange`: one block taking the place of another, from outside
//! - `shadow`: a block kept beside another, whose frames are compared
//! - `tally`: what is counted in one place, whichever block is there
//! - `replace`: the same for blocks without outputs
//! - `timing`: where the time of a block goes, and how long frames are under way
//! - `losses`: lost data as events
//! - `stalls`: blocks that no frame passes
//! - `run`, `cell`: what the blocks of a run and its handles share; what is of one block
//! - `models`: edges, mailboxes and probes under many orders of their threads (feature `shuttle`)
//! - `fsdr`: the only module that uses FutureSDR

// The derive macros name the crate `fxgraph`, which re-exports all that they need of this one.
#[cfg(test)]
extern crate fxgraph_core as fxgraph;

mod attend;
mod beside;
mod cell;
mod companion;
mod connections;
pub mod control;
pub(crate) mod exchange;
mod fsdr;
pub mod hosted;
mod losses;
mod replace;
pub mod report;
mod run;
pub mod running;
pub(crate) mod shadow;
mod stalls;
mod tally;
mod timing;

pub use connections::Options;
pub use control::Control;
pub use exchange::NotExchanged;
pub use fxgraph_core::error::with_causes;
pub use fxgraph_core::event::{BlockEvents, Event, EventKind};
pub use fxgraph_flowgraph::{Assembly, OnFault, Part, PartOutput, Rebuild, Thread};
pub use hosted::Hosted;
pub use report::{BlockStats, Failure, Queue, Report, RunState, StartError, State, Unanswered};
pub use running::{Handle, Prepared, Running, start};
pub use shadow::{Compared, Pair};
pub use timing::{LATENCY_BOUNDS_SECONDS, Latencies};

#[cfg(all(test, feature = "shuttle"))]
mod models;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
