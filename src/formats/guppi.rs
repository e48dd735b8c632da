//! GUPPI raw: channelised voltages in blocks, each with a header of FITS cards.
//!
//! A header is a sequence of cards of 80 characters up to the card `END`, padded to a multiple of 512 bytes if
//! `DIRECTIO` is 1. The block after it has `BLOCSIZE` bytes: `[antenna][channel][time][polarisation]` complex numbers
//! of two signed integers of `NBITS` bits. `NPOL` counts real and imaginary parts: 4 for two polarisations.
//!
//! 16 bits are little-endian. 4 bits have the real part in the high half of a byte. 2 bits have two conventions; see
//! [`TwoBit`].

use crate::codes::{Codes, Encoding, First};
use fxgraph_time::{SECOND_PICOSECONDS, Time};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Length of a card in bytes.
pub const CARD_BYTES: usize = 80;
/// Headers are padded to a multiple of this many bytes if `DIRECTIO` is 1.
pub const DIRECT_BYTES: usize = 512;
/// Largest number of cards of a header.
pub const MAX_CARDS: usize = 1024;
/// Largest header in bytes, with its padding.
pub const MAX_HEADER_BYTES: usize = (MAX_CARDS * CARD_BYTES).next_multiple_of(DIRECT_BYTES);
/// Longest text in a card.
const MAX_TEXT: usize = 68;

/// Value of a card.
enum Value<'a> {
    Integer(u64),
    Float(f64),
    Text(&'a str),
}

/// Writes `text` in quotes, padded to 8 characters. Characters that a card cannot hold become `_`.
fn write_text(out: &mut Vec<u8>, text: &str) -> io::Result<()> {
    let is_plain = |c: &char| (' '..='~').contains(c) && !"'=/".contains(*c);
    write!(out, "'")?;
    let begin = out.len();
    out.extend(text.chars().take(MAX_TEXT).map(|c| if is_plain(&c) { c as u8 } else { b'_' }));
    out.resize(out.len().max(begin + 8), b' ');
    write!(out, "'")
}

/// Convention of 2-bit numbers. Their levels are -3, -1, 1 and 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TwoBit {
    /// Breakthrough Listen: codes from the highest value down, the first number in the highest bits of a byte.
    Breakthrough,
    /// GUPPI and PUPPI as dspsr reads them: codes from the lowest value up, the first number in the lowest bits.
    Puppi,
}

impl TwoBit {
    /// Levels of the numbers.
    #[must_use]
    pub fn codes(self) -> Option<Codes> {
        match self {
            Self::Breakthrough => Codes::new(2, Encoding::Descending, First::High),
            Self::Puppi => Codes::new(2, Encoding::OffsetBinary, First::Low),
        }
    }
}

/// Header of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Number of antennas.
    pub antennas: usize,
    /// Channels of each antenna.
    pub channels: usize,
    /// Polarisations.
    pub pols: usize,
    /// Bits of a real or imaginary part: 2, 4, 8 or 16.
    pub bits: u8,
    /// Length of the block in bytes.
    pub block_bytes: u64,
    /// Spectra at the end of the block that are repeated in the next one.
    pub overlap: usize,
    /// Whether the header is padded to a multiple of 512 bytes.
    pub is_direct: bool,
    /// Frequency at the centre of the channels in MHz.
    pub centre_mhz: f64,
    /// Width of all channels in MHz; negative if frequencies decrease.
    pub bandwidth_mhz: f64,
    /// Time from one spectrum to the next in seconds.
    pub spectrum_seconds: f64,
    /// Time of the spectrum with packet index 0.
    pub start: Time,
    /// Index of the packet with the first spectrum of the block.
    pub packet_index: u64,
    /// Bytes of a packet.
    pub packet_bytes: u64,
    /// Packets of a block without its overlap; 0 if they are as many as `packet_bytes` gives.
    pub packets_per_block: u64,
    /// Fraction of the block that is missing.
    pub dropped: f64,
    /// Fraction of the recording so far that is missing.
    pub dropped_in_total: f64,
    /// Name of the telescope.
    pub telescope: String,
    /// Name of the source.
    pub source: String,
    /// Name of the recorder.
    pub backend: String,
    /// Values of the header that contradict each other, as texts.
    pub contradictions: Vec<String>,
}

