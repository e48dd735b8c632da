//! Radios, and programs that exchange raw samples by pipes, sockets and ZMQ.

#[cfg(feature = "sdr")]
pub mod sdr_source;
pub mod types;
