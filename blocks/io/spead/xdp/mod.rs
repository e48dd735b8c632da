//! Receiving through AF_XDP sockets: the kernel hands packets over before its network stack sees them.
//!
//! A program of the kernel redirects the datagrams to the addresses of a source into a socket of their receive queue;
//! everything else goes to the kernel as before. Packets come with their headers, which only the network has touched:
//! [`headers`] trusts nothing.
//!
//! # Layout
//! - `program`: the XDP program, and its link to an interface
//! - [`queue`]: the socket of a receive queue; `ring`: what it shares with the kernel
//! - [`headers`]: Ethernet, IPv4 and UDP; packets of IPv6 stay with the kernel
#![allow(unsafe_code)] // AF_XDP and bpf have no safe interface.

pub mod headers;
mod program;
pub mod queue;
mod ring;

use super::datagrams::Datagrams;
use super::port::Causes;
use super::receive::{self, Reader, Received};
use crate::common::net::interface::Interface;
use crate::common::net::sockets;
use fxgraph::BlockError;
use program::Program;
use queue::{Dropped, Queue, Step, Taken};
use socket2::Socket;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Packets that a thread takes at once.
const BATCH: usize = 64;
/// Interval at which a thread reads the counts of the kernel.
const COUNT_INTERVAL: Duration = Duration::from_millis(50);

/// The programs on the interfaces of a source, and sockets that have its addresses. Dropped, it gives both back.
pub struct Redirection {
    _programs: Vec<Program>,
    _reserved: Vec<Socket>,
}

/// Redirects datagrams to `addresses` that arrive on `interfaces`: returns the AF_XDP sockets of each of `threads` threads,
/// one for each receive queue, with a buffer of `buffer_bytes` each. Multicast groups are joined on `interfaces` in turn.
///
/// # Errors
/// The interface, address or privilege that is missing or in use.
pub fn open(
    threads: usize,
    addresses: &[SocketAddrV4],
    interfaces: &[String],
    buffer_bytes: usize,
) -> Result<(Vec<Vec<Queue>>, Redirection), BlockError> {
    let find = |name: &String| Interface::find(name).map_err(|e| BlockError::new(e.to_string()));
    let interfaces = interfaces.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let places: Vec<(usize, u32)> = (0..)
        .zip(&interfaces)
        .flat_map(|(at, of)| (0..of.queues()).map(move |queue| (at, queue as u32)))
        .collect();
    if threads > places.len() {
        return Err(too_many_threads(threads, places.len(), &interfaces));
    }
    let in_turn = addresses.iter().zip(interfaces.iter().cycle());
    let reserved = in_turn.map(|(address, on)| sockets::reserve((*address).into(), on.index));
    let reserved = reserved.collect::<Result<Vec<_>, _>>()?;
    let attach = |on: &Interface| {
        let program = Program::attach(addresses, on.index, on.queues());
        program.map_err(|error| cannot_attach(on, error))
    };
    let programs = interfaces.iter().map(attach).collect::<Result<Vec<_>, _>>()?;
    let mut divided: Vec<Vec<Queue>> = (0..threads.max(1)).map(|_| Vec::new()).collect();
    for (n, (at, number)) in places.iter().enumerate() {
        let (on, program) = (&interfaces[*at], &programs[*at]);
        let queue = Queue::open(on.index, *number, buffer_bytes, program.is_in_driver);
        let queue = queue.map_err(|(step, error)| cannot_open(on, *number, step, error))?;
        let redirected = program.redirect(*number, &queue);
        redirected.map_err(|error| cannot_open(on, *number, Step::Bind, error))?;
        tracing::info!(
            interface = on.name,
            queue = number,
            program = if program.is_in_driver { "driver" } else { "generic" },
            zero_copy = queue.skips_copies().unwrap_or(false),
            "AF_XDP socket opened"
        );
        divided[n % threads.max(1)].push(queue);
    }
    Ok((divided, Redirection { _programs: programs, _reserved: reserved }))
}

fn names(interfaces: &[Interface]) -> String {
    interfaces.iter().map(|i| format!("`{}`", i.name)).collect::<Vec<_>>().join(", ")
}

fn too_many_threads(threads: usize, queues: usize, interfaces: &[Interface]) -> BlockError {
    let of = names(interfaces);
    BlockError::new(format!(
        "`threads` must be at most the number of receive queues of {of}, {queues}, got {threads}; lower `threads`, or raise \
         the number of queues with `ethtool -L`"
    ))
}

const PRIVILEGES: &str = "`receive: af_xdp` needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, which this process \
                          does not have; run as root, give the program these capabilities, or use `receive: socket`";

fn cannot_attach(interface: &Interface, error: io::Error) -> BlockError {
    let name = &interface.name;
    let text = match error.raw_os_error() {
        Some(libc::EPERM) => PRIVILEGES.to_owned(),
        Some(libc::EBUSY | libc::EEXIST) => format!(
            "interface `{name}` has an XDP program already: a source with `receive: af_xdp` needs the interface alone; give all \
             addresses of `{name}` to one source, or end the other program (`ip link show {name}` names it)"
        ),
        _ => format!(
            "cannot attach an XDP program to interface `{name}`: {error}; use `receive: socket`, or Linux 6.6 or newer and a \
             driver with XDP"
        ),
    };
    BlockError::new(text).because(error)
}

