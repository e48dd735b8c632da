//! Correlation as in [`correlate`](super::correlate), for several satellites whose codes change seldom.
//!
//! Over a cell of `2 h` samples around `n_0`, within which a carrier turns little,
//!
//! ```text
//! exp(-2 pi i f n) = exp(-2 pi i f n_0) sum over m of (-2 pi i f h)^m / m! u^m,    u = (n - n_0) / h
//! ```
//!
//! so that a run of samples, over which a code is constant, needs only the sums of `x u^m`. These moments are the same
//! for all satellites: their cumulative sums before each sample are computed once. The cost of a satellite depends on
//! the number of cells and of changes of its code, not on the number of samples: with `F(n)` the mixed sum before
//! sample `n`, and a code of `c_0, c_1, ...` whose runs end at `n_0, n_1, ...`, the sum of all products is
//! `(c_0 - c_1) F(n_0) + (c_1 - c_2) F(n_1) + ...`.

mod edges;
#[cfg(target_arch = "x86_64")]
mod x86;

use self::edges::{Edges, WORTH_EDGES};
use super::correlate::{Rotors, rotor};
use super::phase::ENTRY;
use super::{Nco, Replica};
use crate::simd::InstructionSet;
use num_complex::Complex64;

/// Largest number of samples per call.
pub const BLOCK_SAMPLES: usize = 2048;
/// Terms of the series.
const TERMS: usize = 4;
/// Real and imaginary part of each moment.
const PARTS: usize = 2 * TERMS;
/// Largest turn of a carrier over half a cell, in radians: the first omitted term is `0.05^4 / 4!`, 2.6e-7.
const MOST_RADIANS: f64 = 0.05;
/// Binary logarithms of the cell lengths in samples: longer cells are not faster, shorter cells are not worthwhile.
const LOG2_CELLS: std::ops::RangeInclusive<u32> = 5..=7;
/// Largest number of cells in a block.
const MOST_CELLS: usize = BLOCK_SAMPLES >> *LOG2_CELLS.start();

/// Moments, alternating real and imaginary parts; or their factors.
type Parts = [f32; PARTS];

/// Returns the binary logarithm of the largest cell, in samples, over which a carrier of `step` (units of 2^-64 turns
/// per sample) turns little enough; `None` if this method is not worthwhile, or the code of `nco` changes too often.
#[must_use]
pub fn log2_cell(nco: &Nco, step: u64) -> Option<u32> {
    let radians = radians(step).abs();
    let is_slow = |log2: &u32| radians * f64::from(1_u32 << (log2 - 1)) <= MOST_RADIANS;
    let has_runs = ENTRY / nco.code_step >= WORTH_EDGES;
    LOG2_CELLS.rev().find(|log2| has_runs && is_slow(log2))
}

/// Converts a frequency, in units of 2^-64 turns per sample and possibly negative, to radians per sample.
fn radians(step: u64) -> f64 {
    std::f64::consts::TAU * step.cast_signed() as f64 / 2.0_f64.powi(64)
}

/// Moments of the samples of an antenna.
pub struct Moments {
    log2_cell: u32,
    /// `[sample in a cell]`: powers of `u`, each twice.
    powers: Vec<Parts>,
    /// Samples, mixed with the frequency shared by all satellites.
    mixed: Vec<[f32; 2]>,
    /// Moments before each sample, since the start of its cell.
    before: Vec<Parts>,
    /// Moments of each whole cell.
    cells: Vec<Parts>,
    len: usize,
}

impl Default for Moments {
    fn default() -> Self {
        let mut moments = Self {
            log2_cell: 0,
            powers: vec![[0.0; PARTS]; 1 << *LOG2_CELLS.end()],
            mixed: vec![[0.0; 2]; BLOCK_SAMPLES],
            before: vec![[0.0; PARTS]; BLOCK_SAMPLES + 1],
            cells: vec![[0.0; PARTS]; MOST_CELLS],
            len: 0,
        };
        moments.set_cell(*LOG2_CELLS.end());
        moments
    }
}

impl Moments {
    /// Bytes of memory.
    pub const BYTES: usize = size_of::<Parts>()
        * ((1 << *LOG2_CELLS.end()) + BLOCK_SAMPLES + 1 + MOST_CELLS)
        + 8 * BLOCK_SAMPLES;

