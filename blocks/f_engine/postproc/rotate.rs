//! Delay, phase, gain, dither and quantisation of one spectrum.
#![allow(unsafe_code)] // Functions compiled for AVX2 and AVX-512.

use super::phase::{BLOCK, Phases, Table};
use crate::common::dither::uniform_pair;
use crate::common::simd::Form;
use num_complex::{Complex32, Complex64};

/// Adding this to a small float leaves its nearest integer, half to even, in the low bits.
const ROUNDER: f32 = 12_582_912.0;

/// Factors of one polarisation.
pub struct ChannelGains {
    /// The one gain of all channels, or 1.
    common: Complex64,
    /// For each channel, if they differ.
    of_each: Option<Vec<Complex32>>,
}

impl ChannelGains {
    /// One gain for all channels.
    pub fn same(gain: Complex32) -> Self {
        Self { common: Complex64::new(f64::from(gain.re), f64::from(gain.im)), of_each: None }
    }

    /// A gain for each channel.
    pub fn each(gains: Vec<Complex32>) -> Self {
        Self { common: Complex64::new(1.0, 0.0), of_each: Some(gains) }
    }

    /// The gain that all channels share.
    pub fn common(&self) -> Complex64 {
        self.common
    }

    /// What each channel has besides, if they differ.
    pub fn of_each(&self) -> Option<&[Complex32]> {
        self.of_each.as_deref()
    }
}

/// What is to be done to one spectrum.
pub struct Turn {
    /// Of the centre of the band.
    pub phase_turns: f64,
    pub fine_delay_samples: f64,
    /// Key of the spectrum's dither.
    pub dither_key: Option<u64>,
    /// 127 or 7.
    pub limit: f32,
}

/// What is to be done to one block of a spectrum.
struct Block<'a> {
    spectrum: &'a [Complex32],
    table: &'a Table,
    factor: Complex32,
    gains: Option<&'a [Complex32]>,
    dither_key: Option<u64>,
    /// Number of its first channel.
    first: usize,
    limit: f32,
    out: &'a mut [u16],
}

