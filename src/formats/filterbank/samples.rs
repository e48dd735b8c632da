//! Values of spectra: 1 to 32 bits.

/// Writes the values of `bytes`, of `nbits` each, to `values`, as far as both reach. Values of less than 8 bits begin
/// at the least significant bit of a byte.
pub fn unpack(nbits: u32, is_signed: bool, bytes: &[u8], values: &mut [f32]) {
    match nbits {
        32 => {
            let (numbers, _) = bytes.as_chunks();
            values.iter_mut().zip(numbers).for_each(|(to, from)| *to = f32::from_le_bytes(*from));
        }
        16 => {
            let (numbers, _) = bytes.as_chunks();
            let pairs = values.iter_mut().zip(numbers);
            pairs.for_each(|(to, from)| *to = f32::from(u16::from_le_bytes(*from)));
        }
        8 if is_signed => {
            let pairs = values.iter_mut().zip(bytes);
            pairs.for_each(|(to, from)| *to = f32::from(from.cast_signed()));
        }
        8 => values.iter_mut().zip(bytes).for_each(|(to, from)| *to = f32::from(*from)),
        1 | 2 | 4 => {
            let (per_byte, mask) = (8 / nbits as usize, (1_u8 << nbits) - 1);
            for (to, byte) in values.chunks_mut(per_byte).zip(bytes) {
                let places = (0..8).step_by(nbits as usize);
                to.iter_mut().zip(places).for_each(|(to, at)| *to = f32::from((byte >> at) & mask));
            }
        }
        _ => {}
    }
}

/// Converts values to the numbers of a file: floats as they are, or unsigned integers
/// `round(scale x value + offset)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiser {
    /// Bits of a number: 8, 16, or 32 for floats.
    pub nbits: u32,
    /// Factor of a value.
    pub scale: f32,
    /// Number for the value 0.
    pub offset: f32,
}

impl Quantiser {
    /// Integer for `value` with 8 or 16 bits, and whether it was clipped.
    #[inline]
    #[must_use]
    pub fn integer(&self, value: f32) -> (u16, bool) {
        let largest = if self.nbits == 8 { 255.0 } else { 65535.0 };
        let number = (value * self.scale + self.offset).round_ties_even();
        // NaN stays NaN and is converted to 0.
        (number.clamp(0.0, largest) as u16, !(0.0..=largest).contains(&number))
    }

    /// Appends the numbers for `values` to `bytes`; returns the number of values that were clipped to the range of the
    /// integers. NaN becomes 0 and counts as clipped. A value midway between two integers becomes the even one.
    pub fn pack(&self, values: &[f32], bytes: &mut Vec<u8>) -> u64 {
        if self.nbits == 32 {
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            return 0;
        }
        let mut clipped = 0;
        let mut number = |value: &f32| {
            let (number, is_clipped) = self.integer(*value);
            clipped += u64::from(is_clipped);
            number
        };
        if self.nbits == 8 {
            bytes.extend(values.iter().map(|value| number(value) as u8));
        } else {
            bytes.extend(values.iter().flat_map(|value| number(value).to_le_bytes()));
        }
        clipped
    }
}
