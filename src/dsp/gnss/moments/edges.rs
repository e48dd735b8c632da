//! Changes of the code of a correlator tap within a block of samples.

use super::BLOCK_SAMPLES;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::gnss::Replica;
use crate::gnss::phase::{CODE_FRACTION_BITS, ENTRY};
use crate::simd::InstructionSet;

/// Least number of samples in a run: with shorter runs, products with the samples cost about the same, and have
/// smaller rounding errors.
pub const WORTH_EDGES: u64 = 16;
/// Largest number of runs in a block, with room for another register.
pub const ROW: usize = BLOCK_SAMPLES / WORTH_EDGES as usize + 4 + 16;

/// Ends of the runs of each tap's code, at which the code changes; the last runs may be empty.
pub struct Edges {
    /// Number of ends of each tap.
    counts: Vec<usize>,
    /// Remaining part of the first entry of each tap.
    left: Vec<u64>,
    /// `[tap][ROW]`: number of samples before the end of each entry. A tap that differs from an earlier tap by whole
    /// entries uses the row of the earlier tap.
    ends: Vec<u32>,
    /// `[tap][ROW]`: number of samples before the end of a run.
    at: Vec<u32>,
    /// `[tap][ROW]`: code before the end minus code after it; 0 after the last end.
    change: Vec<f32>,
}

impl Edges {
    pub fn new(taps: usize) -> Self {
        let rows = vec![0; taps * ROW];
        let change = vec![0.0; taps * ROW];
        Self { counts: vec![0; taps], left: vec![0; taps], ends: rows.clone(), at: rows, change }
    }

    /// Finds the ends in `len` samples of codes that begin at the phases `codes`, one for each correlator tap.
    #[allow(unsafe_code, reason = "calls implementations that the CPU supports")]
    pub fn find(
        &mut self,
        instructions: InstructionSet,
        replica: &Replica,
        step: u64,
        len: usize,
        codes: impl Iterator<Item = u64>,
    ) {
        let last = ((len as u64 * step) >> CODE_FRACTION_BITS) as usize + 1;
        for (tap, code) in codes.enumerate() {
            let entries = &replica.extended()[(code >> CODE_FRACTION_BITS) as usize..];
            let left = ENTRY - code % ENTRY;
            self.left[tap] = left;
            let first = self.left[..=tap].iter().position(|other| *other == left).unwrap_or(tap);
            let ends = &mut self.ends[first * ROW..][..ROW];
            let at = &mut self.at[tap * ROW..][..ROW];
            let change = &mut self.change[tap * ROW..][..ROW];
            let count = match instructions {
                // SAFETY: `available` lists an implementation only if the CPU supports it.
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx512 => unsafe {
                    if first == tap {
                        x86::ends_avx512((left, step), len, ends, last);
                    }
                    x86::changes_avx512(ends, entries, (at, change), last)
                },
                _ => {
                    if first == tap {
                        find_ends((left, step), len, &mut ends[..last]);
                    }
                    changes(&ends[..last], entries, (at, change))
                }
            };
            at[count] = len as u32;
            change[count] = f32::from(entries[last]);
            self.counts[tap] = count + 1;
        }
    }

    /// Returns the ends of the runs of a tap, and the changes of the code there.
    pub fn row(&self, tap: usize) -> (&[u32], &[f32]) {
        let row = tap * ROW..tap * ROW + self.counts[tap];
        (&self.at[row.clone()], &self.change[row])
    }
}

/// Computes the ends of entries, at most `len`; `left` is the remaining part of the first entry.
fn find_ends((left, step): (u64, u64), len: usize, ends: &mut [u32]) {
    let fewest = ENTRY / step;
    let mut end = left.div_ceil(step);
    // Part of the next entry that has passed at its first sample.
    let mut passed = end * step - left;
    for at in ends {
        *at = end.min(len as u64) as u32;
        let after = passed + fewest * step;
        // No branch, because it would be unpredictable.
        let is_longer = u64::from(after < ENTRY);
        end += fewest + is_longer;
        passed = after + is_longer * step - ENTRY;
    }
}

/// Collects the ends of entries at which the code changes, and the changes; returns their number.
fn changes(ends: &[u32], entries: &[i8], (at, change): (&mut [u32], &mut [f32])) -> usize {
    let mut count = 0;
    for (end, pair) in ends.iter().zip(entries.windows(2)) {
        // No branch, because it would be unpredictable. The next end replaces one without a change.
        at[count] = *end;
        change[count] = f32::from(pair[0]) - f32::from(pair[1]);
        count += usize::from(pair[0] != pair[1]);
    }
    count
}
