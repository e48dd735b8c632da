//! Filter of the first pass on the matrix units: when it is used, and its table of weights. The numbers must
//! match `f_engine_matrix.cu`, whose header explains the terms.

use super::shape::KernelShape;
use fxgraph::cuda::Properties;
use half::f16;

/// Threads per block, of which a multiprocessor has one.
pub const THREADS: usize = 512;
/// Columns per block.
const WIDTH: usize = 64;
/// Number of taps of the kernel; weights of missing taps are zero.
const TAPS: usize = 16;
/// Points of the transform in the first pass.
const RESIDUES: usize = 16;
/// Steps of the products of a warp, whose first one belongs to no window.
const STEPS: usize = 24;
/// Largest relative rms error of the fitted weights. It keeps the response of the error 120 dB below the peak;
/// with more, a strong tone would change too many output values.
const LARGEST_ERROR: f64 = 1e-6;
/// Size of the largest weight in the table: large enough for two `f16` to have 22 bits, and small enough for the
/// scale of the intermediate values.
const LARGEST_WEIGHT: f64 = 16.0;

/// Largest size of the table of weights: that of 32768 channels.
pub const MAX_TABLE_BYTES: usize = RESIDUES * 4096 / 64 * 3 * 4 * 32 * 4;

/// Weights of the kernel.
pub struct Weights {
    /// `[16 a][columns / span][hi, lo, slope][4][32 threads]`, two `f16` each.
    pub table: Vec<u32>,
    /// Factor of the weights in the table.
    pub scale: f32,
}

/// Launch configuration of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixCut {
    columns: usize,
    /// Columns that share their weights.
    span: usize,
    pub shared_bytes: usize,
}

impl MatrixCut {
    /// Launch configuration, if the kernel supports the shape and the GPU: packed samples of 10 bits, up to 16 taps,
    /// compute capability 9.0.
    pub fn new(shape: &KernelShape, gpu: &Properties) -> Option<Self> {
        let columns = 2 * shape.channels / RESIDUES;
        let tiles = 2 * (TAPS / 2) * (RESIDUES * WIDTH * 8 + 32);
        let samples = 2 * 16 * (RESIDUES * 96 + 16) + 16;
        let cut = Self {
            columns,
            span: (columns / 64).clamp(16, 64),
            shared_bytes: tiles + 7 * WIDTH * 8 + samples + 4 * 8,
        };
        let fits = shape.sample_bits == 10
            && shape.taps <= TAPS
            && gpu.capability == (9, 0)
            && gpu.shared_bytes_per_block >= cut.shared_bytes;
        fits.then_some(cut)
    }

    /// Thread blocks across the columns.
    pub fn column_blocks(&self) -> usize {
        self.columns / WIDTH
    }

    /// Number of entries of the table of weights.
    pub fn table_len(&self) -> usize {
        RESIDUES * self.columns / self.span * 3 * 4 * 32
    }

    /// Fits the weights `[tap][2N]` by straight lines over spans of columns; `None` if they are not smooth enough.
    pub fn fit(&self, weights: &[f32]) -> Option<Weights> {
        let step = RESIDUES * self.columns;
        let largest = weights.iter().fold(0.0_f32, |largest, w| largest.max(w.abs()));
        let scale = (LARGEST_WEIGHT / f64::from(largest)).log2().floor().exp2();
        let mut table = Vec::with_capacity(self.table_len());
        let (mut error, mut power) = (0.0, 0.0);
        for first in (0..step).step_by(self.span) {
            let mut lines = [[f16::ZERO; TAPS]; 3];
            // The kernel has the last taps if there are fewer than 16.
            let missing = TAPS - weights.len() / step;
            for (t, of_tap) in weights.chunks_exact(step).enumerate() {
                let of_span = &of_tap[first..first + self.span];
                let line = Line::fit(of_span, scale);
                (error, power) = (error + line.error(of_span, scale), power + square_sum(of_span));
                for (terms, term) in lines.iter_mut().zip([line.hi, line.lo, line.slope]) {
                    terms[missing + t] = term;
                }
            }
            lines.iter().for_each(|terms| table.extend(right_matrix(terms)));
        }
        (error <= LARGEST_ERROR.powi(2) * power).then_some(Weights { table, scale: scale as f32 })
    }
}

/// Straight line hi + lo + d slope, d being the distance from the middle.
struct Line {
    hi: f16,
    lo: f16,
    slope: f16,
}

impl Line {
    /// Least-squares fit of `weights`, times `scale`.
    fn fit(weights: &[f32], scale: f64) -> Self {
        let (mut sum, mut moment, mut squares) = (0.0, 0.0, 0.0);
        for (w, d) in weights.iter().zip(distances(weights.len())) {
            let w = f64::from(*w) * scale;
            (sum, moment, squares) = (sum + w, moment + w * d, squares + d * d);
        }
        let middle = sum / weights.len() as f64;
        let hi = f16::from_f64(middle);
        let lo = f16::from_f64(middle - hi.to_f64());
        Self { hi, lo, slope: f16::from_f64(moment / squares) }
    }

