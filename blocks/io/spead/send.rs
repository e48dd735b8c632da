//! Batched UDP send: many packets per system call, segmented by the kernel or the network interface if
//! supported.
#![allow(unsafe_code)] // sendmmsg and its control messages have no safe interface.

use super::address;
use super::packet::Head;
use fxgraph::BlockError;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;

/// Largest number of packets in one call of [`Sender::send`]; older kernels do not segment 64 at once.
pub const MAX_PACKETS: usize = 60;
/// Largest number of bytes that the kernel segments at once.
const MAX_COALESCED: usize = 65_000;
/// Control words of a message: a header and one 16-bit segment size.
const CONTROL_WORDS: usize = 4;

/// Bytes of packets of one heap sent at once, between two readings of the clock.
const BURST_BYTES: usize = 1 << 16;
/// Largest number of these packets.
const BURST_PACKETS: usize = 32;

/// One packet to send: its destination, its head, and a reference to its payload.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// Destination.
    pub to: SocketAddrV4,
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

/// Sends `packets` with the socket of a started sink; returns the number that the kernel accepted, 0 if the socket buffer
/// is full.
///
/// # Errors
/// If the sink was not started, or if the socket fails.
pub fn send(sender: Option<&mut Sender>, packets: &[Outgoing<'_>]) -> Result<usize, BlockError> {
    let sender = sender.ok_or_else(|| BlockError::new("the sink was not started"))?;
    sender.send(packets).map_err(|error| {
        let to = packets.first().map(|packet| packet.to.to_string()).unwrap_or_default();
        BlockError::new(format!("cannot send to {to}: {error}")).because(error)
    })
}

/// Packets that were sent together.
pub struct Burst {
    /// Their number.
    pub packets: usize,
    /// Bytes, headers included.
    pub bytes: usize,
    /// Bytes of payload.
    pub payload_bytes: usize,
}

impl Burst {
    /// Sums up `packets`.
    #[must_use]
    pub fn of(packets: &[Outgoing<'_>]) -> Self {
        Self {
            packets: packets.len(),
            bytes: packets.iter().map(Outgoing::len).sum(),
            payload_bytes: packets.iter().map(|packet| packet.payload.len()).sum(),
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
    let sent = send(sender, &packets[..count])?;
    Ok(Burst::of(&packets[..sent]))
}

/// A socket that sends to any destination.
pub struct Sender {
    socket: Socket,
    coalesce: bool,
}

impl Sender {
    /// Opens a socket that sends from `interface`, with `ttl` for multicast.
    pub fn open(interface: Option<&str>, ttl: u32) -> Result<Self, BlockError> {
        let ip = interface
            .map(|name| address::interface(name).map_err(|e| BlockError::new(e.to_string())))
            .transpose()?;
        let socket = open(ip, ttl)
            .map_err(|error| BlockError::new("cannot open a socket to send from").because(error))?;
        Ok(Self { socket, coalesce: true })
    }

    /// Duplicates the socket for another thread: receivers see one sender.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn duplicate(&self) -> Result<Self, BlockError> {
        let socket = self.socket.try_clone();
        let socket =
            socket.map_err(|error| BlockError::new("cannot duplicate a socket").because(error))?;
        Ok(Self { socket, coalesce: self.coalesce })
    }

    /// Disables segmentation by the kernel: every packet is sent as a datagram of its own, as from a sender
    /// without this feature.
    pub fn send_singly(&mut self) {
        self.coalesce = false;
    }

    /// Sends up to [`MAX_PACKETS`] of `packets`; returns the number that the kernel accepted, 0 if the socket buffer is
    /// full. Packets of equal length that follow each other to one destination cost little more than one.
    pub fn send(&mut self, packets: &[Outgoing<'_>]) -> io::Result<usize> {
        loop {
            match self.try_send(&packets[..packets.len().min(MAX_PACKETS)]) {
                // Without support for segmentation, the kernel returns one of these errors.
                Err(error) if self.coalesce && cannot_coalesce(&error) => self.coalesce = false,
                Err(error) if no_room(&error) => return Ok(0),
                result => return result,
            }
        }
    }

    fn try_send(&self, packets: &[Outgoing<'_>]) -> io::Result<usize> {
        // SAFETY: these are plain integers and pointers, for which all zeros is a value.
        let (mut iovecs, mut headers, mut names): (
            [libc::iovec; 2 * MAX_PACKETS],
            [libc::mmsghdr; MAX_PACKETS],
            [libc::sockaddr_in; MAX_PACKETS],
        ) = unsafe { zeroed() };
        let mut control = [[0_u64; CONTROL_WORDS]; MAX_PACKETS];
        let mut counts = [0; MAX_PACKETS];
        for (iovecs, packet) in iovecs.as_chunks_mut::<2>().0.iter_mut().zip(packets) {
            for (iovec, part) in iovecs.iter_mut().zip([packet.head.as_bytes(), packet.payload]) {
                iovec.iov_base = part.as_ptr().cast_mut().cast();
                iovec.iov_len = part.len();
            }
        }
        let (mut messages, mut first) = (0, 0);
        while first < packets.len() {
            let run = self.run(&packets[first..]);
            let to = packets[first].to;
            names[messages] = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
                sin_zero: [0; 8],
            };
            let header = &mut headers[messages].msg_hdr;
            header.msg_name = (&raw mut names[messages]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_iov = iovecs[2 * first..].as_mut_ptr();
            header.msg_iovlen = (2 * run) as _;
            if run > 1 {
                set_segment(header, &mut control[messages], packets[first].len() as u16);
            }
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

fn open(interface: Option<Ipv4Addr>, ttl: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    if let Some(ip) = interface {
        socket.bind(&SocketAddrV4::new(ip, 0).into())?;
        socket.set_multicast_if_v4(&ip)?;
    }
    socket.set_multicast_ttl_v4(ttl)?;
    socket.set_multicast_loop_v4(true)?;
    // A smaller buffer still works, with more waiting.
    let _ = socket.set_send_buffer_size(4 << 20);
    Ok(socket)
}

fn set_segment(header: &mut libc::msghdr, control: &mut [u64; CONTROL_WORDS], bytes: u16) {
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: `control` has room for one message with a 16-bit value (24 of its 32 bytes), is
    // aligned for its header, and outlives `header`'s use.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
        if let Some(message) = libc::CMSG_FIRSTHDR(header).as_mut() {
            message.cmsg_level = libc::SOL_UDP;
            message.cmsg_type = libc::UDP_SEGMENT;
            message.cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            *libc::CMSG_DATA(message).cast::<[u8; 2]>() = bytes.to_ne_bytes();
        }
    }
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
