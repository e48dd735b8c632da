//! Division of a frame into heaps.

use super::partial::{Partial, PartialDumps};
use crate::io::spead::descriptor::{self, Description, Elements};
use crate::io::spead::item;
use crate::io::spead::packet::{Pointer, VALUE_BITS};
use fxgraph::{BlockError, Frame};
use fxgraph_dsp::packed::Decoder;
use fxgraph_dsp::stefcal::antennas_of;

/// Type of a stream, with its identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Heaps go to the groups in turn.
    Digitiser {
        /// Identifier, the polarisation in its least significant bit.
        digitiser_id: u64,
        /// Bits of a sample.
        bits: u8,
    },
    /// Heaps of an F-engine.
    FEngine {
        /// Number of the F-engine.
        feng_id: u64,
    },
    /// Visibilities.
    XEngine,
    /// Beams.
    BEngine {
        /// Number of beams.
        beams: usize,
    },
}

/// Division of a frame into heaps, each contiguous in the frame.
#[derive(Clone, Debug)]
pub struct Heaps {
    /// Type of the stream.
    pub stream: Stream,
    /// Heap timestamps in a frame.
    pub times: usize,
    /// Channel blocks (groups of a digitiser).
    pub groups: usize,
    /// Payload bytes of a heap.
    pub heap_bytes: usize,
    /// ADC samples from one heap to the next in time.
    pub samples_per_heap: u64,
    /// Index of the first channel in the whole band.
    pub first_channel: usize,
    /// Channels in a heap.
    pub channels_per_substream: usize,
    /// Lengths of the axes of the payload.
    pub shape: Vec<usize>,
    /// Type of the payload's elements.
    pub elements: Elements,
    /// Rule for partial visibilities and beams.
    pub partial: Partial,
    /// Counts of each visibility of a channel, or of each channel of a beam; 0 if there is one count for all channels.
    pub counts_per_channel: usize,
}

/// Largest table of baselines in bytes: descriptors are sent without pauses.
const MAX_ORDER_BYTES: usize = 1 << 16;
/// Largest number of item pointers of a heap, without the four of every packet.
const MAX_ITEMS: usize = 4;

/// One heap to send.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    /// Offset of its payload in the frame, in bytes.
    pub start: usize,
    /// Index of its destination.
    pub destination: usize,
    /// Whether the heap is sent although some of its data is missing.
    pub is_partial: bool,
    /// Whether [`Heaps::rewrite`] computes the payload; otherwise it is sent from the frame.
    pub is_rewritten: bool,
    items: [Pointer; MAX_ITEMS],
    len: usize,
}

impl Heap {
    /// Returns the item pointers of the heap.
    #[must_use]
    pub fn items(&self) -> &[Pointer] {
        &self.items[..self.len]
    }
}

/// Antennas and polarisations of all visibilities of an array, whose number says which: no number of visibilities of two
/// polarisations is one of one polarisation.
fn antennas_and_pols(visibilities: usize) -> Option<(usize, usize)> {
    let of_two = (visibilities / 2).isqrt();
    if of_two > 0 && 2 * of_two * (of_two + 1) == visibilities {
        return Some((of_two, 2));
    }
    antennas_of(visibilities).map(|antennas| (antennas, 1))
}

impl Heaps {
    /// Returns the number of heaps in a frame.
    #[must_use]
    pub fn per_frame(&self) -> usize {
        match self.stream {
            Stream::Digitiser { .. } => self.times,
            Stream::FEngine { .. } | Stream::XEngine => self.times * self.groups,
            Stream::BEngine { beams } => self.times * beams * self.groups,
        }
    }

    /// Returns the timestamp of heap number `index` of a frame with timestamp `frame`.
    #[must_use]
    pub fn timestamp(&self, frame: u64, index: usize) -> u64 {
        let time = index / (self.per_frame() / self.times);
        frame.wrapping_add(time as u64 * self.samples_per_heap)
    }

