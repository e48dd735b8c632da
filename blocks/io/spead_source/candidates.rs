//! Packets outside the window: held until they show where the stream continues, or that they do not
//! belong to the stream.

use crate::io::spead::endpoint::Endpoint;
use std::time::{Duration, Instant};

/// Largest number of candidates; if there are more, the one with the least evidence is dropped.
const MAX_CANDIDATES: usize = 16;
/// Largest number of bytes of all packets held.
pub const HELD_BYTES: usize = 16 << 20;
/// Time without new packets after which another candidate may take the place of a candidate.
const STALE: Duration = Duration::from_secs(2);
/// Shortest time over which the rate of timestamps can be measured.
pub const MEASURABLE: Duration = Duration::from_millis(5);

/// Position of a packet in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// Number of the frame.
    pub frame: u64,
    /// Slot of the frame.
    pub slot: usize,
    /// Offset of its payload in the heap, in bytes.
    pub offset: u64,
    /// The heap's timestamp.
    pub timestamp: u64,
}

/// A packet held: its length, its sender, and its arrival time; none for a file.
type Held = (u32, Endpoint, Option<Instant>);

/// Packets that agree with each other: near each other and increasing in time.
pub struct Candidate {
    /// The latest packet.
    last: Spot,
    /// The earliest frame held.
    pub lowest: u64,
    /// Number of packets that increased in time since the last packet of the stream.
    pub evidence: u32,
    /// Heaps of these packets.
    pub heaps: u32,
    /// Number of all packets, increasing in time or not.
    pub seen: u64,
    /// Timestamp and arrival time of the first packet; no arrival time for a file.
    pub first: (u64, Option<Instant>),
    /// Newest timestamp of the stream when the first packet came.
    pub stream_then: u64,
    grown: Option<Instant>,
    /// Arrival time of its first packet, not changed by [`Self::restart_measurement`].
    pub began: Option<Instant>,
    /// Sender of the latest packet.
    pub sender: Endpoint,
    /// Whether its packets come from senders of the stream; packets of other senders are kept apart.
    pub is_current: bool,
    held: Vec<u8>,
    packets: Vec<Held>,
    /// Number and bytes of the packets at the beginning that were accepted already.
    taken: (usize, usize),
}

impl Candidate {
    /// Returns the time since its first packet.
    pub fn lasting(&self, now: Option<Instant>) -> Option<Duration> {
        Some(now?.saturating_duration_since(self.first.1?))
    }

    /// Returns the number of samples from its first timestamp to its last.
    pub fn samples(&self) -> f64 {
        self.last.timestamp.saturating_sub(self.first.0) as f64
    }

    /// Returns the error of the rate of its timestamps as a fraction of real time; infinite if not known.
    pub fn pace_error(&self, now: Option<Instant>, adc_sample_rate_hz: f64) -> f64 {
        match self.lasting(now).filter(|lasting| *lasting >= MEASURABLE) {
            Some(real) => (self.samples() / adc_sample_rate_hz / real.as_secs_f64() - 1.0).abs(),
            None => f64::INFINITY,
        }
    }

    /// Whether several packets agree.
    pub fn is_likely(&self) -> bool {
        self.evidence >= super::timeline::FEW
    }

    /// Whether no packet was added for `STALE`, so that another candidate may take its place.
    pub fn is_stale(&self, now: Option<Instant>) -> bool {
        now.zip(self.grown).is_none_or(|(now, grown)| now - grown >= STALE)
    }

    /// Returns the number of packets held.
    pub fn len(&self) -> usize {
        self.packets.len() - self.taken.0
    }

    /// Returns the packets held, in the order of their arrival.
    pub fn packets(&self) -> impl Iterator<Item = (&[u8], Endpoint)> {
        self.arrivals().map(|(packet, sender, _)| (packet, sender))
    }

    /// The same, with their arrival times.
    pub fn arrivals(&self) -> impl Iterator<Item = (&[u8], Endpoint, Option<Instant>)> {
        let mut rest = &self.held[self.taken.1..];
        self.packets[self.taken.0..].iter().map(move |(len, sender, at)| {
            let (packet, after) = rest.split_at(*len as usize);
            rest = after;
            (packet, *sender, *at)
        })
    }

