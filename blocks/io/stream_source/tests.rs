//! Streams from `stream_sink`, with packets dropped, doubled and out of order on the way.
#![allow(clippy::unwrap_used)]

mod limits;
mod runs;

use super::StreamSource;
use super::window::{Options, Outcome, Window};
use crate::common::link::Frames;
use crate::io::spead::endpoint::Endpoint;
use crate::io::spead::item;
use crate::io::spead::namespace;
use crate::io::stream::Described;
use crate::io::stream_sink::StreamSink;
use fxgraph::changes::When;
use fxgraph::edge::Harness;
use fxgraph::event::Events;
use fxgraph::frame::{HostAllocator, Pool};
use fxgraph::recording::StreamType;
use fxgraph::runtime::EventKind;
use fxgraph::{
    Axis, Band, Clock, Dtype, Env, Frame, FrameMut, KindSpec, Next, PortType, Ports, TimeBase,
    ValidityType,
};
use proptest::prelude::*;
use serde_json::json;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SAMPLES: u64 = 1000;
const SENDER: Endpoint = Endpoint::v4(Ipv4Addr::LOCALHOST, 5000);
const OTHER: Endpoint = Endpoint::v4(Ipv4Addr::LOCALHOST, 5001);

type Axes<'a> = &'a [(&'static str, usize)];

fn port(dtype: Dtype, axes: Axes<'_>, units: Axes<'_>) -> PortType {
    let axes_of = |axes: Axes<'_>| axes.iter().map(|(name, len)| Axis::new(name, *len)).collect();
    PortType {
        dtype,
        axes: axes_of(axes),
        clock: Clock {
            sync_time: fxgraph::Time::from_unix_f64(1.75e9 + 0.1).unwrap(),
            ..Clock::new(1e6, SAMPLES)
        },
        band: Some(Band::signed(1024, 3, 1.234_567_890_123e9, 1e6 / 3.0)),
        validity: ValidityType { axes: axes_of(units), full: 3 },
    }
}

/// Voltages with a count for each heap and channel; 128 bytes of data.
fn voltages() -> PortType {
    let units = [("heap", 2), ("channel", 4)];
    port(Dtype::Ci8, &[("heap", 2), ("channel", 4), ("spectrum", 8)], &units)
}

/// A frame to send: number of the frame and its timestamp.
#[derive(Clone, Copy)]
struct Sent {
    number: u64,
    timestamp: u64,
}

fn in_a_row(numbers: std::ops::Range<u64>) -> Vec<Sent> {
    numbers.map(|number| Sent { number, timestamp: 7 + number * SAMPLES }).collect()
}

fn byte(number: u64, index: usize) -> u8 {
    (number as usize * 31 + index * 7 + index / 50 + 1) as u8
}

/// Count of unit `unit`: of three, 0 in some.
fn count(number: u64, unit: usize) -> u32 {
    (number as usize + unit) as u32 % 3 + u32::from(number.is_multiple_of(2))
}

/// Time base of the frames that are sent: another one from 2^48 on.
fn base_of(timestamp: u64) -> TimeBase {
    let sync_time = fxgraph::Time::from_unix(1_800_000_000, 250_000_000_001);
    let second = TimeBase { from: 1 << 48, sync_time, uncertainty_seconds: 0.25 };
    if timestamp < second.from { TimeBase::default() } else { second }
}

fn fill(sent: Sent, frame: &mut FrameMut) {
    let (header, payload) = frame.parts_mut::<u8>().unwrap();
    header.timestamp = sent.timestamp;
    header.base = base_of(sent.timestamp);
    header.validity.iter_mut().enumerate().for_each(|(unit, c)| *c = count(sent.number, unit));
    payload.iter_mut().enumerate().for_each(|(index, b)| *b = byte(sent.number, index));
    if sent.number % 3 != 2 {
        let table = header.annotations.reset("adc_power", 3);
        table.copy_from_slice(&[sent.number as f64 / 3.0, f64::INFINITY, -1e-300]);
    }
}

/// Returns the packets that a sink sends for `frames`.
fn packets(port: &PortType, frames: &[Sent], more: serde_json::Value) -> Vec<Vec<u8>> {
    packets_while(port, frames, more, &[])
}

/// The same, with changes of `enabled`: from which timestamp on, and to what.
fn packets_while(
    port: &PortType,
    frames: &[Sent],
    more: serde_json::Value,
    enabled: &[(u64, bool)],
) -> Vec<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut all = json!({"destination": socket.local_addr().unwrap().to_string(), "rate": 0});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let parameters: StreamSink = fxgraph::kind::read(&all).unwrap();
    parameters.outputs(std::slice::from_ref(port)).unwrap();
    let ports = Ports { inputs: vec![port.clone()], outputs: vec![] };
    let mut block = parameters.build(&ports.inputs, &Env::detached("sink")).unwrap();
    for (from, enabled) in enabled {
        block.update(When::at(*from).change(vec![("enabled", Box::new(*enabled))])).unwrap();
    }
    let mut harness = Harness::new(block, &ports, frames.len().max(1)).unwrap();
    Harness::block_on(harness.start()).unwrap();
    for sent in frames {
        assert!(harness.send(0, |frame| fill(*sent, frame)));
    }
    harness.end(0);
    assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
    socket.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut packets = Vec::new();
    while let Ok(len) = socket.recv(&mut buffer) {
        packets.push(buffer[..len].to_vec());
    }
    packets
}

/// Frames that a window sends.
struct Collected {
    pool: Arc<Pool>,
    frames: Vec<Arc<Frame>>,
}

impl Frames for Collected {
    fn take(&mut self) -> Option<FrameMut> {
        self.pool.take()
    }
    fn push(&mut self, frame: FrameMut) {
        self.frames.push(frame.freeze());
    }
}

/// A window and its output.
struct Bench {
    window: Window,
    out: Collected,
    env: Env,
    now: Instant,
}

impl Bench {
    fn new(port: &PortType) -> Self {
        let env = Env::detached("source");
        let options = Options { window: 4, max_gap_samples: 20 * SAMPLES };
        let window = Window::new(Described::new(port).unwrap(), options, &env);
        let units = port.validity.units();
        let pool = Pool::new(&HostAllocator, 256, port.frame_bytes(), units).unwrap();
        let out = Collected { pool, frames: Vec::new() };
        Self { window, out, env, now: Instant::now() }
    }

    fn receive(&mut self, packets: &[Vec<u8>], sender: Endpoint) -> Vec<Outcome> {
        let one = |packet: &Vec<u8>| self.window.datagram(packet, sender, self.now, &mut self.out);
        packets.iter().map(one).collect()
    }

    fn end(&mut self) {
        self.window.flush(&mut self.out);
    }

    /// Lets `seconds` pass.
    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.window.tick(self.now, &mut self.out);
    }

    fn counter(&self, name: &str) -> u64 {
        let all = self.env.counters.list();
        all.iter().find(|named| named.name == name).unwrap().counter.get()
    }

    fn timestamps(&self) -> Vec<u64> {
        self.out.frames.iter().map(|frame| frame.header().timestamp).collect()
    }

    /// Timestamp and time base of each frame.
    fn bases(&self) -> Vec<(u64, TimeBase)> {
        let headers = self.out.frames.iter().map(|frame| frame.header());
        headers.map(|header| (header.timestamp, header.base)).collect()
    }

    /// Checks that frame `index` is `sent`, bit for bit.
    fn assert_whole(&self, index: usize, sent: Sent) {
        let frame = &self.out.frames[index];
        let (header, payload) = (frame.header(), frame.as_slice::<u8>().unwrap());
        assert_eq!(header.timestamp, sent.timestamp);
        let counts = (0..header.validity.len()).map(|unit| count(sent.number, unit));
        assert_eq!(header.validity, counts.collect::<Vec<_>>(), "frame {}", sent.number);
        assert!(payload.iter().enumerate().all(|(i, b)| *b == byte(sent.number, i)));
        let table = header.annotations.get("adc_power");
        match sent.number % 3 {
            2 => assert!(table.is_empty()),
            _ => assert_eq!(table, [sent.number as f64 / 3.0, f64::INFINITY, -1e-300]),
        }
    }

    /// Checks that frame `index` is a missing one with `timestamp`.
    fn assert_missing(&self, index: usize, timestamp: u64) {
        let frame = &self.out.frames[index];
        assert_eq!(frame.header().timestamp, timestamp);
        assert!(frame.header().validity.iter().all(|count| *count == 0));
        assert!(frame.as_slice::<u8>().unwrap().iter().all(|byte| *byte == 0));
        assert_eq!(frame.header().annotations.iter().count(), 0);
    }
}

