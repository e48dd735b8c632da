//! The block: cuts frames into heaps and heaps into packets, and sends the packets on schedule.

use super::SpeadSink;
use super::heaps::{Heap, Heaps};
use super::pace::Pace;
use crate::io::spead::control::{Control, HeapCounter};
use crate::io::spead::item;
use crate::io::spead::packet::{Head, Pointer};
use crate::io::spead::send::{Burst, MAX_PACKETS, Outgoing, Sender, send, send_burst};
use fxgraph::retune::{Change, Changes, Timed};
use fxgraph::{Block, BlockError, Counter, Env, Frame, Gauge, Io, Next};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest duration of one call of `work`.
const WORK_TIME: Duration = Duration::from_millis(20);
/// Time to wait for room in the socket buffer.
const RETRY: Duration = Duration::from_micros(500);
/// Longest time that the end of the block waits for room for the stop heaps.
const STOP_TIME: Duration = Duration::from_millis(10);

/// A running sink.
pub struct Sink {
    parameters: SpeadSink,
    heaps: Heaps,
    destinations: Vec<SocketAddrV4>,
    sender: Option<Sender>,
    pace: Pace,
    counter: HeapCounter,
    /// The frame being sent, and its progress.
    current: Option<Progress>,
    /// Heaps being sent: one of several packets, or several of one packet each, those to one destination together.
    sending: Vec<Sending>,
    /// Payload bytes already sent of a heap of several packets.
    done: usize,
    /// Largest number of heaps that are sent together.
    heaps_together: usize,
    /// Payload of the heap being sent, if it differs from that in the frame.
    rewritten: Vec<u8>,
    enabled: Timed<bool>,
    changes: Changes<bool>,
    /// Whether the last heap was sent, or would have been sent if it were valid.
    is_sending: bool,
    /// Whether any packet was ever sent.
    has_sent: bool,
    descriptors: (Vec<Pointer>, Vec<u8>),
    descriptors_due: Option<Instant>,
    /// The heap without data being sent.
    control: Option<Control>,
    stopped: bool,
    sent_heaps: Counter,
    sent_packets: Counter,
    sent_bytes: Counter,
    skipped: Counter,
    partial: Counter,
    flagged: Counter,
    flagged_each: Counter,
    stops_lost: Counter,
    disabled: Counter,
    last_sent: Gauge,
}

struct Progress {
    frame: Arc<Frame>,
    /// Number of the next heap of the frame.
    index: usize,
}

struct Sending {
    /// Number of the heap in its frame.
    index: usize,
    heap: Heap,
    counter: u64,
}

/// The next step of a frame.
enum Begun {
    /// Heaps to send.
    Heaps,
    /// A heap that is not sent.
    NotSent,
    /// Descriptors go first.
    Descriptors,
    /// The end of the frame.
    End,
}

impl Sink {
    pub(super) fn new(
        parameters: SpeadSink,
        heaps: Heaps,
        (first_counter, counter_step): (u64, u64),
        (pace, burst_bytes): (Pace, usize),
        env: &Env,
    ) -> Self {
        let counters = &env.counters;
        let rewritten = if heaps.rewrites() { vec![0; heaps.heap_bytes] } else { Vec::new() };
        let is_sending = parameters.enabled;
        let is_one_packet = heaps.heap_bytes <= parameters.packet_payload_bytes;
        let heaps_together = (burst_bytes / heaps.heap_bytes).clamp(1, MAX_PACKETS);
        let heaps_together = if is_one_packet { heaps_together } else { 1 };
        Self {
            rewritten,
            destinations: parameters.addresses(),
            parameters,
            descriptors: heaps.descriptors(),
            heaps,
            sender: None,
            pace,
            counter: HeapCounter::new(first_counter, counter_step),
            current: None,
            sending: Vec::with_capacity(MAX_PACKETS),
            done: 0,
            heaps_together,
            enabled: Timed::new(is_sending),
            changes: Changes::default(),
            is_sending,
            has_sent: false,
            descriptors_due: None,
            control: None,
            stopped: false,
            sent_heaps: counters.count("heaps_sent", "heaps with data sent"),
            sent_packets: counters.count("packets_sent", "packets with data sent"),
            sent_bytes: counters.count("bytes_sent", "bytes of these packets, headers included"),
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
            stops_lost: counters.loss(
                "heaps_stop_not_sent",
                "stop heaps not sent because the socket send buffer was full",
            ),
            disabled: counters
                .count("heaps_disabled", "heaps not sent because `enabled` was false at their time"),
            last_sent: counters.gauge(
                "last_sent_timestamp_samples",
                "timestamp, in ADC samples, of the last heap sent; does not change while nothing is sent",
            ),
        }
    }

