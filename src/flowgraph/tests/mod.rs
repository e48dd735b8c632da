//! Tests of whole flowgraphs.

mod devices;
pub(crate) mod kinds;
mod limits;
mod messages;
mod properties;
