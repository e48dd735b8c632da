//! Conversion of pairs of spectra to the words of the inner loop; see [`super::kernel`] for their formats.

use super::kernel::Kernel;

/// Words of one panel, `[step][lane]` each: rows, and columns for the real and imaginary sums.
pub type Words<'a> = [&'a mut [u32]; 3];

/// Converts `stage` `[antenna][pair]` to the format of `kernel`, and adds the corrections for the offsets of the byte
/// format to `offsets` `[lane][re, im]`, for the row of each input. A number of `stage` is two spectra of an antenna:
/// `[pol][spectrum][re, im]`, 8 bits each. A panel has `LANES` inputs, two for each antenna.
///
/// # Panics
/// If `words` or `stage` are too short for `pairs`.
pub fn spread(kernel: Kernel, stage: &[u64], pairs: usize, words: Words, offsets: &mut [[i32; 2]]) {
    #[cfg(target_arch = "x86_64")]
    super::packing_x86::spread(kernel, stage, pairs, words, offsets);
    #[cfg(not(target_arch = "x86_64"))]
    portable(kernel, stage, pairs, words, offsets);
}

/// Reference implementation of [`spread`].
pub(super) fn portable(
    kernel: Kernel,
    stage: &[u64],
    pairs: usize,
    words: Words,
    offsets: &mut [[i32; 2]],
) {
    if kernel.geometry().bytes {
        spread_bytes(stage, pairs, words, offsets);
    } else {
        spread_words(stage, pairs, words);
    }
}

/// Writes panels `[pair][antenna][pol]` of bytes.
fn spread_bytes(stage: &[u64], pairs: usize, words: Words, offsets: &mut [[i32; 2]]) {
    let [row, column_re, column_im] = words;
    let lanes = offsets.len();
    for (antenna, stage) in stage.chunks_exact(pairs).enumerate() {
        for (step, both) in stage.iter().enumerate() {
            for pol in 0..2 {
                let word = (both >> (32 * pol)) as u32;
                let at = step * lanes + 2 * antenna + pol;
                let biased = word ^ 0x8080_8080;
                row[at] = word;
                column_re[at] = biased;
                column_im[at] = (biased & 0x00ff_00ff) << 8 | !(biased >> 8) & 0x00ff_00ff;
                let [x, y, u, v] = word.to_le_bytes().map(|b| i32::from(b.cast_signed()));
                let offset = &mut offsets[2 * antenna + pol];
                offset[0] = offset[0].wrapping_add(128 * (x + y + u + v));
                offset[1] = offset[1].wrapping_add(127 * (x + u) + 128 * (y + v));
            }
        }
    }
}

/// Writes panels `[spectrum][antenna][pol]` of 16-bit numbers.
fn spread_words(stage: &[u64], pairs: usize, words: Words) {
    let [row, column_re, column_im] = words;
    let lanes = 2 * stage.len() / pairs;
    for (antenna, stage) in stage.chunks_exact(pairs).enumerate() {
        for (pair, both) in stage.iter().enumerate() {
            let bytes = both.to_le_bytes().map(|b| i16::from(b.cast_signed()));
            for (index, part) in bytes.chunks_exact(2).enumerate() {
                let (pol, spectrum) = (index / 2, index % 2);
                let word = |re: i16, im: i16| {
                    u32::from(re.cast_unsigned()) | u32::from(im.cast_unsigned()) << 16
                };
                let at = (2 * pair + spectrum) * lanes + 2 * antenna + pol;
                row[at] = word(part[0], part[1]);
                column_re[at] = row[at];
                column_im[at] = word(-part[1], part[0]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_implementation_equals_the_reference_for_any_number_of_pairs() {
        for kernel in Kernel::available() {
            let lanes = kernel.geometry().lanes;
            let most = if cfg!(miri) { 8 } else { 128 };
            for pairs in [1, 2, 3, 4, 5, 7, 8, 31, 128].into_iter().filter(|n| *n <= most) {
                let antennas = lanes / 2;
                let extremes = [0x80, 0x7f, 0x81, 0, 0xff, 1];
                let mut random = Random::new(pairs as u64);
                let mut bytes: Vec<u8> =
                    (0..8 * antennas * pairs).map(|_| random.bits() as u8).collect();
                bytes.iter_mut().zip(extremes.iter().cycle()).take(48).for_each(|(b, e)| *b = *e);
                let stage: Vec<u64> =
                    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
                let steps = if kernel.geometry().bytes { pairs } else { 2 * pairs };
                let run = |instructions: &dyn Fn(Words, &mut [[i32; 2]])| {
                    let mut words = [(); 3].map(|()| vec![0; steps * lanes]);
                    let mut offsets: Vec<[i32; 2]> =
                        (0..lanes as i32).map(|i| [i32::MAX - i, -5 * i]).collect();
                    instructions(words.each_mut().map(Vec::as_mut_slice), &mut offsets);
                    (words, offsets)
                };
                let fast = run(&|words, offsets| spread(kernel, &stage, pairs, words, offsets));
                let slow = run(&|words, offsets| portable(kernel, &stage, pairs, words, offsets));
                assert!(fast == slow, "{kernel:?}, {pairs} pairs");
            }
        }
    }
}
