//! `receive: af_xdp` on virtual interfaces, and interfaces that are made again, in network namespaces of their own.
#![allow(unsafe_code)] // capset and packet sockets have no safe interface.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::io::spead::item;
use crate::io::spead::namespace::{carrier, interface, ip, on_host, unshare};
use crate::io::spead::packet::{Head, Pointer};
use crate::io::spead::xdp::headers::tests::{packet, seal};
use fxgraph::edge::Harness;
use fxgraph::{Env, Next, Ports};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(20);
const HEAPS: u64 = 4;
/// Heaps in one packet of several chunks of memory, and heaps in a short packet.
const LONG: usize = 8192;
const SHORT: usize = 64;
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const UNICAST: &str = "10.77.0.1:7148";
const GROUP: &str = "239.77.0.1:7148";
/// Ethernet, IPv4.
const IP: usize = 14;
const UDP: usize = 34;

/// Socket that sends packets with their headers on an interface.
struct Wire {
    socket: socket2::Socket,
    interface: i32,
}

impl Wire {
    fn new() -> Self {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
        // SAFETY: the name ends with a zero.
        let interface = unsafe { libc::if_nametoindex(c"tx0".as_ptr()) } as i32;
        Self { socket, interface }
    }

    fn send(&self, packet: &[u8]) {
        use std::os::fd::AsRawFd;
        // SAFETY: a sockaddr_ll is plain integers, for which all zeros is a value.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        (to.sll_family, to.sll_ifindex) = (libc::AF_PACKET as u16, self.interface);
        let (fd, len) = (self.socket.as_raw_fd(), size_of_val(&to) as libc::socklen_t);
        let (data, to) = (packet.as_ptr().cast(), (&raw const to).cast());
        // SAFETY: both pointers have the lengths given.
        let rc = unsafe { libc::sendto(fd, data, packet.len(), 0, to, len) };
        assert_eq!(rc, packet.len() as isize, "{}", std::io::Error::last_os_error());
    }
}

fn sample(frame: u64, heap: u64, at: usize) -> u8 {
    ((frame * HEAPS + heap) as usize * 31 + at * 7 + 1) as u8
}

fn samples(bytes: usize, frame: u64, heap: u64) -> Vec<u8> {
    (0..bytes).map(|at| sample(frame, heap, at)).collect()
}

/// SPEAD packet with a heap of a digitiser.
fn heap(bytes: usize, frame: u64, heap: u64) -> Vec<u8> {
    let number = frame * HEAPS + heap;
    let items = [
        Pointer::immediate(item::TIMESTAMP, number * bytes as u64),
        Pointer::immediate(item::DIGITISER_ID, 0),
        Pointer::addressed(item::RAW_SAMPLES, 0),
    ];
    let head = Head::new(number, bytes, 0, bytes, &items);
    [head.as_bytes(), &samples(bytes, frame, heap)].concat()
}

fn stop() -> Vec<u8> {
    let items = [Pointer::immediate(item::STREAM_CONTROL, item::STREAM_STOP)];
    [Head::new(1 << 30, 1, 0, 1, &items).as_bytes(), &[0]].concat()
}

fn sender() -> SocketAddrV4 {
    "10.77.0.2:4000".parse().unwrap()
}

/// Packet from [`sender`] to `to` with its headers.
fn framed(to: &str, payload: &[u8]) -> Vec<u8> {
    packet(sender(), to.parse().unwrap(), HOST, payload)
}

/// A running source.
struct Line {
    env: Env,
    harness: Harness,
    /// Timestamp, validity and payload.
    frames: Vec<(u64, Vec<u32>, Vec<u8>)>,
}

fn parameters(bytes: usize, extra: &Value) -> SpeadSource {
    let mut parameters = json!({
        "stream": "digitiser", "bits": 8, "samples_per_heap": bytes, "samples_per_frame": bytes as u64 * HEAPS,
        "adc_sample_rate_hz": 1e6, "window": 4, "live": false, "stop_after_senders": 1,
        "interfaces": ["rx0"], "addresses": [UNICAST], "receive_buffer_bytes": 4 << 20,
    });
    parameters.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    serde_json::from_value(parameters).unwrap()
}

