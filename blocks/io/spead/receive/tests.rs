//! Tests of batched receive.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::common::net::sockets::{Listening, open, set_option};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, UdpSocket};

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn unicast_and_multicast_datagrams_arrive_with_their_sender() {
    let unicast = loopback(free_port());
    let group = SocketAddr::from(([239, 255, 71, 48], free_port()));
    let sockets =
        open(&[unicast, group], &Listening::on(&["127.0.0.1".to_owned()], 1 << 16)).unwrap();
    let mut batch = Batch::new(sockets, 1 << 20);
    let sender = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    sender.bind(&loopback(0).into()).unwrap();
    sender.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    for i in 0..40_u8 {
        let to = if i % 2 == 0 { unicast } else { group };
        sender.send_to(&vec![i; 100 + usize::from(i)], &to.into()).unwrap();
    }
    let mut seen = Vec::new();
    for _ in 0..100 {
        let from = sender.local_addr().unwrap().as_socket().unwrap();
        let mut handle = |datagrams: Datagrams<'_>| {
            for (datagram, peer) in datagrams {
                assert_eq!(peer, Endpoint::from(from));
                assert!(datagram.iter().all(|b| usize::from(*b) + 100 == datagram.len()));
                seen.push(datagram[0]);
            }
        };
        batch.receive(Duration::from_millis(20), &mut handle).unwrap();
        if seen.len() == 40 {
            break;
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..40).collect::<Vec<_>>());
}

#[test]
fn address_of_a_socket_that_a_new_process_has_for_a_moment_is_free() {
    let address = loopback(free_port());
    let first = open(&[address], &Listening::on(&[], 1 << 16)).unwrap();
    // As a process has it between its fork and its own program.
    let copy = first[0].try_clone().unwrap();
    drop(first);
    let (closed, is_closed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        closed.send(()).unwrap();
        drop(copy);
    });
    let second = open(&[address], &Listening::on(&[], 1 << 16)).unwrap();
    is_closed.try_recv().expect("the copy had the address until then");
    let error = open(&[address], &Listening::on(&[], 1 << 16)).unwrap_err().to_string();
    assert!(error.contains("another program or block has this port"), "{error}");
    drop(second);
}

#[test]
fn several_sockets_are_read_in_step() {
    let addresses = [(); 2].map(|()| loopback(free_port()));
    let sockets = open(&addresses, &Listening::on(&[], 1 << 20)).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (socket, address) in addresses.iter().enumerate() {
        for _ in 0..100 {
            sender.send_to(&[socket as u8; 1000], address).unwrap();
        }
    }
    // Turns of 10 datagrams.
    let mut batch = Batch::new(sockets, 20_000);
    let mut seen = [0_i32; 2];
    for _ in 0..100 {
        let mut handle = |datagrams: Datagrams<'_>| {
            for (datagram, _) in datagrams {
                seen[usize::from(datagram[0])] += 1;
                assert!((seen[0] - seen[1]).abs() <= 10, "{seen:?}");
            }
        };
        let received = batch.receive(Duration::from_millis(20), &mut handle).unwrap();
        assert!(!received.emptied || seen == [100, 100]);
        if seen == [100, 100] {
            return;
        }
    }
    panic!("{seen:?} datagrams");
}

#[test]
fn flood_of_tiny_datagrams_does_not_block_the_thread() {
    for len in [0, 1] {
        let addresses = [(); 2].map(|()| loopback(free_port()));
        let sockets = open(&addresses, &Listening::on(&[], 1 << 20)).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for address in &addresses {
            for _ in 0..200 {
                sender.send_to(&[0; 1][..len], address).unwrap();
            }
        }
        let mut batch = Batch::new(sockets, 20 * LEAST_CHARGE as usize);
        let received = batch.receive(Duration::from_secs(5), &mut |_: Datagrams<'_>| ()).unwrap();
        assert_eq!((received.datagrams, received.emptied), (20, false), "{len} bytes each");
    }
}

/// A packet of `items` items and `bytes` bytes in all.
fn packet(items: u16, bytes: usize) -> Vec<u8> {
    let payload = bytes - 8 - 8 * usize::from(items);
    let values = [7, 1 << 20, 0, payload as u64];
    let required = (1..).zip(values).map(|(id, value)| (0x8000 | id) << 48 | value);
    let further = (0x9000..).map(|id: u64| id << 48);
    let words = required.chain(further).take(items.into()).flat_map(u64::to_be_bytes);
    let [high, low] = items.to_be_bytes();
    [0x53, 4, 2, 6, 0, 0, high, low].into_iter().chain(words).chain(vec![9; payload]).collect()
}

/// Keeps the lengths of datagrams that were read whole or skimmed.
struct Skimming {
    skims: bool,
    skimmed: Vec<usize>,
    whole: Vec<usize>,
}

impl Reader for Skimming {
    fn take(&mut self, datagrams: Datagrams<'_>) -> bool {
        self.whole.extend(datagrams.map(|(datagram, _)| datagram.len()));
        self.skims
    }
    fn skim(&mut self, heads: Datagrams<'_>) -> bool {
        self.skimmed.extend(heads.map(|(head, _)| head.len()));
        self.skims
    }
}

/// A socket, and a sender to it that sends runs of datagrams of 1000 bytes.
fn runs_of_1000() -> (Batch, Socket) {
    let address = loopback(free_port());
    let sockets = open(&[address], &Listening::on(&[], 1 << 20)).unwrap();
    let sender = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, 1000).unwrap();
    sender.connect(&address.into()).unwrap();
    (Batch::new(sockets, 1 << 20), sender)
}

