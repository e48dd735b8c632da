//! SPEAD-64-48, version 4, as used by the `MeerKAT` engines.
//!
//! Not a block: code shared by [`spead_source`](crate::io::spead_source),
//! [`spead_sink`](crate::io::spead_sink), and the blocks of described streams in [`stream`](crate::io::stream).
//!
//! # Layout
//! - [`packet`]: parser and writer of one datagram; checks all lengths
//! - [`item`]: the item identifiers of the streams
//! - [`timestamp`]: timestamps of which 48 bits are on the wire
//! - [`descriptor`]: heaps that describe the items of a stream
//! - [`chosen`]: threads and buffers that are chosen from the rate of a stream
//! - [`control`]: heaps without data, and the numbers of heaps
//! - [`endpoint`]: addresses of senders, as datagrams carry them
//! - [`outage`]: packets that are dropped while the network takes none
//! - [`receive`], [`send`]: batched UDP; [`datagrams`]: those that were received together
//! - [`xdp`]: datagrams from AF_XDP sockets, which bypass the kernel's network stack; needs the feature
//!   `xdp`, without which `xdp_absent` is in its place
//! - [`port`]: sockets of a receiving thread, of either
//! - [`second_sender`]: two senders of one stream
//! - [`pcap`]: datagrams from a capture file; `pcapng`: its newer format

pub mod chosen;
pub mod control;
pub mod datagrams;
pub mod descriptor;
pub mod endpoint;
#[cfg(test)]
mod ipv6_tests;
pub mod item;
#[cfg(test)]
pub(crate) mod namespace;
pub mod outage;
#[cfg(test)]
mod outage_tests;
pub mod packet;
pub mod pcap;
mod pcapng;
pub mod port;
pub mod receive;
pub mod second_sender;
pub mod send;
#[cfg(test)]
mod sockets_tests;
pub mod timestamp;
#[cfg(any(feature = "xdp", test))]
pub mod xdp;
#[cfg(not(any(feature = "xdp", test)))]
#[path = "xdp_absent.rs"]
pub mod xdp;
