//! The receiving thread: from sockets or a capture file through the window to frames.

use super::candidates::HELD_BYTES;
use super::senders::{self, AFTER_STOP};
use super::window::{Outcome, Window};
use crate::io::spead::link::{Link, Report, TICK};
use crate::io::spead::pcap::Capture;
use crate::io::spead::receive::Batch;
use fxgraph::access::ReadPath;
use fxgraph::runtime::EventKind;
use fxgraph::{BlockError, Counter, Counters, Env};
use socket2::Socket;
use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// Memory that the thread allocates, in bytes.
pub const BUFFER_BYTES: usize = (4 << 20) + HELD_BYTES;

/// Source of datagrams.
pub enum Input {
    /// The network.
    Sockets {
        /// One per address.
        sockets: Vec<Socket>,
        /// Datagrams received.
        packets: Counter,
        /// Payload bytes of these datagrams.
        bytes: Counter,
        /// Datagrams dropped by the kernel.
        kernel_drops: Counter,
    },
    /// A capture file.
    File {
        /// The file.
        capture: Capture<BufReader<File>>,
        /// Datagrams read.
        packets: Counter,
        /// Payload bytes of these datagrams.
        bytes: Counter,
        /// Records that are not complete UDP datagrams.
        skipped: Counter,
        /// Destinations to accept; empty accepts all.
        addresses: Vec<SocketAddrV4>,
        /// Path of the file, for messages.
        path: ReadPath,
    },
}

impl Input {
    /// Creates the input from a capture file.
    pub fn file(
        capture: Capture<BufReader<File>>,
        addresses: Vec<SocketAddrV4>,
        path: ReadPath,
        counters: &Counters,
    ) -> Self {
        Self::File {
            capture,
            packets: counters.count("packets_received", "datagrams read from the file"),
            bytes: counters.count("bytes_received", "payload bytes of these datagrams"),
            skipped: counters.count(
                "records_skipped",
                "records of the file that are not complete UDP datagrams: fragments and other protocols",
            ),
            addresses,
            path,
        }
    }

    /// Creates the input from `sockets`.
    pub fn sockets(sockets: Vec<Socket>, counters: &Counters) -> Self {
        Self::Sockets {
            sockets,
            packets: counters.count("packets_received", "datagrams received from the network"),
            bytes: counters.count("bytes_received", "payload bytes of these datagrams"),
            kernel_drops: counters.overrun(
                "packets_dropped_by_kernel",
                "datagrams dropped by the kernel because a socket buffer was full; raise receive_buffer_bytes and net.core.rmem_max, or give the block a core",
            ),
        }
    }
}

/// End conditions of a stream, and options of the receiving thread.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Time without data after which the stream ends.
    pub idle: Option<Duration>,
    /// Number of stopped senders that ends the stream; 0 ignores stop heaps.
    pub senders: usize,
    /// Time that a live source waits for frames; `None` if the source is not live.
    pub patience: Option<Duration>,
    /// Sample rate, for messages.
    pub adc_sample_rate_hz: f64,
}

/// Reason why a stream ended.
enum End {
    /// The flowgraph stops.
    Asked,
    /// The capture file was read to its end.
    File,
    /// These senders stopped.
    Stopped(Vec<SocketAddrV4>),
    /// No data arrived for this time.
    Silent(Duration),
}

/// State of the receiving thread.
pub struct Receiving {
    window: Window,
    link: Link,
    terms: Terms,
    env: Env,
}

impl Receiving {
    /// Creates the state of a thread that fills the frames of `window`.
    pub fn new(window: Window, link: Link, terms: Terms, env: Env) -> Self {
        Self { window, link, terms, env }
    }

    /// Runs until the stream ends.
    pub fn run(mut self, input: Input) {
        // Datagrams that arrive before the flowgraph runs wait in the socket buffer.
        self.link.wait_for_first();
        let result = match input {
            Input::File { capture, packets, bytes, skipped, addresses, path } => {
                self.read(capture, &addresses, [&packets, &bytes, &skipped], &path)
            }
            Input::Sockets { sockets, packets, bytes, kernel_drops } => {
                self.listen(sockets, [&packets, &bytes, &kernel_drops])
            }
        };
        self.window.flush(&mut self.link);
        self.window.show();
        let text = match &result {
            Ok(End::Asked) => "the flowgraph was stopped".to_owned(),
            Ok(End::File) => "the capture file was read to its end".to_owned(),
            Ok(End::Stopped(senders)) => format!("stop heap from {}", senders::list(senders)),
            Ok(End::Silent(time)) => format!(
                "no data for {} s (finish_after_seconds) from {}",
                time.as_secs_f64(),
                self.window.senders().names()
            ),
            Err(error) => error.to_string(),
        };
        self.env.summary.set(format!("the stream ended: {text}\n"));
        self.env.events.add(EventKind::StreamEnded, text);
        self.link.report(match result {
            Ok(_) => Report::Ended,
            Err(error) => Report::Failed(error),
        });
    }