/// Error of bytes that are no header of a block.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HeaderError {
    /// The bytes end before the card `END`.
    #[error("the header has no card END within {0} bytes")]
    NoEnd(usize),
    /// A card is no text, or has no `=` after its keyword.
    #[error("card {0} of the header is not `KEYWORD = value`")]
    Card(usize),
    /// A keyword is missing.
    #[error("the header has no {0}")]
    Missing(&'static str),
    /// The value of a keyword is not supported.
    #[error("{keyword} must be {expected}, got {found}")]
    Value {
        /// Keyword.
        keyword: &'static str,
        /// Valid values.
        expected: &'static str,
        /// Value in the header.
        found: String,
    },
}

/// Cards by keyword, with their values as text.
struct Cards(BTreeMap<String, String>);

impl Cards {
    fn text(&self, keyword: &'static str) -> Option<&str> {
        self.0.get(keyword).map(String::as_str)
    }

    fn number<T: std::str::FromStr>(
        &self,
        keyword: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, HeaderError> {
        let Some(text) = self.text(keyword) else { return Ok(None) };
        let wrong = |_| HeaderError::Value { keyword, expected, found: text.to_owned() };
        text.parse().map(Some).map_err(wrong)
    }

    fn integer(&self, keyword: &'static str) -> Result<Option<u64>, HeaderError> {
        // Some writers give whole numbers as floats.
        let Some(text) = self.text(keyword) else { return Ok(None) };
        if let Ok(number) = text.parse() {
            return Ok(Some(number));
        }
        let number: Option<f64> = self.number(keyword, "a whole number")?;
        let is_whole = |number: &f64| number.fract() == 0.0 && (0.0..=9e15).contains(number);
        let wrong = HeaderError::Value {
            keyword,
            expected: "a whole number from 0 on",
            found: text.to_owned(),
        };
        number.filter(is_whole).map(|number| Some(number as u64)).ok_or(wrong)
    }

    fn float(&self, keyword: &'static str) -> Result<Option<f64>, HeaderError> {
        let number: Option<f64> = self.number(keyword, "a number")?;
        match number {
            Some(number) if !number.is_finite() => {
                Err(HeaderError::Value { keyword, expected: "finite", found: number.to_string() })
            }
            number => Ok(number),
        }
    }

    fn size(
        &self,
        keyword: &'static str,
        least: u64,
        default: Option<u64>,
    ) -> Result<usize, HeaderError> {
        let number = self.integer(keyword)?.or(default).ok_or(HeaderError::Missing(keyword))?;
        let is_size = number >= least && number <= 1 << 32;
        let wrong = || HeaderError::Value {
            keyword,
            expected: "a positive number up to 2^32",
            found: number.to_string(),
        };
        is_size.then_some(number as usize).ok_or_else(wrong)
    }
}

/// Returns the value of a card: text without quotes and padding, or a number without a comment.
fn value(text: &str) -> String {
    let text = text.trim();
    if let Some(quoted) = text.strip_prefix('\'') {
        return quoted.split('\'').next().unwrap_or_default().trim_end().to_owned();
    }
    text.split('/').next().unwrap_or_default().trim().to_owned()
}

/// Whether a card has a comment and no value.
fn is_comment(card: &str) -> bool {
    matches!(card[..8].trim_end(), "COMMENT" | "HISTORY" | "CONTINUE" | "")
}

impl Header {
    /// Reads the header at the beginning of `bytes`, and returns it with its length, padding included.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), HeaderError> {
        let mut cards = Cards(BTreeMap::new());
        let mut length = None;
        for (n, card) in bytes.as_chunks::<CARD_BYTES>().0.iter().enumerate().take(MAX_CARDS) {
            if card.starts_with(b"END") && card[3..].iter().all(u8::is_ascii_whitespace) {
                length = Some((n + 1) * CARD_BYTES);
                break;
            }
            let text = std::str::from_utf8(card).ok().filter(|text| text.is_ascii());
            if n > 0 && text.is_some_and(is_comment) {
                continue;
            }
            let (keyword, text) =
                text.and_then(|text| text.split_once('=')).ok_or(HeaderError::Card(n + 1))?;
            let keyword = keyword.trim();
            if keyword.is_empty() || keyword.len() > 8 {
                return Err(HeaderError::Card(n + 1));
            }
            cards.0.insert(keyword.to_owned(), value(text));
        }
        let length = length.ok_or(HeaderError::NoEnd(bytes.len()))?;
        let header = Self::of_cards(&cards)?;
        let padded = if header.is_direct { length.next_multiple_of(DIRECT_BYTES) } else { length };
        Ok((header, padded))
    }

