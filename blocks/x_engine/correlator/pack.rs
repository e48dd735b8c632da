//! Packing of samples to panels of inputs that the inner loop reads sequentially.

use crate::common::stacked::Stacked;
use fxgraph::Dtype;
use fxgraph_dsp::correlator::{Geometry, Kernel, spread};
use std::ops::Range;

/// Spectra per block; the panels of 80 antennas fit in the L2 cache.
const BLOCK_SPECTRA: usize = 256;

/// A block of spectra of one channel, packed for the inner loop; see [`fxgraph_dsp::correlator::kernel`].
pub struct Panels {
    kernel: Kernel,
    geometry: Geometry,
    /// Capacity in steps.
    capacity: usize,
    /// Number of filled steps.
    steps: usize,
    /// `[panel][step][SIMD element]`, as are the two columns.
    row: Vec<u32>,
    column_re: Vec<u32>,
    column_im: Vec<u32>,
    /// Correction per row for the +128 offset of the unsigned-byte encoding (VNNI), real and imaginary.
    offsets: Vec<[i32; 2]>,
    /// Pairs of spectra of the inputs of one panel, `[pair of inputs][pair]`, see `fill_stage`.
    stage: Vec<u64>,
}

impl Panels {
    /// Allocates a block of the inputs of `shape`, packed for `kernel`.
    #[must_use]
    pub fn new(kernel: Kernel, shape: &Stacked) -> Self {
        let geometry = kernel.geometry();
        let capacity = if geometry.bytes { BLOCK_SPECTRA / 2 } else { BLOCK_SPECTRA };
        let panels = shape.inputs().div_ceil(geometry.lanes);
        let words = panels * capacity * geometry.lanes;
        Self {
            kernel,
            geometry,
            capacity,
            steps: 0,
            row: vec![0; words],
            column_re: vec![0; words],
            column_im: vec![0; words],
            offsets: vec![[0; 2]; panels * geometry.lanes],
            stage: vec![0; geometry.lanes / 2 * BLOCK_SPECTRA / 2],
        }
    }

    /// Size of the panels in bytes.
    #[must_use]
    pub fn bytes(geometry: Geometry, inputs: usize) -> usize {
        let inputs = inputs.next_multiple_of(geometry.lanes);
        let block = if geometry.bytes { BLOCK_SPECTRA / 2 } else { BLOCK_SPECTRA };
        inputs * (block * 12 + 8) + geometry.lanes * BLOCK_SPECTRA * 2
    }

    /// Number of spectra that still fit. An odd number of spectra takes the space of one more.
    #[must_use]
    pub fn room(&self) -> usize {
        let steps = self.capacity - self.steps;
        if self.geometry.bytes { 2 * steps } else { steps }
    }

    /// Removes the spectra, and keeps the offsets.
    pub fn clear(&mut self) {
        self.steps = 0;
    }

    /// Returns the correction to subtract from the sums of row `input`, real and imaginary, and resets it.
    pub fn take_offset(&mut self, input: usize) -> [i32; 2] {
        std::mem::take(&mut self.offsets[input])
    }

    /// Filled part of panel `panel`: rows, columns for the real sums, and columns for the imaginary sums.
    #[must_use]
    pub fn panel(&self, panel: usize) -> [&[u32]; 3] {
        let lanes = self.geometry.lanes;
        let start = panel * self.capacity * lanes;
        let range = start..start + self.steps * lanes;
        [&self.row[range.clone()], &self.column_re[range.clone()], &self.column_im[range]]
    }

    /// Appends `spectra` of one heap and channel; at most [`room`](Self::room) may be appended. Antennas for which
    /// `present` returns `false` become zeros.
    pub fn push(
        &mut self,
        shape: &Stacked,
        payload: &[u8],
        (heap, channel): (usize, usize),
        spectra: Range<usize>,
        present: impl Fn(usize) -> bool,
    ) {
        let pairs = spectra.len().div_ceil(2);
        let lanes = self.geometry.lanes;
        let steps = if self.geometry.bytes { pairs } else { 2 * pairs };
        let row = |antenna: usize| {
            let is_there = antenna < shape.antennas && present(antenna);
            is_there.then(|| shape.row(payload, heap, antenna, channel))
        };
        for panel in 0..shape.inputs().div_ceil(lanes) {
            for (slot, stage) in self.stage[..lanes / 2 * pairs].chunks_exact_mut(pairs).enumerate()
            {
                let pair = panel * lanes / 2 + slot;
                if shape.pols == 1 {
                    let rows = [2 * pair, 2 * pair + 1].map(row);
                    fill_stage_of_two(shape, rows, spectra.clone(), stage);
                } else if let Some(row) = row(pair) {
                    fill_stage(shape, row, spectra.clone(), stage);
                } else {
                    stage.fill(0);
                }
            }
            let start = (panel * self.capacity + self.steps) * lanes;
            let range = start..start + steps * lanes;
            let panels = [
                &mut self.row[range.clone()],
                &mut self.column_re[range.clone()],
                &mut self.column_im[range],
            ];
            let stage = &self.stage[..lanes / 2 * pairs];
            let offsets = &mut self.offsets[panel * lanes..][..lanes];
            spread(self.kernel, stage, pairs, panels, offsets);
        }
        self.steps += steps;
    }
}

