//! What has arrived of one heap.

/// Separate pieces of one heap that are kept track of.
pub const MAX_PIECES: usize = 64;

/// Memory of one slot at worst, for the plan.
pub const SLOT_BYTES: usize = size_of::<Slot>() + MAX_PIECES * size_of::<(u32, u32)>();

/// Which bytes of a heap have arrived: disjoint, sorted, not touching.
#[derive(Default)]
pub struct Slot {
    pieces: Vec<(u32, u32)>,
    /// Counter of the heap that came first; another heap for the same place is a duplicate.
    heap_counter: u64,
    /// Whether all of it has.
    pub whole: bool,
}

/// What a packet brought.
pub enum Arrival {
    /// Bytes that were not there.
    New,
    /// Nothing new.
    Duplicate,
    /// A piece that cannot be kept track of.
    TooManyPieces,
}

impl Slot {
    /// Nothing has arrived.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.whole = false;
    }

    /// Whether nothing has.
    pub fn is_empty(&self) -> bool {
        !self.whole && self.pieces.is_empty()
    }

    /// Bytes `start..end` of a heap of `heap` bytes with this heap counter have arrived.
    pub fn arrive(&mut self, counter: u64, start: u32, end: u32, heap: u32) -> Arrival {
        if self.whole || (!self.pieces.is_empty() && self.heap_counter != counter) {
            return Arrival::Duplicate;
        }
        self.heap_counter = counter;
        if start == 0 && end == heap {
            self.whole = true;
            return Arrival::New;
        }
        // Everything that overlaps or touches [start, end) becomes one piece with it.
        let first = self.pieces.partition_point(|piece| piece.1 < start);
        let last = self.pieces.partition_point(|piece| piece.0 <= end);
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
            self.pieces[first] = (from.min(start), to.max(end));
            self.pieces.drain(first + 1..last);
        }
        self.whole = self.pieces[0] == (0, heap);
        Arrival::New
    }
}