impl Line {
    fn start(bytes: usize, extra: &Value) -> Result<Self, String> {
        let (parameters, env) = (parameters(bytes, extra), Env::detached("source"));
        let outputs = KindSpec::outputs(&parameters, &[]).unwrap();
        let ports = Ports { inputs: vec![], outputs };
        let block = parameters.build(&ports.inputs, &env).unwrap();
        let mut harness = Harness::new(block, &ports, 8).unwrap();
        Harness::block_on(harness.start()).map_err(|error| error.to_string())?;
        Ok(Self { env, harness, frames: Vec::new() })
    }

    fn count(&self, name: &str) -> u64 {
        self.env.counters.list().iter().find(|c| c.name == name).unwrap().counter.get()
    }

    fn run(&mut self) -> Next {
        let next = Harness::block_on(self.harness.run()).unwrap();
        while let Some(frame) = self.harness.receive(0) {
            let header = frame.header();
            let payload = frame.as_slice::<u8>().unwrap().to_vec();
            self.frames.push((header.timestamp, header.validity.clone(), payload));
        }
        next
    }

    /// Runs until `is_done`.
    fn run_until(&mut self, what: &str, is_done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + WAIT;
        while !is_done(self) {
            assert!(Instant::now() < deadline, "{what}");
            assert_eq!(self.run(), Next::Wait);
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn finish(mut self) -> Vec<(u64, Vec<u32>, Vec<u8>)> {
        let deadline = Instant::now() + WAIT;
        while self.run() != Next::Finished {
            assert!(Instant::now() < deadline, "the source does not finish");
            std::thread::sleep(Duration::from_millis(1));
        }
        Harness::block_on(self.harness.finish()).unwrap();
        std::mem::take(&mut self.frames)
    }
}

/// Sends `frames` frames, with heap h to address number h in turn, and returns the frames of the source.
fn stream(
    bytes: usize,
    addresses: &[&str],
    extra: &Value,
    frames: u64,
) -> Vec<(u64, Vec<u32>, Vec<u8>)> {
    let mut parameters = extra.clone();
    parameters["addresses"] = json!(addresses);
    let mut line = Line::start(bytes, &parameters).unwrap();
    let (wire, mut sent) = (Wire::new(), 0);
    for frame in 0..frames {
        for h in 0..HEAPS {
            let to = addresses[h as usize % addresses.len()];
            wire.send(&framed(to, &heap(bytes, frame, h)));
            sent += 1;
        }
        line.run_until("not all heaps arrive", |line| line.count("packets_received") == sent);
    }
    wire.send(&framed(addresses[0], &stop()));
    for name in ["heaps_missing", "packets_dropped_by_kernel", "packets_not_spead"] {
        assert_eq!(line.count(name), 0, "{name}");
    }
    line.finish()
}

#[test]
fn frames_are_those_of_sockets() {
    on_host(1, || {
        let cases: [(usize, &[&str]); 4] = [
            (SHORT, &[UNICAST]),
            (LONG, &[UNICAST]),
            (LONG, &[GROUP]),
            (LONG, &[GROUP, UNICAST, "239.77.0.2:7148"]),
        ];
        for (bytes, addresses) in cases {
            let of = |receive: &str| stream(bytes, addresses, &json!({"receive": receive}), 20);
            let frames = of("af_xdp");
            assert_eq!(frames.len(), 20);
            for (n, (timestamp, validity, payload)) in frames.iter().enumerate() {
                assert_eq!(*timestamp, n as u64 * HEAPS * bytes as u64);
                assert_eq!(*validity, [1; HEAPS as usize]);
                let expected = (0..HEAPS).flat_map(|h| samples(bytes, n as u64, h));
                assert!(payload.iter().copied().eq(expected), "frame {n}");
            }
            assert_eq!(frames, of("socket"), "{bytes} {addresses:?}");
        }
    });
}

#[test]
fn generic_program_and_queues_of_several_threads_give_the_same_frames() {
    on_host(2, || {
        let frames = stream(LONG, &[UNICAST, GROUP], &json!({"receive": "socket"}), 20);
        let two = json!({"receive": "af_xdp", "threads": 2});
        assert_eq!(frames, stream(LONG, &[UNICAST, GROUP], &two, 20));
        // A program needs a driver that knows it: a bridge has none.
        ip("link add name br0 type bridge");
        ip("link set br0 up");
        ip("link set br0 mtu 9000 address 02:00:00:00:00:01");
        ip("address flush dev rx0");
        ip("link set rx0 master br0");
        ip("address add 10.77.0.1/24 dev br0");
        let generic = json!({"receive": "af_xdp", "interfaces": ["br0"]});
        assert_eq!(frames, stream(LONG, &[UNICAST, GROUP], &generic, 20));
    });
}

#[test]
fn other_traffic_of_the_interface_reaches_the_kernel() {
    on_host(1, || {
        let (started, is_started) = channel();
        let (ask, asked) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                assert!(unshare());
                // SAFETY: no pointers.
                started.send(unsafe { libc::gettid() }).unwrap();
                asked.recv().unwrap();
                ip("link set lo up");
                ip("link set tx0 up");
                ip("address add 10.77.0.2/24 dev tx0");
                // A datagram to another port, an answer of ICMP from a closed one, and a connection.
                let socket = UdpSocket::bind("10.77.0.2:4000").unwrap();
                socket.send_to(b"other", "10.77.0.1:9000").unwrap();
                let closed = UdpSocket::bind("10.77.0.2:0").unwrap();
                closed.connect("10.77.0.1:9001").unwrap();
                closed.set_read_timeout(Some(WAIT)).unwrap();
                closed.send(b"?").unwrap();
                let error = closed.recv(&mut [0; 8]).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
                let mut connection = TcpStream::connect("10.77.0.1:9000").unwrap();
                connection.write_all(b"hello").unwrap();
                drop(connection);
                // The stream, from an ordinary socket: runs of packets with unfinished checksums.
                let run: Vec<u8> = (0..HEAPS).flat_map(|h| heap(1024, 0, h)).collect();
                let size = (run.len() / HEAPS as usize) as i32;
                set_segment(&socket, size);
                for frame in 0..20 {
                    let run: Vec<u8> = (0..HEAPS).flat_map(|h| heap(1024, frame, h)).collect();
                    socket.send_to(&run, UNICAST).unwrap();
                }
                socket.send_to(&stop(), UNICAST).unwrap();
                asked.recv().unwrap();
            });
            ip(&format!("link set tx0 netns {}", is_started.recv().unwrap()));
            let datagrams = UdpSocket::bind("10.77.0.1:9000").unwrap();
            datagrams.set_read_timeout(Some(WAIT)).unwrap();
            let listener = TcpListener::bind("10.77.0.1:9000").unwrap();
            let line = Line::start(1024, &json!({"receive": "af_xdp"})).unwrap();
            ask.send(()).unwrap();
            let mut text = [0; 8];
            assert_eq!(datagrams.recv(&mut text).unwrap(), 5);
            let mut greeting = String::new();
            listener.accept().unwrap().0.read_to_string(&mut greeting).unwrap();
            assert_eq!(greeting, "hello");
            let frames = line.finish();
            ask.send(()).unwrap();
            assert_eq!(frames.len(), 20);
            assert!(frames.iter().all(|(_, validity, _)| *validity == [1; HEAPS as usize]));
        });
    });
}

