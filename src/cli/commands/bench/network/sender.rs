//! Sender of one polarisation: digitiser heaps at a constant rate.

use super::layout::Layout;
use fxgraph::runtime::with_causes;
use fxgraph_blocks::common::net::family::Family;
use fxgraph_blocks::io::spead::item;
use fxgraph_blocks::io::spead::packet::{Head, Pointer};
use fxgraph_blocks::io::spead::send::{MAX_PACKETS, Outgoing, Sender};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Different heaps that are sent in turn: few enough for the caches, so that the sender is faster than a receiver.
const HEAPS: usize = 64;
/// Heaps sent together at most, if the sender is on schedule: what the kernel segments at once.
const MOST_TOGETHER: f64 = 12.0;
/// Time within which heaps are sent together.
const TOGETHER_SECONDS: f64 = 30e-6;
/// Pause after the socket buffer was full.
const RETRY: Duration = Duration::from_micros(20);
/// Longest sleep before the sender checks whether it must stop.
const TICK: Duration = Duration::from_millis(20);
/// Time between two stop heaps: a receiver that is overloaded may miss one.
const STOP_PERIOD: Duration = Duration::from_millis(100);
/// Time to live of multicast packets: they stay in the local network.
const TTL: u32 = 1;

/// Times at which heaps were sent, written by a sender and read by the receiver of the results. Only the last heaps
/// are kept.
pub struct SendTimes {
    /// Nanoseconds since the start in the lower bits, the lap of the ring above them.
    entries: Vec<AtomicU64>,
}

/// Bits of the nanoseconds: 4.8 hours.
const TIME_BITS: u32 = 44;

impl SendTimes {
    /// Keeps the times of at least `heaps` heaps.
    pub fn new(heaps: usize) -> Self {
        let len = heaps.clamp(1, 1 << 24).next_power_of_two();
        Self { entries: (0..len).map(|_| AtomicU64::new(u64::MAX)).collect() }
    }

    fn place(&self, heap: u64) -> (&AtomicU64, u64) {
        let len = self.entries.len() as u64;
        let lap = heap / len % ((1 << (u64::BITS - TIME_BITS)) - 1);
        (&self.entries[(heap % len) as usize], lap << TIME_BITS)
    }

    /// Notes that `heap` is sent `time` after the start.
    pub fn set(&self, heap: u64, time: Duration) {
        let (entry, lap) = self.place(heap);
        let nanoseconds = (time.as_nanos() as u64).min((1 << TIME_BITS) - 1);
        entry.store(lap | nanoseconds, Ordering::Release);
    }

    /// Returns the time after the start at which `heap` was sent; `None` if it was not, or is not kept.
    pub fn get(&self, heap: u64) -> Option<Duration> {
        let (entry, lap) = self.place(heap);
        let value = entry.load(Ordering::Acquire);
        let time = value & ((1 << TIME_BITS) - 1);
        (value - time == lap).then(|| Duration::from_nanos(time))
    }
}

/// Task of a sender.
pub struct Task<'a> {
    pub layout: &'a Layout,
    /// Polarisation, 0 or 1.
    pub pol: u64,
    pub to: SocketAddr,
    pub interface: &'a str,
    /// Number of heaps.
    pub heaps: u64,
    /// Start of the stream, which is the time of timestamp 0.
    pub start: Instant,
    /// Time after which the sender gives up, if it cannot keep the rate.
    pub limit: Duration,
    pub times: &'a SendTimes,
    /// Set to end the sender early.
    pub stop: &'a AtomicBool,
    /// Set when the flowgraph has ended, which needs no stop heap any more.
    pub is_ended: &'a AtomicBool,
    /// Set when all data are sent.
    pub is_done: &'a AtomicBool,
}

/// Result of a sender.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub heaps: u64,
    /// Time from the start of the stream to the last heap.
    pub elapsed: Duration,
    /// Longest delay of a heap after the time of its last sample.
    pub longest_delay: Duration,
}

