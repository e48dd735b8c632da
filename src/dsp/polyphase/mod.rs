//! Filter of a polyphase filter bank: y\[n, s\] = sum over t of w\[t step + s\] x\[(n + t) step + s\].
//!
//! Rows of x are `step` samples apart, often a power of two, so processing them in place would use only a few cache
//! sets. A tile of some columns of all rows of a batch is therefore copied (and converted to float) first;
//! weights are stored in the order of their use.

mod weights;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use weights::{Window, weights};

use crate::simd::{InstructionSet, Lines, fetch};

/// Columns of a tile: 64 floats times some 80 rows stay in the first-level cache.
const TILE: usize = 64;
/// Rows whose sums are in registers at the same time.
const ROWS: usize = 8;
/// Columns computed at the same time: a cache line of output, which is written at once.
const LANES: usize = 16;
/// Longest step with which output is fetched before it is written. With longer ones, the rows of a tile share too few sets
/// of the second-level cache.
const FETCHED_STEP: usize = 8192;

/// Working memory of one thread; see [`Fir::scratch`].
pub struct Scratch {
    tile: Lines<f32>,
    filtered: Lines<f32>,
}

/// Filter of one block.
pub struct Fir {
    /// \[group of `LANES` columns\]\[tap\]\[column in group\]; the last group has the rest of the columns
    weights: Lines<f32>,
    step: usize,
    taps: usize,
    unzip: usize,
    instructions: InstructionSet,
}

impl Fir {
    /// Creates a filter with these `weights` `[tap][step]`, `step` an even number. The output is divided into `unzip`
    /// interleaved complex series, 1 for none.
    ///
    /// # Panics
    /// If `step` is 0.
    #[must_use]
    pub fn new(weights: &[f32], step: usize, unzip: usize, instructions: InstructionSet) -> Self {
        let taps = weights.len() / step;
        let order = (0..step).step_by(LANES).flat_map(|first| {
            let lanes = LANES.min(step - first);
            (0..taps * lanes).map(move |i| (i / lanes) * step + first + i % lanes)
        });
        let instructions = if step >= LANES { instructions } else { InstructionSet::Portable };
        Self { weights: order.map(|i| weights[i]).collect(), step, taps, unzip, instructions }
    }

    /// Returns the number of samples from one spectrum to the next.
    #[inline]
    #[must_use]
    pub fn step(&self) -> usize {
        self.step
    }

    /// Returns the instruction set of the implementation.
    #[inline]
    #[must_use]
    pub fn instructions(&self) -> InstructionSet {
        self.instructions
    }

    /// Returns the number of taps: spectra over which a window extends.
    #[inline]
    #[must_use]
    pub fn taps(&self) -> usize {
        self.taps
    }

    /// Allocates working memory for up to `rows` spectra at once.
    #[must_use]
    pub fn scratch(&self, rows: usize) -> Scratch {
        let columns = TILE.min(self.step);
        Scratch {
            tile: Lines::new((rows + self.taps - 1) * columns),
            filtered: Lines::new(rows * columns),
        }
    }

    /// Filters `out.len() / step` spectra, `[spectrum][step]`; the window of the first one starts at the first of
    /// `samples`. Divided into series, a spectrum is `[series][complex number]`.
    ///
    /// # Panics
    /// If `samples` end before the last window, or `scratch` is for fewer spectra.
    #[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
    pub fn run<T: Copy + Into<f32>>(&self, samples: &[T], out: &mut [f32], scratch: &mut Scratch) {
        match self.instructions {
            InstructionSet::Portable => self.run_portable(samples, out, scratch),
            // SAFETY: an implementation is chosen only if the CPU supports it.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe { self.run_avx2(samples, out, scratch) },
            // SAFETY: an implementation is chosen only if the CPU supports it.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { self.run_avx512(samples, out, scratch) },
        }
    }

    fn run_portable<T: Copy + Into<f32>>(
        &self,
        samples: &[T],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        self.run_with(samples, out, scratch, portable);
    }