    fn of_cards(cards: &Cards) -> Result<Self, HeaderError> {
        let wrong =
            |keyword, expected, found: String| Err(HeaderError::Value { keyword, expected, found });
        let bits = cards.integer("NBITS")?.unwrap_or(8);
        if ![2, 4, 8, 16].contains(&bits) {
            return wrong("NBITS", "2, 4, 8 or 16", bits.to_string());
        }
        if cards.text("PKTFMT") == Some("SIMPLE") {
            return wrong("PKTFMT", "1SFA or another format with channels first", "SIMPLE".into());
        }
        let antennas = cards.size("NANTS", 1, Some(1))?;
        let all_channels = cards.size("OBSNCHAN", 1, None)?;
        if !all_channels.is_multiple_of(antennas) {
            return wrong("OBSNCHAN", "a multiple of NANTS", all_channels.to_string());
        }
        let pols = match cards.size("NPOL", 1, None)? {
            1 | 2 => 1,
            4 => 2,
            other => return wrong("NPOL", "1, 2 or 4", other.to_string()),
        };
        let block_bytes = cards.integer("BLOCSIZE")?.ok_or(HeaderError::Missing("BLOCSIZE"))?;
        let spectrum_bits = 2 * bits * pols as u64 * all_channels as u64;
        let block_bits = block_bytes.checked_mul(8).unwrap_or(0);
        let has_whole_rows = block_bytes.is_multiple_of(all_channels as u64);
        if block_bits == 0 || !block_bits.is_multiple_of(spectrum_bits) || !has_whole_rows {
            let expected = "a multiple of 2 * OBSNCHAN * polarisations * NBITS / 8";
            return wrong("BLOCSIZE", expected, block_bytes.to_string());
        }
        let overlap = cards.size("OVERLAP", 0, Some(0))?;
        if overlap as u64 >= block_bits / spectrum_bits {
            return wrong("OVERLAP", "less than the spectra of a block", overlap.to_string());
        }
        let spectrum_seconds = cards.float("TBIN")?.ok_or(HeaderError::Missing("TBIN"))?;
        if !(1e-12..=1e6).contains(&spectrum_seconds) {
            return wrong("TBIN", "from 1e-12 to 1e6", spectrum_seconds.to_string());
        }
        let text = |keyword| cards.text(keyword).unwrap_or_default().to_owned();
        let (channels, bandwidth_mhz) =
            (all_channels / antennas, cards.float("OBSBW")?.unwrap_or(0.0));
        Ok(Self {
            antennas,
            channels,
            pols,
            bits: bits as u8,
            block_bytes,
            overlap,
            is_direct: cards.integer("DIRECTIO")?.unwrap_or(0) != 0,
            centre_mhz: cards.float("OBSFREQ")?.unwrap_or(0.0),
            bandwidth_mhz,
            spectrum_seconds,
            start: Self::start_of(cards)?,
            packet_index: cards.integer("PKTIDX")?.unwrap_or(0),
            packet_bytes: cards.integer("PKTSIZE")?.unwrap_or(0),
            packets_per_block: cards.integer("PIPERBLK")?.unwrap_or(0),
            dropped: cards.float("DROPBLK")?.unwrap_or(0.0),
            dropped_in_total: cards.float("DROPTOT")?.unwrap_or(0.0),
            telescope: text("TELESCOP"),
            source: text("SRC_NAME"),
            backend: text("BACKEND"),
            contradictions: contradictions(
                bandwidth_mhz / channels as f64,
                cards.float("CHAN_BW").ok().flatten(),
                spectrum_seconds,
            ),
        })
    }