    fn read(
        &mut self,
        mut capture: Capture<BufReader<File>>,
        addresses: &[SocketAddrV4],
        [packets, bytes, skipped]: [&Counter; 3],
        path: &ReadPath,
    ) -> Result<End, BlockError> {
        let mut end = End::Asked;
        while !self.link.stopping() {
            let datagram = capture.next_datagram().map_err(|error| {
                BlockError::new(format!("cannot read {path}: {error}")).because(error)
            })?;
            let Some(datagram) = datagram else {
                end = End::File;
                break;
            };
            if !(addresses.is_empty() || addresses.contains(&datagram.to)) {
                continue;
            }
            packets.add(1);
            bytes.add(datagram.payload.len() as u64);
            let outcome = self.window.datagram(datagram.payload, datagram.from, &mut self.link);
            if let Outcome::WentBack { samples } = outcome {
                return Err(self.went_back(samples));
            }
        }
        skipped.add(capture.skipped());
        Ok(end)
    }

    fn listen(
        &mut self,
        sockets: Vec<Socket>,
        [packets, bytes, kernel_drops]: [&Counter; 3],
    ) -> Result<End, BlockError> {
        let mut batch = Batch::new(sockets, self.window.bytes() / 4);
        self.link.patience = self.terms.patience;
        // Silence is measured from the first data, so the source waits for a late sender.
        let mut last_data = None;
        while !self.link.stopping() {
            let Self { window, link, .. } = self;
            let mut went_back = None;
            let mut is_alive = false;
            let mut now = None;
            let mut note = |outcome| match outcome {
                Outcome::Accepted => is_alive = true,
                Outcome::Held { is_likely } => is_alive |= is_likely,
                Outcome::Refused | Outcome::Stop => {}
                Outcome::WentBack { samples } => went_back = Some(samples),
            };
            let mut handle = |datagram: &[u8], sender: SocketAddrV4| {
                let now = *now.get_or_insert_with(Instant::now);
                window.tick(now);
                note(window.datagram(datagram, sender, link));
            };
            let received = batch
                .receive(TICK, &mut handle)
                .map_err(|error| BlockError::new("cannot receive").because(error))?;
            packets.add(received.datagrams);
            bytes.add(received.bytes);
            kernel_drops.add(received.kernel_drops);
            // The present time, not that of the batch: the thread may have waited for frames since.
            let now = Instant::now();
            window.tick(now);
            note(window.look(link));
            window.show();
            if let Some(samples) = went_back {
                return Err(self.went_back(samples));
            }
            if received.emptied {
                self.link.emptied();
            }
            if is_alive {
                last_data = Some(now);
            }
            let silence = last_data.map(|last| now.duration_since(last));
            if let Some(end) = silence.and_then(|silence| self.end(now, silence)) {
                return Ok(end);
            }
        }
        Ok(End::Asked)
    }

    /// Returns the reason why the stream has ended after `silence` without data, if it has. Rejected
    /// packets are not data.
    fn end(&self, now: Instant, silence: Duration) -> Option<End> {
        if let Some(idle) = self.terms.idle.filter(|idle| silence >= *idle) {
            return Some(End::Silent(idle));
        }
        // Held packets do not come from the senders that stopped.
        let silence = self.window.silence().unwrap_or(silence);
        if self.terms.senders == 0 || silence < AFTER_STOP {
            return None;
        }
        let stopped = self.window.senders().stopped(now);
        (stopped.len() >= self.terms.senders).then_some(End::Stopped(stopped))
    }

    fn went_back(&self, samples: u64) -> BlockError {
        let seconds = samples as f64 / self.terms.adc_sample_rate_hz;
        BlockError::new(format!(
            "the sender restarted with another sync time: its timestamps jumped back by {samples} samples \
             ({seconds:.1} s) and stayed there; start again with the new `sync_time_seconds`, or set \
             `on_restart: resync`"
        ))
    }
}
