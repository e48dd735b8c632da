//! Implementation with the registers of x86 CPUs.
//!
//! Registers of 8 floats are used: registers of 16 floats (AVX-512) are only 10 % faster.
#![allow(
    unsafe_code,
    reason = "loads and stores of whole registers from and to arrays of their size"
)]

use super::edges;
use super::{EdgeCorrelator, Moments, PARTS, Parts, Rotors, Weights};
use crate::gnss::phase::{CODE_FRACTION_BITS, ENTRY};
use std::arch::x86_64::{
    __m256, _mm_loadl_epi64, _mm_storeu_si128, _mm256_add_ps, _mm256_castpd_ps,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_pd,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps, _mm256_sub_epi32, _mm512_add_epi64,
    _mm512_cmpgt_epi64_mask, _mm512_cvtepi64_epi16, _mm512_cvtepi64_pd, _mm512_cvttpd_epi64,
    _mm512_mask_add_epi64, _mm512_min_epi64, _mm512_mul_pd, _mm512_mullo_epi64, _mm512_set_epi64,
    _mm512_set1_epi64, _mm512_set1_pd, _mm512_slli_epi64,
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
        // Separate sums over even and odd ends, so that the sums are independent.
        let (mut re, mut im) = ([_mm256_setzero_ps(); 2], [_mm256_setzero_ps(); 2]);
        let (at, change) = edges.row(tap);
        for (at, change) in at.as_chunks::<2>().0.iter().zip(change.as_chunks::<2>().0) {
            for odd in 0..2 {
                let at = usize::from(at[odd]);
                let cell = at >> moments.log2_cell;
                let ([before_re, before_im], [weight_re, weight_im]) =
                    (&before[cell], &weights.cells[cell]);
                let parts = load(&moments.before[at]);
                let change = _mm256_set1_ps(change[odd]);
                let of_re = _mm256_fmadd_ps(load(weight_re), parts, load(before_re));
                let of_im = _mm256_fmadd_ps(load(weight_im), parts, load(before_im));
                re[odd] = _mm256_fmadd_ps(change, of_re, re[odd]);
                im[odd] = _mm256_fmadd_ps(change, of_im, im[odd]);
            }
        }
        *sum = [total(_mm256_add_ps(re[0], re[1])), total(_mm256_add_ps(im[0], im[1]))];
    }
}

/// Computes the first `count` ends of runs, and some more; see `edges::ends`.
///
/// An end is a quotient, rounded up. Its estimate is slightly too large, by much less than one: truncated, it is the
/// quotient rounded down, or up.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub fn ends_avx512(
    (left, step): (u64, u64),
    entries: &[i8],
    len: usize,
    (at, change): (&mut [u16], &mut [f32]),
    count: usize,
) {
    const AT_ONCE: usize = 8;
    const TOO_LARGE: f64 = 1.0 + 1.0 / (1_u64 << CODE_FRACTION_BITS) as f64;
    let per_step = _mm512_set1_pd(TOO_LARGE / step as f64);
    let steps = _mm512_set1_epi64(step.cast_signed());
    let most = _mm512_set1_epi64(len as i64);
    let lanes = _mm512_slli_epi64::<CODE_FRACTION_BITS>(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    let mut ends = _mm512_add_epi64(_mm512_set1_epi64(left.cast_signed()), lanes);
    let rows = at[..edges::ROW].as_chunks_mut::<AT_ONCE>().0.iter_mut();
    let rows = rows.zip(change[..edges::ROW].as_chunks_mut::<AT_ONCE>().0);
    for (index, (at, change)) in rows.take(count.div_ceil(AT_ONCE)).enumerate() {
        let estimate = _mm512_cvttpd_epi64(_mm512_mul_pd(_mm512_cvtepi64_pd(ends), per_step));
        let is_before = _mm512_cmpgt_epi64_mask(ends, _mm512_mullo_epi64(estimate, steps));
        let sample = _mm512_mask_add_epi64(estimate, is_before, estimate, _mm512_set1_epi64(1));
        let sample = _mm512_cvtepi64_epi16(_mm512_min_epi64(sample, most));
        let entries = &entries[index * AT_ONCE..][..=AT_ONCE];
        // SAFETY: eight entries and the one after them, and rows of eight.
        unsafe {
            let these = _mm256_cvtepi8_epi32(_mm_loadl_epi64(entries.as_ptr().cast()));
            let next = _mm256_cvtepi8_epi32(_mm_loadl_epi64(entries[1..].as_ptr().cast()));
            let less = _mm256_cvtepi32_ps(_mm256_sub_epi32(these, next));
            _mm_storeu_si128(at.as_mut_ptr().cast(), sample);
            _mm256_storeu_ps(change.as_mut_ptr(), less);
        }
        ends = _mm512_add_epi64(ends, _mm512_set1_epi64((AT_ONCE as i64) * ENTRY.cast_signed()));
    }
}
