//! Delay, phase, gain, dither and quantisation of one spectrum.
//!
//! The factor of channel k is exp(j 2 pi (phase - fine (k - N/2) / 2N)), phase in turns. Within
//! blocks of 64 channels it is a table of rotations (made in double for each spectrum) times the
//! factor of the block's first channel, which is turned on from block to block in double and
//! computed anew every 16 blocks.
#![allow(unsafe_code)] // Calls of functions compiled for AVX2 and FMA.

use num_complex::{Complex32, Complex64};
use std::f64::consts::TAU;

/// Channels that share a block factor.
const BLOCK: usize = 64;
/// Blocks after which the block factor is computed anew.
const ANCHOR: usize = 16;
/// Adding this to a small float leaves its nearest integer, half to even, in the low bits.
const ROUNDER: f32 = 12_582_912.0;

/// Where the dither of a spectrum comes from: a function of seed, spectrum, polarisation and
/// channel, so that it can be repeated anywhere.
#[derive(Clone, Copy, Debug)]
pub struct Dither([u32; 2]);

impl Dither {
    /// The dither of the spectrum number `spectrum` (timestamp / step) of polarisation `pol`.
    pub fn new(seed: u64, spectrum: u64, pol: usize) -> Self {
        let key = mix64(mix64(seed ^ mix64(pol as u64)).wrapping_add(spectrum));
        Self([key as u32, (key >> 32) as u32])
    }

    /// Two numbers in (-1/2, 1/2) for real and imaginary part of channel `k`.
    #[inline(always)]
    fn at(self, k: u32) -> (f32, f32) {
        let bits = mix32(mix32(k ^ self.0[0]).wrapping_add(self.0[1]));
        let uniform = |half: u32| (half as i32 as f32 - 32767.5) * (1.0 / 65536.0);
        (uniform(bits & 0xffff), uniform(bits >> 16))
    }
}

