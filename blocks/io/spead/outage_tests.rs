//! Interfaces that are down, made again or get another address while data are sent and received.
#![allow(clippy::unwrap_used)]

use super::datagrams::Datagrams;
use super::endpoint::Endpoint;
use super::namespace::{carrier, interface, ip, on_host, skip};
use super::packet::{Head, Pointer};
use super::receive::Batch;
use super::send::{MAX_PACKETS, Outgoing, Sender};
use super::{item, packet::Packet};
use crate::common::net::family::Family;
use crate::common::net::interface::{Interface, report_faults};
use crate::common::net::sockets::{Listening, open};
use fxgraph::event::Events;
use fxgraph::flowgraph::load_text;
use fxgraph::runtime::{Options, Prepared};
use fxgraph::{Control, Env};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_mins(1);
const TO: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 77, 0, 1)), 7148);

fn heap(number: u64) -> Head {
    let items = [Pointer::immediate(item::TIMESTAMP, number)];
    Head::new(number, 64, 0, 64, &items)
}

pub(super) fn packet(to: SocketAddr, number: u64) -> Outgoing<'static> {
    Outgoing { to, head: heap(number), payload: &[7; 64] }
}

pub(super) fn env() -> (Env, Arc<Events>) {
    let (env, events) = (Env::detached("sink"), Arc::new(Events::default()));
    env.events.redirect(Some((Arc::clone(&events), "sink".to_owned())));
    (env, events)
}

pub(super) fn texts(events: &Events) -> Vec<String> {
    events.since(0).into_iter().map(|event| event.text).collect()
}

fn count(env: &Env, name: &str) -> u64 {
    env.counters.list().iter().find(|named| named.name == name).unwrap().counter.get()
}

/// Packets dropped in an outage of the interface. While it comes back, the kernel finds no route.
fn dropped(count: impl Fn(&str) -> u64) -> u64 {
    count("packets_dropped_interface") + count("packets_dropped_route")
}

/// A receiver of the group on `rx0`, for packets of `sources`.
fn receiver(sources: &[&str]) -> Batch {
    receiver_of(TO, sources)
}

/// A receiver of `group` on `rx0`, for packets of `sources`.
pub(super) fn receiver_of(group: SocketAddr, sources: &[&str]) -> Batch {
    let sources = sources.iter().map(|source| source.parse().unwrap()).collect();
    let listening = Listening { sources, ..Listening::on(&["rx0".to_owned()], 1 << 20) };
    Batch::new(open(&[group], &listening).unwrap(), 1 << 20)
}

/// Receives the heaps that wait, and those that come within `time`, with their senders.
pub(super) fn receive(batch: &mut Batch, time: Duration) -> Vec<(u64, Endpoint)> {
    let mut heaps = Vec::new();
    let mut handle = |datagrams: Datagrams<'_>| {
        for (datagram, sender) in datagrams {
            heaps.push((Packet::parse(datagram).unwrap().heap_counter, sender));
        }
    };
    batch.receive(time, &mut handle).unwrap();
    heaps
}

/// Sends heaps until `batch` receives one of them; returns its sender.
fn pass(sender: &mut Sender, batch: &mut Batch) -> Endpoint {
    pass_to(TO, sender, batch)
}

/// Sends heaps to `to` until `batch` receives one of them; returns its sender.
pub(super) fn pass_to(to: SocketAddr, sender: &mut Sender, batch: &mut Batch) -> Endpoint {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1 << 20);
    let first = NUMBER.fetch_add(1 << 20, std::sync::atomic::Ordering::Relaxed);
    let deadline = Instant::now() + LIMIT;
    for number in first.. {
        assert!(Instant::now() < deadline, "no packet arrives");
        assert_eq!(sender.send(&[packet(to, number)]).unwrap().packets, 1);
        let heaps = receive(batch, Duration::from_millis(5));
        if let Some((_, from)) = heaps.iter().find(|(heap, _)| *heap >= first) {
            return *from;
        }
    }
    unreachable!()
}

/// Sends heaps until one is dropped.
fn drop_one(sender: &mut Sender) {
    drop_one_to(TO, sender);
}

