//! Flowgraphs, from YAML text to constructed blocks.
//!
//! [`load`] returns a checked [`Plan`] or all diagnostics at once; [`Plan::build`] makes an [`Assembly`], which
//! the runtime starts.

// The derive macros refer to the crate `fxgraph`, which re-exports the items of this crate that they need.
#[cfg(test)]
extern crate fxgraph_core as fxgraph;

mod build;
mod change;
mod cut;
mod language;
mod load;
mod plan;
mod text;

pub use build::assemble::{BuildError, Probe};
pub use build::assembly::{Assembly, Part, PartOutput, Rebuild};
pub use change::access::Client;
pub use change::candidate::Changed;
pub use change::in_force::ScheduledValue;
pub use change::live_update::LiveUpdate;
pub use change::request::{self, Rejected};
pub use change::state::{
    Counting, LiveSetting, MAX_STATE_BYTES, NoState, OTHER_VALUE, Restored as RestoredPlan, State,
    StreamPlace,
};
pub use change::take_back::{Replaced, Restored};
pub use cut::{Loopback, PartPlan, Rate, Stream};
pub use language::expect::{Alongside, Check, Expect, Run, Tap, TestHead, TestSpec};
pub use language::expression::compute;
pub use language::hosts::{Host, HostClass, Hosts, Network};
pub use language::latency::{DEFAULT_LATENCY_SECONDS, FrameReason, SourceFrame};
pub use language::on_fault::OnFault;
pub use language::parameters::{SetTo, Setting};
pub use language::queue::QueueLength;
pub use language::schema::schema;
pub use language::thread::Thread;
pub use load::{Loaded, load, load_in, load_standard_input, load_text, load_with};
pub use plan::available::{available_on, shortage};
pub use plan::block::{Planned, PlannedBlock};
pub use plan::block_parameters::Parameters;
pub use plan::build_progress::BuildProgress;
pub use plan::draw;
pub use plan::estimate::{Estimate, Load, MeasuredLoad, Work, estimate};
pub use plan::flowgraph::{ParameterInfo, Plan};
pub use plan::memory::{BlockMemory, Memory, PoolMemory, beside_frames};
pub use text::parse::{MAX_BYTES, read_tree, read_value};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
