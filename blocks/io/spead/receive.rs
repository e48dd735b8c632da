//! Batched UDP receive: many datagrams per system call, coalesced by the kernel if it supports that.
#![allow(unsafe_code)] // recvmmsg, poll and their control messages have no safe interface.

use super::address;
use fxgraph::BlockError;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
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
/// Bytes that are read of each run whose payload is not needed: a header and its item pointers.
pub const HEAD_BYTES: usize = 256;
/// Largest number of bytes that one system call cuts off.
pub const MOST_SKIMMED: usize = BATCH_OF_RUNS * BUFFER_BYTES;
/// Least number of bytes that a datagram counts in its socket's turn: an empty datagram costs time, too.
const LEAST_CHARGE: u64 = 2 << 10;
/// Longest pause after the sockets are empty: waking costs more than receiving a datagram.
const LONGEST_NAP: Duration = Duration::from_micros(500);
/// Shortest pause worth sleeping: timers are some 50 us late.
const SHORTEST_NAP: Duration = Duration::from_micros(50);
/// Highest rate at which data may arrive during a pause, in bytes per second: 100 Gbit/s.
const FASTEST: f64 = 12.5e9;
/// Socket option that reads the memory of a socket (`asm-generic/socket.h`, Linux 4.12).
const SO_MEMINFO: i32 = 55;
/// Sockets per system call in [`has_data`].
const POLLED: usize = 32;
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
        open_one(*address, interface, buffer_bytes, false)
            .map_err(|error| BlockError::new(cannot_listen(*address, &error)).because(error))
    };
    addresses.iter().enumerate().map(open).collect()
}

/// Opens the sockets of `threads` threads, at most one per address and thread: with fewer threads than
/// addresses, threads have several addresses in turn; with more, unicast addresses have several sockets in
/// turn. The kernel divides the datagrams to one address among its sockets by their sender (address and
/// port), so the datagrams of a sender stay in order. Multicast groups cannot be divided: each socket of a
/// group gets all its datagrams.
pub fn open_divided(
    threads: usize,
    addresses: &[SocketAddrV4],
    interfaces: &[String],
    buffer_bytes: usize,
) -> Result<Vec<Vec<Socket>>, BlockError> {
    let threads = threads.max(1);
    let mut divided: Vec<Vec<Socket>> = (0..threads).map(|_| Vec::new()).collect();
    if threads <= addresses.len() {
        for (i, socket) in open(addresses, interfaces, buffer_bytes)?.into_iter().enumerate() {
            divided[i % threads].push(socket);
        }
        return Ok(divided);
    }
    for (i, address) in addresses.iter().enumerate() {
        let sharing = (i..threads).step_by(addresses.len());
        let sockets = open_shared(*address, sharing.len(), buffer_bytes)
            .map_err(|error| BlockError::new(cannot_listen(*address, &error)).because(error))?;
        for (thread, socket) in sharing.zip(sockets) {
            divided[thread].push(socket);
        }
    }
    Ok(divided)
}

