//! Vectorised integer correlation: blocks of spectra are packed, and tiles of products are summed in 32 bits
//! within a call and in 64 bits across calls.

use super::pack::Panels;
use crate::common::stacked::Stacked;
use fxgraph::BlockError;
use fxgraph_dsp::correlator::{Geometry, Kernel, Tiles};
use rayon::prelude::*;
use std::ops::Range;

/// Largest number of spectra whose 32-bit sums cannot overflow; each adds at most 2 x 128 x 128.
const SPECTRA_IN_32_BITS: usize = 65_535;

/// Value of a product without any input. No other product is -2^31 on output.
pub const MISSING: [i32; 2] = [i32::MIN, 1];

/// Numbers of heaps that contributed to a dump, of baselines or of each visibility.
#[derive(Clone, Copy)]
pub(super) struct Counts<'a> {
    counts: &'a [u32],
    baselines: usize,
}

/// The counts of one channel, for `P` products of each baseline.
pub(super) enum OfChannel<'a, const P: usize> {
    /// `[baseline]`
    Baselines(&'a [u32]),
    /// `[baseline][product]`
    Products(&'a [[u32; P]]),
}

impl<'a> Counts<'a> {
    /// Returns the counts `[baseline]`, or `[channel][baseline][product]`, of which there are more.
    pub(super) fn new(counts: &'a [u32], baselines: usize) -> Self {
        Self { counts, baselines }
    }

    /// Returns the counts of `channel`.
    pub(super) fn of_channel<const P: usize>(&self, channel: usize) -> OfChannel<'a, P> {
        if self.counts.len() == self.baselines {
            return OfChannel::Baselines(self.counts);
        }
        let products = self.counts.as_chunks().0;
        OfChannel::Products(&products[channel * self.baselines..][..self.baselines])
    }
}

impl<const P: usize> OfChannel<'_, P> {
    /// Returns whether each product of `baseline` is without input.
    pub(super) fn is_missing(&self, baseline: usize) -> [bool; P] {
        match self {
            Self::Baselines(counts) => [counts[baseline] == 0; P],
            Self::Products(counts) => counts[baseline].map(|count| count == 0),
        }
    }
}

/// Replaces the products without input by `missing`.
pub(super) fn mark_missing<T: Copy, const P: usize>(
    products: &mut [T; P],
    is_missing: [bool; P],
    missing: T,
) {
    for (product, is_missing) in products.iter_mut().zip(is_missing) {
        if is_missing {
            *product = missing;
        }
    }
}

/// Sums of products of all channels of a stream.
pub struct Accumulator {
    shape: Stacked,
    kernel: Kernel,
    tiles: Tiles,
    channels_per_worker: usize,
    /// `[channel]` `[tile][row][re, im][SIMD element]`.
    sums: Vec<i64>,
    /// Working memory, one per thread.
    workers: Vec<Worker>,
    pool: Option<rayon::ThreadPool>,
}

/// Working memory of one thread.
struct Worker {
    panels: Panels,
    /// 32-bit sums of one channel.
    sums: Vec<i32>,
    /// Number of visibilities of the last dump that did not fit 32 bits.
    saturated: u64,
}

impl Accumulator {
    /// Creates sums of 0 for a stream of this shape, computed by `kernel` on `threads` threads.
    ///
    /// # Errors
    /// If the sums cannot be allocated or the threads cannot be started.
    pub fn new(shape: Stacked, kernel: Kernel, threads: usize) -> Result<Self, BlockError> {
        let tiles = Tiles::new(kernel.geometry(), shape.inputs());
        let channels_per_worker = shape.channels.div_ceil(threads.clamp(1, shape.channels));
        let workers = shape.channels.div_ceil(channels_per_worker);
        let len = tiles.sums().saturating_mul(shape.channels);
        let mut sums = Vec::new();
        sums.try_reserve_exact(len).map_err(|e| {
            BlockError::new(format!("cannot allocate {len} sums of 8 bytes")).because(e)
        })?;
        sums.resize(len, 0);
        let worker = |_| Worker {
            panels: Panels::new(kernel, &shape),
            sums: vec![0; tiles.sums()],
            saturated: 0,
        };
        Ok(Self {
            shape,
            kernel,
            tiles,
            channels_per_worker,
            sums,
            workers: (0..workers).map(worker).collect(),
            pool: crate::common::parallel::pool(workers)?,
        })
    }

