//! Radios, and programs that exchange raw samples by pipes, sockets and ZMQ.

pub mod types;
