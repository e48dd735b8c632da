//! From the order of a correlator, `[channel][baseline][product]`, to chunks of a file,
//! `[row][channel][polarisation]`, with flags and numbers of samples.

use super::Shape;
use std::ops::Range;

/// Visibilities as pairs of real and imaginary part, `[channel][baseline][product]`.
#[derive(Clone, Copy, Debug)]
pub enum Visibilities<'a> {
    /// Integers.
    Integers(&'a [i32]),
    /// Single precision.
    Floats(&'a [f32]),
}

/// Place of the count of a visibility in a table of counts: `sum of (index / divisor) x stride`, over channel, baseline
/// and product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Elements of each axis that share a count.
    pub divisors: [usize; 3],
    /// Distance of counts along each axis; 0 where they do not depend on it.
    pub strides: [usize; 3],
}

impl Counts {
    /// Returns the places for counts with these axes, given as (number of the axis of the visibilities, length).
    /// `None` if an axis occurs twice or does not divide its axis of the visibilities into equal parts.
    #[must_use]
    pub fn new(axes: &[(usize, usize)], lens: [usize; 3]) -> Option<Self> {
        let mut counts = Self { divisors: [1; 3], strides: [0; 3] };
        let mut stride = 1;
        for &(axis, len) in axes.iter().rev() {
            let all = *lens.get(axis)?;
            if len == 0 || !all.is_multiple_of(len) || counts.strides[axis] != 0 {
                return None;
            }
            counts.divisors[axis] = all / len;
            counts.strides[axis] = stride;
            stride *= len;
        }
        Some(counts)
    }

    fn place(&self, axis: usize, index: usize) -> usize {
        index / self.divisors[axis] * self.strides[axis]
    }
}

/// A correlator's dump of some channels of the file.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The sums.
    pub visibilities: Visibilities<'a>,
    /// Counts of what contributed.
    pub counts: &'a [u32],
    /// Places of the counts.
    pub places: Counts,
    /// Count of a complete visibility.
    pub full: u32,
    /// Whether the sums are those of an inverted spectrum: the conjugates of the sums on the sky.
    pub is_inverted: bool,
}

/// Order and scale of the visibilities of a file.
#[derive(Clone, Debug)]
pub struct Order {
    /// Row of each baseline of the correlator.
    pub rows: Vec<usize>,
    /// Place of each product of the correlator in the polarisation axis.
    pub polarisations: Vec<usize>,
    /// Samples of a complete dump by which sums are divided; `None` leaves sums as they are.
    pub samples: Option<f64>,
}

/// Data of some channels of a dump, for all baselines.
#[derive(Clone, Debug)]
pub struct Chunk {
    channels: usize,
    products: usize,
    /// Complex values as bytes, `[row][channel][polarisation]`.
    pub visibilities: Vec<u8>,
    /// 1 where there is no value.
    pub flags: Vec<u8>,
    /// Fractions of a complete dump, as bytes.
    pub samples: Vec<u8>,
    lacks_nothing: bool,
}

/// Number of samples of a complete visibility, as bytes.
const WHOLE: [u8; 4] = 1_f32.to_le_bytes();

/// Numbers of visibilities without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flagged {
    /// To which nothing contributed.
    pub missing: u64,
    /// Infinite or NaN.
    pub not_finite: u64,
}

impl Chunk {
    /// A chunk of a file with this layout.
    #[must_use]
    pub fn new(shape: &Shape) -> Self {
        let values = shape.chunk_values();
        let mut chunk = Self {
            channels: shape.chunk_channels,
            products: shape.products,
            visibilities: vec![0; 8 * values],
            flags: vec![0; values],
            samples: vec![0; 4 * values],
            lacks_nothing: true,
        };
        chunk.begin(0);
        chunk
    }

    /// Whether every visibility is complete.
    #[must_use]
    pub fn lacks_nothing(&self) -> bool {
        self.lacks_nothing
    }

    /// Begins another chunk, in which `channels` channels will be filled or missed; all are complete so far.
    pub fn begin(&mut self, channels: usize) {
        self.lacks_nothing = true;
        if channels < self.channels {
            // The rest must be the same in every chunk.
            self.visibilities.fill(0);
            self.flags.fill(0);
            self.samples.chunks_exact_mut(4).for_each(|s| s.copy_from_slice(&WHOLE));
        }
    }

