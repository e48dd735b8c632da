//! Correlation of half-precision values on the CPU. Additions are in the order of the plain loops, for many products
//! at a time.

use super::accumulate::{Counts, MISSING, mark_missing};
use crate::common::parallel::Threads;
use crate::common::stacked::Stacked;
use fxgraph::BlockError;
use fxgraph_dsp::correlator::Tiles;
use fxgraph_dsp::correlator::floats::{GEOMETRY, LANES, ROWS, Step, add_products};
use fxgraph_dsp::simd::InstructionSet;
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::ops::Range;

/// Spectra per block; the panels of 80 antennas fit in the L2 cache.
const BLOCK_SPECTRA: usize = 64;

/// Sums of products of all channels of a half-precision stream, in double precision.
pub struct FloatAccumulator {
    shape: Stacked,
    tiles: Tiles,
    instructions: InstructionSet,
    threads: Threads,
    /// `[channel]` `[tile][row][re, im][SIMD element]`.
    sums: Vec<f64>,
    /// Working memory, one per thread.
    workers: Vec<Worker>,
}

/// A block of spectra of one channel.
struct Worker {
    /// `[panel][spectrum]`
    panels: Vec<Step>,
    /// Number of spectra in the block.
    filled: usize,
    /// Decoded values of one antenna.
    values: Vec<[f32; 2]>,
}

impl Worker {
    fn new(shape: &Stacked) -> Self {
        let panels = shape.inputs().div_ceil(LANES);
        Self {
            panels: vec![[[0.0; LANES]; 2]; panels * BLOCK_SPECTRA],
            filled: 0,
            values: vec![[0.0; 2]; shape.pols * BLOCK_SPECTRA],
        }
    }
}

impl FloatAccumulator {
    /// Creates sums of 0 for a stream of this shape, computed on `threads` threads.
    ///
    /// # Errors
    /// If the sums cannot be allocated or the threads cannot be started.
    pub fn new(
        shape: Stacked,
        instructions: InstructionSet,
        threads: usize,
    ) -> Result<Self, BlockError> {
        let tiles = Tiles::new(GEOMETRY, shape.inputs());
        let threads = Threads::new(threads)?;
        let len = tiles.sums().saturating_mul(shape.channels);
        let mut sums = Vec::new();
        sums.try_reserve_exact(len).map_err(|e| {
            BlockError::new(format!("cannot allocate {len} sums of 8 bytes")).because(e)
        })?;
        sums.resize(len, 0.0);
        let workers = (0..threads.count()).map(|_| Worker::new(&shape)).collect();
        Ok(Self { shape, tiles, instructions, threads, sums, workers })
    }

    /// Size of an accumulator of this shape in bytes.
    #[must_use]
    pub fn bytes(shape: &Stacked, threads: usize) -> usize {
        let panels = shape.inputs().div_ceil(LANES);
        let worker = BLOCK_SPECTRA * (panels * size_of::<Step>() + 2 * size_of::<[f32; 2]>());
        let channel = size_of::<f64>() * Tiles::new(GEOMETRY, shape.inputs()).sums();
        shape.channels.saturating_mul(channel).saturating_add(threads.saturating_mul(worker))
    }

    /// Adds the products of heaps `heaps` of a frame, whose payload must be aligned to `f16`; `valid`
    /// `[heap][antenna]` is 0 where an antenna lacks a heap.
    pub fn add(&mut self, payload: &[u8], heaps: Range<usize>, valid: &[u32]) {
        let Self { shape, tiles, instructions, threads, sums, workers } = self;
        threads.each(sums, tiles.sums(), workers, |first, sums, worker| {
            for (c, sums) in sums.chunks_exact_mut(tiles.sums()).enumerate() {
                for heap in heaps.clone() {
                    let valid = &valid[heap * shape.antennas..][..shape.antennas];
                    if valid.iter().all(|&v| v == 0) {
                        continue;
                    }
                    for start in (0..shape.spectra).step_by(BLOCK_SPECTRA) {
                        let spectra = start..shape.spectra.min(start + BLOCK_SPECTRA);
                        worker.fill(shape, payload, (heap, first + c), spectra, valid);
                        worker.multiply(tiles, *instructions, sums);
                    }
                }
            }
        });
    }

