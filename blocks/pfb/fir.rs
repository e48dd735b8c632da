//! The filter itself: y\[n, s\] = sum over t of w\[t step + s\] x\[(n + t) step + s\].
//!
//! Rows of x are `step` samples apart, a power of two, so that working on them in place would
//! fight over few cache sets. A tile of some columns of all rows of a batch is therefore copied
//! (and converted to float) first; weights are stored in the order in which they are used.
#![allow(unsafe_code)] // AVX2 and FMA intrinsics.

/// Columns of a tile: 64 floats times some 80 rows stay in the first-level cache.
const TILE: usize = 64;
/// Columns that are computed together: one AVX2 vector.
const LANES: usize = 8;
/// Rows whose sums are kept in registers together.
const ROWS: usize = 8;

/// Working memory of one thread.
pub struct Scratch {
    tile: Vec<f32>,
    filtered: Vec<f32>,
}

/// The filter of one block.
pub struct Fir {
    /// \[group of 8 columns\]\[tap\]\[column in group\]
    weights: Vec<f32>,
    step: usize,
    taps: usize,
    unzip: usize,
    has_avx2: bool,
}

impl Fir {
    /// A filter with these `weights` (taps x step, `step` a multiple of 8); its output is cut
    /// into `unzip` interleaved complex series.
    pub fn new(weights: &[f32], step: usize, unzip: usize) -> Self {
        let taps = weights.len() / step;
        let order = (0..step / LANES).flat_map(|group| {
            (0..taps * LANES).map(move |i| (i / LANES) * step + group * LANES + i % LANES)
        });
        #[cfg(target_arch = "x86_64")]
        let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        #[cfg(not(target_arch = "x86_64"))]
        let has_avx2 = false;
        Self { weights: order.map(|i| weights[i]).collect(), step, taps, unzip, has_avx2 }
    }

    /// Samples from one spectrum to the next.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Spectra over which a window extends.
    pub fn taps(&self) -> usize {
        self.taps
    }

    /// Working memory for up to `rows` spectra at once.
    pub fn scratch(&self, rows: usize) -> Scratch {
        let columns = TILE.min(self.step);
        Scratch {
            tile: vec![0.0; (rows + self.taps - 1) * columns],
            filtered: vec![0.0; rows * columns],
        }
    }

    /// Filters `out.len() / step` spectra; `samples` starts with the first one's window.
    pub fn run(&self, samples: &[i16], out: &mut [f32], scratch: &mut Scratch) {
        let rows = out.len() / self.step;
        let columns = TILE.min(self.step);
        let tile_rows = rows + self.taps - 1;
        let tile = &mut scratch.tile[..tile_rows * columns];
        for first in (0..self.step).step_by(columns) {
            self.fill(samples, first, tile, columns);
            for group in (0..columns).step_by(LANES) {
                let weights = &self.weights[(first + group) * self.taps..][..LANES * self.taps];
                if self.unzip == 1 {
                    let out = &mut out[first + group..];
                    self.columns(weights, &tile[group..], columns, rows, out, self.step);
                } else {
                    let out = &mut scratch.filtered[group..];
                    self.columns(weights, &tile[group..], columns, rows, out, columns);
                }
            }
            if self.unzip > 1 {
                self.scatter(&scratch.filtered, first, columns, out);
            }
        }
    }

