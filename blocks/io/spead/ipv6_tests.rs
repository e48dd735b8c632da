//! Streams over IPv6: over the loopback address, and between virtual interfaces in a namespace.
#![allow(unsafe_code)] // unshare has no safe interface.
#![allow(clippy::unwrap_used)]

use super::namespace::{interface, ip, on_host, skip};
use super::outage_tests::{drop_one_to, env, packet, pass_to, receive, receiver_of, texts};
use super::receive::Batch;
use super::send::{MAX_PACKETS, Sender};
use crate::common::net::address;
use crate::common::net::family::Family;
use crate::common::net::sockets::{Listening, open, open_divided};
use fxgraph::flowgraph::load_text;
use fxgraph::runtime::{Options, start};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_mins(1);
/// A group of the site, and one for packets of chosen sources.
const GROUP: &str = "[ff05::77:1]:7148";
const CHOSEN: &str = "[ff35::77:1]:7148";

/// Runs `test` if this host has IPv6.
fn with_v6(test: impl FnOnce()) {
    match UdpSocket::bind("[::1]:0") {
        Ok(_) => test(),
        Err(error) => skip(&format!("no IPv6: {error}")),
    }
}

/// Runs `test` on a host whose interface `rx0` has fd77::1 and fe80::77.
fn on_v6_host(test: impl FnOnce() + Send) {
    on_host(1, || {
        with_v6(|| {
            addresses("fd77::1");
            test();
        });
    });
}

/// Gives `rx0` addresses, which the kernel does not check for duplicates first.
fn addresses(global: &str) {
    for address in [global, "fe80::77"] {
        ip(&format!("-6 address add {address}/64 dev rx0 nodad"));
    }
}

fn free(ip: &str) -> SocketAddr {
    UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn the(ip: &str) -> IpAddr {
    ip.parse().unwrap()
}

#[test]
fn runs_of_both_families_arrive_with_their_senders() {
    with_v6(|| {
        let addresses = [free("127.0.0.1"), free("::1")];
        let sockets = open(&addresses, &Listening::on(&[], 1 << 20)).unwrap();
        let mut batch = Batch::new(sockets, 1 << 20);
        assert_eq!(batch.addresses().unwrap(), addresses);
        for (to, from) in addresses.into_iter().zip(["127.0.0.1", "::1"]) {
            for coalesce in [true, false] {
                let mut sender = Sender::open(Family::of(to.ip()), Some(from), 1).unwrap();
                if !coalesce {
                    sender.send_singly();
                }
                let packets: Vec<_> =
                    (0..MAX_PACKETS as u64).map(|number| packet(to, number)).collect();
                assert_eq!(sender.send(&packets).unwrap().sent(), MAX_PACKETS);
                let (deadline, mut heaps) = (Instant::now() + LIMIT, Vec::new());
                while heaps.len() < MAX_PACKETS {
                    assert!(Instant::now() < deadline, "{} of {MAX_PACKETS}", heaps.len());
                    heaps.extend(receive(&mut batch, Duration::from_millis(20)));
                }
                let in_order = (0..).zip(&heaps).all(|(number, (heap, _))| *heap == number);
                assert!(in_order && heaps.iter().all(|(_, sender)| sender.ip() == the(from)));
            }
        }
    });
}

#[test]
fn ipv6_address_of_several_threads_is_divided_by_senders() {
    with_v6(|| {
        let address = free("::1");
        let sockets = open_divided(4, &[address], &Listening::on(&[], 1 << 20)).unwrap();
        let mut batches: Vec<_> = sockets.into_iter().map(|own| Batch::new(own, 1 << 20)).collect();
        let senders = [(); 8].map(|()| Sender::open(Family::V6, None, 1).unwrap());
        for mut sender in senders {
            sender.send(&[packet(address, 1)]).unwrap();
        }
        let (deadline, mut count) = (Instant::now() + LIMIT, 0);
        while count < 8 {
            assert!(Instant::now() < deadline, "{count} of 8");
            count += batches.iter_mut().map(|b| receive(b, Duration::ZERO).len()).sum::<usize>();
        }
        let error = open(&[address], &Listening::on(&[], 4096)).unwrap_err().to_string();
        assert!(error.contains("another program or block has this port"), "{error}");
    });
}

#[test]
fn wildcard_of_ipv6_leaves_the_port_to_ipv4() {
    with_v6(|| {
        let port = free("::").port();
        let both = [at(&format!("[::]:{port}")), at(&format!("0.0.0.0:{port}"))];
        // Another program may have taken the port of IPv4.
        if UdpSocket::bind(both[1]).is_ok() {
            open(&both, &Listening::on(&[], 4096)).unwrap();
        }
    });
}

/// Runs a digitiser that sends to `addresses`, and a source that receives from them; compares their samples.
fn round_trip(addresses: &[&str], interface: Option<&str>) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let sink = interface.map_or(String::new(), |name| format!(", interface: {name}"));
    let source = interface.map_or(String::new(), |name| format!(", interfaces: [{name}]"));
    let text = format!(
        "flowgraph: g
blocks:
  sky:
    kind: digitiser_simulator
    parameters: {{adc_sample_rate_hz: 1000000, samples_per_frame: 8192, period_samples: 8192, frames: 20, paced: true}}
  send:
    kind: spead_sink
    input: sky.pol0
    parameters: {{stream: digitiser, destinations: {addresses:?}, samples_per_heap: 1024{sink}}}
  in:
    kind: spead_source
    parameters:
      {{stream: digitiser, addresses: {addresses:?}, adc_sample_rate_hz: 1000000, samples_per_heap: 1024,
        samples_per_frame: 8192, stop_after_senders: 1{source}}}
  sent: {{kind: file_sink, input: sky.pol0, parameters: {{path: {:?}}}}}
  received: {{kind: file_sink, input: in, parameters: {{path: {:?}}}}}
  n: {{kind: null_sink, input: sky.pol1}}
",
        path("sent.npy"),
        path("received.npy")
    );
    finish(&text, &[("in", "heaps_received", 160), ("send", "heaps_sent", 160)]);
    let [sent, received] =
        ["sent.npy", "received.npy"].map(|name| std::fs::read(path(name)).unwrap());
    assert!(sent == received, "{addresses:?}");
}

