#![allow(clippy::unwrap_used)]

use super::*;
use crate::io::spead::packet::{Head, Pointer};
use crate::io::spead_source::layout::Stream;
use crate::io::spead_source::slot::MAX_PIECES;
use fxgraph::Counters;
use fxgraph::frame::{HostAllocator, Pool};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7148);
/// Another address.
const FOREIGN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9999);
const HEAP: usize = 64;
const HEAPS: usize = 4;
const STEP: u64 = 32;
/// A heap each millisecond.
const RATE: f64 = STEP as f64 * 1e3;

/// A pool to take from and a list of what was passed on.
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
        // What an old frame left behind.
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
fn out_of_order_late_and_lost_heaps_end_up_in_place_and_marked() {
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
fn what_lies_outside_the_stream_is_not_missing() {
    let env = Env::detached("in");
    let counters = env.counters.clone();
    let mut window = Window::new(digitiser(), Options::new(4, RATE), &env);
    let mut desk = Desk::new(&digitiser(), 64);
    // It begins and ends within a frame; 50, and the whole frame from 56 on, are lost.
    for h in (42..71).filter(|h| *h != 50 && !(56..60).contains(h)) {
        window.datagram(&heap(h), FROM, &mut desk);
    }
    window.flush(&mut desk);
    assert_eq!(count(&counters, "heaps_received"), 24);
    assert_eq!(count(&counters, "heaps_missing"), 5);
    assert_eq!(desk.out[0].header().validity, [0, 0, 1, 1]);
}

#[test]
fn overlapping_and_repeated_packets_make_one_whole_heap() {
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
fn a_unit_is_valid_only_with_all_its_substreams() {
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
fn bad_packets_are_counted_by_cause_and_change_nothing() {
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

/// A window on a stream that comes in real time, a heap each millisecond.
struct Live {
    counters: Counters,
    window: Window,
    desk: Desk,
    start: Instant,
    millis: u64,
}

impl Live {
    fn new(frames: usize) -> Self {
        let env = Env::detached("in");
        let counters = env.counters.clone();
        Self {
            window: Window::new(digitiser(), Options::new(frames, RATE), &env),
            desk: Desk::new(&digitiser(), 10_000),
            counters,
            start: Instant::now(),
            millis: 0,
        }
    }

    /// A heap comes now.
    fn heap(&mut self, number: u64) -> Outcome {
        self.heap_from(FROM, number)
    }

    fn heap_from(&mut self, sender: SocketAddrV4, number: u64) -> Outcome {
        self.window.tick(self.start + Duration::from_millis(self.millis));
        self.window.datagram(&heap(number), sender, &mut self.desk)
    }

    /// Heaps come one each millisecond.
    fn stream(&mut self, numbers: std::ops::Range<u64>) -> Vec<Outcome> {
        let next = |number| {
            self.millis += 1;
            self.heap(number)
        };
        numbers.map(next).collect()
    }

    /// Numbers of the valid heaps that were handed on, in order.
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
fn strays_however_many_and_however_well_they_agree_move_nothing_while_the_stream_goes_on() {
    let mut live = Live::new(4);
    for h in 400..800 {
        live.stream(h..h + 1);
        // Ever longer runs, far ahead and far behind.
        for stray in 0..(h - 400) {
            live.heap((1 << 35) + h * 500 + stray);
            live.heap(stray);
        }
    }
    assert_eq!(live.handed_on(), (400..800).collect::<Vec<_>>());
    assert_eq!(live.count("window_jumps"), 0);
    let counted = ["packets_too_far_ahead", "packets_too_late", "heaps_stray"];
    let strays: u64 = counted.iter().map(|name| live.count(name)).sum();
    // At the start heaps are counted, of which some came twice.
    assert!((158_000..=400 * 399).contains(&strays), "{strays} strays");
    assert_eq!(live.count("heaps_missing"), 0);
}

#[test]
fn strays_in_the_future_are_not_believed_in_a_pause_before_there_are_many_over_many_frames() {
    let mut live = Live::new(4);
    live.stream(0..100);
    live.millis += 10_000;
    for stray in 0..63 {
        live.heap((1 << 35) + stray);
    }
    live.stream(10_100..10_200);
    assert_eq!(live.handed_on(), (0..100).chain(10_100..10_200).collect::<Vec<_>>());
    assert_eq!(live.count("packets_too_far_ahead"), 63);
}

#[test]
fn a_stray_first_heap_is_forgotten_and_nothing_of_it_is_handed_on() {
    for strays in [1, 3] {
        let mut live = Live::new(4);
        for stray in 0..strays {
            live.heap((1 << 40) + stray);
        }
        live.stream(400..480);
        assert_eq!(live.handed_on(), (400..480).collect::<Vec<_>>());
        assert_eq!(live.count("heaps_stray"), strays);
        assert_eq!(live.count("window_jumps"), 0);
    }
}

#[test]
fn a_stray_first_heap_from_the_future_does_not_vouch_for_others_like_it() {
    let ahead = 4_000_000;
    let mut live = Live::new(4);
    live.heap(ahead);
    live.stream(0..500);
    for stray in 500..506 {
        live.heap(ahead + stray);
    }
    let outcomes = live.stream(500..3500);
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Accepted));
    assert_eq!(live.handed_on(), (0..3500).collect::<Vec<_>>());
    assert_eq!(live.count("window_jumps"), 0);
    assert_eq!(live.count("packets_too_late"), 0);
    assert_eq!(live.count("packets_too_far_ahead"), 6);
    assert_eq!(live.count("heaps_stray"), 1);
}

#[test]
fn packets_without_payload_say_nothing_about_where_the_stream_is() {
    let mut live = Live::new(4);
    for number in 4_000_000..4_000_100 {
        let empty = packet(number, 0, &[], &sample_items(number));
        assert_eq!(live.window.datagram(&empty, FROM, &mut live.desk), Outcome::Refused);
    }
    live.stream(0..100);
    assert_eq!(live.handed_on(), (0..100).collect::<Vec<_>>());
    assert_eq!(live.count("packets_wrong_length"), 100);
}

#[test]
fn strays_in_a_pause_do_not_make_the_way_back_to_the_stream_longer() {
    let mut live = Live::new(4);
    live.stream(0..500);
    live.millis += 300_000;
    // Of a time that has come, so that the window goes there.
    for stray in 100_000..100_004 {
        live.heap(stray);
    }
    live.stream(300_500..301_000);
    let expected = (0..500).chain(100_000..100_004).chain(300_500..301_000);
    assert_eq!(live.handed_on(), expected.collect::<Vec<_>>());
}

#[test]
fn every_heap_of_an_outage_is_counted_as_missing() {
    // Longer than the window, and up to its length.
    for (from, to) in [(500, 1000), (501, 1002), (503, 1001), (500, 520), (499, 506)] {
        let mut live = Live::new(4);
        live.stream(0..from);
        live.millis += to - from;
        live.stream(to..1500);
        let handed_on = live.handed_on().len() as u64;
        assert_eq!(live.count("window_jumps"), u64::from(to > 600), "{from}..{to}");
        assert_eq!(live.count("heaps_missing"), 1500 - handed_on, "{from}..{to}");
        assert_eq!(live.count("heaps_received"), handed_on, "{from}..{to}");
    }
}

#[test]
fn the_wrap_of_the_48_bits_on_the_wire_is_not_seen_behind_the_source() {
    let wrap = (1 << 48) / STEP;
    for start in [wrap - 4, wrap - 8, wrap - 200] {
        let mut live = Live::new(4);
        live.stream(start..wrap + 200);
        assert_eq!(live.handed_on(), (start..wrap + 200).collect::<Vec<_>>());
        let losses = live.counters.list();
        assert!(losses.iter().filter(|c| c.is_loss).all(|c| c.counter.get() == 0));
    }
}

#[test]
fn gap_of_minutes_loses_no_heap_even_over_the_wrap() {
    let wrap = (1 << 48) / STEP;
    for start in [1000, wrap - 1000] {
        let mut live = Live::new(4);
        live.stream(start..start + 100);
        live.millis += 300_000;
        let after = start + 300_100;
        live.stream(after..after + 100);
        let expected = (start..start + 100).chain(after..after + 100);
        assert_eq!(live.handed_on(), expected.collect::<Vec<_>>());
        assert_eq!(live.count("window_jumps"), 1);
        // Longer than the longest gap whose heaps are missed.
        assert_eq!((live.count("time_jumps"), live.count("heaps_missing")), (1, 0));
    }
}

#[test]
fn a_gap_in_a_file_which_has_no_clock_is_crossed_on_more_evidence() {
    let env = Env::detached("in");
    let counters = env.counters.clone();
    let mut window = Window::new(digitiser(), Options::new(4, RATE), &env);
    let mut desk = Desk::new(&digitiser(), 64);
    for h in (0..40).chain(4000..4100) {
        window.datagram(&heap(h), FROM, &mut desk);
    }
    assert_eq!(count(&counters, "window_jumps"), 1);
    window.flush(&mut desk);
    assert_eq!(count(&counters, "packets_too_far_ahead"), 0);
    assert_eq!(count(&counters, "heaps_missing"), 4000 - 40);
}

#[test]
fn a_stream_that_leaps_into_the_future_is_followed_once_its_old_time_is_silent() {
    let mut live = Live::new(4);
    live.stream(0..100);
    live.stream(1_000_000..1_001_000);
    assert_eq!(live.handed_on(), (0..100).chain(1_000_000..1_001_000).collect::<Vec<_>>());
    assert_eq!(live.count("packets_too_far_ahead"), 0);
    assert_eq!((live.count("resyncs"), live.count("heaps_missing")), (1, 0));
}

/// Heaps from the next turn of the 48-bit timestamps.
const TURN: u64 = (1 << 48) / STEP;

#[test]
fn restart_of_the_sender_continues_in_the_next_turn_without_loss() {
    // From later to earlier, before a second was over, with a pause, and twice.
    for (before, pause) in [(5000..10_000, 0), (5000..5400, 0), (5000..5400, 3000)] {
        let mut live = Live::new(4);
        live.stream(before.clone());
        live.millis += pause;
        live.stream(0..3000);
        live.millis += pause;
        live.stream(8..2000);
        let expected = before.chain(TURN..TURN + 3000).chain(2 * TURN + 8..2 * TURN + 2000);
        assert_eq!(live.handed_on(), expected.collect::<Vec<_>>());
        assert_eq!((live.count("resyncs"), live.count("heaps_missing")), (2, 0));
        assert_eq!(live.count("packets_too_late"), 0);
    }
}

#[test]
fn restart_within_the_length_of_the_window_is_no_delay() {
    // A slow stream has a window of many seconds.
    let mut live = Live::new(2048);
    live.stream(5000..5400);
    live.millis += 1200;
    live.stream(0..3000);
    assert_eq!(live.handed_on(), (5000..5400).chain(TURN..TURN + 3000).collect::<Vec<_>>());
    assert_eq!((live.count("resyncs"), live.count("packets_too_late")), (1, 0));
}

#[test]
fn restart_just_before_the_end_is_handed_on() {
    let mut live = Live::new(4);
    live.stream(5000..10_000);
    live.millis += 300;
    live.stream(0..10);
    assert_eq!(live.handed_on(), (5000..10_000).chain(TURN..TURN + 10).collect::<Vec<_>>());
}

#[test]
fn restart_of_the_sender_ends_the_stream_if_asked_for() {
    let mut live = Live::new(4);
    live.window.options.resyncs = false;
    live.stream(5000..10_000);
    let outcomes = live.stream(0..2000);
    let held = outcomes.iter().take_while(|o| matches!(o, Outcome::Held { .. })).count();
    // A quarter of a second of nothing else.
    assert_eq!(held, 249);
    assert!(matches!(outcomes[held], Outcome::WentBack { .. }), "{:?}", outcomes[held]);
    assert_eq!(live.handed_on(), (5000..10_000).collect::<Vec<_>>());
}

#[test]
fn restart_of_all_f_engines_keeps_every_heap() {
    let env = Env::detached("in");
    let mut window = Window::new(f_engine(), Options::new(4, RATE), &env);
    let mut desk = Desk::new(&f_engine(), 2000);
    let start = Instant::now();
    let mut millis = 0;
    for first in [700, 20, 100] {
        millis += 2000;
        for number in first..first + 100 {
            millis += 1;
            window.tick(start + Duration::from_millis(millis));
            for antenna in 0..3 {
                // F-engines that start again send from other ports.
                let port = (1000 + first + antenna) as u16;
                let sender = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
                for channel in [8, 12] {
                    let heap = voltages(number, antenna, channel, 0, &[1; HEAP]);
                    window.datagram(&heap, sender, &mut desk);
                }
            }
        }
    }
    window.flush(&mut desk);
    let heaps: Vec<u64> = desk.out.iter().map(|frame| frame.header().timestamp / STEP).collect();
    let expected = (700..800).chain(TURN + 20..TURN + 120).chain(2 * TURN + 100..2 * TURN + 200);
    assert_eq!(heaps, expected.collect::<Vec<_>>());
    assert!(desk.out.iter().all(|frame| frame.header().validity == [1; 3]));
    assert_eq!(count(&env.counters, "resyncs"), 2);
}

#[test]
fn restart_of_one_f_engine_leaves_the_others_alone() {
    let env = Env::detached("in");
    let mut window = Window::new(f_engine(), Options::new(4, RATE), &env);
    let mut desk = Desk::new(&f_engine(), 2000);
    let start = Instant::now();
    for number in 0..1000 {
        window.tick(start + Duration::from_millis(number));
        for antenna in 0..3 {
            let number = if antenna == 2 { number % 500 } else { number } + 3000;
            for channel in [8, 12] {
                let heap = voltages(number, antenna, channel, 0, &[1; HEAP]);
                window.datagram(&heap, FROM, &mut desk);
            }
        }
    }
    window.flush(&mut desk);
    assert_eq!(desk.out.len(), 1000);
    assert!(desk.out.iter().all(|frame| frame.header().validity[..2] == [1; 2]));
    assert_eq!(count(&env.counters, "resyncs"), 0);
    assert_eq!(count(&env.counters, "packets_too_late"), 2 * 500);
}

#[test]
fn foreign_packet_up_to_half_a_window_ahead_loses_nothing() {
    for ahead in 1..12 {
        let mut live = Live::new(16);
        live.stream(0..60);
        // One heap is late: the window waits for it.
        live.stream(61..64);
        for number in 64..100 {
            live.stream(number..number + 1);
            if number == 70 {
                live.heap_from(FOREIGN, number + ahead * HEAPS as u64);
            }
        }
        live.heap(60);
        live.stream(100..400);
        let foreign = 70 + ahead * HEAPS as u64;
        let mut handed_on = live.handed_on();
        handed_on.retain(|number| *number != foreign);
        let expected = (0..400).filter(|number| *number != foreign);
        assert_eq!(handed_on, expected.collect::<Vec<_>>(), "{ahead} frames ahead");
    }
}

#[test]
fn foreign_packet_beyond_a_full_window_does_not_move_it() {
    let mut live = Live::new(16);
    // Heap 41 is late, and the window is full behind it.
    live.stream(0..41);
    live.stream(42..104);
    for ahead in [3, 5, 9] {
        live.heap_from(FOREIGN, 104 + ahead * HEAPS as u64);
    }
    live.heap(41);
    live.stream(104..400);
    assert_eq!(live.handed_on(), (0..400).collect::<Vec<_>>());
    // The foreign ones.
    assert_eq!(live.count("packets_too_late"), 3);
}

#[test]
fn strays_that_outnumber_the_stream_at_the_start_do_not_keep_it_out() {
    // At random times, and always at the same time.
    let mut seed = 1_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 24 & ((1 << 43) - 1)
    };
    let strays: [&mut dyn FnMut() -> u64; 2] = [&mut random, &mut || 1 << 40];
    for (case, stray) in strays.into_iter().enumerate() {
        let mut live = Live::new(4);
        for number in 0..2000 {
            for _ in 0..5 {
                live.window.tick(live.start + Duration::from_millis(live.millis));
                let heap = heap(stray());
                live.window.datagram(&heap, FOREIGN, &mut live.desk);
            }
            live.stream(400 + number..401 + number);
        }
        assert!(live.handed_on().into_iter().eq(400..2400), "case {case}");
    }
}

#[test]
fn stream_is_followed_once_stale_heaps_that_came_first_end() {
    for stale in [4, 100, 1000] {
        let mut live = Live::new(4);
        live.stream(1_000_000..1_000_000 + stale);
        live.stream(400..2400);
        let handed_on = live.handed_on();
        let expected = (1_000_000..1_000_000 + stale).chain(TURN + 400..TURN + 2400);
        assert_eq!(handed_on, expected.collect::<Vec<_>>());
    }
}

#[test]
fn stream_of_real_pace_takes_over_from_one_without() {
    let mut live = Live::new(4);
    // Faster than real time, long before the stream begins and ever after.
    let mut stray = 1 << 40;
    for number in 0..6000 {
        for _ in 0..5 {
            stray += 1;
            live.window.tick(live.start + Duration::from_millis(live.millis));
            live.window.datagram(&heap(stray), FOREIGN, &mut live.desk);
        }
        if number >= 1000 {
            live.stream(number..number + 1);
        } else {
            live.millis += 1;
        }
    }
    let handed_on = live.handed_on();
    let taken = handed_on.iter().filter(|heap| (TURN..TURN + 6000).contains(heap)).count();
    assert!(taken >= 3500, "{taken} of 5000 heaps");
}

#[test]
fn part_of_a_stream_before_a_pause_is_kept_however_short() {
    for part in [1, 3, 4, 100] {
        let env = Env::detached("in");
        let layout = Layout { heaps_per_frame: 256, ..digitiser() };
        let mut live = Live::new(4);
        live.window = Window::new(layout, Options::new(4, RATE), &env);
        live.desk = Desk::new(&layout, 100);
        live.stream(1000..1000 + part);
        live.millis += 20_000;
        live.stream(21_000 + part..22_000);
        let expected = (1000..1000 + part).chain(21_000 + part..22_000);
        assert_eq!(live.handed_on(), expected.collect::<Vec<_>>());
        assert_eq!(count(&env.counters, "heaps_stray"), 0);
    }
}

#[test]
fn first_frame_after_a_gap_does_not_wait_for_what_the_gap_lacks() {
    let mut live = Live::new(16);
    live.stream(1002..1100);
    live.millis += 20_000;
    // From the middle of a frame to the middle of another.
    live.stream(21_102..21_110);
    let last = live.desk.out.last().unwrap();
    assert_eq!(last.header().timestamp / STEP, 21_104);
    assert_eq!(live.desk.out[0].header().validity, [0, 0, 1, 1]);
    assert_eq!(live.handed_on(), (1002..1100).chain(21_102..21_110).collect::<Vec<_>>());
}

#[test]
fn jump_of_the_time_is_one_jump_and_no_missing_heaps() {
    let mut live = Live::new(4);
    live.stream(0..1000);
    live.stream(1 << 41..(1 << 41) + 1000);
    assert_eq!(live.handed_on(), (0..1000).chain(1 << 41..(1 << 41) + 1000).collect::<Vec<_>>());
    assert_eq!((live.count("heaps_missing"), live.count("window_jumps")), (0, 1));
}

#[test]
fn stream_over_several_sockets_is_taken_whole() {
    // Four heaps of each socket after the other, and frames of one heap.
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
fn while_the_stream_goes_on_another_that_lags_behind_is_only_counted() {
    let mut live = Live::new(4);
    for h in 5000..9000 {
        live.stream(h..h + 1);
        assert_ne!(live.heap(h - 4000), Outcome::Accepted);
    }
    assert_eq!(live.handed_on(), (5000..9000).collect::<Vec<_>>());
    assert_eq!(live.count("packets_too_late") + live.count("heaps_stray"), 4000);
    assert_eq!(live.count("resyncs"), 0);
}

#[test]
fn without_buffers_whole_frames_are_dropped() {
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
fn a_million_heap_identifiers_take_no_memory() {
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
fn a_heap_in_too_many_pieces_is_given_up_without_growth() {
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
    fn mutated_packets_never_panic_and_never_damage_other_heaps(
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
