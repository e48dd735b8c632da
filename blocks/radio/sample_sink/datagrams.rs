//! UDP: datagrams of equal length, sent on the schedule of the stream.

use super::chunks::{Chunk, HEAD};
use super::encode::Layout;
use crate::datagram::DatagramHeader;
use crate::types::SampleType;
use fxgraph::event::EventKind;
use fxgraph::files::reason;
use fxgraph::{BlockError, Counter, Env};
use fxgraph_common::pace::CATCH_UP;
use fxgraph_common::sending::Pace;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Chunks that wait.
const MOST_CHUNKS: usize = 2;
/// Rate of sending relative to that of the stream, as that of `spead_sink`.
const RATE: f64 = 1.1;
/// Time to wait for room in the socket buffer.
const FULL: Duration = Duration::from_micros(500);
/// Time to wait for input, which also wakes the block.
const INPUT: Duration = Duration::from_millis(10);
/// Longest time of one call.
const TURN: Duration = Duration::from_millis(5);

/// Sender of datagrams.
pub struct Datagrams {
    to: SocketAddr,
    header: DatagramHeader,
    /// Bytes of a sample, and of the samples of a datagram.
    sample_bytes: usize,
    payload_bytes: usize,
    socket: Option<UdpSocket>,
    queue: VecDeque<(Chunk, u64)>,
    /// Bytes of samples of the first chunk that are in datagrams.
    done: usize,
    /// Header and samples of the next datagram.
    datagram: Vec<u8>,
    sequence: u64,
    /// Number of the next sample.
    sample: u64,
    pace: Pace,
    sent: Counter,
    bytes: Counter,
    not_sent: Counter,
    failure: String,
    env: Env,
}

impl Datagrams {
    /// Sender to `to` of samples `of`, with at most `payload_bytes` of samples in each datagram.
    pub fn new(
        to: SocketAddr,
        (header, payload_bytes): (DatagramHeader, usize),
        (layout, of): (&Layout, SampleType),
        env: &Env,
    ) -> Self {
        let sample_bytes = of.bytes();
        let bytes_per_second = layout.rate_hz() * sample_bytes as f64;
        let counters = &env.counters;
        Self {
            to,
            header,
            sample_bytes,
            payload_bytes: payload_bytes / sample_bytes * sample_bytes,
            socket: None,
            queue: VecDeque::with_capacity(MOST_CHUNKS),
            done: 0,
            datagram: vec![0; header.bytes],
            sequence: 0,
            sample: 0,
            pace: Pace::new(
                bytes_per_second,
                layout.clock.adc_sample_rate_hz,
                RATE,
                CATCH_UP,
                Some(env),
            ),
            sent: counters.count("datagrams_sent", "datagrams sent"),
            bytes: counters.count("bytes_sent", "bytes sent, with those of headers"),
            not_sent: counters.loss(
                "datagrams_not_sent",
                "datagrams that the network did not take; see the warning for the cause",
            ),
            failure: String::new(),
            env: env.clone(),
        }
    }

    /// Opens the socket.
    pub fn open(&mut self) -> Result<(), BlockError> {
        let any: SocketAddr = match self.to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let open = || {
            let socket = UdpSocket::bind(any)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let cannot = |error: std::io::Error| {
            BlockError::new(format!("cannot open a UDP socket: {}", reason(&error)))
        };
        self.socket = Some(open().map_err(cannot)?);
        Ok(())
    }

    /// Whether another chunk can wait.
    pub fn has_room(&self) -> bool {
        self.queue.len() < MOST_CHUNKS
    }

    /// Queues samples whose first one has this timestamp.
    pub fn push(&mut self, chunk: Chunk, timestamp: u64) {
        if self.queue.is_empty() {
            self.pace.begin(timestamp, Instant::now());
        }
        self.queue.push_back((chunk, timestamp));
    }

    /// Whether all whole datagrams are sent. The last one of the stream is shorter: see [`end`](Self::end).
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends the datagrams that are due. Returns the time to the next one; `None` if more may be due.
    pub fn serve(&mut self, began: Instant) -> Option<Duration> {
        loop {
            let now = Instant::now();
            if !self.fill() {
                self.pace.wait_for_input();
                return Some(INPUT);
            }
            let wait = self.pace.wait(now);
            if !wait.is_zero() {
                return Some(wait);
            }
            let samples = self.datagram.len() - self.header.bytes;
            if !self.send() {
                return Some(FULL);
            }
            self.pace.sent(samples, now);
            if now.saturating_duration_since(began) > TURN {
                return None;
            }
        }
    }

    /// Fills the next datagram; returns whether it is full.
    fn fill(&mut self) -> bool {
        let full = self.header.bytes + self.payload_bytes;
        while self.datagram.len() < full {
            let Some((chunk, _)) = self.queue.front() else { return false };
            let rest = &chunk[HEAD + self.done..];
            let count = rest.len().min(full - self.datagram.len());
            self.datagram.extend_from_slice(&rest[..count]);
            self.done += count;
            if count == rest.len() {
                self.queue.pop_front();
                self.done = 0;
                if let Some((_, timestamp)) = self.queue.front() {
                    self.pace.begin(*timestamp, Instant::now());
                }
            }
        }
        true
    }

    /// Sends the datagram; `false` if there is no room for it.
    fn send(&mut self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let (header, samples) = self.datagram.split_at_mut(self.header.bytes);
        self.header.sequence.iter().for_each(|field| field.write(self.sequence, header));
        self.header.sample.iter().for_each(|field| field.write(self.sample, header));
        let samples = (samples.len() / self.sample_bytes) as u64;
        match socket.send_to(&self.datagram, self.to) {
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return false;
            }
            Ok(_) => {
                self.sent.add(1);
                self.bytes.add(self.datagram.len() as u64);
                self.failure.clear();
            }
            Err(error) => {
                self.not_sent.add(1);
                let why = reason(&error);
                if why != self.failure {
                    let text = format!("cannot send to {}: {why}", self.to);
                    self.env.events.add(EventKind::Warning, text);
                    self.failure = why;
                }
            }
        }
        self.sequence += 1;
        self.sample += samples;
        self.datagram.truncate(self.header.bytes);
        true
    }

    /// Sends the samples of the last datagram, which need not be full.
    pub fn end(&mut self) {
        if self.datagram.len() > self.header.bytes && !self.send() {
            self.not_sent.add(1);
        }
    }
}
