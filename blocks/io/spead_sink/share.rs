//! The share of one thread: every n-th heap of each frame, cut into packets and sent on schedule.

use super::heaps::{Heap, Heaps};
use crate::common::net::address;
use crate::common::net::family::Family;
use crate::common::sending::Pace;
use crate::io::spead::control::{Control, HeapCounter};
use crate::io::spead::packet::Head;
use crate::io::spead::send::{MAX_PACKETS, Outgoing, Sender, send, send_burst};
use fxgraph::changes::Timed;
use fxgraph::{BlockError, Counter, Counters, Env, Frame, Gauge, PortType};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Duration of the heaps of one packet that are sent together: switches hold such a burst.
const BURST_SECONDS: f64 = 1e-4;

/// A frame to send.
#[derive(Clone)]
pub struct Job {
    pub frame: Arc<Frame>,
    /// Whether heaps are sent, by their timestamps.
    pub enabled: Timed<bool>,
}

/// State that all shares of a sink have in common.
#[derive(Clone)]
pub struct Terms {
    pub heaps: Arc<Heaps>,
    pub destinations: Arc<[SocketAddr]>,
    /// Family of all destinations.
    pub family: Family,
    pub packet_payload_bytes: usize,
    pub interface: Option<String>,
    pub ttl: u32,
    /// Number of shares.
    pub shares: usize,
    counts: Counts,
}

#[derive(Clone)]
struct Counts {
    heaps: Counter,
    packets: Counter,
    bytes: Counter,
    skipped: Counter,
    partial: Counter,
    flagged: Counter,
    flagged_each: Counter,
    disabled: Counter,
    last: Gauge,
}

impl Counts {
    fn new(counters: &Counters) -> Self {
        Self {
            heaps: counters.count("heaps_sent", "heaps with data sent"),
            packets: counters.count("packets_sent", "packets with data sent"),
            bytes: counters.count("bytes_sent", "bytes of these packets, headers included"),
            skipped: counters
                .count("heaps_not_sent", "heaps not sent because they hold no valid data"),
            partial: counters.count(
                "heaps_partial",
                "heaps of visibilities or beams sent although some of their input was missing; look \
                 for missing packets upstream",
            ),
            flagged: counters.count(
                "baselines_flagged",
                "baselines flagged as incomplete, summed over the heaps sent; look for missing \
                 packets upstream",
            ),
            flagged_each: counters.count(
                "visibilities_flagged",
                "visibilities flagged as incomplete, if the input counts them one by one, summed over the heaps sent",
            ),
            disabled: counters
                .count("heaps_disabled", "heaps not sent because `enabled` was false at their time"),
            last: counters.state(
                "last_sent_timestamp_samples",
                "timestamp, in ADC samples, of the last heap sent; does not change while nothing is sent",
            ),
        }
    }
}

impl Terms {
    /// Terms of `threads` shares. Looks destinations up that are names.
    pub fn new(
        parameters: &super::SpeadSink,
        heaps: Heaps,
        threads: usize,
        counters: &Counters,
    ) -> Result<Self, BlockError> {
        let destinations = address::resolve(&parameters.destinations)?;
        Ok(Self {
            heaps: Arc::new(heaps),
            // For beams, those of beam 0 first.
            family: address::family(&destinations)?,
            destinations: destinations.into(),
            packet_payload_bytes: parameters.packet_payload_bytes,
            interface: parameters.interface.clone(),
            ttl: parameters.ttl,
            shares: threads,
            counts: Counts::new(counters),
        })
    }
}

/// The next step of a share.
pub enum Step {
    /// More can be sent at once.
    Again,
    /// Nothing is due for this time.
    Wait(Duration),
    /// The socket buffer is full.
    Full,
}

/// The share `index`, which sends the heaps `index`, `index + shares`, `index + 2 shares`, ... of each frame.
pub struct Share {
    index: usize,
    terms: Terms,
    sender: Option<Sender>,
    pub pace: Pace,
    pub counter: HeapCounter,
    /// The frame being sent, and the number of its next heap.
    current: Option<(Job, usize)>,
    /// Heaps being sent: one of several packets, or several of one packet each, those to one destination together.
    sending: Vec<Sending>,
    /// Payload bytes already sent of a heap of several packets, and whether the network dropped one of its packets.
    done: usize,
    is_cut: bool,
    /// Largest number of heaps that are sent together.
    heaps_together: usize,
    /// Payload of the heap being sent, if it differs from that in the frame.
    rewritten: Vec<u8>,
}

