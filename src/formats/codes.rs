//! Numbers of 1, 2 or 4 bits, several in a byte.

/// Encoding of a number: which level a code means.
///
/// Levels of the quantiser are odd integers (1 bit: -1 and 1; 2 bits: -3, -1, 1, 3), so that they are symmetric about 0.
/// Numbers of 4 bits in offset binary and two's complement are the integers -8 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Highest bit: sign, 1 for negative; other bits: number of the level from 0 outwards.
    SignMagnitude,
    /// Codes from the lowest level up.
    OffsetBinary,
    /// Codes from the highest level down.
    Descending,
    /// Two's complement.
    TwosComplement,
}

/// Place of the first number in a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Least significant bits.
    Low,
    /// Most significant bits.
    High,
}

/// Levels of all bytes.
#[derive(Clone)]
pub struct Codes {
    per_byte: usize,
    table: Vec<[i8; 8]>,
}

impl Codes {
    /// Widths of numbers in bits.
    pub const BITS: [u8; 3] = [1, 2, 4];

    /// Creates the levels of numbers of `bits` bits; `None` for another width than [`BITS`](Self::BITS).
    #[must_use]
    pub fn new(bits: u8, encoding: Encoding, first: First) -> Option<Self> {
        let per_byte = 8 / usize::from(Self::BITS.contains(&bits).then_some(bits)?);
        let levels = |byte: usize| {
            std::array::from_fn(|n| {
                let place = match first {
                    First::Low => n % per_byte,
                    First::High => per_byte - 1 - n % per_byte,
                };
                level(byte as u8 >> (place * usize::from(bits)), bits, encoding)
            })
        };
        Some(Self { per_byte, table: (0..256).map(levels).collect() })
    }

    /// Reads numbers from `bytes` until `out` is full.
    pub fn unpack(&self, bytes: &[u8], out: &mut [i8]) {
        for (out, byte) in out.chunks_mut(self.per_byte).zip(bytes) {
            out.copy_from_slice(&self.table[usize::from(*byte)][..out.len()]);
        }
    }
}

/// Level of the code in the lowest `bits` bits.
fn level(byte: u8, bits: u8, encoding: Encoding) -> i8 {
    let codes = 1_i16 << bits;
    let code = i16::from(byte) & (codes - 1);
    let middle = codes / 2;
    let step = |step: i16| if bits == 4 { step } else { 2 * step + 1 };
    let level = match encoding {
        Encoding::SignMagnitude => {
            let magnitude = 2 * (code & (middle - 1)) + 1;
            if code >= middle { -magnitude } else { magnitude }
        }
        Encoding::OffsetBinary => step(code - middle),
        Encoding::Descending => step(middle - 1 - code),
        Encoding::TwosComplement => step(if code >= middle { code - codes } else { code }),
    };
    level as i8
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn unpacked(bits: u8, encoding: Encoding, first: First, bytes: &[u8]) -> Vec<i8> {
        let mut out = vec![0; 8 * bytes.len() / usize::from(bits)];
        Codes::new(bits, encoding, first).unwrap().unpack(bytes, &mut out);
        out
    }

    #[test]
    fn two_bits_have_the_levels_of_their_encoding() {
        let byte = [0b11_10_01_00];
        let of = |encoding| unpacked(2, encoding, First::Low, &byte);
        assert_eq!(of(Encoding::SignMagnitude), [1, 3, -1, -3]);
        assert_eq!(of(Encoding::OffsetBinary), [-3, -1, 1, 3]);
        assert_eq!(of(Encoding::Descending), [3, 1, -1, -3]);
        assert_eq!(of(Encoding::TwosComplement), [1, 3, -3, -1]);
        let high = unpacked(2, Encoding::SignMagnitude, First::High, &byte);
        assert_eq!(high, [-3, -1, 3, 1]);
    }

    #[test]
    fn one_and_four_bits_have_the_levels_of_their_encoding() {
        let of = |encoding| unpacked(1, encoding, First::Low, &[0b0000_0101])[..4].to_vec();
        assert_eq!(of(Encoding::SignMagnitude), [-1, 1, -1, 1]);
        assert_eq!(of(Encoding::OffsetBinary), [1, -1, 1, -1]);
        assert_eq!(of(Encoding::TwosComplement), [-1, 1, -1, 1]);
        let of = |encoding| unpacked(4, encoding, First::High, &[0x80, 0x7f]);
        assert_eq!(of(Encoding::TwosComplement), [-8, 0, 7, -1]);
        assert_eq!(of(Encoding::OffsetBinary), [0, -8, -1, 7]);
        assert_eq!(of(Encoding::SignMagnitude), [-1, 1, 15, -15]);
    }

    #[test]
    fn other_widths_are_none_and_short_slices_end() {
        assert!(Codes::new(3, Encoding::OffsetBinary, First::Low).is_none());
        let codes = Codes::new(2, Encoding::OffsetBinary, First::Low).unwrap();
        let mut out = [9; 6];
        codes.unpack(&[0], &mut out);
        assert_eq!(out, [-3, -3, -3, -3, 9, 9]);
        let mut out = [9; 3];
        codes.unpack(&[0xff], &mut out);
        assert_eq!(out, [3; 3]);
    }
}