/// Sends heaps to `to` until one is dropped.
pub(super) fn drop_one_to(to: SocketAddr, sender: &mut Sender) {
    let deadline = Instant::now() + LIMIT;
    while sender.send(&[packet(to, 1)]).unwrap().dropped == 0 {
        assert!(Instant::now() < deadline, "the network takes all packets");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn sender_goes_on_with_its_port_when_the_interface_is_made_again() {
    on_host(1, || {
        for (name, address) in [("rx0", "10.77.0.9"), ("10.77.0.1", "10.77.0.1")] {
            let (env, events) = env();
            let mut sender = Sender::lasting(Family::V4, Some(name), 1, &env).unwrap();
            let from = pass(&mut sender, &mut receiver(&[]));
            assert_eq!(from.ip(), IpAddr::from([10, 77, 0, 1]));
            ip("link delete rx0");
            drop_one(&mut sender);
            let missing = format!("network interface `{name}` does not exist");
            assert!(texts(&events)[0].ends_with(&missing), "{:?}", texts(&events));
            interface(1);
            ip("address flush dev rx0");
            ip(&format!("address add {address}/24 dev rx0"));
            let again = pass(&mut sender, &mut receiver(&[]));
            assert_eq!(again, Endpoint::new(address.parse().unwrap(), from.port()));
            // The outage ends after a second without a dropped packet.
            let deadline = Instant::now() + LIMIT;
            while texts(&events).len() < 2 {
                assert!(Instant::now() < deadline, "{:?}", texts(&events));
                sender.send(&[packet(TO, 1)]).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            let dropped = dropped(|name| count(&env, name));
            let end = format!("the network takes packets again: {dropped} were dropped in ");
            assert!(texts(&events)[1].starts_with(&end), "{:?}", texts(&events));
            ip("link delete rx0");
            interface(1);
        }
    });
}

#[test]
fn sender_and_receiver_follow_an_address_that_changes() {
    on_host(1, || {
        let (env, events) = env();
        let mut sender = Sender::lasting(Family::V4, Some("rx0"), 1, &env).unwrap();
        let mut batch = receiver(&[]);
        let from = pass(&mut sender, &mut batch);
        ip("address flush dev rx0");
        drop_one(&mut sender);
        assert!(texts(&events)[0].ends_with("`rx0` has no IPv4 address"), "{:?}", texts(&events));
        ip("address add 10.77.0.9/24 dev rx0");
        let again = pass(&mut sender, &mut batch);
        assert_eq!(again, Endpoint::v4(Ipv4Addr::new(10, 77, 0, 9), from.port()));
    });
}

#[test]
fn receiver_follows_an_address_to_another_interface() {
    on_host(1, || {
        ip("link add br0 type bridge");
        ip("link set br0 up");
        let listening = Listening::on(&["10.77.0.1".to_owned()], 1 << 20);
        let mut batch = Batch::new(open(&[TO], &listening).unwrap(), 1 << 20);
        pass(&mut Sender::open(Family::V4, Some("rx0"), 1).unwrap(), &mut batch);
        ip("address flush dev rx0");
        ip("address add 10.77.0.1/24 dev br0");
        pass(&mut Sender::open(Family::V4, Some("br0"), 1).unwrap(), &mut batch);
    });
}

#[test]
fn destination_without_a_route_drops_its_packets_only() {
    on_host(1, || {
        for coalesce in [true, false] {
            let (began, (env, events)) = (Instant::now(), env());
            let mut sender = Sender::lasting(Family::V4, None, 1, &env).unwrap();
            if !coalesce {
                sender.send_singly();
            }
            let there = UdpSocket::bind("127.0.0.1:0").unwrap();
            there.set_read_timeout(Some(LIMIT)).unwrap();
            let port = there.local_addr().unwrap().port();
            let reached = SocketAddr::from(([127, 0, 0, 1], port));
            let absent = SocketAddr::from(([10, 99, 0, 1], 7148));
            // Two in a row to each, in turn.
            let to = |number: u64| if number % 4 < 2 { reached } else { absent };
            let packets: Vec<_> =
                (0..MAX_PACKETS as u64).map(|number| packet(to(number), number)).collect();
            let (mut done, mut dropped) = (0, 0);
            while done < packets.len() {
                let burst = sender.send(&packets[done..]).unwrap();
                (done, dropped) = (done + burst.packets, dropped + burst.dropped);
            }
            assert_eq!(dropped, MAX_PACKETS / 2);
            assert_eq!(count(&env, "packets_dropped_route"), dropped as u64);
            for number in (0..MAX_PACKETS as u64).filter(|number| to(*number) == reached) {
                let mut bytes = [0; 2000];
                let len = there.recv(&mut bytes).unwrap();
                assert_eq!(Packet::parse(&bytes[..len]).unwrap().heap_counter, number);
            }
            // One event for all; a pause of a second ends an outage.
            let (texts, most) = (texts(&events), 1 + 2 * began.elapsed().as_secs());
            assert!(texts.len() as u64 <= most, "{texts:?}");
            assert!(texts[0].contains("10.99.0.1:7148"), "{texts:?}");
        }
    });
}

#[test]
fn send_buffer_that_stays_full_drops_packets_until_the_network_takes_some() {
    on_host(1, || {
        let tc = |arguments: &str| {
            let output = Command::new("tc").args(arguments.split(' ')).output();
            output.is_ok_and(|output| output.status.success())
        };
        // One byte per second.
        if !tc("qdisc add dev rx0 root tbf rate 8bit burst 10kb limit 1gb") {
            return skip("there is no `tc` with `tbf`");
        }
        let (env, events) = env();
        let mut sender = Sender::lasting(Family::V4, Some("rx0"), 1, &env).unwrap();
        let packets = [packet(TO, 1); MAX_PACKETS];
        let (deadline, mut is_full) = (Instant::now() + LIMIT, false);
        loop {
            assert!(Instant::now() < deadline, "no packet is dropped");
            let burst = sender.send(&packets).unwrap();
            if burst.dropped > 0 {
                assert_eq!((is_full, burst.sent()), (true, 0));
                break;
            }
            if burst.packets == 0 {
                is_full = true;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert_eq!(count(&env, "packets_dropped_full"), MAX_PACKETS as u64);
        assert!(
            texts(&events)[0].starts_with("the network takes no packets"),
            "{:?}",
            texts(&events)
        );
        assert!(tc("qdisc del dev rx0 root"));
        pass(&mut sender, &mut receiver(&[]));
    });
}

#[test]
fn packet_that_is_too_long_is_an_error() {
    let (env, _) = env();
    let mut sender = Sender::lasting(Family::V4, None, 1, &env).unwrap();
    let to = SocketAddr::from(([127, 0, 0, 1], 9));
    let payload = vec![0; 65_530];
    let error = sender.send(&[Outgoing { to, head: heap(1), payload: &payload }]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
}

#[test]
fn unicast_receiver_gets_packets_again_when_its_address_returns() {
    on_host(1, || {
        let to = SocketAddr::from(([10, 77, 0, 1], 7148));
        let mut batch = Batch::new(open(&[to], &Listening::on(&[], 1 << 20)).unwrap(), 1 << 20);
        let (env, _) = env();
        let mut sender = Sender::lasting(Family::V4, None, 1, &env).unwrap();
        for number in 0..2 {
            assert_eq!(sender.send(&[packet(to, number)]).unwrap().sent(), 1);
            let deadline = Instant::now() + LIMIT;
            while receive(&mut batch, Duration::from_millis(20)).is_empty() {
                assert!(Instant::now() < deadline, "heap {number} does not arrive");
            }
            ip("link delete rx0");
            assert!(receive(&mut batch, Duration::from_millis(20)).is_empty());
            interface(1);
        }
    });
}

#[test]
fn source_specific_group_has_packets_of_its_sources_only() {
    on_host(1, || {
        let second = IpAddr::from([10, 77, 0, 2]);
        let mut batch = receiver(&["10.77.0.9", "10.77.0.2"]);
        for _ in 0..2 {
            ip("address add 10.77.0.2/24 dev rx0");
            let mut other = Sender::open(Family::V4, Some("10.77.0.1"), 1).unwrap();
            let mut source = Sender::open(Family::V4, Some("10.77.0.2"), 1).unwrap();
            let mut all = receiver(&[]);
            let deadline = Instant::now() + LIMIT;
            let mut heaps = Vec::new();
            while heaps.is_empty() {
                assert!(Instant::now() < deadline, "no packet arrives");
                other.send(&[packet(TO, 1)]).unwrap();
                source.send(&[packet(TO, 2)]).unwrap();
                heaps = receive(&mut batch, Duration::from_millis(20));
                // The other packets are there for those who want them.
                assert!(!receive(&mut all, LIMIT).is_empty());
            }
            assert!(
                heaps.iter().all(|(heap, from)| *heap == 2 && from.ip() == second),
                "{heaps:?}"
            );
            ip("link delete rx0");
            interface(1);
        }
    });
}

#[test]
fn interface_that_cannot_be_used_is_named_with_the_reason() {
    on_host(1, || {
        let (env, events) = env();
        let names = ["rx0".to_owned()];
        report_faults(&names, &env.events);
        assert!(texts(&events).is_empty());
        ip("link set tx0 down");
        ip("link set rx0 down");
        report_faults(&names, &env.events);
        assert!(texts(&events)[0].starts_with("network interface `rx0` is down: `ip link"));
        ip("link set rx0 up");
        let deadline = Instant::now() + LIMIT;
        while Interface::find("rx0").unwrap().fault() != Some("has no carrier") {
            assert!(Instant::now() < deadline, "rx0 has a carrier");
        }
        report_faults(&names, &env.events);
        assert!(texts(&events)[1].starts_with("network interface `rx0` has no carrier"));
        ip("address flush dev rx0");
        for error in [
            Sender::open(Family::V4, Some("rx0"), 1).err().unwrap().to_string(),
            open(&[TO], &Listening::on(&names, 4096)).unwrap_err().to_string(),
        ] {
            assert!(error.starts_with("network interface `rx0` has no IPv4 address;"), "{error}");
        }
        let error = Interface::find("eth7").unwrap_err().to_string();
        assert!(error.contains("`eth7` does not exist; this host has lo (127.0.0.1"), "{error}");
        // Without a route and without `interface` the kernel does not know where to join.
        let error = open(&[TO], &Listening::on(&[], 4096)).unwrap_err().to_string();
        assert!(error.contains("no route leads to it; name the interface"), "{error}");
    });
}

#[test]
fn interface_that_is_down_ends_neither_the_sender_nor_the_recording_beside_it() {
    on_host(1, || {
        // The kernel removes the addresses of IPv6 with the interface.
        let add_v6 = || _ = ip("-6 address replace fd77::1/64 dev rx0 nodad");
        let has_v6 = UdpSocket::bind("[::1]:0").is_ok();
        if !has_v6 {
            skip("no IPv6, its part");
        }
        for to in ["239.77.0.1:7148", "[ff05::77:1]:7148"] {
            let is_v6 = to.starts_with('[');
            if is_v6 && !has_v6 {
                continue;
            }
            let up = || {
                ip("link set rx0 up");
                carrier();
                if is_v6 {
                    add_v6();
                }
            };
            up();
            record_beside(
                &format!(
                    "kind: spead_sink, parameters: {{stream: digitiser, destinations: [\"{to}\"], interface: rx0,
      samples_per_heap: 1024, threads: 2}}"
                ),
                up,
            );
            record_beside(
                &format!(
                    "kind: stream_sink, parameters: {{destination: \"{to}\", interface: rx0}}"
                ),
                up,
            );
        }
    });
}

fn record_beside(sink: &str, up: impl Fn()) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples.npy");
    let text = format!(
        "flowgraph: g
blocks:
  sky:
    kind: digitiser_simulator
    parameters: {{adc_sample_rate_hz: 1000000, samples_per_frame: 8192, period_samples: 8192, paced: true}}
  send: {{input: sky.pol0, {sink}}}
  write: {{kind: file_sink, input: sky.pol0, parameters: {{path: {}}}}}
  n: {{kind: null_sink, input: sky.pol1}}
",
        path.display()
    );
    let registry = || crate::kinds();
    let loaded = load_text("g.yaml", &text, &[], &registry()).result;
    let plan = loaded.unwrap_or_else(|problems| panic!("{problems:?}"));
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(Options::default()).unwrap();
    let count = |name: &str| {
        let stats = control.stats().into_iter().find(|stats| stats.name == "send").unwrap();
        stats.counters.iter().find(|named| named.name == name).unwrap().counter.get()
    };
    let wait_for = |what: &str, is_done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + LIMIT;
        while !is_done() {
            assert!(Instant::now() < deadline, "{what}");
            assert!(
                !control.wait_timeout(Duration::from_millis(10)),
                "{what}: the flowgraph has ended"
            );
        }
    };
    let warnings = || -> Vec<String> {
        let all = control.events_since(0).into_iter();
        let of_sink = all.filter(|event| event.block.as_deref() == Some("send"));
        of_sink.map(|event| event.text).filter(|text| text.starts_with("the network")).collect()
    };
    wait_for("no packet is sent", &|| count("packets_sent") > 20);
    ip("link set rx0 down");
    wait_for("no packet is dropped", &|| count("packets_dropped_interface") > 40);
    up();
    let sent = count("packets_sent");
    wait_for("the sender does not go on", &|| count("packets_sent") > sent + 20);
    wait_for("the end of the outage is not reported", &|| warnings().len() == 2);
    let dropped = dropped(count);
    assert!(warnings()[0].ends_with("network interface `rx0` is down"), "{:?}", warnings());
    assert!(warnings()[1].contains(&format!(": {dropped} were dropped in")), "{:?}", warnings());
    // The stop heaps are dropped, too.
    ip("link set rx0 down");
    control.request_stop();
    assert!(control.wait_timeout(LIMIT), "the flowgraph does not stop");
    let report = running.wait();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert!(count("heaps_stop_not_sent") > 0);
    up();
    // All frames are in the file, and went through the sink.
    let stats = |name: &str| report.stats.iter().find(|stats| stats.name == name).unwrap();
    let frames = stats("sky").frames_out / 2;
    assert_eq!([stats("write").frames_in, stats("send").frames_in], [frames; 2]);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert_eq!(bytes / (8192 * 10 / 8), frames);
}