/// Runs the flowgraph `text` to its end, and compares the counters of blocks.
fn finish(text: &str, counts: &[(&str, &str, u64)]) {
    let loaded = load_text("g.yaml", text, &[], &crate::kinds()).result;
    let plan = loaded.unwrap_or_else(|problems| panic!("{problems:?}"));
    let report = start(plan.build().unwrap(), Options::default()).unwrap().wait();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    for (block, name, expected) in counts {
        let stats = report.stats.iter().find(|stats| stats.name == *block).unwrap();
        let found = stats.counters.iter().find(|named| named.name == *name).unwrap();
        assert_eq!(found.counter.get(), *expected, "{block} {name}");
    }
}

#[test]
fn digitiser_stream_passes_the_loopback_address() {
    with_v6(|| round_trip(&[&free("::1").to_string()], None));
}

#[test]
fn digitiser_stream_passes_groups_and_link_local_addresses() {
    on_v6_host(|| {
        round_trip(&["[ff05::77:1]+3:7148"], Some("rx0"));
        round_trip(&["[ff05::77:1]+3:7148"], Some("fd77::1"));
        // By the interface's IPv4 address, and by the route.
        round_trip(&["[ff02::77:1]+1:7148"], Some("10.77.0.1"));
        ip("-6 route add ff05::/16 dev rx0 table local");
        round_trip(&["[ff05::77:9]:7148"], None);
        round_trip(&["[ff02::77:1%rx0]+1:7148"], None);
        round_trip(&["[fe80::77%rx0]:7148"], None);
        round_trip(&["[fe80::77]:7149"], Some("rx0"));
        round_trip(&["[fd77::1]:7148"], Some("rx0"));
    });
}

