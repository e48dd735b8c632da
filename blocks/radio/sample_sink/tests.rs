//! Readers on the loopback interface and at pipes, and the samples that they get.

use super::encode::{Encoded, Encoder, Layout};
use super::*;
use crate::datagram::{ByteOrder, HeaderField};
use fxgraph::edge::Harness;
use fxgraph::event::Events;
use fxgraph::frame::{HostAllocator, Pool};
use fxgraph::{Axis, Clock, Dtype, FrameMut, Next, Ports, TimeBase, ValidityType};
use proptest::prelude::*;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// Samples of a frame, and its parts that can be missing.
const SAMPLES: usize = 1000;
const PARTS: usize = 4;

fn port(dtype: Dtype) -> PortType {
    PortType {
        dtype,
        axes: vec![Axis::new("sample", SAMPLES)],
        clock: Clock::new(1e6, SAMPLES as u64),
        band: Some(Band::signed(1, 0, 100e6, 1e6)),
        validity: ValidityType::flags(vec![Axis::new("heap", PARTS)]),
    }
}

fn sink(to: Destination) -> SampleSink {
    SampleSink {
        to,
        r#type: None,
        scale: None,
        conjugate: None,
        when_full: None,
        queue_seconds: 0.004,
    }
}

/// A running sink.
struct Running {
    harness: Harness,
    env: Env,
    events: Arc<Events>,
    frame_bytes: usize,
}

impl Running {
    fn new(sink: &SampleSink, port: PortType) -> Self {
        let (env, events) = (Env::detached("sink"), Arc::new(Events::default()));
        env.events.redirect(Some((Arc::clone(&events), "sink".to_owned())));
        let block = sink.build(std::slice::from_ref(&port), &env).unwrap();
        let frame_bytes = port.frame_bytes();
        let ports = Ports { inputs: vec![port], outputs: vec![] };
        let mut harness = Harness::new(block, &ports, 64).unwrap();
        Harness::block_on(harness.start()).unwrap();
        Self { harness, env, events, frame_bytes }
    }

    /// Frame number `n` with these bytes of samples.
    fn send(&mut self, n: u64, fill: impl FnOnce(&mut FrameMut)) {
        let is_sent = self.harness.send(0, |frame| {
            let header = frame.header_mut();
            header.timestamp = n * SAMPLES as u64;
            frame.fill_validity(1);
            fill(frame);
        });
        assert!(is_sent);
    }

    /// Sends `count` frames of different bytes; returns the bytes.
    fn send_all(&mut self, frames: std::ops::Range<u64>) -> Vec<u8> {
        let mut all = Vec::new();
        for n in frames {
            let bytes = bytes_of(n, self.frame_bytes);
            self.send(n, |frame| frame.as_mut_slice::<u8>().unwrap().copy_from_slice(&bytes));
            all.extend(bytes);
        }
        all
    }

    fn step(&mut self) -> Next {
        Harness::block_on(self.harness.step()).unwrap()
    }

    /// Works until `is_done`.
    fn until(&mut self, mut is_done: impl FnMut(&Self) -> bool) {
        while !is_done(self) {
            if let Next::After(time) = self.step() {
                std::thread::sleep(time);
            }
        }
    }

    /// Ends the stream, and works until the sink has finished.
    fn end(&mut self) {
        self.harness.end(0);
        assert_eq!(Harness::block_on(self.harness.run()).unwrap(), Next::Finished);
        Harness::block_on(self.harness.finish()).unwrap();
    }

    fn count(&self, name: &str) -> u64 {
        let all = self.env.counters.list();
        all.iter().find(|named| named.name == name).map_or(0, |named| named.counter.get())
    }

    fn texts(&self) -> Vec<String> {
        self.events.since(0).iter().map(|event| event.text.clone()).collect()
    }
}

fn bytes_of(n: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|k| (k * 7 + n * 31 + (k >> 8)) as u8).collect()
}