    /// Returns heap number `index` of `frame`; `None` if its data are not valid.
    #[must_use]
    pub fn heap(&self, frame: &Frame, index: usize) -> Option<Heap> {
        let validity = &frame.header().validity;
        let time = index / (self.per_frame() / self.times);
        let group = index % self.groups;
        let offset = time as u64 * self.samples_per_heap;
        // Timestamps on the wire have 48 bits and wrap.
        let timestamp = frame.header().timestamp.wrapping_add(offset) & ((1 << VALUE_BITS) - 1);
        let frequency = self.first_channel + group * self.channels_per_substream;
        let frequency = Pointer::immediate(item::FREQUENCY, frequency as u64);
        let count = match self.stream {
            Stream::XEngine | Stream::BEngine { .. } => {
                self.counts(validity, index).iter().copied().max()
            }
            Stream::Digitiser { .. } => {
                // Heaps on the wire may be longer or shorter than the units of validity.
                let first = time * validity.len() / self.times;
                let end = ((time + 1) * validity.len()).div_ceil(self.times);
                validity.get(first..end).and_then(|units| units.iter().copied().min())
            }
            Stream::FEngine { .. } => validity.get(time).copied(),
        };
        let least = match self.stream {
            Stream::XEngine | Stream::BEngine { .. } => self.partial.least,
            Stream::Digitiser { .. } | Stream::FEngine { .. } => 1,
        };
        let count = count.filter(|count| *count >= least)?;
        let is_partial = match self.stream {
            Stream::XEngine | Stream::BEngine { .. } => {
                self.counts(validity, index).iter().any(|count| *count < self.partial.full)
            }
            Stream::Digitiser { .. } | Stream::FEngine { .. } => false,
        };
        let start = index * self.heap_bytes;
        let mut heap = Heap {
            start,
            destination: group,
            is_partial,
            is_rewritten: is_partial && self.rewrites(),
            items: [Pointer::immediate(item::TIMESTAMP, timestamp); MAX_ITEMS],
            len: 1,
        };
        let mut add = |pointer| {
            heap.items[heap.len] = pointer;
            heap.len += 1;
        };
        match self.stream {
            Stream::Digitiser { digitiser_id, bits } => {
                let payload = frame.as_slice::<u8>().ok()?.get(start..start + self.heap_bytes)?;
                let saturated = Decoder::new(bits)?.saturated(payload).min(0xffff);
                let status = (saturated << 32) | (u64::from(saturated > 0) << 1);
                add(Pointer::immediate(item::DIGITISER_ID, digitiser_id));
                add(Pointer::immediate(item::DIGITISER_STATUS, status));
                add(Pointer::addressed(item::RAW_SAMPLES, 0));
                let number = timestamp / self.samples_per_heap;
                heap.destination = (number % self.groups as u64) as usize;
            }
            Stream::FEngine { feng_id } => {
                add(Pointer::immediate(item::FENG_ID, feng_id));
                add(frequency);
                add(Pointer::addressed(item::FENG_RAW, 0));
            }
            Stream::XEngine => {
                add(frequency);
                add(Pointer::addressed(item::XENG_RAW, 0));
            }
            Stream::BEngine { beams } => {
                add(frequency);
                add(Pointer::immediate(item::BEAM_ANTENNAS, u64::from(count)));
                add(Pointer::addressed(item::BF_RAW, 0));
                let beam = index / self.groups % beams;
                heap.destination = beam * self.groups + group;
            }
        }
        Some(heap)
    }

