#![allow(clippy::unwrap_used)]

mod bases;
mod conflict;
mod overload;
mod restart;
mod threads;
mod unexpected;

use super::*;
use crate::io::spead::packet::{Head, Pointer};
use crate::io::spead_source::layout::Stream;
use crate::io::spead_source::slot::MAX_PIECES;
use fxgraph::Counters;
use fxgraph::frame::{HostAllocator, Pool};
use fxgraph::{Env, FrameMut};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

const FROM: Endpoint = Endpoint::v4(Ipv4Addr::LOCALHOST, 7148);
/// Another address.
const FOREIGN: Endpoint = Endpoint::v4(Ipv4Addr::LOCALHOST, 9999);
const HEAP: usize = 64;
const HEAPS: usize = 4;
const STEP: u64 = 32;
/// A heap each millisecond.
const RATE: f64 = STEP as f64 * 1e3;
/// Heaps from the next turn of the 48-bit timestamps.
const TURN: u64 = (1 << 48) / STEP;

/// A pool of empty frames and a list of the frames sent.
struct Desk {
    pool: Arc<Pool>,
    out: Vec<FrameMut>,
}

impl Desk {
    fn new(layout: &Layout, buffers: usize) -> Self {
        let units = layout.slots() / layout.heaps_per_unit();
        let bytes = layout.slots() * layout.heap_bytes;
        let pool = Pool::new(&HostAllocator, buffers, bytes, units).unwrap();
        Self { pool, out: Vec::new() }
    }
}

impl Frames for Desk {
    fn take(&mut self) -> Option<FrameMut> {
        let mut frame = self.pool.take()?;
        // Content of an old frame.
        frame.as_mut_slice::<u8>().unwrap().fill(0xee);
        Some(frame)
    }

    fn push(&mut self, frame: FrameMut) {
        self.out.push(frame);
    }
}

fn digitiser() -> Layout {
    let stream = Stream::Digitiser { pol: Some(1) };
    Layout { stream, heap_bytes: HEAP, samples_per_heap: STEP, heaps_per_frame: HEAPS }
}

fn f_engine() -> Layout {
    let stream =
        Stream::FEngine { antennas: 3, substreams: 2, first_channel: 8, channels_per_substream: 4 };
    Layout { stream, heap_bytes: HEAP, samples_per_heap: STEP, heaps_per_frame: 1 }
}

fn packet(counter: u64, at: usize, part: &[u8], items: &[Pointer]) -> Vec<u8> {
    [Head::new(counter, HEAP, at, part.len(), items).as_bytes(), part].concat()
}

fn sample_items(heap: u64) -> [Pointer; 4] {
    [
        Pointer::immediate(item::TIMESTAMP, heap * STEP),
        Pointer::immediate(item::DIGITISER_ID, 1),
        Pointer::immediate(item::DIGITISER_STATUS, 3 << 32),
        Pointer::addressed(item::RAW_SAMPLES, 0),
    ]
}

/// Heap number `heap`, in one packet, with its number in every byte.
fn heap(heap: u64) -> Vec<u8> {
    packet(heap, 0, &[heap as u8; HEAP], &sample_items(heap))
}

fn voltages(heap: u64, antenna: u64, channel: u64, at: usize, part: &[u8]) -> Vec<u8> {
    let items = [
        Pointer::immediate(item::TIMESTAMP, heap * STEP),
        Pointer::immediate(item::FENG_ID, antenna),
        Pointer::immediate(item::FREQUENCY, channel),
        Pointer::addressed(item::FENG_RAW, 0),
    ];
    packet(heap * 3 + antenna, at, part, &items)
}

fn count(counters: &Counters, name: &str) -> u64 {
    counters.list().iter().find(|c| c.name == name).map_or(u64::MAX, |c| c.counter.get())
}

fn heap_bytes(frame: &FrameMut, slot: usize) -> &[u8] {
    &frame.as_slice::<u8>().unwrap()[slot * HEAP..][..HEAP]
}

