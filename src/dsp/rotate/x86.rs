//! Rotation with the registers of x86 CPUs.
#![allow(unsafe_code, reason = "loads and stores of whole registers, within slices")]

use super::{Block, ChannelGains, Turn, portable, rotate_with};
use crate::dither::{self, x86::uniform_pairs};
use num_complex::Complex32;
use std::arch::x86_64::{
    __m512, _CMP_GT_OQ, _mm_storeu_si128, _mm512_abs_ps, _mm512_add_ps, _mm512_castps_si512,
    _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi32_epi8, _mm512_cvtps_epi32,
    _mm512_loadu_ps, _mm512_max_ps, _mm512_min_ps, _mm512_movehdup_ps, _mm512_moveldup_ps,
    _mm512_mul_ps, _mm512_permute_ps, _mm512_set1_epi64, _mm512_set1_ps, _mm512_sub_ps,
    _mm512_xor_si512,
};

/// [`rotate`](super::rotate) compiled for AVX2.
#[target_feature(enable = "avx2")]
#[allow(clippy::redundant_closure)] // A closure has the features of the function that it is in.
pub(super) fn avx2(
    spectrum: &[Complex32],
    turn: &Turn,
    gains: &ChannelGains,
    out: &mut [u16],
) -> u32 {
    rotate_with(spectrum, turn, gains, out, |block| {
        portable(block, |key, first, values| dither::x86::fill(key, first, values))
    })
}

/// [`rotate`](super::rotate) with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,popcnt")]
#[allow(clippy::redundant_closure)] // Likewise.
pub(super) fn avx512(
    spectrum: &[Complex32],
    turn: &Turn,
    gains: &ChannelGains,
    out: &mut [u16],
) -> u32 {
    rotate_with(spectrum, turn, gains, out, |block| vectors(block))
}

/// Complex numbers of a vector.
const LANES: usize = 8;

/// Changes the sign of the real parts.
#[inline]
#[target_feature(enable = "avx512f")]
fn negate_re(z: __m512) -> __m512 {
    let sign = _mm512_set1_epi64(0x8000_0000);
    _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(z), sign))
}

/// Real and imaginary part of a factor, each duplicated for both elements of a pair; the imaginary part is negated
/// where it multiplies another imaginary part.
#[derive(Clone, Copy)]
struct Factor {
    re: __m512,
    im: __m512,
}

impl Factor {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn of(z: __m512) -> Self {
        Self { re: _mm512_moveldup_ps(z), im: negate_re(_mm512_movehdup_ps(z)) }
    }

    /// Returns the product with another factor.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn scaled(self, by: Self) -> Self {
        // Both imaginary parts have the same signs, so the signs of the product are right.
        let re = _mm512_sub_ps(_mm512_mul_ps(self.re, by.re), _mm512_mul_ps(self.im, by.im));
        let im = _mm512_add_ps(_mm512_mul_ps(self.re, by.im), _mm512_mul_ps(self.im, by.re));
        Self { re, im }
    }

    /// Returns `z` times this factor.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn times(self, z: __m512) -> __m512 {
        let swapped = _mm512_permute_ps::<0b10_11_00_01>(z);
        _mm512_add_ps(_mm512_mul_ps(z, self.re), _mm512_mul_ps(swapped, self.im))
    }
}

/// Implementation identical to `portable` bit by bit.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,popcnt")]
fn vectors(block: Block) -> u32 {
    let len = block.spectrum.len();
    if !len.is_multiple_of(LANES) {
        return portable(block, dither::fill);
    }
    assert!(2 * len <= block.table.re.len() && len <= block.out.len());
    assert!(block.gains.is_none_or(|gains| gains.len() == len));
    let (factor_re, factor_im) = (_mm512_set1_ps(block.factor.re), _mm512_set1_ps(block.factor.im));
    let signed_re = negate_re(factor_re);
    let signed_im = negate_re(factor_im);
    let (most, least) = (_mm512_set1_ps(block.limit), _mm512_set1_ps(-block.limit));
    let mut saturated = 0;
    for i in (0..len).step_by(LANES) {
        // SAFETY: `i + LANES <= len`, and all slices have that many values.
        let (z, table_re, table_im) = unsafe {
            (
                _mm512_loadu_ps(block.spectrum.as_ptr().add(i).cast()),
                _mm512_loadu_ps(block.table.re.as_ptr().add(2 * i)),
                _mm512_loadu_ps(block.table.im.as_ptr().add(2 * i)),
            )
        };
        // Table times factor, in the two arrangements for the next product.
        let mut turn = Factor {
            re: _mm512_sub_ps(
                _mm512_mul_ps(table_re, factor_re),
                _mm512_mul_ps(table_im, factor_im),
            ),
            im: _mm512_add_ps(
                _mm512_mul_ps(table_re, signed_im),
                _mm512_mul_ps(table_im, signed_re),
            ),
        };
        if let Some(gains) = block.gains {
            // SAFETY: `i + LANES <= len`, the length of the gains.
            let gain = Factor::of(unsafe { _mm512_loadu_ps(gains.as_ptr().add(i).cast()) });
            turn = turn.scaled(gain);
        }
        let mut z = turn.times(z);
        if let Some(key) = block.dither_key {
            z = _mm512_add_ps(z, uniform_pairs(key, (block.first + i) as u32));
        }
        let over = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(_mm512_abs_ps(z), most);
        saturated += ((over | over >> 1) & 0x5555).count_ones();
        let clamped = _mm512_min_ps(_mm512_max_ps(z, least), most);
        let bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(clamped));
        // SAFETY: `i + LANES <= len`, the length of the output.
        unsafe { _mm_storeu_si128(block.out.as_mut_ptr().add(i).cast(), bytes) };
    }
    saturated
}
