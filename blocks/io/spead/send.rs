//! Batched UDP send: many packets per system call, segmented by the kernel or the network interface if
//! supported.
#![allow(unsafe_code)] // sendmmsg and its control messages have no safe interface.

use super::outage::{Cause, Exit, Source};
use super::packet::Head;
use crate::common::net::family::{self, Family, needs_scope};
use fxgraph::{BlockError, Env, Patience};
use socket2::Socket;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest number of packets in one call of [`Sender::send`]; older kernels do not segment 64 at once.
pub const MAX_PACKETS: usize = 60;
/// Largest number of bytes that the kernel segments at once.
const MAX_COALESCED: usize = 65_000;
/// Control words of a message: source address and interface, and one 16-bit segment size, each with a header.
const CONTROL_WORDS: usize = 8;
/// Longest time for which the send buffer may be full before packets are dropped.
const FULL: Duration = Duration::from_secs(1);

/// Bytes of packets of one heap sent at once, between two readings of the clock.
const BURST_BYTES: usize = 1 << 16;
/// Largest number of these packets.
const BURST_PACKETS: usize = 32;

/// One packet to send: its destination, its head, and a reference to its payload.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// Destination.
    pub to: SocketAddr,
    /// Header and item pointers.
    pub head: Head,
    /// Payload.
    pub payload: &'a [u8],
}

impl Outgoing<'_> {
    /// Returns the length of the datagram in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.as_bytes().len() + self.payload.len()
    }

    /// Returns `false`: there is always a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Sends `packets` with the socket of a started sink; returns those that the kernel accepted or that were dropped, none
/// if the socket buffer is full.
///
/// # Errors
/// If the sink was not started, or if the socket fails.
pub fn send(sender: Option<&mut Sender>, packets: &[Outgoing<'_>]) -> Result<Burst, BlockError> {
    let sender = sender.ok_or_else(|| BlockError::new("the sink was not started"))?;
    sender.send(packets).map_err(|error| {
        let to = packets.first().map(|packet| packet.to.to_string()).unwrap_or_default();
        // The kernel sends nothing from a loopback address to another host.
        let message = match (error.raw_os_error(), sender.exit.source()) {
            (Some(libc::EINVAL), Some(Source { ip, .. })) => format!(
                "cannot send to {to} from {ip}: its interface does not lead there; set `interface` to one that does"
            ),
            _ => format!("cannot send to {to}: {error}"),
        };
        BlockError::new(message).because(error)
    })
}

/// Packets that were sent, or dropped, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// Number of packets sent and dropped.
    pub packets: usize,
    /// Number of packets dropped because the network takes none.
    pub dropped: usize,
    /// Bytes sent, headers included.
    pub bytes: usize,
    /// Bytes of payload sent and dropped.
    pub payload_bytes: usize,
}

impl Burst {
    /// Number of packets sent.
    #[must_use]
    pub fn sent(&self) -> usize {
        self.packets - self.dropped
    }

    fn add(&mut self, packets: &[Outgoing<'_>], are_sent: bool) {
        self.packets += packets.len();
        self.payload_bytes += packets.iter().map(|packet| packet.payload.len()).sum::<usize>();
        if are_sent {
            self.bytes += packets.iter().map(Outgoing::len).sum::<usize>();
        } else {
            self.dropped += packets.len();
        }
    }
}

/// Sends the next packets of a heap: those at the offsets `done`, `done + size`, ... below `end`, which
/// `packet` makes.
///
/// # Errors
/// Like [`send`].
pub fn send_burst<'a>(
    sender: Option<&mut Sender>,
    (done, end, size): (usize, usize, usize),
    packet: impl Fn(usize) -> Outgoing<'a>,
) -> Result<Burst, BlockError> {
    let first = packet(done);
    let most = (BURST_BYTES / first.len()).clamp(1, BURST_PACKETS);
    let mut packets = [first; BURST_PACKETS];
    let mut count = 0;
    for (slot, at) in packets[..most].iter_mut().zip((done..end).step_by(size)) {
        *slot = packet(at);
        count += 1;
    }
    send(sender, &packets[..count])
}

/// A socket that sends to any destination. Source address and interface are given with each message: the socket keeps
/// its port, by which receivers know the sender, when the interface is made again or gets another address.
pub struct Sender {
    socket: Socket,
    coalesce: bool,
    exit: Arc<Exit>,
    /// Counts the time in which the socket buffer is full.
    full: Patience,
}

