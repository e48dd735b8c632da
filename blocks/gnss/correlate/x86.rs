//! The sums of a block with the registers of x86 processors.
//!
//! Nothing here goes through closures: one that is called by a function compiled for the baseline, such as `array::map`, is not
//! put in its place, and each register would travel through memory.
#![allow(unsafe_code)] // loads of whole registers from chunks of their size

use super::edges::{self, Edges};
use super::{BLOCK_SAMPLES, Piece, ROW};
use crate::gnss::phase::{CODE_FRACTION_BITS, ENTRY};
use crate::simd::Lines;
use std::arch::x86_64::{
    __m256, __m256i, __m512, _mm_loadl_epi64, _mm_loadu_si128, _mm_storeu_si128, _mm256_add_ps,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_fmadd_ps, _mm256_fmsub_ps, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_mul_ps, _mm256_permutevar8x32_ps, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_storeu_ps, _mm256_sub_ps, _mm512_add_epi64, _mm512_add_ps, _mm512_cmpgt_epi64_mask,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtepi64_epi16, _mm512_cvtepi64_pd,
    _mm512_cvttpd_epi64, _mm512_fmadd_ps, _mm512_fmsub_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_mask_add_epi64, _mm512_min_epi64, _mm512_mul_pd, _mm512_mul_ps, _mm512_mullo_epi64,
    _mm512_permutexvar_ps, _mm512_set_epi64, _mm512_set1_epi64, _mm512_set1_pd, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_slli_epi64, _mm512_storeu_ps, _mm512_sub_ps,
};

/// The samples of a piece and the rotors, by registers.
struct Registers<'a, const LANES: usize> {
    re: &'a [[f32; LANES]],
    im: &'a [[f32; LANES]],
    /// What is left of the samples, and zeros.
    rest: Option<[[f32; LANES]; 2]>,
    rotors_re: &'a [[f32; LANES]],
    rotors_im: &'a [[f32; LANES]],
}

impl<'a, const LANES: usize> Registers<'a, LANES> {
    fn of(piece: &Piece<'a>) -> Self {
        let (re, re_rest) = piece.re.as_chunks();
        let (im, im_rest) = piece.im.as_chunks();
        let mut rest = [[0.0; LANES]; 2];
        rest[0][..re_rest.len()].copy_from_slice(re_rest);
        rest[1][..im_rest.len()].copy_from_slice(im_rest);
        Self {
            re,
            im,
            rest: (!re_rest.is_empty()).then_some(rest),
            rotors_re: piece.rotors.re.as_chunks().0,
            rotors_im: piece.rotors.im.as_chunks().0,
        }
    }

    fn count(&self) -> usize {
        self.re.len() + usize::from(self.rest.is_some())
    }

    /// Real and imaginary parts of samples, then of rotors.
    #[inline]
    fn at(&self, index: usize) -> [&[f32; LANES]; 4] {
        let [re, im] = match &self.rest {
            Some([re, im]) if index == self.re.len() => [re, im],
            _ => [&self.re[index], &self.im[index]],
        };
        [re, im, &self.rotors_re[index], &self.rotors_im[index]]
    }
}

