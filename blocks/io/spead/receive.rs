//! Batched UDP receive: many datagrams per system call, coalesced by the kernel if it supports that.
#![allow(unsafe_code)] // recvmmsg, poll and their control messages have no safe interface.

use super::address;
use fxgraph::BlockError;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Datagrams (coalesced ones count once) per system call.
const BATCH: usize = 32;
/// Coalesced runs per system call: no more than the second-level cache holds until each has been handled.
const BATCH_OF_RUNS: usize = 8;
/// The largest datagram, and the largest run of coalesced ones.
const BUFFER_BYTES: usize = 1 << 16;
/// Distance of the buffers in bytes. The beginnings of all buffers must not share a few sets of the
/// caches: therefore not a power of two for the second level, and an odd number of lines for the first,
/// whose sets repeat every 4 KiB.
const STRIDE: usize = BUFFER_BYTES + (8 << 10) + 64;
/// Least number of bytes that a datagram counts in its socket's turn: an empty datagram costs time, too.
const LEAST_CHARGE: u64 = 2 << 10;
/// Longest pause after the sockets are empty: waking costs more than receiving a datagram.
const LONGEST_NAP: Duration = Duration::from_micros(500);
/// Shortest pause worth sleeping: timers are some 50 us late.
const SHORTEST_NAP: Duration = Duration::from_micros(50);
/// Highest rate at which data may arrive during a pause, in bytes per second: 100 Gbit/s.
const FASTEST: f64 = 12.5e9;
/// Room for the control messages: segment size and drop count.
const CONTROL_WORDS: usize = 16;

/// Opens one socket per address: multicast groups are joined on `interfaces` in turn.
pub fn open(
    addresses: &[SocketAddrV4],
    interfaces: &[String],
    buffer_bytes: usize,
) -> Result<Vec<Socket>, BlockError> {
    let interfaces = interfaces
        .iter()
        .map(|name| address::interface(name).map_err(|e| BlockError::new(e.to_string())))
        .collect::<Result<Vec<_>, _>>()?;
    let open = |(i, address): (usize, &SocketAddrV4)| {
        let interface = match interfaces.len() {
            0 => Ipv4Addr::UNSPECIFIED,
            n => interfaces[i % n],
        };
        open_one(*address, interface, buffer_bytes)
            .map_err(|error| BlockError::new(cannot_listen(*address, &error)).because(error))
    };
    addresses.iter().enumerate().map(open).collect()
}

fn cannot_listen(address: SocketAddrV4, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("cannot listen on {address}: another program or block has this port")
        }
        io::ErrorKind::AddrNotAvailable if !address.ip().is_multicast() => {
            format!("cannot listen on {address}: no interface of this host has that address")
        }
        _ => format!("cannot listen on {address}: {error}"),
    }
}

fn open_one(address: SocketAddrV4, interface: Ipv4Addr, buffer_bytes: usize) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    if address.ip().is_multicast() {
        // Several receivers may share a group; a socket bound to the group gets no other packets.
        socket.set_reuse_address(true)?;
        socket.set_multicast_all_v4(false)?;
        socket.bind(&address.into())?;
        socket.join_multicast_v4(address.ip(), &interface)?;
    } else {
        socket.bind(&address.into())?;
    }
    set_receive_buffer(&socket, buffer_bytes);
    // Without these two options packets still arrive, at a higher cost and without the drop count.
    let _ = set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    let _ = set_option(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    Ok(socket)
}

fn set_receive_buffer(socket: &Socket, bytes: usize) {
    let value = i32::try_from(bytes).unwrap_or(i32::MAX);
    // Beyond the system's limit if permitted, up to the limit otherwise.
    if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value).is_err() {
        let _ = socket.set_recv_buffer_size(bytes);
    }
    let got = buffer_bytes(socket);
    if got < bytes {
        tracing::warn!(
            asked_bytes = bytes,
            got_bytes = got,
            "the socket buffer is smaller than `receive_buffer_bytes`; raise net.core.rmem_max"
        );
    }
}