fn set_segment(socket: &UdpSocket, size: i32) {
    use std::os::fd::AsRawFd;
    let value = (&raw const size).cast();
    // SAFETY: the value has the length given.
    let rc =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, 4) };
    assert_eq!(rc, 0);
}

#[test]
fn hostile_packets_are_counted_by_cause() {
    on_host(1, || {
        let mut line = Line::start(SHORT, &json!({"receive": "af_xdp"})).unwrap();
        let wire = Wire::new();
        let good = framed(UNICAST, &heap(SHORT, 0, 0));
        // For the kernel: no complete headers, other protocols, other addresses.
        for len in 14..UDP + 8 {
            wire.send(&good[..len]);
        }
        let changed = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] = value;
            seal(&mut packet, IP);
            packet
        };
        let (later_fragment, not_long) = (changed(IP + 7, 4), changed(IP, 0x42));
        let others = [changed(12, 0x86), changed(IP, 0x65), changed(IP + 9, 6)];
        for packet in others.iter().chain([&later_fragment, &not_long]) {
            wire.send(packet);
        }
        wire.send(&framed("10.77.0.9:7148", &[0; 99]));
        wire.send(&framed("10.77.0.1:7149", &[0; 99]));
        // For the source.
        let truncated = good[..UDP + 8 + 20].to_vec();
        let (udp_short, udp_long) = (changed(UDP + 5, 7), changed(UDP + 4, 40));
        let no_room = changed(IP + 3, 27);
        for packet in [&truncated, &udp_short, &udp_long, &no_room] {
            wire.send(packet);
        }
        wire.send(&changed(IP + 6, 0x20));
        let mut damaged = good.clone();
        *damaged.last_mut().unwrap() ^= 4;
        wire.send(&damaged);
        let mut unsealed = good.clone();
        unsealed[IP + 8] = 7;
        wire.send(&unsealed);
        wire.send(&framed(UNICAST, b"no SPEAD"));
        wire.send(&framed(UNICAST, &[]));
        let names = [
            "packets_bad_header",
            "packets_fragmented",
            "packets_bad_checksum",
            "packets_received",
            "packets_not_spead",
        ];
        line.run_until("not all packets are counted", |line| {
            names.map(|name| line.count(name)) == [4, 1, 2, 2, 2]
        });
        // The source still works.
        for frame in 0..4 {
            (0..HEAPS).for_each(|h| wire.send(&framed(UNICAST, &heap(SHORT, frame, h))));
        }
        line.run_until("no heap arrives", |line| line.count("packets_received") == 18);
        wire.send(&framed(UNICAST, &stop()));
        assert_eq!(line.finish().len(), 4);
    });
}

