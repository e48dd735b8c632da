//! Launch configuration of the two passes on a GPU, and their tables of roots of unity. The numbers must
//! match `f_engine.cu`, whose headers explain the terms.

use super::shape::{HEAP_UNIT, KernelShape};
use fxgraph::BlockError;
use fxgraph::cuda::Properties;
use num_complex::Complex32;
use std::f64::consts::TAU;

/// Points of the transform in the first pass.
const RESIDUES: usize = 16;
/// Rows of a spectrum between the passes.
const ROWS: usize = RESIDUES / 2;
/// Threads per block of all kernels except the second pass.
pub const THREADS: usize = 256;
/// Shared memory that CUDA reserves per thread block, in bytes.
const RESERVED_BYTES: usize = 1024;

/// Launch configuration of both passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Points per row in the intermediate array.
    pub columns: usize,
    /// Length of the first radix step of the second pass.
    pub front: usize,
    /// Channels per thread of the second pass.
    values: usize,
    /// Threads per part of a row; a row has `front` parts.
    part_threads: usize,
    /// Bytes of a channel per tile, which are written together.
    pub tile_bytes: usize,
    pub tiles_per_heap: usize,
    pub filter_shared_bytes: usize,
    pub finish_shared_bytes: usize,
    /// Threads per block of the second pass.
    pub finish_threads: usize,
    /// Thread blocks per multiprocessor.
    pub filter_blocks: usize,
    pub finish_blocks: usize,
}

/// Factors of the intermediate values.
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    /// Power of two, which keeps the weights exact.
    pub weights: f32,
    /// Rest of the scale, from 1 to 2.
    pub roots: f64,
    /// 1 / (`weights` x `roots`).
    pub inverse: f32,
}

impl Cut {
    /// Launch configuration for a GPU and a supported shape.
    ///
    /// # Errors
    /// If the GPU has too little shared memory.
    pub fn new(shape: &KernelShape, gpu: &Properties) -> Result<Self, BlockError> {
        Self::find(shape, gpu).map_err(BlockError::new)
    }

    /// Launch configuration, or the message of the diagnostic if the GPU has too little shared memory.
    pub fn find(shape: &KernelShape, gpu: &Properties) -> Result<Self, String> {
        let KernelShape { channels, taps, sample_bits, .. } = *shape;
        let columns = 2 * channels / RESIDUES;
        let front = if columns <= 1024 { 1 } else { columns / 256 };
        let values = if columns / front <= 256 { 16 } else { 32 };
        let part_threads = columns / front / values;
        let pieces = if sample_bits > 12 { 5 } else { 4 };
        let cut = Self {
            columns,
            front,
            values,
            part_threads,
            tile_bytes: 0,
            tiles_per_heap: 0,
            filter_shared_bytes: 2 * 16 * THREADS * 8
                + THREADS * 8
                + 16
                + 2 * 16 * RESIDUES * 16 * pieces
                + 16,
            finish_shared_bytes: 0,
            finish_threads: 0,
            filter_blocks: if taps <= 16 { 2 } else { 1 },
            finish_blocks: 0,
        };
        // Memory is written in sectors of 32 bytes, and a partial sector costs more than a whole one.
        // So use the largest tiles that fit, with the number of threads per block that gives most
        // resident threads. This is the fastest on an H200; GPUs with less shared memory were not measured.
        let of_tile = |tile_bytes: usize| {
            let cuts = [128, 512, 256].map(|threads| cut.with_tile(shape, tile_bytes, threads));
            let fitting = cuts.into_iter().flatten().filter(|cut| cut.resident_threads(gpu) > 0);
            fitting.max_by_key(|cut| cut.resident_threads(gpu))
        };
        // Short rows need large tiles to fill a block.
        let largest = if columns == 128 { 64 } else { 32 };
        match [largest, 32, 16, 8].into_iter().find_map(of_tile) {
            Some(cut) if cut.filter_shared_bytes <= gpu.shared_bytes_per_block => Ok(cut),
            // The first pass needs more than the second one with small tiles.
            _ => Err(format!(
                "`two_pass` needs {} bytes of shared memory per thread block, {} has {}",
                cut.filter_shared_bytes, gpu.name, gpu.shared_bytes_per_block
            )),
        }
    }