    /// Returns the counts of visibilities or beams that apply to heap number `index` of a frame.
    fn counts<'a>(&self, validity: &'a [u32], index: usize) -> &'a [u32] {
        let of_heap = self.counts_per_channel * self.channels_per_substream;
        let range = match self.stream {
            _ if of_heap > 0 => index * of_heap..(index + 1) * of_heap,
            Stream::BEngine { beams } => {
                let time = index / (beams * self.groups);
                time..time + 1
            }
            _ => 0..validity.len(),
        };
        validity.get(range).unwrap_or_default()
    }

    /// Whether any heap is sent with a payload that differs from the frame.
    #[must_use]
    pub fn rewrites(&self) -> bool {
        match self.stream {
            Stream::XEngine => self.partial.policy != PartialDumps::Send,
            Stream::BEngine { .. } => self.partial.policy == PartialDumps::Scale,
            Stream::Digitiser { .. } | Stream::FEngine { .. } => false,
        }
    }

    /// Writes the payload of the partial heap number `index` of `frame` to `to`. Returns the number of
    /// baselines flagged in the heap, or of visibilities if these are counted one by one.
    pub fn rewrite(&self, frame: &Frame, index: usize, to: &mut [u8]) -> Result<usize, BlockError> {
        let counts = self.counts(&frame.header().validity, index);
        let from = &frame.as_slice::<u8>()?[index * self.heap_bytes..][..self.heap_bytes];
        if self.stream == Stream::XEngine {
            // Without counts of channels, those of the baselines apply to each channel.
            let repeated =
                if self.counts_per_channel > 0 { 1 } else { self.channels_per_substream };
            return Ok(self.partial.visibilities(counts, repeated, from, to));
        }
        let bytes = from.len() / counts.len().max(1);
        let parts = from.chunks_exact(bytes.max(1)).zip(to.chunks_exact_mut(bytes.max(1)));
        for ((from, to), count) in parts.zip(counts) {
            self.partial.beam(*count, from, to);
        }
        Ok(0)
    }

    /// Returns the pairs of inputs `[visibility][2]` as `<u2` bytes; `None` for other streams and if the table
    /// exceeds [`MAX_ORDER_BYTES`].
    fn baseline_order(&self) -> Option<Vec<u8>> {
        let (Stream::XEngine, &[_, visibilities, _]) = (self.stream, &self.shape[..]) else {
            return None;
        };
        let (antennas, pols) = antennas_and_pols(visibilities)?;
        let pairs = (0..antennas).flat_map(|a2| (0..=a2).map(move |a1| (a1, a2)));
        let inputs = pairs.flat_map(|(a1, a2)| {
            (0..pols * pols).map(move |n| [pols * a1 + n % pols, pols * a2 + n / pols])
        });
        (4 * visibilities <= MAX_ORDER_BYTES)
            .then(|| inputs.flatten().flat_map(|input| (input as u16).to_le_bytes()).collect())
    }

    /// Returns the item pointers and payload of the heap that describes the items to receivers.
    #[must_use]
    pub fn descriptors(&self) -> (Vec<Pointer>, Vec<u8>) {
        let (mut pointers, mut payload) = descriptor::heap(&self.descriptions());
        if let Some(order) = self.baseline_order() {
            pointers.push(Pointer::addressed(item::BLS_ORDERING, payload.len() as u64));
            payload.extend(order);
        }
        (pointers, payload)
    }

    /// Returns the descriptions of the items.
    fn descriptions(&self) -> Vec<Description> {
        let raw = |id, name, text| Description {
            id,
            name,
            text,
            shape: self.shape.clone(),
            elements: self.elements,
        };
        let frequency = Description::immediate(
            item::FREQUENCY,
            "frequency",
            "index of the first channel in the heap",
        );
        let mut all = vec![Description::immediate(
            item::TIMESTAMP,
            "timestamp",
            "ADC samples since sync time",
        )];
        match self.stream {
            Stream::Digitiser { .. } => all.extend([
                Description::immediate(
                    item::DIGITISER_ID,
                    "digitiser_id",
                    "digitiser, with the polarisation in the least significant bit",
                ),
                Description::immediate(
                    item::DIGITISER_STATUS,
                    "digitiser_status",
                    "saturated samples in bits 47 to 32, saturation flag in bit 1",
                ),
                raw(item::RAW_SAMPLES, "raw_data", "samples of the ADC"),
            ]),
            Stream::FEngine { .. } => all.extend([
                Description::immediate(item::FENG_ID, "feng_id", "number of the F-engine"),
                frequency,
                raw(item::FENG_RAW, "feng_raw", "channelised voltages, real and imaginary part"),
            ]),
            Stream::XEngine => {
                all.extend([
                    frequency,
                    raw(
                        item::XENG_RAW,
                        "xeng_raw",
                        "visibilities, real and imaginary part; number 4 (a2 (a2 + 1) / 2 + a1) + p1 + 2 p2 on \
                         the second axis is antenna a1 polarisation p1 times the conjugate of antenna a2 \
                         polarisation p2, a1 <= a2, and with one polarisation number a2 (a2 + 1) / 2 + a1; \
                         (-2^31, 1) flags missing data",
                    ),
                ]);
                all.extend(self.baseline_order().map(|order| Description {
                    id: item::BLS_ORDERING,
                    name: "bls_ordering",
                    text: "pair of inputs of each visibility, the second one conjugated; an input is \
                           2 x antenna + polarisation, or with one polarisation the antenna",
                    shape: vec![order.len() / 4, 2],
                    elements: Elements::Numpy("<u2"),
                }));
            }
            Stream::BEngine { .. } => all.extend([
                frequency,
                Description::immediate(
                    item::BEAM_ANTENNAS,
                    "beam_ants",
                    "number of antennas that contributed",
                ),
                raw(item::BF_RAW, "bf_raw", "beam voltages, real and imaginary part"),
            ]),
        }
        all
    }
}
