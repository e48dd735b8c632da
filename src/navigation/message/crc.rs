//! CRC-24Q, the check of CNAV, I/NAV and F/NAV.

/// Generator polynomial without its highest term: x^23 + x^17 + ... (IS-GPS-200, 30.3.5; Galileo OS SIS ICD,
/// 5.1.9.4).
const POLYNOMIAL: u32 = 0x86_4CFB;

/// Returns the CRC of `bits`, first one first, with an initial value of 0.
pub fn crc24q(bits: impl IntoIterator<Item = bool>) -> u32 {
    let step = |crc: u32, bit: bool| {
        let carry = (crc >> 23 & 1 == 1) != bit;
        (crc << 1 & 0xFF_FFFF) ^ if carry { POLYNOMIAL } else { 0 }
    };
    bits.into_iter().fold(0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_published_check_string() {
        // CRC-24/LTE-A of "123456789" in the catalogue of parametrised CRC algorithms: the same polynomial and initial value.
        let bits =
            b"123456789".iter().flat_map(|byte| (0..8).rev().map(move |n| byte >> n & 1 == 1));
        assert_eq!(crc24q(bits), 0xCD_E703);
    }
}