    /// Sets the length of the cells to `2^log2_cell` samples.
    pub fn set_cell(&mut self, log2_cell: u32) {
        if self.log2_cell == log2_cell {
            return;
        }
        self.log2_cell = log2_cell;
        let half = f64::from(1_u32 << (log2_cell - 1));
        for (place, powers) in self.powers[..1 << log2_cell].iter_mut().enumerate() {
            let u = (place as f64 + 0.5) / half - 1.0;
            *powers = std::array::from_fn(|part| u.powi(part as i32 / 2) as f32);
        }
    }

    /// Computes the moments of the samples of a block, mixed with `rotors`.
    #[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
    pub fn read(
        &mut self,
        instructions: InstructionSet,
        samples: (&[f32], &[f32]),
        rotors: &Rotors,
    ) {
        self.len = samples.0.len();
        match instructions {
            InstructionSet::Portable => {
                self.mix(samples, rotors);
                self.sum_up();
            }
            // SAFETY: an implementation is chosen only if the CPU supports it.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 | InstructionSet::Avx512 => unsafe {
                x86::mix(self, samples, rotors);
                x86::sum_up(self);
            },
        }
        // The moments at the start of a cell are 0.
        let cell = 1 << self.log2_cell;
        let is_within = !self.len.is_multiple_of(cell);
        self.before[self.len] = if is_within { self.cells[self.len / cell] } else { [0.0; PARTS] };
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // into a function compiled for more than the baseline CPU
    fn mix(&mut self, (re, im): (&[f32], &[f32]), rotors: &Rotors) {
        let samples = self.mixed.iter_mut().zip(re.iter().zip(im));
        for ((mixed, (re, im)), rotor) in samples.zip(rotors.iter()) {
            *mixed = [re * rotor.re - im * rotor.im, re * rotor.im + im * rotor.re];
        }
    }

    /// Computes the moments before each mixed sample and of each cell (reference implementation).
    fn sum_up(&mut self) {
        let cell = 1 << self.log2_cell;
        let samples = self.mixed[..self.len].chunks(cell).zip(self.before.chunks_mut(cell));
        for ((samples, before), sum) in samples.zip(&mut self.cells) {
            *sum = [0.0; PARTS];
            for (([re, im], before), powers) in samples.iter().zip(before).zip(&self.powers) {
                *before = *sum;
                for (sum, powers) in sum.chunks_exact_mut(2).zip(powers.chunks_exact(2)) {
                    sum[0] += powers[0] * re;
                    sum[1] += powers[1] * im;
                }
            }
        }
    }
}

/// Weights that combine the moments of each cell to real and imaginary parts of a mixed sum.
#[derive(Clone)]
pub struct Weights {
    /// Frequency and size of the cells.
    of: Option<(u64, u32)>,
    cells: Vec<[Parts; 2]>,
}

impl Default for Weights {
    fn default() -> Self {
        Self { of: None, cells: vec![[[0.0; PARTS]; 2]; MOST_CELLS + 1] }
    }
}

impl Weights {
    /// Bytes of memory.
    pub const BYTES: usize = size_of::<[Parts; 2]>() * (MOST_CELLS + 1);

    /// Sets the frequency, in units of 2^-64 turns per sample, and the length of the cells, `2^log2_cell` samples.
    pub fn set(&mut self, step: u64, log2_cell: u32) {
        if self.of.replace((step, log2_cell)) == Some((step, log2_cell)) {
            return;
        }
        let radians = radians(step);
        let half = f64::from(1_u32 << (log2_cell - 1));
        let used = (BLOCK_SAMPLES >> log2_cell) + 1;
        for (cell, [real, imaginary]) in self.cells[..used].iter_mut().enumerate() {
            let centre = half * (2 * cell + 1) as f64 - 0.5;
            let mut weight = Complex64::cis(-radians * centre);
            for term in 0..TERMS {
                let [re, im] = [weight.re as f32, weight.im as f32];
                [real[2 * term], real[2 * term + 1]] = [re, -im];
                [imaginary[2 * term], imaginary[2 * term + 1]] = [im, re];
                weight *= Complex64::new(0.0, -radians * half) / (term + 1) as f64;
            }
        }
    }
}

/// Binary logarithm of the number of phases in [`Phasors`].
const LOG2_PHASORS: u32 = 8;

/// Table for `exp(-2 pi i phase)` in double precision: faster than sine and cosine of the library.
struct Phasors(Vec<Complex64>);

impl Phasors {
    fn new() -> Self {
        let phase = |index: u64| index << (u64::BITS - LOG2_PHASORS);
        Self((0..1 << LOG2_PHASORS).map(|index| rotor(phase(index))).collect())
    }

