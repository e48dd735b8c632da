//! The plan: checked blocks, their memory and their identity.

pub(crate) mod available;
pub(crate) mod bands;
pub(crate) mod block;
pub(crate) mod block_parameters;
pub(crate) mod build_progress;
pub(crate) mod check;
pub(crate) mod configure;
pub(crate) mod cross_checks;
pub mod draw;
pub(crate) mod estimate;
pub(crate) mod flowgraph;
pub(crate) mod frames;
pub(crate) mod identity;
pub(crate) mod memory;
pub(crate) mod pending;
pub(crate) mod transfers;