/// Returns how long a live source of `bytes_per_second` waits for frames before it drops data: half of the time that
/// the buffers of `sockets` last, at most a second.
#[must_use]
pub fn patience(sockets: &[Socket], bytes_per_second: f64) -> Duration {
    let bytes: usize = sockets.iter().map(buffer_bytes).sum();
    Duration::from_secs_f64((0.5 * bytes as f64 / bytes_per_second).clamp(0.0, 1.0))
}

/// Returns the size of the receive buffer of `socket`, in bytes.
#[must_use]
pub fn buffer_bytes(socket: &Socket) -> usize {
    // The kernel reports twice the requested size, which includes its own bookkeeping.
    socket.recv_buffer_size().unwrap_or(0) / 2
}

fn set_option(socket: &Socket, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the option's value is one int that outlives the call, and its size is given.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Buffers for receiving in batches. Lives on the receiving thread.
pub struct Batch {
    /// `BATCH` buffers, `STRIDE` apart; untouched pages of an unused buffer cost nothing.
    buffers: Vec<u8>,
    control: Vec<[u64; CONTROL_WORDS]>,
    names: Vec<libc::sockaddr_in>,
    /// Last drop count from the kernel, per socket; and recent mean number of datagrams per message.
    drops: Vec<u32>,
    run_datagrams: Vec<f64>,
    sockets: Vec<Socket>,
    /// Messages per call at present.
    messages: usize,
    /// Pause in which no socket buffer fills more than a quarter; `None` if it is too short for a sleep.
    nap: Option<Duration>,
    /// Whether the sockets had data and are empty now.
    emptied: bool,
    /// Bytes read from one of several sockets in its turn.
    turn_bytes: usize,
}

/// Result of one call of [`Batch::receive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Datagrams received.
    pub datagrams: u64,
    /// Payload bytes of these datagrams.
    pub bytes: u64,
    /// Datagrams dropped by the kernel because a socket buffer was full; where the kernel coalesces
    /// datagrams, estimated from the number of dropped runs and the mean length of received runs.
    pub kernel_drops: u64,
    /// Whether all sockets are empty.
    pub emptied: bool,
}

impl Batch {
    /// Creates buffers for `sockets`. When several sockets are read after a pause, their streams get out
    /// of step by at most about `in_step_bytes` in total.
    #[must_use]
    pub fn new(sockets: Vec<Socket>, in_step_bytes: usize) -> Self {
        // SAFETY: a sockaddr_in is plain integers, for which all zeros is a value.
        let name: libc::sockaddr_in = unsafe { zeroed() };
        let room = sockets.iter().map(|s| s.recv_buffer_size().unwrap_or(0)).min().unwrap_or(0);
        let nap = Duration::from_secs_f64(room as f64 / 4.0 / FASTEST).min(LONGEST_NAP);
        Self {
            buffers: vec![0; BATCH * STRIDE],
            control: vec![[0; CONTROL_WORDS]; BATCH],
            names: vec![name; BATCH],
            drops: vec![0; sockets.len()],
            run_datagrams: vec![0.0; sockets.len()],
            turn_bytes: in_step_bytes / sockets.len().max(1),
            sockets,
            messages: BATCH,
            nap: (nap >= SHORTEST_NAP).then_some(nap),
            emptied: false,
        }
    }

    /// Reads the sockets as soon as they have data, at the cost of more system calls: for measurements of latency.
    #[must_use]
    pub fn without_pauses(mut self) -> Self {
        self.nap = None;
        self
    }