#[test]
fn late_and_missing_heaps_are_placed_and_flagged() {
    let env = Env::detached("in");
    let counters = env.counters.clone();
    let mut window = Window::new(digitiser(), Options::new(4, RATE), &env);
    let mut desk = Desk::new(&digitiser(), 64);
    let mut order: Vec<u64> = (40..80).filter(|h| ![47, 60, 61].contains(h)).collect();
    order.swap(0, 3);
    order.swap(6, 11);
    order.swap(20, 27);
    for h in &order {
        window.datagram(&heap(*h), FROM, &mut desk);
    }
    window.datagram(&heap(order[25]), FROM, &mut desk);
    window.flush(&mut desk);
    let mut seen = Vec::new();
    for frame in &desk.out {
        let first = frame.header().timestamp / STEP;
        assert_eq!(frame.header().timestamp % (STEP * HEAPS as u64), 0);
        for slot in 0..HEAPS {
            let number = first + slot as u64;
            let there = order.contains(&number);
            assert_eq!(frame.header().validity[slot], u32::from(there), "heap {number}");
            let expected = if there { number as u8 } else { 0 };
            assert_eq!(heap_bytes(frame, slot), [expected; HEAP]);
        }
        seen.push(first);
    }
    assert_eq!(seen, (40..80).step_by(HEAPS).collect::<Vec<_>>());
    assert_eq!(count(&counters, "heaps_missing"), 3);
    assert_eq!(count(&counters, "heaps_received"), 37);
    assert_eq!(count(&counters, "samples_saturated"), 3 * 37);
    let again = count(&counters, "packets_duplicate") + count(&counters, "packets_too_late");
    assert_eq!(again, 1);
}

#[test]
fn heaps_before_and_after_the_stream_are_not_missing() {
    let env = Env::detached("in");
    let counters = env.counters.clone();
    let mut window = Window::new(digitiser(), Options::new(4, RATE), &env);
    let mut desk = Desk::new(&digitiser(), 64);
    // The stream begins and ends within a frame; heap 50 and the whole frame from 56 on are missing.
    for h in (42..71).filter(|h| *h != 50 && !(56..60).contains(h)) {
        window.datagram(&heap(h), FROM, &mut desk);
    }
    window.flush(&mut desk);
    assert_eq!(count(&counters, "heaps_received"), 24);
    assert_eq!(count(&counters, "heaps_missing"), 5);
    assert_eq!(desk.out[0].header().validity, [0, 0, 1, 1]);
}

#[test]
fn overlapping_and_repeated_packets_make_one_complete_heap() {
    let env = Env::detached("in");
    let counters = env.counters.clone();
    let mut window = Window::new(f_engine(), Options::new(2, RATE), &env);
    let mut desk = Desk::new(&f_engine(), 4);
    let payload: Vec<u8> = (0..HEAP as u8).collect();
    for antenna in 0..3 {
        for channel in [12, 8] {
            // Antenna 2 never sends bytes 48..56.
            let last = if antenna == 2 { 56..64 } else { 40..64 };
            for part in [48..48, 32..48, 0..10, 5..20, 32..48, 18..33, 6..12, last] {
                let bytes = &payload[part.clone()];
                window.datagram(&voltages(9, antenna, channel, part.start, bytes), FROM, &mut desk);
            }
        }
    }
    window.flush(&mut desk);
    assert_eq!(desk.out.len(), 1);
    let frame = &desk.out[0];
    assert_eq!(frame.header().validity, [1, 1, 0]);
    for slot in 0..4 {
        assert_eq!(heap_bytes(frame, slot), payload);
    }
    assert_eq!(heap_bytes(frame, 4), [0; HEAP]);
    assert_eq!(count(&counters, "heaps_incomplete"), 2);
    assert_eq!(count(&counters, "packets_duplicate"), 12);
}

#[test]
fn validity_unit_without_a_substream_is_invalid() {
    let env = Env::detached("in");
    let mut window = Window::new(f_engine(), Options::new(2, RATE), &env);
    let mut desk = Desk::new(&f_engine(), 4);
    for (antenna, channel) in [(0, 8), (0, 12), (1, 12), (2, 8)] {
        window.datagram(
            &voltages(5, antenna, channel, 0, &[antenna as u8 + 1; HEAP]),
            FROM,
            &mut desk,
        );
    }
    window.flush(&mut desk);
    assert_eq!(desk.out[0].header().validity, [1, 0, 0]);
    assert_eq!(heap_bytes(&desk.out[0], 3), [2; HEAP]);
    assert_eq!(heap_bytes(&desk.out[0], 2), [0; HEAP]);
}

