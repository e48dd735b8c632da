//! Correlation: `sum over n of x[n] exp(-2 pi i (phi + f n)) c[floor(code + step n + tap)]`.
//!
//! Samples are processed in blocks that stay in the first-level cache. The rotors of a block, `exp(-2 pi i f k)`,
//! depend only on the frequency; the sums of a block are turned by the exact phase of its first sample, so phases do
//! not drift. The code of each correlator tap is expanded to one entry per sample. A faster method for several
//! satellites whose codes change seldom is [`moments`](super::moments).

#[cfg(target_arch = "x86_64")]
mod x86;

use super::phase::{CODE_FRACTION_BITS, ENTRY};
use super::{Nco, Planes, Replica};
use crate::simd::{InstructionSet, Lines};
use num_complex::{Complex32, Complex64};
use std::ops::Range;

/// Largest number of samples per call.
pub const BLOCK_SAMPLES: usize = 512;
/// Number of bytes of a run written at once.
const RUN: usize = 32;
/// Length of a correlator tap's row, with room for the last run.
pub const ROW: usize = BLOCK_SAMPLES + RUN;

/// Rotors `exp(-2 pi i f k)` for the samples `k` of a block.
#[derive(Clone)]
pub struct Rotors {
    step: Option<u64>,
    exact: Vec<Complex64>,
    re: Lines<f32>,
    im: Lines<f32>,
}

impl Default for Rotors {
    fn default() -> Self {
        Self::new(BLOCK_SAMPLES)
    }
}

/// Returns `exp(-2 pi i phase)` for a phase in units of 2^-64 turns.
pub(super) fn rotor(phase: u64) -> Complex64 {
    let turns = phase.cast_signed() as f64 / 2.0_f64.powi(64);
    Complex64::cis(-std::f64::consts::TAU * turns)
}

impl Rotors {
    /// Creates the rotors of `len` samples.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self {
            step: None,
            exact: vec![Complex64::ONE; len],
            re: Lines::new(len),
            im: Lines::new(len),
        }
    }

    /// Returns all rotors, in single precision.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Complex32> + '_ {
        self.re.iter().zip(self.im.iter()).map(|(re, im)| Complex32::new(*re, *im))
    }

    /// Sets the frequency, in units of 2^-64 turns per sample.
    pub fn set(&mut self, step: u64) {
        if self.step == Some(step) {
            return;
        }
        self.step = Some(step);
        let mut known = 1;
        while known < self.exact.len() {
            let turn = rotor(step.wrapping_mul(known as u64));
            let (done, next) = self.exact.split_at_mut(known);
            next.iter_mut().zip(done).for_each(|(next, done)| *next = *done * turn);
            known *= 2;
        }
        for ((exact, re), im) in self.exact.iter().zip(self.re.iter_mut()).zip(self.im.iter_mut()) {
            [*re, *im] = [exact.re as f32, exact.im as f32];
        }
    }
}

/// Writes the code from phase `code` on to `out` `[ROW]`, one element for each of `len` samples; elements after them
/// are undefined.
#[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
pub fn write_code(
    instructions: InstructionSet,
    replica: &Replica,
    nco: &Nco,
    code: u64,
    len: usize,
    out: &mut [i8],
) {
    let entries = &replica.extended()[(code >> CODE_FRACTION_BITS) as usize..];
    let (fraction, step) = (code % ENTRY, nco.code_step);
    // Samples per entry from which an entry is written as a run; with fewer samples, entries are looked up.
    let worth_a_run = if instructions == InstructionSet::Portable { 4 } else { 16 };
    if ENTRY / step >= worth_a_run {
        return write_runs(entries, fraction, step, &mut out[..len + RUN]);
    }
    match instructions {
        // SAFETY: `available` lists an implementation only if the CPU supports it.
        // SAFETY: an implementation is chosen only if the CPU supports it.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 | InstructionSet::Avx512 if step <= ENTRY => unsafe {
            x86::look_up(entries, fraction, step, &mut out[..len.next_multiple_of(x86::AT_ONCE)]);
        },
        _ => look_up(entries, fraction, step, &mut out[..len]),
    }
}

/// Writes the entries at the phases `fraction + k step` (reference implementation).
fn look_up(entries: &[i8], mut fraction: u64, step: u64, out: &mut [i8]) {
    for out in out {
        *out = entries[(fraction >> CODE_FRACTION_BITS) as usize];
        fraction += step;
    }
}

