//! Arbitrary datagrams for the window of `stream_source`.
#![cfg_attr(fuzzing, no_main)]

#[macro_use]
mod target;

use fxgraph::frame::{HostAllocator, Pool};
use fxgraph::{Axis, Clock, Dtype, Env, FrameMut, PortType, ValidityType};
use fxgraph_blocks::common::link::Frames;
use fxgraph_blocks::io::spead::endpoint::Endpoint;
use fxgraph_blocks::io::stream::Described;
use fxgraph_blocks::io::stream_source::window::{Options, Window};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Desk {
    pool: Arc<Pool>,
    last: Option<u64>,
}

impl Frames for Desk {
    fn take(&mut self) -> Option<FrameMut> {
        self.pool.take()
    }

    fn push(&mut self, frame: FrameMut) {
        let header = frame.header();
        assert!(self.last.is_none_or(|last| last < header.timestamp), "timestamps grow");
        assert!(header.validity.iter().all(|count| *count <= 2), "counts are at most `full`");
        self.last = Some(header.timestamp);
    }
}

target!(datagrams, "stream");

fn datagrams(bytes: &[u8]) {
    let port = PortType {
        dtype: Dtype::Ci8,
        axes: vec![Axis::new("heap", 2), Axis::new("channel", 4), Axis::new("spectrum", 8)],
        clock: Clock::new(1e6, 1000),
        band: None,
        validity: ValidityType {
            axes: vec![Axis::new("heap", 2), Axis::new("channel", 4)],
            full: 2,
        },
    };
    let described = Described::new(&port).expect("a type that can be described");
    let most = 8 * described.max_heap_bytes();
    let pool = Pool::new(&HostAllocator, 3, port.frame_bytes(), 8).expect("3 small buffers");
    let mut desk = Desk { pool, last: None };
    let options = Options { window: 4, max_gap_samples: 20_000 };
    let mut window = Window::new(described, options, &Env::detached("fuzz"));
    let mut now = Instant::now();
    // Input: length in two bytes, of which the highest bits choose the sender and a pause, datagram, length, ...
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u16::from_le_bytes(*length);
        let from = Endpoint::v4(Ipv4Addr::LOCALHOST, 7148 + (length >> 15));
        if length & 0x4000 != 0 {
            now += Duration::from_secs(2);
            window.tick(now, &mut desk);
        }
        let (datagram, after) = after.split_at(usize::from(length & 0x3fff).min(after.len()));
        window.datagram(datagram, from, now, &mut desk);
        rest = after;
    }
    window.flush(&mut desk);
    assert!(window.heap_bytes() <= most, "memory is limited");
}