    /// `self` with tiles of `tile_bytes` per channel and blocks of `threads` in the second pass; `None` if
    /// they do not fit the shape.
    fn with_tile(self, shape: &KernelShape, tile_bytes: usize, threads: usize) -> Option<Self> {
        let Self { columns, front, values, part_threads, .. } = self;
        let points = columns / front;
        let slots = threads / (part_threads * front);
        let units = tile_bytes / (shape.value_bits / 4);
        let spectra = units / if shape.k_major { 1 } else { shape.pols };
        let written = threads / (tile_bytes / 4);
        let fits = slots > 0
            && units.is_multiple_of(slots)
            && units > 0
            && shape.spectra_per_heap.is_multiple_of(spectra)
            && (points / 2).is_multiple_of(written);
        // The pitch of values + 2 avoids bank conflicts.
        let reorder_bytes = slots * front * part_threads * (values + 2) * 8;
        fits.then_some(Self {
            tile_bytes,
            tiles_per_heap: shape.spectra_per_heap / spectra,
            finish_shared_bytes: reorder_bytes + points * 8 + columns * tile_bytes,
            finish_threads: threads,
            finish_blocks: if columns <= 256 { 768 } else { 512 } / threads,
            ..self
        })
    }

    /// Resident threads of the second pass per multiprocessor.
    fn resident_threads(&self, gpu: &Properties) -> usize {
        if self.finish_shared_bytes > gpu.shared_bytes_per_block {
            return 0;
        }
        let fitting =
            gpu.shared_bytes_per_multiprocessor / (self.finish_shared_bytes + RESERVED_BYTES);
        self.finish_threads * fitting.min(self.finish_blocks)
    }

    /// Thread blocks of the first pass across the columns.
    pub fn column_blocks(&self) -> usize {
        self.columns / (2 * THREADS / RESIDUES)
    }

    /// Groups of thread blocks of the second pass: at least one for each row.
    pub fn groups(&self, gpu: &Properties) -> usize {
        gpu.multiprocessors.max(ROWS)
    }

    /// Channels in the order of the gains in the second pass: `[8 rows][front][values / 2][part_threads]`
    /// {direct channel k, mirrored channel}; in row 0 the mirrored channel is N - k.
    pub fn gain_order(&self) -> Vec<[usize; 2]> {
        let Self { columns, front, values, part_threads, .. } = *self;
        let (channels, combs) = (ROWS * columns, RESIDUES * front);
        // Part of row 0 of a group of threads; parts that are partners are in the same warp.
        let part = |group: usize| match (group / 2, group % 2) {
            _ if front == 1 => 0,
            (first, 0) => first,
            (0, _) => front / 2,
            (first, _) => front - first,
        };
        let pair = |row: usize, group: usize, i: usize, thread: usize| {
            if row == 0 {
                let k = ROWS * (part(group) + front * (thread + part_threads * i));
                // Channel 0 has no partner; the middle channel is used instead.
                [k, if k == 0 { channels / 2 } else { channels - k }]
            } else {
                let comb = row + RESIDUES * group;
                let mirror = combs - comb + combs * (part_threads - 1 - thread + part_threads * i);
                [comb + combs * (thread + part_threads * i), mirror]
            }
        };
        let mut order = Vec::with_capacity(channels / 2);
        for row in 0..ROWS {
            for group in 0..front {
                for i in 0..values / 2 {
                    order.extend((0..part_threads).map(|thread| pair(row, group, i, thread)));
                }
            }
        }
        order
    }

    /// Scales at which no samples of `sample_bits` bits give intermediate values above 1.
    pub fn scales(&self, weights: &[f32], sample_bits: usize) -> Scales {
        let mut sums = vec![0.0_f64; self.columns];
        for weights in weights.chunks_exact(self.columns) {
            for (sum, w) in sums.iter_mut().zip(weights) {
                *sum += f64::from(w.abs());
            }
        }
        let sum = sums.into_iter().fold(0.0, f64::max);
        // A thousandth for rounding.
        let all = 1.0 / (1.001 * sum * 2_f64.powi(sample_bits as i32 - 1));
        let weights = all.log2().floor().exp2();
        Scales { weights: weights as f32, roots: all / weights, inverse: (1.0 / all) as f32 }
    }

    /// W_2N^(b r), `[8 r][columns b]`, times `scale`.
    pub fn filter_roots(&self, scale: f64) -> Vec<Complex32> {
        roots(ROWS, self.columns, RESIDUES * self.columns, scale)
    }

