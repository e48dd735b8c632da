//! Samples in payloads: offset binary of 1, 2, 4, 8 or 16 bits, the first sample in the least significant bits.

/// Widths of samples in bits.
pub const BITS: [u8; 5] = [1, 2, 4, 8, 16];
/// Outer level of 2-bit samples whose inner level is 1: optimal for correlation of Gaussian noise with the threshold
/// [`THRESHOLD`].
pub const HIGH_LEVEL: f32 = 3.3359;
/// Threshold between inner and outer levels of 2-bit samples, in units of the rms.
pub const THRESHOLD: f32 = 0.9816;

/// Whether samples of `bits` bits are supported.
#[must_use]
pub fn is_width(bits: u8) -> bool {
    BITS.contains(&bits)
}

/// Returns the rms in steps of the quantiser for samples whose rms is measured. 4 and 8 bits have the rms that
/// mark5access and baseband expect. `None` for 1 and 2 bits, whose thresholds are relative to the rms.
#[must_use]
pub fn nominal_rms(bits: u8) -> Option<f32> {
    match bits {
        4 => Some(2.95),
        8 => Some(35.5),
        16 => Some(2048.0),
        _ => None,
    }
}

/// Returns the code of `value`: in units of the rms for 1 and 2 bits, otherwise in steps. NaN is 0.
#[inline(always)]
fn code(value: f32, bits: u8) -> u16 {
    match bits {
        1 => u16::from(value >= 0.0 || value.is_nan()),
        2 => {
            let is_high = value.abs() >= THRESHOLD;
            match (value < 0.0, is_high) {
                (true, true) => 0,
                (true, false) => 1,
                (false, false) => 2,
                (false, true) => 3,
            }
        }
        _ => {
            let middle = 1_i32 << (bits - 1);
            // The conversion saturates, and NaN becomes 0.
            let step = (value.round_ties_even() as i32).clamp(-middle, middle - 1);
            (step + middle) as u16
        }
    }
}

