//! Samples over each transport, from plain sockets of the standard library.

use super::*;
use crate::zmtp;
use fxgraph::changes::{Change, When};
use fxgraph::edge::Harness;
use fxgraph::event::Events;
use fxgraph::runtime::EventKind;
use fxgraph::{Env, Frame, Next, Ports};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait of a test.
const LIMIT: Duration = Duration::from_mins(1);
/// Samples of a frame.
const SAMPLES: usize = 64;

/// A running source.
struct Running {
    harness: Harness,
    env: Env,
    events: Arc<Events>,
    frames: Vec<Arc<Frame>>,
    is_over: bool,
}

fn parameters(from: &Value, more: &Value) -> SampleSource {
    let mut all = json!({
        "from": from,
        "type": "ci8",
        "adc_sample_rate_hz": 1e4,
        "samples_per_frame": SAMPLES,
        "samples_per_heap": 16,
    });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fxgraph::kind::read(&all).unwrap()
}

impl Running {
    fn new(from: &Value, more: &Value) -> Self {
        Self::with(from, more, None)
    }

    /// With a live update.
    fn with(from: &Value, more: &Value, change: Option<Change>) -> Self {
        Self::after(from, more, change, || {})
    }

    /// With work between the start of the block and its first frame.
    fn after(from: &Value, more: &Value, change: Option<Change>, work: impl FnOnce()) -> Self {
        let source = parameters(from, more);
        let ports = Ports { inputs: vec![], outputs: source.outputs(&[]).unwrap() };
        let (env, events) = (Env::detached("radio"), Arc::new(Events::default()));
        env.events.redirect(Some((Arc::clone(&events), "radio".to_owned())));
        let mut block = source.build(&[], &env).unwrap();
        change.into_iter().for_each(|change| block.update(change).unwrap());
        let mut harness = Harness::new(block, &ports, 640).unwrap();
        Harness::block_on(harness.start()).unwrap();
        work();
        // The thread begins with the first frame.
        Harness::block_on(harness.run()).unwrap();
        Self { harness, env, events, frames: Vec::new(), is_over: false }
    }

