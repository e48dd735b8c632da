//! Headers of frames.

use super::samples::is_width;

/// Longest frame in bytes that a header can express.
pub const MAX_FRAME_BYTES: u32 = ((1 << 24) - 1) * 8;
/// Word 5 of headers with EDV 1 and 3.
pub const SYNC: u32 = 0xacab_feed;
/// Largest base-2 logarithm of the number of channels that this module reads.
const MAX_LOG2_CHANNELS: u32 = 16;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether the samples of the frame are invalid.
    pub is_invalid: bool,
    /// Whether the header has 16 bytes, without the extended words.
    pub is_legacy: bool,
    /// Seconds since the reference epoch, 30 bits.
    pub seconds: u32,
    /// Reference epoch: half-years since 2000, 6 bits.
    pub epoch: u8,
    /// Number of the frame within the second, 24 bits.
    pub frame: u32,
    /// Version of the format, 3 bits.
    pub version: u8,
    /// Base-2 logarithm of the number of channels.
    pub log2_channels: u8,
    /// Length of header and payload in bytes, a multiple of 8.
    pub frame_bytes: u32,
    /// Whether samples have a real and an imaginary part.
    pub is_complex: bool,
    /// Bits of a real or imaginary part.
    pub bits: u8,
    /// Thread, 10 bits.
    pub thread: u16,
    /// Station: two ASCII characters, the first in the high byte, or a number.
    pub station: u16,
    /// Extended words; the high byte of the first one is the version of the extended data (EDV). Zeros in a legacy
    /// header.
    pub extended: [u32; 4],
}

/// Error of bytes that are no header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The bytes end within the header.
    #[error("a header has 16 or 32 bytes, got {0}")]
    TooShort(usize),
    /// The frame is not longer than its header.
    #[error("a frame must be longer than its header, got {0} bytes")]
    FrameBytes(u32),
    /// Unsupported number of bits.
    #[error("samples must have 1, 2, 4, 8 or 16 bits, got {0}")]
    Bits(u8),
    /// Unsupported number of channels.
    #[error("a frame must have at most 65536 channels, got 2^{0}")]
    Channels(u32),
    /// The payload is not a whole number of samples.
    #[error("a payload of {0} bytes is not a whole number of samples of all channels")]
    Samples(u32),
}