/// Converts all samples of `payload` from two's complement to offset binary, or back: the codes differ in their
/// highest bit, which is the only one of 1-bit samples.
pub fn flip_encoding(payload: &mut [u8], bits: u8) {
    let masks = match bits {
        1 => [0xff; 2],
        2 => [0xaa; 2],
        4 => [0x88; 2],
        8 => [0x80; 2],
        _ => [0x00, 0x80],
    };
    payload.iter_mut().zip(masks.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
}

/// Returns the fraction of the codes of `payload` that are in the middle half of their range. In offset binary most
/// codes of noise are there, in two's complement at most half of them. `None` for 1 bit.
#[must_use]
pub fn middle_fraction(payload: &[u8], bits: u8) -> Option<f64> {
    let mut values = vec![0.0; 8 * payload.len() / usize::from(bits.max(1))];
    unpack(payload, bits, true, &mut values);
    // Values of 2 bits are -3, -1, 1, 3, others the code minus the middle.
    let quarter = if bits == 2 { 2.0 } else { (1_u32 << (bits - 1)) as f32 / 2.0 };
    let middle = values.iter().filter(|value| value.abs() < quarter).count();
    (bits > 1 && !values.is_empty()).then(|| middle as f64 / values.len() as f64)
}

/// Writes `values` as samples number `first`, `first + 1`, ... of a payload whose other samples keep their value; the
/// bits of the written samples must be 0 before. Values are in units of the rms for 1 and 2 bits, otherwise in steps
/// of the quantiser, and are clipped to its range. Values beyond the end of `payload` are ignored.
pub fn pack(values: &[f32], bits: u8, first: usize, payload: &mut [u8]) {
    match bits {
        1 => pack_width::<1>(values, first, payload),
        2 => pack_width::<2>(values, first, payload),
        4 => pack_width::<4>(values, first, payload),
        8 => pack_width::<8>(values, first, payload),
        _ => {
            let places = payload.as_chunks_mut::<2>().0.iter_mut().skip(first);
            for (place, value) in places.zip(values) {
                *place = code(*value, 16).to_le_bytes();
            }
        }
    }
}

fn pack_width<const BITS: usize>(values: &[f32], first: usize, payload: &mut [u8]) {
    let per_byte = 8 / BITS;
    // Up to the first whole byte.
    let ahead = (first.next_multiple_of(per_byte) - first).min(values.len());
    let (head, values) = values.split_at(ahead);
    if let Some(byte) = payload.get_mut(first / per_byte) {
        for (n, value) in head.iter().enumerate() {
            *byte |= (code(*value, BITS as u8) as u8) << ((first + n) % per_byte * BITS);
        }
    }
    let bytes = payload.iter_mut().skip((first + ahead) / per_byte);
    for (byte, values) in bytes.zip(values.chunks(per_byte)) {
        for (n, value) in values.iter().enumerate() {
            *byte |= (code(*value, BITS as u8) as u8) << (n * BITS);
        }
    }
}

/// Reads the samples of `payload` into all of `out`: levels -1, 1 for 1 bit, -[`HIGH_LEVEL`], -1, 1, [`HIGH_LEVEL`]
/// for 2 bits, otherwise the code minus the middle of its range. With `is_integer` 1 and 2 bits are odd integers:
/// -1, 1 and -3, -1, 1, 3. Samples after the end of `payload` are 0.
pub fn unpack(payload: &[u8], bits: u8, is_integer: bool, out: &mut [f32]) {
    let high = if is_integer { 3.0 } else { HIGH_LEVEL };
    match bits {
        1 => unpack_width::<1>(payload, &[-1.0, 1.0], out),
        2 => unpack_width::<2>(payload, &[-high, -1.0, 1.0, high], out),
        4 => unpack_width::<4>(payload, &std::array::from_fn::<_, 16, _>(|n| n as f32 - 8.0), out),
        8 => {
            let mut bytes = payload.iter();
            out.fill_with(|| bytes.next().map_or(0.0, |byte| f32::from(*byte) - 128.0));
        }
        _ => {
            let mut words = payload.as_chunks::<2>().0.iter();
            let value = |word: &[u8; 2]| f32::from(u16::from_le_bytes(*word)) - 32768.0;
            out.fill_with(|| words.next().map_or(0.0, value));
        }
    }
}

fn unpack_width<const BITS: usize>(payload: &[u8], levels: &[f32], out: &mut [f32]) {
    let mut bytes = payload.iter();
    for out in out.chunks_mut(8 / BITS) {
        let byte = bytes.next().copied();
        for (n, out) in out.iter_mut().enumerate() {
            let code = |byte: u8| levels[usize::from(byte >> (n * BITS)) & ((1 << BITS) - 1)];
            *out = byte.map_or(0.0, code);
        }
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "levels are exact")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_sample_is_in_the_least_significant_bits() {
        let mut payload = [0; 2];
        pack(&[-9.0, -0.5, 0.5, 9.0, 0.0], 2, 0, &mut payload);
        assert_eq!(payload, [0b11_10_01_00, 0b10]);
        let mut payload = [0; 1];
        pack(&[-1.0, 1.0, 0.0, f32::NAN, -0.1], 1, 0, &mut payload);
        assert_eq!(payload, [0b0_1110]);
        let mut payload = [0; 3];
        pack(&[-128.4, 500.0], 8, 1, &mut payload);
        assert_eq!(payload, [0, 0, 255]);
        let mut payload = [0; 4];
        pack(&[-32768.0, f32::INFINITY], 16, 0, &mut payload);
        assert_eq!(payload, [0, 0, 255, 255]);
    }

    #[test]
    fn threshold_of_two_bits_is_inclusive_of_the_outer_level() {
        let mut payload = [0; 1];
        pack(&[THRESHOLD, -THRESHOLD, 0.981, -0.981], 2, 0, &mut payload);
        assert_eq!(payload, [0b01_10_00_11]);
        let mut levels = [0.0; 5];
        unpack(&payload, 2, false, &mut levels);
        assert_eq!(levels, [HIGH_LEVEL, -HIGH_LEVEL, 1.0, -1.0, 0.0]);
    }

    #[test]
    fn flipped_encoding_is_twos_complement() {
        for bits in [4_u8, 8, 16] {
            let mut payload: Vec<u8> = match bits {
                4 => vec![0x1f, 0x80],
                8 => vec![255, 1, 128],
                _ => vec![0xff, 0xff, 1, 0],
            };
            flip_encoding(&mut payload, bits);
            let mut values = vec![0.0; 8 * payload.len() / usize::from(bits)];
            unpack(&payload, bits, true, &mut values);
            let expected: &[f32] = match bits {
                4 => &[-1.0, 1.0, 0.0, -8.0],
                8 => &[-1.0, 1.0, -128.0],
                _ => &[-1.0, 1.0],
            };
            assert_eq!(values, expected);
        }
        // 0, 1, -2, -1 of two bits are +1, +3, -3, -1.
        let mut payload = [0b11_10_01_00];
        flip_encoding(&mut payload, 2);
        let mut levels = [0.0; 4];
        unpack(&payload, 2, true, &mut levels);
        assert_eq!(levels, [1.0, 3.0, -3.0, -1.0]);
    }

    #[test]
    fn middle_fraction_tells_the_encodings_apart() {
        let noise = |n: u32| ((n.wrapping_mul(2_654_435_761) >> 16) % 41) as i8 - 20;
        let mut payload: Vec<u8> = (0..1000).map(|n| noise(n).cast_unsigned() ^ 0x80).collect();
        assert_eq!(middle_fraction(&payload, 8), Some(1.0));
        flip_encoding(&mut payload, 8);
        assert_eq!(middle_fraction(&payload, 8), Some(0.0));
        // 2 bits: the inner levels have 67 % of noise with the usual threshold.
        assert_eq!(middle_fraction(&[0b01_10_01_11], 2), Some(0.75));
        assert_eq!(middle_fraction(&[0], 1), None);
    }

    proptest! {
        #[test]
        fn codes_survive_packing_in_parts(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            width in 0..BITS.len(),
            cut in 0..600_usize,
        ) {
            let bits = BITS[width];
            let count = 8 * bytes.len() / usize::from(bits);
            let mut values = vec![0.0; count];
            unpack(&bytes, bits, false, &mut values);
            if bits == 2 {
                // In units of an rms that is between the levels.
                values.iter_mut().for_each(|value| *value /= 2.0);
            }
            let mut packed = vec![0; bytes.len()];
            let (head, tail) = values.split_at(cut.min(count));
            pack(head, bits, 0, &mut packed);
            pack(tail, bits, head.len(), &mut packed);
            let whole = count * usize::from(bits) / 8;
            prop_assert_eq!(&packed[..whole], &bytes[..whole]);
        }

        #[test]
        fn values_beyond_the_payload_are_ignored(
            values in proptest::collection::vec(any::<f32>(), 0..64),
            width in 0..BITS.len(),
            first in 0..100_usize,
            length in 0..16_usize,
        ) {
            pack(&values, BITS[width], first, &mut vec![0; length]);
        }
    }
}
