//! Packets elsewhere than the stream is: held until they show where the stream goes on, or that
//! they are not of the stream.

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// Places in time that are kept apart; beyond that the one with the least evidence is forgotten.
const MAX_CANDIDATES: usize = 16;
/// Bytes of all packets held.
pub const HELD_BYTES: usize = 16 << 20;
/// How long a candidate to which nothing was added is kept when room is needed for another.
const STALE: Duration = Duration::from_secs(2);
/// Shortest time in which a pace can be measured.
pub const MEASURABLE: Duration = Duration::from_millis(5);

/// A packet by where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// Number of the frame.
    pub frame: u64,
    /// Slot of the frame.
    pub slot: usize,
    /// Where its payload begins in the heap.
    pub offset: u64,
    /// The heap's timestamp.
    pub timestamp: u64,
}

/// Packets that agree with each other: they go on in time, near each other.
pub struct Candidate {
    /// The latest packet.
    last: Spot,
    /// The earliest frame held.
    pub lowest: u64,
    /// Packets that went on in time since the stream's own last packet.
    pub evidence: u32,
    /// Heaps among these.
    pub heaps: u32,
    /// Packets, whether they went on or not.
    pub seen: u64,
    /// Timestamp of the first packet, and when it came; no time for a file.
    pub first: (u64, Option<Instant>),
    /// Newest timestamp of the stream when the first packet came.
    pub stream_then: u64,
    grown: Option<Instant>,
    /// When its first packet came, whatever has been measured since.
    pub began: Option<Instant>,
    /// Who sent the latest packet.
    pub sender: SocketAddrV4,
    /// Whether its packets are of senders of the stream: others must not get between these.
    pub is_current: bool,
    held: Vec<u8>,
    packets: Vec<(u32, SocketAddrV4)>,
    /// Packets at the beginning that were taken, and their bytes.
    taken: (usize, usize),
}

impl Candidate {
    /// How long its packets have come for.
    pub fn lasting(&self, now: Option<Instant>) -> Option<Duration> {
        Some(now?.saturating_duration_since(self.first.1?))
    }

    /// By how much its time has gone on.
    pub fn samples(&self) -> f64 {
        self.last.timestamp.saturating_sub(self.first.0) as f64
    }

    /// By how much its time goes on faster or slower than real time, as a fraction of real time;
    /// infinite if that is not known.
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

    /// Whether nothing has been added to it for so long that another may have its place.
    pub fn is_stale(&self, now: Option<Instant>) -> bool {
        now.zip(self.grown).is_none_or(|(now, grown)| now - grown >= STALE)
    }

    /// Packets held.
    pub fn len(&self) -> usize {
        self.packets.len() - self.taken.0
    }

    /// The packets held, in the order in which they came.
    pub fn packets(&self) -> impl Iterator<Item = (&[u8], SocketAddrV4)> {
        let mut rest = &self.held[self.taken.1..];
        self.packets[self.taken.0..].iter().map(move |(len, sender)| {
            let (packet, after) = rest.split_at(*len as usize);
            rest = after;
            (packet, *sender)
        })
    }

    /// The first packet held was taken.
    pub fn drop_first(&mut self) {
        let Some((len, _)) = self.packets.get(self.taken.0) else { return };
        self.taken.0 += 1;
        self.taken.1 += *len as usize;
        // No more is moved than was taken since the last time.
        if 2 * self.taken.1 >= self.held.len() {
            let (packets, bytes) = std::mem::take(&mut self.taken);
            self.packets.drain(..packets);
            self.held.drain(..bytes);
        }
    }

    /// Gives up the packets held, because packets elsewhere came in between.
    pub fn interrupt(&mut self) {
        (self.evidence, self.heaps, self.taken) = (0, 0, (0, 0));
        // Strays come again and again: little memory stays for them.
        if self.held.capacity() > 1 << 16 {
            self.held = Vec::new();
        } else {
            self.held.clear();
        }
        self.packets.clear();
    }

    /// The stream's time was moved: what was measured against the time before says nothing.
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
    /// Takes note of a packet at `spot` and holds it. Returns the index of its candidate, and a
    /// candidate that was forgotten to make room.
    pub fn add(
        &mut self,
        spot: Spot,
        near: u64,
        stream: u64,
        now: Option<Instant>,
        (datagram, sender, is_current): (&[u8], SocketAddrV4, bool),
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
        candidate.packets.push((datagram.len() as u32, sender));
        (index, forgotten)
    }

    /// Index of the candidate that is worth least.
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
