//! Inner loop with the vector instructions of x86-64.
#![allow(unsafe_code, reason = "loads and stores of whole registers, within checked slices")]

use super::kernel::{Kernel, portable};
use std::arch::x86_64::{
    __m256i, __m512i, _mm256_add_epi32, _mm256_dpbusd_epi32, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_set1_epi32, _mm256_setzero_si256, _mm256_storeu_si256, _mm512_add_epi32,
    _mm512_dpbusd_epi32, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_storeu_si512,
};

/// Whether the CPU supports the byte implementations.
pub(super) fn has_vnni() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

/// Implementation of [`Kernel::tile`], which has checked the lengths of the slices.
#[inline]
pub(super) fn tile(
    kernel: Kernel,
    row: &[u32],
    column_re: &[u32],
    column_im: &[u32],
    sums: &mut [i32],
) {
    // SAFETY: `Kernel::available` lists an implementation only if the CPU supports it; the caller has
    // checked the lengths on which the loads and stores rely.
    unsafe {
        match kernel {
            Kernel::Portable => portable(row, column_re, column_im, sums),
            Kernel::Avx2 => avx2(row, column_re, column_im, sums),
            Kernel::Vnni256 => vnni256(row, column_re, column_im, sums),
            Kernel::Vnni512 => vnni512(row, column_re, column_im, sums),
        }
    }
}

macro_rules! tile {
    ($name:ident, $features:literal, $vector:ty, $lanes:literal, $rows:literal,
     $zero:ident, $load:ident, $store:ident, $broadcast:ident, $add:ident,
     |$sum:ident, $column:ident, $row:ident| $step:expr) => {
        /// # Safety
        /// The CPU supports the features; `column_re` and `column_im` have the same number of
        /// words, a multiple of `LANES`; `row` has `ROWS` words from each step on; `sums`
        /// has `ROWS x 2 x LANES` elements.
        #[target_feature(enable = $features)]
        unsafe fn $name(row: &[u32], column_re: &[u32], column_im: &[u32], sums: &mut [i32]) {
            const LANES: usize = $lanes;
            const ROWS: usize = $rows;
            let accumulate = |$sum: $vector, $column: $vector, $row: $vector| $step;
            let mut re = [$zero(); ROWS];
            let mut im = [$zero(); ROWS];
            for step in 0..column_re.len() / LANES {
                let at = step * LANES;
                // SAFETY: a whole step of the columns and ROWS words of the row start at `at`.
                unsafe {
                    let column_re = $load(column_re.as_ptr().add(at).cast());
                    let column_im = $load(column_im.as_ptr().add(at).cast());
                    for r in 0..ROWS {
                        let row = $broadcast((*row.as_ptr().add(at + r)).cast_signed());
                        re[r] = accumulate(re[r], column_re, row);
                        im[r] = accumulate(im[r], column_im, row);
                    }
                }
            }
            for r in 0..ROWS {
                for (part, total) in [re[r], im[r]].into_iter().enumerate() {
                    // SAFETY: `sums` has `LANES` elements for each row and part.
                    unsafe {
                        let sum = sums.as_mut_ptr().add((2 * r + part) * LANES);
                        $store(sum.cast(), $add($load(sum.cast()), total));
                    }
                }
            }
        }
    };
}

tile!(
    avx2,
    "avx2",
    __m256i,
    8,
    4,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_set1_epi32,
    _mm256_add_epi32,
    |sum, column, row| _mm256_add_epi32(sum, _mm256_madd_epi16(column, row))
);
tile!(
    vnni256,
    "avx512f,avx512bw,avx512vl,avx512vnni",
    __m256i,
    8,
    8,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_set1_epi32,
    _mm256_add_epi32,
    |sum, column, row| _mm256_dpbusd_epi32(sum, column, row)
);
tile!(
    vnni512,
    "avx512f,avx512bw,avx512vl,avx512vnni",
    __m512i,
    16,
    8,
    _mm512_setzero_si512,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_set1_epi32,
    _mm512_add_epi32,
    |sum, column, row| _mm512_dpbusd_epi32(sum, column, row)
);
