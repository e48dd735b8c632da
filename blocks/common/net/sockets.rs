//! UDP sockets of receivers: opening them, and the state of their buffers.
#![allow(unsafe_code)] // Socket options and poll have no safe interface.

use super::family::{self, Family, needs_scope};
use super::interface::{self, Interface};
use super::membership::Membership;
use fxgraph::BlockError;
use socket2::Socket;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Socket option that reads the memory of a socket (`asm-generic/socket.h`, Linux 4.12).
const SO_MEMINFO: i32 = 55;
/// Sockets per system call in [`has_data`].
const POLLED: usize = 32;
/// Longest wait for sockets that this program has closed.
const RELEASE: Duration = Duration::from_secs(1);

/// A socket of a receiver.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    /// The multicast group that it has joined.
    pub membership: Option<Membership>,
}

impl Listener {
    /// The socket, and the multicast group that it has joined.
    pub fn group(&mut self) -> Option<(&Socket, &mut Membership)> {
        self.membership.as_mut().map(|membership| (&self.socket, membership))
    }
}

impl Deref for Listener {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.socket
    }
}

/// Options of the sockets of a receiver.
#[derive(Clone, Debug, Default)]
pub struct Listening {
    /// Interfaces on which multicast groups are joined in turn, by name or address.
    pub interfaces: Vec<String>,
    /// Senders whose packets to multicast groups are received; empty: all.
    pub sources: Arc<[IpAddr]>,
    /// Size of the receive buffer of each socket.
    pub buffer_bytes: usize,
}

impl Listening {
    /// Options of sockets without source-specific groups.
    #[must_use]
    pub fn on(interfaces: &[String], buffer_bytes: usize) -> Self {
        Self { interfaces: interfaces.to_vec(), sources: Arc::default(), buffer_bytes }
    }
}

/// Checks that each interface exists, and has an address of the families of its addresses.
fn check_interfaces(addresses: &[SocketAddr], listening: &Listening) -> Result<(), BlockError> {
    let count = listening.interfaces.len();
    for (at, name) in listening.interfaces.iter().enumerate() {
        let on_it = addresses.iter().skip(at).step_by(count);
        let families: BTreeSet<Family> = on_it.map(|address| Family::of(address.ip())).collect();
        let found = Interface::find(name).and_then(|_| {
            families.into_iter().try_for_each(|of| Interface::for_stream(name, of).map(drop))
        });
        found.map_err(|error| BlockError::new(error.to_string()))?;
    }
    Ok(())
}

/// Opens one socket per address.
pub fn open(addresses: &[SocketAddr], listening: &Listening) -> Result<Vec<Listener>, BlockError> {
    check_interfaces(addresses, listening)?;
    let mut interfaces = listening.interfaces.iter().cycle();
    let open = |address: &SocketAddr| {
        open_one(*address, interfaces.next().map(String::as_str), listening, false)
            .map_err(|error| BlockError::new(cannot_listen(*address, &error)).because(error))
    };
    addresses.iter().map(open).collect()
}

/// Opens the sockets of `threads` threads, at most one per address and thread: with fewer threads than
/// addresses, threads have several addresses in turn; with more, unicast addresses have several sockets in
/// turn. The kernel divides the datagrams to one address among its sockets by their sender (address and
/// port), so the datagrams of a sender stay in order. Multicast groups cannot be divided: each socket of a
/// group gets all its datagrams.
pub fn open_divided(
    threads: usize,
    addresses: &[SocketAddr],
    listening: &Listening,
) -> Result<Vec<Vec<Listener>>, BlockError> {
    let threads = threads.max(1);
    let mut divided: Vec<Vec<Listener>> = (0..threads).map(|_| Vec::new()).collect();
    if threads <= addresses.len() {
        for (i, socket) in open(addresses, listening)?.into_iter().enumerate() {
            divided[i % threads].push(socket);
        }
        return Ok(divided);
    }
    check_interfaces(addresses, listening)?;
    for (i, address) in addresses.iter().enumerate() {
        let sharing = (i..threads).step_by(addresses.len());
        let interface = listening.interfaces.iter().cycle().nth(i).map(String::as_str);
        let sockets = open_shared(*address, interface, sharing.len(), listening)
            .map_err(|error| BlockError::new(cannot_listen(*address, &error)).because(error))?;
        for (thread, socket) in sharing.zip(sockets) {
            divided[thread].push(socket);
        }
    }
    Ok(divided)
}

