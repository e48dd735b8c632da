//! The network of this host, for sources and sinks: addresses, interfaces, multicast groups, UDP sockets.
//!
//! # Layout
//! - [`address`]: addresses as parameters have them, with several groups
//! - [`family`]: IPv4 and IPv6
//! - [`interface`]: network interfaces of this host
//! - [`membership`]: multicast groups, joined again when an interface is made again
//! - [`sockets`]: UDP sockets of receivers

pub mod address;
pub mod family;
pub mod interface;
pub mod membership;
pub mod sockets;
