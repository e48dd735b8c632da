//! DADA: baseband data with a header of 4096 bytes of ASCII keywords, of PSRDADA and dspsr.
//!
//! Samples follow the header in the order `[time][channel][polarisation]`, complex samples as real and imaginary part:
//! signed integers of 8 or 16 bits, or floats of 32 bits. A recording may be in several files: `OBS_OFFSET` of each
//! file counts the bytes of samples since `UTC_START`.

mod start;

use fxgraph_time::{SECOND_PICOSECONDS, Time, Utc};
use std::collections::BTreeMap;

/// Length of the headers that are written, in bytes.
pub const HEADER_BYTES: usize = 4096;
/// Offset of the value of `FILE_SIZE` in the headers that are written, in bytes.
pub const FILE_SIZE_OFFSET: u64 = 103;
/// Digits of the largest `FILE_SIZE`.
const FILE_SIZE_DIGITS: usize = 20;
/// Longest header that is read, in bytes.
pub const MAX_HEADER_BYTES: usize = 1 << 20;
/// Longest value of a keyword that is written.
const MAX_TEXT: usize = 128;

/// Header of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Length of the header in bytes.
    pub header_bytes: usize,
    /// Bits of a real or imaginary part: 8, 16, or 32 for floats.
    pub bits: u8,
    /// Whether samples have a real and an imaginary part.
    pub is_complex: bool,
    /// Polarisations.
    pub pols: usize,
    /// Channels.
    pub channels: usize,
    /// Time between samples of a channel in microseconds.
    pub sample_us: f64,
    /// Frequency at the centre of the band in MHz.
    pub centre_mhz: f64,
    /// Width of the band in MHz; negative if frequencies decrease.
    pub bandwidth_mhz: f64,
    /// Time of the byte with offset 0.
    pub start: Time,
    /// Times of the header that contradict `start`, as texts.
    pub contradictions: Vec<String>,
    /// Bytes of samples before those of this file.
    pub offset_bytes: u64,
    /// Bytes of samples of this file.
    pub file_bytes: u64,
    /// Number of the file.
    pub file_number: u64,
    /// Name of the telescope.
    pub telescope: String,
    /// Name of the source.
    pub source: String,
    /// Name of the instrument.
    pub instrument: String,
}

/// Error of bytes that are no header.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HeaderError {
    /// The bytes are no text.
    #[error("the header is not ASCII text")]
    NotText,
    /// The header is longer than the file.
    #[error("HDR_SIZE must be at most {1} bytes, the size of the file, got {0}")]
    TooShort(usize, usize),
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

/// Values by keyword.
struct Keywords<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Keywords<'a> {
    fn of(text: &'a str) -> Self {
        let pair = |line: &'a str| {
            let line = line.split('#').next().unwrap_or_default().trim();
            let (keyword, value) = line.split_once(char::is_whitespace)?;
            Some((keyword, value.trim()))
        };
        Self(text.lines().filter_map(pair).collect())
    }

    fn number<T: std::str::FromStr>(
        &self,
        keyword: &'static str,
        expected: &'static str,
        is_valid: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, HeaderError> {
        let Some(text) = self.0.get(keyword) else { return Ok(None) };
        let wrong = || HeaderError::Value { keyword, expected, found: (*text).to_owned() };
        text.parse().ok().filter(is_valid).map(Some).ok_or_else(wrong)
    }

    fn size(&self, keyword: &'static str, default: Option<usize>) -> Result<usize, HeaderError> {
        let expected = "a number from 1 to 2^24";
        let number = self.number(keyword, expected, |number| (1..=1 << 24).contains(number))?;
        number.or(default).ok_or(HeaderError::Missing(keyword))
    }

    fn text(&self, keyword: &str) -> String {
        self.0.get(keyword).copied().unwrap_or_default().to_owned()
    }
}

/// Returns the value of `FILE_SIZE` as it is at [`FILE_SIZE_OFFSET`], padded with spaces. It allocates nothing.
#[must_use]
pub fn file_size(bytes: u64) -> [u8; FILE_SIZE_DIGITS] {
    let (mut text, mut rest, mut digits) = ([b' '; FILE_SIZE_DIGITS], bytes, 0);
    loop {
        text[digits] = b'0' + (rest % 10) as u8;
        (rest, digits) = (rest / 10, digits + 1);
        if rest == 0 {
            break;
        }
    }
    text[..digits].reverse();
    text
}

