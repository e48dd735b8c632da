//! Codes and sums of a block with the registers of x86 CPUs.
//!
//! This module avoids closures: a closure called by a function compiled for the baseline, such as
//! `array::map`, is not inlined, and each register would be passed through memory.
#![allow(unsafe_code, reason = "loads of whole registers from chunks of their size")]

use super::{CODE_FRACTION_BITS, ENTRY, Piece, ROW};
use std::arch::x86_64::{
    __m256, __m256i, __m512, _mm_loadl_epi64, _mm_loadu_si128, _mm_shuffle_epi8, _mm_storeu_si128,
    _mm256_add_epi64, _mm256_castsi256_si128, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps,
    _mm256_fmadd_ps, _mm256_fmsub_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_or_si256,
    _mm256_permutevar8x32_epi32, _mm256_set1_epi64x, _mm256_setr_epi32, _mm256_setr_epi64x,
    _mm256_setzero_ps, _mm256_slli_epi64, _mm256_srli_epi64, _mm256_storeu_ps,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_fmadd_ps, _mm512_fmsub_ps, _mm512_loadu_ps,
    _mm512_mul_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

/// Samples whose code is looked up at once.
pub const AT_ONCE: usize = 16;

/// Returns the increase of the phase at the samples `first`, and 4, 8 and 12 later, so that byte `first` of a vector
/// element belongs to sample `first` of four.
#[inline]
#[target_feature(enable = "avx2")]
fn phases(step: u64, first: u64) -> __m256i {
    let [a, b, c, d] = [first, first + 4, first + 8, first + 12];
    _mm256_setr_epi64x(
        (a * step).cast_signed(),
        (b * step).cast_signed(),
        (c * step).cast_signed(),
        (d * step).cast_signed(),
    )
}

/// Implementation of [`super::look_up`] for steps of up to an entry, so that the entries of [`AT_ONCE`] samples are in
/// one register. The length of `out` must be a multiple of [`AT_ONCE`].
#[target_feature(enable = "avx2")]
pub fn look_up(entries: &[i8], mut fraction: u64, step: u64, out: &mut [i8]) {
    debug_assert!(fraction < ENTRY && step <= ENTRY);
    const FRACTION_BITS: i32 = CODE_FRACTION_BITS as i32;
    let (a, b, c, d) = (phases(step, 0), phases(step, 1), phases(step, 2), phases(step, 3));
    let low_halves = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    let mut at = 0;
    for out in out.as_chunks_mut::<AT_ONCE>().0 {
        let begin = _mm256_set1_epi64x(fraction.cast_signed());
        let a = _mm256_srli_epi64::<FRACTION_BITS>(_mm256_add_epi64(begin, a));
        let b = _mm256_srli_epi64::<FRACTION_BITS>(_mm256_add_epi64(begin, b));
        let c = _mm256_srli_epi64::<FRACTION_BITS>(_mm256_add_epi64(begin, c));
        let d = _mm256_srli_epi64::<FRACTION_BITS>(_mm256_add_epi64(begin, d));
        let ab = _mm256_or_si256(a, _mm256_slli_epi64::<8>(b));
        let cd = _mm256_or_si256(_mm256_slli_epi64::<16>(c), _mm256_slli_epi64::<24>(d));
        let indices = _mm256_permutevar8x32_epi32(_mm256_or_si256(ab, cd), low_halves);
        let near: &[i8] = &entries[at..at + AT_ONCE];
        // SAFETY: both have the length of a register.
        unsafe {
            let near = _mm_loadu_si128(near.as_ptr().cast());
            let code = _mm_shuffle_epi8(near, _mm256_castsi256_si128(indices));
            _mm_storeu_si128(out.as_mut_ptr().cast(), code);
        }
        fraction += AT_ONCE as u64 * step;
        at += (fraction >> CODE_FRACTION_BITS) as usize;
        fraction %= ENTRY;
    }
}

/// Samples of a piece and the rotors, in registers.
struct Registers<'a, const LANES: usize> {
    re: &'a [[f32; LANES]],
    im: &'a [[f32; LANES]],
    /// Remaining samples, padded with zeros.
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

    /// Returns real and imaginary parts of samples, then of rotors.
    #[inline]
    fn at(&self, index: usize) -> [&[f32; LANES]; 4] {
        let [re, im] = match &self.rest {
            Some([re, im]) if index == self.re.len() => [re, im],
            _ => [&self.re[index], &self.im[index]],
        };
        [re, im, &self.rotors_re[index], &self.rotors_im[index]]
    }
}

/// Returns the sum of a register's floats.
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

/// Defines the sums with registers of `$lanes` floats.
macro_rules! implementation {
    (
        $implementation:ident, $features:literal, $floats:ident, $lanes:literal, $load:ident, $store:ident, $zero:ident, $multiply:ident,
        $multiply_add:ident, $multiply_subtract:ident, $to_floats:ident, $widen:ident, $load_code:ident
    ) => {
        pub mod $implementation {
            use super::{
                Piece, ROW, Registers, total, $floats, $load, $load_code, $multiply, $multiply_add,
                $multiply_subtract, $store, $to_floats, $widen, $zero,
            };

            #[inline]
            #[target_feature(enable = $features)]
            fn load(chunk: &[f32; $lanes]) -> $floats {
                // SAFETY: as long as a register.
                unsafe { $load(chunk.as_ptr()) }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn sum_lanes(floats: $floats) -> f32 {
                let mut stored = [0.0; $lanes];
                // SAFETY: as long as a register.
                unsafe { $store(stored.as_mut_ptr(), floats) };
                total(&stored)
            }

            /// Implementation of [`Piece::sum`].
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

            /// Computes the sums of `TAPS` correlator taps, which stay in registers.
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
                        // SAFETY: the row has one byte for each element of the register.
                        let code = unsafe { $load_code(rows[tap][index].as_ptr().cast()) };
                        let code = $to_floats($widen(code));
                        re[tap] = $multiply_add(mixed_re, code, re[tap]);
                        im[tap] = $multiply_add(mixed_im, code, im[tap]);
                    }
                }
                for (sum, (re, im)) in sums.iter_mut().zip(re.into_iter().zip(im)) {
                    *sum = [sum_lanes(re), sum_lanes(im)];
                }
                TAPS
            }
        }
    };
}

implementation!(
    avx2,
    "avx2,fma",
    __m256,
    8,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_setzero_ps,
    _mm256_mul_ps,
    _mm256_fmadd_ps,
    _mm256_fmsub_ps,
    _mm256_cvtepi32_ps,
    _mm256_cvtepi8_epi32,
    _mm_loadl_epi64
);

implementation!(
    avx512,
    "avx512f,avx512bw,avx512dq,avx512vl,fma",
    __m512,
    16,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_setzero_ps,
    _mm512_mul_ps,
    _mm512_fmadd_ps,
    _mm512_fmsub_ps,
    _mm512_cvtepi32_ps,
    _mm512_cvtepi8_epi32,
    _mm_loadu_si128
);
