//! Header of a file: keywords, each with a value of the type that belongs to it, between `HEADER_START` and
//! `HEADER_END`. A text is its length in 4 bytes and its characters.

use std::io::{self, Read};

/// Longest text of a header, in bytes, as in SIGPROC.
const MAX_TEXT: usize = 80;
/// Longest header, in bytes: a table of 50000 frequencies.
const MAX_HEADER: u64 = 1 << 20;
/// Largest number of channels, and of IFs.
const MAX_CHANNELS: u32 = 1 << 24;
/// Largest spectrum of all IFs, in bytes.
pub const MAX_SPECTRUM_BYTES: u64 = 1 << 30;
/// Number of characters of a text that errors show.
const MAX_SHOWN: usize = 40;

/// Keywords whose value is a whole number of 4 bytes.
const WHOLE: [&str; 13] = [
    "telescope_id",
    "machine_id",
    "data_type",
    "nchans",
    "nbits",
    "nifs",
    "nbeams",
    "ibeam",
    "nsamples",
    "barycentric",
    "pulsarcentric",
    "scan_number",
    "nbins",
];
/// Keywords whose value is a number of 8 bytes.
const REAL: [&str; 10] = [
    "az_start", "za_start", "src_raj", "src_dej", "tstart", "tsamp", "fch1", "foff", "refdm",
    "period",
];

/// Content of a header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// Name of the source; at most 80 bytes are written.
    pub source_name: String,
    /// Name of the file with the raw data, or another origin; at most 80 bytes are written.
    pub rawdatafile: String,
    /// Number of the telescope in SIGPROC's list; 0 is a simulation.
    pub telescope_id: i32,
    /// Number of the machine in SIGPROC's list; 0 is a simulation.
    pub machine_id: i32,
    /// Number of beams of the observation; 0 is unknown.
    pub nbeams: i32,
    /// Number of the beam, from 1; 0 is unknown.
    pub ibeam: i32,
    /// Number of channels.
    pub nchans: u32,
    /// Number of IFs: polarisations or Stokes parameters.
    pub nifs: u32,
    /// Bits of a value: 1, 2, 4, 8, 16 (unsigned integers) or 32 (floats).
    pub nbits: u32,
    /// Whether values of 8 bits are signed.
    pub is_signed: bool,
    /// Frequency of the centre of channel 0 in MHz.
    pub fch1_mhz: f64,
    /// Difference of the frequency from one channel to the next in MHz.
    pub foff_mhz: f64,
    /// Time from one spectrum to the next in seconds.
    pub tsamp_seconds: f64,
    /// Time of the start of the first spectrum, as a modified Julian date in UTC.
    pub tstart_mjd: f64,
    /// Right ascension of the source (J2000), `hhmmss.s`.
    pub src_raj: f64,
    /// Declination of the source (J2000), `ddmmss.s`.
    pub src_dej: f64,
    /// Number of spectra that the header announces; most writers leave it out.
    pub nsamples: Option<u64>,
}

/// Reason why a file has no usable header.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The file begins otherwise.
    #[error("it does not begin with HEADER_START")]
    NotFilterbank,
    /// The file is from a big-endian machine.
    #[error("it is big-endian; only little-endian files are supported")]
    BigEndian,
    /// The file ends within the header.
    #[error("it ends within its header")]
    Truncated,
    /// The end of the header is too far away.
    #[error("its header has no HEADER_END within {MAX_HEADER} bytes")]
    TooLong,
    /// A text is empty or too long.
    #[error("a text of its header must have 1 to {MAX_TEXT} bytes, found {0}")]
    Text(i32),
    /// The type of a keyword's value is unknown, so that the rest cannot be read.
    #[error("its header has the unknown keyword `{0}`")]
    Unknown(String),
    /// A keyword is missing.
    #[error("its header has no `{0}`")]
    Missing(&'static str),
    /// A value is out of range.
    #[error("`{keyword}` must be {rule}, found {found}")]
    Value {
        /// Keyword.
        keyword: &'static str,
        /// Values that are supported.
        rule: String,
        /// Value of the header.
        found: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
}

/// Reader of the parts of a header.
struct Parts<R> {
    input: R,
    bytes: u64,
}

impl<R: Read> Parts<R> {
    fn exact(&mut self, into: &mut [u8]) -> Result<(), HeaderError> {
        self.bytes += into.len() as u64;
        if self.bytes > MAX_HEADER {
            return Err(HeaderError::TooLong);
        }
        self.input.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => HeaderError::Truncated,
            _ => HeaderError::Read(error),
        })
    }

    fn whole(&mut self) -> Result<i32, HeaderError> {
        let mut bytes = [0; 4];
        self.exact(&mut bytes)?;
        Ok(i32::from_le_bytes(bytes))
    }

    fn real(&mut self) -> Result<f64, HeaderError> {
        let mut bytes = [0; 8];
        self.exact(&mut bytes)?;
        Ok(f64::from_le_bytes(bytes))
    }

    /// Reads a text; bytes that are not printable ASCII become `?`.
    fn text(&mut self) -> Result<String, HeaderError> {
        let len = self.whole()?;
        let bytes = usize::try_from(len).ok().filter(|len| (1..=MAX_TEXT).contains(len));
        let mut text = vec![0; bytes.ok_or(HeaderError::Text(len))?];
        self.exact(&mut text)?;
        let printable =
            |byte: u8| if (b' '..=b'~').contains(&byte) { char::from(byte) } else { '?' };
        Ok(text.into_iter().map(printable).collect())
    }

    /// Reads the first keyword.
    fn begin(&mut self) -> Result<(), HeaderError> {
        const START: &[u8] = b"HEADER_START";
        let mut bytes = [0; 16];
        self.exact(&mut bytes).map_err(|error| match error {
            HeaderError::Truncated => HeaderError::NotFilterbank,
            error => error,
        })?;
        let (len, text) = bytes.split_at(4);
        match len {
            _ if text != START => Err(HeaderError::NotFilterbank),
            [12, 0, 0, 0] => Ok(()),
            [0, 0, 0, 12] => Err(HeaderError::BigEndian),
            _ => Err(HeaderError::NotFilterbank),
        }
    }
}

