//! Changes of a running flowgraph: requests, live updates, swaps, and values that outlive a run.

pub(crate) mod access;
pub(crate) mod candidate;
pub(crate) mod fixed_bands;
pub(crate) mod in_force;
pub(crate) mod live_update;
pub mod request;
pub(crate) mod state;
pub(crate) mod take_back;