    /// Returns the local addresses of the sockets, in their order.
    ///
    /// # Errors
    /// If the operating system does not report an address.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddrV4>> {
        let address = |socket: &Socket| {
            let address = socket.local_addr()?;
            address.as_socket_ipv4().ok_or_else(|| io::ErrorKind::Unsupported.into())
        };
        self.sockets.iter().map(address).collect()
    }

    /// Waits up to `timeout` for datagrams, and calls `handle` with some of them and their sender: about
    /// the same number of bytes from each socket.
    pub fn receive(
        &mut self,
        timeout: Duration,
        handle: &mut dyn FnMut(&[u8], SocketAddrV4),
    ) -> io::Result<Received> {
        if let Some(nap) = self.nap.filter(|_| self.emptied) {
            std::thread::sleep(nap);
        }
        let mut total = Received::default();
        if self.sockets.len() == 1 {
            // One socket: read without polling first, which saves a system call for every batch of a
            // busy stream.
            total.emptied = self.receive_from(0, BATCH, handle, &mut total)?;
            if total.datagrams > 0 {
                self.emptied = total.emptied;
                return Ok(total);
            }
        }
        total.emptied = true;
        for index in self.readable(timeout)? {
            total.emptied &= self.take_turn(index, handle, &mut total)?;
        }
        self.emptied = total.emptied && total.datagrams > 0;
        Ok(total)
    }

    /// Reads one socket for its turn; returns whether the socket is empty.
    fn take_turn(
        &mut self,
        index: usize,
        handle: &mut dyn FnMut(&[u8], SocketAddrV4),
        total: &mut Received,
    ) -> io::Result<bool> {
        let mut left = self.turn_bytes;
        loop {
            // A turn counts bytes, not messages: the number of datagrams per message varies.
            let messages = left.div_ceil(BUFFER_BYTES).clamp(1, BATCH);
            let before = *total;
            let emptied = self.receive_from(index, messages, handle, total)?;
            let datagrams = total.datagrams - before.datagrams;
            let charge = (total.bytes - before.bytes).max(datagrams * LEAST_CHARGE);
            left = left.saturating_sub(charge as usize);
            if emptied || left == 0 {
                return Ok(emptied);
            }
        }
    }

    /// Returns the indices of the sockets that have data.
    fn readable(&self, timeout: Duration) -> io::Result<Vec<usize>> {
        // Allocated once per wait, not per datagram.
        let mut polls: Vec<libc::pollfd> = self
            .sockets
            .iter()
            .map(|s| libc::pollfd { fd: s.as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: `polls` is a valid array of the length given.
        let rc = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, millis) };
        if rc < 0 {
            return retry_later(io::Error::last_os_error()).map(|()| Vec::new());
        }
        Ok(polls.iter().enumerate().filter(|(_, p)| p.revents != 0).map(|(i, _)| i).collect())
    }

    /// Reads up to `most` messages; returns whether the socket is empty.
    fn receive_from(
        &mut self,
        index: usize,
        most: usize,
        handle: &mut dyn FnMut(&[u8], SocketAddrV4),
        total: &mut Received,
    ) -> io::Result<bool> {
        let messages = self.messages.min(most);
        let mut iovecs = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        // SAFETY: an mmsghdr is integers and pointers, for which all zeros is a value.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        for (i, buffer) in self.buffers.chunks_exact_mut(STRIDE).take(messages).enumerate() {
            let iovec = iovecs[i]
                .write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: BUFFER_BYTES });
            let header = &mut headers[i].msg_hdr;
            header.msg_iov = iovec;
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut self.names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_control = self.control[i].as_mut_ptr().cast();
            header.msg_controllen = size_of::<[u64; CONTROL_WORDS]>() as _;
        }
        // SAFETY: each of the first `messages` headers points at an iovec, a name and a control
        // buffer of the sizes given, all of which live, unmoved, until after the last use of
        // `headers`.
        let count = unsafe {
            libc::recvmmsg(
                self.sockets[index].as_raw_fd(),
                headers.as_mut_ptr(),
                messages as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return retry_later(io::Error::last_os_error()).map(|()| true);
        };
        let (before, mut dropped, mut datagrams) = (total.bytes, 0, 0);
        for (i, header) in headers[..count].iter().enumerate() {
            let len = header.msg_len as usize;
            let (segment, drops) = control_messages(&header.msg_hdr);
            if let Some(drops) = drops {
                dropped += u64::from(drops.wrapping_sub(self.drops[index]));
                self.drops[index] = drops;
            }
            let name = &self.names[i];
            let sender = SocketAddrV4::new(
                Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)),
                u16::from_be(name.sin_port),
            );
            let buffer = &self.buffers[i * STRIDE..][..len.min(BUFFER_BYTES)];
            total.bytes += len as u64;
            if segment == 0 || segment >= len {
                datagrams += 1;
                handle(buffer, sender);
            } else {
                for datagram in buffer.chunks(segment) {
                    datagrams += 1;
                    handle(datagram, sender);
                }
            }
        }
        total.datagrams += datagrams;
        if count > 0 {
            // The kernel counts a run of coalesced datagrams once; dropped runs are assumed to be as
            // long as received ones.
            let run = &mut self.run_datagrams[index];
            *run += (datagrams as f64 / count as f64 - *run) * if *run == 0.0 { 1.0 } else { 0.25 };
            total.kernel_drops += (dropped as f64 * *run).round() as u64;
        }
        let long = (total.bytes - before) as usize > count * BUFFER_BYTES / 4;
        self.messages = if long { BATCH_OF_RUNS } else { BATCH };
        Ok(count < messages)
    }
}

