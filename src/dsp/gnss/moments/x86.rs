//! Implementation with the registers of x86 CPUs.
//!
//! Moments have registers of 8 floats. With AVX-512, sums over ends have registers of 16 floats.
#![allow(
    unsafe_code,
    reason = "loads and stores of whole registers from and to arrays of their size"
)]

use super::{EdgeCorrelator, Moments, PARTS, Parts, Rotors, Weights};
use crate::gnss::phase::{CODE_FRACTION_BITS, ENTRY};
use std::arch::x86_64::{
    __m256, __m512, _mm_loadl_epi64, _mm256_castpd_ps, _mm256_cmpneq_epi32_mask,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_maskz_compress_epi32, _mm256_maskz_compress_ps, _mm256_set1_pd,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi32,
    _mm512_add_epi64, _mm512_add_ps, _mm512_broadcast_f32x8, _mm512_cmpgt_epi64_mask,
    _mm512_cvtepi64_epi32, _mm512_cvtepi64_pd, _mm512_cvtss_f32, _mm512_cvttpd_epi64,
    _mm512_extractf32x8_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_add_epi64,
    _mm512_min_epi64, _mm512_mul_pd, _mm512_mullo_epi64, _mm512_permute_ps, _mm512_set_epi64,
    _mm512_set1_epi64, _mm512_set1_pd, _mm512_set1_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4,
    _mm512_slli_epi64, _mm512_storeu_ps,
};

