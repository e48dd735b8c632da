//! Receiving from the network, by one or several threads.
//!
//! Each thread reads sockets of its own, which takes most of the time. One thread at a time has the
//! window, for all datagrams of a system call, and decides where their payload belongs. The thread copies
//! the payload into the frames while others have the window.

use super::in_step::InStep;
use super::thread::{End, Receiving};
use super::window::{Copies, MAX_THREADS, Outcome};
use crate::common::link::TICK;
use crate::common::net::membership::Reports;
use crate::common::net::sockets::Listener;
use crate::io::spead::datagrams::Datagrams;
use crate::io::spead::port::{Causes, Port, View};
use crate::io::spead::receive::Reader;
use crate::io::spead::xdp::Redirection;
use crate::io::spead::xdp::queue::Queue;
use fxgraph::overload::{Fill, Overload};
use fxgraph::{BlockError, Counter, Counters};
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Names of the threads, for their busy times. The link starts the first one.
const NAMES: [&str; MAX_THREADS] = [
    "receive",
    "receive_1",
    "receive_2",
    "receive_3",
    "receive_4",
    "receive_5",
    "receive_6",
    "receive_7",
    "receive_8",
    "receive_9",
    "receive_10",
    "receive_11",
    "receive_12",
    "receive_13",
    "receive_14",
    "receive_15",
];

/// The sockets of a source.
pub struct Network {
    /// Those of each thread.
    ports: Vec<Port>,
    counts: Counts,
    /// Redirects packets to AF_XDP sockets until the stream ends.
    redirection: Option<Redirection>,
}

#[derive(Clone)]
struct Counts {
    packets: Counter,
    bytes: Counter,
    kernel_drops: Counter,
    of_xdp: Option<XdpCounts>,
}

/// Counts of AF_XDP sockets.
#[derive(Clone)]
struct XdpCounts {
    headers: Counter,
    fragments: Counter,
    checksums: Counter,
    no_chunk: Counter,
}

impl Counts {
    fn new(counters: &Counters, kernel_drops: &'static str) -> Self {
        Self {
            packets: counters.count("packets_received", "datagrams received from the network"),
            bytes: counters.count("bytes_received", "payload bytes of these datagrams"),
            kernel_drops: counters.overrun("packets_dropped_by_kernel", kernel_drops),
            of_xdp: None,
        }
    }
}

impl XdpCounts {
    fn new(counters: &Counters) -> Self {
        Self {
            headers: counters.loss(
                "packets_bad_header",
                "packets whose IPv4 or UDP header is damaged or contradicts their length; find their sender",
            ),
            fragments: counters.loss(
                "packets_fragmented",
                "first IP fragments, which `receive: af_xdp` does not join; send packets that fit the MTU of every link",
            ),
            checksums: counters.loss(
                "packets_bad_checksum",
                "packets whose IPv4 or UDP checksum is wrong; look for a faulty link or sender",
            ),
            no_chunk: counters.count(
                "receive_memory_exhausted",
                "times that the kernel had no free memory for a packet; raise receive_buffer_bytes",
            ),
        }
    }

    fn add(&self, causes: Causes) {
        self.headers.add(causes.rejected.headers);
        self.fragments.add(causes.rejected.fragments);
        self.checksums.add(causes.rejected.checksums);
        self.no_chunk.add(causes.no_chunk);
    }
}

impl Network {
    /// Creates the input from the UDP sockets of each thread.
    pub fn new(sockets: Vec<Vec<Listener>>, counters: &Counters) -> Self {
        let counts = Counts::new(
            counters,
            "datagrams dropped by the kernel because a socket buffer was full; raise receive_buffer_bytes and net.core.rmem_max, or give the block a core",
        );
        let ports = sockets.into_iter().map(Port::Sockets).collect();
        Self { ports, counts, redirection: None }
    }

