//! Record of the bytes of one heap that have arrived.

use crate::io::spead::endpoint::Endpoint;

/// Largest number of separate pieces of one heap that a slot tracks.
pub const MAX_PIECES: usize = 64;

/// Largest memory of one slot, for the plan.
pub const SLOT_BYTES: usize = size_of::<Slot>() + MAX_PIECES * size_of::<(u32, u32)>();

/// Byte ranges of a heap that have arrived: disjoint, sorted, not adjacent.
#[derive(Default)]
pub struct Slot {
    pieces: Vec<(u32, u32)>,
    /// Heap counter and sender of the first packet.
    first: Option<(u64, Endpoint)>,
    /// Whether the heap is complete.
    pub whole: bool,
}

/// Result of adding a packet to a slot.
pub enum Arrival {
    /// The packet has bytes that had not arrived.
    New {
        /// Whether other bytes of the packet had arrived.
        overlaps: bool,
    },
    /// All bytes of the packet had arrived before.
    Duplicate,
    /// The slot already tracks [`MAX_PIECES`] separate pieces.
    TooManyPieces,
}

impl Slot {
    /// Empties the slot.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.first = None;
        self.whole = false;
    }

    /// Whether no byte of the heap has arrived.
    pub fn is_empty(&self) -> bool {
        !self.whole && self.pieces.is_empty()
    }

    /// Returns the sender of the first packet, if its heap counter is not `counter`.
    pub fn sender_of_other_heap(&self, counter: u64) -> Option<Endpoint> {
        self.first.filter(|(first, _)| *first != counter).map(|(_, sender)| sender)
    }

    /// Records the arrival of bytes `start..end` of a heap of `heap` bytes, from a packet with this heap counter and
    /// sender. The slot has no bytes of another heap.
    pub fn arrive(&mut self, packet: (u64, Endpoint), start: u32, end: u32, heap: u32) -> Arrival {
        self.first.get_or_insert(packet);
        if self.whole {
            return Arrival::Duplicate;
        }
        if start == 0 && end == heap {
            let overlaps = !self.pieces.is_empty();
            self.whole = true;
            return Arrival::New { overlaps };
        }
        // All pieces that overlap or touch [start, end) are merged with the new piece.
        let first = self.pieces.partition_point(|piece| piece.1 < start);
        let last = self.pieces.partition_point(|piece| piece.0 <= end);
        let mut overlaps = false;
        if first == last {
            if self.pieces.len() == MAX_PIECES {
                return Arrival::TooManyPieces;
            }
            self.pieces.insert(first, (start, end));
        } else {
            let (from, to) = (self.pieces[first].0, self.pieces[last - 1].1);
            if last - first == 1 && from <= start && end <= to {
                return Arrival::Duplicate;
            }
            // Other pieces only touch the new piece.
            let is_covered = |piece: &(u32, u32)| piece.0 < end && start < piece.1;
            overlaps = self.pieces[first..last].iter().any(is_covered);
            self.pieces[first] = (from.min(start), to.max(end));
            self.pieces.drain(first + 1..last);
        }
        self.whole = self.pieces[0] == (0, heap);
        Arrival::New { overlaps }
    }
}
