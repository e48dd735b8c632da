//! Beamforming of one channel of one heap, compiled for several instruction sets.
#![allow(clippy::inline_always)] // bodies are compiled again inside each of these functions

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::dither;
use crate::simd::{InstructionSet, Lines};
use num_complex::Complex32;

/// Sizes of a row of voltages: both polarisations of one channel of one heap of an antenna.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of antennas in the weights.
    pub antennas: usize,
    /// Spectra in a row.
    pub spectra: usize,
    /// Whether polarisation is slower than spectrum.
    pub k_major: bool,
    /// Whether complex numbers have 4 bits per part; otherwise 8.
    pub is_4_bit: bool,
}

/// Working memory of one thread for one channel of one heap.
pub struct Scratch {
    /// Voltages of one antenna, `[pol][re, im][spectrum]`.
    volts: Lines<f32>,
    /// Sums `[beam][re, im][spectrum]`.
    sums: Lines<f32>,
}

impl Scratch {
    /// Allocates the memory for heaps of `spectra` spectra and `beams` beams.
    #[must_use]
    pub fn new(spectra: usize, beams: usize) -> Self {
        Self { volts: Lines::new(4 * spectra), sums: Lines::new(2 * beams * spectra) }
    }

    /// Copies the sums of each beam from spectrum `first` on from `other`.
    pub fn replace_from(&mut self, first: usize, other: &Self, spectra: usize) {
        let rows = self.sums.chunks_exact_mut(spectra).zip(other.sums.chunks_exact(spectra));
        rows.for_each(|(to, from)| to[first..].copy_from_slice(&from[first..]));
    }
}

/// Sets the sums of `scratch` to the weighted sums of all `rows`, antenna after antenna. `rows` contains each antenna's
/// number and bytes (`[spectrum][pol]`, K-major `[pol][spectrum]`), `weights` is `[beam][antenna]`, `pols` the
/// polarisation of each beam, 0 or 1.
///
/// # Panics
/// If `scratch` was allocated for other sizes than those of `layout`, or an antenna or a polarisation has no weight
/// or voltages.
#[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
pub fn add_antennas<'a>(
    instructions: InstructionSet,
    layout: &Layout,
    rows: impl Iterator<Item = (usize, &'a [u8])>,
    weights: &[Complex32],
    pols: &[usize],
    scratch: &mut Scratch,
) {
    scratch.sums.fill(0.0);
    for (antenna, row) in rows {
        match instructions {
            InstructionSet::Portable => add(layout, row, antenna, weights, pols, scratch),
            // SAFETY: an implementation is chosen only if the CPU supports it.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe {
                x86::add_avx2(layout, row, antenna, weights, pols, scratch);
            },
            // SAFETY: an implementation is chosen only if the CPU supports it.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe {
                x86::add_avx512(layout, row, antenna, weights, pols, scratch);
            },
        }
    }
}

/// Rounds the sums of beam `beam`, plus the dither of this key if any, to `output` `[spectrum]`, clamped to +-127.
/// Returns the number of complex values clamped.
///
/// # Panics
/// If `beam` is not a beam of `scratch`.
#[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
#[must_use]
pub fn quantise_beam(
    instructions: InstructionSet,
    dither_key: Option<u64>,
    scratch: &Scratch,
    beam: usize,
    output: &mut [[i8; 2]],
) -> u64 {
    match instructions {
        InstructionSet::Portable => quantise(dither_key, scratch, beam, output, dither::fill),
        // SAFETY: an implementation is chosen only if the CPU supports it.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { x86::quantise_avx2(dither_key, scratch, beam, output) },
        // SAFETY: an implementation is chosen only if the CPU supports it.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => unsafe {
            x86::quantise_avx512(dither_key, scratch, beam, output)
        },
    }
}

#[inline(always)]
fn add(
    layout: &Layout,
    row: &[u8],
    antenna: usize,
    weights: &[Complex32],
    pols: &[usize],
    scratch: &mut Scratch,
) {
    let spectra = layout.spectra;
    unpack(layout, row, &mut scratch.volts);
    let antennas = layout.antennas;
    let beams = scratch.sums.chunks_exact_mut(2 * spectra).zip(pols);
    for (beam, (sums, &pol)) in beams.enumerate() {
        let weight = weights[beam * antennas + antenna];
        let (x, y) = scratch.volts[2 * pol * spectra..][..2 * spectra].split_at(spectra);
        let (re, im) = sums.split_at_mut(spectra);
        for (((re, im), &x), &y) in re.iter_mut().zip(im).zip(x).zip(y) {
            *re += weight.re * x - weight.im * y;
            *im += weight.re * y + weight.im * x;
        }
    }
}

