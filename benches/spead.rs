//! Benchmark of SPEAD reception over loopback: `spead_source` compared with the receiver of spead2, in one run with
//! one sender: `cargo bench --bench spead`.
//!
//! spead2 is configured for speed: a chunk stream in its own thread, with heaps placed by a compiled callback. Both
//! receivers have socket buffers and pools of the same size, and pass complete chunks (frames) to a reader that
//! returns them at once. Loopback has no network card, so the rates do not apply to a network; the CPU time of the
//! receiver's process per GB does.
//!
//! `cargo bench --bench spead --features xdp -- af_xdp` compares `receive: socket` with `receive: af_xdp` of `spead_source` instead, over
//! virtual interfaces between network namespaces. It needs root, `ip`, `nsenter` and `unshare`.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod machine;
#[path = "../tests/support/python.rs"]
mod python;
#[path = "../tests/support/repository.rs"]
mod repository;

use fxgraph::flowgraph::load_text;
use fxgraph::runtime::{Options, start};
use fxgraph_blocks::common::net::family::Family;
use fxgraph_blocks::io::spead::item;
use fxgraph_blocks::io::spead::packet::{Head, Pointer};
use fxgraph_blocks::io::spead::send::{MAX_PACKETS, Outgoing, Sender};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Duration of a run at one rate.
const TRIAL: Duration = Duration::from_millis(250);
/// Number of attempts at a rate, because other load on the machine may disturb one.
const ATTEMPTS: usize = 3;
/// Number of bisections in the search of the highest rate without missing packets.
const STEPS: usize = 6;
/// Number of runs for the CPU time, of which the median is printed.
const COST_RUNS: usize = 7;
const WINDOW: usize = 4;
const MOST_BUFFER_BYTES: usize = 8 << 20;
const HEAD_BYTES: usize = 72;

/// A stream.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    f_engine: bool,
    packet_bytes: usize,
    heap_bytes: usize,
    senders: u64,
    samples_per_heap: u64,
    /// Heap times in a frame.
    heaps: u64,
    /// Segmentation offload (GSO, GRO): the operating system splits and joins runs of packets.
    coalesced: bool,
}

const DIGITISER: Case = Case {
    name: "5 KiB",
    f_engine: false,
    packet_bytes: 5120,
    heap_bytes: 5120,
    senders: 1,
    samples_per_heap: 4096,
    heaps: 256,
    coalesced: true,
};

/// F-engine stream of 64 of 1024 channels, four antennas.
const F_ENGINE: Case = Case {
    name: "8 KiB",
    f_engine: true,
    packet_bytes: 8192,
    heap_bytes: 64 * 256 * 4,
    senders: 4,
    samples_per_heap: 256 * 2048,
    heaps: 4,
    coalesced: true,
};

const CASES: [Case; 4] = [
    DIGITISER,
    Case { coalesced: false, ..DIGITISER },
    F_ENGINE,
    Case { coalesced: false, ..F_ENGINE },
];

