//! The block: sends each frame as one heap, on schedule.

use super::StreamSink;
use crate::common::net::address;
use crate::common::net::family::Family;
use crate::common::sending::Pace;
use crate::io::spead::control::{Control, HeapCounter};
use crate::io::spead::item;
use crate::io::spead::packet::{Head, Pointer, VALUE_BITS};
use crate::io::spead::send::{Outgoing, Sender, send_burst};
use crate::io::stream::{self, Described, MAX_ANNOTATION_BYTES, annotations};
use fxgraph::changes::{Change, Changes, Timed};
use fxgraph::{Block, BlockError, Counter, Env, Frame, Gauge, Io, Next};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest duration of one call of `work`.
const WORK_TIME: Duration = Duration::from_millis(20);
/// Time to wait for room in the socket buffer.
const RETRY: Duration = Duration::from_micros(500);
/// Longest time that the end of the block waits for room for the stop heaps.
const STOP_TIME: Duration = Duration::from_millis(10);
/// Number of stop heaps: a receiver that gets none waits for ever.
const STOPS: u32 = 3;
/// Largest value in an item pointer.
const MASK: u64 = (1 << VALUE_BITS) - 1;

/// Returns an identifier for a run of a sink that differs from those of its earlier runs and of other sinks: its start
/// in microseconds, and a count of the sinks of this process.
fn run_identifier() -> u64 {
    static SINKS: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let number = SINKS.fetch_add(1, Ordering::Relaxed);
    // Not 0, which receivers take for senders without this item.
    ((since.as_micros() as u64).wrapping_add(number) & MASK).max(1)
}

/// A running sink.
pub struct Sink {
    parameters: StreamSink,
    described: Described,
    destination: SocketAddr,
    sender: Option<Sender>,
    pace: Pace,
    run: u64,
    counter: HeapCounter,
    enabled: Timed<bool>,
    changes: Changes<bool>,
    /// Whether the frame before was sent.
    is_sending: bool,
    /// First timestamp taken over from another sender, as on the wire.
    taken_over: u64,
    /// Number of the next frame.
    sequence: u64,
    /// The next frame, which may not be due yet.
    waiting: Option<Arc<Frame>>,
    current: Option<Sending>,
    /// End of the heap being sent: the last data bytes, validity, configuration and annotations.
    tail: Vec<u8>,
    text: Vec<u8>,
    descriptors: (Vec<Pointer>, Vec<u8>),
    descriptors_due: Option<Instant>,
    control: Option<Control>,
    /// Stop heaps that were begun.
    stops: u32,
    sent_heaps: Counter,
    sent_packets: Counter,
    sent_bytes: Counter,
    disabled: Counter,
    unsent_annotations: Counter,
    stops_lost: Counter,
    last_sent: Gauge,
    env: Env,
}

/// The frame that is being sent.
struct Sending {
    frame: Arc<Frame>,
    items: [Pointer; ITEMS],
    counter: u64,
    /// Bytes of the heap, those before the tail, and those sent.
    length: usize,
    before_tail: usize,
    done: usize,
    /// Whether the network dropped one of its packets.
    is_cut: bool,
}

/// Item pointers of a heap with data.
const ITEMS: usize = 12;

impl Sink {
    /// Looks the destination up if it is a name.
    pub(super) fn new(
        parameters: StreamSink,
        described: Described,
        pace: Pace,
        env: &Env,
    ) -> Result<Self, BlockError> {
        let counters = &env.counters;
        let destination = address::resolve([&parameters.destination])?;
        let run = run_identifier();
        Ok(Self {
            // The parameters were checked: it is one.
            destination: destination[0],
            descriptors: described.heap(run),
            enabled: Timed::new(parameters.enabled),
            changes: Changes::default(),
            is_sending: parameters.enabled,
            taken_over: 0,
            parameters,
            described,
            sender: None,
            pace,
            run,
            counter: HeapCounter::new(1, 1),
            sequence: 0,
            waiting: None,
            current: None,
            tail: Vec::new(),
            text: Vec::new(),
            descriptors_due: None,
            control: None,
            stops: 0,
            sent_heaps: counters.count("heaps_sent", "heaps with data sent, one per frame"),
            sent_packets: counters.count("packets_sent", "packets with data sent"),
            sent_bytes: counters.count("bytes_sent", "bytes of these packets, headers included"),
            disabled: counters.count(
                "heaps_disabled",
                "frames not sent because `enabled` was false at their time",
            ),
            unsent_annotations: counters.loss(
                "annotations_not_sent",
                "frames sent without annotations because their text is longer than 4 MiB",
            ),
            stops_lost: counters.loss(
                "heaps_stop_not_sent",
                "stop heaps not sent because the network took no packets",
            ),
            last_sent: counters.state(
                "last_sent_timestamp_samples",
                "timestamp, in ADC samples, of the last heap sent",
            ),
            env: env.clone(),
        })
    }

