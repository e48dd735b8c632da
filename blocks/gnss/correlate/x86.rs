//! The sums of a block with the registers of x86 processors.
#![allow(unsafe_code)] // loads of whole registers from chunks of their size

use super::{Piece, ROW};
use std::arch::x86_64::{
    _mm_loadl_epi64, _mm_loadu_si128, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_fmadd_ps,
    _mm256_fmsub_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_fmadd_ps, _mm512_fmsub_ps, _mm512_loadu_ps,
    _mm512_mul_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

/// Sums of all taps, and of so many of them at once; the second keeps all its sums in registers.
macro_rules! sums {
    (
        $features:literal, $all:ident, $some:ident, $lanes:literal, $load:ident, $zero:ident, $multiply:ident,
        $multiply_add:ident, $multiply_subtract:ident, $to_floats:ident, $widen:ident, $load_code:ident,
        $store:ident
    ) => {
        /// See [`Piece::sum`].
        #[target_feature(enable = $features)]
        pub fn $all(piece: &Piece<'_>, sums: &mut [[f32; 2]]) {
            let mut first = 0;
            while first < sums.len() {
                let rest = &mut sums[first..];
                first += match rest.len() {
                    1 => $some::<1>(piece, first, rest),
                    2 => $some::<2>(piece, first, rest),
                    3 => $some::<3>(piece, first, rest),
                    _ => $some::<4>(piece, first, rest),
                };
            }
        }

        #[target_feature(enable = $features)]
        fn $some<const TAPS: usize>(
            piece: &Piece<'_>,
            first: usize,
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
                std::array::from_fn(|tap| piece.codes[(first + tap) * ROW..][..ROW].as_chunks().0);
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
                    stored.iter().sum()
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
    _mm256_storeu_ps
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
    _mm512_storeu_ps
);