    /// W_points^(u c), `[part_threads u][values c]`, followed for `front` > 1 by W_columns^(q n),
    /// `[front q][points n]`.
    pub fn finish_roots(&self) -> Vec<Complex32> {
        let points = self.columns / self.front;
        let mut all = roots(self.part_threads, self.values, points, 1.0);
        if self.front > 1 {
            all.extend(roots(self.front, points, self.columns, 1.0));
        }
        all
    }
}

/// Spectra per run of the first pass, if `counts` are the lengths of the stretches that have to be divided and `at_once`
/// runs fill the GPU. The runs fill the GPU once, because each run starts by reading its first window and one
/// run too many would take as long again as all others.
pub fn run_length(counts: impl Iterator<Item = usize> + Clone, at_once: usize) -> usize {
    let at_once = at_once.max(1);
    let runs =
        |units: usize| counts.clone().map(|count| count.div_ceil(units * HEAP_UNIT)).sum::<usize>();
    let (mut low, mut high) = (1, counts.clone().max().unwrap_or(0).div_ceil(HEAP_UNIT).max(1));
    if runs(high) > at_once {
        let spectra = counts.clone().sum::<usize>();
        return spectra.div_ceil(at_once).next_multiple_of(HEAP_UNIT);
    }
    while low < high {
        let middle = usize::midpoint(low, high);
        if runs(middle) > at_once { low = middle + 1 } else { high = middle }
    }
    low * HEAP_UNIT
}