/// Packs pairs of spectra of both polarisations: the bytes of `[pol][spectrum][re, im]`, first byte lowest. A missing
/// second spectrum is zero.
fn fill_stage(shape: &Stacked, row: &[u8], spectra: Range<usize>, stage: &mut [u64]) {
    let whole = spectra.len() / 2;
    match (shape.dtype == Dtype::Ci4, shape.k_major) {
        (false, false) => {
            let bytes = &row[4 * spectra.start..];
            for (out, pair) in stage.iter_mut().zip(bytes.as_chunks::<8>().0).take(whole) {
                *out = swap_middle(u64::from_le_bytes(*pair));
            }
        }
        (true, false) => {
            let bytes = &row[2 * spectra.start..];
            for (out, pair) in stage.iter_mut().zip(bytes.as_chunks::<4>().0).take(whole) {
                *out = swap_middle(widen(u32::from_le_bytes(*pair)));
            }
        }
        (false, true) => {
            let pols = [0, 1].map(|pol| &row[2 * (pol * shape.spectra + spectra.start)..]);
            let pols = pols.map(|bytes| bytes.as_chunks::<4>().0);
            for (out, (x, y)) in stage.iter_mut().zip(pols[0].iter().zip(pols[1])).take(whole) {
                *out = u64::from(u32::from_le_bytes(*x)) | u64::from(u32::from_le_bytes(*y)) << 32;
            }
        }
        (true, true) => {
            let pols = [0, 1].map(|pol| &row[pol * shape.spectra + spectra.start..]);
            let pols = pols.map(|bytes| bytes.as_chunks::<2>().0);
            for (out, (x, y)) in stage.iter_mut().zip(pols[0].iter().zip(pols[1])).take(whole) {
                *out = widen(u32::from_le_bytes([x[0], x[1], y[0], y[1]]));
            }
        }
    }
    if !spectra.len().is_multiple_of(2) {
        let last = [0, 1].map(|pol| shape.value(row, spectra.end - 1, pol).map(i8::cast_unsigned));
        let [[x, y], [u, v]] = last;
        stage[whole] = u64::from_le_bytes([x, y, 0, 0, u, v, 0, 0]);
    }
}

/// [`fill_stage`] for two antennas with one polarisation each, in the places of polarisations. An antenna without a row
/// becomes zeros.
fn fill_stage_of_two(
    shape: &Stacked,
    rows: [Option<&[u8]>; 2],
    spectra: Range<usize>,
    stage: &mut [u64],
) {
    let (whole, bytes) = (spectra.len() / 2, shape.value_bytes());
    stage.fill(0);
    for (row, shift) in rows.into_iter().zip([0, 32]) {
        let Some(row) = row else { continue };
        let values = &row[bytes * spectra.start..bytes * spectra.end];
        if shape.dtype == Dtype::Ci4 {
            for (out, [a, b]) in stage.iter_mut().zip(values.as_chunks().0) {
                *out |= widen(u32::from_le_bytes([*a, *b, 0, 0])) << shift;
            }
        } else {
            for (out, pair) in stage.iter_mut().zip(values.as_chunks().0) {
                *out |= u64::from(u32::from_le_bytes(*pair)) << shift;
            }
        }
        if !spectra.len().is_multiple_of(2) {
            let last = shape.value(row, spectra.end - 1, 0).map(i8::cast_unsigned);
            stage[whole] |= u64::from(u16::from_le_bytes(last)) << shift;
        }
    }
}

/// Transposes spectrum and polarisation of a pair.
const fn swap_middle(pair: u64) -> u64 {
    pair & 0xffff_0000_0000_ffff | (pair & 0xffff_0000) << 16 | pair >> 16 & 0xffff_0000
}

/// Widens four 4-bit complex numbers (real part in the high nibble) to 8 bits.
const fn widen(nibbles: u32) -> u64 {
    let n = nibbles as u64;
    let n = n & 0xffff | (n & 0xffff_0000) << 16;
    let n = n & 0x0000_00ff_0000_00ff | (n & 0x0000_ff00_0000_ff00) << 8;
    let n = n >> 4 & 0x000f_000f_000f_000f | (n & 0x000f_000f_000f_000f) << 8;
    // Sign-extends each nibble: (n ^ 8) - 8, with a guard bit between bytes.
    let biased = (n ^ 0x0808_0808_0808_0808) | 0x8080_8080_8080_8080;
    (biased - 0x0808_0808_0808_0808) ^ 0x8080_8080_8080_8080
}