/// Opens `count` sockets of one unicast address.
fn open_shared(
    address: SocketAddr,
    interface: Option<&str>,
    count: usize,
    listening: &Listening,
) -> io::Result<Vec<Listener>> {
    if count > 1 && address.ip().is_multicast() {
        return Err(io::Error::other("a multicast group cannot be divided among sockets"));
    }
    // Fails if another program has the port: it could share the port, and get part of the stream.
    let alone = open_one(address, interface, listening, false)?;
    if count == 1 {
        return Ok(vec![alone]);
    }
    drop(alone);
    (0..count).map(|_| open_one(address, interface, listening, true)).collect()
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("cannot listen on {address}: another program or block has this port")
        }
        io::ErrorKind::AddrNotAvailable if !address.ip().is_multicast() => {
            format!("cannot listen on {address}: no interface of this host has that address")
        }
        _ if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            format!("cannot listen on {address}: this kernel has no {}", Family::of(address.ip()))
        }
        _ if error.raw_os_error() == Some(libc::EINVAL) && lacks_scope(address) => {
            format!("cannot listen on {address}, a link-local address: name its interface")
        }
        _ if error.raw_os_error() == Some(libc::ENODEV) && address.ip().is_multicast() => format!(
            "cannot join the multicast group {address}: no route leads to it; name the interface on which its packets arrive"
        ),
        _ if error.raw_os_error() == Some(libc::ENOBUFS) && address.ip().is_multicast() => {
            let limit = match Family::of(address.ip()) {
                Family::V4 => "net.ipv4.igmp_max_msf",
                Family::V6 => "net.ipv6.mld_max_msf",
            };
            format!(
                "cannot join the multicast group {address}: the kernel allows a socket fewer sources; name fewer, or \
                 raise {limit}"
            )
        }
        _ => format!("cannot listen on {address}: {error}"),
    }
}

fn lacks_scope(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.scope_id() == 0 && needs_scope(address.ip()))
}

/// Returns `address`, a link-local one with the number of `interface` if it names none, and the interface of its group:
/// the one that the address names, or else `interface`.
fn on_link(address: SocketAddr, interface: Option<&str>) -> (SocketAddr, Option<String>) {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() > 0 => (address, interface::name(v6.scope_id())),
        SocketAddr::V6(mut v6) if lacks_scope(address) => {
            let found = interface.and_then(|name| Interface::find(name).ok());
            v6.set_scope_id(found.map_or(0, |found| found.index));
            (v6.into(), interface.map(str::to_owned))
        }
        _ => (address, interface.map(str::to_owned)),
    }
}

/// Binds `address` with a socket that no thread reads, and joins its group on interface number `interface`: the address
/// is this program's, and switches deliver the group.
pub fn reserve(address: SocketAddr, interface: u32) -> Result<Socket, BlockError> {
    let open = || {
        let socket = create(address, false)?;
        let _ = socket.set_recv_buffer_size(0);
        bind(&socket, address)?;
        if address.ip().is_multicast() {
            family::join(&socket, address.ip(), interface)?;
        }
        Ok(socket)
    };
    open().map_err(|error| BlockError::new(cannot_listen(address, &error)).because(error))
}

/// Creates a socket for `address`, without binding it. `is_shared`: further sockets get the same address.
fn create(address: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let family = Family::of(address.ip());
    let socket = family.socket()?;
    socket.set_reuse_port(is_shared)?;
    if address.ip().is_multicast() {
        // Several receivers may share a group; a socket bound to the group gets no other packets.
        socket.set_reuse_address(true)?;
        family.only_own_groups(&socket)?;
    }
    Ok(socket)
}

fn bind(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    once_released(libc::EADDRINUSE, || socket.bind(&address.into()))
}