struct Sending {
    /// Number of the heap in its frame.
    index: usize,
    heap: Heap,
    counter: u64,
}

impl Share {
    /// Creates the share `index`, whose heaps are a part of the rate of `input`.
    pub fn new(
        index: usize,
        terms: Terms,
        (rate, catch_up): (f64, f64),
        (first_counter, counter_step): (u64, u64),
        input: &PortType,
        env: &Env,
    ) -> Self {
        let (heaps, shares) = (&terms.heaps, terms.shares);
        let fraction =
            (heaps.per_frame() - index).div_ceil(shares) as f64 / heaps.per_frame() as f64;
        let bytes_per_second = fraction * input.bytes_per_second();
        let burst_bytes = match rate {
            0.0 => usize::MAX,
            rate => (BURST_SECONDS * rate * bytes_per_second) as usize,
        };
        let is_one_packet = heaps.heap_bytes <= terms.packet_payload_bytes;
        let heaps_together = (burst_bytes / heaps.heap_bytes).clamp(1, MAX_PACKETS);
        // The first share waits for the others, so its delay is that of the sink.
        let env = (index == 0).then_some(env);
        let hz = input.clock.adc_sample_rate_hz;
        Self {
            index,
            rewritten: if heaps.rewrites() { vec![0; heaps.heap_bytes] } else { Vec::new() },
            sender: None,
            pace: Pace::new(bytes_per_second, hz, rate, catch_up, env),
            counter: HeapCounter::new(
                first_counter + index as u64 * counter_step,
                counter_step * shares as u64,
            ),
            current: None,
            sending: Vec::with_capacity(MAX_PACKETS),
            done: 0,
            is_cut: false,
            heaps_together: if is_one_packet { heaps_together } else { 1 },
            terms,
        }
    }

    /// Opens the socket of the sink, the block of `env`.
    pub fn open(&self, env: &Env) -> Result<Sender, BlockError> {
        Sender::lasting(self.terms.family, self.terms.interface.as_deref(), self.terms.ttl, env)
    }

    /// Sends with `sender`.
    pub fn start(&mut self, sender: Sender) {
        self.sender = Some(sender);
    }

    pub fn is_started(&self) -> bool {
        self.sender.is_some()
    }

    /// Whether it has no frame to send.
    pub fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// Begins the frame of `job`.
    pub fn begin(&mut self, job: Job, now: Instant) {
        self.pace.begin(job.frame.header().timestamp, now);
        self.current = Some((job, self.index));
    }

    /// Sends the next packets of the frame that are due.
    pub fn send(&mut self, now: Instant) -> Result<Step, BlockError> {
        let wait = self.pace.wait(now);
        if !wait.is_zero() {
            return Ok(Step::Wait(wait));
        }
        let Some((job, mut next)) = self.current.take() else { return Ok(Step::Again) };
        if let Some(bytes) = self.send_some(&job, &mut next)? {
            self.current = Some((job, next));
            if bytes == 0 {
                return Ok(Step::Full);
            }
            self.pace.sent(bytes, now);
        }
        Ok(Step::Again)
    }

    /// Sends as much of a heap without data as fits the socket buffer; returns whether all of it is sent.
    pub fn send_control(&mut self, control: &mut Control) -> Result<bool, BlockError> {
        let Terms { destinations, packet_payload_bytes, .. } = &self.terms;
        control.send(self.sender.as_mut(), destinations, *packet_payload_bytes, &mut self.counter)
    }

