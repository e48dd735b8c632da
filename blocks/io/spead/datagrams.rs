//! Datagrams that were read together, from a system call or from an AF_XDP socket.

use super::endpoint::Endpoint;
use std::net::Ipv4Addr;

/// The largest datagram, and the largest run of coalesced ones.
pub(super) const BUFFER_BYTES: usize = 1 << 16;
/// Distance of the buffers in bytes. The beginnings of all buffers must not share a few sets of the
/// caches: therefore not a power of two for the second level, and an odd number of lines for the first,
/// whose sets repeat every 4 KiB.
pub(super) const STRIDE: usize = BUFFER_BYTES + (8 << 10) + 64;

/// Packets that [`Queue::take`](super::xdp::queue::Queue) rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejections {
    /// Wrong headers.
    pub headers: u64,
    /// Fragments.
    pub fragments: u64,
    /// Wrong checksums.
    pub checksums: u64,
}

/// A message of the kernel: one datagram, or a run of datagrams of one sender.
#[derive(Clone, Copy)]
pub(super) struct Message {
    pub len: usize,
    /// Length of all datagrams of the run but the last one.
    pub segment: usize,
    pub sender: Endpoint,
}

/// Position of the payload of a datagram in the memory of an AF_XDP socket.
#[cfg_attr(not(any(feature = "xdp", test)), expect(dead_code))]
pub(super) struct Place {
    /// Whether the packet was joined from several parts, in memory of its own.
    pub is_joined: bool,
    pub start: usize,
    pub len: usize,
    pub sender: Endpoint,
}

/// Datagrams that were read together, with their senders.
pub struct Datagrams<'a>(Source<'a>);

enum Source<'a> {
    /// Messages of a system call.
    Messages {
        buffers: std::slice::ChunksExact<'a, u8>,
        messages: std::slice::Iter<'a, Message>,
        /// Datagrams of the present message that are left.
        run: std::slice::Chunks<'a, u8>,
        sender: Endpoint,
    },
    /// Packets of an AF_XDP socket.
    Places { places: std::slice::Iter<'a, Place>, bytes: &'a dyn Fn(&Place) -> &'a [u8] },
}

impl<'a> Datagrams<'a> {
    /// Datagrams of `messages`, whose bytes are in `buffers`, [`STRIDE`] apart.
    pub(super) fn new(buffers: &'a [u8], messages: &'a [Message]) -> Self {
        let sender = Endpoint::v4(Ipv4Addr::UNSPECIFIED, 0);
        Self(Source::Messages {
            buffers: buffers.chunks_exact(STRIDE),
            messages: messages.iter(),
            run: [].chunks(1),
            sender,
        })
    }

    #[cfg_attr(not(any(feature = "xdp", test)), expect(dead_code))]
    pub(super) fn of_places(places: &'a [Place], bytes: &'a dyn Fn(&Place) -> &'a [u8]) -> Self {
        Self(Source::Places { places: places.iter(), bytes })
    }
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = (&'a [u8], Endpoint);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Source::Places { places, bytes } => {
                let place = places.next()?;
                Some((bytes(place), place.sender))
            }
            Source::Messages { buffers, messages, run, sender } => {
                if let Some(datagram) = run.next() {
                    return Some((datagram, *sender));
                }
                let (message, buffer) = messages.next().zip(buffers.next())?;
                *sender = message.sender;
                *run = buffer[..message.len].chunks(message.segment);
                // An empty datagram is a datagram.
                Some((run.next().unwrap_or_default(), *sender))
            }
        }
    }
}
