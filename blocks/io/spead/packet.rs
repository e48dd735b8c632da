//! One SPEAD packet: read from a datagram, or written in front of a payload.
//!
//! An 8-byte header `53 04 02 06 00 00 NN NN`, then NN NN item pointers of 8 bytes, then payload.
//! A pointer is 1 bit *immediate*, 15 bits of item identifier and 48 bits of value (immediate) or
//! byte offset into the heap's payload (addressed), all big-endian.

use super::item;

/// Magic number, version 4, 2 bytes of identifier, 6 bytes of address, 2 reserved bytes.
pub const PREFIX: [u8; 6] = [0x53, 0x04, 0x02, 0x06, 0, 0];
/// Bytes before the first item pointer.
pub const HEADER_BYTES: usize = 8;
/// Bytes of an item pointer.
pub const POINTER_BYTES: usize = 8;
/// Bits of a value or an offset.
pub const VALUE_BITS: u32 = 48;

/// Reason why a datagram is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The datagram does not begin with the SPEAD magic number.
    #[error("not SPEAD")]
    NotSpead,
    /// The datagram is SPEAD of another version or flavour.
    #[error("not SPEAD-64-48 version 4")]
    Flavour,
    /// The datagram is shorter than its item pointers or its payload length.
    #[error("truncated")]
    Truncated,
    /// The datagram is longer than its payload length, or one of the four lengths and counters is missing.
    #[error("inconsistent lengths")]
    Length,
    /// The payload is not inside the heap.
    #[error("payload outside the heap")]
    Offset,
}

/// One item pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Whether `value` is the item's value itself.
    pub immediate: bool,
    /// Item identifier.
    pub id: u16,
    /// The value, or a byte offset into the heap's payload; 48 bits.
    pub value: u64,
}

impl Pointer {
    /// Creates an item whose value is in the pointer itself.
    #[must_use]
    pub const fn immediate(id: u16, value: u64) -> Self {
        Self { immediate: true, id, value }
    }

    /// Creates an item at `offset` of the heap's payload.
    #[must_use]
    pub const fn addressed(id: u16, offset: u64) -> Self {
        Self { immediate: false, id, value: offset }
    }

    fn from_word(word: u64) -> Self {
        Self {
            immediate: word >> 63 == 1,
            id: (word >> VALUE_BITS) as u16 & 0x7fff,
            value: word & ((1 << VALUE_BITS) - 1),
        }
    }

    fn to_word(self) -> u64 {
        let value = self.value & ((1 << VALUE_BITS) - 1);
        (u64::from(self.immediate) << 63) | (u64::from(self.id & 0x7fff) << VALUE_BITS) | value
    }
}