    fn start_of(cards: &Cards) -> Result<Time, HeaderError> {
        // Without a day, the time is unknown.
        let day = cards.integer("STT_IMJD")?.unwrap_or(Time::default().to_mjd().0 as u64);
        let second = cards.float("STT_SMJD")?.unwrap_or(0.0);
        let fraction = cards.float("STT_OFFS")?.unwrap_or(0.0);
        let wrong =
            |keyword, expected, found: String| Err(HeaderError::Value { keyword, expected, found });
        if !(0.0..=86_401.0).contains(&second) {
            return wrong("STT_SMJD", "a second of the day", second.to_string());
        }
        if !(0.0..=1.0).contains(&fraction) {
            return wrong("STT_OFFS", "a fraction of a second", fraction.to_string());
        }
        let picoseconds = ((second.fract() + fraction) * SECOND_PICOSECONDS as f64).round() as u64;
        let time =
            i64::try_from(day).ok().and_then(|day| Time::from_mjd(day, second as i64, picoseconds));
        time.map_or_else(
            || wrong("STT_IMJD", "a modified Julian date before the year 10000", day.to_string()),
            Ok,
        )
    }

    /// Spectra of a block, with those of the overlap.
    #[must_use]
    pub fn spectra(&self) -> u64 {
        8 * self.block_bytes / self.spectrum_bits()
    }

    /// Bits of one spectrum of one channel of one antenna: the polarisations.
    #[must_use]
    pub fn unit_bits(&self) -> u64 {
        2 * self.pols as u64 * u64::from(self.bits)
    }

    /// Bits of one spectrum of all antennas, channels and polarisations.
    #[must_use]
    pub fn spectrum_bits(&self) -> u64 {
        self.unit_bits() * (self.antennas as u64 * self.channels as u64)
    }

    /// Number of the first spectrum of the block, counted from `start`. `None` if the cards of the packets do not give
    /// one.
    #[must_use]
    pub fn first_spectrum(&self) -> Option<u64> {
        let spectra = u128::from(self.spectra() - self.overlap as u64);
        let index = u128::from(self.packet_index);
        let (product, packets) = if self.packets_per_block > 0 {
            (index.checked_mul(spectra)?, u128::from(self.packets_per_block))
        } else if self.packet_bytes > 0 {
            let bits = index.checked_mul(8 * u128::from(self.packet_bytes))?;
            (bits, u128::from(self.spectrum_bits()))
        } else {
            return None;
        };
        let number = product.is_multiple_of(packets).then(|| product / packets)?;
        u64::try_from(number).ok()
    }

    /// Whether the blocks of `other` have the same shape, frequencies and times as those of this header.
    #[must_use]
    pub fn has_format(&self, other: &Self) -> bool {
        let sizes =
            |h: &Self| (h.antennas, h.channels, h.pols, h.bits, h.block_bytes, h.overlap, h.start);
        let band = |h: &Self| [h.centre_mhz, h.bandwidth_mhz, h.spectrum_seconds].map(f64::to_bits);
        sizes(self) == sizes(other) && band(self) == band(other)
    }

    /// Appends the header and its padding to `out`. Characters that a card cannot hold are replaced by `_`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        let all_channels = self.antennas * self.channels;
        // Writing to a vector cannot fail.
        let mut card = |keyword: &str, value: Value<'_>| {
            let end = out.len() + CARD_BYTES;
            let _ = write!(out, "{keyword:<8}= ");
            let _ = match value {
                Value::Integer(number) => write!(out, "{number:>20}"),
                Value::Float(number) => write!(out, "{number:>20?}"),
                Value::Text(text) => write_text(out, text),
            };
            out.resize(end, b' ');
        };
        let (integer, float, text) = (Value::Integer, Value::Float, Value::Text);
        card("BACKEND", text(&self.backend));
        card("TELESCOP", text(&self.telescope));
        card("SRC_NAME", text(&self.source));
        card("OBSFREQ", float(self.centre_mhz));
        card("OBSBW", float(self.bandwidth_mhz));
        card("OBSNCHAN", integer(all_channels as u64));
        card("NANTS", integer(self.antennas as u64));
        card("CHAN_BW", float(self.bandwidth_mhz / self.channels as f64));
        card("TBIN", float(self.spectrum_seconds));
        card("NBITS", integer(self.bits.into()));
        card("NPOL", integer(2 * self.pols as u64));
        card("BLOCSIZE", integer(self.block_bytes));
        card("OVERLAP", integer(self.overlap as u64));
        card("DIRECTIO", integer(self.is_direct.into()));
        let (day, second, picoseconds) = self.start.to_mjd();
        card("STT_IMJD", integer(u64::try_from(day).unwrap_or(0)));
        card("STT_SMJD", integer(second as u64));
        card("STT_OFFS", float(picoseconds as f64 / SECOND_PICOSECONDS as f64));
        card("PKTFMT", text("1SFA"));
        card("PKTIDX", integer(self.packet_index));
        card("PKTSIZE", integer(self.packet_bytes));
        card("PIPERBLK", integer(self.packets_per_block));
        card("DROPBLK", float(self.dropped));
        card("DROPTOT", float(self.dropped_in_total));
        let _ = write!(out, "{:<80}", "END");
        if self.is_direct {
            let length = (out.len() - begin).next_multiple_of(DIRECT_BYTES);
            out.resize(begin + length, 0);
        }
    }
}

