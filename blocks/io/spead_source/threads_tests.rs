//! A source gives the same frames with any number of receiving threads.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

use super::*;
use crate::io::spead::item;
use crate::io::spead::packet::{Head, Pointer};
use fxgraph::edge::Harness;
use fxgraph::{At, Env, Next, Ports};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HEAP: usize = 64;
/// Heaps of a digitiser, or antennas of F-engines, in a frame.
const HEAPS: u64 = 4;
/// Frames that are sent at once, in any order: fewer than the window has.
const FRAMES_AT_ONCE: u64 = 2;
const WAIT: Duration = Duration::from_secs(20);

/// Timestamp, validity and payload of a frame.
type Received = (u64, Vec<u32>, Vec<u8>);

/// Bytes of each heap that were sent, by frame and heap.
type Arrived = BTreeMap<(u64, u64), [bool; HEAP]>;

/// A datagram, the number of its sender, and the number of its destination.
type Sent = (Vec<u8>, usize, usize);

fn source(extra: serde_json::Value) -> SpeadSource {
    let mut parameters = serde_json::json!({
        "adc_sample_rate_hz": 1e6, "window": 4, "live": false,
    });
    parameters.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    serde_json::from_value(parameters).unwrap()
}

fn digitiser() -> serde_json::Value {
    serde_json::json!({
        "stream": "digitiser", "bits": 8, "samples_per_heap": HEAP, "samples_per_frame": HEAP as u64 * HEAPS,
        "stop_after_senders": 1,
    })
}

fn f_engine() -> serde_json::Value {
    serde_json::json!({
        "stream": "f_engine", "antennas": HEAPS, "channels": 16, "spectra_per_heap": 1, "substreams": 1,
        "samples_per_spectrum": HEAP as u64 * HEAPS, "stop_after_senders": HEAPS,
    })
}

fn addresses(count: usize) -> Vec<String> {
    let sockets: Vec<UdpSocket> =
        (0..count).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    sockets.iter().map(|socket| socket.local_addr().unwrap().to_string()).collect()
}

fn count(env: &Env, name: &str) -> u64 {
    env.counters.list().iter().find(|c| c.name == name).unwrap().counter.get()
}

fn byte(frame: u64, heap: u64) -> u8 {
    (frame * HEAPS + heap) as u8 | 1
}

/// Returns a packet with bytes `at` of heap number `heap` of a frame.
fn packet(is_digitiser: bool, frame: u64, heap: u64, at: std::ops::Range<usize>) -> Vec<u8> {
    let timestamp = frame * HEAPS * HEAP as u64;
    let of_digitiser = [
        Pointer::immediate(item::TIMESTAMP, timestamp + heap * HEAP as u64),
        Pointer::immediate(item::DIGITISER_ID, 0),
        Pointer::addressed(item::RAW_SAMPLES, 0),
    ];
    let of_f_engine = [
        Pointer::immediate(item::TIMESTAMP, timestamp),
        Pointer::immediate(item::FENG_ID, heap),
        Pointer::immediate(item::FREQUENCY, 0),
        Pointer::addressed(item::FENG_RAW, 0),
    ];
    let items: &[Pointer] = if is_digitiser { &of_digitiser } else { &of_f_engine };
    let number = frame * HEAPS + heap;
    let head = Head::new(number, HEAP, at.start, at.len(), items);
    [head.as_bytes(), &vec![byte(frame, heap); at.len()]].concat()
}

fn stop() -> Vec<u8> {
    let items = [Pointer::immediate(item::STREAM_CONTROL, item::STREAM_STOP)];
    [Head::new(1 << 30, 1, 0, 1, &items).as_bytes(), &[0]].concat()
}

/// A running source and its senders.
struct Line {
    env: Env,
    harness: Harness,
    addresses: Vec<String>,
    senders: Vec<UdpSocket>,
    frames: Vec<Received>,
}