#[test]
fn tagged_packets_and_packets_with_options_reach_the_source() {
    on_host(1, || {
        let mut line = Line::start(SHORT, &json!({"receive": "af_xdp"})).unwrap();
        let wire = Wire::new();
        let mut sent = 0;
        for words in 0..=10_usize {
            let mut packet = framed(UNICAST, &heap(SHORT, 0, 0));
            packet.splice(UDP..UDP, vec![1; 4 * words]);
            packet[IP] += words as u8;
            let total = u16::from_be_bytes([packet[IP + 2], packet[IP + 3]]) + 4 * words as u16;
            packet[IP + 2..IP + 4].copy_from_slice(&total.to_be_bytes());
            seal(&mut packet, IP);
            wire.send(&packet);
            for tag in [[0x81, 0, 0, 5], [0x88, 0xa8, 0, 5]] {
                wire.send(&[&packet[..IP - 2], &tag, &packet[IP - 2..]].concat());
            }
            sent += 3;
        }
        line.run_until("not all packets arrive", |line| line.count("packets_received") == sent);
        assert_eq!(line.count("packets_bad_checksum"), 0);
    });
}

#[test]
fn packets_without_room_are_counted() {
    on_host(1, || {
        // 64 chunks have room for as many short packets, or 21 packets of 3 chunks.
        for (bytes, room) in [(SHORT, 64), (LONG, 21)] {
            let extra = json!({"receive": "af_xdp", "receive_buffer_bytes": 4096});
            let mut line = Line::start(bytes, &extra).unwrap();
            let wire = Wire::new();
            // The source has no frame yet, so its thread does not read.
            (0..100).for_each(|n| wire.send(&framed(UNICAST, &heap(bytes, n / HEAPS, n % HEAPS))));
            let are_all = |line: &Line| {
                line.count("packets_received") + line.count("packets_dropped_by_kernel") == 100
            };
            line.run_until("not all packets are counted", are_all);
            assert_eq!(line.count("packets_received"), room);
            // The kernel counts this for packets of one chunk only.
            assert_eq!(line.count("receive_memory_exhausted") > 0, bytes == SHORT);
        }
    });
}

