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
    /// imaginary part; at most as many as fit.
    ///
    /// # Panics
    /// If there are more antennas than allocated, or `range` exceeds a row.
    pub fn read<T: Copy + Into<f32>>(
        &mut self,
        samples: &[[T; 2]],
        row: usize,
        range: Range<usize>,
    ) {
        self.len = range.len().min(self.room);
        for (antenna, samples) in samples.chunks_exact(row).enumerate() {
            let at = antenna * self.room;
            let re = &mut self.re[at..at + self.len];
            let im = &mut self.im[at..at + self.len];
            for ((sample, re), im) in samples[range.clone()].iter().zip(re).zip(im) {
                [*re, *im] = [sample[0].into(), sample[1].into()];
            }
        }
    }

    /// Returns real and imaginary parts of the samples `range` of an antenna.
    #[inline]
    #[must_use]
    pub fn parts(&self, antenna: usize, range: Range<usize>) -> (&[f32], &[f32]) {
        let at = antenna * self.room;
        (&self.re[at + range.start..at + range.end], &self.im[at + range.start..at + range.end])
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
