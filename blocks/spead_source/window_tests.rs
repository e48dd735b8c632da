#![allow(clippy::unwrap_used)]

use super::*;
use crate::spead::packet::{Head, Pointer};
use crate::spead_source::layout::Stream;
use crate::spead_source::slot::MAX_PIECES;
use fxgraph::frame::{HostAllocator, Pool};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

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
        frame.as_mut_slice::<u8>().fill(0xee);
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
    &frame.as_slice::<u8>()[slot * HEAP..][..HEAP]
}

#[test]
fn out_of_order_late_and_lost_heaps_end_up_in_place_and_marked() {
    let counters = Counters::default();
    let mut window = Window::new(digitiser(), 4, RATE, &counters);
    let mut desk = Desk::new(&digitiser(), 64);
    let mut order: Vec<u64> = (40..80).filter(|h| ![47, 60, 61].contains(h)).collect();
    order.swap(0, 3);
    order.swap(6, 11);
    order.swap(20, 27);
    for h in &order {
        window.datagram(&heap(*h), &mut desk);
    }
    window.datagram(&heap(order[25]), &mut desk);
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
    let counters = Counters::default();
    let mut window = Window::new(digitiser(), 4, RATE, &counters);
    let mut desk = Desk::new(&digitiser(), 64);
    // It begins and ends within a frame; 50, and the whole frame from 56 on, are lost.
    for h in (42..71).filter(|h| *h != 50 && !(56..60).contains(h)) {
        window.datagram(&heap(h), &mut desk);
    }
    window.flush(&mut desk);
    assert_eq!(count(&counters, "heaps_received"), 24);
    assert_eq!(count(&counters, "heaps_missing"), 5);
    assert_eq!(desk.out[0].header().validity, [0, 0, 1, 1]);
}