#[inline]
#[target_feature(enable = "avx2,fma")]
fn load(parts: &Parts) -> __m256 {
    // SAFETY: the array has the length of a register.
    unsafe { _mm256_loadu_ps(parts.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn store(register: __m256, parts: &mut Parts) {
    // SAFETY: the array has the length of a register.
    unsafe { _mm256_storeu_ps(parts.as_mut_ptr(), register) }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn total(register: __m256) -> f32 {
    let mut parts = [0.0; PARTS];
    store(register, &mut parts);
    let [a, b, c, d, e, f, g, h] = parts;
    ((a + e) + (b + f)) + ((c + g) + (d + h))
}

/// Ends that are found at once with AVX-512.
const AT_ONCE: usize = 8;

/// See [`Moments::mix`].
#[target_feature(enable = "avx2,fma")]
pub fn mix(moments: &mut Moments, samples: (&[f32], &[f32]), rotors: &Rotors) {
    moments.mix(samples, rotors);
}

/// See [`Moments::sum_up`].
#[target_feature(enable = "avx2,fma")]
pub fn sum_up(moments: &mut Moments) {
    /// Number of cells processed in parallel, so that the sums are independent.
    const AT_ONCE: usize = 4;
    let Moments { powers, mixed, before, cells, .. } = moments;
    let cell = 1 << moments.log2_cell;
    let side_by_side = moments.len / (AT_ONCE * cell) * AT_ONCE;
    let (samples, rest) = mixed[..moments.len].split_at(side_by_side * cell);
    let (before, before_rest) = before.split_at_mut(side_by_side * cell);
    let (cells, cells_rest) = cells.split_at_mut(side_by_side);
    let groups = samples.chunks_exact(AT_ONCE * cell).zip(before.chunks_mut(AT_ONCE * cell));
    for ((samples, before), cells) in groups.zip(cells.as_chunks_mut::<AT_ONCE>().0) {
        sum_cells(powers, samples, before, cells);
    }
    let groups = rest.chunks(cell).zip(before_rest.chunks_mut(cell));
    for ((samples, before), cells) in groups.zip(cells_rest.as_chunks_mut::<1>().0) {
        sum_cells(powers, samples, before, cells);
    }
}

/// Sums the moments of `CELLS` cells with an equal number of samples.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn sum_cells<const CELLS: usize>(
    powers: &[Parts],
    samples: &[[f32; 2]],
    before: &mut [Parts],
    cells: &mut [Parts; CELLS],
) {
    let cell = samples.len() / CELLS;
    let mut sums = [_mm256_setzero_ps(); CELLS];
    for (place, powers) in powers[..cell].iter().enumerate() {
        let powers = load(powers);
        for (number, sum) in sums.iter_mut().enumerate() {
            let at = number * cell + place;
            store(*sum, &mut before[at]);
            let sample = _mm256_castpd_ps(_mm256_set1_pd(bytemuck::cast(samples[at])));
            *sum = _mm256_fmadd_ps(powers, sample, *sum);
        }
    }
    for (sum, cell) in sums.into_iter().zip(cells) {
        store(sum, cell);
    }
}

/// See [`EdgeCorrelator::sum`].
#[target_feature(enable = "avx2,fma")]
pub fn sum(correlator: &mut EdgeCorrelator, moments: &Moments, weights: &Weights) {
    let EdgeCorrelator { before, edges, sums, .. } = correlator;
    let (mut all_re, mut all_im) = (_mm256_setzero_ps(), _mm256_setzero_ps());
    let whole = moments.len >> moments.log2_cell;
    let cells = before.iter_mut().zip(&weights.cells).zip(&moments.cells[..whole]);
    for (([before_re, before_im], [re, im]), cell) in cells {
        store(all_re, before_re);
        store(all_im, before_im);
        let cell = load(cell);
        all_re = _mm256_fmadd_ps(load(re), cell, all_re);
        all_im = _mm256_fmadd_ps(load(im), cell, all_im);
    }
    let [before_re, before_im] = &mut before[whole];
    store(all_re, before_re);
    store(all_im, before_im);
    for (tap, sum) in sums.iter_mut().enumerate() {
        // One sum, because a code of two levels changes up and down in turn: separate sums over even and odd ends would
        // grow without cancelling.
        let (mut total_re, mut total_im) = (_mm256_setzero_ps(), _mm256_setzero_ps());
        let (at, change) = edges.row(tap);
        for (at, change) in at.iter().zip(change) {
            let at = *at as usize;
            let cell = at >> moments.log2_cell;
            let ([before_re, before_im], [weight_re, weight_im]) =
                (&before[cell], &weights.cells[cell]);
            let parts = load(&moments.before[at]);
            let change = _mm256_set1_ps(*change);
            let of_re = _mm256_fmadd_ps(load(weight_re), parts, load(before_re));
            let of_im = _mm256_fmadd_ps(load(weight_im), parts, load(before_im));
            total_re = _mm256_fmadd_ps(change, of_re, total_re);
            total_im = _mm256_fmadd_ps(change, of_im, total_im);
        }
        *sum = [total(total_re), total(total_im)];
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn load_both(parts: &[Parts; 2]) -> __m512 {
    // SAFETY: the arrays have the length of a register.
    unsafe { _mm512_loadu_ps(parts.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn store_both(register: __m512, parts: &mut [Parts; 2]) {
    // SAFETY: the arrays have the length of a register.
    unsafe { _mm512_storeu_ps(parts.as_mut_ptr().cast(), register) }
}

/// Returns the sums of the lower and of the upper half of a register.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn totals(parts: __m512) -> [f32; 2] {
    let fours = _mm512_add_ps(parts, _mm512_shuffle_f32x4::<0b10_11_00_01>(parts, parts));
    let pairs = _mm512_add_ps(fours, _mm512_permute_ps::<0b01_00_11_10>(fours));
    let all = _mm512_add_ps(pairs, _mm512_permute_ps::<0b10_11_00_01>(pairs));
    [_mm512_cvtss_f32(all), _mm256_cvtss_f32(_mm512_extractf32x8_ps::<1>(all))]
}

/// See [`EdgeCorrelator::sum`]. A register contains the terms of the real and of the imaginary part.
#[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
pub fn sum_avx512(correlator: &mut EdgeCorrelator, moments: &Moments, weights: &Weights) {
    let EdgeCorrelator { before, edges, sums, .. } = correlator;
    let mut all = _mm512_setzero_ps();
    let whole = moments.len >> moments.log2_cell;
    let cells = before.iter_mut().zip(&weights.cells).zip(&moments.cells[..whole]);
    for ((before, weights), cell) in cells {
        store_both(all, before);
        all = _mm512_fmadd_ps(load_both(weights), _mm512_broadcast_f32x8(load(cell)), all);
    }
    store_both(all, &mut before[whole]);
    for (tap, sum) in sums.iter_mut().enumerate() {
        // One sum, as above.
        let mut total = _mm512_setzero_ps();
        let (at, change) = edges.row(tap);
        for (at, change) in at.iter().zip(change) {
            let at = *at as usize;
            let cell = at >> moments.log2_cell;
            let parts = _mm512_broadcast_f32x8(load(&moments.before[at]));
            let value = load_both(&before[cell]);
            let value = _mm512_fmadd_ps(load_both(&weights.cells[cell]), parts, value);
            total = _mm512_fmadd_ps(_mm512_set1_ps(*change), value, total);
        }
        *sum = totals(total);
    }
}

/// Computes the first `count` ends of entries, and some more; see `edges::find_ends`.
///
/// An end is a quotient, rounded up. Its estimate is slightly too large, by much less than one: truncated, it is the
/// quotient rounded down, or up.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub fn ends_avx512((left, step): (u64, u64), len: usize, ends: &mut [u32], count: usize) {
    const TOO_LARGE: f64 = 1.0 + 1.0 / (1_u64 << CODE_FRACTION_BITS) as f64;
    let per_step = _mm512_set1_pd(TOO_LARGE / step as f64);
    let steps = _mm512_set1_epi64(step.cast_signed());
    let most = _mm512_set1_epi64(len as i64);
    let lanes = _mm512_slli_epi64::<CODE_FRACTION_BITS>(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    let mut phases = _mm512_add_epi64(_mm512_set1_epi64(left.cast_signed()), lanes);
    let by = _mm512_set1_epi64((AT_ONCE as i64) * ENTRY.cast_signed());
    for ends in ends.as_chunks_mut::<AT_ONCE>().0.iter_mut().take(count.div_ceil(AT_ONCE)) {
        let estimate = _mm512_cvttpd_epi64(_mm512_mul_pd(_mm512_cvtepi64_pd(phases), per_step));
        let is_before = _mm512_cmpgt_epi64_mask(phases, _mm512_mullo_epi64(estimate, steps));
        let sample = _mm512_mask_add_epi64(estimate, is_before, estimate, _mm512_set1_epi64(1));
        let sample = _mm512_cvtepi64_epi32(_mm512_min_epi64(sample, most));
        // SAFETY: the array has the length of a register.
        unsafe { _mm256_storeu_si256(ends.as_mut_ptr().cast(), sample) };
        phases = _mm512_add_epi64(phases, by);
    }
}

/// See `edges::changes`, for the first `count` ends.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
pub fn changes_avx512(
    ends: &[u32],
    entries: &[i8],
    (at, change): (&mut [u32], &mut [f32]),
    count: usize,
) -> usize {
    let mut found = 0;
    let rows = ends.as_chunks::<AT_ONCE>().0.iter().zip((0..count).step_by(AT_ONCE));
    for (ends, first) in rows {
        let entries = &entries[first..][..=AT_ONCE];
        let (at, change) = (&mut at[found..][..AT_ONCE], &mut change[found..][..AT_ONCE]);
        let valid = u8::MAX >> (AT_ONCE - AT_ONCE.min(count - first));
        // SAFETY: eight entries and the one after them, and eight elements of each other slice.
        let changed = unsafe {
            let these = _mm256_cvtepi8_epi32(_mm_loadl_epi64(entries.as_ptr().cast()));
            let next = _mm256_cvtepi8_epi32(_mm_loadl_epi64(entries[1..].as_ptr().cast()));
            let changed = _mm256_cmpneq_epi32_mask(these, next) & valid;
            let less = _mm256_cvtepi32_ps(_mm256_sub_epi32(these, next));
            let ends = _mm256_loadu_si256(ends.as_ptr().cast());
            let ends = _mm256_maskz_compress_epi32(changed, ends);
            _mm256_storeu_si256(at.as_mut_ptr().cast(), ends);
            _mm256_storeu_ps(change.as_mut_ptr(), _mm256_maskz_compress_ps(changed, less));
            changed
        };
        found += changed.count_ones() as usize;
    }
    found
}