#[test]
fn bad_packets_are_counted_by_cause_and_rejected() {
    let env = Env::detached("in");
    let counters = env.counters.clone();
    let mut window = Window::new(f_engine(), Options::new(2, RATE), &env);
    let mut desk = Desk::new(&f_engine(), 4);
    let good = voltages(5, 0, 8, 0, &[1; HEAP]);
    let mut bad = |bytes: &[u8], cause: &str| {
        let before = count(&counters, cause);
        window.datagram(bytes, FROM, &mut desk);
        assert_eq!(count(&counters, cause), before + 1, "{cause}");
    };
    bad(b"hello", "packets_not_spead");
    bad(&[&[0x53, 3][..], &good[2..]].concat(), "packets_wrong_flavour");
    bad(&good[..good.len() - 5], "packets_truncated");
    bad(&[&good[..], &[0; 3]].concat(), "packets_wrong_length");
    bad(&voltages(5, 0, 8, 60, &[1; 5]), "packets_outside_heap");
    bad(&voltages(5, 3, 8, 0, &[1; HEAP]), "packets_foreign");
    bad(&voltages(5, 0, 9, 0, &[1; HEAP]), "packets_foreign");
    bad(&voltages(5, 0, 16, 0, &[1; HEAP]), "packets_foreign");
    bad(&voltages(5, 0, 4, 0, &[1; HEAP]), "packets_foreign");
    bad(&heap(5), "packets_foreign");
    let items = [
        Pointer::immediate(item::TIMESTAMP, STEP + 1),
        Pointer::immediate(item::FENG_ID, 0),
        Pointer::immediate(item::FREQUENCY, 8),
        Pointer::addressed(item::FENG_RAW, 0),
    ];
    bad(&packet(1, 0, &[0; HEAP], &items), "packets_misaligned");
    let head = Head::new(1, HEAP / 2, 0, 8, &items);
    bad(&[head.as_bytes(), &[0; 8]].concat(), "packets_wrong_length");
    let descriptor = [Pointer::addressed(item::DESCRIPTOR, 0)];
    bad(&packet(1, 0, &[0; HEAP], &descriptor), "heaps_descriptor");
    window.flush(&mut desk);
    assert!(desk.out.is_empty());
}

/// A window on a stream in real time, a heap each millisecond.
struct Live {
    counters: Counters,
    window: Window,
    desk: Desk,
    start: Instant,
    millis: u64,
}

impl Live {
    fn new(frames: usize) -> Self {
        Self::of(digitiser(), Options::new(frames, RATE))
    }

    fn of(layout: Layout, options: Options) -> Self {
        let env = Env::detached("in");
        Self {
            window: Window::new(layout, options, &env),
            desk: Desk::new(&layout, 10_000),
            counters: env.counters,
            start: Instant::now(),
            millis: 0,
        }
    }

    /// Sends a heap now.
    fn heap(&mut self, number: u64) -> Outcome {
        self.heap_from(FROM, number)
    }

    fn heap_from(&mut self, sender: Endpoint, number: u64) -> Outcome {
        self.window.tick(self.start + Duration::from_millis(self.millis));
        self.window.datagram(&heap(number), sender, &mut self.desk)
    }

    /// Sends a heap each millisecond.
    fn stream(&mut self, numbers: std::ops::Range<u64>) -> Vec<Outcome> {
        let next = |number| {
            self.millis += 1;
            self.heap(number)
        };
        numbers.map(next).collect()
    }

    /// Returns the numbers of the valid heaps in the frames sent, in order.
    fn handed_on(&mut self) -> Vec<u64> {
        self.window.flush(&mut self.desk);
        let mut heaps = Vec::new();
        let mut last = None;
        for frame in &self.desk.out {
            let header = frame.header();
            assert!(last < Some(header.timestamp), "time grows");
            last = Some(header.timestamp);
            let first = header.timestamp / STEP;
            let valid = header.validity.iter().enumerate().filter(|(_, valid)| **valid > 0);
            heaps.extend(valid.map(|(slot, _)| first + slot as u64));
        }
        heaps
    }

