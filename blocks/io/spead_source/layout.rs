//! Mapping from the items of a packet to a frame and a slot in the frame.
//!
//! In every stream the payload of a heap is contiguous in the frame: a frame is an array of equal
//! *slots*, one per heap.

use crate::io::spead::item;
use crate::io::spead::packet::Packet;

/// The heaps of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Packed samples of one polarisation.
    Digitiser {
        /// Least significant bit of the digitiser's identifier; `None` accepts both polarisations.
        pol: Option<u64>,
    },
    /// Channelised voltages of several antennas.
    FEngine {
        /// F-engines `0..antennas`.
        antennas: usize,
        /// Channel blocks, one heap each.
        substreams: usize,
        /// Index, in the whole band, of the first channel.
        first_channel: u64,
        /// Channels in a heap.
        channels_per_substream: u64,
    },
}

/// Layout of heaps in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Type of the stream.
    pub stream: Stream,
    /// Payload bytes of a heap.
    pub heap_bytes: usize,
    /// ADC samples from one heap to the next in time.
    pub samples_per_heap: u64,
    /// Heap timestamps in a frame.
    pub heaps_per_frame: usize,
}

/// Frame and slot of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the frame since sync time.
    pub frame: u64,
    /// Slot of the frame.
    pub slot: usize,
    /// The heap's full timestamp.
    pub timestamp: u64,
    /// Samples the digitiser clipped.
    pub saturated: u32,
}

/// Reason why a well-formed packet does not belong to this stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// The packet has other items, or another polarisation, antenna or channel.
    Stream,
    /// The length of the heap differs from that of the stream.
    HeapLength,
    /// The timestamp is not a multiple of the heap's length.
    Misaligned,
}

impl Layout {
    /// Heaps in a frame.
    #[must_use]
    pub fn slots(&self) -> usize {
        match self.stream {
            Stream::Digitiser { .. } => self.heaps_per_frame,
            Stream::FEngine { antennas, substreams, .. } => {
                self.heaps_per_frame * antennas * substreams
            }
        }
    }

    /// Heaps that make up one unit of validity.
    #[must_use]
    pub fn heaps_per_unit(&self) -> usize {
        match self.stream {
            Stream::Digitiser { .. } => 1,
            Stream::FEngine { substreams, .. } => substreams,
        }
    }

    /// ADC samples from one frame to the next.
    #[must_use]
    pub fn samples_per_frame(&self) -> u64 {
        self.samples_per_heap * self.heaps_per_frame as u64
    }

    /// Returns the place of the heap of `packet`; `unwrap` extends a 48-bit timestamp on the wire to the
    /// full timestamp.
    pub fn place(
        &self,
        packet: &Packet<'_>,
        unwrap: impl FnOnce(u64) -> u64,
    ) -> Result<Place, Foreign> {
        let raw_id = match self.stream {
            Stream::Digitiser { .. } => item::RAW_SAMPLES,
            Stream::FEngine { .. } => item::FENG_RAW,
        };
        let (mut timestamp, mut sender, mut frequency, mut status) = (None, None, None, 0);
        let mut has_raw = false;
        for pointer in packet.pointers() {
            match (pointer.id, pointer.immediate) {
                (item::TIMESTAMP, true) => timestamp = Some(pointer.value),
                (item::DIGITISER_ID | item::FENG_ID, true) => sender = Some(pointer.value),
                (item::FREQUENCY, true) => frequency = Some(pointer.value),
                (item::DIGITISER_STATUS, true) => status = pointer.value,
                (id, false) if id == raw_id => has_raw = pointer.value == 0,
                _ => {}
            }
        }
        let timestamp = timestamp.filter(|_| has_raw).ok_or(Foreign::Stream)?;
        if packet.heap_length != self.heap_bytes as u64 {
            return Err(Foreign::HeapLength);
        }
        let part = self.part(sender, frequency).ok_or(Foreign::Stream)?;
        let timestamp = unwrap(timestamp);
        if !timestamp.is_multiple_of(self.samples_per_heap) {
            return Err(Foreign::Misaligned);
        }
        let heap = timestamp / self.samples_per_heap;
        let per_frame = self.heaps_per_frame as u64;
        let parts = self.slots() / self.heaps_per_frame;
        Ok(Place {
            frame: heap / per_frame,
            slot: (heap % per_frame) as usize * parts + part,
            timestamp,
            saturated: (status >> 32) as u32 & 0xffff,
        })
    }

    /// Returns the index of the heap among the heaps of one timestamp.
    fn part(&self, sender: Option<u64>, frequency: Option<u64>) -> Option<usize> {
        match self.stream {
            Stream::Digitiser { pol: None } => Some(0),
            Stream::Digitiser { pol: Some(pol) } => (sender? & 1 == pol).then_some(0),
            Stream::FEngine { antennas, substreams, first_channel, channels_per_substream } => {
                let antenna = usize::try_from(sender?).ok().filter(|a| *a < antennas)?;
                let channel = frequency?.checked_sub(first_channel)?;
                let substream = usize::try_from(channel / channels_per_substream).ok()?;
                let fits = channel % channels_per_substream == 0 && substream < substreams;
                fits.then_some(antenna * substreams + substream)
            }
        }
    }
}