impl Task<'_> {
    /// Sends the stream, and then stop heaps until the flowgraph has ended.
    pub fn run(&self) -> Result<Sent, String> {
        let result = self.run_with_sender();
        self.is_done.store(true, Ordering::Release);
        let (sent, sender) = result?;
        self.send_stops(sender, sent.heaps)?;
        Ok(sent)
    }

    fn run_with_sender(&self) -> Result<(Sent, Sender), String> {
        let mut sender = Sender::open(Family::of(self.to.ip()), Some(self.interface), TTL)
            .map_err(|error| with_causes(&error))?;
        let sent = self.send_data(&mut sender)?;
        Ok((sent, sender))
    }

    fn send_data(&self, sender: &mut Sender) -> Result<Sent, String> {
        let heap_bytes = self.layout.heap_bytes();
        let payload = random_bytes(HEAPS * heap_bytes, self.pol);
        let heap_seconds = self.layout.heap_seconds();
        let together = (TOGETHER_SECONDS / heap_seconds).clamp(1.0, MOST_TOGETHER) as u64;
        let packet = |heap: u64| Outgoing {
            to: self.to,
            head: self.head(heap),
            payload: &payload[(heap as usize % HEAPS) * heap_bytes..][..heap_bytes],
        };
        let mut packets = Vec::with_capacity(MAX_PACKETS);
        let (mut done, mut longest_delay) = (0, Duration::ZERO);
        while done < self.heaps && !self.stop.load(Ordering::Relaxed) {
            let elapsed = self.start.elapsed();
            if elapsed > self.limit {
                break;
            }
            let due = ((elapsed.as_secs_f64() / heap_seconds) as u64).min(self.heaps);
            let next = self.heaps.min(done + together);
            if due < next {
                let wait = Duration::from_secs_f64(next as f64 * heap_seconds);
                let until_start = self.start.saturating_duration_since(Instant::now());
                sleep((wait.saturating_sub(elapsed) + until_start).min(TICK));
                continue;
            }
            let since_due = Duration::from_secs_f64((done + 1) as f64 * heap_seconds);
            longest_delay = longest_delay.max(elapsed.saturating_sub(since_due));
            packets.clear();
            packets.extend((done..due).take(MAX_PACKETS).map(packet));
            for heap in (done..due).take(MAX_PACKETS) {
                self.times.set(heap, elapsed);
            }
            let accepted = sender
                .send(&packets)
                .map_err(|error| format!("cannot send to {}: {error}", self.to))?
                .packets;
            done += accepted as u64;
            if accepted == 0 {
                sleep(RETRY);
            }
        }
        Ok(Sent { heaps: done, elapsed: self.start.elapsed(), longest_delay })
    }

    fn head(&self, heap: u64) -> Head {
        let bytes = self.layout.heap_bytes();
        let items = [
            Pointer::immediate(item::TIMESTAMP, heap * self.layout.samples_per_heap),
            Pointer::immediate(item::DIGITISER_ID, self.pol),
            Pointer::immediate(item::DIGITISER_STATUS, 0),
            Pointer::addressed(item::RAW_SAMPLES, 0),
        ];
        // Heap 0 of a stream has the counter 1.
        Head::new(heap + 1, bytes, 0, bytes, &items)
    }

    fn send_stops(&self, mut sender: Sender, heaps: u64) -> Result<(), String> {
        let mut last = None;
        while !self.is_ended.load(Ordering::Acquire) {
            if last.is_none_or(|last: Instant| last.elapsed() >= STOP_PERIOD) {
                let items = [Pointer::immediate(item::STREAM_CONTROL, item::STREAM_STOP)];
                let payload = &[0];
                let head = Head::new(heaps + 1, payload.len(), 0, payload.len(), &items);
                sender
                    .send(&[Outgoing { to: self.to, head, payload }])
                    .map_err(|error| format!("cannot send to {}: {error}", self.to))?;
                last = Some(Instant::now());
            }
            sleep(TICK);
        }
        Ok(())
    }
}

/// Random bytes: packed samples of any length with a uniform distribution.
fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
    // xorshift64, whose state must not be 0.
    let mut state = 0x0139_408d_cbbf_7a44 ^ (seed << 32);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_times_are_kept_for_the_last_heaps_only() {
        let times = SendTimes::new(5);
        assert_eq!(times.get(0), None);
        for heap in 0..20 {
            times.set(heap, Duration::from_micros(heap));
        }
        assert_eq!(times.get(19), Some(Duration::from_micros(19)));
        assert_eq!(times.get(12), Some(Duration::from_micros(12)));
        // Overwritten by heap 19, and not sent yet.
        assert_eq!(times.get(11), None);
        assert_eq!(times.get(20), None);
    }
}