/// A free address on the loopback interface.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Reads all bytes until the end.
fn read_all(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    })
}

#[test]
fn tcp_clients_get_whole_frames_from_their_first_byte_on() {
    let address = free();
    let mut running = Running::new(&sink(Destination::Listen(address.clone())), port(Dtype::Ci16));
    running.send_all(0..3);
    running.until(|running| running.count("frames_without_reader") == 3);
    let first = read_all(TcpStream::connect(&address).unwrap());
    running.until(|running| running.count("readers_joined") == 1);
    let mut expected = running.send_all(3..5);
    running.until(|running| running.count("frames_sent") == 2);
    let second = read_all(TcpStream::connect(&address).unwrap());
    running.until(|running| running.count("readers_joined") == 2);
    let last = running.send_all(5..8);
    running.end();
    expected.extend(&last);
    assert_eq!(first.join().unwrap(), expected);
    assert_eq!(second.join().unwrap(), last);
    assert_eq!(running.count("bytes_sent"), (expected.len() + last.len()) as u64);
}

#[test]
fn slow_client_loses_whole_frames_and_the_fast_one_none() {
    let address = free();
    let mut running = Running::new(&sink(Destination::Listen(address.clone())), port(Dtype::Cf32));
    let mut slow = TcpStream::connect(&address).unwrap();
    let fast = read_all(TcpStream::connect(&address).unwrap());
    running.until(|running| running.count("readers_joined") == 2);
    // More than the buffers of the sockets hold.
    let mut n = 0;
    while running.count("frames_dropped_slow_reader") < 5 {
        running.send_all(n..n + 1);
        n += 1;
        let sent = running.count("frames_sent");
        running.until(|running| running.count("frames_sent") > sent);
    }
    let got = spawn(move || {
        let mut all = Vec::new();
        slow.read_to_end(&mut all).unwrap();
        all
    });
    running.end();
    let expected: Vec<u8> = (0..n).flat_map(|n| bytes_of(n, running.frame_bytes)).collect();
    assert!(fast.join().unwrap() == expected, "the fast client gets every frame");
    let got = got.join().unwrap();
    let mut numbers = Vec::new();
    for frame in got.chunks(running.frame_bytes) {
        let next = numbers.last().map_or(0, |last| last + 1);
        numbers.push((next..n).find(|n| frame == bytes_of(*n, frame.len())).unwrap());
    }
    assert_eq!(numbers.len() as u64 + running.count("frames_dropped_slow_reader"), n);
    assert_eq!(numbers.last(), Some(&(n - 1)), "the oldest are dropped");
}

#[test]
fn waiting_sink_holds_frames_until_the_server_is_there_and_loses_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut running = Running::new(&sink(Destination::Tcp(address.to_string())), port(Dtype::Ci8));
    let expected = running.send_all(0..20);
    running.until(|running| !running.texts().is_empty());
    assert!(running.texts()[0].starts_with("cannot connect"), "{:?}", running.texts());
    let listener = TcpListener::bind(address).unwrap();
    let server = spawn(move || read_all(listener.accept().unwrap().0).join().unwrap());
    running.end();
    assert_eq!(server.join().unwrap(), expected);
    assert_eq!(running.count("frames_without_reader"), 0);
}

/// Opens a pipe for reading, without waiting.
fn open_pipe(path: &Path) -> File {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).unwrap();
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty()).unwrap();
    file
}