    /// Inlined into each implementation, so that the copy loop is compiled for its instruction set, too.
    #[inline(always)]
    fn run_with<T: Copy + Into<f32>>(
        &self,
        samples: &[T],
        out: &mut [f32],
        scratch: &mut Scratch,
        columns: impl Fn(Task),
    ) {
        let rows = out.len() / self.step;
        let Scratch { tile, filtered } = scratch;
        for first in (0..self.step).step_by(TILE) {
            let width = TILE.min(self.step - first);
            let tile = &mut tile[..(rows + self.taps - 1) * width];
            if self.unzip == 1 && self.step <= FETCHED_STEP {
                // The CPU does not expect rows that are a step apart, and stores would wait for one after the other.
                out.chunks_exact(self.step).for_each(|row| fetch(&row[first..][..width]));
            }
            for (row, to) in tile.chunks_exact_mut(width).enumerate() {
                let from = &samples[row * self.step + first..][..width];
                to.iter_mut().zip(from).for_each(|(to, from)| *to = (*from).into());
            }
            if self.unzip == 1 {
                self.tile((first, width), tile, &mut out[first..], self.step, rows, &columns);
            } else {
                let filtered = &mut filtered[..rows * width];
                self.tile((first, width), tile, filtered, width, rows, &columns);
                self.scatter(filtered, first, width, out);
            }
        }
    }

    /// Filters the columns of a tile of `width` columns that begins at column `first`.
    #[inline(always)]
    fn tile(
        &self,
        (first, width): (usize, usize),
        tile: &[f32],
        out: &mut [f32],
        out_pitch: usize,
        rows: usize,
        columns: &impl Fn(Task),
    ) {
        let mut row = 0;
        while row < rows {
            let batch = if rows - row < ROWS { 1 } else { ROWS };
            for group in (0..width).step_by(LANES) {
                let lanes = LANES.min(width - group);
                let weights = &self.weights[(first + group) * self.taps..][..lanes * self.taps];
                let x = &tile[row * width + group..][..(batch + self.taps - 2) * width + lanes];
                let out = &mut out[row * out_pitch + group..][..(batch - 1) * out_pitch + lanes];
                let task = Task { weights, lanes, x, x_pitch: width, out, out_pitch, rows: batch };
                if lanes == LANES { columns(task) } else { portable(task) }
            }
            row += batch;
        }
    }

    /// Copies complex number i = q n + r of each row to index q of part r.
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

/// Computation of some columns of some rows of output. Rows of `x` and `out` are their pitches apart, and both
/// end with the last column of their last row.
struct Task<'a> {
    /// \[tap\]\[column\]
    weights: &'a [f32],
    /// Number of columns; `LANES` for the vector implementations.
    lanes: usize,
    x: &'a [f32],
    x_pitch: usize,
    out: &'a mut [f32],
    out_pitch: usize,
    /// Rows of output, `ROWS` or 1.
    rows: usize,
}

fn portable(task: Task) {
    for (row, out) in task.out.chunks_mut(task.out_pitch).enumerate() {
        let out = &mut out[..task.lanes];
        out.fill(0.0);
        for (tap, weights) in task.weights.chunks_exact(task.lanes).enumerate() {
            let x = &task.x[(row + tap) * task.x_pitch..][..task.lanes];
            out.iter_mut().zip(weights).zip(x).for_each(|((out, w), x)| *out += w * x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_implementation_filters_like_the_portable_one() {
        let mut random = Random::new(1);
        let sizes = [
            (8, 3, 5, 1),
            (16, 16, 8, 1),
            (20, 3, 9, 1),
            (60, 5, 9, 1),
            (64, 5, 9, 2),
            (256, 16, 17, 1),
            (512, 4, 3, 4),
            (2000, 4, 9, 2),
        ];
        let most = if cfg!(miri) { 64 } else { 2000 };
        for (step, taps, rows, unzip) in sizes.into_iter().filter(|sizes| sizes.0 <= most) {
            let weights: Vec<f32> =
                (0..step * taps).map(|_| random.normal_pair()[0] as f32).collect();
            let samples: Vec<i16> =
                (0..(rows + taps - 1) * step).map(|_| random.bits() as i16 >> 4).collect();
            let run = |instructions| {
                let fir = Fir::new(&weights, step, unzip, instructions);
                let mut out = vec![0.0; rows * step];
                fir.run(&samples, &mut out, &mut fir.scratch(rows));
                out
            };
            let expected = run(InstructionSet::Portable);
            for (row, out) in expected.chunks_exact(step).enumerate().filter(|_| unzip == 1) {
                for (s, got) in out.iter().enumerate() {
                    let product = |t: usize| {
                        let (w, x) = (weights[t * step + s], samples[(row + t) * step + s]);
                        f64::from(w) * f64::from(x)
                    };
                    let exact: f64 = (0..taps).map(product).sum();
                    assert!((f64::from(*got) - exact).abs() < 1e-6 * 2048.0 * taps as f64);
                }
            }
            for instructions in InstructionSet::available() {
                let got = run(instructions);
                // The implementations differ only in the rounding of each product.
                let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6 * 2048.0 * taps as f32;
                assert!(got.iter().zip(&expected).all(close), "{instructions:?} {step} {taps}");
            }
        }
    }
}
