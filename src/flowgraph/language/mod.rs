//! Meaning of flowgraph files: expressions, parameters, templates and the keys of blocks, up to single blocks whose references
//! are resolved.

pub(crate) mod arrays;
pub(crate) mod expand;
pub(crate) mod expect;
pub(crate) mod expression;
pub(crate) mod hosts;
pub(crate) mod latency;
pub(crate) mod on_fault;
pub(crate) mod order;
pub(crate) mod parameters;
pub(crate) mod place;
pub(crate) mod queue;
pub(crate) mod resolve;
pub(crate) mod schema;
pub(crate) mod scope;
pub(crate) mod thread;