#[test]
fn ipv6_group_is_joined_again_when_the_interface_is_made_again() {
    on_v6_host(|| {
        for (to, name, address) in [
            (GROUP, "rx0", "fd77::9"),
            (GROUP, "fd77::1", "fd77::1"),
            // A link-local group, whose socket the kernel binds to the interface.
            ("[ff02::77:1]:7148", "rx0", "fd77::1"),
        ] {
            let (to, (env, events)) = (at(to), env());
            let mut batch = receiver_of(to, &[]);
            let mut sender = Sender::lasting(Family::V6, Some(name), 1, &env).unwrap();
            let from = pass_to(to, &mut sender, &mut batch);
            assert_eq!(from.ip(), the("fd77::1"));
            ip("link delete rx0");
            drop_one_to(to, &mut sender);
            let missing = format!("network interface `{name}` does not exist");
            assert!(texts(&events)[0].ends_with(&missing), "{:?}", texts(&events));
            interface(1);
            addresses(address);
            let again = pass_to(to, &mut sender, &mut batch);
            assert_eq!((again.ip(), again.port()), (the(address), from.port()));
            ip("link delete rx0");
            interface(1);
            addresses("fd77::1");
        }
    });
}

#[test]
fn source_specific_ipv6_group_has_packets_of_its_sources_only() {
    on_v6_host(|| {
        let to = at(CHOSEN);
        let mut batch = receiver_of(to, &["fd77::9", "fd77::2"]);
        for _ in 0..2 {
            ip("-6 address add fd77::2/64 dev rx0 nodad");
            let mut other = Sender::open(Family::V6, Some("fd77::1"), 1).unwrap();
            let mut source = Sender::open(Family::V6, Some("fd77::2"), 1).unwrap();
            let mut all = receiver_of(at(GROUP), &[]);
            let (deadline, mut heaps) = (Instant::now() + LIMIT, Vec::new());
            while heaps.is_empty() {
                assert!(Instant::now() < deadline, "no packet arrives");
                other.send(&[packet(to, 1), packet(at(GROUP), 1)]).unwrap();
                source.send(&[packet(to, 2)]).unwrap();
                heaps = receive(&mut batch, Duration::from_millis(20));
                // The other sender's packets leave the host.
                assert!(!receive(&mut all, LIMIT).is_empty());
            }
            let is_chosen =
                heaps.iter().all(|(heap, from)| *heap == 2 && from.ip() == the("fd77::2"));
            assert!(is_chosen, "{heaps:?}");
            ip("link delete rx0");
            interface(1);
            addresses("fd77::1");
        }
    });
}

#[test]
fn sender_waits_for_an_ipv6_address_that_the_kernel_has_removed() {
    on_v6_host(|| {
        let (to, (env, events)) = (at(GROUP), env());
        let mut batch = receiver_of(to, &[]);
        let mut sender = Sender::lasting(Family::V6, Some("rx0"), 4, &env).unwrap();
        let from = pass_to(to, &mut sender, &mut batch);
        // The kernel removes the addresses of an interface that goes down.
        ip("link set rx0 down");
        drop_one_to(to, &mut sender);
        assert!(texts(&events)[0].ends_with("`rx0` is down"), "{:?}", texts(&events));
        ip("link set rx0 up");
        super::namespace::carrier();
        // The link-local address does not replace the one that is missing.
        drop_one_to(to, &mut sender);
        addresses("fd77::1");
        assert_eq!(pass_to(to, &mut sender, &mut batch), from);
        // An interface that is down at the start has none.
        ip("link set rx0 down");
        let mut late = Sender::lasting(Family::V6, Some("rx0"), 4, &env).unwrap();
        drop_one_to(to, &mut late);
        let mut batch = receiver_of(to, &[]);
        ip("link set rx0 up");
        super::namespace::carrier();
        addresses("fd77::1");
        assert_eq!(pass_to(to, &mut late, &mut batch).ip(), the("fd77::1"));
    });
}