impl Sender {
    /// Opens a socket of `family` that sends from `interface`, with `ttl` for multicast. Every error of the network ends
    /// it.
    ///
    /// # Errors
    /// If the interface does not exist or has no address of `family`.
    pub fn open(family: Family, interface: Option<&str>, ttl: u32) -> Result<Self, BlockError> {
        Self::of(Exit::new(family, interface, None)?, family, ttl)
    }

    /// Opens the socket of the block of `env`, which survives outages of the network: packets are dropped meanwhile, counted
    /// and reported.
    ///
    /// # Errors
    /// If the interface does not exist or has no address of `family`.
    pub fn lasting(
        family: Family,
        interface: Option<&str>,
        ttl: u32,
        env: &Env,
    ) -> Result<Self, BlockError> {
        Self::of(Exit::new(family, interface, Some(env))?, family, ttl)
    }

    fn of(exit: Exit, family: Family, ttl: u32) -> Result<Self, BlockError> {
        let socket = open(family, ttl).map_err(|error| {
            BlockError::new(format!("cannot open a socket to send from by {family}")).because(error)
        })?;
        Ok(Self { socket, coalesce: true, exit: Arc::new(exit), full: Patience::new(FULL) })
    }

    /// Duplicates the socket for another thread: receivers see one sender.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn duplicate(&self) -> Result<Self, BlockError> {
        let socket = self.socket.try_clone();
        let socket =
            socket.map_err(|error| BlockError::new("cannot duplicate a socket").because(error))?;
        let exit = Arc::clone(&self.exit);
        Ok(Self { socket, coalesce: self.coalesce, exit, full: Patience::new(FULL) })
    }

    /// Disables segmentation by the kernel: every packet is sent as a datagram of its own, as from a sender
    /// without this feature.
    pub fn send_singly(&mut self) {
        self.coalesce = false;
    }

    /// Sends up to [`MAX_PACKETS`] of `packets`; returns those that the kernel accepted, none if the socket buffer is
    /// full, and those that were dropped before them. Packets of equal length that follow each other to one destination
    /// cost little more than one.
    pub fn send(&mut self, packets: &[Outgoing<'_>]) -> io::Result<Burst> {
        let packets = &packets[..packets.len().min(MAX_PACKETS)];
        let mut burst = Burst::default();
        while burst.packets < packets.len() {
            let rest = &packets[burst.packets..];
            let error = match self.try_send(rest) {
                Ok(count) => {
                    self.full.renew();
                    self.exit.sent();
                    burst.add(&rest[..count], true);
                    break;
                }
                Err(error) => error,
            };
            let now = Instant::now();
            if no_room(&error) {
                if self.full.left(now).is_none() && self.exit.survives() {
                    self.exit.dropped(rest.len() as u64, Cause::Full, now, || error.to_string());
                    burst.add(rest, false);
                }
                break;
            }
            if self.exit.has_changed(now) {
                continue;
            }
            match self.exit.passes(&error) {
                Some(cause) => {
                    // The error is that of the first message: others may have another destination.
                    let lost = &rest[..self.run(rest)];
                    let why = || format!("cannot send to {}: {error}", rest[0].to);
                    self.exit.dropped(lost.len() as u64, cause, now, why);
                    burst.add(lost, false);
                }
                // Without support for segmentation, the kernel returns one of these errors.
                None if self.coalesce && cannot_coalesce(&error) => self.coalesce = false,
                // The next call reports it.
                None if burst.packets > 0 => break,
                None => return Err(error),
            }
        }
        Ok(burst)
    }

    fn try_send(&self, packets: &[Outgoing<'_>]) -> io::Result<usize> {
        // SAFETY: these are plain integers and pointers, for which all zeros is a value.
        let (mut iovecs, mut headers, mut names): (
            [libc::iovec; 2 * MAX_PACKETS],
            [libc::mmsghdr; MAX_PACKETS],
            [libc::sockaddr_in6; MAX_PACKETS],
        ) = unsafe { zeroed() };
        let mut control = [[0_u64; CONTROL_WORDS]; MAX_PACKETS];
        let mut counts = [0; MAX_PACKETS];
        for (iovecs, packet) in iovecs.as_chunks_mut::<2>().0.iter_mut().zip(packets) {
            for (iovec, part) in iovecs.iter_mut().zip([packet.head.as_bytes(), packet.payload]) {
                iovec.iov_base = part.as_ptr().cast_mut().cast();
                iovec.iov_len = part.len();
            }
        }
        let source = self.exit.source();
        let (mut messages, mut first) = (0, 0);
        while first < packets.len() {
            let run = self.run(&packets[first..]);
            let to = on_link(packets[first].to, source);
            let name_len;
            (names[messages], name_len) = family::name(to);
            let header = &mut headers[messages].msg_hdr;
            header.msg_name = (&raw mut names[messages]).cast();
            header.msg_namelen = name_len;
            header.msg_iov = iovecs[2 * first..].as_mut_ptr();
            header.msg_iovlen = (2 * run) as _;
            let segment = (run > 1).then_some(packets[first].len() as u16);
            let source = source.map(|Source { ip, index }| {
                // The route chooses the interface to a host, unless there is no route without the interface.
                let is_bound = to.ip().is_multicast() || needs_scope(ip) || ip.is_unspecified();
                Source { ip, index: if is_bound { index } else { 0 } }
            });
            set_control(header, &mut control[messages], source, segment);
            counts[messages] = run;
            messages += 1;
            first += run;
        }
        // SAFETY: the first `messages` headers point at a name, iovecs and control buffers of the
        // sizes given; all of them, and the packets' bytes, outlive the call and are only read.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                messages as u32,
                libc::MSG_DONTWAIT as _,
            )
        };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        Ok(counts[..sent].iter().sum())
    }

    /// Returns the number of `packets` in one message: to one destination and of equal length, the last may be shorter.
    fn run(&self, packets: &[Outgoing<'_>]) -> usize {
        let (to, size) = (packets[0].to, packets[0].len());
        if !self.coalesce {
            return 1;
        }
        let most = (MAX_COALESCED / size).clamp(1, packets.len());
        let equal = packets[..most].iter().take_while(|p| p.to == to && p.len() == size).count();
        let shorter = equal < most && packets[equal].to == to && packets[equal].len() < size;
        equal + usize::from(shorter)
    }
}