impl Header {
    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let short = HeaderError::TooShort(bytes.len());
        let words = bytes.as_chunks::<4>().0;
        let word = |n: usize| words.get(n).map(|word| u32::from_le_bytes(*word)).ok_or(short);
        let [w0, w1, w2, w3] = [word(0)?, word(1)?, word(2)?, word(3)?];
        let is_legacy = w0 >> 30 & 1 == 1;
        let extended = if is_legacy { [0; 4] } else { [word(4)?, word(5)?, word(6)?, word(7)?] };
        let log2_channels = w2 >> 24 & 31;
        if log2_channels > MAX_LOG2_CHANNELS {
            return Err(HeaderError::Channels(log2_channels));
        }
        let header = Self {
            is_invalid: w0 >> 31 == 1,
            is_legacy,
            seconds: w0 & 0x3fff_ffff,
            epoch: (w1 >> 24 & 63) as u8,
            frame: w1 & 0xff_ffff,
            version: (w2 >> 29) as u8,
            log2_channels: log2_channels as u8,
            frame_bytes: (w2 & 0xff_ffff) * 8,
            is_complex: w3 >> 31 == 1,
            bits: (w3 >> 26 & 31) as u8 + 1,
            thread: (w3 >> 16 & 0x3ff) as u16,
            station: w3 as u16,
            extended,
        };
        if header.frame_bytes <= header.header_bytes() {
            return Err(HeaderError::FrameBytes(header.frame_bytes));
        }
        if !is_width(header.bits) {
            return Err(HeaderError::Bits(header.bits));
        }
        let payload_bytes = header.payload_bytes();
        if !(8 * u64::from(payload_bytes)).is_multiple_of(header.sample_bits()) {
            return Err(HeaderError::Samples(payload_bytes));
        }
        Ok(header)
    }

    /// Writes the header to the beginning of `out`. Fields that exceed their bits are cut.
    ///
    /// # Panics
    /// If `out` is shorter than the header.
    pub fn write(&self, out: &mut [u8]) {
        let flag = |is_set: bool, bit: u32| u32::from(is_set) << bit;
        let words = [
            flag(self.is_invalid, 31) | flag(self.is_legacy, 30) | self.seconds & 0x3fff_ffff,
            u32::from(self.epoch & 63) << 24 | self.frame & 0xff_ffff,
            u32::from(self.version & 7) << 29
                | u32::from(self.log2_channels & 31) << 24
                | (self.frame_bytes / 8) & 0xff_ffff,
            flag(self.is_complex, 31)
                | u32::from(self.bits.wrapping_sub(1) & 31) << 26
                | u32::from(self.thread & 0x3ff) << 16
                | u32::from(self.station),
        ];
        let out = &mut out[..self.header_bytes() as usize];
        let words = words.iter().chain(&self.extended);
        for (out, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *out = word.to_le_bytes();
        }
    }

    /// Length of the header in bytes.
    #[must_use]
    pub fn header_bytes(&self) -> u32 {
        if self.is_legacy { 16 } else { 32 }
    }

    /// Length of the payload in bytes.
    #[must_use]
    pub fn payload_bytes(&self) -> u32 {
        self.frame_bytes.saturating_sub(self.header_bytes())
    }

    /// Number of channels.
    #[must_use]
    pub fn channels(&self) -> usize {
        1 << self.log2_channels
    }

    /// Bits of one sample of all channels.
    fn sample_bits(&self) -> u64 {
        let parts = if self.is_complex { 2 } else { 1 };
        (u64::from(self.bits) * parts) << self.log2_channels
    }

    /// Samples of each channel in a frame.
    #[must_use]
    pub fn samples(&self) -> usize {
        (8 * u64::from(self.payload_bytes()) / self.sample_bits()) as usize
    }

    /// Version of the extended data; 0 for none.
    #[must_use]
    pub fn edv(&self) -> u8 {
        (self.extended[0] >> 24) as u8
    }

    /// Samples of a channel per second, if the header has EDV 1 or 3 and gives the rate. The field in the header is
    /// the rate of complex samples, or half the rate of real samples.
    #[must_use]
    pub fn sample_rate_hz(&self) -> Option<u64> {
        let [word, sync, ..] = self.extended;
        let unit = if word >> 23 & 1 == 1 { 1_000_000 } else { 1000 };
        let rate = u64::from(word & 0x7f_ffff) * unit * if self.is_complex { 1 } else { 2 };
        (matches!(self.edv(), 1 | 3) && sync == SYNC && rate > 0).then_some(rate)
    }

    /// Returns the extended words of EDV 1 with the sample rate and a name of up to 8 ASCII characters, or `None` if
    /// the field cannot express the rate: complex samples at a whole number of kHz, or real samples at twice that,
    /// below 8388.608 GHz.
    #[must_use]
    pub fn edv1(rate_hz: u64, is_complex: bool, name: &str) -> Option<[u32; 4]> {
        let unit = if is_complex { 1000 } else { 2000 };
        let khz = rate_hz.is_multiple_of(unit).then_some(rate_hz / unit)?;
        let (flag, value) = if khz.is_multiple_of(1000) { (1 << 23, khz / 1000) } else { (0, khz) };
        let value = u32::try_from(value).ok().filter(|value| (1..1 << 23).contains(value))?;
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        let [low, high] = [0, 4]
            .map(|at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        Some([1 << 24 | flag | value, SYNC, low, high])
    }

    /// Whether `other` has the same format, as frames of one file do.
    #[must_use]
    pub fn has_format(&self, other: &Self) -> bool {
        let format = |header: &Self| {
            let sizes = (header.frame_bytes, header.log2_channels, header.bits);
            (header.is_legacy, header.is_complex, sizes, header.edv())
        };
        format(self) == format(other)
    }
}