#[test]
fn overlapping_and_repeated_packets_make_one_whole_heap() {
    let counters = Counters::default();
    let mut window = Window::new(f_engine(), 2, RATE, &counters);
    let mut desk = Desk::new(&f_engine(), 4);
    let payload: Vec<u8> = (0..HEAP as u8).collect();
    for antenna in 0..3 {
        for channel in [12, 8] {
            // Antenna 2 never sends bytes 48..56.
            let last = if antenna == 2 { 56..64 } else { 40..64 };
            for part in [48..48, 32..48, 0..10, 5..20, 32..48, 18..33, 6..12, last] {
                let bytes = &payload[part.clone()];
                window.datagram(&voltages(9, antenna, channel, part.start, bytes), &mut desk);
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
    let counters = Counters::default();
    let mut window = Window::new(f_engine(), 2, RATE, &counters);
    let mut desk = Desk::new(&f_engine(), 4);
    for (antenna, channel) in [(0, 8), (0, 12), (1, 12), (2, 8)] {
        window.datagram(&voltages(5, antenna, channel, 0, &[antenna as u8 + 1; HEAP]), &mut desk);
    }
    window.flush(&mut desk);
    assert_eq!(desk.out[0].header().validity, [1, 0, 0]);
    assert_eq!(heap_bytes(&desk.out[0], 3), [2; HEAP]);
    assert_eq!(heap_bytes(&desk.out[0], 2), [0; HEAP]);
}

#[test]
fn bad_packets_are_counted_by_cause_and_change_nothing() {
    let counters = Counters::default();
    let mut window = Window::new(f_engine(), 2, RATE, &counters);
    let mut desk = Desk::new(&f_engine(), 4);
    let good = voltages(5, 0, 8, 0, &[1; HEAP]);
    let mut bad = |bytes: &[u8], cause: &str| {
        let before = count(&counters, cause);
        window.datagram(bytes, &mut desk);
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
        let counters = Counters::default();
        Self {
            window: Window::new(digitiser(), frames, RATE, &counters),
            desk: Desk::new(&digitiser(), 2000),
            counters,
            start: Instant::now(),
            millis: 0,
        }
    }

    /// A heap comes now.
    fn heap(&mut self, number: u64) -> Outcome {
        self.window.tick(self.start + Duration::from_millis(self.millis));
        self.window.datagram(&heap(number), &mut self.desk)
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
    let strays = live.count("packets_too_far_ahead") + live.count("packets_too_late");
    assert_eq!(strays, 400 * 399);
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
    // The few that say that the stream goes on.
    assert_eq!(live.handed_on(), (0..100).chain(10_103..10_200).collect::<Vec<_>>());
}

#[test]
fn a_stray_first_heap_is_forgotten_and_nothing_of_it_is_handed_on() {
    for strays in [1, 3] {
        let mut live = Live::new(4);
        for stray in 0..strays {
            live.heap((1 << 40) + stray);
        }
        live.stream(400..480);
        let lost = if strays == 1 { 3 } else { 5 };
        assert_eq!(live.handed_on(), (400 + lost..480).collect::<Vec<_>>());
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
    assert_eq!(live.handed_on(), (3..3500).collect::<Vec<_>>());
    assert_eq!(live.count("window_jumps"), 0);
    // The good ones until the fourth agrees with them, and the strays.
    assert_eq!(live.count("packets_too_late"), 3);
    assert_eq!(live.count("packets_too_far_ahead"), 6);
    assert_eq!(live.count("heaps_stray"), 1);
}

#[test]
fn packets_without_payload_say_nothing_about_where_the_stream_is() {
    let mut live = Live::new(4);
    for number in 4_000_000..4_000_100 {
        let empty = packet(number, 0, &[], &sample_items(number));
        assert_eq!(live.window.datagram(&empty, &mut live.desk), Outcome::Refused);
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
    let expected = (0..500).chain([100_003]).chain(300_503..301_000);
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
fn a_gap_of_minutes_is_crossed_at_the_cost_of_few_heaps_even_over_the_wrap() {
    let wrap = (1 << 48) / STEP;
    for start in [1000, wrap - 1000] {
        let mut live = Live::new(4);
        live.stream(start..start + 100);
        live.millis += 300_000;
        let after = start + 300_100;
        live.stream(after..after + 100);
        let expected = (start..start + 100).chain(after + 3..after + 100);
        assert_eq!(live.handed_on(), expected.collect::<Vec<_>>());
        assert_eq!(live.count("window_jumps"), 1);
    }
}

#[test]
fn a_gap_in_a_file_which_has_no_clock_is_crossed_on_more_evidence() {
    let counters = Counters::default();
    let mut window = Window::new(digitiser(), 4, RATE, &counters);
    let mut desk = Desk::new(&digitiser(), 64);
    for h in (0..40).chain(4000..4100) {
        window.datagram(&heap(h), &mut desk);
    }
    assert_eq!(count(&counters, "window_jumps"), 1);
    assert_eq!(count(&counters, "packets_too_far_ahead"), 63);
    window.flush(&mut desk);
    // The last frame of the gap, and so the window, begins with heap 4060.
    assert_eq!(count(&counters, "heaps_missing"), 4063 - 40);
}

#[test]
fn a_stream_that_leaps_into_the_future_is_followed_once_its_old_time_is_silent() {
    let mut live = Live::new(4);
    live.stream(0..100);
    live.stream(1_000_000..1_001_000);
    // A quarter of a second of silence, less the heap that ends it.
    assert_eq!(live.handed_on(), (0..100).chain(1_000_249..1_001_000).collect::<Vec<_>>());
    assert_eq!(live.count("packets_too_far_ahead"), 249);
}

#[test]
fn a_restarted_digitiser_is_an_error_that_says_how_far_time_went_back() {
    let mut live = Live::new(4);
    live.stream(5000..10_000);
    let outcomes = live.stream(0..2000);
    let refused = outcomes.iter().take_while(|o| **o == Outcome::Refused).count();
    // A second of nothing else.
    assert_eq!(refused, 1000);
    // Frames are of 4 heaps; the window begins behind the last whole one.
    assert_eq!(outcomes[refused], Outcome::WentBack { samples: (10_000 - 1000) * STEP });
    assert_eq!(live.handed_on(), (5000..10_000).collect::<Vec<_>>());
}

#[test]
fn while_the_stream_goes_on_another_that_lags_behind_is_only_counted() {
    let mut live = Live::new(4);
    for h in 5000..9000 {
        live.stream(h..h + 1);
        assert_eq!(live.heap(h - 4000), Outcome::Refused);
    }
    assert_eq!(live.count("packets_too_late"), 4000);
    assert_eq!(live.handed_on(), (5000..9000).collect::<Vec<_>>());
}

#[test]
fn without_buffers_whole_frames_are_dropped() {
    let counters = Counters::default();
    let mut window = Window::new(digitiser(), 2, RATE, &counters);
    let mut desk = Desk::new(&digitiser(), 3);
    for h in 0..10 * HEAPS as u64 {
        window.datagram(&heap(h), &mut desk);
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
    let counters = Counters::default();
    let mut window = Window::new(digitiser(), 4, RATE, &counters);
    let mut desk = Desk::new(&digitiser(), 4);
    let mut seed = 1_u64;
    for counter in 0..1_000_000_u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let items = sample_items(seed >> 24 & ((1 << 43) - 1));
        window.datagram(&packet(counter, (counter % 8) as usize, &[1; 2], &items), &mut desk);
        desk.out.clear();
    }
    let tables =
        window.spare.len() + window.entries.iter().filter(|e| matches!(e, Entry::Open(_))).count();
    assert_eq!(window.entries.len(), 4);
    assert!(tables <= 4, "{tables} slot tables");
}

#[test]
fn a_heap_in_too_many_pieces_is_given_up_without_growth() {
    let counters = Counters::default();
    let layout = Layout { heap_bytes: 1024, ..digitiser() };
    let mut window = Window::new(layout, 2, RATE, &counters);
    let mut desk = Desk::new(&layout, 2);
    for at in (0..1024).step_by(2) {
        let items = sample_items(0);
        let datagram = [Head::new(0, 1024, at, 1, &items).as_bytes(), &[1]].concat();
        window.datagram(&datagram, &mut desk);
    }
    assert_eq!(count(&counters, "packets_too_fragmented"), 512 - MAX_PIECES as u64);
}

proptest! {
    #[test]
    fn mutated_packets_never_panic_and_never_damage_other_heaps(
        changes in proptest::collection::vec((0_usize..200, any::<u8>(), 0_usize..140), 1..40),
    ) {
        let counters = Counters::default();
        let mut window = Window::new(digitiser(), 4, RATE, &counters);
        let mut desk = Desk::new(&digitiser(), 64);
        for h in 8..16 {
            window.datagram(&heap(h), &mut desk);
        }
        for (at, value, keep) in &changes {
            let mut bytes = heap(18);
            let len = bytes.len();
            bytes[at % len] = *value;
            bytes.truncate((*keep).max(at % len + 1));
            window.datagram(&bytes, &mut desk);
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