    /// Returns `exp(-2 pi i phase)` for a phase in units of 2^-64 turns, with an error of less than 1e-14.
    #[inline]
    fn at(&self, phase: u64) -> Complex64 {
        let shift = u64::BITS - LOG2_PHASORS;
        let nearest = phase.wrapping_add(1 << (shift - 1)) >> shift;
        // At most pi / 256: the first omitted terms are x^6 / 720 and x^7 / 5040.
        let x = -radians(phase.wrapping_sub(nearest << shift));
        let square = x * x;
        let cos = 1.0 - square * (0.5 - square / 24.0);
        let sin = x * (1.0 - square * (1.0 / 6.0 - square / 120.0));
        self.0[nearest as usize] * Complex64::new(cos, sin)
    }
}

/// Correlates moments with the signals of satellites, one satellite per call.
pub struct EdgeCorrelator {
    instructions: InstructionSet,
    phasors: Phasors,
    /// Number of correlator taps; each call gets their offsets.
    taps: usize,
    edges: Edges,
    /// Terms of the real and the imaginary part of the mixed sum before each cell.
    before: Vec<[Parts; 2]>,
    /// Sums of each correlator tap.
    sums: Vec<[f32; 2]>,
}

impl EdgeCorrelator {
    /// Creates a correlator for `taps` taps.
    #[must_use]
    pub fn new(instructions: InstructionSet, taps: usize) -> Self {
        Self {
            instructions,
            phasors: Phasors::new(),
            taps,
            edges: Edges::new(taps),
            before: vec![[[0.0; PARTS]; 2]; MOST_CELLS + 1],
            sums: vec![[0.0; 2]; taps],
        }
    }

    /// Adds the correlations of the samples of `moments`, one for each antenna, to `sums` `[antenna][tap]`. `nco`
    /// contains the phases of the first sample, `taps` the offsets of the code; `weights` must be set to the carrier
    /// frequency.
    #[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
    pub fn add(
        &mut self,
        moments: &[Moments],
        (replica, nco): (&Replica, &Nco),
        taps: &[u64],
        weights: &Weights,
        sums: &mut [Complex64],
    ) {
        let Some(first) = moments.first() else { return };
        let codes = taps[..self.taps].iter().map(|offset| nco.code_at(*offset));
        self.edges.find(self.instructions, replica, nco.code_step, first.len, codes);
        let turn = self.phasors.at(nco.carrier) * replica.scale();
        for (moments, sums) in moments.iter().zip(sums.chunks_exact_mut(self.taps)) {
            match self.instructions {
                InstructionSet::Portable => self.sum(moments, weights),
                // SAFETY: an implementation is chosen only if the CPU supports it.
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx2 => unsafe { x86::sum(self, moments, weights) },
                // SAFETY: likewise.
                // SAFETY: an implementation is chosen only if the CPU supports it.
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx512 => unsafe { x86::sum_avx512(self, moments, weights) },
            }
            for (sum, [re, im]) in sums.iter_mut().zip(&self.sums) {
                *sum += turn * Complex64::new(f64::from(*re), f64::from(*im));
            }
        }
    }

    /// Computes the sums of all correlator taps (reference implementation).
    fn sum(&mut self, moments: &Moments, weights: &Weights) {
        let mut all = [[0.0; PARTS]; 2];
        let whole = moments.len >> moments.log2_cell;
        for cell in 0..whole {
            self.before[cell] = all;
            add_products(&mut all, &weights.cells[cell], &moments.cells[cell]);
        }
        self.before[whole] = all;
        for (tap, sum) in self.sums.iter_mut().enumerate() {
            let mut total = [[0.0; PARTS]; 2];
            let (at, change) = self.edges.row(tap);
            for (at, change) in at.iter().zip(change) {
                let at = *at as usize;
                let cell = at >> moments.log2_cell;
                let mut value = self.before[cell];
                add_products(&mut value, &weights.cells[cell], &moments.before[at]);
                for (total, value) in total.as_flattened_mut().iter_mut().zip(value.as_flattened())
                {
                    *total += change * value;
                }
            }
            *sum = total.map(|parts| parts.iter().sum());
        }
    }
}

fn add_products(sums: &mut [Parts; 2], weights: &[Parts; 2], moments: &Parts) {
    for (sums, weights) in sums.iter_mut().zip(weights) {
        for ((sum, weight), moment) in sums.iter_mut().zip(weights).zip(moments) {
            *sum += weight * moment;
        }
    }
}

#[cfg(test)]
mod tests;