/// Values of a header that is being read.
#[derive(Default)]
struct Values {
    whole: [Option<i32>; WHOLE.len()],
    real: [Option<f64>; REAL.len()],
    source_name: String,
    rawdatafile: String,
    is_signed: bool,
    /// First and second frequency of a table, and the number of its frequencies.
    table: (f64, f64, u32),
}

impl Values {
    fn whole(&self, keyword: &'static str) -> Option<i32> {
        self.whole[WHOLE.iter().position(|known| *known == keyword)?]
    }

    fn real(&self, keyword: &'static str) -> Option<f64> {
        self.real[REAL.iter().position(|known| *known == keyword)?]
    }

    /// Reads the value of `keyword`; `false` at the end of the header.
    fn read<R: Read>(&mut self, keyword: &str, parts: &mut Parts<R>) -> Result<bool, HeaderError> {
        match keyword {
            "HEADER_END" => return Ok(false),
            "source_name" => self.source_name = parts.text()?,
            "rawdatafile" => self.rawdatafile = parts.text()?,
            "signed" => {
                let mut byte = [0];
                parts.exact(&mut byte)?;
                self.is_signed = byte != [0];
            }
            "FREQUENCY_START" | "FREQUENCY_END" => {}
            "fchannel" => self.frequency(parts.real()?)?,
            _ => {
                if let Some(n) = WHOLE.iter().position(|known| *known == keyword) {
                    self.whole[n] = Some(parts.whole()?);
                } else if let Some(n) = REAL.iter().position(|known| *known == keyword) {
                    self.real[n] = Some(parts.real()?);
                } else {
                    return Err(HeaderError::Unknown(keyword.chars().take(MAX_SHOWN).collect()));
                }
            }
        }
        Ok(true)
    }

    /// Adds a frequency of a table, which must have equal steps.
    fn frequency(&mut self, mhz: f64) -> Result<(), HeaderError> {
        let (first, second, count) = &mut self.table;
        match *count {
            0 => *first = mhz,
            1 => *second = mhz,
            n => {
                let step = *second - *first;
                let expected = *first + f64::from(n) * step;
                let is_equal = (mhz - expected).abs() <= 1e-3 * step.abs();
                if !is_equal {
                    let rule = format!("{expected} MHz, as only equal steps are supported");
                    return Err(value("fchannel", rule, mhz));
                }
            }
        }
        *count += 1;
        Ok(())
    }

    fn header(mut self) -> Result<Header, HeaderError> {
        let missing = HeaderError::Missing;
        let (first, second, count) = self.table;
        let of_table = |value: f64| (count > 0).then_some(value);
        let fch1_mhz = self.real("fch1").or(of_table(first)).ok_or(missing("fch1"))?;
        let foff_mhz = self.real("foff").or(of_table(if count > 1 { second - first } else { 0.0 }));
        let nchans = self.whole("nchans").ok_or(missing("nchans"))?;
        if count > 0 && i64::from(count) != i64::from(nchans) {
            return Err(value("nchans", format!("{count}, the frequencies of the table"), nchans));
        }
        // An announced number of 0 or less is none.
        let nsamples = self.whole("nsamples").and_then(|count| u64::try_from(count).ok());
        let unsigned = |keyword, number: i32| {
            u32::try_from(number).map_err(|_| value(keyword, "positive".to_owned(), number))
        };
        let header = Header {
            source_name: std::mem::take(&mut self.source_name),
            rawdatafile: std::mem::take(&mut self.rawdatafile),
            telescope_id: self.whole("telescope_id").unwrap_or(0),
            machine_id: self.whole("machine_id").unwrap_or(0),
            nbeams: self.whole("nbeams").unwrap_or(0),
            ibeam: self.whole("ibeam").unwrap_or(0),
            nchans: unsigned("nchans", nchans)?,
            nifs: unsigned("nifs", self.whole("nifs").unwrap_or(1))?,
            nbits: unsigned("nbits", self.whole("nbits").ok_or(missing("nbits"))?)?,
            is_signed: self.is_signed,
            fch1_mhz,
            foff_mhz: foff_mhz.ok_or(missing("foff"))?,
            tsamp_seconds: self.real("tsamp").ok_or(missing("tsamp"))?,
            tstart_mjd: self.real("tstart").ok_or(missing("tstart"))?,
            src_raj: self.real("src_raj").unwrap_or(0.0),
            src_dej: self.real("src_dej").unwrap_or(0.0),
            nsamples: nsamples.filter(|count| *count > 0),
        };
        header.check()?;
        Ok(header)
    }
}

