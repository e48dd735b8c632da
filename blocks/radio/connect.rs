//! Connections to servers, without waiting.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longest wait for the answer of a server.
const ANSWER: Duration = Duration::from_secs(5);

/// Time after which the kernel asks a silent peer whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// A connection that a server has not accepted yet.
pub struct Connecting {
    socket: Socket,
    began: Instant,
    /// Addresses to try next.
    rest: Vec<SocketAddr>,
}

impl Connecting {
    /// Begins to connect to the first of `addresses` to which it can begin, such as one of IPv4 on a host without IPv6.
    pub fn begin(addresses: &[SocketAddr]) -> io::Result<Self> {
        let mut result = Err(ErrorKind::AddrNotAvailable.into());
        for (n, address) in addresses.iter().enumerate() {
            result = Self::begin_one(*address, &addresses[n + 1..]);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn begin_one(address: SocketAddr, rest: &[SocketAddr]) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => {}
            other => other?,
        }
        Ok(Self { socket, began: Instant::now(), rest: rest.to_vec() })
    }

    /// The connection, if the server has accepted it; otherwise this attempt, or that for the next address.
    pub fn look(self) -> io::Result<Result<TcpStream, Self>> {
        let mut wanted = [PollFd::new(&self.socket, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_answered = retry_on_intr(|| poll(&mut wanted, Some(&now)))? > 0;
        let error = match (is_answered, self.socket.take_error()?) {
            (true, None) => return Ok(Ok(self.socket.into())),
            (_, Some(error)) => error,
            (false, None) if self.began.elapsed() < ANSWER => return Ok(Err(self)),
            (false, None) => ErrorKind::TimedOut.into(),
        };
        if self.rest.is_empty() { Err(error) } else { Self::begin(&self.rest).map(Err) }
    }
}

/// Lets a peer that vanished without a word be noticed; otherwise it is only when it comes back.
pub fn keep_alive(socket: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    // Without it, the connection works, too.
    let _ = SockRef::from(socket).set_tcp_keepalive(&keepalive);
}

/// Name of the peer of `socket`.
#[must_use]
pub fn name(socket: &TcpStream) -> String {
    socket.peer_addr().map_or_else(|_| "the server".to_owned(), |address| address.to_string())
}