/// Turns, scales and quantises `spectrum` into `out`: the real part in the low byte, the
/// imaginary part in the high byte. Returns how many complex values were clamped.
pub fn rotate(
    spectrum: &[Complex32],
    turn: &Turn,
    gains: &ChannelGains,
    out: &mut [u16],
    form: Form,
) -> u32 {
    match form {
        Form::Portable => rotate_with(spectrum, turn, gains, out, portable),
        // SAFETY: a form is chosen only if the processor has it.
        #[cfg(target_arch = "x86_64")]
        Form::Avx2 => unsafe { rotate_avx2(spectrum, turn, gains, out) },
        // SAFETY: likewise.
        #[cfg(target_arch = "x86_64")]
        Form::Avx512 => unsafe { rotate_avx512(spectrum, turn, gains, out) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[allow(clippy::redundant_closure)] // A closure has the features of the function that it is in.
fn rotate_avx2(spectrum: &[Complex32], turn: &Turn, gains: &ChannelGains, out: &mut [u16]) -> u32 {
    rotate_with(spectrum, turn, gains, out, |block| portable(block))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,popcnt")]
#[allow(clippy::redundant_closure)] // Likewise.
fn rotate_avx512(
    spectrum: &[Complex32],
    turn: &Turn,
    gains: &ChannelGains,
    out: &mut [u16],
) -> u32 {
    rotate_with(spectrum, turn, gains, out, |block| avx512::block(block))
}

#[inline(always)]
fn rotate_with(
    spectrum: &[Complex32],
    turn: &Turn,
    gains: &ChannelGains,
    out: &mut [u16],
    one: impl Fn(Block) -> u32,
) -> u32 {
    let Turn { phase_turns, fine_delay_samples, dither_key, limit } = *turn;
    let mut phases = Phases::new(spectrum.len(), phase_turns, fine_delay_samples, gains.common);
    let mut saturated = 0;
    let blocks = spectrum.chunks(BLOCK).zip(out.chunks_mut(BLOCK));
    for (number, (spectrum, out)) in blocks.enumerate() {
        let first = number * BLOCK;
        let factor = phases.block(number);
        let gains = gains.of_each().map(|gains| &gains[first..first + spectrum.len()]);
        let table = &phases.table;
        saturated += one(Block { spectrum, table, factor, gains, dither_key, first, limit, out });
    }
    saturated
}

/// The definition; compiled for AVX2 too. Each step is a loop without branches, so that the
/// compiler makes vectors of it.
#[inline(always)]
fn portable(block: Block) -> u32 {
    let Block { spectrum, table, factor, limit, out, .. } = block;
    let mut turns = [Complex32::default(); BLOCK];
    for (i, turn) in turns.iter_mut().enumerate() {
        *turn = times(Complex32::new(table.re[2 * i], table.im[2 * i]), factor);
    }
    if let Some(gains) = block.gains {
        turns.iter_mut().zip(gains).for_each(|(turn, gain)| *turn = times(*turn, *gain));
    }
    let mut dither = [[0.0; 2]; BLOCK];
    if let Some(key) = block.dither_key {
        for (i, dither) in dither.iter_mut().enumerate() {
            *dither = uniform_pair(key, (block.first + i) as u64);
        }
    }
    let mut saturated = 0;
    let factors = turns.iter().zip(&dither);
    for ((x, out), (turn, [re, im])) in spectrum.iter().zip(out).zip(factors) {
        let z = times(*x, *turn);
        let (re, im) = (z.re + re, z.im + im);
        saturated += u32::from((re.abs() > limit) | (im.abs() > limit));
        let byte = |x: f32| {
            let x = if x > -limit { x } else { -limit };
            let x = if x < limit { x } else { limit };
            (x + ROUNDER).to_bits() & 0xff
        };
        *out = (byte(re) | byte(im) << 8) as u16;
    }
    saturated
}

/// a b, rounded in the order in which the vector form does.
#[inline(always)]
fn times(a: Complex32, b: Complex32) -> Complex32 {
    Complex32::new(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{Block, portable};
    use crate::common::dither::avx512::uniform_pairs;
    use std::arch::x86_64::{
        __m512, _CMP_GT_OQ, _mm_storeu_si128, _mm512_abs_ps, _mm512_add_ps, _mm512_castps_si512,
        _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi32_epi8, _mm512_cvtps_epi32,
        _mm512_loadu_ps, _mm512_max_ps, _mm512_min_ps, _mm512_movehdup_ps, _mm512_moveldup_ps,
        _mm512_mul_ps, _mm512_permute_ps, _mm512_set1_epi64, _mm512_set1_ps, _mm512_sub_ps,
        _mm512_xor_si512,
    };

    /// Complex numbers of a vector.
    const LANES: usize = 8;

    /// Changes the sign of the real parts.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn negate_re(z: __m512) -> __m512 {
        let sign = _mm512_set1_epi64(0x8000_0000);
        _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(z), sign))
    }

    /// The real and imaginary parts of a factor, both of them in both places; the imaginary part
    /// with its sign changed where it meets another imaginary part.
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

        /// The product with another one.
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn scaled(self, by: Self) -> Self {
            // Both imaginary parts have the same signs, so those of their product are right.
            let re = _mm512_sub_ps(_mm512_mul_ps(self.re, by.re), _mm512_mul_ps(self.im, by.im));
            let im = _mm512_add_ps(_mm512_mul_ps(self.re, by.im), _mm512_mul_ps(self.im, by.re));
            Self { re, im }
        }

        /// `z` times this.
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn times(self, z: __m512) -> __m512 {
            let swapped = _mm512_permute_ps::<0b10_11_00_01>(z);
            _mm512_add_ps(_mm512_mul_ps(z, self.re), _mm512_mul_ps(swapped, self.im))
        }
    }

    /// The same as `portable`, bit by bit.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,popcnt")]
    pub(super) fn block(block: Block) -> u32 {
        let len = block.spectrum.len();
        if !len.is_multiple_of(LANES) {
            return portable(block);
        }
        assert!(2 * len <= block.table.re.len() && len <= block.out.len());
        assert!(block.gains.is_none_or(|gains| gains.len() == len));
        let (factor_re, factor_im) =
            (_mm512_set1_ps(block.factor.re), _mm512_set1_ps(block.factor.im));
        let signed_re = negate_re(factor_re);
        let signed_im = negate_re(factor_im);
        let (most, least) = (_mm512_set1_ps(block.limit), _mm512_set1_ps(-block.limit));
        let mut saturated = 0;
        for i in (0..len).step_by(LANES) {
            // SAFETY: i + LANES <= len, and all slices have that many values.
            let (z, table_re, table_im) = unsafe {
                (
                    _mm512_loadu_ps(block.spectrum.as_ptr().add(i).cast()),
                    _mm512_loadu_ps(block.table.re.as_ptr().add(2 * i)),
                    _mm512_loadu_ps(block.table.im.as_ptr().add(2 * i)),
                )
            };
            // table times factor, in the two arrangements that the next product needs.
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
                // SAFETY: i + LANES <= len, the length of the gains.
                let gain = Factor::of(unsafe { _mm512_loadu_ps(gains.as_ptr().add(i).cast()) });
                turn = turn.scaled(gain);
            }
            let mut z = turn.times(z);
            if let Some(key) = block.dither_key {
                z = _mm512_add_ps(z, uniform_pairs(key, (block.first + i) as u64));
            }
            let over = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(_mm512_abs_ps(z), most);
            saturated += ((over | over >> 1) & 0x5555).count_ones();
            let clamped = _mm512_min_ps(_mm512_max_ps(z, least), most);
            let bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(clamped));
            // SAFETY: i + LANES <= len, the length of the output.
            unsafe { _mm_storeu_si128(block.out.as_mut_ptr().add(i).cast(), bytes) };
        }
        saturated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::random::Random;

    #[test]
    fn every_form_gives_the_bits_of_the_portable_one() {
        let mut random = Random::new(3);
        for channels in [4, 8, 64, 256, 4096] {
            let mut values = |scale: f64| -> Vec<Complex32> {
                let pairs = (0..channels).map(|_| random.normal_pair().map(|x| (scale * x) as f32));
                pairs.map(|[re, im]| Complex32::new(re, im)).collect()
            };
            let (mut spectrum, gains) = (values(80.0), values(1.0));
            spectrum[0] = Complex32::new(f32::NAN, f32::INFINITY);
            for (are_equal, dither_key, limit) in [
                (true, Some(5), 127.0),
                (false, Some(6), 127.0),
                (true, None, 7.0),
                (false, None, 127.0),
            ] {
                let gains = if are_equal {
                    ChannelGains::same(gains[0])
                } else {
                    ChannelGains::each(gains.clone())
                };
                let turn = Turn { phase_turns: 1.7, fine_delay_samples: -0.4, dither_key, limit };
                let run = |form| {
                    let mut out = vec![0; channels];
                    let saturated = rotate(&spectrum, &turn, &gains, &mut out, form);
                    (out, saturated)
                };
                let expected = run(Form::Portable);
                for form in Form::available() {
                    assert_eq!(run(form), expected, "{form:?} {channels}");
                }
            }
        }
    }
}
