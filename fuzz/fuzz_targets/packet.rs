//! Arbitrary datagrams for the packet parser and the window of open frames.
#![cfg_attr(fuzzing, no_main)]

#[macro_use]
mod target;

use fxgraph::frame::{HostAllocator, Pool};
use fxgraph::{Env, FrameMut};
use fxgraph_blocks::io::spead::endpoint::Endpoint;
use fxgraph_blocks::io::spead::packet::Packet;
use fxgraph_blocks::io::spead_source::layout::{Layout, Stream};
use fxgraph_blocks::io::spead_source::window::{Frames, Options, Window};
use std::net::Ipv4Addr;
use std::sync::Arc;

const FROM: Endpoint = Endpoint::v4(Ipv4Addr::LOCALHOST, 7148);

struct Desk(Arc<Pool>);

impl Frames for Desk {
    fn take(&mut self) -> Option<FrameMut> {
        self.0.take()
    }

    fn push(&mut self, _frame: FrameMut) {}
}

target!(datagrams, "packet");

fn datagrams(bytes: &[u8]) {
    if let Ok(packet) = Packet::parse(bytes) {
        assert!(packet.offset + packet.payload.len() as u64 <= packet.heap_length);
    }
    let stream =
        Stream::FEngine { antennas: 3, substreams: 2, first_channel: 8, channels_per_substream: 4 };
    let layout = Layout { stream, heap_bytes: 32, samples_per_heap: 16, heaps_per_frame: 2 };
    let pool = Pool::new(&HostAllocator, 3, layout.slots() * 32, 6).expect("3 small buffers");
    let mut desk = Desk(pool);
    let mut window = Window::new(layout, Options::new(2, 1e6), &Env::detached("fuzz"));
    // Input: length in two bytes, datagram, length, datagram, ...
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length));
        let (datagram, after) = after.split_at(length.min(after.len()));
        window.datagram(datagram, FROM, &mut desk);
        rest = after;
    }
    window.flush(&mut desk);
}
