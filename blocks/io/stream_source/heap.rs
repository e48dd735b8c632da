//! One heap that is being assembled.

use crate::io::spead::endpoint::Endpoint;
use crate::io::spead::item;
use crate::io::spead::packet::{Packet, Pointer, VALUE_BITS};
use crate::io::spead::timestamp::nearest;
use crate::io::stream::Described;
use fxgraph::changes::MAX_TIMESTAMP;
use std::ops::Range;
use std::time::Instant;

/// Largest number of separate pieces of a heap.
pub const MAX_PIECES: usize = 4096;
/// Largest number of items of a heap.
const MAX_ITEMS: usize = 64;
/// Largest memory of a heap without its bytes.
pub const OVERHEAD_BYTES: usize =
    MAX_PIECES * size_of::<Range<usize>>() + MAX_ITEMS * size_of::<Pointer>();

/// Place of a heap in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Identifier of the run of the sender; 0 if it has none.
    pub run: u64,
    /// Number of the frame in the run.
    pub sequence: u64,
    /// Timestamp on the sender's timeline.
    pub timestamp: u64,
    /// Whether the sender took the stream over from another one.
    pub is_taken_over: bool,
}

/// Result of adding a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The packet has bytes that had not arrived.
    New,
    /// All bytes of the packet had arrived before.
    Duplicate,
    /// The heap is in too many separate pieces already.
    TooManyPieces,
}

/// A heap and its bytes that have arrived. Memory is kept for the next heap.
pub struct Heap {
    /// Sender and counter: the identity of the heap.
    pub sender: Endpoint,
    pub counter: u64,
    /// Place in the stream, once a packet with its items has arrived.
    pub place: Option<Place>,
    /// Time of the newest packet.
    pub heard: Instant,
    /// Bytes of the heap; longer than the heap after a longer one, so that memory is cleared only once.
    bytes: Vec<u8>,
    length: usize,
    /// Disjoint, sorted, not adjacent.
    pieces: Vec<Range<usize>>,
    arrived: usize,
    /// Packets that brought these pieces.
    packets: u64,
    items: Vec<Pointer>,
}

/// Returns the place that the items of `packet` give; `None` without a timestamp, or with one out of range. `near` is a
/// timestamp of the sender, for senders that send 48 bits.
pub fn place(packet: &Packet<'_>, samples_per_frame: u64, near: u64) -> Option<Place> {
    let low = packet.value(item::TIMESTAMP)?;
    let timestamp = match packet.value(item::TIMESTAMP_HIGH) {
        // Both have 48 bits.
        Some(high) => u64::try_from(u128::from(high) << VALUE_BITS | u128::from(low)).ok()?,
        None => nearest(low, near),
    };
    if timestamp >= MAX_TIMESTAMP {
        return None;
    }
    // Senders without numbers of frames have them by their timestamps.
    let sequence = packet.value(item::SEQUENCE).unwrap_or(timestamp / samples_per_frame.max(1));
    let run = packet.value(item::RUN).unwrap_or(0);
    let is_taken_over = packet.value(item::TAKEN_OVER).is_some_and(|from| from != 0);
    Some(Place { run, sequence, timestamp, is_taken_over })
}

impl Heap {
    /// Creates a heap without memory.
    pub fn new(sender: Endpoint, now: Instant) -> Self {
        Self {
            sender,
            counter: 0,
            place: None,
            heard: now,
            bytes: Vec::new(),
            length: 0,
            pieces: Vec::new(),
            arrived: 0,
            packets: 0,
            items: Vec::new(),
        }
    }

    /// Begins the heap of `packet`. The memory for the heap was checked to be bounded.
    pub fn begin(&mut self, packet: &Packet<'_>, sender: Endpoint, now: Instant) {
        (self.sender, self.counter, self.heard) = (sender, packet.heap_counter, now);
        (self.place, self.arrived, self.packets) = (None, 0, 0);
        self.pieces.clear();
        self.items.clear();
        self.length = packet.heap_length as usize;
        if self.bytes.len() < self.length {
            // No more than the largest heap, which the plan counts.
            self.bytes.reserve_exact(self.length - self.bytes.len());
            self.bytes.resize(self.length, 0);
        }
    }

    /// Length of the heap in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Bytes of memory.
    pub fn capacity(&self) -> usize {
        let items = self.items.capacity() * size_of::<Pointer>();
        self.bytes.capacity() + self.pieces.capacity() * size_of::<Range<usize>>() + items
    }

    /// Number of packets that brought bytes.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Whether all bytes have arrived.
    pub fn is_whole(&self) -> bool {
        self.arrived == self.length
    }

    /// Whether at least half of the bytes have arrived.
    pub fn is_mostly_here(&self) -> bool {
        2 * self.arrived >= self.length
    }

    /// Whether the items of the heap are known.
    pub fn has_items(&self) -> bool {
        !self.items.is_empty()
    }

    /// Takes the items of `packet`, if the heap has none yet.
    pub fn take_items(&mut self, packet: &Packet<'_>) {
        if self.items.is_empty() {
            let is_own =
                |pointer: &Pointer| pointer.id > item::STREAM_CONTROL || !pointer.immediate;
            self.items.extend(packet.pointers().filter(is_own).take(MAX_ITEMS));
        }
    }

