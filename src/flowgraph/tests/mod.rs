//! Tests of whole flowgraphs.

mod devices;
mod hosts;
pub(crate) mod kinds;
mod latency;
mod limits;
mod messages;
mod properties;
mod queues;