    fn count(&self, name: &str) -> u64 {
        count(&self.counters, name)
    }
}

#[test]
fn stream_over_several_sockets_is_complete() {
    // Four heaps from each socket in turn, and frames of one heap.
    let layout = Layout { heaps_per_frame: 1, ..digitiser() };
    let env = Env::detached("in");
    let mut live = Live::new(64);
    live.window = Window::new(layout, Options { stride: 8, ..Options::new(64, RATE) }, &env);
    live.desk = Desk::new(&layout, 2000);
    for turn in 0..30 {
        for socket in 0..8 {
            for n in 0..4 {
                live.heap(1000 + turn * 32 + n * 8 + socket);
            }
        }
        live.millis += 32;
    }
    assert_eq!(live.handed_on(), (1000..1960).collect::<Vec<_>>());
    assert_eq!(count(&env.counters, "packets_too_late"), 0);
}

#[test]
fn window_without_free_frames_drops_whole_frames() {
    let env = Env::detached("in");
    let counters = env.counters.clone();
    let mut window = Window::new(digitiser(), Options::new(2, RATE), &env);
    let mut desk = Desk::new(&digitiser(), 3);
    for h in 0..10 * HEAPS as u64 {
        window.datagram(&heap(h), FROM, &mut desk);
    }
    window.flush(&mut desk);
    let first: Vec<u64> =
        desk.out.iter().map(|f| f.header().timestamp / STEP / HEAPS as u64).collect();
    assert_eq!(first, [0, 1, 2]);
    assert!(desk.out.iter().all(|f| f.header().validity == [1; HEAPS]));
    assert_eq!(count(&counters, "frames_dropped"), 7);
}

#[test]
fn million_heap_identifiers_take_no_memory() {
    let env = Env::detached("in");
    let mut window = Window::new(digitiser(), Options::new(4, RATE), &env);
    let mut desk = Desk::new(&digitiser(), 4);
    let mut seed = 1_u64;
    for counter in 0..1_000_000_u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let items = sample_items(seed >> 24 & ((1 << 43) - 1));
        window.datagram(&packet(counter, (counter % 8) as usize, &[1; 2], &items), FROM, &mut desk);
        desk.out.clear();
    }
    let tables =
        window.spare.len() + window.entries.iter().filter(|e| matches!(e, Entry::Open(_))).count();
    assert_eq!(window.entries.len(), 4);
    assert!(tables <= 4, "{tables} slot tables");
}

#[test]
fn heap_in_too_many_pieces_stays_within_its_memory() {
    let env = Env::detached("in");
    let counters = env.counters.clone();
    let layout = Layout { heap_bytes: 1024, ..digitiser() };
    let mut window = Window::new(layout, Options::new(2, RATE), &env);
    let mut desk = Desk::new(&layout, 2);
    for at in (0..1024).step_by(2) {
        let items = sample_items(0);
        let datagram = [Head::new(0, 1024, at, 1, &items).as_bytes(), &[1]].concat();
        window.datagram(&datagram, FROM, &mut desk);
    }
    assert_eq!(count(&counters, "packets_too_fragmented"), 512 - MAX_PIECES as u64);
}

proptest! {
    #[test]
    fn mutated_packets_do_not_panic_or_damage_other_heaps(
        changes in proptest::collection::vec((0_usize..200, any::<u8>(), 0_usize..140), 1..40),
    ) {
        let env = Env::detached("in");
        let mut window = Window::new(digitiser(), Options::new(4, RATE), &env);
        let mut desk = Desk::new(&digitiser(), 64);
        for h in 8..16 {
            window.datagram(&heap(h), FROM, &mut desk);
        }
        for (at, value, keep) in &changes {
            let mut bytes = heap(18);
            let len = bytes.len();
            bytes[at % len] = *value;
            bytes.truncate((*keep).max(at % len + 1));
            window.datagram(&bytes, FROM, &mut desk);
        }
        window.flush(&mut desk);
        for frame in &desk.out {
            let first = frame.header().timestamp / STEP;
            for slot in 0..HEAPS {
                if (8..16).contains(&(first + slot as u64)) {
                    prop_assert_eq!(heap_bytes(frame, slot), [(first + slot as u64) as u8; HEAP]);
                }
            }
        }
    }
}