#[test]
fn next_reader_of_a_pipe_begins_with_a_whole_frame() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples");
    let fifo = Destination::Fifo(path.as_path().into());
    let mut running = Running::new(&sink(fifo), port(Dtype::Cf32));
    let mut first = open_pipe(&path);
    running.until(|running| running.count("readers_joined") == 1);
    running.send_all(0..1);
    running.until(|running| running.count("frames_sent") == 1);
    let mut bytes = [0; 5000];
    first.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes[..], bytes_of(0, 8000)[..5000]);
    drop(first);
    // It is noticed before the next frame, which waits for the next reader.
    running.until(|running| running.count("readers_left") == 1);
    let mut expected = running.send_all(1..2);
    let second = open_pipe(&path);
    running.until(|running| running.count("readers_joined") == 2);
    // Without a writer, a pipe is at its end.
    let second = read_all(second);
    // More than the pipe holds.
    for n in 2..200 {
        expected.extend(running.send_all(n..n + 1));
        running.until(|running| running.count("frames_sent") == n + 1);
    }
    running.end();
    assert_eq!(running.count("frames_dropped_reader_left"), 0);
    let got = second.join().unwrap();
    assert!(got == expected, "{} bytes, expected {}", got.len(), expected.len());
}

#[test]
fn readers_that_leave_are_noticed_without_a_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples");
    let fifo = Destination::Fifo(path.as_path().into());
    let mut running = Running::new(&sink(fifo), port(Dtype::I8));
    let reader = spawn(move || File::open(path).unwrap());
    running.until(|running| running.count("readers_joined") == 1);
    drop(reader.join().unwrap());
    running.until(|running| running.count("readers_left") == 1);

    let address = free();
    let zmq = Zmq { bind: Some(format!("tcp://{address}")), connect: None, socket: ZmqSocket::Pub };
    let mut running = Running::new(&sink(Destination::Zmq(zmq)), port(Dtype::I8));
    let mut reader = TcpStream::connect(address).unwrap();
    reader.write_all(b"\xff").unwrap();
    running.until(|running| running.count("readers_joined") == 1);
    drop(reader);
    running.until(|running| running.count("readers_left") == 1);
}

#[test]
fn stop_ends_a_sink_that_waits_for_a_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples");
    let mut running =
        Running::new(&sink(Destination::Fifo(path.as_path().into())), port(Dtype::I8));
    running.send_all(0..5);
    running.step();
    running.harness.stopping = true;
    running.end();
    assert_eq!(running.count("frames_dropped_at_stop"), 5);
}

#[test]
fn rtl_tcp_client_gets_the_header_and_offset_binary() {
    let address = free();
    let to = Destination::RtlTcp(RtlTcp { listen: address.clone() });
    let mut running = Running::new(&sink(to), port(Dtype::Ci8));
    let mut client = TcpStream::connect(&address).unwrap();
    let mut commands = vec![1];
    commands.extend(433_920_000_u32.to_be_bytes());
    commands.extend([2]);
    commands.extend(1_000_000_u32.to_be_bytes());
    client.write_all(&commands).unwrap();
    let reader = read_all(client);
    running.until(|running| running.count("commands_ignored") == 1);
    let mut expected = b"RTL0\0\0\0\0\0\0\0\0".to_vec();
    expected.extend(running.send_all(0..3).iter().map(|byte| byte ^ 0x80));
    running.end();
    assert_eq!(reader.join().unwrap(), expected);
    assert!(running.texts()[0].contains("433920000 Hz"), "{:?}", running.texts());
}

#[test]
fn datagrams_have_their_numbers_and_all_samples() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let field = |offset, bytes, order| Some(HeaderField { offset, bytes, order });
    let header = DatagramHeader {
        bytes: 8,
        sequence: field(0, 2, ByteOrder::Big),
        sample: field(4, 4, ByteOrder::Little),
    };
    let address = socket.local_addr().unwrap().to_string();
    let to = Destination::Udp(Udp { address, payload_bytes: 303, header });
    let mut running = Running::new(&sink(to), port(Dtype::Ci8));
    let expected = running.send_all(0..4);
    let all = expected.len().div_ceil(302);
    let reader = spawn(move || {
        let mut datagrams = Vec::new();
        let mut buffer = [0; 400];
        while datagrams.len() < all {
            let len = socket.recv(&mut buffer).unwrap();
            datagrams.push(buffer[..len].to_vec());
        }
        datagrams
    });
    running.end();
    let datagrams = reader.join().unwrap();
    for (n, datagram) in datagrams.iter().enumerate() {
        assert_eq!(datagram[..4], [(n >> 8) as u8, n as u8, 0, 0]);
        assert_eq!(datagram[4..8], (n as u32 * 151).to_le_bytes());
        assert!(datagram.len() == 310 || n + 1 == all);
    }
    let samples: Vec<u8> = datagrams.iter().flat_map(|datagram| &datagram[8..]).copied().collect();
    assert_eq!(samples, expected);
    assert_eq!(running.count("datagrams_sent"), all as u64);
}

