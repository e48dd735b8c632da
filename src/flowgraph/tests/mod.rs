//! Tests of whole flowgraphs.

mod devices;
mod hosts;
pub(crate) mod kinds;
mod limits;
mod messages;
mod properties;
