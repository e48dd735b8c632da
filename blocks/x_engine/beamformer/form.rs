//! The arithmetic of one channel of one heap, compiled for several processors.
#![allow(clippy::inline_always)] // bodies are compiled anew inside each of those functions
#![allow(unsafe_code)] // calls of functions compiled for more than the baseline processor

use crate::common::dither;
use crate::common::simd::Form;
use crate::common::stacked::Stacked;
use fxgraph::Dtype;
use num_complex::Complex32;

/// What one thread needs for one channel of one heap.
pub struct Scratch {
    /// Voltages of one antenna, `[pol][re, im][spectrum]`.
    volts: Vec<f32>,
    /// Sums `[beam][re, im][spectrum]`.
    sums: Vec<f32>,
}

impl Scratch {
    /// For heaps of `spectra` spectra and `beams` beams.
    pub fn new(spectra: usize, beams: usize) -> Self {
        Self { volts: vec![0.0; 4 * spectra], sums: vec![0.0; 2 * beams * spectra] }
    }

    /// Takes the sums of each beam from spectrum `first` on from `other`.
    pub fn replace_from(&mut self, first: usize, other: &Self, spectra: usize) {
        let rows = self.sums.chunks_exact_mut(spectra).zip(other.sums.chunks_exact(spectra));
        rows.for_each(|(to, from)| to[first..].copy_from_slice(&from[first..]));
    }
}

/// Adds antenna after antenna to the beams: `rows` gives each antenna's number and bytes,
/// `weights` is `[beam][antenna]`, `pols` `[beam]`.
pub fn add_antennas<'a>(
    form: Form,
    shape: &Stacked,
    rows: impl Iterator<Item = (usize, &'a [u8])>,
    weights: &[Complex32],
    pols: &[usize],
    scratch: &mut Scratch,
) {
    scratch.sums.fill(0.0);
    for (antenna, row) in rows {
        // SAFETY: `available` offers a form only after the processor was asked for it.
        match form {
            Form::Portable => add(shape, row, antenna, weights, pols, scratch),
            #[cfg(target_arch = "x86_64")]
            Form::Avx2 => unsafe { add_avx2(shape, row, antenna, weights, pols, scratch) },
            #[cfg(target_arch = "x86_64")]
            Form::Avx512 => unsafe { add_avx512(shape, row, antenna, weights, pols, scratch) },
        }
    }
}

/// Rounds the sums of beam `beam`, plus the dither of this key if any, to `output`; says how many values were clamped.
pub fn quantise_beam(
    form: Form,
    dither_key: Option<u64>,
    scratch: &Scratch,
    beam: usize,
    output: &mut [[i8; 2]],
) -> u64 {
    // SAFETY: as above.
    match form {
        Form::Portable => quantise(dither_key, scratch, beam, output),
        #[cfg(target_arch = "x86_64")]
        Form::Avx2 => unsafe { quantise_avx2(dither_key, scratch, beam, output) },
        #[cfg(target_arch = "x86_64")]
        Form::Avx512 => unsafe { quantise_avx512(dither_key, scratch, beam, output) },
    }
}

#[inline(always)]
fn add(
    shape: &Stacked,
    row: &[u8],
    antenna: usize,
    weights: &[Complex32],
    pols: &[usize],
    scratch: &mut Scratch,
) {
    let spectra = shape.spectra;
    unpack(shape, row, &mut scratch.volts);
    let antennas = shape.antennas;
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

/// A row's bytes as numbers `[pol][re, im][spectrum]`.
#[inline(always)]
fn unpack(shape: &Stacked, row: &[u8], volts: &mut [f32]) {
    let spectra = shape.spectra;
    let (first, second) = volts.split_at_mut(2 * spectra);
    let (x0, y0) = first.split_at_mut(spectra);
    let (x1, y1) = second.split_at_mut(spectra);
    let byte = |byte: u8| f32::from(byte.cast_signed());
    let nibbles =
        |byte: u8| [f32::from(byte.cast_signed() >> 4), f32::from((byte << 4).cast_signed() >> 4)];
    match (shape.dtype == Dtype::Ci4, shape.k_major) {
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

#[inline(always)]
fn quantise(
    dither_key: Option<u64>,
    scratch: &Scratch,
    beam: usize,
    output: &mut [[i8; 2]],
) -> u64 {
    const LARGEST: f32 = 127.0;
    let spectra = output.len();
    let (re, im) = scratch.sums[2 * beam * spectra..][..2 * spectra].split_at(spectra);
    let mut saturated = 0_u32;
    let round = |value: f32| value.clamp(-LARGEST, LARGEST).round_ties_even() as i8;
    for (index, ((&re, &im), output)) in re.iter().zip(im).zip(output).enumerate() {
        let [x, y] = match dither_key {
            Some(key) => dither::uniform_pair(key, index as u64),
            None => [0.0; 2],
        };
        let (re, im) = (re + x, im + y);
        saturated += u32::from((re.abs() > LARGEST) | (im.abs() > LARGEST));
        *output = [round(re), round(im)];
    }
    u64::from(saturated)
}

#[cfg(target_arch = "x86_64")]
macro_rules! compiled_for {
    ($features:literal, $add:ident, $quantise:ident) => {
        #[target_feature(enable = $features)]
        fn $add(
            shape: &Stacked,
            row: &[u8],
            antenna: usize,
            weights: &[Complex32],
            pols: &[usize],
            scratch: &mut Scratch,
        ) {
            add(shape, row, antenna, weights, pols, scratch);
        }

        #[target_feature(enable = $features)]
        fn $quantise(
            key: Option<u64>,
            scratch: &Scratch,
            beam: usize,
            output: &mut [[i8; 2]],
        ) -> u64 {
            quantise(key, scratch, beam, output)
        }
    };
}

#[cfg(target_arch = "x86_64")]
compiled_for!("avx2", add_avx2, quantise_avx2);
#[cfg(target_arch = "x86_64")]
compiled_for!("avx512f,avx512bw,avx512dq,avx512vl", add_avx512, quantise_avx512);
