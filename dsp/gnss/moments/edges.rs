//! Changes of the code of a correlator tap within a block of samples.

use super::BLOCK_SAMPLES;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::gnss::Replica;
use crate::gnss::phase::{CODE_FRACTION_BITS, ENTRY};
use crate::simd::Form;

/// Least number of samples in a run: with shorter runs, products with the samples cost about the same, and have
/// smaller rounding errors.
pub const WORTH_EDGES: u64 = 16;
/// Largest number of runs in a block, with room for another register.
pub const ROW: usize = BLOCK_SAMPLES / WORTH_EDGES as usize + 4 + 16;

/// Ends of the runs of each tap's code: the same, even number for each tap; the last runs may be empty.
pub struct Edges {
    count: usize,
    /// `[tap][ROW]`: number of samples before the end of a run.
    at: Vec<u16>,
    /// `[tap][ROW]`: code before the end minus code after it; 0 after the last end.
    change: Vec<f32>,
}

impl Edges {
    pub fn new(taps: usize) -> Self {
        Self { count: 0, at: vec![0; taps * ROW], change: vec![0.0; taps * ROW] }
    }

    /// Finds the ends in `len` samples of codes that begin at the phases `codes`, one for each correlator tap.
    #[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
    pub fn find(
        &mut self,
        form: Form,
        replica: &Replica,
        step: u64,
        len: usize,
        codes: impl Iterator<Item = u64>,
    ) {
        let most = ((len as u64 * step) >> CODE_FRACTION_BITS) as usize + 2;
        self.count = most.next_multiple_of(2);
        let rows = self.at.chunks_exact_mut(ROW).zip(self.change.chunks_exact_mut(ROW));
        for (code, (at, change)) in codes.zip(rows) {
            let entries = &replica.extended()[(code >> CODE_FRACTION_BITS) as usize..];
            let left = ENTRY - code % ENTRY;
            match form {
                // SAFETY: `available` lists an implementation only if the CPU supports it.
                #[cfg(target_arch = "x86_64")]
                Form::Avx512 => unsafe {
                    x86::ends_avx512((left, step), entries, len, (at, change), most);
                },
                _ => ends((left, step), entries, len, (&mut at[..most], &mut change[..most])),
            }
            let last = most - 1;
            at[last..self.count].fill(len as u16);
            change[last] = f32::from(entries[last]);
            change[most..self.count].fill(0.0);
        }
    }

    /// Returns the ends of the runs of a tap, and the changes of the code there.
    pub fn row(&self, tap: usize) -> (&[u16], &[f32]) {
        let row = tap * ROW..tap * ROW + self.count;
        (&self.at[row.clone()], &self.change[row])
    }
}

/// Computes the ends of the runs of `entries`, and the changes of the code there; `left` is the remaining part of the
/// first entry.
fn ends(
    (left, step): (u64, u64),
    entries: &[i8],
    len: usize,
    (at, change): (&mut [u16], &mut [f32]),
) {
    let fewest = ENTRY / step;
    let mut end = left.div_ceil(step);
    // Part of the next entry that has passed at its first sample.
    let mut passed = end * step - left;
    for ((at, change), pair) in at.iter_mut().zip(change).zip(entries.windows(2)) {
        *at = end.min(len as u64) as u16;
        *change = f32::from(pair[0]) - f32::from(pair[1]);
        let after = passed + fewest * step;
        // No branch, because it would be unpredictable.
        let is_longer = u64::from(after < ENTRY);
        end += fewest + is_longer;
        passed = after + is_longer * step - ENTRY;
    }
}