/// Converts a row's bytes to numbers `[pol][re, im][spectrum]`.
#[inline(always)]
fn unpack(layout: &Layout, row: &[u8], volts: &mut [f32]) {
    let spectra = layout.spectra;
    let (first, second) = volts.split_at_mut(2 * spectra);
    let (x0, y0) = first.split_at_mut(spectra);
    let (x1, y1) = second.split_at_mut(spectra);
    let byte = |byte: u8| f32::from(byte.cast_signed());
    let nibbles =
        |byte: u8| [f32::from(byte.cast_signed() >> 4), f32::from((byte << 4).cast_signed() >> 4)];
    match (layout.is_4_bit, layout.k_major) {
        (false, false) => {
            for (i, value) in row.as_chunks::<4>().0.iter().enumerate().take(spectra) {
                [x0[i], y0[i], x1[i], y1[i]] = value.map(byte);
            }
        }
        (true, false) => {
            for (i, value) in row.as_chunks::<2>().0.iter().enumerate().take(spectra) {
                [[x0[i], y0[i]], [x1[i], y1[i]]] = value.map(nibbles);
            }
        }
        (false, true) => {
            let (pol0, pol1) = row.split_at(2 * spectra);
            for (row, x, y) in [(pol0, x0, y0), (pol1, x1, y1)] {
                for (i, value) in row.as_chunks::<2>().0.iter().enumerate().take(spectra) {
                    [x[i], y[i]] = value.map(byte);
                }
            }
        }
        (true, true) => {
            let (pol0, pol1) = row.split_at(spectra);
            for (row, x, y) in [(pol0, x0, y0), (pol1, x1, y1)] {
                for (i, value) in row.iter().enumerate().take(spectra) {
                    [x[i], y[i]] = nibbles(*value);
                }
            }
        }
    }
}

/// `fill` is [`dither::fill`].
#[inline(always)]
fn quantise(
    dither_key: Option<u64>,
    scratch: &Scratch,
    beam: usize,
    output: &mut [[i8; 2]],
    fill: impl Fn(u64, u32, &mut [[f32; 2]]),
) -> u64 {
    const LARGEST: f32 = 127.0;
    const BLOCK: usize = 64;
    let spectra = output.len();
    let (re, im) = scratch.sums[2 * beam * spectra..][..2 * spectra].split_at(spectra);
    let mut saturated = 0_u32;
    let round = |value: f32| value.clamp(-LARGEST, LARGEST).round_ties_even() as i8;
    let mut dither = [[0.0; 2]; BLOCK];
    let blocks = re.chunks(BLOCK).zip(im.chunks(BLOCK)).zip(output.chunks_mut(BLOCK));
    for (number, ((re, im), output)) in blocks.enumerate() {
        if let Some(key) = dither_key {
            fill(key, (number * BLOCK) as u32, &mut dither);
        }
        for (((&re, &im), output), [x, y]) in re.iter().zip(im).zip(output).zip(&dither) {
            let (re, im) = (re + x, im + y);
            saturated += u32::from((re.abs() > LARGEST) | (im.abs() > LARGEST));
            *output = [round(re), round(im)];
        }
    }
    u64::from(saturated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_implementation_gives_the_same_numbers() {
        let mut random = Random::new(4);
        let (antennas, spectra) = (5, 21);
        let bytes: Vec<u8> = (0..4 * antennas * spectra).map(|_| random.bits() as u8).collect();
        let weights: Vec<_> = (0..10).map(|i| Complex32::from_polar(0.2, i as f32)).collect();
        for (k_major, is_4_bit) in [(false, false), (false, true), (true, false), (true, true)] {
            let layout = Layout { antennas, spectra, k_major, is_4_bit };
            let row_bytes = if is_4_bit { 2 * spectra } else { 4 * spectra };
            let run = |instructions| {
                let mut scratch = Scratch::new(spectra, 2);
                let rows = bytes.chunks_exact(row_bytes).take(antennas).enumerate();
                add_antennas(instructions, &layout, rows, &weights, &[0, 1], &mut scratch);
                let mut output = vec![[0; 2]; 2 * spectra];
                let beams = output.chunks_exact_mut(spectra).enumerate();
                let saturated: Vec<u64> = beams
                    .map(|(beam, output)| {
                        quantise_beam(instructions, Some(1), &scratch, beam, output)
                    })
                    .collect();
                (output, saturated)
            };
            let expected = run(InstructionSet::Portable);
            for instructions in InstructionSet::available() {
                assert_eq!(run(instructions), expected, "{instructions:?} {layout:?}");
            }
        }
    }
}
