//! Receiver of heaps of spectra, which measures when each of them is complete.

use super::layout::Layout;
use super::sender::SendTimes;
use fxgraph_blocks::io::spead::datagrams::Datagrams;
use fxgraph_blocks::io::spead::item;
use fxgraph_blocks::io::spead::packet::Packet;
use fxgraph_blocks::io::spead::receive::Batch;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a packet before the receiver checks whether it must stop.
const TICK: Duration = Duration::from_millis(50);
/// Heaps that are received at the same time. Of more heaps, the oldest one counts as incomplete.
const MOST_OPEN: usize = 64;

/// A complete heap of spectra.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    pub timestamp: u64,
    /// Time from the sending of the last sample that the heap needs to the arrival of the heap's first packet, in
    /// seconds; negative if the packet arrived earlier. `None` if the sender's time is not kept any more.
    pub first: Option<f64>,
    /// The same for the heap's last packet.
    pub last: Option<f64>,
}

/// Result of a receiver.
#[derive(Debug, Default)]
pub struct Received {
    /// Complete heaps, in the order of their last packets.
    pub arrivals: Vec<Arrival>,
    /// Packets of heaps of spectra.
    pub packets: u64,
    /// Packets dropped by the kernel because the receiver's own socket buffer was full.
    pub dropped: u64,
}

/// Heap of which packets are missing.
struct Open {
    bytes: u64,
    first: Duration,
}

/// Collects packets into heaps.
pub struct Collector<'a> {
    layout: &'a Layout,
    times: &'a [SendTimes; 2],
    open: BTreeMap<u64, Open>,
    received: Received,
}

impl<'a> Collector<'a> {
    pub fn new(layout: &'a Layout, times: &'a [SendTimes; 2]) -> Self {
        Self { layout, times, open: BTreeMap::new(), received: Received::default() }
    }

    /// Receives from `batch` until `stop` is set and no packet is left. Times count from `start`.
    pub fn run(
        mut self,
        mut batch: Batch,
        start: Instant,
        stop: &AtomicBool,
    ) -> Result<Received, String> {
        loop {
            let is_last = stop.load(Ordering::Acquire);
            let got = batch
                .receive(TICK, &mut |datagrams: Datagrams<'_>| {
                    // One time for all packets of a system call: they arrived before they are handled.
                    let now = start.elapsed();
                    for (datagram, _) in datagrams {
                        self.take(datagram, now);
                    }
                })
                .map_err(|error| format!("cannot receive heaps of spectra: {error}"))?;
            self.received.dropped += got.kernel_drops;
            if is_last && got.datagrams == 0 {
                return Ok(self.received);
            }
        }
    }

    /// Takes a packet that arrived `now`.
    fn take(&mut self, datagram: &[u8], now: Duration) {
        let Ok(packet) = Packet::parse(datagram) else { return };
        // Descriptors and stop heaps have no samples.
        let is_data = packet.pointers().any(|pointer| pointer.id == item::FENG_RAW);
        let Some(timestamp) = packet.value(item::TIMESTAMP).filter(|_| is_data) else { return };
        self.received.packets += 1;
        let open = self.open.entry(timestamp).or_insert(Open { bytes: 0, first: now });
        open.bytes += packet.payload.len() as u64;
        if open.bytes >= self.layout.output_bytes {
            let first = open.first;
            self.open.remove(&timestamp);
            let sent = self.sent(timestamp);
            let after = |arrived: Duration| Some(arrived.as_secs_f64() - sent?.as_secs_f64());
            self.received.arrivals.push(Arrival {
                timestamp,
                first: after(first),
                last: after(now),
            });
        } else if self.open.len() > MOST_OPEN {
            self.open.pop_first();
        }
    }

    /// Time at which the last sample that a heap needs was sent, of the later polarisation.
    fn sent(&self, timestamp: u64) -> Option<Duration> {
        let heap = self.layout.last_needed(timestamp);
        let [pol0, pol1] = self.times;
        Some(pol0.get(heap)?.max(pol1.get(heap)?))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph_blocks::io::spead::packet::{Head, Pointer};

    const LAYOUT: Layout = Layout {
        rate_hz: 1e6,
        bits: 8,
        samples_per_heap: 100,
        samples_per_output: 1000,
        output_bytes: 64,
        spectra: 10,
        longest_frame: 1000,
        span: 1200,
    };

    fn packet(timestamp: u64, offset: usize, bytes: usize) -> Vec<u8> {
        let items =
            [Pointer::immediate(item::TIMESTAMP, timestamp), Pointer::addressed(item::FENG_RAW, 0)];
        let payload = vec![0; bytes];
        [Head::new(1, 64, offset, bytes, &items).as_bytes(), &payload].concat()
    }

    #[test]
    fn heap_is_complete_with_its_last_packet_and_its_latency_counts_from_the_later_polarisation() {
        let times = [SendTimes::new(64), SendTimes::new(64)];
        times[0].set(11, Duration::from_millis(5));
        times[1].set(11, Duration::from_millis(7));
        let mut collector = Collector::new(&LAYOUT, &times);
        collector.take(&packet(0, 0, 40), Duration::from_millis(8));
        collector.take(b"not SPEAD", Duration::from_millis(8));
        collector.take(&packet(1000, 0, 40), Duration::from_millis(8));
        assert!(collector.received.arrivals.is_empty());
        collector.take(&packet(0, 40, 24), Duration::from_millis(10));
        let [arrival] = collector.received.arrivals[..] else { unreachable!("one heap") };
        assert_eq!(arrival.timestamp, 0);
        assert!((arrival.first.unwrap() - 1e-3).abs() < 1e-9, "{arrival:?}");
        assert!((arrival.last.unwrap() - 3e-3).abs() < 1e-9, "{arrival:?}");
        // The heap with its last sample was not sent, as far as the sender's times say.
        collector.take(&packet(1000, 40, 24), Duration::from_millis(11));
        assert_eq!(collector.received.arrivals[1].last, None);
        assert_eq!(collector.received.packets, 4);
    }

    #[test]
    fn incomplete_heaps_do_not_accumulate() {
        let times = [SendTimes::new(1), SendTimes::new(1)];
        let mut collector = Collector::new(&LAYOUT, &times);
        for heap in 0..1000 {
            collector.take(&packet(1000 * heap, 0, 40), Duration::ZERO);
        }
        assert!(collector.open.len() <= MOST_OPEN);
        assert!(collector.received.arrivals.is_empty());
    }
}