    /// Begins to send a heap without data to every destination.
    fn begin_control(&mut self, items: Vec<Pointer>, payload: Vec<u8>) {
        self.control = Some(Control::new(items, payload, &mut self.counter));
    }

    /// Sends as much of a heap without data as fits the socket buffer; returns whether all of it is sent.
    fn send_control(&mut self) -> Result<bool, BlockError> {
        let Some(mut control) = self.control.take() else { return Ok(true) };
        let size = self.parameters.packet_payload_bytes;
        let to = &self.destinations;
        let is_out = control.send(self.sender.as_mut(), to, size, &mut self.counter)?;
        self.has_sent |= control.has_begun();
        self.control = (!is_out).then_some(control);
        Ok(is_out)
    }

    fn begin_descriptors(&mut self, now: Instant) {
        if !self.stopped
            && self.is_sending
            && self.control.is_none()
            && self.descriptors_due.is_none_or(|due| now >= due)
        {
            let (items, payload) = self.descriptors.clone();
            self.begin_control(items, payload);
            let pause = Duration::from_secs_f64(self.parameters.descriptor_seconds);
            self.descriptors_due = Some(now + pause);
        }
    }

    /// Sends the stop heaps, once; returns whether all of them are sent.
    fn send_stop(&mut self) -> Result<bool, BlockError> {
        let is_told = self.parameters.stop_heaps && (self.has_sent || self.is_sending);
        if self.sender.is_none() || !is_told {
            return Ok(true);
        }
        if !self.stopped {
            // Descriptors that are being sent are completed first.
            if !self.send_control()? {
                return Ok(false);
            }
            self.stopped = true;
            let items = [Pointer::immediate(item::STREAM_CONTROL, item::STREAM_STOP)];
            self.begin_control(items.to_vec(), vec![0]);
        }
        self.send_control()
    }

    /// Returns the timestamp of heap `index` of the frame with timestamp `frame`.
    fn timestamp(&self, frame: u64, index: usize) -> u64 {
        let time = index / (self.heaps.per_frame() / self.heaps.times);
        frame.wrapping_add(time as u64 * self.heaps.samples_per_heap)
    }

    /// Begins the next heap of `progress`, and those after it that are sent together with it.
    fn begin_heaps(&mut self, progress: &mut Progress) -> Result<Begun, BlockError> {
        let (frame, index) = (&progress.frame, progress.index);
        if index == self.heaps.per_frame() {
            return Ok(Begun::End);
        }
        let is_enabled = *self.enabled.at(self.timestamp(frame.header().timestamp, index));
        if !is_enabled {
            self.is_sending = false;
            self.disabled.add(1);
            progress.index += 1;
            return Ok(Begun::NotSent);
        }
        if !std::mem::replace(&mut self.is_sending, true) {
            self.descriptors_due = None;
            return Ok(Begun::Descriptors);
        }
        let Some(heap) = self.heaps.heap(frame, index) else {
            self.skipped.add(1);
            progress.index += 1;
            return Ok(Begun::NotSent);
        };
        if heap.is_rewritten {
            let flagged = self.heaps.rewrite(frame, index, &mut self.rewritten)?;
            let is_each = self.heaps.counts_per_channel > 0;
            let flags = if is_each { &self.flagged_each } else { &self.flagged };
            flags.add(flagged as u64);
        }
        self.begin_heap(index, heap);
        progress.index += 1;
        while self.sending.len() < self.heaps_together && progress.index < self.heaps.per_frame() {
            let index = progress.index;
            let is_enabled = *self.enabled.at(self.timestamp(frame.header().timestamp, index));
            let heap =
                self.heaps.heap(frame, index).filter(|heap| is_enabled && !heap.is_rewritten);
            let Some(heap) = heap else { break };
            self.begin_heap(index, heap);
            progress.index += 1;
        }
        self.sending.sort_unstable_by_key(|sending| (sending.heap.destination, sending.index));
        Ok(Begun::Heaps)
    }

    fn begin_heap(&mut self, index: usize, heap: Heap) {
        self.partial.add(u64::from(heap.is_partial));
        self.sending.push(Sending { index, heap, counter: self.counter.take() });
    }