/// Finaliser of `SplitMix64`.
fn mix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A bijection of 32 bits with good avalanche; the constants are the known "lowbias32" ones.
#[inline(always)]
fn mix32(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// Factors of one polarisation.
pub struct ChannelGains {
    /// The one gain of all channels, or 1.
    common: Complex64,
    /// Real and imaginary parts for each channel, if they differ.
    each: Option<(Vec<f32>, Vec<f32>)>,
}

impl ChannelGains {
    /// Gains for each channel; `all_equal` says that they are all the same.
    pub fn new(gains: &[Complex32], all_equal: bool) -> Self {
        if all_equal {
            let gain = gains[0];
            let common = Complex64::new(f64::from(gain.re), f64::from(gain.im));
            return Self { common, each: None };
        }
        let re = gains.iter().map(|gain| gain.re).collect();
        let im = gains.iter().map(|gain| gain.im).collect();
        Self { common: Complex64::new(1.0, 0.0), each: Some((re, im)) }
    }
}

/// What is to be done to one spectrum.
pub struct Turn {
    /// Of the centre of the band.
    pub phase_turns: f64,
    pub fine_delay_samples: f64,
    pub dither: Option<Dither>,
    /// 127 or 7.
    pub limit: f32,
}

/// Real and imaginary parts of a block.
struct Parts {
    re: [f32; BLOCK],
    im: [f32; BLOCK],
}

impl Parts {
    const ZERO: Self = Self { re: [0.0; BLOCK], im: [0.0; BLOCK] };
}

/// Turns, scales and quantises `spectrum` into `out`: the real part in the low byte, the
/// imaginary part in the high byte. Returns how many complex values were clamped.
pub fn rotate(spectrum: &[Complex32], turn: &Turn, gains: &ChannelGains, out: &mut [u16]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has both.
        return unsafe { rotate_avx2(spectrum, turn, gains, out) };
    }
    rotate_any(spectrum, turn, gains, out)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn rotate_avx2(spectrum: &[Complex32], turn: &Turn, gains: &ChannelGains, out: &mut [u16]) -> u32 {
    rotate_any(spectrum, turn, gains, out)
}

/// exp(j 2 pi turns).
fn phasor(turns: f64) -> Complex64 {
    // Reduced first, so that the accuracy does not depend on how often it went round.
    let (sin, cos) = (TAU * (turns - turns.round())).sin_cos();
    Complex64::new(cos, sin)
}

/// The factors of the first channels relative to channel 0.
#[inline(always)]
fn table(turns_per_channel: f64) -> Parts {
    let (mut re, mut im) = ([0.0_f64; BLOCK], [0.0_f64; BLOCK]);
    re[0] = 1.0;
    let mut known = 1;
    while known < BLOCK {
        let by = phasor(turns_per_channel * known as f64);
        for i in 0..known {
            re[known + i] = re[i] * by.re - im[i] * by.im;
            im[known + i] = re[i] * by.im + im[i] * by.re;
        }
        known *= 2;
    }
    Parts { re: re.map(|x| x as f32), im: im.map(|x| x as f32) }
}

#[inline(always)]
fn rotate_any(spectrum: &[Complex32], turn: &Turn, gains: &ChannelGains, out: &mut [u16]) -> u32 {
    let turns_per_channel = -turn.fine_delay_samples / (2 * spectrum.len()) as f64;
    let at_zero = turn.phase_turns - turns_per_channel * (spectrum.len() / 2) as f64;
    let table = table(turns_per_channel);
    let by_block = phasor(turns_per_channel * BLOCK as f64);
    let mut factor = Complex64::default();
    let mut saturated = 0;
    let blocks = spectrum.chunks(BLOCK).zip(out.chunks_mut(BLOCK));
    for (number, (spectrum, out)) in blocks.enumerate() {
        let first = number * BLOCK;
        if number % ANCHOR == 0 {
            factor = phasor(at_zero + turns_per_channel * first as f64) * gains.common;
        } else {
            factor *= by_block;
        }
        let factor = Complex32::new(factor.re as f32, factor.im as f32);
        let mut z = Parts::ZERO;
        for (i, x) in spectrum.iter().enumerate() {
            z.re[i] = x.re;
            z.im[i] = x.im;
        }
        turn_block(&mut z, &table, factor);
        if let Some((re, im)) = &gains.each {
            let len = spectrum.len();
            scale_block(&mut z, &re[first..first + len], &im[first..first + len]);
        }
        if let Some(dither) = turn.dither {
            for i in 0..BLOCK {
                let (re, im) = dither.at((first + i) as u32);
                z.re[i] += re;
                z.im[i] += im;
            }
        }
        saturated += quantise_block(&z, turn.limit, out);
    }
    saturated
}

#[inline(always)]
fn turn_block(z: &mut Parts, table: &Parts, factor: Complex32) {
    for i in 0..BLOCK {
        let re = table.re[i] * factor.re - table.im[i] * factor.im;
        let im = table.re[i] * factor.im + table.im[i] * factor.re;
        let turned = (z.re[i] * re - z.im[i] * im, z.re[i] * im + z.im[i] * re);
        (z.re[i], z.im[i]) = turned;
    }
}

#[inline(always)]
fn scale_block(z: &mut Parts, re: &[f32], im: &[f32]) {
    for (i, (re, im)) in re.iter().zip(im).enumerate() {
        let scaled = (z.re[i] * re - z.im[i] * im, z.re[i] * im + z.im[i] * re);
        (z.re[i], z.im[i]) = scaled;
    }
}

#[inline(always)]
fn quantise_block(z: &Parts, limit: f32, out: &mut [u16]) -> u32 {
    let mut saturated = 0;
    for (i, out) in out.iter_mut().enumerate() {
        let (re, im) = (z.re[i], z.im[i]);
        saturated += u32::from((re.abs() > limit) | (im.abs() > limit));
        let byte = |x: f32| (x.max(-limit).min(limit) + ROUNDER).to_bits() & 0xff;
        *out = (byte(re) | byte(im) << 8) as u16;
    }
    saturated
}