    /// Flags the channels from `at` on, as many as `channels`, and returns the number of visibilities.
    pub fn miss(&mut self, at: usize, channels: usize) -> u64 {
        let [row, first, len] = [self.channels, at, channels].map(|n| n * self.products);
        for flags in self.flags.chunks_exact_mut(row) {
            flags[first..first + len].fill(1);
        }
        for samples in self.samples.chunks_exact_mut(4 * row) {
            samples[4 * first..4 * (first + len)].fill(0);
        }
        for values in self.visibilities.chunks_exact_mut(8 * row) {
            values[8 * first..8 * (first + len)].fill(0);
        }
        self.lacks_nothing = false;
        (self.flags.len() / self.channels * channels) as u64
    }

    /// Copies `channels` of `part` to the channels from `at` on. Complex values are conjugated: the sums of a correlator
    /// are `e1 x conj(e2)`, and the visibilities of pyuvdata are `conj(e1) x e2`. Those of an inverted spectrum are
    /// conjugated already.
    pub fn fill(
        &mut self,
        part: &Part<'_>,
        order: &Order,
        channels: Range<usize>,
        at: usize,
    ) -> Flagged {
        match part.visibilities {
            Visibilities::Integers(values) => self.copy(values, part, order, channels, at),
            Visibilities::Floats(values) => self.copy(values, part, order, channels, at),
        }
    }

    fn copy<T: Copy + Into<f64>>(
        &mut self,
        values: &[T],
        part: &Part<'_>,
        order: &Order,
        channels: Range<usize>,
        at: usize,
    ) -> Flagged {
        let Part { counts, places, full, is_inverted, .. } = part;
        let sign = if *is_inverted { 1.0 } else { -1.0 };
        let (baselines, products) = (order.rows.len(), self.products);
        let mut flagged = Flagged::default();
        let mut share = Share::new(*full, *full, order.samples);
        let mut lacks_nothing = self.lacks_nothing;
        for (baseline, row) in order.rows.iter().enumerate() {
            let of_baseline = places.place(1, baseline);
            for (n, channel) in channels.clone().enumerate() {
                let of_channel = of_baseline + places.place(0, channel);
                let from = 2 * products * (channel * baselines + baseline);
                let from = &values[from..from + 2 * products];
                let to = (row * self.channels + at + n) * products;
                let visibilities = &mut self.visibilities[8 * to..8 * (to + products)];
                let flags = &mut self.flags[to..to + products];
                let samples = &mut self.samples[4 * to..4 * (to + products)];
                for (product, to) in order.polarisations.iter().copied().enumerate() {
                    let count = counts[of_channel + places.place(2, product)];
                    if count != share.count {
                        share = Share::new(count, *full, order.samples);
                    }
                    let [re, im]: [f64; 2] =
                        [from[2 * product].into(), from[2 * product + 1].into()];
                    // A zero without a sign.
                    let mut value =
                        [re * share.factor + 0.0, sign * im * share.factor + 0.0].map(|v| v as f32);
                    let is_finite = value[0].is_finite() && value[1].is_finite();
                    if count == 0 || !is_finite {
                        flagged.missing += u64::from(count == 0);
                        flagged.not_finite += u64::from(count != 0);
                        value = [0.0; 2];
                        lacks_nothing = false;
                    }
                    lacks_nothing &= count == *full;
                    flags[to] = u8::from(count == 0 || !is_finite);
                    samples[4 * to..4 * to + 4].copy_from_slice(&share.bytes);
                    visibilities[8 * to..8 * to + 4].copy_from_slice(&value[0].to_le_bytes());
                    visibilities[8 * to + 4..8 * to + 8].copy_from_slice(&value[1].to_le_bytes());
                }
            }
        }
        self.lacks_nothing = lacks_nothing;
        flagged
    }
}

/// Scale of the visibilities with a count.
struct Share {
    count: u32,
    /// Fraction of a complete visibility, as bytes.
    bytes: [u8; 4],
    factor: f64,
}

impl Share {
    fn new(count: u32, full: u32, samples: Option<f64>) -> Self {
        let fraction = f64::from(count) / f64::from(full.max(1));
        let factor = samples.map_or(1.0, |samples| 1.0 / (samples * fraction));
        Self { count, bytes: (fraction as f32).to_le_bytes(), factor }
    }
}