/// Bytes of the item pointer `id` in `packet`, and its value.
fn value(packet: &[u8], id: u16) -> Option<u64> {
    crate::io::spead::packet::Packet::parse(packet).unwrap().value(id)
}

fn is_data(packet: &[u8]) -> bool {
    value(packet, item::TIMESTAMP).is_some()
}

#[test]
fn frames_of_every_type_arrive_bit_for_bit_in_any_order_of_their_packets() {
    let dtypes = Dtype::WHOLE_BYTES.into_iter().chain([Dtype::Packed(10), Dtype::Packed(3)]);
    for (number, dtype) in dtypes.enumerate() {
        let axes = [("channel", 5), ("pol", 2), ("sample", 3)];
        let units: [Axes<'_>; 3] = [&[], &[("pol", 2)], &[("channel", 5), ("sample", 3)]];
        let port = port(dtype, &axes, units[number % 3]);
        let frames = in_a_row(0..5);
        let mut all = packets(&port, &frames, json!({"packet_payload_bytes": 64}));
        for is_reversed in [false, true] {
            let mut bench = Bench::new(&port);
            if is_reversed {
                all.reverse();
                // The stop heaps do not come before the stream.
                all.retain(|packet| value(packet, 6).is_none());
            }
            bench.receive(&all, SENDER);
            bench.end();
            let from = if is_reversed { bench.timestamps().len() - 1 } else { 0 };
            assert!(is_reversed || bench.out.frames.len() == 5, "{dtype}");
            for (index, sent) in frames.iter().rev().take(bench.out.frames.len()).rev().enumerate()
            {
                if index >= from {
                    bench.assert_whole(index, *sent);
                }
            }
            assert_eq!(bench.counter("heaps_incomplete"), 0, "{dtype}");
        }
    }
}

#[test]
fn packets_out_of_order_within_the_window_lose_nothing() {
    let port = voltages();
    let frames = in_a_row(0..12);
    let mut all = packets(&port, &frames, json!({"packet_payload_bytes": 64}));
    all.retain(|packet| is_data(packet));
    // Each heap has 4 packets; some change places with one of a later heap.
    for at in (5..all.len() - 6).step_by(7) {
        all.swap(at, at + 6);
    }
    let mut bench = Bench::new(&port);
    bench.receive(&all, SENDER);
    bench.end();
    assert_eq!(bench.out.frames.len(), 12);
    frames.iter().enumerate().for_each(|(index, sent)| bench.assert_whole(index, *sent));
    assert_eq!(bench.counter("heaps_received"), 12);
}

#[test]
fn lost_packet_flags_exactly_the_units_that_it_touches() {
    let port = voltages();
    let frames = in_a_row(0..3);
    // A unit has 16 bytes, a packet 72: data in packets 0 and 1, 128 bytes.
    let all = packets(&port, &frames, json!({"packet_payload_bytes": 72}));
    // Heaps differ in the length of their annotations.
    let is_of_second = |packet: &[u8]| is_data(packet) && value(packet, 0x7001) == Some(1);
    let data: Vec<usize> = (0..all.len()).filter(|i| is_of_second(&all[*i])).collect();
    for (lost, packet) in data.iter().enumerate() {
        let mut sent = all.clone();
        sent.remove(*packet);
        let mut bench = Bench::new(&port);
        bench.receive(&sent, SENDER);
        bench.end();
        assert_eq!(bench.out.frames.len(), 3);
        bench.assert_whole(0, frames[0]);
        bench.assert_whole(2, frames[2]);
        let frame = &bench.out.frames[1];
        // Bytes of the heap that are missing; validity is in bytes 128 to 160.
        let gone = lost * 72..(lost + 1) * 72;
        let counts_gone = gone.start < 160 && gone.end > 128;
        for (unit, found) in frame.header().validity.iter().enumerate() {
            let is_gone = counts_gone || (unit * 16 < gone.end && gone.start < unit * 16 + 16);
            let expected = if is_gone { 0 } else { count(1, unit) };
            assert_eq!(*found, expected, "unit {unit} without packet {lost}");
        }
        for (index, found) in frame.as_slice::<u8>().unwrap().iter().enumerate() {
            let expected = if gone.contains(&index) { 0 } else { byte(1, index) };
            assert_eq!(*found, expected, "byte {index} without packet {lost}");
        }
        assert_eq!(bench.counter("heaps_incomplete"), 1);
        assert_eq!(bench.counter("heaps_missing"), 0);
    }
}

#[test]
fn lost_heaps_come_out_as_missing_frames_also_at_the_end() {
    let port = voltages();
    let frames = in_a_row(0..10);
    let mut all = packets(&port, &frames, json!({}));
    let lost = [3, 4, 8, 9];
    all.retain(|packet| !is_data(packet) || !lost.contains(&value(packet, 0x7001).unwrap()));
    let mut bench = Bench::new(&port);
    let outcomes = bench.receive(&all, SENDER);
    assert_eq!(outcomes.last(), Some(&Outcome::Stopped));
    bench.end();
    assert_eq!(bench.timestamps(), frames.iter().map(|sent| sent.timestamp).collect::<Vec<_>>());
    for (index, sent) in frames.iter().enumerate() {
        if lost.contains(&(index as u64)) {
            bench.assert_missing(index, sent.timestamp);
        } else {
            bench.assert_whole(index, *sent);
        }
    }
    assert_eq!((bench.counter("heaps_missing"), bench.counter("heaps_received")), (4, 6));
}

#[test]
fn gap_that_the_sender_sent_is_not_filled_and_a_long_loss_is_a_jump() {
    let port = voltages();
    let mut frames = in_a_row(0..3);
    let ahead = Sent { number: 3, timestamp: 7 + 10 * SAMPLES };
    let far = Sent { number: 5, timestamp: 7 + 100 * SAMPLES };
    frames.extend([ahead, Sent { number: 4, timestamp: 7 + 11 * SAMPLES }, far]);
    let mut all = packets(&port, &frames, json!({}));
    let mut bench = Bench::new(&port);
    bench.receive(&all, SENDER);
    bench.end();
    assert_eq!(bench.out.frames.len(), 6);
    assert_eq!((bench.counter("heaps_missing"), bench.counter("time_jumps")), (0, 0));
    // Without the fifth frame the gap is too long to be filled.
    all.retain(|packet| value(packet, 0x7001) != Some(4) || !is_data(packet));
    let mut bench = Bench::new(&port);
    bench.receive(&all, SENDER);
    bench.end();
    assert_eq!(bench.out.frames.len(), 5);
    assert_eq!((bench.counter("heaps_missing"), bench.counter("time_jumps")), (1, 1));
}

#[test]
fn late_joiner_begins_with_the_next_heap_and_reads_the_type() {
    let port = voltages();
    let frames = in_a_row(0..6);
    let all = packets(&port, &frames, json!({"packet_payload_bytes": 64}));
    let data: Vec<Vec<u8>> = all.into_iter().filter(|packet| is_data(packet)).collect();
    // The last packet of a heap is not enough to begin with it.
    let mut bench = Bench::new(&port);
    bench.receive(&data[7..], SENDER);
    bench.end();
    let first = bench.timestamps()[0];
    assert!(first == frames[1].timestamp || first == frames[2].timestamp);
    let from = bench.out.frames.len() - 4;
    (2..6).for_each(|index| bench.assert_whole(from + index - 2, frames[index]));
}

#[test]
fn restarted_sender_is_followed_and_data_of_its_old_run_are_dropped() {
    let port = voltages();
    let before = packets(&port, &in_a_row(0..5), json!({"stop_heaps": false}));
    // The second run begins after frames 5 and 6, the third one repeats two frames.
    let second = packets(&port, &in_a_row(7..12), json!({"stop_heaps": false}));
    let third = packets(&port, &in_a_row(10..14), json!({}));
    let mut bench = Bench::new(&port);
    bench.receive(&before, SENDER);
    bench.receive(&second[..4], OTHER);
    let old: Vec<Vec<u8>> = before.iter().filter(|packet| is_data(packet)).cloned().collect();
    assert!(bench.receive(&old, SENDER).iter().all(|outcome| *outcome == Outcome::Rejected));
    bench.receive(&second[4..], OTHER);
    bench.receive(&third, SENDER);
    bench.end();
    let expected: Vec<u64> = (0..14).map(|number| 7 + number * SAMPLES).collect();
    assert_eq!(bench.timestamps(), expected);
    bench.assert_missing(5, expected[5]);
    bench.assert_missing(6, expected[6]);
    for sent in in_a_row(7..14) {
        bench.assert_whole(sent.number as usize, sent);
    }
    assert_eq!((bench.counter("resyncs"), bench.counter("heaps_not_later")), (2, 2));
    assert_eq!(bench.counter("packets_of_other_run"), 5);
}

#[test]
fn second_sender_that_overlaps_in_time_is_one_event_with_both_addresses() {
    let port = voltages();
    let sent = || packets(&port, &in_a_row(0..40), json!({"stop_heaps": false}));
    let mut bench = Bench::new(&port);
    let events = Arc::new(Events::default());
    bench.env.events.redirect(Some((Arc::clone(&events), "source".to_owned())));
    for (first, second) in sent().iter().zip(&sent()) {
        bench.now += Duration::from_millis(50);
        bench.receive(std::slice::from_ref(first), SENDER);
        bench.receive(std::slice::from_ref(second), OTHER);
    }
    let warned = events.since(0).into_iter().filter(|event| event.kind == EventKind::Warning);
    let [warned] = &warned.collect::<Vec<_>>()[..] else { panic!("not one warning") };
    for sender in [SENDER, OTHER] {
        assert!(warned.text.contains(&sender.to_string()), "{}", warned.text);
    }
    assert!(bench.counter("packets_second_sender") > 20);
}

/// The sender before is late: its last frames arrive after the first ones of the new sender.
#[test]
fn stream_taken_over_has_every_frame_once() {
    let port = voltages();
    let at = 7 + 6 * SAMPLES;
    let before = packets_while(&port, &in_a_row(0..9), json!({}), &[(at, false)]);
    // The new sender started later, so its frames have other numbers.
    let after = json!({"enabled": false});
    let after = packets_while(&port, &in_a_row(4..12), after, &[(at, true)]);
    assert!(!is_data(&after[0]), "descriptors go first");
    let (early, late) = before.split_at(before.len() - 2);
    let mut bench = Bench::new(&port);
    bench.receive(early, SENDER);
    bench.receive(&after[..3], OTHER);
    bench.receive(late, SENDER);
    bench.receive(&after[3..], OTHER);
    bench.end();
    assert_eq!(bench.timestamps(), (0..12).map(|n| 7 + n * SAMPLES).collect::<Vec<_>>());
    in_a_row(0..12).iter().for_each(|sent| bench.assert_whole(sent.number as usize, *sent));
    for lost in ["heaps_missing", "heaps_incomplete", "resyncs", "packets_of_other_run"] {
        assert_eq!(bench.counter(lost), 0, "{lost}");
    }
    assert_eq!(bench.counter("heaps_stop"), 3, "of the new sender only");
}

/// The new sender fails before it takes over, or shortly after: the old one takes the stream back.
#[test]
fn stream_taken_back_misses_only_frames_that_nobody_sent() {
    let port = voltages();
    let time = |number: u64| 7 + number * SAMPLES;
    let changes = [(time(4), false), (time(8), true)];
    let old = packets_while(&port, &in_a_row(0..12), json!({}), &changes);
    let new = json!({"enabled": false, "stop_heaps": false});
    let new = packets_while(&port, &in_a_row(2..7), new, &[(time(4), true)]);
    let mut bench = Bench::new(&port);
    let is_back = |packet: &Vec<u8>| value(packet, item::TIMESTAMP) == Some(time(8));
    let back = old.iter().position(is_back).unwrap();
    bench.receive(&old[..back], SENDER);
    bench.receive(&new, OTHER);
    bench.receive(&old[back..], SENDER);
    bench.end();
    assert_eq!(bench.timestamps(), (0..12).map(time).collect::<Vec<_>>());
    for sent in in_a_row(0..12) {
        match sent.number {
            7 => bench.assert_missing(7, time(7)),
            number => bench.assert_whole(number as usize, sent),
        }
    }
    assert_eq!(bench.counter("heaps_missing"), 1);
}

/// A second sender that takes the stream over by a single packet does not keep it.
#[test]
fn run_that_falls_silent_gives_the_stream_back() {
    let port = voltages();
    let mut bench = Bench::new(&port);
    let unexpected = packets(&port, &in_a_row(2..3), json!({"stop_heaps": false}));
    let stream = packets(&port, &in_a_row(0..8), json!({"stop_heaps": false}));
    bench.receive(&stream[..3], SENDER);
    bench.receive(&unexpected, OTHER);
    bench.receive(&stream[3..5], SENDER);
    assert_eq!(bench.counter("packets_of_other_run"), 2);
    bench.wait(2);
    bench.receive(&stream[5..], SENDER);
    bench.end();
    assert_eq!(bench.timestamps(), (0..8).map(|n| 7 + n * SAMPLES).collect::<Vec<_>>());
    in_a_row(4..8).iter().for_each(|sent| bench.assert_whole(sent.number as usize, *sent));
}

#[test]
fn timestamps_that_start_again_continue_after_the_next_wrap() {
    let port = voltages();
    let late = Sent { number: 0, timestamp: 1_000_000 };
    let mut bench = Bench::new(&port);
    bench.receive(&packets(&port, &[late], json!({})), SENDER);
    bench.receive(&packets(&port, &in_a_row(0..3), json!({})), OTHER);
    bench.end();
    let wrapped = (0..3).map(|number| (1 << 48) + 7 + number * SAMPLES);
    assert_eq!(bench.timestamps(), [1_000_000].into_iter().chain(wrapped).collect::<Vec<_>>());
}

#[test]
fn stream_of_another_type_is_rejected_with_the_first_difference() {
    let ours = voltages();
    let axes = [("heap", 2), ("channel", 8), ("spectrum", 4)];
    let theirs = port(Dtype::Ci8, &axes, &[("heap", 2), ("channel", 4)]);
    let mut bench = Bench::new(&ours);
    let events = Arc::new(Events::default());
    bench.env.events.redirect(Some((Arc::clone(&events), "source".to_owned())));
    bench.receive(&packets(&theirs, &in_a_row(0..3), json!({})), OTHER);
    bench.receive(&packets(&ours, &in_a_row(0..2), json!({"stop_heaps": false})), SENDER);
    bench.end();
    assert_eq!(bench.out.frames.len(), 2);
    assert_eq!(bench.counter("packets_of_other_type"), 3);
    let warnings: Vec<String> = events.since(0).iter().map(|event| event.text.clone()).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let difference = "`axes` of the stream is [heap 2][channel 8][spectrum 4], expected [heap 2][channel \
                      4][spectrum 8]";
    assert!(warnings[0].contains(difference), "{warnings:?}");
}

#[test]
fn duplicates_late_and_malformed_packets_are_counted_and_change_nothing() {
    let port = voltages();
    let frames = in_a_row(0..4);
    let all = packets(&port, &in_a_row(0..10), json!({"packet_payload_bytes": 64}));
    let mut data: Vec<Vec<u8>> = all.iter().filter(|packet| is_data(packet)).cloned().collect();
    let is_fifth = |packet: &Vec<u8>| value(packet, item::SEQUENCE) == Some(4);
    let late = data.remove(data.iter().position(is_fifth).unwrap());
    let mut bench = Bench::new(&port);
    bench.receive(&data[..1], SENDER);
    bench.receive(&data[..1], SENDER);
    bench.receive(&data[1..], SENDER);
    // The first two heaps again, of which nothing was missing.
    bench.receive(&data[..8], SENDER);
    // The fifth one was sent without this packet.
    bench.receive(&[late], SENDER);
    let mut broken = data[0].clone();
    broken[1] = 9;
    bench.receive(&[b"hello".to_vec(), broken, data[0][..100].to_vec()], SENDER);
    bench.end();
    assert_eq!(bench.out.frames.len(), 10);
    frames.iter().enumerate().for_each(|(index, sent)| bench.assert_whole(index, *sent));
    assert_eq!(bench.counter("heaps_incomplete"), 1);
    let names = [
        "packets_duplicate",
        "packets_too_late",
        "packets_not_spead",
        "packets_wrong_flavour",
        "packets_truncated",
    ];
    assert_eq!(names.map(|name| bench.counter(name)), [9, 1, 1, 1, 1]);
}

#[test]
fn heap_of_a_slow_stream_does_not_wait_for_the_window() {
    let port = voltages();
    let all = packets(&port, &in_a_row(0..3), json!({"packet_payload_bytes": 64}));
    let data: Vec<Vec<u8>> = all.into_iter().filter(|packet| is_data(packet)).collect();
    let mut bench = Bench::new(&port);
    // The second frame lacks a packet, the third one is complete and waits for it.
    let (lost, rest) = (data[5].clone(), [&data[..5], &data[6..]].concat());
    bench.receive(&rest, SENDER);
    assert_eq!(bench.out.frames.len(), 1);
    bench.wait(2);
    assert_eq!(bench.out.frames.len(), 3);
    bench.receive(std::slice::from_ref(&lost), SENDER);
    bench.end();
    assert_eq!(bench.out.frames.len(), 3);
}

#[test]
fn rest_of_a_heap_comes_after_its_sender_was_stopped() {
    let port = voltages();
    let all = packets(&port, &in_a_row(0..2), json!({"packet_payload_bytes": 64}));
    let data: Vec<Vec<u8>> = all.into_iter().filter(|packet| is_data(packet)).collect();
    let mut bench = Bench::new(&port);
    bench.receive(&data[..data.len() - 2], SENDER);
    bench.wait(2);
    bench.receive(&data[data.len() - 2..data.len() - 1], SENDER);
    assert_eq!(bench.out.frames.len(), 1);
    // A sender that does not come back.
    bench.wait(4);
    assert_eq!(bench.out.frames.len(), 2);
    assert_eq!((bench.counter("heaps_incomplete"), bench.counter("heaps_unexpected")), (1, 0));

    let mut bench = Bench::new(&port);
    bench.receive(&data[..data.len() - 2], SENDER);
    bench.wait(2);
    bench.receive(&data[data.len() - 2..], SENDER);
    in_a_row(0..2).iter().for_each(|sent| bench.assert_whole(sent.number as usize, *sent));
}

#[test]
fn items_that_come_after_other_packets_of_their_heap_are_used() {
    let port = voltages();
    let all = packets(&port, &in_a_row(0..2), json!({"packet_payload_bytes": 64}));
    let mut data: Vec<Vec<u8>> = all.into_iter().filter(|packet| is_data(packet)).collect();
    // Without the items of the first packets, as from a sender that does not repeat them.
    for packet in &mut data {
        if value(packet, 0x3) != Some(128) {
            let kept = [&[0x53, 4, 2, 6, 0, 0, 0, 4], &packet[8..40]].concat();
            packet.splice(..8 + 16 * 8, kept);
        }
    }
    let mut bench = Bench::new(&port);
    bench.receive(&data, SENDER);
    bench.end();
    in_a_row(0..2).iter().for_each(|sent| bench.assert_whole(sent.number as usize, *sent));
    assert_eq!((bench.counter("heaps_received"), bench.counter("heaps_unexpected")), (2, 0));
}

#[test]
fn wrong_number_of_counts_flags_the_whole_frame() {
    let port = voltages();
    let all = packets(&port, &in_a_row(0..1), json!({}));
    let mut data: Vec<Vec<u8>> = all.into_iter().filter(|packet| is_data(packet)).collect();
    // The pointer of `config_id`, where the counts end, is 4 bytes later.
    let at = data[0].chunks(8).position(|word| word[..2] == [0x70, 6]).unwrap();
    data[0][8 * at + 7] += 4;
    let mut bench = Bench::new(&port);
    bench.receive(&data, SENDER);
    bench.end();
    assert!(bench.out.frames[0].header().validity.iter().all(|count| *count == 0));
    assert_eq!(bench.counter("heaps_wrong_validity"), 1);
}

#[test]
fn stream_over_a_socket_arrives_whole_and_ends_with_its_stop_heap() {
    pass("127.0.0.1", |address| [json!({"source": address}), json!({"destination": address})]);
}

#[test]
fn stream_over_ipv6_arrives_whole_and_ends_with_its_stop_heap() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return namespace::skip("no IPv6");
    }
    pass("::1", |address| [json!({"source": address}), json!({"destination": address})]);
    namespace::on_host(1, || {
        namespace::ip("-6 address add fd77::1/64 dev rx0 nodad");
        let group = "[ff35::77:1]:7148";
        pass("::1", |_| {
            [
                json!({"source": group, "interface": "rx0", "sources": ["fd77::1"]}),
                json!({"destination": group, "interface": "rx0"}),
            ]
        });
    });
}