/// Writes the same entries as runs, if an entry lasts several samples; the last [`RUN`] elements of `out` are
/// undefined.
fn write_runs(entries: &[i8], mut fraction: u64, step: u64, out: &mut [i8]) {
    let len = out.len() - RUN;
    // An entry lasts this many samples, or one more.
    let fewest = ENTRY / step;
    let mut at = 0;
    let mut count = (ENTRY - fraction).div_ceil(step);
    fraction = fraction + count * step - ENTRY;
    for entry in entries {
        let end = len.min(at + count as usize);
        for start in (at..end).step_by(RUN) {
            out[start..start + RUN].copy_from_slice(&[*entry; RUN]);
        }
        if end == len {
            return;
        }
        at = end;
        let after = fraction + fewest * step;
        let is_longer = after < ENTRY;
        count = fewest + u64::from(is_longer);
        fraction = if is_longer { after + step } else { after } - ENTRY;
    }
}

/// Piece of one antenna's samples, with the rotors.
struct Piece<'a> {
    re: &'a [f32],
    im: &'a [f32],
    rotors: &'a Rotors,
}

/// Correlates samples with the signals of satellites, one satellite per call.
pub struct Correlator {
    instructions: InstructionSet,
    /// Number of correlator taps; each call gets their offsets.
    taps: usize,
    /// `[tap][ROW]`.
    codes: Vec<i8>,
    sums: Vec<[f32; 2]>,
}

impl Correlator {
    /// Creates a correlator for `taps` taps.
    #[must_use]
    pub fn new(instructions: InstructionSet, taps: usize) -> Self {
        Self { instructions, taps, codes: vec![0; taps * ROW], sums: vec![[0.0; 2]; taps] }
    }

    /// Adds the correlations of at most [`BLOCK_SAMPLES`] samples to `sums` `[antenna][tap]`. `nco` contains the
    /// phases of the first sample, `taps` the offsets of the code; `rotors` must be set to the carrier frequency.
    #[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
    pub fn add(
        &mut self,
        (planes, range): (&Planes, Range<usize>),
        (replica, nco): (&Replica, &Nco),
        taps: &[u64],
        rotors: &Rotors,
        sums: &mut [Complex64],
    ) {
        let codes = taps[..self.taps].iter().map(|offset| nco.code_at(*offset));
        for (code, row) in codes.zip(self.codes.chunks_exact_mut(ROW)) {
            write_code(self.instructions, replica, nco, code, range.len(), row);
        }
        let turn = rotor(nco.carrier) * replica.scale();
        for (antenna, sums) in sums.chunks_exact_mut(self.taps).enumerate() {
            let (re, im) = planes.parts(antenna, range.clone());
            let piece = Piece { re, im, rotors };
            match self.instructions {
                InstructionSet::Portable => piece.sum(&self.codes, &mut self.sums),
                // SAFETY: an implementation is chosen only if the CPU supports it.
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx2 => unsafe {
                    x86::avx2::sum(&piece, &self.codes, &mut self.sums);
                },
                // SAFETY: an implementation is chosen only if the CPU supports it.
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx512 => unsafe {
                    x86::avx512::sum(&piece, &self.codes, &mut self.sums);
                },
            }
            for (sum, [re, im]) in sums.iter_mut().zip(&self.sums) {
                *sum += turn * Complex64::new(f64::from(*re), f64::from(*im));
            }
        }
    }
}

impl Piece<'_> {
    fn mixed(&self) -> impl Iterator<Item = Complex32> {
        let samples = self.re.iter().zip(self.im).map(|(re, im)| Complex32::new(*re, *im));
        samples.zip(self.rotors.iter()).map(|(sample, rotor)| sample * rotor)
    }

    /// Adds the sums of all correlator taps, with codes `[tap][ROW]` (reference implementation).
    fn sum(&self, codes: &[i8], sums: &mut [[f32; 2]]) {
        for (code, sum) in codes.chunks_exact(ROW).zip(sums) {
            let products = self.mixed().zip(code).map(|(mixed, code)| mixed * f32::from(*code));
            let total: Complex32 = products.sum();
            *sum = [total.re, total.im];
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