    /// Runs until `is_done`, or the stream ends.
    fn run_until(&mut self, mut is_done: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !is_done(self) && !self.is_over {
            assert!(began.elapsed() < LIMIT, "{:?} {:?}", self.counters(), self.events.since(0));
            self.is_over = Harness::block_on(self.harness.run()).unwrap() == Next::Finished;
            while let Some(frame) = self.harness.receive(0) {
                self.frames.push(frame);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn run(&mut self) {
        self.run_until(|_| false);
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let all = self.env.counters.list().into_iter();
        all.map(|named| (named.name.to_owned(), named.counter.get())).collect()
    }

    fn count(&self, name: &str) -> u64 {
        let all = self.counters();
        all.into_iter().find(|(known, _)| known == name).map_or(0, |(_, count)| count)
    }

    /// Timestamp, validity and bytes of each frame.
    fn plain(&self) -> Vec<(u64, Vec<u32>, Vec<u8>)> {
        let plain = |frame: &Arc<Frame>| {
            let header = frame.header();
            (header.timestamp, header.validity.clone(), frame.as_slice::<u8>().unwrap().to_vec())
        };
        self.frames.iter().map(plain).collect()
    }

    /// Bytes of all frames.
    fn bytes(&self) -> Vec<u8> {
        self.plain().into_iter().flat_map(|(_, _, bytes)| bytes).collect()
    }

    fn has_told(&self, kind: EventKind, text: &str) -> bool {
        self.events.since(0).iter().any(|event| event.kind == kind && event.text.contains(text))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Harness::block_on(self.harness.finish());
    }
}

/// Samples of `frames` frames, no two of which are the same in a row.
fn samples(frames: usize) -> Vec<u8> {
    (0..2 * SAMPLES * frames).map(|n| (n * 7 + n / 251 + 1) as u8).collect()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn connected(port: u16) -> TcpStream {
    let began = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(began.elapsed() < LIMIT, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn file_is_played_and_its_last_frame_is_flagged_from_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples.ci8");
    let sent = samples(2);
    // 1 frame and 40 samples, and a half.
    std::fs::write(&path, &sent[..=(2 * (SAMPLES + 40))]).unwrap();
    let mut running = Running::new(&json!({"file": path}), &json!({}));
    running.run();
    let frames = running.plain();
    assert_eq!(frames.len(), 2);
    assert_eq!(
        (frames[0].0, &frames[0].1[..], &frames[0].2),
        (0, &[1; 4][..], &sent[..128].to_vec())
    );
    assert_eq!((frames[1].0, &frames[1].1[..]), (64, &[1, 1, 0, 0][..]));
    assert_eq!(frames[1].2[..80], sent[128..208]);
    assert_eq!((running.count("bytes_cut"), running.count("samples_missing")), (1, 0));
    // A file has no time of its own.
    assert!(running.frames.iter().all(|frame| frame.header().base.sync_time.is_none()));
}

#[test]
fn pipe_has_one_sender_after_the_other_and_each_begins_at_a_sample() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let mut running = Running::new(&json!({"fifo": path}), &json!({"normalise": true}));
    let sent = samples(1);
    for (n, cut) in [(1, 5), (2, 0)] {
        let mut pipe = OpenOptions::new().write(true).open(&path).unwrap();
        pipe.write_all(&sent[cut..]).unwrap();
        drop(pipe);
        running.run_until(|running| running.frames.len() == n);
    }
    let bases: Vec<u64> = running.frames.iter().map(|frame| frame.header().base.from).collect();
    assert_eq!((bases, running.count("resyncs")), (vec![0, 1 << 48], 1));
    assert_eq!((running.count("connections"), running.count("bytes_cut")), (2, 1));
    let base = running.frames[1].header().base;
    let age = Time::now().seconds_since(base.sync_time.unwrap());
    assert!((-1.0..60.0).contains(&age) && base.uncertainty_seconds >= 0.25, "{base:?}");
    let floats = running.frames[1].as_slice::<f32>().unwrap();
    let expected = sent.iter().map(|byte| f32::from(byte.cast_signed()) / 128.0);
    assert!(floats.iter().copied().eq(expected));
    assert!(running.has_told(EventKind::Resynchronised, "uncertain by 0.25 s"));
}

#[test]
fn writer_of_a_pipe_that_is_there_first_loses_no_byte() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let (writer, sent) = (path.clone(), samples(2));
    let begun = sent.clone();
    // It opens with the block, and has gone before the thread reads.
    let writing = std::thread::spawn(move || {
        OpenOptions::new().write(true).open(writer).unwrap().write_all(&begun)
    });
    let more = json!({"on_end": "finish"});
    let mut running = Running::after(&json!({"fifo": path}), &more, None, || {
        writing.join().unwrap().unwrap();
    });
    running.run();
    assert_eq!((running.bytes(), running.count("connections")), (sent, 1));
}

#[test]
fn wait_before_the_first_read_is_part_of_the_uncertainty() {
    let port = free_port();
    let from = json!({"listen": format!("127.0.0.1:{port}")});
    let waited = Duration::from_millis(300);
    let mut running = Running::after(&from, &json!({"frames": 1}), None, || {
        connected(port).write_all(&samples(1)).unwrap();
        std::thread::sleep(waited);
    });
    running.run();
    let base = running.frames[0].header().base;
    assert!(base.uncertainty_seconds >= 0.25 + waited.as_secs_f64(), "{base:?}");
}

/// Frames of a flowgraph that has none.
struct NoFrames;

impl fxgraph_common::link::Frames for NoFrames {
    fn take(&mut self) -> Option<fxgraph::FrameMut> {
        None
    }

    fn push(&mut self, _: fxgraph::FrameMut) {}
}

#[test]
fn timestamps_without_room_are_not_the_end_of_the_frames() {
    let layout = parameters(&json!("stdin"), &json!({})).layout();
    let causes = causes::Causes::new(&Env::detached("radio").counters);
    let mut assembler = assembler::Assembler::new(layout, (1, true), Some(1), causes);
    assembler.begin_base((1 << 14) - 1, &mut NoFrames);
    assert!(!assembler.is_full());
    assembler.begin_base(0, &mut NoFrames);
    assert!(assembler.is_full() && !assembler.has_sent_all());
}

#[test]
fn reconnect_flags_from_the_begin_of_an_unsettled_range() {
    let tuning = tuning::Tuning::default();
    let range = || tuning.unsettled();
    tuning.settles(Some(100), 200);
    assert_eq!(range(), 100..200);
    tuning.settles(Some(150), 300);
    assert_eq!(range(), 100..300);
    tuning.settles(Some(400), 500);
    assert_eq!(range(), 400..500);
}

#[test]
fn client_connects_again_and_server_takes_one_client_after_the_other() {
    let sent = samples(2);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let mut running = Running::new(&json!({"tcp": address}), &json!({"frames": 2}));
    for part in [&sent[..128], &sent[128..]] {
        let frames = running.frames.len();
        let (mut stream, _) = server.accept().unwrap();
        stream.write_all(part).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
        running.run_until(|running| running.frames.len() > frames);
    }
    assert_eq!((running.bytes(), running.count("connections")), (sent.clone(), 2));

    let port = free_port();
    let from = json!({"listen": format!("127.0.0.1:{port}")});
    let mut running = Running::new(&from, &json!({"frames": 2}));
    let (mut first, mut second) = (connected(port), connected(port));
    second.write_all(&sent[128..]).unwrap();
    first.write_all(&sent[..128]).unwrap();
    drop(first);
    running.run();
    drop(second);
    assert_eq!(running.bytes(), sent);
}

#[test]
fn absent_server_is_told_of_once_and_tried_again() {
    let port = free_port();
    let from = json!({"tcp": format!("127.0.0.1:{port}")});
    let mut running = Running::new(&from, &json!({"frames": 1}));
    running.run_until(|running| running.count("connections_failed") >= 2);
    let server = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let (mut stream, _) = server.accept().unwrap();
    stream.write_all(&samples(1)).unwrap();
    running.run();
    let told = running.events.since(0).into_iter().filter(|event| event.kind == EventKind::Warning);
    assert_eq!(told.count(), 1);
    assert_eq!(running.bytes(), samples(1));
}

/// Reads a command of `rtl_tcp`.
fn command(stream: &mut TcpStream) -> (u8, u32) {
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).unwrap();
    (bytes[0], u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]))
}

