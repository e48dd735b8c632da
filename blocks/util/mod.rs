//! Blocks that test, adapt or end a flowgraph.

pub mod convert;
pub mod fault_injector;
pub mod null_sink;
pub mod null_source;
pub mod transpose;