/// Sum of a register's floats.
#[inline]
fn total<const LANES: usize>(stored: &[f32; LANES]) -> f32 {
    let mut sums = [0.0; 4];
    for four in stored.as_chunks::<4>().0 {
        for (sum, float) in sums.iter_mut().zip(four) {
            *sum += float;
        }
    }
    let [a, b, c, d] = sums;
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

#[inline]
#[target_feature(enable = "avx2")]
fn permute_avx2(order: __m256i, lanes: __m256) -> __m256 {
    _mm256_permutevar8x32_ps(lanes, order)
}

/// The sums with registers of `$lanes` floats.
macro_rules! form {
    (
        $form:ident, $features:literal, $floats:ident, $lanes:literal, $load:ident, $store:ident, $zero:ident, $set:ident,
        $add:ident, $subtract:ident, $multiply:ident, $multiply_add:ident, $multiply_subtract:ident,
        $to_floats:ident, $widen:ident, $load_code:ident, $load_order:ident, $permute:ident
    ) => {
        pub mod $form {
            use super::{
                Edges, LANES, Lines, Piece, ROW, Registers, total, $add, $floats, $load,
                $load_code, $load_order, $multiply, $multiply_add, $multiply_subtract, $permute,
                $set, $store, $subtract, $to_floats, $widen, $zero,
            };

            #[inline]
            #[target_feature(enable = $features)]
            fn load(chunk: &[f32; $lanes]) -> $floats {
                // SAFETY: as long as a register.
                unsafe { $load(chunk.as_ptr()) }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn store(floats: $floats, chunk: &mut [f32; $lanes]) {
                // SAFETY: as long as a register.
                unsafe { $store(chunk.as_mut_ptr(), floats) }
            }

            /// Over the lanes, of each tap.
            #[inline]
            #[target_feature(enable = $features)]
            fn totals<const TAPS: usize>(
                re: [$floats; TAPS],
                im: [$floats; TAPS],
                sums: &mut [[f32; 2]],
            ) {
                for (sum, (re, im)) in sums.iter_mut().zip(re.into_iter().zip(im)) {
                    let mut stored = [[0.0; $lanes]; 2];
                    store(re, &mut stored[0]);
                    store(im, &mut stored[1]);
                    *sum = [total(&stored[0]), total(&stored[1])];
                }
            }

            /// See [`Piece::sum`].
            #[target_feature(enable = $features)]
            pub fn sum(piece: &Piece<'_>, codes: &[i8], sums: &mut [[f32; 2]]) {
                let mut first = 0;
                while first < sums.len() {
                    let (codes, rest) = (&codes[first * ROW..], &mut sums[first..]);
                    first += match rest.len() {
                        1 => sum_of::<1>(piece, codes, rest),
                        2 => sum_of::<2>(piece, codes, rest),
                        3 => sum_of::<3>(piece, codes, rest),
                        _ => sum_of::<4>(piece, codes, rest),
                    };
                }
            }

            /// Of so many taps, whose sums stay in registers.
            #[target_feature(enable = $features)]
            fn sum_of<const TAPS: usize>(
                piece: &Piece<'_>,
                codes: &[i8],
                sums: &mut [[f32; 2]],
            ) -> usize {
                let registers = Registers::of(piece);
                let mut rows: [&[[i8; $lanes]]; TAPS] = [&[]; TAPS];
                for (row, codes) in rows.iter_mut().zip(codes.chunks_exact(ROW)) {
                    *row = codes.as_chunks().0;
                }
                let mut re = [$zero(); TAPS];
                let mut im = [$zero(); TAPS];
                for index in 0..registers.count() {
                    let [x, y, c, s] = registers.at(index);
                    let (x, y, c, s) = (load(x), load(y), load(c), load(s));
                    let mixed_re = $multiply_subtract(x, c, $multiply(y, s));
                    let mixed_im = $multiply_add(x, s, $multiply(y, c));
                    for tap in 0..TAPS {
                        // SAFETY: as many bytes as the register has lanes.
                        let code = unsafe { $load_code(rows[tap][index].as_ptr().cast()) };
                        let code = $to_floats($widen(code));
                        re[tap] = $multiply_add(mixed_re, code, re[tap]);
                        im[tap] = $multiply_add(mixed_im, code, im[tap]);
                    }
                }
                totals(re, im, sums);
                TAPS
            }

            /// See [`Piece::sum_runs`].
            #[target_feature(enable = $features)]
            pub fn sum_runs(
                piece: &Piece<'_>,
                edges: &Edges,
                before: &mut [Lines; 2],
                sums: &mut [[f32; 2]],
            ) {
                sum_up(&Registers::of(piece), before);
                let before: [&[f32]; 2] = [&before[0], &before[1]];
                let mut first = 0;
                while first < sums.len() {
                    let rest = &mut sums[first..];
                    first += match rest.len() {
                        1 => sum_runs_of::<1>(before, edges, first, rest),
                        2 => sum_runs_of::<2>(before, edges, first, rest),
                        3 => sum_runs_of::<3>(before, edges, first, rest),
                        _ => sum_runs_of::<4>(before, edges, first, rest),
                    };
                }
            }

            /// Sums of the mixed samples of all registers up to each.
            #[target_feature(enable = $features)]
            fn sum_up(registers: &Registers<'_, $lanes>, before: &mut [Lines; 2]) {
                let [re, im] = before;
                let (re, im) = (re.as_chunks_mut::<$lanes>().0, im.as_chunks_mut::<$lanes>().0);
                (re[0], im[0]) = ([0.0; $lanes], [0.0; $lanes]);
                // Four sums, so that none waits for itself.
                let [mut xc, mut ys, mut xs, mut yc] = [$zero(); 4];
                for index in 0..registers.count() {
                    let [x, y, c, s] = registers.at(index);
                    let (x, y, c, s) = (load(x), load(y), load(c), load(s));
                    xc = $multiply_add(x, c, xc);
                    ys = $multiply_add(y, s, ys);
                    xs = $multiply_add(x, s, xs);
                    yc = $multiply_add(y, c, yc);
                    store($subtract(xc, ys), &mut re[index + 1]);
                    store($add(xs, yc), &mut im[index + 1]);
                }
            }

            /// Of so many taps, whose sums stay in registers.
            #[target_feature(enable = $features)]
            fn sum_runs_of<const TAPS: usize>(
                before: [&[f32]; 2],
                edges: &Edges,
                first: usize,
                sums: &mut [[f32; 2]],
            ) -> usize {
                let mut rows: [(&[u16], &[f32]); TAPS] = [(&[], &[]); TAPS];
                for (tap, row) in rows.iter_mut().enumerate() {
                    *row = edges.row(first + tap);
                }
                let mut re = [$zero(); TAPS];
                let mut im = [$zero(); TAPS];
                let mut last = [[$zero(); 2]; TAPS];
                for run in 0..edges.count() {
                    for tap in 0..TAPS {
                        let at = usize::from(rows[tap].0[run]);
                        let code = $set(rows[tap].1[run]);
                        // As many floats from there on are the sums of all lanes before sample `at`: some of the register it is
                        // in, those it has not come to yet of the one before. They begin with the lane of the sample.
                        let (x, y) = (&before[0][at..at + $lanes], &before[1][at..at + $lanes]);
                        let order = &LANES[$lanes - at % $lanes..][..$lanes];
                        // SAFETY: as long as a register.
                        let (order, x, y) = unsafe {
                            (
                                $load_order(order.as_ptr().cast()),
                                $load(x.as_ptr()),
                                $load(y.as_ptr()),
                            )
                        };
                        let (x, y) = ($permute(order, x), $permute(order, y));
                        // Runs are small: their sums lose nothing to those of all samples before.
                        re[tap] = $multiply_add(code, $subtract(x, last[tap][0]), re[tap]);
                        im[tap] = $multiply_add(code, $subtract(y, last[tap][1]), im[tap]);
                        last[tap] = [x, y];
                    }
                }
                totals(re, im, sums);
                TAPS
            }
        }
    };
}

form!(
    avx2,
    "avx2,fma",
    __m256,
    8,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_setzero_ps,
    _mm256_set1_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_fmadd_ps,
    _mm256_fmsub_ps,
    _mm256_cvtepi32_ps,
    _mm256_cvtepi8_epi32,
    _mm_loadl_epi64,
    _mm256_loadu_si256,
    permute_avx2
);

form!(
    avx512,
    "avx512f,avx512bw,avx512dq,avx512vl,fma",
    __m512,
    16,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_setzero_ps,
    _mm512_set1_ps,
    _mm512_add_ps,
    _mm512_sub_ps,
    _mm512_mul_ps,
    _mm512_fmadd_ps,
    _mm512_fmsub_ps,
    _mm512_cvtepi32_ps,
    _mm512_cvtepi8_epi32,
    _mm_loadu_si128,
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