/// Passes a stream from a sink to a source in this process, with the parameters that `of` returns for a free address of
/// `ip`.
fn pass(ip: &str, of: impl FnOnce(String) -> [serde_json::Value; 2]) {
    let port = voltages();
    let address = {
        let free = UdpSocket::bind((ip, 0)).unwrap();
        free.local_addr().unwrap().to_string()
    };
    let [mut source, mut sink] = of(address);
    source["type"] = serde_json::to_value(StreamType::of(&port)).unwrap();
    sink["packet_payload_bytes"] = json!(64);
    let source: StreamSource = fxgraph::kind::read(&source).unwrap();
    let outputs = source.outputs(&[]).unwrap();
    assert_eq!(outputs, std::slice::from_ref(&port));
    let ports = Ports { inputs: vec![], outputs };
    let block = source.build(&[], &Env::detached("source")).unwrap();
    let mut receiver = Harness::new(block, &ports, 4).unwrap();
    Harness::block_on(receiver.start()).unwrap();
    let sink: StreamSink = fxgraph::kind::read(&sink).unwrap();
    let ports = Ports { inputs: vec![port], outputs: vec![] };
    let block = sink.build(&ports.inputs, &Env::detached("sink")).unwrap();
    let mut sender = Harness::new(block, &ports, 40).unwrap();
    Harness::block_on(sender.start()).unwrap();
    let frames = in_a_row(0..40);
    for sent in &frames {
        assert!(sender.send(0, |frame| fill(*sent, frame)));
    }
    sender.end(0);
    assert_eq!(Harness::block_on(sender.run()).unwrap(), Next::Finished);
    let mut got = Vec::new();
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let next = Harness::block_on(receiver.run()).unwrap();
        while let Some(frame) = receiver.receive(0) {
            let number = got.len() as u64;
            let payload = frame.as_slice::<u8>().unwrap();
            assert!(payload.iter().enumerate().all(|(i, b)| *b == byte(number, i)));
            got.push(frame.header().timestamp);
        }
        if next == Next::Finished {
            break;
        }
        assert!(Instant::now() < deadline, "the stop heap ends the stream");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(got, frames.iter().map(|sent| sent.timestamp).collect::<Vec<_>>());
}