fn value(keyword: &'static str, rule: String, found: impl ToString) -> HeaderError {
    HeaderError::Value { keyword, rule, found: found.to_string() }
}

impl Header {
    /// Reads the header at the beginning of `input`; returns it with its length in bytes.
    ///
    /// # Errors
    /// If there is no header, or a value is out of range.
    pub fn read(input: impl Read) -> Result<(Self, u64), HeaderError> {
        let mut parts = Parts { input, bytes: 0 };
        parts.begin()?;
        let mut values = Values::default();
        loop {
            let keyword = parts.text()?;
            if !values.read(&keyword, &mut parts)? {
                return Ok((values.header()?, parts.bytes));
            }
        }
    }

    /// Checks that the values are in range.
    ///
    /// # Errors
    /// If one is not.
    pub fn check(&self) -> Result<(), HeaderError> {
        let rule = |rule: &str| rule.to_owned();
        for (keyword, count) in [("nchans", self.nchans), ("nifs", self.nifs)] {
            if !(1..=MAX_CHANNELS).contains(&count) {
                return Err(value(keyword, format!("between 1 and {MAX_CHANNELS}"), count));
            }
        }
        if ![1, 2, 4, 8, 16, 32].contains(&self.nbits) {
            return Err(value("nbits", rule("1, 2, 4, 8, 16 or 32"), self.nbits));
        }
        if !self.spectrum_bits().is_multiple_of(8) || self.spectrum_bytes() > MAX_SPECTRUM_BYTES {
            let rule = format!("of spectra of 1 to {MAX_SPECTRUM_BYTES} whole bytes");
            let found = format!("{} with {} IFs of {} bits", self.nchans, self.nifs, self.nbits);
            return Err(value("nchans", rule, found));
        }
        if !(self.tsamp_seconds > 0.0 && self.tsamp_seconds.is_finite()) {
            return Err(value("tsamp", rule("positive and finite"), self.tsamp_seconds));
        }
        let reals = [("fch1", self.fch1_mhz), ("foff", self.foff_mhz), ("tstart", self.tstart_mjd)];
        for (keyword, number) in reals {
            if !number.is_finite() {
                return Err(value(keyword, rule("finite"), number));
            }
        }
        Ok(())
    }

    fn spectrum_bits(&self) -> u64 {
        // Less than 2^24 x 2^24 x 2^6.
        u64::from(self.nchans) * u64::from(self.nifs) * u64::from(self.nbits)
    }

    /// Number of bytes from one spectrum to the next.
    #[must_use]
    pub fn spectrum_bytes(&self) -> u64 {
        self.spectrum_bits() / 8
    }

    /// Returns the bytes of the header.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.extend((text.len() as i32).to_le_bytes());
            bytes.extend(text.as_bytes());
        };
        text(&mut bytes, "HEADER_START");
        for (keyword, content) in
            [("rawdatafile", &self.rawdatafile), ("source_name", &self.source_name)]
        {
            let printable = content.chars().map(|c| if (' '..='~').contains(&c) { c } else { '?' });
            let content: String = printable.take(MAX_TEXT).collect();
            if !content.is_empty() {
                text(&mut bytes, keyword);
                text(&mut bytes, &content);
            }
        }
        let nsamples = self.nsamples.and_then(|count| i32::try_from(count).ok());
        let whole = [
            ("telescope_id", Some(self.telescope_id)),
            ("machine_id", Some(self.machine_id)),
            // 1 is a filterbank.
            ("data_type", Some(1)),
            ("nbeams", Some(self.nbeams).filter(|count| *count > 0)),
            ("ibeam", Some(self.ibeam).filter(|beam| *beam > 0)),
            ("nchans", Some(self.nchans as i32)),
            ("nifs", Some(self.nifs as i32)),
            ("nbits", Some(self.nbits as i32)),
            ("nsamples", nsamples),
        ];
        for (keyword, number) in whole {
            if let Some(number) = number {
                text(&mut bytes, keyword);
                bytes.extend(number.to_le_bytes());
            }
        }
        for (keyword, number) in [
            ("src_raj", self.src_raj),
            ("src_dej", self.src_dej),
            ("tstart", self.tstart_mjd),
            ("tsamp", self.tsamp_seconds),
            ("fch1", self.fch1_mhz),
            ("foff", self.foff_mhz),
        ] {
            text(&mut bytes, keyword);
            bytes.extend(number.to_le_bytes());
        }
        if self.is_signed {
            text(&mut bytes, "signed");
            bytes.push(1);
        }
        text(&mut bytes, "HEADER_END");
        bytes
    }
}
