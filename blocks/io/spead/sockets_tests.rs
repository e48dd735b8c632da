//! Tests of the sockets of receivers.
#![allow(clippy::unwrap_used)]

use crate::common::net::sockets::*;
use crate::io::spead::datagrams::Datagrams;
use crate::io::spead::endpoint::Endpoint;
use crate::io::spead::receive::Batch;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn addresses_are_divided_among_threads_and_threads_among_addresses() {
    let addresses = [(); 3].map(|()| loopback(free_port()));
    let ports = |threads: usize| -> Vec<Vec<usize>> {
        let sockets = open_divided(threads, &addresses, &Listening::on(&[], 1 << 16)).unwrap();
        let of = |socket: &Listener| {
            let at = socket.local_addr().unwrap().as_socket().unwrap();
            addresses.iter().position(|address| *address == at).unwrap()
        };
        sockets.iter().map(|sockets| sockets.iter().map(of).collect()).collect()
    };
    assert_eq!(ports(1), [[0, 1, 2]]);
    assert_eq!(ports(2), [vec![0, 2], vec![1]]);
    assert_eq!(ports(3), [[0], [1], [2]]);
    assert_eq!(ports(5), [[0], [1], [2], [0], [1]]);
}

#[test]
fn datagrams_of_a_sender_come_to_one_of_several_sockets_in_order() {
    let address = loopback(free_port());
    let sockets = open_divided(4, &[address], &Listening::on(&[], 1 << 20)).unwrap();
    let senders = [(); 8].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    for i in 0..20_u8 {
        for sender in &senders {
            sender.send_to(&[i; 100], address).unwrap();
        }
    }
    let mut of: std::collections::HashMap<Endpoint, (usize, Vec<u8>)> =
        std::collections::HashMap::new();
    for (thread, sockets) in sockets.into_iter().enumerate() {
        let mut batch = Batch::new(sockets, 1 << 20);
        loop {
            let mut handle = |datagrams: Datagrams<'_>| {
                for (datagram, sender) in datagrams {
                    let (at, seen) = of.entry(sender).or_insert((thread, Vec::new()));
                    assert_eq!(*at, thread);
                    seen.push(datagram[0]);
                }
            };
            let received = batch.receive(Duration::from_millis(50), &mut handle).unwrap();
            if received.datagrams == 0 {
                break;
            }
        }
    }
    assert_eq!(of.len(), senders.len());
    assert!(of.values().all(|(_, seen)| *seen == (0..20).collect::<Vec<_>>()));
}

#[test]
fn address_of_several_threads_is_not_shared_with_another_program() {
    let address = loopback(free_port());
    let first = open_divided(2, &[address], &Listening::on(&[], 1 << 16)).unwrap();
    for threads in [1, 2] {
        let error = open_divided(threads, &[address], &Listening::on(&[], 1 << 16))
            .unwrap_err()
            .to_string();
        assert!(error.contains("has this port"), "{error}");
    }
    drop(first);
    open_divided(2, &[address], &Listening::on(&[], 1 << 16)).unwrap();
    let group = SocketAddr::from(([239, 255, 71, 49], free_port()));
    let error = open_divided(2, &[group], &Listening::on(&[], 1 << 16)).unwrap_err().to_string();
    assert!(error.contains("239.255.71.49") && error.contains("divided"), "{error}");
}

#[test]
fn errors_name_the_port_the_address_and_the_interface() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let address = loopback(port);
    let error = open(&[address], &Listening::on(&[], 4096)).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("has this port"), "{error}");
    let foreign = SocketAddr::from(([203, 0, 113, 7], 7148));
    let error = open(&[foreign], &Listening::on(&[], 4096)).unwrap_err().to_string();
    assert!(error.contains("203.0.113.7"), "{error}");
    let error =
        open(&[address], &Listening::on(&["no-such0".to_owned()], 4096)).unwrap_err().to_string();
    assert!(error.contains("no-such0"), "{error}");
}