impl Case {
    /// Returns the header of packet number `number`.
    fn head(&self, number: u64) -> Head {
        let per_heap = (self.heap_bytes / self.packet_bytes) as u64;
        let (heap, part) = (number / per_heap, number % per_heap);
        let timestamp = heap / self.senders * self.samples_per_heap;
        let items = if self.f_engine {
            [
                Pointer::immediate(item::TIMESTAMP, timestamp),
                Pointer::immediate(item::FENG_ID, heap % self.senders),
                Pointer::immediate(item::FREQUENCY, 0),
                Pointer::addressed(item::FENG_RAW, 0),
            ]
        } else {
            [
                Pointer::immediate(item::TIMESTAMP, timestamp),
                Pointer::immediate(item::DIGITISER_ID, 0),
                Pointer::immediate(item::DIGITISER_STATUS, 0),
                Pointer::addressed(item::RAW_SAMPLES, 0),
            ]
        };
        let offset = part as usize * self.packet_bytes;
        let head = Head::new(heap, self.heap_bytes, offset, self.packet_bytes, &items);
        assert_eq!(head.as_bytes().len(), HEAD_BYTES);
        head
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, flowgraph] = &arguments[..]
        && role == "receive"
    {
        return receive(flowgraph);
    }
    if arguments.iter().any(|argument| argument == "af_xdp") {
        // This program again, in a network namespace.
        let program = std::env::current_exe().unwrap();
        let status = Command::new("unshare").arg("-n").arg(program).arg("over_veth").status();
        assert!(status.unwrap().success());
        return;
    }
    if arguments.get(1).is_some_and(|role| role == "over_veth") {
        return over_veth();
    }
    let buffer = buffer_bytes();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("SPEAD receive over loopback on {}, {cores} cores", machine::processor());
    println!("socket buffers of {} KiB; highest rate without missing packets", buffer >> 10);
    let python = python::environment("bench-python", "benches/requirements.txt");
    match &python {
        Ok(_) => println!("spead2 4.5.1: chunk stream, callback compiled by numba"),
        Err(why) => println!("no Python environment ({why}): fxgraph alone"),
    }
    print_header();
    let free_address = || {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
    };
    for case in CASES {
        let at = free_address();
        let ours = Receiver::start("fxgraph", at, ours(&case, at, buffer, ""));
        let theirs = python.as_ref().ok().map(|python| {
            let at = free_address();
            Receiver::start("spead2", at, spead2(python, &case, at.port(), buffer))
        });
        compare(
            &case,
            &mut ours.into_iter().chain(theirs.into_iter().flatten()).collect::<Vec<_>>(),
        );
    }
}

fn print_header() {
    println!(
        "\n{:<7} {:<9} {:<8} | {:>6} {:>9} | {:>13} {:>9} {:>10}",
        "packets",
        "sent",
        "receiver",
        "GB/s",
        "packets/s",
        "cost at, GB/s",
        "CPU s/GB",
        "ns/packet"
    );
}

/// Compares the two ways to receive, each with a virtual interface of its own: an XDP program changes the interface.
fn over_veth() {
    let mut namespace = Command::new("unshare").args(["-n", "sleep", "infinity"]).spawn().unwrap();
    let id = namespace.id().to_string();
    let inside = |program: &str| {
        let mut command = Command::new("nsenter");
        command.args(["-t", &id, "-n"]).arg(program);
        command
    };
    let ip = |mut command: Command, text: &str| {
        assert!(command.args(text.split(' ')).status().unwrap().success(), "ip {text}");
    };
    // The namespace of the child is not there at once.
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).unwrap();
    while of(&id) == of("self") {
        std::thread::sleep(Duration::from_millis(10));
    }
    for n in [0, 1] {
        let here = || Command::new("ip");
        ip(
            here(),
            &format!("link add tx{n} mtu 9000 type veth peer name rx{n} mtu 9000 netns {id}"),
        );
        ip(here(), &format!("address add 10.77.{n}.2/24 dev tx{n}"));
        ip(here(), &format!("link set tx{n} up"));
        ip(inside("ip"), &format!("address add 10.77.{n}.1/24 dev rx{n}"));
        ip(inside("ip"), &format!("link set rx{n} up"));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("SPEAD receive over veth on {}, {cores} cores", machine::processor());
    println!("buffers of {} KiB; highest rate without missing packets", MOST_BUFFER_BYTES >> 10);
    print_header();
    for case in CASES {
        let start = |(n, receive): (u8, &'static str)| {
            let at = SocketAddrV4::new(Ipv4Addr::new(10, 77, n, 1), 7148);
            let more = format!("receive: {receive}, interfaces: [rx{n}], ");
            let ours = ours(&case, at, MOST_BUFFER_BYTES, &more);
            let mut command = inside(ours.get_program().to_str().unwrap());
            command.args(ours.get_args());
            Receiver::start(receive, at, command).unwrap()
        };
        compare(&case, &mut [(0, "socket"), (1, "af_xdp")].map(start));
    }
    namespace.kill().unwrap();
    namespace.wait().unwrap();
}