/// Reads messages as a socket of this type, which subscribes to all if it subscribes.
fn zmq_reader(mut socket: TcpStream, pattern: &'static str) -> JoinHandle<Vec<Vec<u8>>> {
    spawn(move || {
        let mut hello = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0];
        hello.extend(b"NULL");
        hello.resize(64, 0);
        hello.extend([4, (22 + pattern.len()) as u8]);
        hello.extend(b"\x05READY\x0bSocket-Type\0\0\0");
        hello.extend([pattern.len() as u8]);
        hello.extend(pattern.bytes());
        socket.write_all(&hello).unwrap();
        let mut greeting = [0; 64];
        socket.read_exact(&mut greeting).unwrap();
        let (mut head, mut messages) = ([0; 2], Vec::new());
        socket.read_exact(&mut head).unwrap();
        let mut ready = vec![0; head[1].into()];
        socket.read_exact(&mut ready).unwrap();
        assert!(ready.starts_with(b"\x05READY"));
        if pattern == "SUB" {
            socket.write_all(&[0, 1, 1]).unwrap();
        }
        let mut head = [0; 9];
        while socket.read_exact(&mut head).is_ok() {
            assert_eq!(head[0], 2);
            let len = u64::from_be_bytes(head[1..].try_into().unwrap());
            let mut message = vec![0; len as usize];
            socket.read_exact(&mut message).unwrap();
            messages.push(message);
        }
        messages
    })
}

