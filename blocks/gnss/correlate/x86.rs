//! The sums of a block with the registers of x86 processors.
#![allow(unsafe_code)] // loads of whole registers from chunks of their size

use super::edges::{self, Edges};
use super::{BLOCK_SAMPLES, Piece, ROW};
use crate::gnss::phase::{CODE_FRACTION_BITS, ENTRY};
use crate::simd::Lines;
use std::arch::x86_64::{
    __m256, __m256i, _mm_loadl_epi64, _mm_loadu_si128, _mm_storeu_si128, _mm256_add_ps,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_fmadd_ps, _mm256_fmsub_ps, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_mul_ps, _mm256_permutevar8x32_ps, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_storeu_ps, _mm256_sub_ps, _mm512_add_epi64, _mm512_add_ps, _mm512_cmpgt_epi64_mask,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtepi64_epi16, _mm512_cvtepi64_pd,
    _mm512_cvttpd_epi64, _mm512_fmadd_ps, _mm512_fmsub_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_mask_add_epi64, _mm512_min_epi64, _mm512_mul_pd, _mm512_mul_ps, _mm512_mullo_epi64,
    _mm512_permutexvar_ps, _mm512_set_epi64, _mm512_set1_epi64, _mm512_set1_pd, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_slli_epi64, _mm512_storeu_ps, _mm512_sub_ps,
};

/// Sum of a register's floats.
fn total<const LANES: usize>(stored: &[f32; LANES]) -> f32 {
    let fours = stored.as_chunks::<4>().0;
    let [a, b, c, d] =
        fours.iter().fold([0.0; 4], |sum, four| std::array::from_fn(|i| sum[i] + four[i]));
    (a + b) + (c + d)
}

/// Numbers of lanes, of which those that there are count modulo their number.
static LANES: [i32; 32] = {
    let mut lanes = [0; 32];
    let mut lane = 0;
    while lane < 32 {
        lanes[lane] = lane as i32;
        lane += 1;
    }
    lanes
};

#[target_feature(enable = "avx2")]
fn permute_avx2(order: __m256i, lanes: __m256) -> __m256 {
    _mm256_permutevar8x32_ps(lanes, order)
}