    /// Size of an accumulator of this shape in bytes.
    #[must_use]
    pub fn bytes(shape: &Stacked, kernel: Kernel, threads: usize) -> usize {
        let tiles = Tiles::new(kernel.geometry(), shape.inputs()).sums();
        let worker = Panels::bytes(kernel.geometry(), shape.inputs()) + 4 * tiles;
        shape.channels.saturating_mul(8 * tiles).saturating_add(threads.saturating_mul(worker))
    }

    /// Adds the products of heaps `heaps` of a frame; `valid` `[heap][antenna]` is 0 where
    /// an antenna lacks a heap.
    pub fn add(&mut self, payload: &[u8], heaps: Range<usize>, valid: &[u32]) {
        let Self { shape, kernel, tiles, channels_per_worker, sums, workers, pool } = self;
        let work = |(index, (sums, worker)): (usize, (&mut [i64], &mut Worker))| {
            for (c, sums) in sums.chunks_exact_mut(tiles.sums()).enumerate() {
                let channel = index * *channels_per_worker + c;
                worker.add_channel(
                    shape,
                    *kernel,
                    tiles,
                    payload,
                    channel,
                    heaps.clone(),
                    valid,
                    sums,
                );
            }
        };
        let chunk = *channels_per_worker * tiles.sums();
        match pool {
            Some(pool) => pool.install(|| {
                let parts = sums.par_chunks_mut(chunk).zip(workers.par_iter_mut());
                parts.enumerate().for_each(work);
            }),
            None => sums.chunks_mut(chunk).zip(workers).enumerate().for_each(work),
        }
    }

    /// Writes the products `[channel][product]` to `output` and resets the sums to 0; `counts`, `[baseline]` or
    /// `[channel][baseline][product]`, is 0 where there was no input. Returns the number of visibilities that did not fit 32 bits.
    pub fn dump(&mut self, counts: &[u32], output: &mut [[i32; 2]]) -> u64 {
        let Self { shape, tiles, channels_per_worker, sums, workers, pool, .. } = self;
        let products = shape.products() * shape.baselines();
        let dump_channel = if shape.pols == 1 { dump_channel::<1> } else { dump_channel::<4> };
        let counts = Counts::new(counts, shape.baselines());
        let work = |index: usize,
                    sums: &mut [i64],
                    worker: &mut Worker,
                    output: &mut [[i32; 2]]| {
            worker.saturated = 0;
            let first = index * *channels_per_worker;
            let channels = sums.chunks_exact_mut(tiles.sums());
            for (c, (sums, output)) in channels.zip(output.chunks_exact_mut(products)).enumerate() {
                worker.saturated += dump_channel(tiles, sums, &counts, first + c, output);
            }
        };
        let chunk = *channels_per_worker * tiles.sums();
        let out_chunk = *channels_per_worker * products;
        if let Some(pool) = pool {
            let parts = sums.par_chunks_mut(chunk).zip(workers.par_iter_mut());
            let parts = parts.zip(output.par_chunks_mut(out_chunk));
            let parts = parts.enumerate();
            pool.install(|| {
                parts.for_each(|(n, ((sums, worker), output))| work(n, sums, worker, output));
            });
        } else {
            let parts = sums.chunks_mut(chunk).zip(workers.iter_mut());
            let parts = parts.zip(output.chunks_mut(out_chunk)).enumerate();
            parts.for_each(|(n, ((sums, worker), output))| work(n, sums, worker, output));
        }
        self.workers.iter().map(|worker| worker.saturated).sum()
    }
}