/// Opens `count` sockets of one unicast address.
fn open_shared(
    address: SocketAddrV4,
    count: usize,
    buffer_bytes: usize,
) -> io::Result<Vec<Socket>> {
    if count > 1 && address.ip().is_multicast() {
        return Err(io::Error::other("a multicast group cannot be divided among sockets"));
    }
    // Fails if another program has the port: it could share the port, and get part of the stream.
    let alone = open_one(address, Ipv4Addr::UNSPECIFIED, buffer_bytes, false)?;
    if count == 1 {
        return Ok(vec![alone]);
    }
    drop(alone);
    (0..count).map(|_| open_one(address, Ipv4Addr::UNSPECIFIED, buffer_bytes, true)).collect()
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

/// Binds `address` with a socket that no thread reads, and joins its group on interface number `interface`: the address
/// is this program's, and switches deliver the group.
pub(super) fn reserve(address: SocketAddrV4, interface: u32) -> Result<Socket, BlockError> {
    let open = || {
        let socket = bind(address, false)?;
        let _ = socket.set_recv_buffer_size(0);
        if address.ip().is_multicast() {
            let interface = InterfaceIndexOrAddress::Index(interface);
            socket.join_multicast_v4_n(address.ip(), &interface)?;
        }
        Ok(socket)
    };
    open().map_err(|error| BlockError::new(cannot_listen(address, &error)).because(error))
}

/// Binds `address`. `is_shared`: further sockets get the same address.
fn bind(address: SocketAddrV4, is_shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(is_shared)?;
    if address.ip().is_multicast() {
        // Several receivers may share a group; a socket bound to the group gets no other packets.
        socket.set_reuse_address(true)?;
        socket.set_multicast_all_v4(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn open_one(
    address: SocketAddrV4,
    interface: Ipv4Addr,
    buffer_bytes: usize,
    is_shared: bool,
) -> io::Result<Socket> {
    let socket = bind(address, is_shared)?;
    if address.ip().is_multicast() {
        socket.join_multicast_v4(address.ip(), &interface)?;
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

/// Returns the longest pause of a receiving thread in which no buffer of `bytes` fills more than a quarter, if that is
/// long enough for a sleep.
pub(super) fn nap(bytes: usize) -> Option<Duration> {
    let nap = Duration::from_secs_f64(bytes as f64 / 4.0 / FASTEST).min(LONGEST_NAP);
    (nap >= SHORTEST_NAP).then_some(nap)
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

/// Whether one of `sockets` has data that no thread has read.
#[must_use]
pub fn has_data(sockets: &[Socket]) -> bool {
    sockets.chunks(POLLED).any(|sockets| {
        let mut polls = [const { libc::pollfd { fd: -1, events: 0, revents: 0 } }; POLLED];
        for (poll, socket) in polls.iter_mut().zip(sockets) {
            (poll.fd, poll.events) = (socket.as_raw_fd(), libc::POLLIN);
        }
        // SAFETY: `polls` has at least as many elements as `sockets`.
        unsafe { libc::poll(polls.as_mut_ptr(), sockets.len() as libc::nfds_t, 0) > 0 }
    })
}

/// Returns the used fraction of the receive buffer of `socket`.
#[must_use]
pub fn fill(socket: &Socket) -> f32 {
    let mut info = [0_u32; libc::SK_MEMINFO_DROPS as usize + 1];
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` has `len` bytes.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    let [used, size] = [libc::SK_MEMINFO_RMEM_ALLOC, libc::SK_MEMINFO_RCVBUF]
        .map(|variable| info[variable as usize]);
    if rc == 0 { used as f32 / size.max(1) as f32 } else { 0.0 }
}

/// A message of the kernel: one datagram, or a run of datagrams of one sender.
#[derive(Clone, Copy)]
struct Message {
    len: usize,
    /// Length of all datagrams of the run but the last one.
    segment: usize,
    sender: SocketAddrV4,
}

/// Position of the payload of a datagram in the memory of an AF_XDP socket.
pub(super) struct Place {
    /// Whether the packet was joined from several parts, in memory of its own.
    pub is_joined: bool,
    pub start: usize,
    pub len: usize,
    pub sender: SocketAddrV4,
}

/// Datagrams that were read together, with their senders.
pub struct Datagrams<'a>(Source<'a>);

enum Source<'a> {
    /// Messages of a system call.
    Messages {
        buffers: std::slice::ChunksExact<'a, u8>,
        messages: std::slice::Iter<'a, Message>,
        /// Datagrams of the present message that are left.
        run: std::slice::Chunks<'a, u8>,
        sender: SocketAddrV4,
    },
    /// Packets of an AF_XDP socket.
    Places { places: std::slice::Iter<'a, Place>, bytes: &'a dyn Fn(&Place) -> &'a [u8] },
}

impl<'a> Datagrams<'a> {
    fn new(buffers: &'a [u8], messages: &'a [Message]) -> Self {
        let sender = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Self(Source::Messages {
            buffers: buffers.chunks_exact(STRIDE),
            messages: messages.iter(),
            run: [].chunks(1),
            sender,
        })
    }

    pub(super) fn of_places(places: &'a [Place], bytes: &'a dyn Fn(&Place) -> &'a [u8]) -> Self {
        Self(Source::Places { places: places.iter(), bytes })
    }
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = (&'a [u8], SocketAddrV4);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Source::Places { places, bytes } => {
                let place = places.next()?;
                Some((bytes(place), place.sender))
            }
            Source::Messages { buffers, messages, run, sender } => {
                if let Some(datagram) = run.next() {
                    return Some((datagram, *sender));
                }
                let (message, buffer) = messages.next().zip(buffers.next())?;
                *sender = message.sender;
                *run = buffer[..message.len].chunks(message.segment);
                // An empty datagram is a datagram.
                Some((run.next().unwrap_or_default(), *sender))
            }
        }
    }
}

/// Receiver of the datagrams that a [`Batch`] reads.
pub trait Reader {
    /// Notes that the thread waits for data now.
    fn waiting(&mut self) {}
    /// Notes that the thread reads a socket now.
    fn reading(&mut self) {}
    /// Notes the used fraction of the fullest receive buffer.
    fn filled(&mut self, _fraction: f32) {}
    /// Processes the datagrams of one system call. Returns whether the payload of the next ones is not needed.
    fn take(&mut self, datagrams: Datagrams<'_>) -> bool;
    /// Processes those of a system call of which only the first [`HEAD_BYTES`] bytes were read: of the first datagram
    /// of each run, all others of the run being cut off. Returns whether the payload of the next ones is not needed.
    fn skim(&mut self, heads: Datagrams<'_>) -> bool {
        self.take(heads)
    }
}

impl<F: FnMut(Datagrams<'_>)> Reader for F {
    fn take(&mut self, datagrams: Datagrams<'_>) -> bool {
        self(datagrams);
        false
    }
}

/// Buffers for receiving in batches. Lives on the receiving thread.
pub struct Batch {
    /// `BATCH` buffers, `STRIDE` apart; untouched pages of an unused buffer cost nothing.
    buffers: Vec<u8>,
    control: Vec<[u64; CONTROL_WORDS]>,
    names: Vec<libc::sockaddr_in>,
    messages: Vec<Message>,
    polls: Vec<libc::pollfd>,
    /// Last drop count from the kernel, per socket; and recent mean number of datagrams per message.
    drops: Vec<u32>,
    run_datagrams: Vec<f64>,
    sockets: Vec<Socket>,
    /// Used fraction of the receive buffers, 0 for a socket that was read until it was empty.
    fills: Vec<f32>,
    /// Whether only the heads of the next datagrams are needed, per socket.
    skims: Vec<bool>,
    /// Messages per call at present.
    most_messages: usize,
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

impl Received {
    /// Returns the bytes that these datagrams count in the turn of their socket.
    #[must_use]
    pub fn charge(&self) -> u64 {
        self.bytes.max(self.datagrams * LEAST_CHARGE)
    }
}

impl Batch {
    /// Creates buffers for `sockets`. When several sockets are read after a pause, their streams get out
    /// of step by at most about `in_step_bytes` in total.
    #[must_use]
    pub fn new(sockets: Vec<Socket>, in_step_bytes: usize) -> Self {
        // SAFETY: a sockaddr_in is plain integers, for which all zeros is a value.
        let name: libc::sockaddr_in = unsafe { zeroed() };
        let room = sockets.iter().map(|s| s.recv_buffer_size().unwrap_or(0)).min().unwrap_or(0);
        let poll =
            |s: &Socket| libc::pollfd { fd: s.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let polls = sockets.iter().map(poll).collect();
        Self {
            buffers: vec![0; BATCH * STRIDE],
            control: vec![[0; CONTROL_WORDS]; BATCH],
            names: vec![name; BATCH],
            drops: vec![0; sockets.len()],
            run_datagrams: vec![0.0; sockets.len()],
            turn_bytes: in_step_bytes / sockets.len().max(1),
            fills: vec![0.0; sockets.len()],
            skims: vec![false; sockets.len()],
            sockets,
            messages: Vec::with_capacity(BATCH),
            polls,
            most_messages: BATCH,
            nap: nap(room),
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

    /// Waits up to `timeout` for datagrams, and gives some of them to `reader`: about the same number of
    /// bytes from each socket.
    pub fn receive(&mut self, timeout: Duration, reader: &mut dyn Reader) -> io::Result<Received> {
        if let Some(nap) = self.nap.filter(|_| self.emptied) {
            reader.waiting();
            std::thread::sleep(nap);
        }
        let mut total = Received::default();
        if self.sockets.len() == 1 {
            // One socket: read without polling first, which saves a system call for every batch of a
            // busy stream.
            total.emptied = self.receive_from(0, BATCH, reader, &mut total)?;
            if total.datagrams > 0 {
                self.emptied = total.emptied;
                return Ok(total);
            }
        }
        total.emptied = true;
        reader.waiting();
        self.poll(timeout)?;
        for index in 0..self.sockets.len() {
            if self.polls[index].revents != 0 {
                total.emptied &= self.take_turn(index, reader, &mut total)?;
            }
        }
        self.emptied = total.emptied && total.datagrams > 0;
        Ok(total)
    }

    /// Reads one socket for its turn; returns whether the socket is empty.
    fn take_turn(
        &mut self,
        index: usize,
        reader: &mut dyn Reader,
        total: &mut Received,
    ) -> io::Result<bool> {
        let mut left = self.turn_bytes;
        loop {
            // A turn counts bytes, not messages: the number of datagrams per message varies.
            let messages = left.div_ceil(BUFFER_BYTES).clamp(1, BATCH);
            let before = *total;
            let emptied = self.receive_from(index, messages, reader, total)?;
            left = left.saturating_sub((total.charge() - before.charge()) as usize);
            if emptied || left == 0 {
                return Ok(emptied);
            }
        }
    }

    /// Waits up to `timeout` until a socket has data, and notes which ones have.
    fn poll(&mut self, timeout: Duration) -> io::Result<()> {
        let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let len = self.polls.len() as libc::nfds_t;
        // SAFETY: `polls` is a valid array of the length given.
        let rc = unsafe { libc::poll(self.polls.as_mut_ptr(), len, millis) };
        if rc < 0 {
            self.polls.iter_mut().for_each(|poll| poll.revents = 0);
            return retry_later(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Reads up to `most` messages; returns whether the socket is empty.
    fn receive_from(
        &mut self,
        index: usize,
        most: usize,
        reader: &mut dyn Reader,
        total: &mut Received,
    ) -> io::Result<bool> {
        let skims = self.skims[index];
        let most = if skims { most.min(BATCH_OF_RUNS) } else { most };
        let messages = self.most_messages.min(most);
        let (room, flags) = if skims { (HEAD_BYTES, libc::MSG_TRUNC) } else { (BUFFER_BYTES, 0) };
        let mut iovecs = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        // SAFETY: an mmsghdr is integers and pointers, for which all zeros is a value.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        for (i, buffer) in self.buffers.chunks_exact_mut(STRIDE).take(messages).enumerate() {
            let iovec = iovecs[i]
                .write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: room });
            let header = &mut headers[i].msg_hdr;
            header.msg_iov = iovec;
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut self.names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_control = self.control[i].as_mut_ptr().cast();
            header.msg_controllen = size_of::<[u64; CONTROL_WORDS]>() as _;
        }
        reader.reading();
        // SAFETY: each of the first `messages` headers points at an iovec, a name and a control
        // buffer of the sizes given, all of which live, unmoved, until after the last use of
        // `headers`.
        let count = unsafe {
            libc::recvmmsg(
                self.sockets[index].as_raw_fd(),
                headers.as_mut_ptr(),
                messages as u32,
                (libc::MSG_DONTWAIT | flags) as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return retry_later(io::Error::last_os_error()).map(|()| true);
        };
        let (mut bytes, mut dropped, mut datagrams) = (0, 0, 0);
        self.messages.clear();
        for (header, name) in headers[..count].iter().zip(&self.names) {
            let (segment, drops) = control_messages(&header.msg_hdr);
            if let Some(drops) = drops {
                dropped += u64::from(drops.wrapping_sub(self.drops[index]));
                self.drops[index] = drops;
            }
            let len = (header.msg_len as usize).min(BUFFER_BYTES);
            let segment = if segment == 0 { len.max(1) } else { segment };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            let sender = SocketAddrV4::new(ip, u16::from_be(name.sin_port));
            bytes += len;
            datagrams += len.div_ceil(segment).max(1) as u64;
            let (len, segment) = if skims { (len.min(room), room) } else { (len, segment) };
            self.messages.push(Message { len, segment, sender });
        }
        total.bytes += bytes as u64;
        let is_empty = count < messages;
        self.fills[index] = if is_empty { 0.0 } else { fill(&self.sockets[index]) };
        reader.filled(self.fills.iter().copied().fold(0.0, f32::max));
        if count > 0 {
            let datagrams = Datagrams::new(&self.buffers, &self.messages);
            let next = if skims { reader.skim(datagrams) } else { reader.take(datagrams) };
            self.skims[index] = next;
        }
        total.datagrams += datagrams;
        if count > 0 {
            // The kernel counts a run of coalesced datagrams once; dropped runs are assumed to be as
            // long as received ones.
            let run = &mut self.run_datagrams[index];
            *run += (datagrams as f64 / count as f64 - *run) * if *run == 0.0 { 1.0 } else { 0.25 };
            total.kernel_drops += (dropped as f64 * *run).round() as u64;
        }
        if skims {
            return Ok(is_empty);
        }
        let long = bytes > count * BUFFER_BYTES / 4;
        self.most_messages = if long { BATCH_OF_RUNS } else { BATCH };
        Ok(is_empty)
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
            let received =
                batch.receive(Duration::from_secs(5), &mut |_: Datagrams<'_>| ()).unwrap();
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
    fn addresses_are_divided_among_threads_and_threads_among_addresses() {
        let addresses = [(); 3].map(|()| SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port()));
        let ports = |threads: usize| -> Vec<Vec<usize>> {
            let sockets = open_divided(threads, &addresses, &[], 1 << 16).unwrap();
            let of = |socket: &Socket| {
                let at = socket.local_addr().unwrap().as_socket_ipv4().unwrap();
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
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port());
        let sockets = open_divided(4, &[address], &[], 1 << 20).unwrap();
        let senders = [(); 8].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for i in 0..20_u8 {
            for sender in &senders {
                sender.send_to(&[i; 100], address).unwrap();
            }
        }
        let mut of: std::collections::HashMap<SocketAddrV4, (usize, Vec<u8>)> =
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
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port());
        let first = open_divided(2, &[address], &[], 1 << 16).unwrap();
        for threads in [1, 2] {
            let error = open_divided(threads, &[address], &[], 1 << 16).unwrap_err().to_string();
            assert!(error.contains("has this port"), "{error}");
        }
        drop(first);
        open_divided(2, &[address], &[], 1 << 16).unwrap();
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, 71, 49), free_port());
        let error = open_divided(2, &[group], &[], 1 << 16).unwrap_err().to_string();
        assert!(error.contains("239.255.71.49") && error.contains("divided"), "{error}");
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
