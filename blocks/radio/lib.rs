//! Radios, and programs that send and receive raw samples by pipes, sockets and ZMQ.

pub mod connect;
pub mod datagram;
pub mod sample_sink;
pub mod sample_source;
#[cfg(feature = "sdr")]
pub mod sdr_source;
pub mod types;
pub mod zmtp;