fn cannot_open(interface: &Interface, queue: u32, step: Step, error: io::Error) -> BlockError {
    let name = &interface.name;
    let text = match (step, error.raw_os_error()) {
        (_, Some(libc::EPERM)) => PRIVILEGES.to_owned(),
        (Step::Socket, Some(libc::EAFNOSUPPORT)) => {
            "this kernel has no AF_XDP sockets; use `receive: socket`, or a kernel with CONFIG_XDP_SOCKETS".to_owned()
        }
        (Step::Memory, Some(libc::ENOBUFS | libc::ENOMEM)) => format!(
            "cannot lock the buffer of queue {queue} of interface `{name}` in memory; raise the limit (`ulimit -l`, LimitMEMLOCK \
             of systemd), give the program CAP_IPC_LOCK, or lower `receive_buffer_bytes`"
        ),
        (Step::Bind, Some(libc::EBUSY)) => format!(
            "another AF_XDP socket has queue {queue} of interface `{name}`; end the program that has opened it"
        ),
        (Step::Bind, Some(libc::EINVAL)) => format!(
            "the kernel does not bind an AF_XDP socket for jumbo frames to queue {queue} of interface `{name}`; use \
             `receive: socket`, or Linux 6.6 or newer"
        ),
        _ => format!(
            "cannot open an AF_XDP socket for queue {queue} of interface `{name}`: {error}; use `receive: socket`"
        ),
    };
    BlockError::new(text).because(error)
}

/// The queues of a thread.
pub struct Batch {
    queues: Vec<Queue>,
    /// Counts of the kernel that were reported, for each queue.
    reported: Vec<Dropped>,
    addresses: Arc<[SocketAddrV4]>,
    polls: Vec<libc::pollfd>,
    taken: Taken,
    nap: Option<Duration>,
    emptied: bool,
    turn_bytes: u64,
    next_count: Instant,
}

impl Batch {
    /// Creates the memory to receive datagrams to `addresses`, which are sorted, from `queues`. When several are read after
    /// a pause, their streams get out of step by at most about `in_step_bytes` in total.
    #[must_use]
    pub fn new(queues: Vec<Queue>, addresses: Arc<[SocketAddrV4]>, in_step_bytes: usize) -> Self {
        let poll = |q: &Queue| libc::pollfd { fd: q.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let room = queues.iter().map(Queue::buffer_bytes).min().unwrap_or(0);
        Self {
            reported: vec![Dropped::default(); queues.len()],
            polls: queues.iter().map(poll).collect(),
            turn_bytes: (in_step_bytes / queues.len().max(1)) as u64,
            nap: receive::nap(room),
            queues,
            addresses,
            taken: Taken::default(),
            emptied: false,
            next_count: Instant::now(),
        }
    }

    /// Waits up to `timeout` for datagrams, and gives some of them to `reader`: about the same number of bytes from each
    /// queue.
    ///
    /// # Errors
    /// If an interface was removed.
    pub fn receive(
        &mut self,
        timeout: Duration,
        reader: &mut dyn Reader,
    ) -> io::Result<(Received, Causes)> {
        if self.emptied {
            reader.waiting();
            if let Some(nap) = self.nap {
                std::thread::sleep(nap);
            }
        }
        let (mut total, mut causes) = (Received::default(), Causes::default());
        reader.reading();
        total.emptied = self.take_turns(reader, &mut total, &mut causes);
        if total.datagrams == 0 {
            reader.waiting();
            self.poll(timeout);
            reader.reading();
            total.emptied = self.take_turns(reader, &mut total, &mut causes);
        }
        self.emptied = total.emptied && total.datagrams > 0;
        let now = Instant::now();
        if now >= self.next_count {
            self.next_count = now + COUNT_INTERVAL;
            for (queue, reported) in self.queues.iter().zip(&mut self.reported) {
                let Dropped { packets, no_chunk } = queue.dropped()?;
                total.kernel_drops += packets.saturating_sub(reported.packets);
                causes.no_chunk += no_chunk.saturating_sub(reported.no_chunk);
                *reported = Dropped { packets, no_chunk };
            }
        }
        Ok((total, causes))
    }

    /// Reads each queue for its turn; returns whether all are empty.
    fn take_turns(
        &mut self,
        reader: &mut dyn Reader,
        total: &mut Received,
        causes: &mut Causes,
    ) -> bool {
        let mut emptied = true;
        let fills = self.queues.iter().map(|queue| queue.watch().fill());
        reader.filled(fills.fold(0.0, f32::max));
        for queue in &mut self.queues {
            let before = total.charge();
            loop {
                let take = |datagrams: Datagrams<'_>| {
                    reader.take(datagrams);
                };
                let count = queue.take(BATCH, &self.addresses, &mut self.taken, take);
                total.datagrams += count.datagrams;
                total.bytes += count.bytes;
                causes.rejected.headers += count.rejected.headers;
                causes.rejected.fragments += count.rejected.fragments;
                causes.rejected.checksums += count.rejected.checksums;
                // A flood of rejected packets does not hold the thread either.
                let is_over = count.datagrams == 0 || total.charge() - before >= self.turn_bytes;
                if count.emptied || is_over {
                    emptied &= count.emptied;
                    break;
                }
            }
        }
        emptied
    }

    /// Waits up to `timeout` until a queue has data. Interruptions and errors show in what is read next.
    fn poll(&mut self, timeout: Duration) {
        let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let len = self.polls.len() as libc::nfds_t;
        // SAFETY: `polls` is a valid array of the length given.
        unsafe { libc::poll(self.polls.as_mut_ptr(), len, millis) };
    }
}