/// Tries again while `taken`, an error of the system, says that a socket which this program closed is still open: the
/// kernel ends some later, and a process that this one starts has copies of all until it runs its own program.
pub fn once_released(taken: i32, bind: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let deadline = Instant::now() + RELEASE;
    loop {
        match bind() {
            Err(error) if error.raw_os_error() == Some(taken) && Instant::now() < deadline => {
                std::thread::sleep(RELEASE / 100);
            }
            result => return result,
        }
    }
}

fn open_one(
    address: SocketAddr,
    interface: Option<&str>,
    listening: &Listening,
    is_shared: bool,
) -> io::Result<Listener> {
    let (address, interface) = on_link(address, interface);
    let socket = create(address, is_shared)?;
    // Before packets can arrive, of which the kernel's default buffer holds few.
    set_receive_buffer(&socket, listening.buffer_bytes);
    // Without these two options packets still arrive, at a higher cost and without the drop count.
    let _ = set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    let _ = set_option(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    bind(&socket, address)?;
    let join = || Membership::join(&socket, address.ip(), interface.as_deref(), &listening.sources);
    let membership = address.ip().is_multicast().then(join).transpose()?;
    Ok(Listener { socket, membership })
}

/// Asks for a receive buffer of `bytes`; returns the size that it has then.
fn ask_for_buffer(socket: &Socket, bytes: usize) -> usize {
    let value = i32::try_from(bytes).unwrap_or(i32::MAX);
    // Beyond the system's limit if permitted, up to the limit otherwise.
    if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value).is_err() {
        let _ = socket.set_recv_buffer_size(bytes);
    }
    buffer_bytes(socket)
}

/// Receive buffer in bytes that a socket of this process gets if it asks for `bytes`.
///
/// # Errors
/// If there can be no socket.
pub fn granted_buffer(bytes: usize) -> io::Result<usize> {
    let socket = Family::V4.socket()?;
    Ok(ask_for_buffer(&socket, bytes))
}

fn set_receive_buffer(socket: &Socket, bytes: usize) {
    let got = ask_for_buffer(socket, bytes);
    if got < bytes {
        tracing::warn!(
            asked_bytes = bytes,
            got_bytes = got,
            "the socket buffer is smaller than `receive_buffer_bytes`; raise net.core.rmem_max"
        );
    }
}

/// Makes reads of `socket` return one datagram each, not runs of them, and drops what has arrived so far.
///
/// # Errors
/// If the kernel does not set the options of the socket.
pub fn take_singly(socket: &Socket) -> io::Result<UdpSocket> {
    // A kernel without such runs has no option for them.
    let _ = set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 0);
    let reader: UdpSocket = socket.try_clone()?.into();
    reader.set_nonblocking(true)?;
    while reader.recv(&mut [0]).is_ok() {}
    Ok(reader)
}

/// Returns the size of the receive buffer of `socket`, in bytes.
#[must_use]
pub fn buffer_bytes(socket: &Socket) -> usize {
    // The kernel reports twice the requested size, which includes its own bookkeeping.
    socket.recv_buffer_size().unwrap_or(0) / 2
}

/// Sets the option `name` of `level` to `value`.
///
/// # Errors
/// If the kernel does not set it.
pub fn set_option(socket: &Socket, level: i32, name: i32, value: i32) -> io::Result<()> {
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
    let Some(info) = memory(socket) else { return 0.0 };
    let [used, size] = [libc::SK_MEMINFO_RMEM_ALLOC, libc::SK_MEMINFO_RCVBUF]
        .map(|variable| info[variable as usize]);
    used as f32 / size.max(1) as f32
}

/// Returns the number of messages that the kernel has dropped because the receive buffer of `socket` was full, modulo
/// 2^32.
#[must_use]
pub fn drops(socket: &Socket) -> Option<u32> {
    memory(socket).map(|info| info[libc::SK_MEMINFO_DROPS as usize])
}

/// Returns the variables that the kernel calls `SK_MEMINFO`.
fn memory(socket: &Socket) -> Option<[u32; libc::SK_MEMINFO_DROPS as usize + 1]> {
    let mut info = [0; libc::SK_MEMINFO_DROPS as usize + 1];
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
    (rc == 0).then_some(info)
}