#[test]
fn parameters_that_cannot_be_are_rejected() {
    let kind = serde_json::to_value(StreamType::of(&voltages())).unwrap();
    let rejected = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut all = json!({"source": "127.0.0.1:7148", "type": kind});
        change(&mut all);
        let source: StreamSource = fxgraph::kind::read(&all).unwrap();
        source.outputs(&[]).map_err(|rejections| rejections[0].message.clone()).err()
    };
    assert_eq!(rejected(&|_| ()), None);
    let said = |change: &dyn Fn(&mut serde_json::Value)| rejected(change).unwrap();
    assert!(said(&|all| all["source"] = json!("239.1.1.1+1:7148")).contains("got 2 groups"));
    assert!(said(&|all| all["source"] = json!("nowhere")).contains("no valid port"));
    assert!(said(&|all| all["type"]["dtype"] = json!("f8")).contains("`f8`"));
    assert!(said(&|all| all["type"]["axes"][0]["len"] = json!(0)).contains("`axes`"));
    assert!(said(&|all| all["type"]["axes"][0]["name"] = json!("x")).contains("no axis `x`"));
    assert!(
        said(&|all| all["type"]["clock"]["samples_per_frame"] = json!(0))
            .contains("samples_per_frame")
    );
    assert!(said(&|all| all["type"]["band"]["first_channel"] = json!(1023)).contains("band"));
    assert!(said(&|all| all["finish_after_seconds"] = json!(0)).contains("finish_after_seconds"));
    assert!(said(&|all| all["receive_buffer_bytes"] = json!(1)).contains("receive_buffer_bytes"));
}