/// Runs `line` while `wire` sends heaps of the frames from `from` on, until a frame of one of them is complete; returns
/// the number of the next frame.
fn pass_frames(line: &mut Line, wire: &Wire, from: u64) -> u64 {
    let mut next = from;
    let deadline = Instant::now() + WAIT;
    while !line.frames.iter().any(|(timestamp, validity, _)| {
        *timestamp >= from * HEAPS * SHORT as u64 && *validity == [1; HEAPS as usize]
    }) {
        assert!(Instant::now() < deadline, "no frame arrives");
        (0..HEAPS).for_each(|h| wire.send(&framed(GROUP, &heap(SHORT, next, h))));
        next += 1;
        assert_eq!(line.run(), Next::Wait);
        std::thread::sleep(Duration::from_millis(1));
    }
    next
}

#[test]
fn group_is_joined_again_on_an_interface_that_is_made_again() {
    on_host(1, || {
        for named in ["rx0", "10.77.0.1"] {
            let extra = json!({"receive": "socket", "addresses": [GROUP], "interfaces": [named]});
            let mut line = Line::start(SHORT, &extra).unwrap();
            let events = std::sync::Arc::new(fxgraph::event::Events::default());
            line.env.events.redirect(Some((std::sync::Arc::clone(&events), "source".to_owned())));
            let next = pass_frames(&mut line, &Wire::new(), 0);
            ip("link delete rx0");
            let is_reported =
                |text: &str| events.since(0).iter().any(|event| event.text.contains(text));
            line.run_until("no event", |_| is_reported(&format!("`{named}` is gone")));
            interface(1);
            let next = pass_frames(&mut line, &Wire::new(), next);
            line.run_until("no event", |_| is_reported("is there again"));
            // Down and up again, the kernel keeps the group.
            ip("link set rx0 down");
            line.run_until("no event", |_| {
                events
                    .since(0)
                    .iter()
                    .any(|event| event.text.contains(&format!("`{named}` is down")))
            });
            ip("link set rx0 up");
            carrier();
            pass_frames(&mut line, &Wire::new(), next);
        }
    });
}

#[test]
fn af_xdp_survives_an_interface_that_is_down_for_a_time() {
    on_host(1, || {
        let extra =
            json!({"receive": "af_xdp", "addresses": [GROUP], "receive_buffer_bytes": 1 << 20});
        let mut line = Line::start(SHORT, &extra).unwrap();
        let next = pass_frames(&mut line, &Wire::new(), 0);
        ip("link set rx0 down");
        ip("link set rx0 up");
        carrier();
        pass_frames(&mut line, &Wire::new(), next);
    });
}

fn has_program() -> bool {
    ip("link show rx0").contains("xdp")
}

#[test]
fn interface_has_a_program_only_while_the_source_runs() {
    on_host(1, || {
        assert!(!has_program());
        let line = Line::start(SHORT, &json!({"receive": "af_xdp"})).unwrap();
        assert!(has_program());
        // Dropped, as after a fault, without a call of `finish`.
        drop(line);
        assert!(!has_program());
        let line = Line::start(SHORT, &json!({"receive": "af_xdp"})).unwrap();
        let other = json!({"receive": "af_xdp", "addresses": ["10.77.0.1:7149"]});
        let error = Line::start(SHORT, &other).err().unwrap();
        assert!(error.contains("`rx0` has an XDP program already"), "{error}");
        drop(line);
        let threads = json!({"receive": "af_xdp", "threads": 2});
        let error = Line::start(SHORT, &threads).err().unwrap();
        assert!(error.contains("receive queues of `rx0`, 1, got 2"), "{error}");
        let absent = json!({"receive": "af_xdp", "addresses": ["10.77.0.8:7148"]});
        let error = Line::start(SHORT, &absent).err().unwrap();
        assert!(error.contains("no interface of this host has that address"), "{error}");
        assert!(!has_program());
        // A source can follow one that failed to start.
        assert_eq!(stream(SHORT, &[UNICAST], &json!({"receive": "af_xdp"}), 4).len(), 4);
        assert!(!has_program());
    });
}