/// Sums of all taps, and of so many of them at once; the second keeps all its sums in registers.
macro_rules! sums {
    (
        $features:literal, $all:ident, $some:ident, $lanes:literal, $load:ident, $zero:ident, $multiply:ident,
        $multiply_add:ident, $multiply_subtract:ident, $to_floats:ident, $widen:ident, $load_code:ident,
        $store:ident, $runs:ident, $some_runs:ident, $set:ident, $add:ident, $subtract:ident,
        $load_order:ident, $permute:ident
    ) => {
        /// See [`Piece::sum`].
        #[target_feature(enable = $features)]
        pub fn $all(piece: &Piece<'_>, codes: &[i8], sums: &mut [[f32; 2]]) {
            let mut first = 0;
            while first < sums.len() {
                let rest = &mut sums[first..];
                first += match rest.len() {
                    1 => $some::<1>(piece, &codes[first * ROW..], rest),
                    2 => $some::<2>(piece, &codes[first * ROW..], rest),
                    3 => $some::<3>(piece, &codes[first * ROW..], rest),
                    _ => $some::<4>(piece, &codes[first * ROW..], rest),
                };
            }
        }

        #[target_feature(enable = $features)]
        fn $some<const TAPS: usize>(
            piece: &Piece<'_>,
            codes: &[i8],
            sums: &mut [[f32; 2]],
        ) -> usize {
            let (xs, x_rest) = piece.re.as_chunks::<$lanes>();
            let (ys, y_rest) = piece.im.as_chunks::<$lanes>();
            let (mut x_last, mut y_last) = ([0.0_f32; $lanes], [0.0_f32; $lanes]);
            x_last[..x_rest.len()].copy_from_slice(x_rest);
            y_last[..y_rest.len()].copy_from_slice(y_rest);
            let rotors =
                [&piece.rotors.re, &piece.rotors.im].map(|part| part.as_chunks::<$lanes>().0);
            let codes: [&[[i8; $lanes]]; TAPS] =
                std::array::from_fn(|tap| codes[tap * ROW..][..ROW].as_chunks().0);
            let mut re = [$zero(); TAPS];
            let mut im = [$zero(); TAPS];
            for index in 0..xs.len() + usize::from(!x_rest.is_empty()) {
                let (x, y) = (xs.get(index).unwrap_or(&x_last), ys.get(index).unwrap_or(&y_last));
                // SAFETY: each chunk is as long as a register.
                let [x, y, c, s] = unsafe {
                    [x, y, &rotors[0][index], &rotors[1][index]].map(|chunk| $load(chunk.as_ptr()))
                };
                let mixed_re = $multiply_subtract(x, c, $multiply(y, s));
                let mixed_im = $multiply_add(x, s, $multiply(y, c));
                for tap in 0..TAPS {
                    // SAFETY: as many bytes as the register has lanes.
                    let code = unsafe { $load_code(codes[tap][index].as_ptr().cast()) };
                    let code = $to_floats($widen(code));
                    re[tap] = $multiply_add(mixed_re, code, re[tap]);
                    im[tap] = $multiply_add(mixed_im, code, im[tap]);
                }
            }
            for (sum, lanes) in sums.iter_mut().zip(re.into_iter().zip(im)) {
                *sum = [lanes.0, lanes.1].map(|lanes| {
                    let mut stored = [0.0_f32; $lanes];
                    // SAFETY: as long as a register.
                    unsafe { $store(stored.as_mut_ptr(), lanes) };
                    total(&stored)
                });
            }
            TAPS
        }

        /// See [`Piece::sum_runs`].
        #[target_feature(enable = $features)]
        pub fn $runs(
            piece: &Piece<'_>,
            edges: &Edges,
            before: &mut [Lines; 2],
            sums: &mut [[f32; 2]],
        ) {
            let (xs, x_rest) = piece.re.as_chunks::<$lanes>();
            let (ys, y_rest) = piece.im.as_chunks::<$lanes>();
            let (mut x_last, mut y_last) = ([0.0_f32; $lanes], [0.0_f32; $lanes]);
            x_last[..x_rest.len()].copy_from_slice(x_rest);
            y_last[..y_rest.len()].copy_from_slice(y_rest);
            let rotors =
                [&piece.rotors.re, &piece.rotors.im].map(|part| part.as_chunks::<$lanes>().0);
            let [before_re, before_im] = before;
            {
                let [before_re, before_im] =
                    [&mut *before_re, &mut *before_im].map(|part| part.as_chunks_mut::<$lanes>().0);
                (before_re[0], before_im[0]) = ([0.0; $lanes], [0.0; $lanes]);
                // Four sums, so that none waits for itself.
                let mut sums = [$zero(); 4];
                for index in 0..xs.len() + usize::from(!x_rest.is_empty()) {
                    let (x, y) =
                        (xs.get(index).unwrap_or(&x_last), ys.get(index).unwrap_or(&y_last));
                    // SAFETY: each chunk is as long as a register.
                    let [x, y, c, s] = unsafe {
                        [x, y, &rotors[0][index], &rotors[1][index]]
                            .map(|chunk| $load(chunk.as_ptr()))
                    };
                    sums = [
                        $multiply_add(x, c, sums[0]),
                        $multiply_add(y, s, sums[1]),
                        $multiply_add(x, s, sums[2]),
                        $multiply_add(y, c, sums[3]),
                    ];
                    // SAFETY: as above.
                    unsafe {
                        $store(before_re[index + 1].as_mut_ptr(), $subtract(sums[0], sums[1]));
                        $store(before_im[index + 1].as_mut_ptr(), $add(sums[2], sums[3]));
                    }
                }
            }
            let before: [&[f32]; 2] = [before_re, before_im];
            let mut first = 0;
            while first < sums.len() {
                let rest = &mut sums[first..];
                first += match rest.len() {
                    1 => $some_runs::<1>(before, edges, first, rest),
                    2 => $some_runs::<2>(before, edges, first, rest),
                    3 => $some_runs::<3>(before, edges, first, rest),
                    _ => $some_runs::<4>(before, edges, first, rest),
                };
            }
        }

        #[target_feature(enable = $features)]
        fn $some_runs<const TAPS: usize>(
            before: [&[f32]; 2],
            edges: &Edges,
            first: usize,
            sums: &mut [[f32; 2]],
        ) -> usize {
            let rows: [(&[u16], &[f32]); TAPS] = std::array::from_fn(|tap| edges.row(first + tap));
            let mut re = [$zero(); TAPS];
            let mut im = [$zero(); TAPS];
            let mut last = [[$zero(); 2]; TAPS];
            for run in 0..edges.count() {
                for tap in 0..TAPS {
                    let at = usize::from(rows[tap].0[run]);
                    let code = $set(rows[tap].1[run]);
                    // As many floats from there on are the sums of all lanes before sample `at`: some of the register it is
                    // in, those it has not come to yet of the one before. They begin with the lane of the sample.
                    let [x, y] = before.map(|part| &part[at..at + $lanes]);
                    let order = &LANES[$lanes - at % $lanes..][..$lanes];
                    // SAFETY: as long as a register.
                    let (order, x, y) = unsafe {
                        ($load_order(order.as_ptr().cast()), $load(x.as_ptr()), $load(y.as_ptr()))
                    };
                    let (x, y) = ($permute(order, x), $permute(order, y));
                    // Runs are small: their sums lose nothing to those of all samples before.
                    re[tap] = $multiply_add(code, $subtract(x, last[tap][0]), re[tap]);
                    im[tap] = $multiply_add(code, $subtract(y, last[tap][1]), im[tap]);
                    last[tap] = [x, y];
                }
            }
            for (sum, lanes) in sums.iter_mut().zip(re.into_iter().zip(im)) {
                *sum = [lanes.0, lanes.1].map(|lanes| {
                    let mut stored = [0.0_f32; $lanes];
                    // SAFETY: as long as a register.
                    unsafe { $store(stored.as_mut_ptr(), lanes) };
                    total(&stored)
                });
            }
            TAPS
        }
    };
}