    /// Sum of the squared errors of the line, in units of the weights.
    fn error(&self, weights: &[f32], scale: f64) -> f64 {
        let middle = self.hi.to_f64() + self.lo.to_f64();
        let errors = weights
            .iter()
            .zip(distances(weights.len()))
            .map(|(w, d)| ((middle + self.slope.to_f64() * d) / scale - f64::from(*w)).powi(2));
        errors.sum()
    }
}

/// Distances of `len` columns from their middle.
fn distances(len: usize) -> impl Iterator<Item = f64> {
    (0..len).map(move |i| i as f64 - (len - 1) as f64 / 2.0)
}

fn square_sum(weights: &[f32]) -> f64 {
    weights.iter().map(|w| f64::from(*w).powi(2)).sum()
}

/// Registers `[4][32 threads]` of the right matrix of `weights`.
fn right_matrix(weights: &[f16; TAPS]) -> impl Iterator<Item = u32> {
    // Weight t of spectrum s is at step s + 1 + t.
    let at = |step: usize, spectrum: usize| {
        let tap = step.checked_sub(spectrum + 1).and_then(|tap| weights.get(tap));
        u32::from(tap.map_or(0, |weight| weight.to_bits()))
    };
    let steps = [0, 8, 8, STEPS - 8];
    steps.into_iter().flat_map(move |first| {
        (0..32).map(move |pipeline| {
            let (spectrum, step) = (pipeline / 4, first + 2 * (pipeline % 4));
            at(step, spectrum) | at(step + 1, spectrum) << 16
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::launch::tests::{h200, shape};
    use super::*;
    use fxgraph_dsp::polyphase::{Window, weights};

    fn cut(channels: usize) -> MatrixCut {
        MatrixCut::new(&shape(channels), &h200()).unwrap()
    }

    #[test]
    fn matrix_filter_rejects_unsupported_shapes_and_gpus() {
        assert!(MatrixCut::new(&shape(1024), &h200()).is_some());
        let other = [
            KernelShape { sample_bits: 8, ..shape(1024) },
            KernelShape { taps: 17, ..shape(1024) },
        ];
        assert!(other.iter().all(|shape| MatrixCut::new(shape, &h200()).is_none()));
        let small = Properties { shared_bytes_per_block: 101_376, ..h200() };
        let blackwell = Properties { capability: (12, 0), ..h200() };
        assert!([small, blackwell].iter().all(|gpu| MatrixCut::new(&shape(1024), gpu).is_none()));
    }

    #[test]
    fn table_gives_back_the_weights_of_every_column() {
        for (channels, taps) in [(4096, 16), (4096, 5), (8192, 16), (32768, 16)] {
            let (cut, step) = (cut(channels), 2 * channels);
            let exact = weights(step, taps, Window::Hann, 1.0);
            let fitted = cut.fit(&exact).unwrap();
            assert_eq!(fitted.table.len(), cut.table_len());
            let per_span = 3 * 4 * 32;
            for (column, tap) in [(0, 0), (17, 1), (step / 2 + 3, taps - 1), (step - 1, taps / 2)] {
                let span = &fitted.table[column / cut.span * per_span..][..per_span];
                // Of spectrum 3: at step 3 + 1 + tap, in register 0, 1 or 3.
                let step = 3 + 1 + 16 - taps + tap;
                let (register, pipeline) = ([0, 1, 3][step / 8], 3 * 4 + step % 8 / 2);
                let term = |term: usize| {
                    let word = span[(term * 4 + register) * 32 + pipeline];
                    f16::from_bits((word >> (16 * (step % 2))) as u16).to_f64()
                };
                let d = (column % cut.span) as f64 - (cut.span - 1) as f64 / 2.0;
                let got = (term(0) + term(1) + d * term(2)) / f64::from(fitted.scale);
                let expected = f64::from(exact[tap * 2 * channels + column]);
                assert!((got - expected).abs() < 1e-7, "{channels} {taps} {column} {tap}");
            }
        }
    }

    #[test]
    fn weights_that_bend_within_a_span_are_rejected() {
        for (channels, w_cutoff, is_smooth) in
            [(2048, 1.0, false), (4096, 1.0, true), (4096, 2.0, false), (32768, 1.0, true)]
        {
            let weights = weights(2 * channels, 16, Window::Hann, w_cutoff);
            assert_eq!(cut(channels).fit(&weights).is_some(), is_smooth, "{channels} {w_cutoff}");
        }
        let mut rough = weights(16384, 16, Window::Hann, 1.0);
        assert!(cut(8192).fit(&rough).is_some());
        rough[100_000] += 1e-4;
        assert!(cut(8192).fit(&rough).is_none());
    }
}