#[test]
fn datagrams_whose_payload_is_not_needed_are_cut_off_and_counted() {
    let (mut batch, sender) = runs_of_1000();
    let run = [vec![packet(8, 1000); 5].concat(), packet(8, 500)].concat();
    let mut reader = Skimming { skims: true, skimmed: vec![], whole: vec![] };
    let mut counts = vec![];
    for skims in [true, true, false, true] {
        reader.skims = skims;
        sender.send(&run).unwrap();
        let received = batch.receive(Duration::from_secs(5), &mut reader).unwrap();
        counts.push((received.datagrams, received.bytes));
    }
    assert_eq!(counts, [(6, 5500); 4]);
    let run = [1000, 1000, 1000, 1000, 1000, 500];
    assert_eq!(reader.whole, [run, run].concat());
    assert_eq!(reader.skimmed, [HEAD_BYTES; 2]);
}

#[test]
fn datagrams_that_may_not_be_payload_are_read_whole_while_others_are_skimmed() {
    let (mut batch, sender) = runs_of_1000();
    let mut reader = Skimming { skims: true, skimmed: vec![], whole: vec![] };
    sender.send(&vec![packet(8, 1000); 6].concat()).unwrap();
    batch.receive(Duration::from_secs(5), &mut reader).unwrap();
    let mut truncated = packet(8, 1000);
    truncated.truncate(900);
    let (data, stop) = (packet(8, 1000), packet(5, 48));
    let messages = [
        [data.clone(), data.clone()].concat(),
        [data.clone(), data.clone(), stop.clone()].concat(),
        packet(40, 1000),
        data,
        truncated,
        vec![7; 300],
        stop,
    ];
    messages.iter().for_each(|message| _ = sender.send(message).unwrap());
    let received = batch.receive(Duration::from_secs(5), &mut reader).unwrap();
    let bytes: usize = messages.iter().map(Vec::len).sum();
    assert_eq!((received.datagrams, received.bytes), (10, bytes as u64));
    let expected = [HEAD_BYTES, 1000, 1000, 48, 1000, HEAD_BYTES, 900, 300, 48];
    assert_eq!(reader.skimmed, expected);
}

#[test]
fn drops_of_coalesced_runs_count_datagrams() {
    for (segments, tolerance) in [(1_u64, 0.0), (12, 0.1)] {
        let address = loopback(free_port());
        let sockets = open(&[address], &Listening::on(&[], 1 << 17)).unwrap();
        let mut batch = Batch::new(sockets, 1 << 20);
        let sender = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        if segments > 1 {
            set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, 1000).unwrap();
        }
        let runs = 2000;
        let run = vec![7; 1000 * segments as usize];
        for _ in 0..runs {
            sender.send_to(&run, &address.into()).unwrap();
        }
        let mut received = Received::default();
        let mut drain = |batch: &mut Batch| loop {
            let some =
                batch.receive(Duration::from_millis(20), &mut |_: Datagrams<'_>| ()).unwrap();
            received.datagrams += some.datagrams;
            received.kernel_drops += some.kernel_drops;
            if some.datagrams == 0 {
                return received;
            }
        };
        // No datagram follows the last one that was dropped.
        let Received { datagrams, kernel_drops, .. } = drain(&mut batch);
        let sent = runs * segments;
        assert!(kernel_drops > sent / 4, "{kernel_drops} of {sent} dropped");
        let told = (datagrams + kernel_drops) as f64;
        assert!((told - sent as f64).abs() <= tolerance * sent as f64, "{told} of {sent}");
    }
}

#[test]
fn drops_of_a_silent_socket_are_counted_while_another_one_continues() {
    let addresses = [(); 2].map(|()| loopback(free_port()));
    let sockets = open(&addresses, &Listening::on(&[], 1 << 17)).unwrap();
    let mut batch = Batch::new(sockets, 8 << 20);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sent = 1000;
    (0..sent).for_each(|_| _ = sender.send_to(&[7; 1000], addresses[0]).unwrap());
    let (mut silent, mut dropped) = (0, 0);
    let began = Instant::now();
    while silent + dropped < sent {
        assert!(began.elapsed() < Duration::from_secs(5), "{silent} received, {dropped} dropped");
        sender.send_to(&[8; 1000], addresses[1]).unwrap();
        let mut count = |datagrams: Datagrams<'_>| {
            silent += datagrams.filter(|(datagram, _)| datagram[0] == 7).count() as u64;
        };
        let received = batch.receive(Duration::from_secs(5), &mut count).unwrap();
        assert!(received.datagrams > 0, "one socket continues");
        dropped += received.kernel_drops;
    }
    assert_eq!(silent + dropped, sent);
    assert!(dropped > sent / 4, "{dropped} of {sent} dropped");
}

#[test]
fn buffers_begin_in_different_sets_of_the_first_cache() {
    // 64 sets of lines of 64 bytes.
    let set = |buffer| buffer * STRIDE / 64 % 64;
    let sets: std::collections::HashSet<usize> = (0..BATCH).map(set).collect();
    assert_eq!(sets.len(), BATCH);
}