    /// Begins the next heap of `job`, and those after it that are sent together with it. Returns whether a heap is
    /// sent.
    fn begin_heaps(&mut self, job: &Job, next: &mut usize) -> Result<bool, BlockError> {
        let (heaps, counts) = (Arc::clone(&self.terms.heaps), &self.terms.counts);
        let (frame, index) = (&job.frame, *next);
        let is_enabled = |index| {
            let timestamp = heaps.timestamp(frame.header().timestamp, index);
            *job.enabled.at(timestamp)
        };
        *next += self.terms.shares;
        if !is_enabled(index) {
            counts.disabled.add(1);
            return Ok(false);
        }
        let Some(heap) = heaps.heap(frame, index) else {
            counts.skipped.add(1);
            return Ok(false);
        };
        if heap.is_rewritten {
            let flagged = heaps.rewrite(frame, index, &mut self.rewritten)?;
            let is_each = heaps.counts_per_channel > 0;
            let flags = if is_each { &counts.flagged_each } else { &counts.flagged };
            flags.add(flagged as u64);
        }
        self.begin_heap(index, heap);
        while self.sending.len() < self.heaps_together && *next < heaps.per_frame() {
            let index = *next;
            let heap = heaps.heap(frame, index);
            let Some(heap) = heap.filter(|heap| is_enabled(index) && !heap.is_rewritten) else {
                break;
            };
            self.begin_heap(index, heap);
            *next += self.terms.shares;
        }
        self.sending.sort_unstable_by_key(|sending| (sending.heap.destination, sending.index));
        Ok(true)
    }

    fn begin_heap(&mut self, index: usize, heap: Heap) {
        self.terms.counts.partial.add(u64::from(heap.is_partial));
        self.sending.push(Sending { index, heap, counter: self.counter.take() });
    }

    /// Sends the next packets of `job`, from heap `next` on; returns the payload bytes sent, `None` at the end of the
    /// frame.
    fn send_some(&mut self, job: &Job, next: &mut usize) -> Result<Option<usize>, BlockError> {
        let bytes = self.terms.heaps.heap_bytes;
        if self.sending.is_empty() {
            if *next >= self.terms.heaps.per_frame() {
                return Ok(None);
            }
            if !self.begin_heaps(job, next)? {
                // A heap that is not sent takes as much time as a sent one.
                return Ok(Some(bytes));
            }
        }
        let data = job.frame.as_slice::<u8>()?;
        let size = self.terms.packet_payload_bytes;
        let packet = |sending: &Sending, at: usize| {
            let heap = &sending.heap;
            let payload = if heap.is_rewritten { &self.rewritten } else { &data[heap.start..] };
            let payload = &payload[at..(at + size).min(bytes)];
            Outgoing {
                to: self.terms.destinations[heap.destination],
                head: Head::new(sending.counter, bytes, at, payload.len(), heap.items()),
                payload,
            }
        };
        let first = &self.sending[0];
        let (burst, done, sent) = if self.sending.len() == 1 {
            let range = (self.done, bytes, size);
            let burst = send_burst(self.sender.as_mut(), range, |at| packet(first, at))?;
            self.is_cut |= burst.dropped > 0;
            self.done += burst.payload_bytes;
            let is_whole = self.done == bytes;
            let is_sent = is_whole && !self.is_cut;
            if is_whole {
                (self.done, self.is_cut) = (0, false);
            }
            (burst, usize::from(is_whole), usize::from(is_sent))
        } else {
            let mut packets = [packet(first, 0); MAX_PACKETS];
            for (slot, sending) in packets.iter_mut().zip(&self.sending) {
                *slot = packet(sending, 0);
            }
            let burst = send(self.sender.as_mut(), &packets[..self.sending.len()])?;
            (burst, burst.packets, burst.sent())
        };
        let counts = &self.terms.counts;
        counts.packets.add(burst.sent() as u64);
        counts.bytes.add(burst.bytes as u64);
        counts.heaps.add(sent as u64);
        self.sending.drain(..done);
        if self.sending.is_empty() && sent > 0 {
            // All heaps up to the last one that was begun are sent.
            let last = *next - self.terms.shares;
            let timestamp = self.terms.heaps.timestamp(job.frame.header().timestamp, last);
            counts.last.set(timestamp as f64);
        }
        // The schedule counts payload bytes only.
        Ok(Some(burst.payload_bytes))
    }
}