impl Header {
    /// Reads the header at the beginning of `bytes`, which may be longer or as long as the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes = &bytes[..bytes.len().min(MAX_HEADER_BYTES)];
        // The first part has HDR_SIZE.
        let first = Self::text(&bytes[..bytes.len().min(HEADER_BYTES)])?;
        let expected = "a number from 512 to 1048576";
        let is_size = |size: &usize| (512..=MAX_HEADER_BYTES).contains(size);
        let header_bytes =
            Keywords::of(first).number("HDR_SIZE", expected, is_size)?.unwrap_or(HEADER_BYTES);
        let header = bytes.get(..header_bytes);
        let header = header.ok_or(HeaderError::TooShort(header_bytes, bytes.len()))?;
        Self::of_keywords(&Keywords::of(Self::text(header)?), header_bytes)
    }

    /// Text up to the first zero.
    fn text(bytes: &[u8]) -> Result<&str, HeaderError> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let text = std::str::from_utf8(&bytes[..end]).ok().filter(|text| text.is_ascii());
        text.ok_or(HeaderError::NotText)
    }

    fn of_keywords(keywords: &Keywords<'_>, header_bytes: usize) -> Result<Self, HeaderError> {
        let finite = |keyword| keywords.number(keyword, "a finite number", |n: &f64| n.is_finite());
        let bits = keywords.number("NBIT", "8, 16 or 32", |bits| [8, 16, 32].contains(bits))?;
        let parts = keywords.number("NDIM", "1 or 2", |parts| [1_u8, 2].contains(parts))?;
        let is_period = |us: &f64| (1e-6..=1e12).contains(us);
        let sample_us = keywords.number("TSAMP", "a time from 1e-6 to 1e12 us", is_period)?;
        let (start, contradictions) = start::start(keywords)?;
        let any = |keyword| keywords.number(keyword, "a whole number from 0 on", |_: &u64| true);
        let header = Self {
            header_bytes,
            bits: bits.ok_or(HeaderError::Missing("NBIT"))?,
            is_complex: parts.unwrap_or(1) == 2,
            pols: keywords.size("NPOL", Some(1))?,
            channels: keywords.size("NCHAN", Some(1))?,
            sample_us: sample_us.ok_or(HeaderError::Missing("TSAMP"))?,
            centre_mhz: finite("FREQ")?.unwrap_or(0.0),
            bandwidth_mhz: finite("BW")?.unwrap_or(0.0),
            start,
            contradictions,
            offset_bytes: any("OBS_OFFSET")?.unwrap_or(0),
            file_bytes: any("FILE_SIZE")?.unwrap_or(0),
            file_number: any("FILE_NUMBER")?.unwrap_or(0),
            telescope: keywords.text("TELESCOPE"),
            source: keywords.text("SOURCE"),
            instrument: keywords.text("INSTRUMENT"),
        };
        header.check_places(keywords)?;
        Ok(header)
    }

    /// Checks the keywords about the places of samples in the file and in the recording.
    fn check_places(&self, keywords: &Keywords<'_>) -> Result<(), HeaderError> {
        let wrong = |keyword: &'static str, expected, found: &str| {
            let found = found.chars().take(MAX_TEXT).collect();
            Err(HeaderError::Value { keyword, expected, found })
        };
        if !self.offset_bytes.is_multiple_of(self.sample_bytes()) {
            let expected = "a whole number of samples of all channels and polarisations";
            return wrong("OBS_OFFSET", expected, &format!("{} bytes", self.offset_bytes));
        }
        let overlap = keywords.number("OBS_OVERLAP", "0", |bytes: &u64| *bytes == 0);
        overlap?;
        // An axis of one element has no place in the order.
        let is_axis =
            |axis: &char| !(*axis == 'F' && self.channels == 1 || *axis == 'P' && self.pols == 1);
        match keywords.0.get("ORDER") {
            Some(order) if !order.chars().filter(is_axis).eq("TFP".chars().filter(is_axis)) => {
                wrong("ORDER", "TFP (time, frequency, polarisation)", order)
            }
            _ => Ok(()),
        }
    }

    /// Bytes of one sample of all channels and polarisations.
    #[must_use]
    pub fn sample_bytes(&self) -> u64 {
        let parts = if self.is_complex { 2 } else { 1 };
        u64::from(self.bits) / 8 * parts * self.pols as u64 * self.channels as u64
    }

    /// Time of `start` as text: `2026-07-02-01:39:20`.
    #[must_use]
    pub fn utc_start(&self) -> String {
        let Utc { year, month, day, hour, minute, second, .. } = self.start.to_utc();
        format!("{year:04}-{month:02}-{day:02}-{hour:02}:{minute:02}:{second:02}")
    }

    /// Returns the header as [`HEADER_BYTES`] bytes. White space and other characters that a value cannot hold are
    /// replaced by `_`; empty names by `unknown`.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let name = |text: &str| {
            let plain = |c: char| if c.is_ascii_graphic() && c != '#' { c } else { '_' };
            let plain: String = text.chars().map(plain).take(MAX_TEXT).collect();
            if plain.is_empty() { "unknown".to_owned() } else { plain }
        };
        let (day, second, picoseconds) = self.start.to_mjd();
        // 15 digits of the fraction of the day: 0.1 ns.
        let second_picoseconds = u128::from(SECOND_PICOSECONDS);
        let of_day = second as u128 * second_picoseconds + u128::from(picoseconds);
        let day_picoseconds = self.start.day_seconds() as u128 * second_picoseconds;
        let fraction = of_day * 1_000_000_000_000_000 / day_picoseconds;
        let bytes_per_second = self.sample_bytes() as f64 * 1e6 / self.sample_us;
        let lines = [
            ("HEADER", "DADA".to_owned()),
            ("HDR_VERSION", "1.0".to_owned()),
            ("HDR_SIZE", HEADER_BYTES.to_string()),
            ("DADA_VERSION", "1.0".to_owned()),
            ("FILE_SIZE", format!("{:<FILE_SIZE_DIGITS$}", self.file_bytes)),
            ("FILE_NUMBER", self.file_number.to_string()),
            ("UTC_START", self.utc_start()),
            ("PICOSECONDS", picoseconds.to_string()),
            ("MJD_START", format!("{day:05}.{fraction:015}")),
            ("OBS_OFFSET", self.offset_bytes.to_string()),
            ("OBS_OVERLAP", "0".to_owned()),
            ("TELESCOPE", name(&self.telescope)),
            ("SOURCE", name(&self.source)),
            ("INSTRUMENT", name(&self.instrument)),
            ("FREQ", format!("{:?}", self.centre_mhz)),
            ("BW", format!("{:?}", self.bandwidth_mhz)),
            ("TSAMP", format!("{:?}", self.sample_us)),
            ("NBIT", self.bits.to_string()),
            ("NDIM", if self.is_complex { "2" } else { "1" }.to_owned()),
            ("NPOL", self.pols.to_string()),
            ("NCHAN", self.channels.to_string()),
            ("RESOLUTION", self.sample_bytes().to_string()),
            ("BYTES_PER_SECOND", format!("{bytes_per_second:?}")),
            ("ORDER", "TFP".to_owned()),
        ];
        let lines = lines.iter().map(|(keyword, value)| format!("{keyword:<16} {value}\n"));
        let text = lines.chain(["# end of header\n".to_owned()]).collect::<String>();
        let mut bytes = text.into_bytes();
        bytes.resize(HEADER_BYTES, 0);
        bytes
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            header_bytes: HEADER_BYTES,
            bits: 8,
            is_complex: true,
            pols: 2,
            channels: 64,
            sample_us: 64.0 / 13.375,
            centre_mhz: 1284.0,
            bandwidth_mhz: -13.375,
            start: Time::from_unix(1_372_729_160, 123_456_789_012).unwrap(),
            contradictions: Vec::new(),
            offset_bytes: 1 << 40,
            file_bytes: 1 << 20,
            file_number: 7,
            telescope: "MeerKAT".to_owned(),
            source: "J0437-4715".to_owned(),
            instrument: "fxgraph".to_owned(),
        }
    }

    #[test]
    fn header_survives_its_text() {
        let bytes = header().bytes();
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(Header::parse(&bytes).unwrap(), header());
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("UTC_START        2013-07-02-01:39:20\n"), "{text}");
        assert!(text.contains("MJD_START        56475.06898"), "{text}");
        let spaced = Header { source: "3C 48 #1".to_owned(), telescope: String::new(), ..header() };
        let read = Header::parse(&spaced.bytes()).unwrap();
        assert_eq!((read.source.as_str(), read.telescope.as_str()), ("3C_48__1", "unknown"));
    }

    #[test]
    fn file_size_is_replaced_in_the_bytes_of_a_header() {
        for file_bytes in [0, 9, 10, 1 << 40, u64::MAX] {
            let mut bytes = header().bytes();
            let digits = file_size(file_bytes);
            bytes[FILE_SIZE_OFFSET as usize..][..digits.len()].copy_from_slice(&digits);
            assert_eq!(bytes, Header { file_bytes, ..header() }.bytes());
            assert_eq!(Header::parse(&bytes).unwrap().file_bytes, file_bytes);
        }
    }

    #[test]
    fn invalid_headers_have_a_reason() {
        let said = |from: &str, to: &str| {
            let text = String::from_utf8(header().bytes()).unwrap();
            assert!(text.contains(from));
            let mut bytes = text.replacen(from, to, 1).into_bytes();
            bytes.resize(HEADER_BYTES, 0);
            Header::parse(&bytes).unwrap_err().to_string()
        };
        assert_eq!(said("NBIT             8", "NBIT 2"), "NBIT must be 8, 16 or 32, got 2");
        assert_eq!(said("NBIT", "N_IT"), "the header has no NBIT");
        assert!(said("NDIM             2", "NDIM 3").contains("NDIM must be 1 or 2"));
        assert!(said("NPOL             2", "NPOL 0").contains("NPOL must be"));
        assert!(said("2013-07", "2013-13").contains("UTC_START must be a time"));
        assert!(said("TSAMP            4", "TSAMP -4").contains("TSAMP must be"));
        assert!(said("HDR_SIZE         4096", "HDR_SIZE 8192").contains("at most 4096"));
        assert!(said("OBS_OFFSET       1", "OBS_OFFSET -1").contains("OBS_OFFSET must be"));
        assert!(said("2013-07-02", "2013-02-29").contains("got 2013-02-29-01:39:20"));
        assert_eq!(
            said("OBS_OFFSET       1099511627776", "OBS_OFFSET 1099511627777"),
            "OBS_OFFSET must be a whole number of samples of all channels and polarisations, got 1099511627777 bytes"
        );
        assert_eq!(said("OBS_OVERLAP      0", "OBS_OVERLAP 256"), "OBS_OVERLAP must be 0, got 256");
        assert_eq!(
            said("TFP", "FTP"),
            "ORDER must be TFP (time, frequency, polarisation), got FTP"
        );
        assert_eq!(Header::parse(&[0xff; 4096]).unwrap_err(), HeaderError::NotText);
        assert_eq!(Header::parse(&[0; 4096]).unwrap_err(), HeaderError::Missing("NBIT"));
        assert_eq!(Header::parse(&[]).unwrap_err(), HeaderError::TooShort(4096, 0));
    }

    #[test]
    fn order_without_axes_of_one_element_is_accepted() {
        let read = |channels, pols, order: &str| {
            let one = Header { channels, pols, offset_bytes: 0, ..header() };
            let text = String::from_utf8(one.bytes()).unwrap().replacen("TFP", order, 1);
            let mut bytes = text.into_bytes();
            bytes.resize(HEADER_BYTES, 0);
            Header::parse(&bytes).is_ok()
        };
        assert!(read(1, 1, "T") && read(1, 2, "TP") && read(64, 1, "TF") && read(1, 2, "FTP"));
        assert!(!read(64, 1, "FT") && !read(64, 2, "TF") && !read(1, 2, "PT"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_a_header_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        ) {
            let _ = Header::parse(&bytes);
        }

        #[test]
        fn arbitrary_values_are_a_header_or_an_error(
            values in proptest::collection::vec((0..24_usize, "[-+0-9.eE:# a-z]{0,24}"), 0..12),
        ) {
            let text = String::from_utf8(header().bytes()).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            for (line, value) in values {
                let keyword = lines[line].split(' ').next().unwrap_or_default().to_owned();
                lines[line] = format!("{keyword} {value}");
            }
            let mut bytes = lines.join("\n").into_bytes();
            bytes.resize(1 << 14, 0);
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert!(header.sample_bytes() > 0);
                prop_assert_eq!(header.bytes().len(), HEADER_BYTES);
            }
        }
    }
}
