//! Blocks for testing, conversion and the end of streams.

pub mod convert;
pub mod fault_injector;
#[cfg(feature = "python")]
pub mod kernel;
pub mod null_sink;
pub mod null_source;
#[cfg(feature = "python")]
pub mod python;
pub mod transpose;
