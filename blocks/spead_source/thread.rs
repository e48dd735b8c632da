//! The receiving thread: from sockets or a capture file through the window to frames.

use super::window::{Frames, Outcome, Window};
use crate::spead::pcap::Capture;
use crate::spead::receive::Batch;
use fxgraph::kind::Waker;
use fxgraph::{BlockError, Counter, Counters, FrameMut};
use socket2::Socket;
use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

/// How long the thread waits before it looks whether it shall stop.
const TICK: Duration = Duration::from_millis(50);
/// How long after the last stop heap overtaken data may still come.
const AFTER_STOP: Duration = Duration::from_millis(100);
/// Senders whose stop heaps are told apart.
const MAX_SENDERS: usize = 4096;
/// What the thread allocates for itself.
pub const BUFFER_BYTES: usize = 4 << 20;

/// What the thread tells the block.
pub enum Report {
    /// A filled frame.
    Frame(FrameMut),
    /// The stream has ended.
    Ended,
    /// It cannot go on.
    Failed(BlockError),
}

/// Where datagrams come from.
pub enum Input {
    /// The network.
    Sockets {
        /// One per address.
        sockets: Vec<Socket>,
        /// Datagrams received.
        packets: Counter,
        /// Their bytes.
        bytes: Counter,
        /// Datagrams lost in the kernel.
        kernel_drops: Counter,
    },
    /// A capture file.
    File {
        /// The file.
        capture: Capture<BufReader<File>>,
        /// Destinations to take; empty takes all.
        addresses: Vec<SocketAddrV4>,
        /// For messages.
        path: PathBuf,
    },
}

impl Input {
    /// Input from `sockets`.
    pub fn sockets(sockets: Vec<Socket>, counters: &Counters) -> Self {
        Self::Sockets {
            sockets,
            packets: counters.count("packets_received", "datagrams from the network"),
            bytes: counters.count("bytes_received", "payload bytes of those datagrams"),
            kernel_drops: counters.loss(
                "packets_dropped_by_kernel",
                "datagrams lost because a socket buffer was full; raise receive_buffer_bytes and net.core.rmem_max, or give the block a core",
            ),
        }
    }
}

/// The thread's side of the queues to the block.
pub struct Link {
    empty: Receiver<FrameMut>,
    reports: SyncSender<Report>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    /// Whether an empty queue drops the frame; otherwise it is waited for.
    drops: bool,
    /// The first frame ever, for which the thread waited.
    first: Option<FrameMut>,
}

impl Link {
    /// Both queues and the flag that asks the thread to stop.
    pub fn new(
        empty: Receiver<FrameMut>,
        reports: SyncSender<Report>,
        waker: Waker,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self { empty, reports, waker, stop, drops: false, first: None }
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// An empty frame, however long it takes; `None` if the thread shall stop.
    fn wait(&self) -> Option<FrameMut> {
        while !self.stopping() {
            match self.empty.recv_timeout(TICK) {
                Ok(frame) => return Some(frame),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    fn report(&self, report: Report) {
        // There is room for every frame lent and one last word; a block that is gone needs neither.
        let _ = self.reports.send(report);
        self.waker.wake();
    }
}

impl Frames for Link {
    fn take(&mut self) -> Option<FrameMut> {
        if let Some(frame) = self.first.take() {
            return Some(frame);
        }
        if self.drops { self.empty.try_recv().ok() } else { self.wait() }
    }

    fn push(&mut self, frame: FrameMut) {
        self.report(Report::Frame(frame));
    }
}

/// What the thread works with.
pub struct Receiving {
    window: Window,
    link: Link,
    idle: Option<Duration>,
    senders: usize,
    live: bool,
    stopped: HashSet<SocketAddrV4>,
}

impl Receiving {
    /// A thread that ends after `idle` without data or when `senders` (if not 0) have stopped.
    pub fn new(
        window: Window,
        link: Link,
        idle: Option<Duration>,
        senders: usize,
        live: bool,
    ) -> Self {
        Self { window, link, idle, senders, live, stopped: HashSet::new() }
    }

    /// Runs until the stream ends.
    pub fn run(mut self, input: Input) {
        // What arrives before the flowgraph runs waits in the socket buffer.
        self.link.first = self.link.wait();
        let result = match input {
            Input::File { capture, addresses, path } => {
                self.read(capture, &addresses).map_err(|error| {
                    BlockError::new(format!("cannot read {}: {error}", path.display()))
                        .because(error)
                })
            }
            Input::Sockets { sockets, packets, bytes, kernel_drops } => self
                .listen(Batch::new(sockets), [&packets, &bytes, &kernel_drops])
                .map_err(|error| BlockError::new("cannot receive").because(error)),
        };
        self.window.flush(&mut self.link);
        self.link.report(match result {
            Ok(()) => Report::Ended,
            Err(error) => Report::Failed(error),
        });
    }

    fn read(
        &mut self,
        mut capture: Capture<BufReader<File>>,
        addresses: &[SocketAddrV4],
    ) -> std::io::Result<()> {
        while let Some(datagram) = capture.next_datagram()? {
            if self.link.stopping() {
                break;
            }
            if addresses.is_empty() || addresses.contains(&datagram.to) {
                self.window.datagram(datagram.payload, &mut self.link);
            }
        }
        Ok(())
    }

    fn listen(&mut self, mut batch: Batch, counters: [&Counter; 3]) -> std::io::Result<()> {
        self.link.drops = self.live;
        let mut last_data = Instant::now();
        let mut started = false;
        while !self.link.stopping() {
            let Self { window, link, stopped, senders, .. } = self;
            let mut handle = |datagram: &[u8], sender: SocketAddrV4| {
                if window.datagram(datagram, link) == Outcome::Stop && stopped.len() < MAX_SENDERS {
                    stopped.insert(sender);
                }
            };
            let received = batch.receive(TICK, &mut handle)?;
            counters[0].add(received.datagrams);
            counters[1].add(received.bytes);
            counters[2].add(received.kernel_drops);
            if received.datagrams > 0 {
                last_data = Instant::now();
                started = true;
            } else {
                let silence = last_data.elapsed();
                let all_stopped = *senders > 0 && stopped.len() >= *senders;
                // The clock of silence starts with the stream: a late sender is waited for.
                let idle = self.idle.is_some_and(|idle| started && silence >= idle);
                if idle || (all_stopped && silence >= AFTER_STOP) {
                    break;
                }
            }
        }
        Ok(())
    }
}
