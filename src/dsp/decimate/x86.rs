//! The filter with the registers of x86 CPUs.
#![allow(unsafe_code, reason = "loads and stores of whole registers, within slices")]

use super::{ROWS, widen};
use num_complex::Complex32;
use std::arch::x86_64::{
    __m256, __m512, _mm256_add_ps, _mm256_fmadd_ps, _mm256_hadd_ps, _mm256_loadu_ps,
    _mm256_permute2f128_ps, _mm256_setzero_ps, _mm256_storeu_ps, _mm512_castps512_ps256,
    _mm512_extractf32x8_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_setzero_ps,
};

/// Sums the vectors of real and imaginary parts of four output samples.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn totals(sums: &[[__m256; 2]; ROWS]) -> __m256 {
    let pair = |n: usize| {
        let pairs = [2 * n, 2 * n + 1].map(|row| _mm256_hadd_ps(sums[row][0], sums[row][1]));
        _mm256_hadd_ps(pairs[0], pairs[1])
    };
    let (low, high) = (pair(0), pair(1));
    _mm256_add_ps(
        _mm256_permute2f128_ps::<0x20>(low, high),
        _mm256_permute2f128_ps::<0x31>(low, high),
    )
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn of_avx2(lanes: __m256) -> __m256 {
    lanes
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
fn of_avx512(lanes: __m512) -> __m256 {
    _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps::<1>(lanes))
}

/// Defines a filter for four output samples at a time, whose sums stay in registers.
macro_rules! filter {
    (
        $features:literal, $name:ident, $lanes:literal, $zero:ident, $load:ident, $multiply_add:ident, $to_eight:ident
    ) => {
        /// Implementation of [`filter`](super::filter).
        #[target_feature(enable = $features)]
        pub fn $name<X: Copy>(
            samples: &[X],
            part: impl Fn(X) -> f32,
            x: &mut [f32],
            (re, im): (&[f32], &[f32]),
            subsampling: usize,
            out: &mut [Complex32],
        ) {
            widen(samples, part, x);
            let (re, _) = re.as_chunks::<$lanes>();
            let (im, _) = im.as_chunks::<$lanes>();
            let taps = re.len().min(im.len()) * $lanes;
            let (groups, _) = out.as_chunks_mut::<ROWS>();
            for (n, out) in groups.iter_mut().enumerate() {
                // Loops: closures have the features of this function, and the methods of arrays cannot inline them.
                let mut rows: [&[f32]; ROWS] = [&[]; ROWS];
                for (row, first) in rows.iter_mut().zip(n * ROWS..) {
                    *row = &x[first * subsampling..][..taps];
                }
                let mut sums = [[$zero(); 2]; ROWS];
                for (k, (re, im)) in re.iter().zip(im).enumerate() {
                    // SAFETY: both arrays fill a register.
                    let g = unsafe { [$load(re.as_ptr()), $load(im.as_ptr())] };
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        // SAFETY: a row has `taps` numbers, enough for the vectors of all k.
                        let x = unsafe { $load(row.as_ptr().add($lanes * k)) };
                        sums[0] = $multiply_add(x, g[0], sums[0]);
                        sums[1] = $multiply_add(x, g[1], sums[1]);
                    }
                }
                let mut eights = [[_mm256_setzero_ps(); 2]; ROWS];
                for (eight, [re, im]) in eights.iter_mut().zip(sums) {
                    *eight = [$to_eight(re), $to_eight(im)];
                }
                // SAFETY: four complex numbers are eight numbers.
                unsafe { _mm256_storeu_ps(out.as_mut_ptr().cast(), totals(&eights)) };
            }
        }
    };
}

filter!("avx2,fma", avx2, 8, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_fmadd_ps, of_avx2);
filter!(
    "avx512f,avx512dq,avx512bw,avx2,fma",
    avx512,
    16,
    _mm512_setzero_ps,
    _mm512_loadu_ps,
    _mm512_fmadd_ps,
    of_avx512
);