#[test]
fn rtl_tcp_is_set_tuned_and_flagged_while_it_settles() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let rtl = json!({"address": server.local_addr().unwrap().to_string(), "bias_tee": true});
    // 32 samples, two heaps, settle.
    let more = json!({
        "type": "cu8", "centre_hz": 100e6, "gain_db": 20.7, "frequency_correction_ppm": -3, "settle_seconds": 0.0032,
    });
    // In the second frame, after its first heap.
    let change = When::at(SAMPLES as u64 + 16)
        .change(vec![("centre_hz", Box::new(Setting::CentreHz(101e6)))]);
    let mut running = Running::with(&json!({"rtl_tcp": rtl}), &more, Some(change));
    let (mut stream, _) = server.accept().unwrap();
    let commands: Vec<_> = (0..7).map(|_| command(&mut stream)).collect();
    let ppm = (-3_i32).cast_unsigned();
    let expected = [(2, 10_000), (5, ppm), (1, 100_000_000), (8, 0), (3, 1), (4, 207), (14, 1)];
    assert_eq!(commands, expected);
    stream.write_all(b"RTL0\0\0\0\x05\0\0\0\x1d").unwrap();
    let sent = samples(1);
    stream.write_all(&sent).unwrap();
    running.run_until(|running| !running.frames.is_empty());
    let frames = running.plain();
    assert_eq!((&frames[0].1[..], running.count("samples_unsettled")), (&[0, 0, 1, 1][..], 32));
    let signed: Vec<u8> = sent[64..].iter().map(|code| code ^ 0x80).collect();
    assert_eq!((&frames[0].2[..64], &frames[0].2[64..]), (&[0; 64][..], &signed[..]));

    stream.write_all(&sent).unwrap();
    running.run_until(|running| running.frames.len() == 2);
    assert_eq!(command(&mut stream), (1, 101_000_000));
    assert_eq!(running.plain()[1].1, [1, 0, 0, 0]);
    // The thread had the samples of one frame when it sent the command: 32 after it are flagged.
    stream.write_all(&sent).unwrap();
    running.run_until(|running| running.frames.len() == 3);
    assert_eq!(running.plain()[2].1, [0, 0, 1, 1]);
}

