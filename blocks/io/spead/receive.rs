//! Batched UDP receive: many datagrams per system call, coalesced by the kernel if it supports that.
#![allow(unsafe_code)] // recvmmsg, poll and their control messages have no safe interface.

use super::datagrams::{BUFFER_BYTES, Datagrams, Message, STRIDE};
use super::endpoint::Endpoint;
use super::packet::Packet;
use crate::common::net::membership::{Keeper, Reports};
use crate::common::net::sockets::{self, Listener};
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Datagrams (coalesced ones count once) per system call.
const BATCH: usize = 32;
/// Coalesced runs per system call: no more than the second-level cache holds until each has been handled.
const BATCH_OF_RUNS: usize = 8;
/// Average size of messages from which they are long runs.
const SHORT_RUN: usize = BUFFER_BYTES / 4;
/// Bytes that are read of each run whose payload is not needed: a header and up to 31 item pointers.
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
/// Interval at which a thread with several sockets reads the drop count of each.
const COUNT_INTERVAL: Duration = Duration::from_millis(500);
/// Mean number of datagrams per message above which messages are peeked at before their payload is cut off.
const FEWEST_PEEKED: f64 = 2.0;
/// Room for the control messages: segment size and drop count.
const CONTROL_WORDS: usize = 16;
/// Returns the longest pause of a receiving thread in which no buffer of `bytes` fills more than a quarter, if that is
/// long enough for a sleep.
pub(super) fn nap(bytes: usize) -> Option<Duration> {
    let nap = Duration::from_secs_f64(bytes as f64 / 4.0 / FASTEST).min(LONGEST_NAP);
    (nap >= SHORTEST_NAP).then_some(nap)
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
    /// Processes those of a system call of which most were cut off: of a run of packets only the first [`HEAD_BYTES`]
    /// bytes were read. Runs were read whole whose first datagram is malformed or has a long head, or whose last one is
    /// short, as heaps without data are. Returns whether the payload of the next ones is not needed.
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

/// Returns whether `head`, the first bytes of `message`, suffices if its payload is not needed.
fn suffices(head: &[u8], message: &Message) -> bool {
    let Ok((packet, payload_bytes)) = Packet::head(head) else { return false };
    let first_bytes = message.len.min(message.segment);
    let before_payload = head.len() - packet.payload.len();
    // Only the last datagram of a run may be shorter than the others: a heap without data, such as a stop heap.
    let last_bytes = (message.len - 1) % message.segment + 1;
    before_payload as u64 + payload_bytes == first_bytes as u64 && last_bytes > HEAD_BYTES
}

/// Buffers for receiving in batches. Lives on the receiving thread.
pub struct Batch {
    /// `BATCH` buffers, `STRIDE` apart; untouched pages of an unused buffer cost nothing.
    buffers: Vec<u8>,
    control: Vec<[u64; CONTROL_WORDS]>,
    /// Senders of the messages, of either family.
    names: Vec<libc::sockaddr_in6>,
    messages: Vec<Message>,
    /// Bytes to read of each message of a system call.
    limits: Vec<usize>,
    polls: Vec<libc::pollfd>,
    /// Last drop count from the kernel, per socket; and recent mean number of datagrams per message.
    drops: Vec<u32>,
    run_datagrams: Vec<f64>,
    sockets: Vec<Listener>,
    /// Keeps their multicast groups.
    keeper: Keeper,
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
    /// Time at which the drop counts are read again.
    next_count: Instant,
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
    pub fn new(sockets: Vec<Listener>, in_step_bytes: usize) -> Self {
        // SAFETY: a sockaddr_in6 is plain integers, for which all zeros is a value.
        let name: libc::sockaddr_in6 = unsafe { zeroed() };
        let room = sockets.iter().map(|s| s.recv_buffer_size().unwrap_or(0)).min().unwrap_or(0);
        let poll =
            |s: &Listener| libc::pollfd { fd: s.as_raw_fd(), events: libc::POLLIN, revents: 0 };
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
            keeper: Keeper::new(),
            messages: Vec::with_capacity(BATCH),
            limits: Vec::with_capacity(BATCH),
            polls,
            most_messages: BATCH,
            nap: nap(room),
            emptied: false,
            next_count: Instant::now() + COUNT_INTERVAL,
        }
    }

    /// Reports interfaces that are gone or back with `reports`.
    #[must_use]
    pub fn reporting(mut self, reports: Reports) -> Self {
        self.keeper.report(reports);
        self
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
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let address = |socket: &Listener| {
            let address = socket.local_addr()?;
            address.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
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
        let groups = self.sockets.iter_mut().filter_map(Listener::group);
        self.keeper.look(Instant::now(), groups);
        let mut total = Received::default();
        if self.sockets.len() == 1 {
            // One socket: read without polling first, which saves a system call for every batch of a
            // busy stream.
            let message = if self.most_messages == BATCH { SHORT_RUN } else { BUFFER_BYTES };
            let messages = self.turn_bytes.div_ceil(message).clamp(1, BATCH);
            total.emptied = self.receive_from(0, messages, reader, &mut total)?;
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
        // With a datagram comes the count of those dropped before it; after the last one of a socket nothing comes,
        // while other sockets may continue.
        let now = Instant::now();
        if total.datagrams == 0 || now >= self.next_count {
            self.next_count = now + COUNT_INTERVAL;
            for index in 0..self.sockets.len() {
                let dropped = sockets::drops(&self.sockets[index]);
                total.kernel_drops += dropped.map_or(0, |count| self.dropped(index, count));
            }
        }
        self.emptied = total.emptied && total.datagrams > 0;
        Ok(total)
    }

    /// Returns the number of datagrams that the kernel has dropped since the last call, if it has dropped `count`
    /// messages in all.
    fn dropped(&mut self, index: usize, count: u32) -> u64 {
        let dropped = count.wrapping_sub(self.drops[index]);
        // The count of a datagram that waited is older than one read meanwhile.
        if dropped > u32::MAX / 2 {
            return 0;
        }
        self.drops[index] = count;
        // The kernel counts a run of coalesced datagrams once; dropped runs are assumed to be as long as received ones.
        (f64::from(dropped) * self.run_datagrams[index].max(1.0)).round() as u64
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
        self.limits.clear();
        self.limits.resize(messages, if skims { HEAD_BYTES } else { BUFFER_BYTES });
        reader.reading();
        // Peeking at single datagrams would take as long as reading their payload.
        if skims && self.run_datagrams[index] > FEWEST_PEEKED {
            self.peek(index)?;
        }
        let dropped = self.read(index, if skims { libc::MSG_TRUNC } else { 0 })?;
        let count = self.messages.len();
        let (mut bytes, mut datagrams) = (0, 0);
        for (message, limit) in self.messages.iter_mut().zip(&self.limits) {
            bytes += message.len;
            datagrams += message.len.div_ceil(message.segment).max(1) as u64;
            if message.len > *limit {
                (message.len, message.segment) = (*limit, *limit);
            }
        }
        total.bytes += bytes as u64;
        let is_empty = count < messages;
        self.fills[index] = if is_empty { 0.0 } else { sockets::fill(&self.sockets[index]) };
        reader.filled(self.fills.iter().copied().fold(0.0, f32::max));
        if count > 0 {
            let datagrams = Datagrams::new(&self.buffers, &self.messages);
            let next = if skims { reader.skim(datagrams) } else { reader.take(datagrams) };
            self.skims[index] = next;
        }
        total.datagrams += datagrams;
        if count > 0 {
            let run = &mut self.run_datagrams[index];
            *run += (datagrams as f64 / count as f64 - *run) * if *run == 0.0 { 1.0 } else { 0.25 };
            total.kernel_drops += dropped.map_or(0, |count| self.dropped(index, count));
        }
        if skims {
            return Ok(is_empty);
        }
        let long = bytes > count * SHORT_RUN;
        self.most_messages = if long { BATCH_OF_RUNS } else { BATCH };
        Ok(is_empty)
    }

    /// Looks at the next messages of a socket, as many as `limits` has, and sets `limits` to the bytes to read of each
    /// when payload is not needed.
    fn peek(&mut self, index: usize) -> io::Result<()> {
        self.limits.fill(HEAD_BYTES);
        // From here on each message is peeked after the previous one. A kernel without this option shows the first message
        // each time: then more is read than needed, or a stop heap is not seen.
        let _ = sockets::set_option(&self.sockets[index], libc::SOL_SOCKET, libc::SO_PEEK_OFF, 0);
        self.read(index, libc::MSG_PEEK | libc::MSG_TRUNC)?;
        self.limits.clear();
        for (message, buffer) in self.messages.iter().zip(self.buffers.chunks_exact(STRIDE)) {
            let head = &buffer[..message.len.min(HEAD_BYTES)];
            self.limits.push(if suffices(head, message) { HEAD_BYTES } else { BUFFER_BYTES });
        }
        Ok(())
    }

    /// Reads up to as many messages as `limits` has, of each as many bytes as `limits` says, into the buffers. `messages` has
    /// them afterwards; with `MSG_TRUNC` with their full lengths. Returns the drop count, if the kernel reported it.
    fn read(&mut self, index: usize, flags: i32) -> io::Result<Option<u32>> {
        self.messages.clear();
        let mut iovecs = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        // SAFETY: an mmsghdr is integers and pointers, for which all zeros is a value.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let buffers = self.buffers.chunks_exact_mut(STRIDE).zip(&self.limits);
        let mut asked = 0;
        for (i, (buffer, limit)) in buffers.enumerate() {
            let iovec = iovecs[i]
                .write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: *limit });
            let header = &mut headers[i].msg_hdr;
            header.msg_iov = iovec;
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut self.names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_control = self.control[i].as_mut_ptr().cast();
            header.msg_controllen = size_of::<[u64; CONTROL_WORDS]>() as _;
            asked += 1;
        }
        if asked == 0 {
            return Ok(None);
        }
        // SAFETY: each of the first `asked` headers points at an iovec, a name and a control
        // buffer of the sizes given, all of which live, unmoved, until after the last use of
        // `headers`. A limit is at most `BUFFER_BYTES`, less than the distance of the buffers.
        let count = unsafe {
            libc::recvmmsg(
                self.sockets[index].as_raw_fd(),
                headers.as_mut_ptr(),
                asked,
                (libc::MSG_DONTWAIT | flags) as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return retry_later(io::Error::last_os_error()).map(|()| None);
        };
        let mut dropped = None;
        for (header, name) in headers[..count].iter().zip(&self.names) {
            let (segment, drops) = control_messages(&header.msg_hdr);
            dropped = drops.or(dropped);
            let len = (header.msg_len as usize).min(BUFFER_BYTES);
            let segment = if segment == 0 { len.max(1) } else { segment };
            let sender = Endpoint::of_name(name);
            self.messages.push(Message { len, segment, sender });
        }
        Ok(dropped)
    }
}

/// Ignores errors after which receiving continues: no data, a signal, an error caused by an earlier datagram that this
/// host sent, or the state of the network.
fn retry_later(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock
        | io::ErrorKind::Interrupted
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown => Ok(()),
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
mod tests;