#[test]
fn removal_of_the_interface_ends_the_source_with_an_error() {
    on_host(1, || {
        let mut line = Line::start(SHORT, &json!({"receive": "af_xdp"})).unwrap();
        (0..10).for_each(|_| _ = line.run());
        ip("link delete rx0");
        let deadline = Instant::now() + WAIT;
        let error = loop {
            assert!(Instant::now() < deadline, "the source goes on");
            if let Err(error) = Harness::block_on(line.harness.run()) {
                break format!("{error} {error:?}");
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(error.contains("cannot receive"), "{error}");
    });
}

/// Leaves this thread these capabilities.
fn keep_capabilities(kept: &[u32]) {
    let mut words = [0_u32; 6];
    for capability in kept {
        let at = (capability / 32) as usize * 3;
        // Effective and permitted.
        words[at] |= 1 << (capability % 32);
        words[at + 1] |= 1 << (capability % 32);
    }
    let header = [0x2008_0522_u32, 0];
    // SAFETY: the header of version 3, and its two sets of three words.
    let rc = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), words.as_ptr()) };
    assert_eq!(rc, 0);
}

#[test]
fn source_without_privileges_names_the_capabilities() {
    let run = || {
        keep_capabilities(&[]);
        let extra =
            json!({"receive": "af_xdp", "interfaces": ["lo"], "addresses": ["127.0.0.1:7148"]});
        Line::start(SHORT, &extra).err().unwrap()
    };
    let error = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    assert!(error.contains("CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"), "{error}");
}

#[test]
fn three_capabilities_suffice() {
    on_host(1, || {
        // CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF.
        keep_capabilities(&[12, 13, 39]);
        // Without CAP_IPC_LOCK the memory of all sockets of the user is limited, also that of other tests.
        assert_eq!(
            stream(
                LONG,
                &[UNICAST],
                &json!({"receive": "af_xdp", "receive_buffer_bytes": 1 << 20}),
                4
            )
            .len(),
            4
        );
    });
}

#[test]
fn parameters_that_af_xdp_does_not_support_are_rejected() {
    let errors = |extra: Value| -> String {
        let errors = parameters(SHORT, &extra).layout().unwrap_err();
        format!("{errors:?}")
    };
    let xdp = |mut extra: Value| {
        extra["receive"] = json!("af_xdp");
        errors(extra)
    };
    assert!(xdp(json!({"interfaces": []})).contains("`receive: af_xdp` needs `interfaces`"));
    assert!(xdp(json!({"interfaces": ["a", "b", "a"]})).contains("got `a` twice"));
    assert!(xdp(json!({"addresses": ["0.0.0.0:7148"]})).contains("got 0.0.0.0:7148"));
    let v6 = xdp(json!({"addresses": [UNICAST, "[ff05::1]+1:7148"]}));
    assert!(
        v6.contains("must be IPv4 addresses with `receive: af_xdp`, got [ff05::2]:7148"),
        "{v6}"
    );
    assert!(xdp(json!({"pcap": "x.pcap"})).contains("must be `socket` with `pcap`"));
    let sources =
        |addresses: &str, source: &str| json!({"addresses": [addresses], "sources": [source]});
    assert!(xdp(sources(GROUP, "10.0.0.1")).contains("`sources` needs `receive: socket`"));
    assert!(
        errors(sources(UNICAST, "10.0.0.1"))
            .contains("`sources` needs multicast groups in `addresses`")
    );
    assert!(
        errors(sources(GROUP, "x")).contains("`sources` must be IP addresses of senders, got `x`")
    );
    assert!(parameters(SHORT, &sources(GROUP, "10.0.0.1")).layout().is_ok());
    let several = json!({"receive": "af_xdp", "threads": 2, "addresses": [GROUP]});
    assert!(parameters(SHORT, &several).layout().is_ok());
}
