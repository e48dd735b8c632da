//! Tests of batched receive.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::io::spead::sockets::{open, set_option};
use socket2::{Domain, Protocol, Type};
use std::net::UdpSocket;

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn unicast_and_multicast_datagrams_arrive_with_their_sender() {
    let unicast = SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port());
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, 71, 48), free_port());
    let sockets = open(&[unicast, group], &["127.0.0.1".to_owned()], 1 << 16).unwrap();
    let mut batch = Batch::new(sockets, 1 << 20);
    let sender = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    sender.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    sender.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    for i in 0..40_u8 {
        let to = if i % 2 == 0 { unicast } else { group };
        sender.send_to(&vec![i; 100 + usize::from(i)], &to.into()).unwrap();
    }
    let mut seen = Vec::new();
    for _ in 0..100 {
        let from = sender.local_addr().unwrap().as_socket_ipv4().unwrap();
        let mut handle = |datagrams: Datagrams<'_>| {
            for (datagram, peer) in datagrams {
                assert_eq!(peer, from);
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
fn several_sockets_are_read_in_step() {
    let addresses = [(); 2].map(|()| SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port()));
    let sockets = open(&addresses, &[], 1 << 20).unwrap();
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
        let addresses = [(); 2].map(|()| SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port()));
        let sockets = open(&addresses, &[], 1 << 20).unwrap();
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

#[test]
fn datagrams_whose_payload_is_not_needed_are_cut_off_and_counted() {
    struct Skimming {
        wants: bool,
        heads: Vec<usize>,
        whole: Vec<usize>,
    }
    impl Reader for Skimming {
        fn take(&mut self, datagrams: Datagrams<'_>) -> bool {
            self.whole.extend(datagrams.map(|(datagram, _)| datagram.len()));
            self.wants
        }
        fn skim(&mut self, heads: Datagrams<'_>) -> bool {
            self.heads.extend(heads.map(|(head, _)| head.len()));
            self.wants
        }
    }
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port());
    let sockets = open(&[address], &[], 1 << 20).unwrap();
    let mut batch = Batch::new(sockets, 1 << 20);
    let sender = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, 1000).unwrap();
    let mut reader = Skimming { wants: true, heads: vec![], whole: vec![] };
    let mut counts = vec![];
    for wants in [true, true, false, true] {
        reader.wants = wants;
        sender.send_to(&[7; 5500], &address.into()).unwrap();
        let received = batch.receive(Duration::from_secs(5), &mut reader).unwrap();
        counts.push((received.datagrams, received.bytes));
    }
    assert_eq!(counts, [(6, 5500); 4]);
    let run = [1000, 1000, 1000, 1000, 1000, 500];
    assert_eq!(reader.whole, [run, run].concat());
    assert_eq!(reader.heads, [HEAD_BYTES; 2]);
}

#[test]
fn drops_of_coalesced_runs_count_datagrams() {
    for (segments, tolerance) in [(1_u64, 0.0), (12, 0.1)] {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port());
        let sockets = open(&[address], &[], 1 << 17).unwrap();
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
    let addresses = [(); 2].map(|()| SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port()));
    let sockets = open(&addresses, &[], 1 << 17).unwrap();
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
