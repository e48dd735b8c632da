//! Complex samples of any type, converted to two rows of floats per antenna.

use crate::simd::Lines;
use std::ops::Range;

/// Samples of each antenna as floats.
pub struct Planes {
    re: Lines<f32>,
    im: Lines<f32>,
    /// Capacity in samples.
    room: usize,
    /// Number of samples.
    len: usize,
}

impl Planes {
    /// Allocates `room` samples for each of `antennas` antennas.
    #[must_use]
    pub fn new(antennas: usize, room: usize) -> Self {
        Self { re: Lines::new(antennas * room), im: Lines::new(antennas * room), room, len: 0 }
    }

    /// Copies the samples `range` of each antenna from `samples` `[antenna][row]`, pairs of real and
    /// imaginary part; at most as many as fit. Values are conjugated if the spectrum is `inverted`.
    ///
    /// # Panics
    /// If there are more antennas than allocated, or `range` exceeds a row.
    pub fn read<T: Copy + Into<f32>>(
        &mut self,
        samples: &[[T; 2]],
        row: usize,
        range: Range<usize>,
        inverted: bool,
    ) {
        self.len = range.len().min(self.room);
        let sign = if inverted { -1.0 } else { 1.0 };
        for (antenna, samples) in samples.chunks_exact(row).enumerate() {
            let at = antenna * self.room;
            let re = &mut self.re[at..at + self.len];
            let im = &mut self.im[at..at + self.len];
            for ((sample, re), im) in samples[range.clone()].iter().zip(re).zip(im) {
                [*re, *im] = [sample[0].into(), sign * sample[1].into()];
            }
        }
    }

    /// [`read`](Self::read) for real samples `[antenna][row]`; imaginary parts become 0.
    ///
    /// # Panics
    /// If there are more antennas than allocated, or `range` exceeds a row.
    pub fn read_real<T: Copy + Into<f32>>(
        &mut self,
        samples: &[T],
        row: usize,
        range: Range<usize>,
    ) {
        self.len = range.len().min(self.room);
        for (antenna, samples) in samples.chunks_exact(row).enumerate() {
            let at = antenna * self.room;
            self.im[at..at + self.len].fill(0.0);
            let parts = samples[range.clone()].iter().zip(&mut self.re[at..at + self.len]);
            parts.for_each(|(sample, re)| *re = (*sample).into());
        }
    }

    /// Returns real and imaginary parts of the samples `range` of an antenna.
    #[inline]
    #[must_use]
    pub fn parts(&self, antenna: usize, range: Range<usize>) -> (&[f32], &[f32]) {
        let at = antenna * self.room;
        (&self.re[at + range.start..at + range.end], &self.im[at + range.start..at + range.end])
    }

    /// Returns real and imaginary parts of all samples of an antenna, for changes.
    #[inline]
    pub fn parts_mut(&mut self, antenna: usize) -> (&mut [f32], &mut [f32]) {
        let range = antenna * self.room..antenna * self.room + self.len;
        (&mut self.re[range.clone()], &mut self.im[range])
    }

    /// Returns the number of samples.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no samples.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