#[test]
fn zmq_pub_gives_each_frame_to_all_subscribers_and_push_to_one_reader() {
    for (socket, reader, shares) in [(ZmqSocket::Pub, "SUB", 1), (ZmqSocket::Push, "PULL", 2)] {
        let address = free();
        let bind = Some(format!("tcp://{address}"));
        let to = Destination::Zmq(Zmq { bind, connect: None, socket });
        let mut running = Running::new(&sink(to), port(Dtype::Ci16));
        let readers = [(); 2].map(|()| zmq_reader(TcpStream::connect(&address).unwrap(), reader));
        // All handshakes are over when frames of the sink reach both.
        running.until(|running| running.count("readers_joined") == 2);
        let mut n = 0;
        while running.count("frames_sent") < 8 {
            running.send_all(n..n + 1);
            n += 1;
            for _ in 0..20 {
                running.step();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        running.end();
        let [first, second] = readers.map(|reader| reader.join().unwrap());
        let expected: Vec<_> = (0..n).map(|n| bytes_of(n, running.frame_bytes)).collect();
        if shares == 1 {
            assert!(expected.ends_with(&first) && expected.ends_with(&second));
            assert!(first.len() >= 3 && second.len() >= 3);
        } else {
            assert_eq!(first.len() + second.len(), expected.len(), "each message has one reader");
            assert!(first.iter().chain(&second).all(|message| expected.contains(message)));
            assert!(!first.is_empty() && !second.is_empty());
        }
    }
}

#[test]
fn missing_samples_and_gaps_are_zeros_in_their_place() {
    let address = free();
    let mut parameters = sink(Destination::Listen(address.clone()));
    parameters.r#type = Some(SampleType::Cu8);
    let mut running = Running::new(&parameters, port(Dtype::Ci8));
    let reader = read_all(TcpStream::connect(&address).unwrap());
    running.until(|running| running.count("readers_joined") == 1);
    let ones = |frame: &mut FrameMut| frame.as_mut_slice::<u8>().unwrap().fill(1);
    running.send(10, |frame| {
        ones(frame);
        frame.header_mut().validity[2] = 0;
    });
    running.send(13, |frame| {
        frame.header_mut().timestamp += 100;
        ones(frame);
    });
    // A jump of the clock, and one back.
    running.send(1_000_000, ones);
    running.send(3, ones);
    // Another sync time: the gap before it has no length.
    let from = 7 * SAMPLES as u64;
    running.send(7, |frame| {
        ones(frame);
        frame.header_mut().base = TimeBase { from, ..TimeBase::default() };
    });
    running.end();
    let run = |byte: u8, samples: usize| vec![byte; 2 * samples];
    let expected = [run(129, 500), run(128, 250), run(129, 250), run(128, 2100), run(129, 4000)];
    assert_eq!(reader.join().unwrap(), expected.concat());
    assert_eq!((running.count("samples_missing"), running.count("clock_jumps")), (2350, 3));
    assert!(running.texts().iter().any(|text| text.contains("jumped ahead")));
}

/// Raw samples of a frame with this payload.
fn encoded(
    dtype: Dtype,
    payload: &[u8],
    to: SampleType,
    scale: Option<f32>,
    conjugates: bool,
) -> (Vec<u8>, Encoded) {
    let axes = vec![Axis::new("sample", payload.len() / dtype.bytes(1))];
    let port = PortType { axes, validity: ValidityType::flags(vec![]), ..port(dtype) };
    let mut encoder = Encoder::new(Layout::new(&port).unwrap(), to, scale, conjugates);
    let pool = Pool::new(&HostAllocator, 1, payload.len(), 1).unwrap();
    let mut frame = pool.take().unwrap();
    frame.fill_validity(1);
    frame.as_mut_slice::<u8>().unwrap().copy_from_slice(payload);
    let mut raw = vec![0; encoder.frame_bytes()];
    let counts = encoder.encode(&frame.freeze(), &mut raw).unwrap();
    (raw, counts)
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn floats_become_integers_of_full_scale_and_those_beyond_are_counted() {
    let samples = floats(&[0.5, -0.25, 1.0, -1.0]);
    let (raw, counts) = encoded(Dtype::Cf32, &samples, SampleType::Ci8, None, false);
    assert_eq!((raw, counts.clipped), (vec![64, 0xe0, 127, 0x80], 1));
    let (raw, counts) = encoded(Dtype::Cf32, &samples, SampleType::Ci8, Some(0.5), false);
    assert_eq!((raw, counts.clipped), (vec![32, 0xf0, 64, 0xc0], 0));
    let (raw, _) = encoded(Dtype::Ci8, &[64, 0xe0], SampleType::Cf32, None, false);
    assert_eq!(raw, floats(&[0.5, -0.25]));
}

#[test]
fn conjugates_have_the_other_imaginary_part_and_the_same_real_one() {
    let (raw, counts) = encoded(Dtype::Ci8, &[3, 4, 0x80, 0x80], SampleType::Ci8, None, true);
    assert_eq!((raw, counts.clipped), (vec![3, 0xfc, 0x80, 127], 1));
    let (raw, _) = encoded(Dtype::Ci8, &[3, 4, 5, 6], SampleType::Cu8, None, true);
    assert_eq!(raw, [131, 124, 133, 122]);
    let (raw, _) = encoded(Dtype::Ci16, &[1, 2, 3, 4], SampleType::Ci16, None, true);
    assert_eq!(raw, [1, 2, 0xfd, 0xfb]);
    for scale in [None, Some(1.0)] {
        let (raw, _) = encoded(Dtype::Cf32, &floats(&[1.5, 2.5]), SampleType::Cf32, scale, true);
        assert_eq!(raw, floats(&[1.5, -2.5]));
    }
}

#[test]
fn inputs_and_parameters_that_do_not_fit_are_rejected() {
    let to = || Destination::Listen("127.0.0.1:7000".to_owned());
    let messages = |sink: &SampleSink, port: PortType| {
        let rejections = sink.ports(&[port]).map(drop).unwrap_err();
        rejections.into_iter().map(|rejection| rejection.message).collect::<Vec<_>>().join("; ")
    };
    assert!(messages(&sink(to()), port(Dtype::Ci32)).contains("ci8, ci16"));
    let mut two = port(Dtype::Ci8);
    two.axes.insert(0, Axis::new("pol", 2));
    assert!(messages(&sink(to()), two).contains("one stream of samples"));
    let real = SampleSink { r#type: Some(SampleType::Cf32), ..sink(to()) };
    assert!(messages(&real, port(Dtype::F32)).contains("cf32 is complex"));
    let conjugate = SampleSink { conjugate: Some(true), ..sink(to()) };
    assert!(messages(&conjugate, port(Dtype::I16)).contains("real samples"));
    let listen = "127.0.0.1:1234".to_owned();
    let wide = SampleSink {
        r#type: Some(SampleType::Ci16),
        ..sink(Destination::RtlTcp(RtlTcp { listen }))
    };
    assert!(messages(&wide, port(Dtype::Ci16)).contains("must be cu8"));
    let none = Zmq { bind: None, connect: None, socket: ZmqSocket::Pub };
    assert!(messages(&sink(Destination::Zmq(none)), port(Dtype::Ci8)).contains("one of `bind`"));
    assert!(
        messages(&sink(Destination::Tcp("somewhere".to_owned())), port(Dtype::Ci8))
            .contains("port")
    );
    let address = "127.0.0.1:9".to_owned();
    let long = Udp { address, payload_bytes: 70_000, header: DatagramHeader::default() };
    assert!(messages(&sink(Destination::Udp(long)), port(Dtype::Ci8)).contains("65000"));
}

#[test]
fn lower_sideband_is_a_warning_until_the_user_decides() {
    let mut lower = port(Dtype::Ci8);
    lower.band = Some(Band::signed(1, 0, 100e6, -1e6));
    let to = || Destination::Listen("127.0.0.1:7000".to_owned());
    let warnings = |sink: SampleSink| {
        SampleSink::warnings(&Configured::new(sink, std::slice::from_ref(&lower)).unwrap()).len()
    };
    assert_eq!(warnings(sink(to())), 1);
    for conjugate in [true, false] {
        assert_eq!(warnings(SampleSink { conjugate: Some(conjugate), ..sink(to()) }), 0);
    }
    let statement = |conjugate| {
        let sink = SampleSink { conjugate: Some(conjugate), ..sink(to()) };
        sink.shape(&lower).unwrap().statement(&sink)
    };
    assert!(statement(true).contains("upper") && statement(false).contains("lower"));
}

proptest! {
    #[test]
    fn samples_of_any_type_are_the_same_after_a_source_has_decoded_them(
        bytes in proptest::collection::vec(any::<u8>(), 8..800),
        which in 0..11_usize,
    ) {
        let to = SampleType::all().nth(which).unwrap();
        let size = to.dtype().bytes(1);
        let mut payload = bytes[..bytes.len() / size * size].to_vec();
        if to == SampleType::Ci12p {
            // Numbers of 12 bits.
            payload.as_chunks_mut::<2>().0.iter_mut().for_each(|pair| {
                *pair = (i16::from_le_bytes(*pair) >> 4).to_le_bytes();
            });
        }
        let (raw, counts) = encoded(to.dtype(), &payload, to, None, false);
        prop_assert_eq!(counts, Encoded::default());
        let mut back = vec![0; payload.len()];
        to.decode(&raw, &mut back);
        prop_assert_eq!(back, payload);
    }
}