sums!(
    "avx2,fma",
    sum_avx2,
    some_avx2,
    8,
    _mm256_loadu_ps,
    _mm256_setzero_ps,
    _mm256_mul_ps,
    _mm256_fmadd_ps,
    _mm256_fmsub_ps,
    _mm256_cvtepi32_ps,
    _mm256_cvtepi8_epi32,
    _mm_loadl_epi64,
    _mm256_storeu_ps,
    runs_avx2,
    some_runs_avx2,
    _mm256_set1_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_loadu_si256,
    permute_avx2
);

sums!(
    "avx512f,avx512bw,avx512dq,avx512vl,fma",
    sum_avx512,
    some_avx512,
    16,
    _mm512_loadu_ps,
    _mm512_setzero_ps,
    _mm512_mul_ps,
    _mm512_fmadd_ps,
    _mm512_fmsub_ps,
    _mm512_cvtepi32_ps,
    _mm512_cvtepi8_epi32,
    _mm_loadu_si128,
    _mm512_storeu_ps,
    runs_avx512,
    some_runs_avx512,
    _mm512_set1_ps,
    _mm512_add_ps,
    _mm512_sub_ps,
    _mm512_loadu_si512,
    _mm512_permutexvar_ps
);

/// The first `count` ends of runs, and some more; see `edges::ends`.
///
/// An end is a quotient, rounded up. Its estimate is a little too large, by far less than one: cut off, it is the
/// quotient rounded down, or up.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub fn ends_avx512(
    (left, step): (u64, u64),
    entries: &[i8],
    (at, of): (&mut [u16], &mut [f32]),
    count: usize,
) {
    const AT_ONCE: usize = 8;
    const TOO_LARGE: f64 = 1.0 + 1.0 / (1_u64 << CODE_FRACTION_BITS) as f64;
    let per_step = _mm512_set1_pd(TOO_LARGE / step as f64);
    let steps = _mm512_set1_epi64(step.cast_signed());
    let most = _mm512_set1_epi64(BLOCK_SAMPLES as i64);
    let lanes = _mm512_slli_epi64::<CODE_FRACTION_BITS>(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    let mut ends = _mm512_add_epi64(_mm512_set1_epi64(left.cast_signed()), lanes);
    let rows = at[..edges::ROW].as_chunks_mut::<AT_ONCE>().0.iter_mut();
    let rows = rows.zip(of[..edges::ROW].as_chunks_mut::<AT_ONCE>().0);
    for (index, (at, of)) in rows.take(count.div_ceil(AT_ONCE)).enumerate() {
        let estimate = _mm512_cvttpd_epi64(_mm512_mul_pd(_mm512_cvtepi64_pd(ends), per_step));
        let is_before = _mm512_cmpgt_epi64_mask(ends, _mm512_mullo_epi64(estimate, steps));
        let sample = _mm512_mask_add_epi64(estimate, is_before, estimate, _mm512_set1_epi64(1));
        let sample = _mm512_cvtepi64_epi16(_mm512_min_epi64(sample, most));
        let entries = &entries[index * AT_ONCE..][..AT_ONCE];
        // SAFETY: eight entries, and rows of eight.
        unsafe {
            let entries = _mm256_cvtepi8_epi32(_mm_loadl_epi64(entries.as_ptr().cast()));
            _mm_storeu_si128(at.as_mut_ptr().cast(), sample);
            _mm256_storeu_ps(of.as_mut_ptr(), _mm256_cvtepi32_ps(entries));
        }
        ends = _mm512_add_epi64(ends, _mm512_set1_epi64((AT_ONCE as i64) * ENTRY.cast_signed()));
    }
}