#[test]
fn interface_needs_an_address_of_the_family_of_its_stream() {
    on_v6_host(|| {
        let names = ["rx0".to_owned()];
        let of = |family: Family, to: &str| {
            let receiver = open(&[at(to)], &Listening::on(&names, 4096)).map(drop);
            [receiver, Sender::open(family, Some("rx0"), 1).map(drop)]
        };
        ip("-4 address flush dev rx0");
        assert!(of(Family::V6, GROUP).iter().all(Result::is_ok));
        for result in of(Family::V4, "239.77.0.1:7148") {
            let error = result.unwrap_err().to_string();
            assert!(error.starts_with("network interface `rx0` has no IPv4 address;"), "{error}");
        }
        ip("-6 address del fd77::1/64 dev rx0");
        // The link-local one suffices.
        assert!(of(Family::V6, GROUP).iter().all(Result::is_ok));
        ip("-6 address flush dev rx0");
        ip("address add 10.77.0.1/24 dev rx0");
        assert!(of(Family::V4, "239.77.0.1:7148").iter().all(Result::is_ok));
        for result in of(Family::V6, GROUP) {
            let error = result.unwrap_err().to_string();
            let expected = "network interface `rx0` has no IPv6 address; give it one with \
                            `ip address add ADDRESS/64 dev rx0`";
            assert!(error.starts_with(expected), "{error}");
        }
        let unscoped = open(&[at("[fe80::77]:7148")], &Listening::on(&[], 4096)).unwrap_err();
        assert!(unscoped.to_string().ends_with("name its interface"), "{unscoped}");
    });
}

#[test]
fn addresses_that_a_block_cannot_use_are_diagnostics() {
    let reject = |block: &str| {
        let text = format!(
            "flowgraph: g
blocks:
  sky: {{kind: digitiser_simulator, parameters: {{adc_sample_rate_hz: 1000000, frames: 1}}}}
  n: {{kind: null_sink, input: sky.pol1}}
  {block}
"
        );
        let rejected = load_text("g.yaml", &text, &[], &crate::kinds()).result.map(drop);
        format!("{:?}", rejected.unwrap_err())
    };
    for (sink, expected) in [
        (
            "spead_sink, parameters: {stream: digitiser, destinations: ['10.0.0.1:1', '[::1]:1']",
            "`destinations` must be all IPv4 or all IPv6, got 10.0.0.1:1 and [::1]:1",
        ),
        (
            "spead_sink, parameters: {stream: digitiser, destinations: ['[ff02::1]+1:1']",
            "write [ff02::1%eth0]:1, or set `interface`",
        ),
        (
            "spead_sink, parameters: {stream: digitiser, destinations: ['::1:7148']",
            "`::1:7148` is not an IP address or host name",
        ),
        ("stream_sink, parameters: {destination: '[fe80::1]:1'", "or set `interface`"),
    ] {
        let found = reject(&format!("send: {{input: sky.pol0, kind: {sink}}}}}"));
        assert!(found.contains(expected), "{found}");
    }
    let source = "in: {kind: spead_source, parameters: {stream: digitiser, adc_sample_rate_hz: 1000000, \
                  addresses: ['[ff05::1]:1'], sources: [10.0.0.1]}}";
    let found = reject(source);
    assert!(found.contains("all IPv4 or all IPv6, got 10.0.0.1 and [ff05::1]:1"), "{found}");
}

#[test]
fn name_of_both_families_has_its_ipv4_address() {
    on_host(1, || {
        let hosts = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&hosts, "127.0.0.1 both.test four.test\n::1 both.test six.test\n").unwrap();
        let mount = |arguments: &[&str]| {
            Command::new("mount").args(arguments).status().is_ok_and(|status| status.success())
        };
        // SAFETY: no pointers; only this thread is affected.
        let is_alone = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
        let bind = ["--bind", hosts.path().to_str().unwrap(), "/etc/hosts"];
        if !(is_alone && mount(&["--make-rprivate", "/"]) && mount(&bind)) {
            return skip("no mount namespace");
        }
        let all: Vec<_> = ("both.test", 7148).to_socket_addrs().unwrap().collect();
        if all.len() != 2 {
            return skip("names are not looked up in /etc/hosts");
        }
        let resolve = |text: &str| address::resolve([&text.to_owned()]).unwrap();
        assert_eq!(resolve("both.test:7148"), [at("127.0.0.1:7148")]);
        assert_eq!(resolve("four.test:1"), [at("127.0.0.1:1")]);
        assert_eq!(resolve("six.test:1"), [at("[::1]:1")]);
    });
}