impl Line {
    fn start(
        threads: usize,
        kind: serde_json::Value,
        addresses: Vec<String>,
        senders: usize,
    ) -> Self {
        let mut parameters = kind;
        parameters["threads"] = threads.into();
        parameters["addresses"] = addresses.clone().into();
        let (parameters, env) = (source(parameters), Env::detached("source"));
        let outputs = KindSpec::outputs(&parameters, &[]).unwrap();
        let ports = Ports { inputs: vec![], outputs };
        let block = parameters.build(&ports.inputs, &env).unwrap();
        let mut harness = Harness::new(block, &ports, 8).unwrap();
        Harness::block_on(harness.start()).unwrap();
        let senders = (0..senders).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        Self { env, harness, addresses, senders, frames: Vec::new() }
    }

    /// Runs the source once and keeps its frames.
    fn run(&mut self) -> Next {
        let next = Harness::block_on(self.harness.run()).unwrap();
        while let Some(frame) = self.harness.receive(0) {
            let header = frame.header();
            let payload = frame.as_slice::<u8>().unwrap().to_vec();
            self.frames.push((header.timestamp, header.validity.clone(), payload));
        }
        next
    }

    /// Sends datagrams, and waits until the window has all datagrams sent so far, `sent` before these.
    fn send(&mut self, datagrams: &[Sent], sent: &mut u64) {
        for (datagram, sender, address) in datagrams {
            self.senders[*sender].send_to(datagram, &self.addresses[*address]).unwrap();
        }
        *sent += datagrams.len() as u64;
        let deadline = Instant::now() + WAIT;
        while count(&self.env, "packets_received") < *sent {
            assert!(Instant::now() < deadline, "not all of {sent} datagrams arrive");
            assert_eq!(self.run(), Next::Wait);
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Waits until the stream has begun. Before that, its senders are not known and cannot stop it.
    fn wait_for_begin(&mut self) {
        let deadline = Instant::now() + WAIT;
        let gauges = self.env.counters.gauges();
        let newest = gauges.iter().find(|g| g.name == "last_received_timestamp_samples").unwrap();
        while newest.gauge.get().is_none() {
            assert!(Instant::now() < deadline, "the stream does not begin");
            self.run();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns all frames once the source has finished.
    fn finish(&mut self) -> Vec<Received> {
        let deadline = Instant::now() + WAIT;
        while self.run() != Next::Finished {
            assert!(Instant::now() < deadline, "the source does not finish");
            std::thread::sleep(Duration::from_millis(1));
        }
        Harness::block_on(self.harness.finish()).unwrap();
        std::mem::take(&mut self.frames)
    }

    fn thread_names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> =
            self.env.counters.threads().times().iter().map(|time| time.name).collect();
        names.sort_unstable();
        names
    }
}

/// Returns the frames that these datagrams make: heaps of which all bytes came.
fn expected(arrived: &Arrived) -> Vec<Received> {
    let mut frames: BTreeMap<u64, Received> = BTreeMap::new();
    for ((frame, heap), bytes) in arrived {
        let timestamp = frame * HEAPS * HEAP as u64;
        let empty = (timestamp, vec![0; HEAPS as usize], vec![0; HEAPS as usize * HEAP]);
        let (_, validity, payload) = frames.entry(*frame).or_insert(empty);
        if bytes.iter().all(|came| *came) {
            validity[*heap as usize] = 1;
            payload[*heap as usize * HEAP..][..HEAP].fill(byte(*frame, *heap));
        }
    }
    frames.into_values().collect()
}

/// Two packets of each heap, the second of which may begin within the first: groups of datagrams to send at once.
fn stream(
    is_digitiser: bool,
    (senders, addresses): (usize, usize),
    frames: u64,
    mut is_sent: impl FnMut() -> bool,
) -> (Vec<Vec<Sent>>, Arrived) {
    let mut arrived = BTreeMap::new();
    let mut groups = Vec::new();
    for first in (0..frames).step_by(FRAMES_AT_ONCE as usize) {
        let mut group = Vec::new();
        for frame in first..first + FRAMES_AT_ONCE {
            for heap in 0..HEAPS {
                let number = (frame * HEAPS + heap) as usize;
                let overlap = number % 3 * 8;
                for at in [0..HEAP / 2, HEAP / 2 - overlap..HEAP] {
                    let is_edge = frame == 0 || frame + 1 == frames;
                    if is_edge || is_sent() {
                        arrived.entry((frame, heap)).or_insert([false; HEAP])[at.clone()]
                            .fill(true);
                        // Heaps of an antenna come from one sender, those of a digitiser go round.
                        let sender = heap as usize % senders;
                        let datagram = packet(is_digitiser, frame, heap, at);
                        group.push((datagram, sender, number % addresses));
                    }
                }
            }
        }
        groups.push(group);
    }
    (groups, arrived)
}

fn frames_do_not_depend_on_threads(kind: &serde_json::Value, senders: usize, of: usize) {
    let is_digitiser = kind["stream"] == "digitiser";
    let mut runner = TestRunner::new(Config {
        cases: 3,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    });
    let losses = proptest::collection::vec(any::<u8>(), 64);
    runner
        .run(&(losses, any::<u64>()), |(losses, mut seed)| {
            let mut losses = losses.iter().cycle();
            let is_sent = || losses.next().is_some_and(|loss| *loss >= 20);
            let (mut groups, arrived) = stream(is_digitiser, (senders, of), 40, is_sent);
            for group in &mut groups[1..] {
                // Random order.
                for i in (1..group.len()).rev() {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    group.swap(i, (seed >> 33) as usize % (i + 1));
                }
            }
            let total: usize = groups.iter().map(Vec::len).sum();
            for threads in [1, 2, 4] {
                let mut line = Line::start(threads, kind.clone(), addresses(of), senders);
                let mut sent = 0;
                // In order, so that the stream begins with its first heap with any thread.
                groups[0].iter().for_each(|one| line.send(std::slice::from_ref(one), &mut sent));
                line.wait_for_begin();
                groups[1..].iter().for_each(|group| line.send(group, &mut sent));
                let stops: Vec<Sent> = (0..senders).map(|sender| (stop(), sender, 0)).collect();
                line.send(&stops, &mut sent);
                let frames = line.finish();
                prop_assert_eq!(frames, expected(&arrived), "{} threads", threads);
                let names = ["receive", "receive_1", "receive_2", "receive_3"];
                prop_assert_eq!(line.thread_names(), &names[..threads]);
                prop_assert_eq!(count(&line.env, "packets_received"), (total + senders) as u64);
                let whole = arrived.values().filter(|heap| heap.iter().all(|came| *came)).count();
                prop_assert_eq!(count(&line.env, "heaps_received"), whole as u64);
                prop_assert_eq!(
                    count(&line.env, "heaps_incomplete"),
                    (arrived.len() - whole) as u64
                );
                let missing = 40 * HEAPS - arrived.len() as u64;
                prop_assert_eq!(count(&line.env, "heaps_missing"), missing);
                for none in ["packets_too_late", "packets_too_far_ahead", "frames_dropped"] {
                    prop_assert_eq!(count(&line.env, none), 0, "{}", none);
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn frames_of_a_digitiser_on_several_addresses_do_not_depend_on_threads() {
    frames_do_not_depend_on_threads(&digitiser(), 1, 4);
}

#[test]
fn frames_of_antennas_on_several_addresses_do_not_depend_on_threads() {
    frames_do_not_depend_on_threads(&f_engine(), 4, 4);
}

#[test]
fn frames_of_several_senders_to_one_address_do_not_depend_on_threads() {
    frames_do_not_depend_on_threads(&f_engine(), 4, 1);
}

#[test]
fn source_with_several_threads_stops_while_packets_arrive() {
    for (threads, of) in [(2, 2), (4, 2)] {
        let mut line = Line::start(threads, f_engine(), addresses(of), 4);
        let (groups, _) = stream(false, (4, of), 20_000, || true);
        let is_over = AtomicBool::new(false);
        let frames = std::thread::scope(|scope| {
            let (senders, to) = (line.senders.split_off(0), line.addresses.clone());
            let is_over = &is_over;
            scope.spawn(move || {
                for group in groups {
                    for (datagram, sender, address) in group {
                        senders[sender].send_to(&datagram, &to[address]).unwrap();
                    }
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            let deadline = Instant::now() + WAIT;
            while line.frames.len() < 20 {
                assert!(Instant::now() < deadline, "{} frames", line.frames.len());
                line.run();
            }
            line.harness.stopping = true;
            let frames = line.finish();
            is_over.store(true, Ordering::Relaxed);
            frames
        });
        let mut last = None;
        for (timestamp, validity, payload) in frames {
            assert!(last < Some(timestamp), "time grows");
            last = Some(timestamp);
            let frame = timestamp / (HEAPS * HEAP as u64);
            for (heap, (valid, bytes)) in validity.iter().zip(payload.chunks(HEAP)).enumerate() {
                let expected = if *valid == 1 { byte(frame, heap as u64) } else { 0 };
                assert_eq!(bytes, [expected; HEAP], "heap {heap} of frame {frame}");
            }
        }
        assert!(line.env.summary.get().contains("was stopped"), "{}", line.env.summary.get());
        assert_eq!(line.thread_names().len(), threads);
    }
}

#[test]
fn flood_of_one_address_drops_nothing_of_the_others() {
    let mut line = Line::start(2, f_engine(), addresses(2), 5);
    let (groups, arrived) = stream(false, (4, 1), 40, || true);
    let is_over = AtomicBool::new(false);
    let frames = std::thread::scope(|scope| {
        let (sender, to) = (line.senders[4].try_clone().unwrap(), line.addresses[1].clone());
        let is_over = &is_over;
        scope.spawn(move || {
            // Noise, heaps of the distant future and past, and stop heaps.
            let heaps = [u64::from(u32::MAX), 0].map(|frame| packet(false, frame, 0, 0..HEAP));
            let noise = [b"noise".to_vec(), heaps[0].clone(), heaps[1].clone(), stop()];
            let deadline = Instant::now() + WAIT;
            while !is_over.load(Ordering::Relaxed) && Instant::now() < deadline {
                for datagram in &noise {
                    sender.send_to(datagram, &to).unwrap();
                }
            }
        });
        let deadline = Instant::now() + WAIT;
        for (i, group) in groups.into_iter().enumerate() {
            for (datagram, sender, address) in group {
                line.senders[sender].send_to(&datagram, &line.addresses[address]).unwrap();
            }
            if i == 0 {
                line.wait_for_begin();
            }
            line.run();
            std::thread::sleep(Duration::from_millis(2));
        }
        for sender in &line.senders[..4] {
            sender.send_to(&stop(), &line.addresses[0]).unwrap();
        }
        while line.run() != Next::Finished {
            assert!(Instant::now() < deadline, "the source does not finish");
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::Relaxed);
        std::mem::take(&mut line.frames)
    });
    assert_eq!(frames, expected(&arrived));
    assert_eq!(count(&line.env, "heaps_missing"), 0);
    assert!(count(&line.env, "heaps_stop_refused") > 0);
}

#[test]
fn threads_that_cannot_divide_the_stream_are_rejected() {
    let rejected = |extra: serde_json::Value| {
        let mut parameters = digitiser();
        parameters.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        KindSpec::outputs(&source(parameters), &[]).err().map(|rejections| {
            assert_eq!(rejections.len(), 1);
            assert_eq!(rejections[0].at, At::Parameter("threads"));
            rejections[0].message.clone()
        })
    };
    let groups = serde_json::json!({"addresses": ["239.1.1.0+1:7148"], "threads": 2});
    assert_eq!(rejected(groups), None);
    let groups = serde_json::json!({"addresses": ["239.1.1.0+1:7148"], "threads": 3});
    let text = rejected(groups).unwrap();
    assert!(text.contains("number of `addresses`, 2") && text.contains("got 3"), "{text}");
    let unicast = serde_json::json!({"addresses": ["127.0.0.1:7148"], "threads": 3});
    assert_eq!(rejected(unicast), None);
    let file = serde_json::json!({"pcap": "x", "threads": 2});
    assert!(rejected(file).unwrap().contains("must be 1 with `pcap`, got 2"));
}