    /// Begins to send a heap without data.
    fn begin_control(&mut self, items: Vec<Pointer>, payload: Vec<u8>) {
        self.control = Some(Control::new(items, payload, &mut self.counter));
    }

    /// Sends as much of a heap without data as fits the socket buffer; returns whether all of it is sent.
    fn send_control(&mut self) -> Result<bool, BlockError> {
        let Some(mut control) = self.control.take() else { return Ok(true) };
        let size = self.parameters.packet_payload_bytes;
        let to = std::slice::from_ref(&self.destination);
        let is_out = control.send(self.sender.as_mut(), to, size, &mut self.counter)?;
        if is_out && self.stops > 0 {
            self.stops_lost.add((to.len() - control.told()) as u64);
        }
        self.control = (!is_out).then_some(control);
        Ok(is_out)
    }

    fn begin_descriptors(&mut self, now: Instant) {
        if self.stops == 0
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

    /// Sends the stop heaps, once; returns whether all of them are sent. While the sink is disabled, the stream is another
    /// sender's, and goes on.
    fn send_stop(&mut self) -> Result<bool, BlockError> {
        if self.sender.is_none() || !self.parameters.stop_heaps || !self.is_sending {
            return Ok(true);
        }
        loop {
            // Descriptors that are being sent are completed first.
            if !self.send_control()? {
                return Ok(false);
            }
            if self.stops == STOPS {
                return Ok(true);
            }
            self.stops += 1;
            let items = [
                Pointer::immediate(item::STREAM_CONTROL, item::STREAM_STOP),
                Pointer::immediate(item::RUN, self.run),
                // With the number of frames a receiver knows whether the last ones are missing.
                Pointer::immediate(item::SEQUENCE, self.sequence),
            ];
            self.begin_control(items.to_vec(), vec![0]);
        }
    }

    /// Begins to send `frame`: writes the tail of its heap.
    fn begin(&mut self, frame: Arc<Frame>) -> Result<(), BlockError> {
        let header = frame.header();
        let data = frame.as_slice::<u8>()?;
        let size = self.parameters.packet_payload_bytes;
        let before_tail = data.len() / size * size;
        self.tail.clear();
        self.tail.extend(&data[before_tail..]);
        let validity = data.len();
        // Counts have the byte order of the host, as all data.
        self.tail.extend(bytemuck::cast_slice::<u32, u8>(&header.validity));
        let config_id = before_tail + self.tail.len();
        self.tail.extend(header.config_id.to_le_bytes());
        let time_base = before_tail + self.tail.len();
        self.tail.extend(stream::base_bytes(&header.base));
        let annotations = before_tail + self.tail.len();
        self.text.clear();
        annotations::write(&header.annotations, &mut self.text);
        if self.text.len() > MAX_ANNOTATION_BYTES {
            self.unsent_annotations.add(1);
            self.text.clear();
            self.text.extend(b"{}");
        }
        self.tail.extend(&self.text);
        let items = [
            Pointer::immediate(item::TIMESTAMP, header.timestamp & MASK),
            Pointer::immediate(item::TIMESTAMP_HIGH, header.timestamp >> VALUE_BITS),
            Pointer::immediate(item::SEQUENCE, self.sequence & MASK),
            Pointer::immediate(item::RUN, self.run),
            Pointer::immediate(item::TYPE_CHECK, self.described.check),
            Pointer::immediate(item::TAKEN_OVER, self.taken_over),
            Pointer::addressed(item::DATA, 0),
            Pointer::addressed(item::VALIDITY, validity as u64),
            Pointer::addressed(item::CONFIG_ID, config_id as u64),
            Pointer::addressed(item::TIME_BASE, time_base as u64),
            Pointer::addressed(item::ANNOTATIONS, annotations as u64),
            Pointer::immediate(
                item::TIME_BASE_UNCERTAINTY,
                stream::uncertainty_value(&header.base),
            ),
        ];
        let (length, counter) = (before_tail + self.tail.len(), self.counter.take());
        self.sequence += 1;
        self.current =
            Some(Sending { frame, items, counter, length, before_tail, done: 0, is_cut: false });
        Ok(())
    }

    /// Sends the next packets of `sending`; returns the bytes of the heap sent.
    fn send_some(&mut self, sending: &mut Sending) -> Result<usize, BlockError> {
        let size = self.parameters.packet_payload_bytes;
        let data = &sending.frame.as_slice::<u8>()?[..sending.before_tail];
        let to = self.destination;
        let packet = |at: usize| {
            let payload = match at.checked_sub(sending.before_tail) {
                None => &data[at..at + size],
                Some(at) => &self.tail[at..(at + size).min(self.tail.len())],
            };
            let length = sending.length;
            let head = Head::new(sending.counter, length, at, payload.len(), &sending.items);
            Outgoing { to, head, payload }
        };
        let range = (sending.done, sending.length, size);
        let burst = send_burst(self.sender.as_mut(), range, packet)?;
        self.sent_packets.add(burst.sent() as u64);
        self.sent_bytes.add(burst.bytes as u64);
        sending.done += burst.payload_bytes;
        sending.is_cut |= burst.dropped > 0;
        if sending.done == sending.length && !sending.is_cut {
            self.sent_heaps.add(1);
            self.last_sent.set(sending.frame.header().timestamp as f64);
        }
        Ok(burst.payload_bytes)
    }

    /// Takes the changes of `enabled` up to the frame with `timestamp`; returns whether it is sent.
    fn is_enabled(&mut self, timestamp: u64) -> bool {
        let samples = self.described.port.clock.samples_per_frame;
        for (from, enabled) in self.changes.begin(timestamp, samples) {
            self.enabled.set(from, enabled);
        }
        self.enabled.advance(timestamp);
        let is_enabled = *self.enabled.at(timestamp);
        if is_enabled && !std::mem::replace(&mut self.is_sending, true) {
            // 0 is for senders that took nothing over.
            self.taken_over = (timestamp & MASK).max(1);
            // Descriptors go first.
            self.descriptors_due = None;
        }
        self.is_sending = is_enabled;
        is_enabled
    }

    fn until_descriptors(&self, now: Instant) -> Duration {
        self.descriptors_due.map_or(RETRY, |due| due.saturating_duration_since(now)).max(RETRY)
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        let interface = self.parameters.interface.as_deref();
        let (family, ttl) = (Family::of(self.destination.ip()), self.parameters.ttl);
        self.sender = Some(Sender::lasting(family, interface, ttl, &self.env)?);
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
            if self.current.is_none() && self.waiting.is_none() {
                let Some(frame) = io.inputs[0].pop() else {
                    if io.inputs[0].ended() {
                        let is_out = self.send_stop()?;
                        return Ok(if is_out { Next::Finished } else { Next::After(RETRY) });
                    }
                    self.pace.wait_for_input();
                    return Ok(Next::After(self.until_descriptors(now)));
                };
                self.pace.begin(frame.header().timestamp, now);
                self.waiting = Some(frame);
            }
            let wait = self.pace.wait(now);
            if !wait.is_zero() {
                return Ok(Next::After(wait.min(self.until_descriptors(now))));
            }
            if let Some(frame) = self.waiting.take() {
                if self.is_enabled(frame.header().timestamp) {
                    self.begin(frame)?;
                    // Descriptors may be due.
                    continue;
                }
                // A disabled frame takes as much time, and as much of the numbers, as one that is sent.
                self.disabled.add(1);
                self.sequence += 1;
                self.pace.sent(self.described.data_bytes, now);
                if began.elapsed() > WORK_TIME {
                    return Ok(Next::Again);
                }
                continue;
            }
            let Some(mut sending) = self.current.take() else { continue };
            let bytes = self.send_some(&mut sending)?;
            // The schedule counts the bytes of the data: other items take no time.
            let due = bytes * self.described.data_bytes / sending.length;
            self.current = (sending.done < sending.length).then_some(sending);
            if bytes == 0 {
                return Ok(Next::After(RETRY));
            }
            self.pace.sent(due, now);
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
                self.control = None;
                self.stops_lost.add(u64::from(STOPS - self.stops.min(STOPS - 1)));
                self.stops = STOPS;
                break;
            }
            std::thread::sleep(RETRY);
        }
        Ok(())
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
