//! Counts of the heaps of each visibility, for input with flags for each channel and polarisation.

use crate::common::stacked::Stacked;
use crate::common::units;
use std::ops::Range;

/// Counts of one dump.
///
/// Most units are there, so that the heaps which do not contribute are counted, for the visibilities of missing units.
pub(super) struct Flagged {
    shape: Stacked,
    /// Heaps of the dump so far.
    heaps: u32,
    /// Heaps that do not contribute to a visibility, `[channel][baseline][product]`.
    left_out: Vec<u32>,
    /// Whether any unit of a heap of an antenna is there, `[heap][antenna]`, for the heaps counted last.
    present: Vec<u32>,
}

impl Flagged {
    pub(super) fn new(shape: &Stacked) -> Self {
        Self {
            shape: *shape,
            heaps: 0,
            left_out: vec![0; shape.channels * shape.products() * shape.baselines()],
            present: vec![0; shape.heaps * shape.antennas],
        }
    }

    /// Counts heaps `heaps` of a frame with the validity `valid` `[heap][antenna][channel][pol]`.
    pub(super) fn count(&mut self, valid: &[u32], heaps: Range<usize>) {
        let Stacked { antennas, channels, pols, .. } = self.shape;
        self.heaps += heaps.len() as u32;
        let row = channels * pols;
        let of_antennas = heaps.start * antennas..heaps.end * antennas;
        let units = &valid[of_antennas.start * row..of_antennas.end * row];
        units::reduce(units, &mut self.present[of_antennas]);
        for units in units.chunks_exact(antennas * row) {
            for (antenna, of_antenna) in units.chunks_exact(row).enumerate() {
                for (input, _) in of_antenna.iter().enumerate().filter(|(_, unit)| **unit == 0) {
                    self.leave_out(units, antenna, input / pols, input % pols);
                }
            }
        }
    }

    /// Counts the visibilities of a missing unit, each pair of missing units once; `units` `[antenna][channel][pol]`.
    fn leave_out(&mut self, units: &[u32], antenna: usize, channel: usize, pol: usize) {
        let Self { shape, .. } = *self;
        let Stacked { antennas, channels, pols, .. } = shape;
        let products = shape.products() * shape.baselines();
        let left_out = &mut self.left_out[channel * products..][..products];
        // As the second input of a product.
        let first = shape.product(0, 0, antenna, pol);
        for products in left_out[first..].chunks_mut(shape.products()).take(antenna + 1) {
            products[..pols].iter_mut().for_each(|count| *count += 1);
        }
        // As the first one, unless the second input is missing too and counts the product.
        for a2 in antenna..antennas {
            for p2 in 0..pols {
                let is_there = units[(a2 * channels + channel) * pols + p2] != 0;
                left_out[shape.product(antenna, pol, a2, p2)] += u32::from(is_there);
            }
        }
    }

    /// Returns whether any unit of a heap of an antenna is there, `[heap][antenna]`, for the heaps counted last.
    pub(super) fn present(&self) -> &[u32] {
        &self.present
    }

    /// Writes the counts `[channel][baseline][product]` and begins the next dump.
    pub(super) fn put_out(&mut self, counts: &mut [u32]) {
        for (count, left_out) in counts.iter_mut().zip(&mut self.left_out) {
            *count = self.heaps - std::mem::take(left_out);
        }
        self.heaps = 0;
    }
}