/// Returns the field for the station `name`: one or two ASCII letters or digits as characters, or a number in the
/// form `0x12` or of three to five digits.
#[must_use]
pub fn station(name: &str) -> Option<u16> {
    if let Some(digits) = name.strip_prefix("0x") {
        return u16::from_str_radix(digits, 16).ok();
    }
    match name.as_bytes() {
        [] => Some(0),
        letters if letters.len() <= 2 && letters.iter().all(u8::is_ascii_graphic) => {
            Some(letters.iter().fold(0, |field, letter| field << 8 | u16::from(*letter)))
        }
        _ => name.parse().ok(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            is_invalid: true,
            is_legacy: false,
            seconds: 12_345_678,
            epoch: 52,
            frame: 1023,
            version: 1,
            log2_channels: 1,
            frame_bytes: 5032,
            is_complex: true,
            bits: 2,
            thread: 7,
            station: station("Mk").unwrap(),
            extended: Header::edv1(32_000_000, true, "MEERKAT").unwrap(),
        }
    }

    #[test]
    fn header_has_the_bits_of_the_specification() {
        let mut bytes = [0; 32];
        header().write(&mut bytes);
        let words: Vec<u32> =
            bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        assert_eq!(words[0], 1 << 31 | 0x00bc_614e);
        assert_eq!(words[1], 52 << 24 | 1023);
        assert_eq!(words[2], 1 << 29 | 1 << 24 | 0x275);
        assert_eq!(words[3], 1 << 31 | 1 << 26 | 7 << 16 | 0x4d6b);
        assert_eq!(words[4..6], [1 << 24 | 1 << 23 | 32, SYNC]);
        assert_eq!(&bytes[24..], b"MEERKAT\0");
    }

    #[test]
    fn sample_rate_of_real_samples_is_twice_the_field() {
        assert_eq!(header().sample_rate_hz(), Some(32_000_000));
        let real = Header {
            is_complex: false,
            extended: Header::edv1(31_250_000, false, "").unwrap(),
            ..header()
        };
        assert_eq!(real.extended[0] & 0xff_ffff, 15_625);
        assert_eq!(real.sample_rate_hz(), Some(31_250_000));
        assert_eq!(Header::edv1(31_251_000, false, ""), None);
        assert_eq!(Header::edv1(0, true, ""), None);
        let other = Header { extended: [5 << 24 | 32, SYNC, 0, 0], ..header() };
        assert_eq!(other.sample_rate_hz(), None);
    }

    #[test]
    fn stations_are_characters_or_numbers() {
        assert_eq!(station("Ef"), Some(0x4566));
        assert_eq!(station("A"), Some(0x41));
        assert_eq!(station("0x1f"), Some(31));
        assert_eq!(station("65535"), Some(65535));
        assert_eq!(station(""), Some(0));
        for wrong in ["65536", "Eff", "0xfffff", "\u{e9}"] {
            assert_eq!(station(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn invalid_headers_have_a_reason() {
        let parse = |change: fn(&mut Header)| {
            let mut header = header();
            change(&mut header);
            let mut bytes = [0; 32];
            header.write(&mut bytes);
            Header::parse(&bytes).unwrap_err()
        };
        assert_eq!(parse(|h| h.frame_bytes = 32), HeaderError::FrameBytes(32));
        assert_eq!(parse(|h| h.bits = 3), HeaderError::Bits(3));
        assert_eq!(parse(|h| h.log2_channels = 17), HeaderError::Channels(17));
        assert_eq!(parse(|h| h.log2_channels = 7), HeaderError::Samples(5000));
        assert_eq!(Header::parse(&[0; 31]), Err(HeaderError::TooShort(31)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_a_header_that_survives_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert!(header.samples() > 0);
                prop_assert!(header.frame_bytes <= MAX_FRAME_BYTES);
                let _ = (header.sample_rate_hz(), header.edv(), header.channels());
                let mut written = [0; 32];
                header.write(&mut written);
                prop_assert_eq!(Header::parse(&written), Ok(header));
            }
        }
    }
}