/// Ignores errors after which receiving continues: no data, a signal, or an error caused by an earlier
/// datagram that this host sent.
fn retry_later(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock
        | io::ErrorKind::Interrupted
        | io::ErrorKind::ConnectionRefused => Ok(()),
        _ => Err(error),
    }
}

/// Returns the segment size (0 if not coalesced) and the drop count, if the kernel reported it.
fn control_messages(header: &libc::msghdr) -> (usize, Option<u32>) {
    let (mut segment, mut drops) = (0, None);
    // SAFETY: the kernel filled `header` and its control buffer; the CMSG functions stay inside
    // it, and the two kinds of message read here carry one int each.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(known) = message.as_ref() {
            let data = libc::CMSG_DATA(message);
            match (known.cmsg_level, known.cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    segment =
                        usize::try_from(i32::from_ne_bytes(*data.cast::<[u8; 4]>())).unwrap_or(0);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    drops = Some(u32::from_ne_bytes(*data.cast::<[u8; 4]>()));
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    (segment, drops)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
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
            let mut handle = |datagram: &[u8], peer: SocketAddrV4| {
                assert_eq!(peer, from);
                assert!(datagram.iter().all(|b| usize::from(*b) + 100 == datagram.len()));
                seen.push(datagram[0]);
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
            let mut handle = |datagram: &[u8], _: SocketAddrV4| {
                seen[usize::from(datagram[0])] += 1;
                assert!((seen[0] - seen[1]).abs() <= 10, "{seen:?}");
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
            let received = batch.receive(Duration::from_secs(5), &mut |_, _| ()).unwrap();
            assert_eq!((received.datagrams, received.emptied), (20, false), "{len} bytes each");
        }
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
                let some = batch.receive(Duration::from_millis(20), &mut |_, _| ()).unwrap();
                received.datagrams += some.datagrams;
                received.kernel_drops += some.kernel_drops;
                if some.datagrams == 0 {
                    return received;
                }
            };
            drain(&mut batch);
            // The kernel reports the count with the next datagram.
            sender.send_to(&run, &address.into()).unwrap();
            let Received { datagrams, kernel_drops, .. } = drain(&mut batch);
            let sent = (runs + 1) * segments;
            assert!(kernel_drops > sent / 4, "{kernel_drops} of {sent} dropped");
            let told = (datagrams + kernel_drops) as f64;
            assert!((told - sent as f64).abs() <= tolerance * sent as f64, "{told} of {sent}");
        }
    }

    #[test]
    fn buffers_begin_in_different_sets_of_the_first_cache() {
        // 64 sets of lines of 64 bytes.
        let set = |buffer| buffer * STRIDE / 64 % 64;
        let sets: std::collections::HashSet<usize> = (0..BATCH).map(set).collect();
        assert_eq!(sets.len(), BATCH);
    }

    #[test]
    fn errors_name_the_port_the_address_and_the_interface() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let error = open(&[address], &[], 4096).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("has this port"), "{error}");
        let foreign = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 7), 7148);
        let error = open(&[foreign], &[], 4096).unwrap_err().to_string();
        assert!(error.contains("203.0.113.7"), "{error}");
        let error = open(&[address], &["no-such0".to_owned()], 4096).unwrap_err().to_string();
        assert!(error.contains("no-such0"), "{error}");
    }
}