    /// Copies the payload of `packet` to its place.
    pub fn add(&mut self, packet: &Packet<'_>) -> Arrival {
        // The packet is inside a heap of this length, as the caller has checked.
        let start = packet.offset as usize;
        let end = start + packet.payload.len();
        if end > self.length {
            return Arrival::Duplicate;
        }
        // All pieces that overlap or touch the packet are merged with it.
        let first = self.pieces.partition_point(|piece| piece.end < start);
        let last = self.pieces.partition_point(|piece| piece.start <= end);
        let merged = &self.pieces[first..last];
        if merged.iter().any(|piece| piece.start <= start && end <= piece.end) {
            return Arrival::Duplicate;
        }
        if merged.is_empty() && self.pieces.len() == MAX_PIECES {
            return Arrival::TooManyPieces;
        }
        self.bytes[start..end].copy_from_slice(packet.payload);
        let before: usize = merged.iter().map(Range::len).sum();
        let whole = match merged {
            [] => start..end,
            [a, .., b] => a.start.min(start)..b.end.max(end),
            [a] => a.start.min(start)..a.end.max(end),
        };
        self.arrived += whole.len() - before;
        self.packets += 1;
        if first == last {
            self.pieces.insert(first, whole);
        } else {
            self.pieces[first] = whole;
            self.pieces.drain(first + 1..last);
        }
        Arrival::New
    }

    /// Whether the heap has the item `id`.
    pub fn has(&self, id: u16) -> bool {
        self.items.iter().any(|pointer| pointer.id == id)
    }

    /// Returns the value of the immediate item `id`, as the 6 bytes of its pointer.
    fn immediate(&self, id: u16) -> Option<[u8; 6]> {
        let [_, _, bytes @ ..] = self.value(id)?.to_be_bytes();
        Some(bytes)
    }

    /// Returns the value of the immediate item `id`.
    pub fn value(&self, id: u16) -> Option<u64> {
        let found = self.items.iter().find(|pointer| pointer.immediate && pointer.id == id)?;
        Some(found.value)
    }

    /// Returns the bytes of the addressed item `id` in the heap: up to the next item, or to the end.
    pub fn range(&self, id: u16) -> Option<Range<usize>> {
        let addressed = || self.items.iter().filter(|pointer| !pointer.immediate);
        let start = addressed().find(|pointer| pointer.id == id)?.value;
        let ends = addressed().map(|pointer| pointer.value).filter(|end| *end > start);
        let end = ends.min().unwrap_or(u64::MAX).min(self.length as u64);
        (start <= end).then_some(start as usize..end as usize)
    }

    /// Returns the bytes of the item `id`, if the heap has it with `len` bytes (any number if `None`) and all of them
    /// have arrived.
    pub fn whole_item(&self, id: u16, len: Option<usize>) -> Option<&[u8]> {
        let range = self.range(id)?;
        let has =
            self.pieces.iter().any(|piece| piece.start <= range.start && range.end <= piece.end);
        let fits = len.is_none_or(|len| range.len() == len);
        ((has || range.is_empty()) && fits).then(|| &self.bytes[range])
    }

    /// Whether the data of the heap have the size of `described`.
    pub fn fits(&self, described: &Described) -> bool {
        match self.range(item::DATA) {
            Some(range) => range.len() == described.data_bytes,
            None => self.immediate(item::DATA).is_some() && described.data_bytes <= 6,
        }
    }

    /// Writes the data to `payload`, with zeros for bytes that did not arrive; calls `missing` with the ranges of these
    /// bytes in the data.
    pub fn write_data(&self, payload: &mut [u8], mut missing: impl FnMut(Range<usize>)) {
        let Some(range) = self.range(item::DATA).filter(|range| range.len() == payload.len())
        else {
            if let Some(bytes) = self.immediate(item::DATA)
                && let Some(from) = bytes.len().checked_sub(payload.len())
            {
                payload.copy_from_slice(&bytes[from..]);
            } else {
                payload.fill(0);
                missing(0..payload.len());
            }
            return;
        };
        let mut at = range.start;
        for piece in &self.pieces {
            let (start, end) = (piece.start.clamp(at, range.end), piece.end.clamp(at, range.end));
            if start == end {
                continue;
            }
            if at < start {
                payload[at - range.start..start - range.start].fill(0);
                missing(at - range.start..start - range.start);
            }
            payload[start - range.start..end - range.start]
                .copy_from_slice(&self.bytes[start..end]);
            at = end;
        }
        if at < range.end {
            payload[at - range.start..].fill(0);
            missing(at - range.start..range.len());
        }
    }

    /// Writes the validity counts, none above `full`; returns whether they are known. Senders without validity send
    /// complete frames.
    pub fn write_validity(&self, counts: &mut [u32], full: u32) -> Validity {
        let bytes = 4 * counts.len();
        if let Some(range) = self.range(item::VALIDITY) {
            if range.len() != bytes {
                return Validity::Wrong;
            }
            let Some(found) = self.whole_item(item::VALIDITY, Some(bytes)) else {
                return Validity::Lost;
            };
            for (count, bytes) in counts.iter_mut().zip(found.as_chunks::<4>().0) {
                *count = u32::from_le_bytes(*bytes).min(full);
            }
        } else if let Some(value) = self.immediate(item::VALIDITY) {
            let [count] = counts else { return Validity::Wrong };
            let [_, _, bytes @ ..] = value;
            *count = u32::from_le_bytes(bytes).min(full);
        } else if self.items.is_empty() {
            return Validity::Lost;
        } else {
            counts.fill(full);
        }
        Validity::Known
    }
}

/// Result of reading the validity counts of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// The counts are known.
    Known,
    /// The counts did not arrive.
    Lost,
    /// The heap has another number of counts.
    Wrong,
}
