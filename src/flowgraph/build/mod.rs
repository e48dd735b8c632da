//! From a plan to blocks, pools and edges.

pub(crate) mod assemble;
pub(crate) mod assembly;