#[test]
fn server_of_another_protocol_is_named() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let rtl = json!({"address": server.local_addr().unwrap().to_string()});
    let more = json!({"type": "cu8", "centre_hz": 100e6});
    let mut running = Running::new(&json!({"rtl_tcp": rtl}), &more);
    let (mut stream, _) = server.accept().unwrap();
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
    running.run_until(|running| running.count("connections_failed") > 0);
    assert!(running.has_told(EventKind::Warning, "not a server of rtl_tcp"));
    assert!(running.frames.is_empty());
}

/// A source of datagrams with these parameters, and a socket that sends to it.
fn datagrams(header: &Value, more: &Value) -> (Running, UdpSocket) {
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let udp = json!({"address": free.to_string(), "header": header});
    let running = Running::new(&json!({"udp": udp}), more);
    sender.connect(free).unwrap();
    (running, sender)
}

/// A datagram with a sequence number of 2 bytes, big-endian, and samples from number `at` on.
fn numbered(number: u16, sent: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], sent].concat()
}

const NUMBERED: &str = r#"{"bytes": 2, "sequence": {"bytes": 2, "order": "big"}}"#;

#[test]
fn datagrams_get_their_places_and_missing_ones_are_flagged() {
    let header = serde_json::from_str(NUMBERED).unwrap();
    let (mut running, sender) = datagrams(&header, &json!({"frames": 3}));
    let sent = samples(3);
    // 16 samples in each; the numbers wrap, 4 is missing, 6 comes twice and before 5, one is half a sample too long.
    for n in [0, 1, 2, 3, 6, 5, 6, 7, 8, 9, 10, 11] {
        let mut datagram = numbered(65_530_u16.wrapping_add(n), &sent[32 * usize::from(n)..][..32]);
        datagram.extend(vec![9; usize::from(n == 9)]);
        sender.send(&datagram).unwrap();
    }
    // Frame 1 is closed by those of frames later than the window.
    for n in 20..40 {
        sender.send(&numbered(65_530_u16.wrapping_add(n), &sent[..32])).unwrap();
    }
    running.run();
    let frames = running.plain();
    let validity: Vec<_> = frames.iter().map(|frame| frame.1.clone()).collect();
    assert_eq!(validity, [vec![1; 4], vec![0, 1, 1, 1], vec![1; 4]]);
    let mut expected = sent;
    expected[128..160].fill(0);
    assert_eq!(running.bytes(), expected);
    assert_eq!(running.count("samples_missing"), 16);
    assert_eq!(running.count("samples_duplicate"), 16);
    assert_eq!(running.count("datagrams_odd_length"), 1);
}

#[test]
fn sender_that_counts_again_begins_another_time_base() {
    let header = json!({"bytes": 4, "sample": {"bytes": 4}});
    let (mut running, sender) = datagrams(&header, &json!({"max_gap_seconds": 0.1}));
    let sent = samples(1);
    let send = |at: u32| {
        let datagram = [&at.to_le_bytes()[..], &sent[..32]].concat();
        sender.send(&datagram).unwrap();
    };
    (0..4).for_each(|n| send(1_000_000 + 16 * n));
    running.run_until(|running| running.frames.len() == 1);
    // A jump that nothing follows, then another run: 15 are dropped, and the 16th begins the time base.
    send(7);
    (0..19).for_each(|n| send(16 * n));
    running.run_until(|running| running.frames.len() == 2);
    assert_eq!(running.count("datagrams_unexpected"), 1 + 15);
    let second = running.frames[1].header();
    assert_eq!((second.timestamp, second.base.from), (1 << 48, 1 << 48));
    assert_eq!(second.validity, [1; 4]);
    assert!(running.has_told(EventKind::Warning, "the sender was restarted"));
}

#[test]
fn datagrams_without_numbers_follow_each_other() {
    let (mut running, sender) = datagrams(&json!({"bytes": 0}), &json!({"frames": 2}));
    let sent = samples(2);
    sent.chunks(50).for_each(|part| {
        sender.send(part).unwrap();
    });
    running.run();
    assert_eq!(running.bytes(), sent);
}