/// Texts about the width of a channel, in MHz from `OBSBW` and from `CHAN_BW`, and the time between spectra that
/// contradict each other. Oversampled channels have up to twice as many spectra as their width needs.
fn contradictions(of_band: f64, of_channel: Option<f64>, spectrum_seconds: f64) -> Vec<String> {
    let mut texts = Vec::new();
    if of_band == 0.0 {
        return texts;
    }
    if let Some(width) = of_channel.filter(|width| (width - of_band).abs() > 1e-3 * of_band.abs()) {
        texts.push(format!(
            "a channel has {of_band} MHz by OBSBW and {width} MHz by CHAN_BW; OBSBW is used"
        ));
    }
    let spectra = of_band.abs() * 1e6 * spectrum_seconds;
    if !(0.45..=1.01).contains(&spectra) {
        texts.push(format!(
            "TBIN of {spectrum_seconds} s does not fit a channel of {} MHz; TBIN is used for times",
            of_band.abs()
        ));
    }
    texts
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            antennas: 3,
            channels: 64,
            pols: 2,
            bits: 8,
            block_bytes: 3 * 64 * 256 * 4,
            overlap: 0,
            is_direct: true,
            centre_mhz: 1284.0,
            bandwidth_mhz: -13.375,
            spectrum_seconds: 64.0 / 13.375e6,
            start: Time::from_unix(1_790_000_000, 123_456_789_000).unwrap(),
            packet_index: 512,
            packet_bytes: 768,
            packets_per_block: 256,
            dropped: 0.25,
            dropped_in_total: 1e-9,
            telescope: "MeerKAT".to_owned(),
            source: "J0437-4715".to_owned(),
            backend: "fxgraph".to_owned(),
            contradictions: Vec::new(),
        }
    }

    #[test]
    fn header_survives_its_cards() {
        for is_direct in [true, false] {
            let header = Header { is_direct, ..header() };
            let mut bytes = vec![7; 80];
            header.write(&mut bytes);
            let bytes = &bytes[80..];
            let (parsed, length) = Header::parse(bytes).unwrap();
            assert_eq!((&parsed, length), (&header, bytes.len()));
            assert_eq!(length.is_multiple_of(512), is_direct);
            assert!(parsed.has_format(&header));
            assert_eq!((parsed.spectra(), parsed.first_spectrum()), (256, Some(512)));
        }
    }

    #[test]
    fn cards_are_those_of_fits() {
        let mut bytes = Vec::new();
        let source = "3C 48 'a=b' \u{e9}".to_owned();
        Header { source, ..header() }.write(&mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let card = |name: &str| {
            let cards = text.as_bytes().chunks(80).map(|card| std::str::from_utf8(card).unwrap());
            cards.into_iter().find(|card| card.starts_with(name)).unwrap().trim_end().to_owned()
        };
        assert_eq!(card("OBSNCHAN"), "OBSNCHAN=                  192");
        assert_eq!(card("OBSBW"), "OBSBW   =              -13.375");
        assert_eq!(card("SRC_NAME"), "SRC_NAME= '3C 48 _a_b_ _'");
        assert_eq!(card("STT_SMJD"), "STT_SMJD=                51200");
        assert_eq!(card("STT_IMJD"), "STT_IMJD=                61304");
    }

    #[test]
    fn comments_between_cards_are_skipped() {
        let mut bytes = Vec::new();
        header().write(&mut bytes);
        for comment in ["COMMENT = of = the observer", "HISTORY  x", "CONTINUE  'more'", ""] {
            let card = format!("{comment:<80}").into_bytes();
            bytes.splice(80..80, card);
        }
        // The header has grown by 320 bytes within its padding.
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        assert_eq!(Header::parse(&bytes).unwrap().0, header());
        let comment = [b"COMMENT".to_vec(), vec![0xe9; 73]].concat();
        bytes.splice(80..80, comment);
        assert_eq!(Header::parse(&bytes).unwrap_err(), HeaderError::Card(2));
    }

    #[test]
    fn channel_width_that_contradicts_the_band_is_reported() {
        assert_eq!(contradictions(0.25, Some(0.25), 4e-6), Vec::<String>::new());
        assert_eq!(contradictions(0.25, None, 3.4e-6), Vec::<String>::new());
        // The sample of PUPPI: OBSBW was changed with the length of the recording, CHAN_BW was not.
        let texts = contradictions(0.00025, Some(3.125), 0.004);
        assert_eq!(
            texts,
            ["a channel has 0.00025 MHz by OBSBW and 3.125 MHz by CHAN_BW; OBSBW is used"]
        );
        assert!(contradictions(-25.0, None, 4e-6)[0].contains("does not fit a channel of 25 MHz"));
    }

    #[test]
    fn invalid_headers_have_a_reason() {
        let cards = |all: &[(&str, &str)]| {
            let card =
                |(name, value): &(&str, &str)| format!("{:<80}", format!("{name:<8}= {value}"));
            all.iter().map(card).collect::<String>() + &format!("{:<80}", "END")
        };
        let packets = Header { packets_per_block: 0, ..header() };
        assert_eq!(packets.first_spectrum(), Some(512), "from the bytes of a packet");
        let good = [("OBSNCHAN", "4"), ("NPOL", "4"), ("BLOCSIZE", "160"), ("TBIN", "1e-6")];
        let said = |name: &'static str, value| {
            let mut all = good.to_vec();
            all.retain(|(other, _)| *other != name);
            all.push((name, value));
            Header::parse(cards(&all).as_bytes()).unwrap_err().to_string()
        };
        let (parsed, _) = Header::parse(cards(&good).as_bytes()).unwrap();
        assert_eq!((parsed.spectra(), parsed.pols, parsed.first_spectrum()), (10, 2, None));
        assert_eq!(said("NBITS", "3"), "NBITS must be 2, 4, 8 or 16, got 3");
        assert_eq!(said("NANTS", "3"), "OBSNCHAN must be a multiple of NANTS, got 4");
        assert_eq!(said("NPOL", "3"), "NPOL must be 1, 2 or 4, got 3");
        assert!(said("BLOCSIZE", "161").contains("BLOCSIZE must be a multiple"));
        assert!(said("BLOCSIZE", "0").contains("BLOCSIZE"));
        assert!(said("OVERLAP", "10").contains("OVERLAP must be less than"));
        assert!(said("TBIN", "nan").contains("TBIN must be finite"));
        assert!(said("OBSNCHAN", "-1").contains("OBSNCHAN must be"));
        assert!(said("STT_OFFS", "2.0").contains("STT_OFFS"));
        let missing = Header::parse(cards(&good[..3]).as_bytes());
        assert_eq!(missing.unwrap_err(), HeaderError::Missing("TBIN"));
        assert_eq!(Header::parse(&[b' '; 160]).unwrap_err(), HeaderError::Card(1));
        assert_eq!(Header::parse(b"END").unwrap_err(), HeaderError::NoEnd(3));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_a_header_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Header::parse(&bytes);
        }

        #[test]
        fn arbitrary_values_are_a_header_or_an_error(
            values in proptest::collection::vec((0..20_usize, "[-+0-9.eE'/ a-z]{0,24}"), 0..12),
        ) {
            let mut bytes = Vec::new();
            header().write(&mut bytes);
            for (card, value) in values {
                let value = format!("{value:<70}");
                bytes[card * 80 + 10..(card + 1) * 80].copy_from_slice(value.as_bytes());
            }
            if let Ok((header, length)) = Header::parse(&bytes) {
                prop_assert!(header.spectra() > header.overlap as u64 && length <= MAX_HEADER_BYTES);
                let _ = header.first_spectrum();
                let mut again = Vec::new();
                header.write(&mut again);
            }
        }
    }
}