    /// Creates the input from the AF_XDP sockets of each thread for datagrams to `addresses`.
    pub fn of_queues(
        (queues, redirection): (Vec<Vec<Queue>>, Redirection),
        mut addresses: Vec<SocketAddrV4>,
        counters: &Counters,
    ) -> Self {
        let counts = Counts::new(
            counters,
            "datagrams dropped by the kernel because the memory of an AF_XDP socket was full; raise receive_buffer_bytes, or give the block a core",
        );
        addresses.sort_unstable();
        let addresses: Arc<[SocketAddrV4]> = addresses.into();
        let port = |queues| Port::Queues(queues, Arc::clone(&addresses));
        Self {
            ports: queues.into_iter().map(port).collect(),
            counts: Counts { of_xdp: Some(XdpCounts::new(counters)), ..counts },
            redirection: Some(redirection),
        }
    }

    /// Returns views of all buffers.
    pub fn watch(&self) -> Result<Vec<View>, BlockError> {
        let views = self.ports.iter().map(Port::watch).collect::<Result<_, _>>();
        views.map_err(|error| BlockError::new("cannot duplicate a socket").because(error))
    }

    /// Size of all buffers, in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.ports.iter().map(Port::buffer_bytes).sum()
    }

    /// Receives until the stream ends, and reports the end. This thread is the first one.
    pub fn listen(self, receiving: Receiving) {
        // Until this call returns, after all threads.
        let _redirection = self.redirection;
        let in_step = match InStep::new(&self.ports, receiving.window.samples()) {
            Ok(in_step) => in_step,
            Err(error) => {
                let error = BlockError::new("cannot duplicate a socket").because(error);
                return receiving.conclude(Err(error));
            }
        };
        let env = receiving.env.clone();
        // The buffers of a source that drops nothing may be full.
        let overload = if receiving.is_live() { env.overload.clone() } else { Overload::default() };
        let sockets: usize = self.ports.iter().map(Port::sockets).sum();
        let turn_bytes = receiving.window.bytes() / 4 / sockets.max(1);
        let team = Arc::new(Team {
            stop: receiving.link.stop_flag(),
            receiving: Mutex::new(receiving),
            is_over: AtomicBool::new(false),
            in_step,
            turn_bytes,
            counts: self.counts,
            reports: Reports::new(&env.events),
        });
        let mut ports = self.ports.into_iter();
        let own = ports.next().unwrap_or_else(|| Port::Sockets(Vec::new()));
        let mut others: Vec<JoinHandle<()>> = Vec::with_capacity(ports.len());
        for (index, port) in (1..).zip(ports) {
            let team_of_thread = Arc::clone(&team);
            let fill = overload.join();
            let run = move || team_of_thread.receive(index, port, fill);
            match env.counters.threads().spawn(NAMES[index % MAX_THREADS], &env.name, run) {
                Ok(thread) => others.push(thread),
                Err(error) => {
                    let error = BlockError::new("cannot start a receiving thread").because(error);
                    team.end(Err(error));
                    break;
                }
            }
        }
        team.receive(0, own, overload.join());
        let ends: Vec<_> = others.into_iter().map(JoinHandle::join).collect();
        // The other threads have ended, so this thread has the only reference.
        let Some(team) = Arc::into_inner(team) else { return };
        let is_sound = !team.receiving.is_poisoned() && ends.iter().all(Result::is_ok);
        let mut receiving = team.receiving.into_inner().unwrap_or_else(PoisonError::into_inner);
        if is_sound {
            let result = receiving.result.take().unwrap_or(Ok(End::Asked));
            receiving.conclude(result);
        } else {
            receiving.announce(Err(BlockError::new("a receiving thread panicked")));
        }
    }
}

/// The receiving threads of a source.
struct Team {
    /// State that one thread at a time has.
    receiving: Mutex<Receiving>,
    /// Whether the stream has ended.
    is_over: AtomicBool,
    /// Whether the flowgraph stops.
    stop: Arc<AtomicBool>,
    in_step: InStep,
    /// Bytes that a thread reads from one of its sockets before the next one.
    turn_bytes: usize,
    counts: Counts,
    reports: Reports,
}

/// Ends the stream for all threads when one thread ends, also by a panic.
struct EndOfAll<'a>(&'a AtomicBool);