#[test]
fn zeromq_subscriber_and_puller_get_all_samples() {
    let sent = samples(2);
    for (socket, peer) in [("sub", "PUB"), ("pull", "PUSH")] {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", server.local_addr().unwrap());
        let from = json!({"zmq": {"connect": address, "socket": socket}});
        let mut running = Running::new(&from, &json!({"frames": 2}));
        let (mut stream, _) = server.accept().unwrap();
        let mut bytes = Vec::new();
        zmtp::write_greeting(&mut bytes);
        zmtp::write_ready(peer, &mut bytes);
        stream.write_all(&bytes).unwrap();
        for message in sent.chunks(100) {
            stream.write_all(&[0, message.len() as u8]).unwrap();
            stream.write_all(message).unwrap();
        }
        running.run();
        assert_eq!(running.bytes(), sent);
        let mut hello = vec![0; zmtp::GREETING];
        stream.read_exact(&mut hello).unwrap();
        zmtp::check_greeting(hello.first_chunk().unwrap()).unwrap();
    }
}

/// Greeting and READY of a socket of this type.
fn hello(socket: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    zmtp::write_greeting(&mut bytes);
    zmtp::write_ready(socket, &mut bytes);
    bytes
}

#[test]
fn peer_that_does_not_read_its_answers_is_left() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", server.local_addr().unwrap());
    let from = json!({"zmq": {"connect": address, "socket": "sub"}});
    let mut running = Running::new(&from, &json!({}));
    let (mut stream, _) = server.accept().unwrap();
    stream.write_all(&hello("PUB")).unwrap();
    let pings = b"\x04\x09\x04PING\0\x01xy".repeat(8192);
    // More than the buffers of both sockets have room for.
    while stream.write_all(&pings).is_ok() {}
    running.run_until(|running| running.count("connections_failed") > 0);
    assert!(running.has_told(EventKind::Warning, "does not read"), "{:?}", running.events.since(0));
}

#[test]
fn samples_before_a_violation_are_received() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", server.local_addr().unwrap());
    let from = json!({"zmq": {"connect": address, "socket": "pull"}});
    let mut running = Running::new(&from, &json!({}));
    let (mut stream, _) = server.accept().unwrap();
    let sent = samples(1);
    let all = [&hello("PUSH")[..], &[0, 128], &sent, &[4, 0, 4, 1, 9]].concat();
    stream.write_all(&all).unwrap();
    running.run_until(|running| !running.frames.is_empty());
    assert_eq!(running.bytes(), sent);
    running.run_until(|running| running.has_told(EventKind::Warning, "without a name"));
    assert_eq!(running.count("samples_received"), SAMPLES as u64);
}

#[test]
fn missing_datagrams_are_as_long_as_the_last_one_in_order() {
    let header = serde_json::from_str(NUMBERED).unwrap();
    let (mut running, sender) = datagrams(&header, &json!({"frames": 1}));
    let sent = samples(1);
    // 16 samples in each; number 2 is missing, and those after it are short.
    for (number, part) in [(0, 0..32), (1, 32..64), (3, 96..112), (4, 112..128)] {
        sender.send(&numbered(number, &sent[part])).unwrap();
    }
    // The frame is closed by those of frames later than the window.
    for number in 5..12 {
        sender.send(&numbered(number, &sent)).unwrap();
    }
    running.run();
    let mut expected = sent;
    expected[64..96].fill(0);
    assert_eq!((running.bytes(), running.count("samples_missing")), (expected, 16));
}

#[test]
fn datagram_without_samples_does_not_become_the_sender() {
    let header = serde_json::from_str(NUMBERED).unwrap();
    let (mut running, sender) = datagrams(&header, &json!({"frames": 1}));
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    for bytes in [&[0][..], &[0, 1]] {
        other.send_to(bytes, sender.peer_addr().unwrap()).unwrap();
    }
    sender.send(&numbered(0, &samples(1))).unwrap();
    running.run();
    assert_eq!((running.bytes(), running.count("datagrams_foreign")), (samples(1), 0));
}