    /// Writes the products `[channel][product]` to `output` and resets the sums to 0; `counts`, `[baseline]` or
    /// `[channel][baseline][product]`, is 0 where there was no input.
    pub fn dump(&mut self, counts: &[u32], output: &mut [[f32; 2]]) {
        let Self { shape, tiles, threads, sums, workers, .. } = self;
        let products = shape.products() * shape.baselines();
        let counts = Counts::new(counts, shape.baselines());
        let dump_channel = if shape.pols == 1 { dump_channel::<1> } else { dump_channel::<4> };
        threads.each(output, products, workers, |first, output, _| {
            let sums = sums[first * tiles.sums()..].chunks_exact(tiles.sums());
            for (c, (sums, output)) in sums.zip(output.chunks_exact_mut(products)).enumerate() {
                dump_channel(tiles, sums, &counts, first + c, output);
            }
        });
        sums.fill(0.0);
    }
}

/// Writes the products of `channel`, `P` for each baseline.
fn dump_channel<const P: usize>(
    tiles: &Tiles,
    sums: &[f64],
    counts: &Counts<'_>,
    channel: usize,
    output: &mut [[f32; 2]],
) {
    let counts = counts.of_channel::<P>(channel);
    let outputs = output.as_chunks_mut::<P>().0;
    for (baseline, (places, output)) in tiles.baselines::<P>().zip(outputs).enumerate() {
        *output = places.map(|parts| parts.map(|place| sums[place] as f32));
        let missing = MISSING.map(|part| part as f32);
        mark_missing(output, counts.is_missing(baseline), missing);
    }
}

impl Worker {
    /// Fills the block with spectra of one heap and channel; antennas that lack the heap become zeros.
    fn fill(
        &mut self,
        shape: &Stacked,
        payload: &[u8],
        (heap, channel): (usize, usize),
        spectra: Range<usize>,
        valid: &[u32],
    ) {
        self.filled = spectra.len();
        for (antenna, valid) in valid.iter().enumerate() {
            let values = &mut self.values[..shape.pols * spectra.len()];
            if *valid == 0 {
                values.fill([0.0; 2]);
            } else {
                let row: &[f16] = bytemuck::cast_slice(shape.row(payload, heap, antenna, channel));
                read(shape, row, spectra.clone(), values.as_flattened_mut());
            }
            let between = if shape.k_major { spectra.len() } else { 1 };
            let step = if shape.k_major { 1 } else { 2 };
            for pol in 0..shape.pols {
                let input = shape.pols * antenna + pol;
                let (first, lane) = (input / LANES * BLOCK_SPECTRA, input % LANES);
                let panel = &mut self.panels[first..][..spectra.len()];
                for (spectrum, inputs) in panel.iter_mut().enumerate() {
                    let [re, im] = values[pol * between + spectrum * step];
                    inputs[0][lane] = f64::from(re);
                    inputs[1][lane] = f64::from(im);
                }
            }
        }
    }

    /// Adds the products of the block to the sums of a channel.
    fn multiply(&self, tiles: &Tiles, instructions: InstructionSet, sums: &mut [f64]) {
        let panel = |panel: usize| &self.panels[panel * BLOCK_SPECTRA..][..self.filled];
        for columns in 0..tiles.panels() {
            for block in 0..tiles.blocks(columns) {
                let tile = &mut sums[tiles.start(columns, block)..][..GEOMETRY.tile_len()];
                let row = block * ROWS;
                let (rows, columns) = (panel(row / LANES), panel(columns));
                add_products(instructions, rows, row % LANES, columns, tile);
            }
        }
    }
}

/// Reads the values of some spectra of a row: in the order of the row, or, for the K-major layout, one polarisation
/// after the other.
fn read(shape: &Stacked, row: &[f16], spectra: Range<usize>, values: &mut [f32]) {
    if shape.k_major {
        let len = 2 * spectra.len();
        for (pol, values) in values.chunks_exact_mut(len).enumerate() {
            let first = 2 * (pol * shape.spectra + spectra.start);
            row[first..first + len].convert_to_f32_slice(values);
        }
    } else {
        row[4 * spectra.start..4 * spectra.end].convert_to_f32_slice(values);
    }
}
