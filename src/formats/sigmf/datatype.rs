//! Types of samples: `cf32_le`, `ci16_le`, `cu8`, `ri8`, ...

use std::fmt;
use std::str::FromStr;

/// Type of a real number, or of the parts of a complex one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// 8-bit signed integer.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// 16-bit signed integer.
    I16,
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// Single-precision float.
    F32,
    /// Double-precision float.
    F64,
}

const NAMES: [(&str, Number); 8] = [
    ("i8", Number::I8),
    ("u8", Number::U8),
    ("i16", Number::I16),
    ("u16", Number::U16),
    ("i32", Number::I32),
    ("u32", Number::U32),
    ("f32", Number::F32),
    ("f64", Number::F64),
];

impl Number {
    /// Size in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Type of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datatype {
    /// Whether a sample has a real and an imaginary part.
    pub is_complex: bool,
    /// Type of the number, or of both parts.
    pub number: Number,
    /// Whether numbers are big-endian.
    pub is_big_endian: bool,
}

/// Error for a text that is not the name of a [`Datatype`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`core:datatype` must be a type such as cf32_le, found `{0}`")]
pub struct UnknownDatatype(pub String);

impl Datatype {
    /// A little-endian type.
    #[must_use]
    pub const fn new(is_complex: bool, number: Number) -> Self {
        Self { is_complex, number, is_big_endian: false }
    }

    /// Size of a sample of one channel in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        if self.is_complex { 2 * self.number.bytes() } else { self.number.bytes() }
    }

    /// Changes whole samples in `bytes` from this type to the little-endian one. Complex samples of unsigned bytes become
    /// those of signed bytes, by subtracting 128.
    pub fn to_native(self, bytes: &mut [u8]) {
        if self.is_big_endian {
            bytes.chunks_exact_mut(self.number.bytes()).for_each(<[u8]>::reverse);
        }
        if self.is_complex && self.number == Number::U8 {
            bytes.iter_mut().for_each(|byte| *byte ^= 0x80);
        }
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, number)| *number == self.number).map_or("", |(n, _)| *n);
        let order = match (self.number.bytes(), self.is_big_endian) {
            (1, _) => "",
            (_, false) => "_le",
            (_, true) => "_be",
        };
        write!(f, "{}{name}{order}", if self.is_complex { 'c' } else { 'r' })
    }
}

impl FromStr for Datatype {
    type Err = UnknownDatatype;

    fn from_str(text: &str) -> Result<Self, UnknownDatatype> {
        let read = || {
            let (is_complex, rest) = match text.strip_prefix('c') {
                Some(rest) => (true, rest),
                None => (false, text.strip_prefix('r')?),
            };
            let (name, is_big_endian) = match rest.strip_suffix("_be") {
                Some(name) => (name, true),
                // Some writers leave the order out.
                None => (rest.strip_suffix("_le").unwrap_or(rest), false),
            };
            let (_, number) = NAMES.iter().find(|(known, _)| *known == name)?;
            let is_big_endian = is_big_endian && number.bytes() > 1;
            Some(Self { is_complex, number: *number, is_big_endian })
        };
        let shown = || text.chars().filter(|c| !c.is_control()).take(40).collect();
        read().ok_or_else(|| UnknownDatatype(shown()))
    }
}