#[test]
fn wrong_type_is_named_while_the_samples_arrive() {
    let port = free_port();
    let from = json!({"listen": format!("127.0.0.1:{port}")});
    let mut running = Running::new(&from, &json!({"on_end": "finish"}));
    // Noise around the middle of offset binary.
    let noise: Vec<u8> = (0..65_536_u32).map(|n| (120 + (n * n / 7) % 16) as u8).collect();
    let mut stream = connected(port);
    let sending = std::thread::spawn(move || stream.write_all(&noise));
    running.run();
    sending.join().unwrap().unwrap();
    assert!(running.has_told(EventKind::Warning, "look like cu8"), "{:?}", running.events.since(0));
    assert_eq!(running.frames.len(), 512);
}

#[test]
fn parameters_that_do_not_fit_are_rejected_with_their_place() {
    let rejected = |from: Value, more: Value| -> Vec<String> {
        let rejections = parameters(&from, &more).outputs(&[]).unwrap_err();
        rejections.into_iter().map(|rejection| rejection.message).collect()
    };
    for (from, more, text) in [
        (json!({"tcp": "host"}), json!({}), "has no valid port"),
        (json!({"udp": {"address": "239.1.1.1+3:5000"}}), json!({}), "one address"),
        (
            json!({"udp": {"address": "127.0.0.1:5000", "header": {"bytes": 2, "sequence": {"bytes": 4}}}}),
            json!({}),
            "within the 2 bytes",
        ),
        (json!("stdin"), json!({"gain_db": 3}), "`gain_db` needs"),
        (json!("stdin"), json!({"on_end": "stay"}), "can come back"),
        (
            json!({"udp": {"address": "127.0.0.1:5000"}}),
            json!({"on_end": "finish"}),
            "datagrams have none",
        ),
        (json!("stdin"), json!({"adc_sample_rate_hz": 0}), "positive"),
        (json!("stdin"), json!({"samples_per_frame": 24}), "multiple of `samples_per_heap`"),
        (json!({"rtl_tcp": {"address": "127.0.0.1:1234"}}), json!({}), "must be cu8"),
        (json!({"zmq": {"socket": "sub"}}), json!({}), "one of `bind` and `connect`"),
        (
            json!({"zmq": {"connect": "ipc://x", "socket": "sub"}}),
            json!({}),
            "must be tcp://host:port",
        ),
    ] {
        let messages = rejected(from, more);
        assert!(messages.iter().any(|message| message.contains(text)), "{text}: {messages:?}");
    }
}

#[test]
fn files_and_pipes_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples");
    std::fs::write(&path, [0; 8]).unwrap();
    let source = parameters(&json!({"fifo": path}), &json!({}));
    let mut block = source.build(&[], &Env::detached("radio")).unwrap();
    let error = block.start().unwrap_err().to_string();
    assert!(error.contains("is a file, not a pipe"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_cuts_of_the_stream_give_the_same_frames(
        cuts in proptest::collection::vec(1..200_usize, 1..20),
        which in 0..11_usize,
    ) {
        let of = SampleType::all().nth(which).unwrap();
        let sent: Vec<u8> = samples(4).into_iter().take(SAMPLES * of.bytes() * 2).collect();
        let port = free_port();
        let from = json!({"listen": format!("127.0.0.1:{port}")});
        let mut running = Running::new(&from, &json!({"type": of.to_string(), "on_end": "finish"}));
        let mut stream = connected(port);
        stream.set_nodelay(true).unwrap();
        let mut rest = &sent[..];
        for cut in cuts.iter().cycle() {
            let (part, after) = rest.split_at((*cut).min(rest.len()));
            stream.write_all(part).unwrap();
            rest = after;
            if rest.is_empty() {
                break;
            }
            std::thread::yield_now();
        }
        drop(stream);
        running.run();
        let whole = sent.len() / of.bytes();
        let mut expected = vec![0; of.dtype().bytes(whole)];
        of.decode(&sent, &mut expected);
        let bytes = running.bytes();
        prop_assert_eq!(&bytes[..expected.len()], &expected[..]);
        prop_assert!(bytes[expected.len()..].iter().all(|byte| *byte == 0));
        prop_assert_eq!(running.count("samples_received"), whole as u64);
    }
}
