//! SPEAD-64-48, version 4, as used by the `MeerKAT` engines.
//!
//! Not a block: code shared by [`spead_source`](crate::io::spead_source) and
//! [`spead_sink`](crate::io::spead_sink), and a base for blocks of other streams.
//!
//! # Layout
//! - [`packet`]: parser and writer of one datagram; checks all lengths
//! - [`item`]: the item identifiers of the streams
//! - [`descriptor`]: heaps that describe the items of a stream
//! - [`address`]: `a.b.c.d+N:port` and network interfaces
//! - [`receive`], [`send`]: batched UDP
//! - [`link`]: frames between a source and its receiving thread
//! - [`pcap`]: datagrams from a capture file; `pcapng`: its newer format

pub mod address;
pub mod descriptor;
pub mod item;
pub mod link;
pub mod packet;
pub mod pcap;
mod pcapng;
pub mod receive;
pub mod send;