/// Prints a row for each receiver.
fn compare(case: &Case, receivers: &mut [Receiver]) {
    let mut senders: Vec<Stream> = receivers.iter().map(|r| Stream::new(*case, r.at)).collect();
    // The highest rate of the sender, including warm-up.
    let fastest = (0..3).map(|_| senders[0].send(None).rate()).fold(0.0, f64::max);
    for (receiver, sender) in receivers.iter_mut().zip(&mut senders) {
        sender.send(Some(fastest / 8.0));
        receiver.settle();
    }
    let mut brackets = vec![(0.0, fastest); receivers.len()];
    let mut best = vec![0.0; receivers.len()];
    for step in 0..=STEPS {
        for (i, receiver) in receivers.iter_mut().enumerate() {
            let (low, high): (f64, f64) = brackets[i];
            // The first attempt is at the highest rate of the sender.
            let rate = (step > 0).then_some(f64::midpoint(low, high));
            let passed = (0..ATTEMPTS).find_map(|_| receiver.lossless(&mut senders[i], rate));
            match passed {
                Some(achieved) => {
                    best[i] = f64::max(best[i], achieved);
                    brackets[i].0 = rate.unwrap_or(high);
                }
                None => brackets[i].1 = rate.unwrap_or(high),
            }
        }
    }
    // The CPU time is measured at one rate that all receivers sustain.
    let rate = 0.8 * best.iter().copied().fold(f64::INFINITY, f64::min);
    let mut costs = vec![Vec::new(); receivers.len()];
    for _ in 0..COST_RUNS {
        for (i, receiver) in receivers.iter_mut().enumerate() {
            costs[i].push(receiver.cost(&mut senders[i], rate));
        }
    }
    for (i, receiver) in receivers.iter().enumerate() {
        let cost = median(&mut costs[i]);
        let limit = if best[i] >= 0.9 * fastest { ">" } else { "" };
        println!(
            "{:<7} {:<9} {:<8} | {:>6} {:>9.0} | {:>13.2} {:>9.3} {:>10.0}",
            case.name,
            if case.coalesced { "in runs" } else { "singly" },
            receiver.name,
            format!("{limit}{:.2}", best[i] / 1e9),
            best[i] / case.packet_bytes as f64,
            rate / 1e9,
            cost * 1e9,
            cost * 1e9 * case.packet_bytes as f64,
        );
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Size in bytes of the socket buffers that both receivers get without privileges.
fn buffer_bytes() -> usize {
    let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    limit.trim().parse().unwrap_or(212_992).min(MOST_BUFFER_BYTES)
}

/// Starts fxgraph's receiver: a flowgraph of a source and a null sink. Its sample rate is above that of any sender
/// here, because the source rejects streams ahead of real time.
fn ours(case: &Case, at: SocketAddrV4, buffer: usize, more: &str) -> Command {
    let stream = if case.f_engine {
        format!(
            "stream: f_engine, antennas: {}, channels: 1024, channels_per_substream: 64, substreams: 1",
            case.senders
        )
    } else {
        "stream: digitiser".to_owned()
    };
    let samples = case.samples_per_heap * case.heaps;
    let flowgraph = format!(
        "flowgraph: bench\nblocks:\n  in:\n    kind: spead_source\n    parameters: {{{stream}, {more}\
         addresses: [\"{at}\"], adc_sample_rate_hz: 1.0e11, samples_per_frame: {samples}, \
         window: {WINDOW}, receive_buffer_bytes: {buffer}, live: false}}\n  out: {{kind: null_sink, input: in}}\n"
    );
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["receive", &flowgraph]);
    command
}

/// Runs a flowgraph and answers each line with the number of packets received.
fn receive(flowgraph: &str) {
    let registry = fxgraph_blocks::kinds();
    let plan = load_text("bench.yaml", flowgraph, &[], &registry).result.unwrap();
    let running = start(plan.build().unwrap(), Options::default()).unwrap();
    println!("ready");
    for _ in std::io::stdin().lines() {
        let stats = running.stats();
        let count = |name| {
            let mut counters = stats.iter().flat_map(|block| &block.counters);
            counters.find(|named| named.name == name).unwrap().counter.get()
        };
        let rejected = count("packets_too_late") + count("packets_too_far_ahead");
        println!("{}", count("packets_received") - rejected);
    }
    running.abort();
}

fn spead2(python: &std::path::Path, case: &Case, port: u16, buffer: usize) -> Command {
    let mut command = Command::new(python);
    command.arg(repository::root().join("benches/spead2_receiver.py"));
    command.arg(port.to_string());
    for (name, value) in [
        ("--senders", case.senders as usize),
        ("--heap-bytes", case.heap_bytes),
        ("--samples-per-heap", case.samples_per_heap as usize),
        ("--heaps", case.heaps as usize),
        ("--window", WINDOW),
        ("--chunks", WINDOW + 2),
        ("--buffer-bytes", buffer),
    ] {
        command.args([name.to_owned(), value.to_string()]);
    }
    command
}

/// A receiver in a separate process.
struct Receiver {
    name: &'static str,
    /// Its address.
    at: SocketAddrV4,
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    received: u64,
}

impl Receiver {
    fn start(name: &'static str, at: SocketAddrV4, mut command: Command) -> Option<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let questions = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut receiver = Self { name, at, child, questions, answers, received: 0 };
        let mut line = String::new();
        receiver.answers.read_line(&mut line).unwrap();
        if line.trim() == "ready" {
            return Some(receiver);
        }
        println!("{name} does not start");
        None
    }

    /// Number of packets received so far.
    fn count(&mut self) -> u64 {
        writeln!(self.questions).unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    /// Waits until no more packets arrive, and returns the number received since the last call.
    fn settle(&mut self) -> u64 {
        let mut count = self.count();
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let now = self.count();
            if now == count {
                return count - std::mem::replace(&mut self.received, count);
            }
            count = now;
        }
    }

    /// Sends at a rate, and returns it in payload bytes per second if all packets arrive.
    fn lossless(&mut self, sender: &mut Stream, rate: Option<f64>) -> Option<f64> {
        self.settle();
        let sent = sender.send(rate);
        (self.settle() == sent.packets).then(|| sent.rate())
    }

    /// CPU time in seconds per received payload byte.
    fn cost(&mut self, sender: &mut Stream, rate: f64) -> f64 {
        self.settle();
        let before = self.busy();
        sender.send(Some(rate));
        let packets = self.settle();
        (self.busy() - before) / (packets * sender.case.packet_bytes as u64) as f64
    }

    /// CPU time of all threads of the process, in seconds.
    fn busy(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let nanoseconds = |task: std::io::Result<std::fs::DirEntry>| -> u64 {
            let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        };
        tasks.map(nanoseconds).sum::<u64>() as f64 / 1e9
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Amount and duration of sent data.
struct Sent {
    packets: u64,
    bytes: u64,
    elapsed: Duration,
}

impl Sent {
    /// Payload bytes per second.
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }
}

/// Sender of a stream that continues from call to call.
struct Stream {
    case: Case,
    sender: Sender,
    to: SocketAddrV4,
    payload: Vec<u8>,
    next: u64,
}

impl Stream {
    fn new(case: Case, to: SocketAddrV4) -> Self {
        let mut sender = Sender::open(Family::V4, None, 1).unwrap();
        if !case.coalesced {
            sender.send_singly();
        }
        Self { case, sender, to, payload: vec![0x5a; case.packet_bytes], next: 0 }
    }

    /// Sends for [`TRIAL`], at `rate` payload bytes per second or at the highest possible rate.
    fn send(&mut self, rate: Option<f64>) -> Sent {
        let begin = Instant::now();
        let (mut packets, mut bytes) = (0, 0);
        let Self { case, sender, to, payload, next } = self;
        while begin.elapsed() < TRIAL {
            let due = rate.map_or(0.0, |rate| bytes as f64 / rate);
            while begin.elapsed().as_secs_f64() < due {
                std::hint::spin_loop();
            }
            let packet =
                |i| Outgoing { to: (*to).into(), head: case.head(*next + i as u64), payload };
            let batch: [_; MAX_PACKETS] = std::array::from_fn(packet);
            let sent = sender.send(&batch).unwrap().packets as u64;
            *next += sent;
            packets += sent;
            bytes += sent * case.packet_bytes as u64;
        }
        Sent { packets, bytes, elapsed: begin.elapsed() }
    }
}