proptest! {
    /// Any packets dropped, doubled, swapped and changed: no panic, limited memory, growing timestamps.
    #[test]
    fn any_packets_leave_the_stream_in_order(
        moves in proptest::collection::vec((0..200_usize, 0..200_usize, 0..6_u8, any::<u8>(), 0..120_usize), 0..60),
    ) {
        let port = voltages();
        let described = Described::new(&port).unwrap();
        let mut all = packets(&port, &in_a_row(0..10), json!({"packet_payload_bytes": 64}));
        let mut changed = false;
        for (a, b, what, bits, at) in moves {
            let (a, b) = (a % all.len(), b % all.len());
            match what {
                0 => all.swap(a, b),
                1 => all[a] = all[b].clone(),
                2 if all.len() > 2 => { all.remove(a); }
                3 => { let packet = all[a].clone(); all.insert(b, packet); }
                4 => { let len = all[a].len(); all[a][at % len] ^= bits; changed = true; }
                _ => { let len = all[a].len(); all[a].truncate(at.min(len).max(1)); }
            }
        }
        let mut bench = Bench::new(&port);
        bench.receive(&all, SENDER);
        bench.end();
        let most = super::window::heaps(4) * described.max_heap_bytes();
        prop_assert!(bench.window.heap_bytes() <= 2 * most);
        let times = bench.timestamps();
        prop_assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        for frame in &bench.out.frames {
            let header = frame.header();
            prop_assert!(header.validity.iter().all(|count| *count <= 3));
            // Without changed packets, data that are claimed are those that were sent.
            if changed { continue; }
            let number = (header.timestamp - 7) / SAMPLES;
            let payload = frame.as_slice::<u8>().unwrap();
            for (unit, found) in header.validity.iter().enumerate() {
                prop_assert!(*found == 0 || *found == count(number, unit));
                let bytes = unit * 16..unit * 16 + 16;
                prop_assert!(*found == 0 || bytes.clone().all(|i| payload[i] == byte(number, i)));
            }
        }
    }
}