impl Worker {
    #[allow(clippy::too_many_arguments)] // the fields of an accumulator, split among the threads
    fn add_channel(
        &mut self,
        shape: &Stacked,
        kernel: Kernel,
        tiles: &Tiles,
        payload: &[u8],
        channel: usize,
        heaps: Range<usize>,
        valid: &[u32],
        sums: &mut [i64],
    ) {
        // Number of spectra in the 32-bit sums, including those in the panels.
        let mut pending = 0;
        for heap in heaps {
            let valid = &valid[heap * shape.antennas..][..shape.antennas];
            if valid.iter().all(|&v| v == 0) {
                continue;
            }
            let mut start = 0;
            while start < shape.spectra {
                let room = self.panels.room().min(SPECTRA_IN_32_BITS - pending);
                if room == 0 {
                    self.multiply(kernel, tiles);
                    if pending == SPECTRA_IN_32_BITS {
                        self.flush(tiles, sums);
                        pending = 0;
                    }
                    continue;
                }
                let end = shape.spectra.min(start + room);
                self.panels.push(shape, payload, (heap, channel), start..end, |a| valid[a] != 0);
                pending += end - start;
                start = end;
            }
        }
        self.multiply(kernel, tiles);
        self.flush(tiles, sums);
    }

    /// Adds the products of the packed spectra to the 32-bit sums.
    fn multiply(&mut self, kernel: Kernel, tiles: &Tiles) {
        let Geometry { lanes, rows, .. } = tiles.geometry;
        for panel in 0..tiles.panels() {
            let [_, column_re, column_im] = self.panels.panel(panel);
            for block in 0..tiles.blocks(panel) {
                let [row, ..] = self.panels.panel(block * rows / lanes);
                // A panel without spectra has no rows to skip.
                let row = row.get(block * rows % lanes..).unwrap_or_default();
                let sums = &mut self.sums[tiles.start(panel, block)..][..tiles.geometry.tile_len()];
                kernel.tile(row, column_re, column_im, sums);
            }
        }
        self.panels.clear();
    }

    /// Moves the 32-bit sums to the 64-bit ones, without the offsets of the unsigned-byte encoding.
    fn flush(&mut self, tiles: &Tiles, sums: &mut [i64]) {
        let Geometry { lanes, rows, .. } = tiles.geometry;
        let mut offsets = [[0; 2]; 16];
        for block in 0..tiles.panels() * lanes / rows {
            let offsets = &mut offsets[..rows];
            for (r, offset) in offsets.iter_mut().enumerate() {
                *offset = self.panels.take_offset(block * rows + r);
            }
            for panel in block * rows / lanes..tiles.panels() {
                let tile = tiles.start(panel, block)..tiles.start(panel, block + 1);
                let from = self.sums[tile.clone()].chunks_exact_mut(lanes);
                let to = sums[tile].chunks_exact_mut(lanes);
                for ((from, to), offset) in from.zip(to).zip(offsets.as_flattened()) {
                    for (from, to) in from.iter_mut().zip(to) {
                        *to += i64::from(from.wrapping_sub(*offset));
                        *from = 0;
                    }
                }
            }
        }
    }
}

/// Writes the products of `channel`, `P` for each baseline, and resets its sums. Returns the number of clamped
/// visibilities.
fn dump_channel<const P: usize>(
    tiles: &Tiles,
    sums: &mut [i64],
    counts: &Counts<'_>,
    channel: usize,
    output: &mut [[i32; 2]],
) -> u64 {
    const LARGEST: i64 = i32::MAX as i64;
    let mut saturated = 0;
    let counts = counts.of_channel::<P>(channel);
    let outputs = output.as_chunks_mut::<P>().0;
    for (baseline, (places, output)) in tiles.baselines().zip(outputs).enumerate() {
        let is_missing = counts.is_missing(baseline);
        if is_missing == [true; P] {
            *output = [MISSING; P];
            continue;
        }
        *output = places.map(|parts| {
            let sum = parts.map(|place| sums[place]);
            let clamped = sum.map(|s| s.clamp(-LARGEST, LARGEST));
            saturated += u64::from(clamped != sum);
            clamped.map(|s| s as i32)
        });
        mark_missing(output, is_missing, MISSING);
    }
    sums.fill(0);
    saturated
}