    /// Copies the columns from `first` on of all rows.
    fn fill(&self, samples: &[i16], first: usize, tile: &mut [f32], columns: usize) {
        for (row, to) in tile.chunks_exact_mut(columns).enumerate() {
            let from = &samples[row * self.step + first..][..columns];
            to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from(*from));
        }
    }

    /// Eight columns of all rows.
    fn columns(
        &self,
        weights: &[f32],
        x: &[f32],
        x_pitch: usize,
        rows: usize,
        out: &mut [f32],
        out_pitch: usize,
    ) {
        assert!(x.len() >= (rows + self.taps - 2) * x_pitch + LANES);
        assert!(out.len() >= (rows - 1) * out_pitch + LANES);
        assert_eq!(weights.len(), self.taps * LANES);
        let mut row = 0;
        #[cfg(target_arch = "x86_64")]
        while self.has_avx2 && row < rows {
            let batch = if rows - row >= ROWS { ROWS } else { 1 };
            let (x, out) = (&x[row * x_pitch..], &mut out[row * out_pitch..]);
            // SAFETY: the processor has AVX2 and FMA; the assertions above bound every access:
            // row + batch <= rows, and each access is to 8 columns of a row below that.
            unsafe {
                if batch == ROWS {
                    avx2::columns::<ROWS>(weights, x, x_pitch, out, out_pitch);
                } else {
                    avx2::columns::<1>(weights, x, x_pitch, out, out_pitch);
                }
            }
            row += batch;
        }
        for row in row..rows {
            let mut sum = [0.0_f32; LANES];
            for (tap, weights) in weights.chunks_exact(LANES).enumerate() {
                let x = &x[(row + tap) * x_pitch..][..LANES];
                for lane in 0..LANES {
                    sum[lane] += weights[lane] * x[lane];
                }
            }
            out[row * out_pitch..][..LANES].copy_from_slice(&sum);
        }
    }

    /// Puts complex number i = q n + r of each row at place q of part r.
    fn scatter(&self, filtered: &[f32], first: usize, columns: usize, out: &mut [f32]) {
        let part = self.step / 2 / self.unzip;
        for (row, out) in filtered.chunks_exact(columns).zip(out.chunks_exact_mut(self.step)) {
            for (i, z) in row.chunks_exact(2).enumerate() {
                let i = first / 2 + i;
                let to = (i % self.unzip) * part + i / self.unzip;
                out[2 * to..2 * to + 2].copy_from_slice(z);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::LANES;
    use std::arch::x86_64::{
        _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };

    /// Eight columns of `R` rows: one weight load serves `R` multiplications.
    ///
    /// # Safety
    /// `x` holds 8 floats at each of the first `R - 1 + taps` multiples of `x_pitch`, `out` at
    /// each of the first `R` multiples of `out_pitch`.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn columns<const R: usize>(
        weights: &[f32],
        x: &[f32],
        x_pitch: usize,
        out: &mut [f32],
        out_pitch: usize,
    ) {
        let taps = weights.len() / LANES;
        let mut sums = [_mm256_setzero_ps(); R];
        // SAFETY: within the bounds the caller vouches for.
        unsafe {
            for tap in 0..taps {
                let w = _mm256_loadu_ps(weights.as_ptr().add(tap * LANES));
                for (row, sum) in sums.iter_mut().enumerate() {
                    let x = _mm256_loadu_ps(x.as_ptr().add((row + tap) * x_pitch));
                    *sum = _mm256_fmadd_ps(w, x, *sum);
                }
            }
            for (row, sum) in sums.into_iter().enumerate() {
                _mm256_storeu_ps(out.as_mut_ptr().add(row * out_pitch), sum);
            }
        }
    }
}

/// Sum of the squares of `samples`, and how many of them are `limit` or more from 0.
pub fn power(samples: &[i16], limit: i16) -> (u64, u64) {
    let (mut power, mut clipped) = (0, 0);
    // 32-bit sums of few samples at a time let the compiler use the integer multiply-add.
    for samples in samples.chunks(1024) {
        let mut lanes = [0_u64; 4];
        let mut over = 0_u32;
        for pair in samples.chunks(8) {
            let square = |x: &i16| i64::from(i32::from(*x) * i32::from(*x)).cast_unsigned();
            for (i, x) in pair.iter().enumerate() {
                lanes[i % 4] += square(x);
            }
            over += pair
                .iter()
                .map(|x| u32::from(x.unsigned_abs() >= limit.unsigned_abs()))
                .sum::<u32>();
        }
        power += lanes.iter().sum::<u64>();
        clipped += u64::from(over);
    }
    (power, clipped)
}