fn open(family: Family, ttl: u32) -> io::Result<Socket> {
    let socket = family.socket()?;
    socket.bind(&SocketAddr::new(family.unspecified(), 0).into())?;
    family.set_multicast(&socket, ttl)?;
    // A smaller buffer still works, with more waiting.
    let _ = socket.set_send_buffer_size(4 << 20);
    Ok(socket)
}

/// Returns `to`, with the interface of `source` if it is link-local and names none.
fn on_link(to: SocketAddr, source: Option<Source>) -> SocketAddr {
    match (to, source) {
        (SocketAddr::V6(mut v6), Some(source)) if v6.scope_id() == 0 && needs_scope(to.ip()) => {
            v6.set_scope_id(source.index);
            v6.into()
        }
        _ => to,
    }
}

/// Gives `header` the source address and interface, and the bytes of a segment, of its packets.
fn set_control(
    header: &mut libc::msghdr,
    control: &mut [u64; CONTROL_WORDS],
    source: Option<Source>,
    segment: Option<u16>,
) {
    let mut used = 0;
    if let Some(Source { ip, index }) = source {
        used += match ip {
            IpAddr::V4(ip) => {
                let source = libc::in_pktinfo {
                    ipi_ifindex: index.cast_signed(),
                    ipi_spec_dst: libc::in_addr { s_addr: ip.to_bits().to_be() },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                put(&mut control[used..], (libc::IPPROTO_IP, libc::IP_PKTINFO), source)
            }
            IpAddr::V6(ip) => {
                let source = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                    ipi6_ifindex: index,
                };
                put(&mut control[used..], (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), source)
            }
        };
    }
    if let Some(bytes) = segment {
        used += put(&mut control[used..], (libc::SOL_UDP, libc::UDP_SEGMENT), bytes);
    }
    if used > 0 {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control[..used]) as _;
    }
}

/// Writes a control message with `value`, a structure without padding; returns the words that it takes.
fn put<T>(control: &mut [u64], (level, kind): (i32, i32), value: T) -> usize {
    let bytes = size_of::<T>() as u32;
    // SAFETY: no pointers.
    let (len, space) = unsafe { (libc::CMSG_LEN(bytes), libc::CMSG_SPACE(bytes) as usize) };
    assert!(space <= size_of_val(control) && space.is_multiple_of(8));
    let message = control.as_mut_ptr().cast::<libc::cmsghdr>();
    // SAFETY: `control` has room for the message with its header, and is aligned for both.
    unsafe {
        (*message).cmsg_len = len as _;
        (*message).cmsg_level = level;
        (*message).cmsg_type = kind;
        libc::CMSG_DATA(message).cast::<T>().write_unaligned(value);
    }
    space / 8
}

fn cannot_coalesce(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE | libc::EOPNOTSUPP | libc::ENOPROTOOPT)
    )
}

fn no_room(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ECONNREFUSED)
    )
}
