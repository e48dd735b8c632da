//! Flowgraph files: from text to a checked plan.
//!
//! [`load`] does it all and answers with a [`Plan`] or with every problem at once.

mod access;
mod build;
mod change;
mod check;
mod document;
pub mod draw;
mod expand;
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
pub(crate) mod request;
mod resolve;
mod retune;
mod schema;
mod scope;
mod sources;
mod test_read;
mod test_spec;
mod transfers;
pub mod value;
mod written;

pub use crate::runtime::assembly::{OnFault, Thread};
pub(crate) use build::beside_frames;
pub use build::{BuildError, Probe};
pub use change::Changed;
pub(crate) use load::load_with;
pub use load::{load, load_in, load_standard_input, load_text};
pub use memory::{BlockMemory, Memory, PoolMemory};
pub use parameters::{SetTo, Setting};
pub use parse::MAX_BYTES;
pub use plan::{ParameterInfo, Plan, PlannedBlock};
pub use retune::Refused;
pub use schema::schema;
pub use sources::{Source, Sources};
pub use test_spec::{Check, Companion, Expect, Run, Tap, TestHead, TestSpec};

use crate::diagnostic::Diagnostic;

/// What [`load`] found.
pub struct Loaded {
    /// The files, for [`render`](crate::diagnostic::render()).
    pub sources: Sources,
    /// The plan, or what is wrong, sorted by place.
    pub result: Result<Plan, Vec<Diagnostic>>,
    /// The tests of the file, also if the flowgraph is wrong without what they set.
    pub tests: Vec<TestHead>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod devices;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod limits;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod messages;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod properties;
#[cfg(test)]
mod test_kinds;
