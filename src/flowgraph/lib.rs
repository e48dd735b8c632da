//! Flowgraphs, from text to blocks that are built.
//!
//! [`load`] answers with a checked [`Plan`] or with every problem at once; [`Plan::build`] makes an [`Assembly`], which
//! the runtime starts.

// The derive macros name the crate `fxgraph`, which re-exports all that they need of this one.
#[cfg(test)]
extern crate fxgraph_core as fxgraph;

mod access;
mod assemble;
mod assembly;
mod available;
mod change;
mod check;
mod document;
pub mod draw;
mod expand;
mod expect;
mod expression;
mod include;
mod load;
mod memory;
mod order;
mod parameters;
mod parse;
mod pending;
mod place;
mod plan;
pub mod request;
mod resolve;
mod retune;
mod schema;
mod scope;
mod transfers;
mod written;

pub use assemble::beside_frames;
pub use assemble::{BuildError, BuildProgress, Probe};
pub use assembly::{Assembly, OnFault, Part, PartOutput, Rebuild, Thread};
pub use available::{available_on, shortage};
pub use change::Changed;
pub use expect::{Check, Companion, Expect, Run, Tap, TestHead, TestSpec};
pub use load::load_with;
pub use load::{load, load_in, load_standard_input, load_text};
pub use memory::{BlockMemory, Memory, PoolMemory};
pub use parameters::{SetTo, Setting};
pub use parse::{MAX_BYTES, read_value};
pub use plan::{ParameterInfo, Plan, PlannedBlock};
pub use retune::Refused;
pub use schema::schema;

use fxgraph_core::diagnostic::{Diagnostic, Sources};

/// What [`load`] found.
pub struct Loaded {
    /// The files, for [`render`](fxgraph_core::diagnostic::render()).
    pub sources: Sources,
    /// The plan, or what is wrong, sorted by place.
    pub result: Result<Plan, Vec<Diagnostic>>,
    /// The tests of the file, also if the flowgraph is wrong without what they set.
    pub tests: Vec<TestHead>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