    /// Sends the next packets of `progress`; returns the payload bytes sent, `None` at the end of the frame.
    fn send_some(&mut self, progress: &mut Progress) -> Result<Option<usize>, BlockError> {
        let bytes = self.heaps.heap_bytes;
        if self.sending.is_empty() {
            match self.begin_heaps(progress)? {
                Begun::Heaps => {}
                Begun::Descriptors => return Ok(Some(0)),
                // A heap that is not sent takes as much time as a sent one.
                Begun::NotSent => return Ok(Some(bytes)),
                Begun::End => return Ok(None),
            }
        }
        let data = progress.frame.as_slice::<u8>()?;
        let size = self.parameters.packet_payload_bytes;
        let packet = |sending: &Sending, at: usize| {
            let heap = &sending.heap;
            let payload = if heap.is_rewritten { &self.rewritten } else { &data[heap.start..] };
            let payload = &payload[at..(at + size).min(bytes)];
            Outgoing {
                to: self.destinations[heap.destination],
                head: Head::new(sending.counter, bytes, at, payload.len(), heap.items()),
                payload,
            }
        };
        let first = &self.sending[0];
        let (burst, sent) = if self.sending.len() == 1 {
            let range = (self.done, bytes, size);
            let burst = send_burst(self.sender.as_mut(), range, |at| packet(first, at))?;
            let is_whole = self.done + burst.payload_bytes == bytes;
            self.done = if is_whole { 0 } else { self.done + burst.payload_bytes };
            (burst, usize::from(is_whole))
        } else {
            let mut packets = [packet(first, 0); MAX_PACKETS];
            for (slot, sending) in packets.iter_mut().zip(&self.sending) {
                *slot = packet(sending, 0);
            }
            let sent = send(self.sender.as_mut(), &packets[..self.sending.len()])?;
            (Burst::of(&packets[..sent]), sent)
        };
        self.sent_packets.add(burst.packets as u64);
        self.sent_bytes.add(burst.bytes as u64);
        self.sent_heaps.add(sent as u64);
        self.sending.drain(..sent);
        if self.sending.is_empty() {
            // All heaps up to the last one that was begun are sent.
            let last = progress.index - 1;
            let timestamp = self.timestamp(progress.frame.header().timestamp, last);
            self.last_sent.set(timestamp as f64);
        }
        // The schedule counts payload bytes only.
        Ok(Some(burst.payload_bytes))
    }

    fn until_descriptors(&self, now: Instant) -> Duration {
        self.descriptors_due.map_or(RETRY, |due| due.saturating_duration_since(now)).max(RETRY)
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        let interface = self.parameters.interface.as_deref();
        self.sender = Some(Sender::open(interface, self.parameters.ttl)?);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let began = Instant::now();
        loop {
            let now = Instant::now();
            self.begin_descriptors(now);
            if !self.send_control()? {
                return Ok(Next::After(RETRY));
            }
            if self.current.is_none() {
                let Some(frame) = io.inputs[0].pop() else {
                    if io.inputs[0].ended() {
                        let is_out = self.send_stop()?;
                        return Ok(if is_out { Next::Finished } else { Next::After(RETRY) });
                    }
                    self.pace.wait_for_input();
                    return Ok(Next::After(self.until_descriptors(now)));
                };
                let timestamp = frame.header().timestamp;
                self.pace.begin(timestamp, now);
                let samples = self.heaps.samples_per_heap * self.heaps.times as u64;
                for (from, enabled) in self.changes.begin(timestamp, samples) {
                    self.enabled.set(from, enabled);
                }
                self.enabled.advance(timestamp);
                self.current = Some(Progress { frame, index: 0 });
            }
            let wait = self.pace.wait(now);
            if !wait.is_zero() {
                return Ok(Next::After(wait.min(self.until_descriptors(now))));
            }
            let Some(mut progress) = self.current.take() else { continue };
            match self.send_some(&mut progress)? {
                None => {}
                Some(0) => {
                    self.current = Some(progress);
                    return Ok(Next::After(RETRY));
                }
                Some(bytes) => {
                    self.current = Some(progress);
                    self.pace.sent(bytes, now);
                }
            }
            if began.elapsed() > WORK_TIME {
                return Ok(Next::Again);
            }
        }
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        // Stop heaps are sent also after a failure.
        let began = Instant::now();
        while !self.send_stop()? {
            if began.elapsed() > STOP_TIME {
                let told = self.control.take().filter(|_| self.stopped);
                let told = told.as_ref().map_or(0, Control::told);
                self.stops_lost.add((self.destinations.len() - told) as u64);
                break;
            }
            std::thread::sleep(RETRY);
        }
        Ok(())
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