/// exp(-2 pi j a b / points), `[rows a][columns b]`, times `scale`.
fn roots(rows: usize, columns: usize, points: usize, scale: f64) -> Vec<Complex32> {
    let root = |(a, b): (usize, usize)| {
        let (sin, cos) = (TAU * (a * b % points) as f64 / points as f64).sin_cos();
        Complex32::new((scale * cos) as f32, (-scale * sin) as f32)
    };
    (0..rows).flat_map(|a| (0..columns).map(move |b| (a, b))).map(root).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub mod tests {
    use super::*;
    use fxgraph::At;

    fn gpu(multiprocessors: usize, per_block: usize, per_multiprocessor: usize) -> Properties {
        Properties {
            name: "GPU".to_owned(),
            capability: (9, 0),
            multiprocessors,
            memory_bytes: 1 << 36,
            shared_bytes_per_block: per_block,
            shared_bytes_per_multiprocessor: per_multiprocessor,
            l2_bytes: 1 << 25,
        }
    }

    pub fn h200() -> Properties {
        gpu(132, 232_448, 233_472)
    }

    fn small() -> Properties {
        gpu(170, 101_376, 102_400)
    }

    pub fn shape(channels: usize) -> KernelShape {
        KernelShape {
            channels,
            pols: 2,
            taps: 16,
            sample_bits: 10,
            native_samples: false,
            value_bits: 8,
            k_major: false,
            spectra_per_heap: 256,
        }
    }

    #[test]
    fn shared_memory_matches_the_kernels() {
        for (channels, tile_bytes, bytes) in [
            (1024, 64, 46_080),
            (2048, 32, 47_104),
            (4096, 32, 90_112),
            (8192, 32, 110_592),
            (16384, 32, 104_448),
            (32768, 32, 206_848),
        ] {
            let cut = Cut::new(&shape(channels), &h200()).unwrap();
            assert_eq!(
                (cut.tile_bytes, cut.finish_shared_bytes),
                (tile_bytes, bytes),
                "{channels}"
            );
            assert_eq!(cut.finish_threads, if channels == 32768 { 512 } else { 256 });
            assert_eq!(cut.filter_shared_bytes, 100_384);
            let cut = Cut::new(&shape(channels), &small()).unwrap();
            assert!(cut.finish_shared_bytes <= small().shared_bytes_per_block, "{channels}");
        }
        let wide = KernelShape { sample_bits: 16, ..shape(1024) };
        assert_eq!(Cut::new(&wide, &h200()).unwrap().filter_shared_bytes, 108_576);
        let rejections = wide.rejections(Some(&small()));
        assert_eq!((rejections.len(), &rejections[0].at), (1, &At::Implementation));
        assert!(rejections[0].message.contains("108576 bytes of shared memory"));
        assert!(wide.rejections(Some(&h200())).is_empty() && wide.rejections(None).is_empty());
    }

    #[test]
    fn every_shape_has_a_launch_configuration() {
        for channels in [1024, 2048, 4096, 8192, 16384, 32768] {
            for (value_bits, pols, k_major) in [
                (8, 2, false),
                (8, 1, false),
                (8, 2, true),
                (4, 2, false),
                (4, 1, false),
                (4, 2, true),
            ] {
                for spectra_per_heap in [16, 48, 256] {
                    let shape = KernelShape {
                        pols,
                        value_bits,
                        k_major,
                        spectra_per_heap,
                        ..shape(channels)
                    };
                    for gpu in [h200(), small()] {
                        let cut = Cut::new(&shape, &gpu).unwrap();
                        assert_eq!(
                            cut.tiles_per_heap * cut.tile_bytes,
                            spectra_per_heap * value_bits / 4 * if k_major { 1 } else { pols }
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn gain_order_contains_every_channel_once() {
        for channels in [1024, 2048, 4096, 8192, 16384, 32768] {
            let order = Cut::new(&shape(channels), &h200()).unwrap().gain_order();
            let mut seen = vec![0; channels];
            order.iter().flatten().for_each(|k| seen[*k] += 1);
            assert!(seen.iter().all(|n| *n == 1), "{channels}");
        }
    }

    #[test]
    fn run_length_fills_the_gpu_once() {
        for (counts, at_once, length) in [
            (vec![4096, 4096], 8, 1024),
            (vec![32768, 32768], 66, 1008),
            // 993 spectra for each of 33 runs would make 34 runs of two polarisations.
            (vec![16384, 16384], 33, 1024),
            (vec![1024, 1024], 2, 1024),
            (vec![256, 256], 8, 64),
            (vec![16, 16], 66, 16),
            (vec![], 8, 16),
            // More stretches than runs at once: the long one is divided.
            (vec![100, 100, 100, 1000], 3, 448),
        ] {
            assert_eq!(run_length(counts.iter().copied(), at_once), length, "{counts:?}");
        }
    }

    #[test]
    fn scales_bring_the_largest_intermediate_value_to_just_below_1() {
        use fxgraph_dsp::polyphase::{Window, weights};
        for (channels, taps, window, w_cutoff, bits) in [
            (1024, 16, Window::Hann, 1.0, 10),
            (32768, 4, Window::Rect, 1.0, 16),
            (4096, 1, Window::Rect, 0.0, 2),
            (2048, 16, Window::Hann, 64.0, 12),
        ] {
            let cut = Cut::new(&shape(channels), &h200()).unwrap();
            let weights = weights(2 * channels, taps, window, w_cutoff);
            let scales = cut.scales(&weights, bits);
            assert_eq!(scales.weights.to_bits() & 0x7f_ffff, 0, "a power of two");
            assert!((1.0..2.0).contains(&scales.roots));
            let all = f64::from(scales.weights) * scales.roots;
            assert!((all * f64::from(scales.inverse) - 1.0).abs() < 1e-7);
            // The largest row: full-scale samples with the signs of the weights of one column.
            let row = |column: usize| {
                let of_column = weights[column..].iter().step_by(cut.columns);
                of_column.map(|w| f64::from(w.abs())).sum::<f64>() * 2_f64.powi(bits as i32 - 1)
            };
            let largest = (0..cut.columns).map(row).fold(0.0, f64::max) * all;
            assert!((0.998..0.9995).contains(&largest), "{channels} {largest}");
        }
    }

    #[test]
    fn roots_have_negative_exponent() {
        let cut = Cut::new(&shape(16384), &h200()).unwrap();
        let [filter, finish] = [cut.filter_roots(1.0), cut.finish_roots()];
        assert_eq!((filter.len(), finish.len()), (16384, 256 + 2048));
        let expected = |turns: f64| {
            let (sin, cos) = (TAU * turns).sin_cos();
            Complex32::new(cos as f32, -sin as f32)
        };
        for (got, turns) in [
            (filter[2048 + 3], 3.0 / 32768.0),
            (finish[16 * 2 + 5], 10.0 / 256.0),
            (finish[256 + 3 * 256 + 7], 21.0 / 2048.0),
        ] {
            assert!((got - expected(turns)).norm() < 1e-7);
        }
    }
}
