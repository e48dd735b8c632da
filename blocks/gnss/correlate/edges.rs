//! Where a tap's code changes within a block of samples.
//!
//! A code that is constant over runs of samples needs no product with each of them. With `P(n)` the sum of the mixed
//! samples before number `n`, and a code of `c_0, c_1, ...` whose runs end at the samples `n_0, n_1, ...`, the sum of all products is
//! `c_0 P(n_0) + c_1 (P(n_1) - P(n_0)) + ...`: a tap costs its changes, whatever the samples.
#![allow(unsafe_code)] // calls of functions compiled for more than the baseline processor

use super::BLOCK_SAMPLES;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::gnss::Replica;
use crate::gnss::phase::{CODE_FRACTION_BITS, ENTRY};
use crate::simd::Form;

/// Fewest samples of a run: below it, products are cheaper.
pub const WORTH_EDGES: u64 = 4;
/// Most runs in a block, and room for a register more.
pub const ROW: usize = BLOCK_SAMPLES / WORTH_EDGES as usize + 2 + 16;

/// The runs of each tap's code, as many of each: the last ones may be empty.
pub struct Edges {
    count: usize,
    /// `[tap][ROW]`: the samples before a run's end.
    at: Vec<u16>,
    /// `[tap][ROW]`: the code of a run.
    of: Vec<f32>,
}

impl Edges {
    pub fn new(taps: usize) -> Self {
        Self { count: 0, at: vec![0; taps * ROW], of: vec![0.0; taps * ROW] }
    }

    /// Those of `len` samples of codes that begin at the phases `codes`, one for each tap.
    pub fn find(
        &mut self,
        form: Form,
        replica: &Replica,
        step: u64,
        len: usize,
        codes: impl Iterator<Item = u64>,
    ) {
        self.count = ((len as u64 * step) >> CODE_FRACTION_BITS) as usize + 2;
        let last = self.count - 1;
        let rows = self.at.chunks_exact_mut(ROW).zip(self.of.chunks_exact_mut(ROW));
        for (code, (at, of)) in codes.zip(rows) {
            let entries = &replica.extended()[(code >> CODE_FRACTION_BITS) as usize..];
            let left = ENTRY - code % ENTRY;
            match form {
                // SAFETY: `available` offers a form only after the processor was asked for it.
                #[cfg(target_arch = "x86_64")]
                Form::Avx512 => unsafe {
                    x86::ends_avx512((left, step), entries, (at, of), self.count);
                },
                _ => ends((left, step), entries, (&mut at[..=last], &mut of[..=last])),
            }
            at[..=last].iter_mut().for_each(|at| *at = (*at).min(len as u16));
            at[last] = len as u16;
        }
    }

    /// How many runs each tap has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where the runs of a tap end, and the code of each.
    pub fn row(&self, tap: usize) -> (&[u16], &[f32]) {
        let row = tap * ROW..tap * ROW + self.count;
        (&self.at[row.clone()], &self.of[row])
    }
}

/// The ends of the runs of `entries`, of the first of which there is `left`, and their values.
fn ends((left, step): (u64, u64), entries: &[i8], (at, of): (&mut [u16], &mut [f32])) {
    let fewest = ENTRY / step;
    let mut end = left.div_ceil(step);
    // What of the next entry has passed at its first sample.
    let mut passed = end * step - left;
    for ((at, of), entry) in at.iter_mut().zip(of).zip(entries) {
        *at = end.min(BLOCK_SAMPLES as u64) as u16;
        *of = f32::from(*entry);
        let after = passed + fewest * step;
        // No branch: nothing tells which of the two it will be.
        let is_longer = u64::from(after < ENTRY);
        end += fewest + is_longer;
        passed = after + is_longer * step - ENTRY;
    }
}
