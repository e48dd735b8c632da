//! SPEAD-64-48, version 4, as the `MeerKAT` family of engines speaks it.
//!
//! Not a block: what [`spead_source`](crate::io::spead_source) and [`spead_sink`](crate::io::spead_sink)
//! share, and what a block for another stream would build on.
//!
//! # Layout
//! - [`packet`]: one datagram, read and written; never trusts a length
//! - [`item`]: the item identifiers of the streams
//! - [`descriptor`]: heaps that tell a receiver what a stream's items are
//! - [`address`]: `a.b.c.d+N:port` and network interfaces
//! - [`receive`], [`send`]: batched UDP
//! - [`pcap`]: datagrams out of a capture file

pub mod address;
pub mod descriptor;
pub mod item;
pub mod packet;
pub mod pcap;
pub mod receive;
pub mod send;
