//! Runs flowgraphs on FutureSDR.
//!
//! # Layout
//! - [`edge`]: bounded queues of frames between blocks
//! - [`assembly`]: what is started
//! - [`report`]: what a run says about itself
//! - [`running`]: starting, watching and ending a run
//! - `run`: what the blocks of a run and its handles share
//! - `fsdr`: the only room that names FutureSDR

pub mod assembly;
pub mod edge;
mod fsdr;
pub mod report;
mod run;
pub mod running;

pub use assembly::{Assembly, Options, Part, PartOutput, Thread};
pub use report::{BlockStats, Failure, Queue, Report, StartError, State, with_causes};
pub use running::{Handle, Running, start};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
