//! Flowgraphs, from YAML text to constructed blocks.
//!
//! [`load`] returns a checked [`Plan`] or all diagnostics at once; [`Plan::build`] makes an [`Assembly`], which
//! the runtime starts.

// The derive macros refer to the crate `fxgraph`, which re-exports the items of this crate that they need.
#[cfg(test)]
extern crate fxgraph_core as fxgraph;

mod access;
mod arrays;
mod assemble;
mod assembly;
mod available;
mod change;
mod check;
mod cut;
mod document;
pub mod draw;
mod estimate;
mod expand;
mod expect;
mod expression;
mod fixed_bands;
mod hosts;
mod identity;
mod in_force;
mod include;
mod json;
mod latency;
mod load;
mod memory;
mod order;
mod parameters;
mod parse;
mod pending;
mod place;
mod plan;
mod queue;
pub mod request;
mod resolve;
mod retune;
mod schema;
mod scope;
mod source_text;
mod state;
mod take_back;
mod targets;
mod transfers;

pub use access::Client;
pub use assemble::beside_frames;
pub use assemble::{BuildError, BuildProgress, Probe};
pub use assembly::{Assembly, OnFault, Part, PartOutput, Rebuild, Thread};
pub use available::{available_on, shortage};
pub use change::Changed;
pub use cut::{Loopback, PartPlan, Rate, Stream};
pub use estimate::{Estimate, Load, MeasuredLoad, Work, estimate};
pub use expect::{Alongside, Check, Expect, Run, Tap, TestHead, TestSpec};
pub use hosts::{Host, HostClass, Hosts, Network};
pub use identity::Parameters;
pub use in_force::ScheduledValue;
pub use latency::{DEFAULT_LATENCY_SECONDS, FrameReason, SourceFrame};
pub use load::load_with;
pub use load::{load, load_in, load_standard_input, load_text};
pub use memory::{BlockMemory, Memory, PoolMemory};
pub use parameters::{SetTo, Setting};
pub use parse::{MAX_BYTES, read_value};
pub use plan::{ParameterInfo, Plan, Planned, PlannedBlock};
pub use queue::QueueLength;
pub use retune::{Rejected, Retuned};
pub use schema::schema;
pub use state::{
    Counting, LiveSetting, MAX_STATE_BYTES, NoState, OTHER_VALUE, Restored as RestoredPlan, State,
    StreamPlace,
};
pub use take_back::{Replaced, Restored};

use fxgraph_core::diagnostic::{Diagnostic, Sources};

/// Result of [`load`].
pub struct Loaded {
    /// The files, for [`render`](fxgraph_core::diagnostic::render()).
    pub sources: Sources,
    /// The plan, or the diagnostics, sorted by place.
    pub result: Result<Plan, Vec<Diagnostic>>,
    /// The tests of the file, also if the flowgraph has errors without the settings of the tests.
    pub tests: Vec<TestHead>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