/// A packet whose lengths are consistent with each other.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Counter of the heap.
    pub heap_counter: u64,
    /// Payload bytes of the heap.
    pub heap_length: u64,
    /// Offset of the payload in the heap; `offset + payload.len() <= heap_length`.
    pub offset: u64,
    /// Part of the heap's payload in this packet.
    pub payload: &'a [u8],
    pointers: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses `datagram`.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let (packet, length) = Self::head(datagram)?;
        match (packet.payload.len() as u64).cmp(&length) {
            std::cmp::Ordering::Less => Err(Malformed::Truncated),
            std::cmp::Ordering::Greater => Err(Malformed::Length),
            std::cmp::Ordering::Equal => Ok(packet),
        }
    }

    /// Parses the beginning of a datagram, with all item pointers; returns the packet, with a part of its payload, and
    /// the length of its payload.
    pub fn head(datagram: &'a [u8]) -> Result<(Self, u64), Malformed> {
        let Some((header, rest)) = datagram.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::NotSpead);
        };
        if header[0] != PREFIX[0] {
            return Err(Malformed::NotSpead);
        }
        if header[1..4] != PREFIX[1..4] {
            return Err(Malformed::Flavour);
        }
        let count = usize::from(u16::from_be_bytes([header[6], header[7]]));
        let Some((pointers, payload)) = rest.split_at_checked(count * POINTER_BYTES) else {
            return Err(Malformed::Truncated);
        };
        let (mut counter, mut heap_length, mut offset, mut length) = (None, None, None, None);
        for pointer in decode(pointers).filter(|pointer| pointer.immediate) {
            match pointer.id {
                item::HEAP_COUNTER => counter = Some(pointer.value),
                item::HEAP_LENGTH => heap_length = Some(pointer.value),
                item::PAYLOAD_OFFSET => offset = Some(pointer.value),
                item::PAYLOAD_LENGTH => length = Some(pointer.value),
                _ => {}
            }
        }
        let (Some(heap_counter), Some(heap_length), Some(offset), Some(length)) =
            (counter, heap_length, offset, length)
        else {
            return Err(Malformed::Length);
        };
        // Both are below 2^48, the sum cannot overflow.
        if offset + length > heap_length {
            return Err(Malformed::Offset);
        }
        Ok((Self { heap_counter, heap_length, offset, payload, pointers }, length))
    }

    /// Returns all item pointers, in the order on the wire.
    pub fn pointers(&self) -> impl Iterator<Item = Pointer> + use<'a> {
        decode(self.pointers)
    }

    /// Returns the value of the immediate item `id`.
    #[must_use]
    pub fn value(&self, id: u16) -> Option<u64> {
        self.pointers().find(|p| p.immediate && p.id == id).map(|p| p.value)
    }
}

fn decode(pointers: &[u8]) -> impl Iterator<Item = Pointer> + use<'_> {
    let (words, _) = pointers.as_chunks::<POINTER_BYTES>();
    words.iter().map(|word| Pointer::from_word(u64::from_be_bytes(*word)))
}

/// Largest number of item pointers in a packet that fxgraph sends.
pub const MAX_POINTERS: usize = 20;

/// Header and item pointers of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; HEADER_BYTES + MAX_POINTERS * POINTER_BYTES],
    len: usize,
}

impl Head {
    /// Creates the head of the packet that carries `length` bytes from `offset` of a heap with `items`.
    ///
    /// # Panics
    /// If there are more than [`MAX_POINTERS`] pointers, the four of every packet included; the
    /// streams here have at most 17.
    #[must_use]
    pub fn new(
        heap_counter: u64,
        heap_length: usize,
        offset: usize,
        length: usize,
        items: &[Pointer],
    ) -> Self {
        let count = 4 + items.len();
        assert!(count <= MAX_POINTERS, "a heap has at most {MAX_POINTERS} item pointers");
        let lead = [
            Pointer::immediate(item::HEAP_COUNTER, heap_counter),
            Pointer::immediate(item::HEAP_LENGTH, heap_length as u64),
            Pointer::immediate(item::PAYLOAD_OFFSET, offset as u64),
            Pointer::immediate(item::PAYLOAD_LENGTH, length as u64),
        ];
        let mut head = Self { bytes: [0; _], len: HEADER_BYTES + count * POINTER_BYTES };
        head.bytes[..PREFIX.len()].copy_from_slice(&PREFIX);
        head.bytes[PREFIX.len()..HEADER_BYTES].copy_from_slice(&(count as u16).to_be_bytes());
        let (words, _) = head.bytes[HEADER_BYTES..].as_chunks_mut::<POINTER_BYTES>();
        for (word, pointer) in words.iter_mut().zip(lead.iter().chain(items)) {
            *word = pointer.to_word().to_be_bytes();
        }
        head
    }