    /// Removes the first packet held, which was accepted.
    pub fn drop_first(&mut self) {
        let Some((len, ..)) = self.packets.get(self.taken.0) else { return };
        self.taken.0 += 1;
        self.taken.1 += *len as usize;
        // Moves no more bytes than were accepted since the last move.
        if 2 * self.taken.1 >= self.held.len() {
            let (packets, bytes) = std::mem::take(&mut self.taken);
            self.packets.drain(..packets);
            self.held.drain(..bytes);
        }
    }

    /// Drops the packets held, because packets of the stream came in between.
    pub fn interrupt(&mut self) {
        (self.evidence, self.heaps, self.taken) = (0, 0, (0, 0));
        // Foreign packets may come repeatedly: keep little memory for them.
        if self.held.capacity() > 1 << 16 {
            self.held = Vec::new();
        } else {
            self.held.clear();
        }
        self.packets.clear();
    }

    /// Restarts the measurement of the rate, because the stream was moved to another time.
    pub fn restart_measurement(&mut self, stream: u64, now: Option<Instant>) {
        (self.first, self.stream_then, self.seen) = ((self.last.timestamp, now), stream, 0);
    }

    fn add(&mut self, spot: Spot, now: Option<Instant>) {
        self.seen += 1;
        if self.packets.is_empty() {
            self.lowest = spot.frame;
        }
        self.lowest = self.lowest.min(spot.frame);
        if self.evidence == 0 || self.last < spot {
            let is_heap = (self.last.frame, self.last.slot) != (spot.frame, spot.slot);
            self.heaps += u32::from(self.evidence == 0 || is_heap);
            self.evidence = self.evidence.saturating_add(1);
            self.last = spot;
            self.grown = now;
        }
    }
}

/// The candidates of a stream.
#[derive(Default)]
pub struct Candidates {
    pub list: Vec<Candidate>,
}

impl Candidates {
    /// Holds a packet at `spot`. Returns the index of its candidate, and a candidate that was dropped to
    /// make room.
    pub fn add(
        &mut self,
        spot: Spot,
        near: u64,
        stream: u64,
        now: Option<Instant>,
        (datagram, sender, is_current): (&[u8], Endpoint, bool),
    ) -> (usize, Option<Candidate>) {
        let fits = |candidate: &Candidate| {
            candidate.is_current == is_current && candidate.last.frame.abs_diff(spot.frame) <= near
        };
        let mut forgotten = None;
        let index = self.list.iter().position(fits).unwrap_or_else(|| {
            if self.list.len() == MAX_CANDIDATES {
                forgotten = self.weakest(now).map(|weakest| self.list.remove(weakest));
            }
            self.list.push(Candidate {
                last: spot,
                lowest: spot.frame,
                evidence: 0,
                heaps: 0,
                seen: 0,
                first: (spot.timestamp, now),
                stream_then: stream,
                grown: now,
                began: now,
                sender,
                is_current,
                held: Vec::new(),
                packets: Vec::new(),
                taken: (0, 0),
            });
            self.list.len() - 1
        });
        let candidate = &mut self.list[index];
        candidate.add(spot, now);
        candidate.sender = sender;
        candidate.held.extend_from_slice(datagram);
        candidate.packets.push((datagram.len() as u32, sender, now));
        (index, forgotten)
    }

    /// Returns the index of the candidate with the least evidence; stale candidates come first.
    fn weakest(&self, now: Option<Instant>) -> Option<usize> {
        let worth =
            |(_, c): &(usize, &Candidate)| (now.is_none() || !c.is_stale(now), c.evidence, c.grown);
        self.list.iter().enumerate().min_by_key(worth).map(|(index, _)| index)
    }

    /// Whether no more packets can be held.
    pub fn is_full(&self) -> bool {
        self.list.iter().map(|candidate| candidate.held.len()).sum::<usize>() >= HELD_BYTES
    }
}
