//! Delay, phase, gain, dither and quantisation of one spectrum.

mod phase;
#[cfg(target_arch = "x86_64")]
mod x86;

use self::phase::{BLOCK, Phases, Table};
use crate::dither;
use crate::simd::{InstructionSet, Lines};
use num_complex::{Complex32, Complex64};

/// Constant that, added to a small float, leaves its nearest integer, half to even, in the low bits.
const ROUNDER: f32 = 12_582_912.0;

/// Gains of one polarisation.
pub struct ChannelGains {
    /// Gain common to all channels, or 1.
    common: Complex64,
    /// Gain of each channel, if they differ.
    of_each: Option<Lines<Complex32>>,
}

impl ChannelGains {
    /// Creates one gain for all channels.
    #[must_use]
    pub fn same(gain: Complex32) -> Self {
        Self { common: Complex64::new(f64::from(gain.re), f64::from(gain.im)), of_each: None }
    }

    /// Creates a gain for each channel.
    #[must_use]
    pub fn each(gains: Vec<Complex32>) -> Self {
        Self { common: Complex64::new(1.0, 0.0), of_each: Some(gains.into_iter().collect()) }
    }

    /// Returns the gain common to all channels.
    #[inline]
    #[must_use]
    pub fn common(&self) -> Complex64 {
        self.common
    }

    /// Returns the additional gain of each channel, if they differ.
    #[inline]
    #[must_use]
    pub fn of_each(&self) -> Option<&[Complex32]> {
        self.of_each.as_deref()
    }
}

/// Phase, delay, dither and range of one spectrum.
pub struct Turn {
    /// Phase of the centre of the band, in turns.
    pub phase_turns: f64,
    /// Fine delay in samples of a real stream of the same bandwidth: each sample is a phase slope of pi across
    /// the whole band.
    pub fine_delay_samples: f64,
    /// Key of the spectrum's dither.
    pub dither_key: Option<u64>,
    /// Largest magnitude of a part of the output: 127 or 7.
    pub limit: f32,
}

/// Parameters of the rotation of one block of a spectrum.
struct Block<'a> {
    spectrum: &'a [Complex32],
    table: &'a Table,
    factor: Complex32,
    gains: Option<&'a [Complex32]>,
    dither_key: Option<u64>,
    /// Index of its first channel.
    first: usize,
    limit: f32,
    out: &'a mut [u16],
}

/// Rotates, scales and quantises `spectrum` to `out`, with the real part in the low byte and the
/// imaginary part in the high byte. Returns the number of complex values clamped.
///
/// `spectrum`, `out` and the gains of each channel are `[channel]`. The shorter of `spectrum` and `out` determines
/// the number of channels.
///
/// # Panics
/// If there are fewer gains than channels.
#[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
pub fn rotate(
    spectrum: &[Complex32],
    turn: &Turn,
    gains: &ChannelGains,
    out: &mut [u16],
    instructions: InstructionSet,
) -> u32 {
    match instructions {
        InstructionSet::Portable => {
            rotate_with(spectrum, turn, gains, out, |block| portable(block, dither::fill))
        }
        // SAFETY: an implementation is chosen only if the CPU supports it.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { x86::avx2(spectrum, turn, gains, out) },
        // SAFETY: an implementation is chosen only if the CPU supports it.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => unsafe { x86::avx512(spectrum, turn, gains, out) },
    }
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

/// Reference implementation, also compiled for AVX2; `fill` is [`dither::fill`]. Each step is a loop without branches, which the compiler
/// vectorises.
#[inline(always)]
fn portable(block: Block, fill: impl Fn(u64, u32, &mut [[f32; 2]])) -> u32 {
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
        fill(key, block.first as u32, &mut dither);
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

/// Returns a b, rounded in the same order as the vector implementation.
#[inline(always)]
fn times(a: Complex32, b: Complex32) -> Complex32 {
    Complex32::new(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_implementation_equals_the_portable_one_bit_by_bit() {
        let mut random = Random::new(3);
        let most = if cfg!(miri) { 64 } else { 4096 };
        for channels in [4, 8, 64, 256, 4096].into_iter().filter(|n| *n <= most) {
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
                let run = |instructions| {
                    let mut out = vec![0; channels];
                    let saturated = rotate(&spectrum, &turn, &gains, &mut out, instructions);
                    (out, saturated)
                };
                let expected = run(InstructionSet::Portable);
                for instructions in InstructionSet::available() {
                    assert_eq!(run(instructions), expected, "{instructions:?} {channels}");
                }
            }
        }
    }
}