impl Drop for EndOfAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Team {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire) || self.stop.load(Ordering::Acquire)
    }

    /// Returns the state; `None` if a thread panicked while it had the state.
    fn lock(&self) -> Option<MutexGuard<'_, Receiving>> {
        self.receiving.lock().ok()
    }

    /// Ends the stream, unless it has ended.
    fn end(&self, result: Result<End, BlockError>) {
        if let Some(mut receiving) = self.lock() {
            receiving.result.get_or_insert(result);
        }
        self.is_over.store(true, Ordering::Release);
    }

    /// Receives from the sockets of thread `index` until the stream ends. `fill`: where the thread shows how full they
    /// are.
    fn receive(&self, index: usize, port: Port, fill: Fill) {
        let _end = EndOfAll(&self.is_over);
        let count = port.sockets();
        let mut receiver = port.receiver(self.turn_bytes * count, self.reports.clone());
        let (copies, notes) = (Copies::new(), Notes::default());
        let mut inlet = Inlet { team: self, index, copies, notes, fill };
        while !self.is_over() {
            let (received, causes) = match receiver.receive(TICK, &mut inlet) {
                Ok(received) => received,
                Err(error) => {
                    return self.end(Err(BlockError::new("cannot receive").because(error)));
                }
            };
            if received.emptied {
                self.in_step.waiting(index);
            }
            self.counts.packets.add(received.datagrams);
            self.counts.bytes.add(received.bytes);
            self.counts.kernel_drops.add(received.kernel_drops);
            if let Some(counts) = &self.counts.of_xdp {
                counts.add(causes);
            }
            let Some(mut receiving) = self.lock() else { return };
            if let Some(result) = receiving.after(std::mem::take(&mut inlet.notes)) {
                drop(receiving);
                return self.end(result);
            }
        }
    }
}

/// Gives the datagrams of a system call to the window.
struct Inlet<'a> {
    team: &'a Team,
    index: usize,
    copies: Copies,
    notes: Notes,
    fill: Fill,
}

impl Reader for Inlet<'_> {
    fn waiting(&mut self) {
        self.team.in_step.waiting(self.index);
    }

    fn reading(&mut self) {
        self.team.in_step.reading(self.index);
    }

    fn filled(&mut self, fraction: f32) {
        self.fill.set(fraction);
    }

    fn take(&mut self, datagrams: Datagrams<'_>) -> bool {
        let team = self.team;
        team.in_step.wait(self.index, || team.is_over());
        let Some(mut receiving) = team.lock() else { return false };
        let Receiving { window, link, .. } = &mut *receiving;
        // The time is taken while the thread has the window: it grows from batch to batch.
        window.tick(Instant::now());
        let thread = (self.index, std::mem::take(&mut self.copies));
        let pending = window.batch(thread, datagrams, link, |outcome| self.notes.add(outcome));
        let (newest, drops_next) = (window.newest_of_batch(), window.drops_next());
        drop(receiving);
        team.in_step.gave(self.index, newest);
        if let Some(pending) = pending {
            self.copies = pending.make();
        }
        drops_next
    }

    fn skim(&mut self, heads: Datagrams<'_>) -> bool {
        let team = self.team;
        team.in_step.wait(self.index, || team.is_over());
        let Some(mut receiving) = team.lock() else { return false };
        let Receiving { window, link, .. } = &mut *receiving;
        window.tick(Instant::now());
        let drops_next = window.skim(heads, link, |outcome| self.notes.add(outcome));
        team.in_step.gave(self.index, window.newest_of_batch());
        drops_next
    }
}

/// Outcomes of the packets since the thread last looked at the state of the stream.
#[derive(Default)]
pub struct Notes {
    /// Whether data of the stream came.
    pub is_alive: bool,
    /// Number of samples by which the stream went back, if that ends the stream.
    pub restarted: Option<i64>,
}

impl Notes {
    /// Adds an outcome.
    pub fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Accepted => self.is_alive = true,
            Outcome::Held { is_likely } => self.is_alive |= is_likely,
            Outcome::Rejected | Outcome::Stop => {}
            Outcome::Restarted { samples } => self.restarted = Some(samples),
        }
    }
}
