//! Runs, monitors and changes flowgraphs, on FutureSDR.
//!
//! # Layout
//! - [`control`]: the interface for the terminal, REST and the web page
//! - `connections`: connections between the parts of an assembly
//! - [`hosted`]: a running block, and commands to it between two frames
//! - [`report`]: state, statistics and errors of a run
//! - [`running`]: starting, monitoring and ending a run
//! - `swap`: swaps of blocks, seen by the caller, by the running block and by the candidate
//! - `shadow`: a second block on the same frames, whose output is compared
//! - `slot_counts`: counters of a slot, across the blocks that were in it
//! - `timing`: busy and wait times of a block, latency of frames
//! - `losses`: events for missing and dropped data
//! - `stalls`: detection of blocks that no frame passes
//! - `run`, `cell`: state shared by all blocks of a run and its handles; state of one block
//! - `fault`, `lock`: faults of blocks; locks after a panic
//! - `models`: edges, mailboxes and probes under many thread interleavings (feature `shuttle`)
//! - `fsdr`: the only module that uses FutureSDR

// The derive macros refer to the crate `fxgraph`, which re-exports everything that they need.
#[cfg(test)]
extern crate fxgraph_core as fxgraph;

mod cell;
mod connections;
pub mod control;
mod deadlocks;
mod fault;
mod fsdr;
pub mod hosted;
mod losses;
mod outcome;
pub mod report;
mod run;
pub mod running;
pub(crate) mod shadow;
mod slot_counts;
mod stalls;
pub(crate) mod swap;
mod timing;

pub use connections::Options;
pub use control::Control;
pub use fxgraph_core::error::with_causes;
pub use fxgraph_core::event::{BlockEvents, Event, EventKind};
pub use fxgraph_flowgraph::{Assembly, OnFault, Part, PartOutput, Rebuild, Thread};
pub use hosted::Hosted;
pub use report::{
    BlockStats, Failure, Queue, Report, RunState, StartError, State, Unanswered, Unfinished,
};
pub use running::{Handle, Prepared, Running, start};
pub use shadow::{Compared, Pair};
pub use stalls::{Reason, Stall};
pub use swap::NotSwapped;
pub use timing::{LATENCY_BOUNDS_SECONDS, Latencies};

#[cfg(all(test, feature = "shuttle"))]
mod models;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