    /// Returns the bytes for the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn datagram(
        counter: u64,
        heap: usize,
        offset: usize,
        part: &[u8],
        items: &[Pointer],
    ) -> Vec<u8> {
        let head = Head::new(counter, heap, offset, part.len(), items);
        [head.as_bytes(), part].concat()
    }

    #[test]
    fn digitiser_packet_has_the_bytes_of_the_standard() {
        let items = [
            Pointer::immediate(item::TIMESTAMP, 0x1234),
            Pointer::immediate(item::DIGITISER_ID, 1),
            Pointer::immediate(item::DIGITISER_STATUS, 0),
            Pointer::addressed(item::RAW_SAMPLES, 0),
        ];
        let bytes = datagram(7, 5120, 0, &[0; 5120], &items);
        assert_eq!(bytes.len(), 5192);
        assert_eq!(bytes[..8], [0x53, 4, 2, 6, 0, 0, 0, 8]);
        assert_eq!(bytes[8..16], [0x80, 1, 0, 0, 0, 0, 0, 7]);
        assert_eq!(bytes[16..24], [0x80, 2, 0, 0, 0, 0, 0x14, 0]);
        assert_eq!(bytes[40..48], [0x96, 0, 0, 0, 0, 0, 0x12, 0x34]);
        assert_eq!(bytes[64..72], [0x33, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn malformed_packets_return_their_cause() {
        let good = datagram(1, 64, 32, &[9; 32], &[]);
        let parse = |bytes: &[u8]| Packet::parse(bytes).map(|_| ());
        assert_eq!(parse(&good), Ok(()));
        assert_eq!(parse(&good[..7]), Err(Malformed::NotSpead));
        assert_eq!(parse(b"GET / HTTP/1.1"), Err(Malformed::NotSpead));
        let mut flavour = good.clone();
        flavour[2] = 3;
        assert_eq!(parse(&flavour), Err(Malformed::Flavour));
        assert_eq!(parse(&good[..20]), Err(Malformed::Truncated));
        assert_eq!(parse(&good[..good.len() - 1]), Err(Malformed::Truncated));
        assert_eq!(parse(&[&good[..], &[0]].concat()), Err(Malformed::Length));
        assert_eq!(
            parse(&PREFIX.into_iter().chain([0, 0]).collect::<Vec<_>>()),
            Err(Malformed::Length)
        );
        assert_eq!(parse(&datagram(1, 63, 32, &[9; 32], &[])), Err(Malformed::Offset));
        assert_eq!(parse(&datagram(1, 64, (1 << 48) - 1, &[9; 32], &[])), Err(Malformed::Offset));
    }

    proptest! {
        #[test]
        fn written_packet_parses_to_the_same_values(
            counter in 0_u64..1 << 48,
            before in 0_usize..1000,
            after in 0_usize..1000,
            payload in proptest::collection::vec(any::<u8>(), 0..200),
            items in proptest::collection::vec((any::<bool>(), 0x10_u16..0x8000, 0_u64..1 << 48), 0..12),
        ) {
            let items: Vec<Pointer> = items
                .into_iter()
                .map(|(immediate, id, value)| Pointer { immediate, id, value })
                .collect();
            let heap = before + payload.len() + after;
            let bytes = datagram(counter, heap, before, &payload, &items);
            let packet = Packet::parse(&bytes).unwrap();
            prop_assert_eq!(packet.heap_counter, counter);
            prop_assert_eq!(packet.heap_length, heap as u64);
            prop_assert_eq!(packet.offset, before as u64);
            prop_assert_eq!(packet.payload, &payload[..]);
            prop_assert_eq!(packet.pointers().skip(4).collect::<Vec<_>>(), items);
        }

        #[test]
        fn arbitrary_bytes_parse_without_panic_and_stay_inside_the_heap(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            like_spead in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if like_spead && bytes.len() > 8 {
                bytes[..6].copy_from_slice(&PREFIX);
                bytes[6] = 0;
                bytes[7] %= 16;
            }
            if let Ok(packet) = Packet::parse(&bytes) {
                prop_assert!(packet.offset + packet.payload.len() as u64 <= packet.heap_length);
            }
        }
    }
}
