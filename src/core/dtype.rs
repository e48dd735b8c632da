//! Data types of the elements of a payload.

use std::fmt;
use std::str::FromStr;

/// Element type of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// Two's-complement integers of 2 to 16 bits, packed without padding,
    /// most significant bit first (samples of digitisers).
    Packed(u8),
    /// 8-bit unsigned integer.
    U8,
    /// 8-bit signed integer.
    I8,
    /// 16-bit signed integer.
    I16,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// Half-precision float (IEEE 754 binary16).
    F16,
    /// Single-precision float.
    F32,
    /// Double-precision float.
    F64,
    /// Complex of two 4-bit integers in one byte, real part in the high nibble.
    Ci4,
    /// Complex of two 8-bit integers.
    Ci8,
    /// Complex of two 16-bit integers.
    Ci16,
    /// Complex of two 32-bit integers.
    Ci32,
    /// Complex of two half-precision floats.
    Cf16,
    /// Complex of two single-precision floats.
    Cf32,
    /// Complex of two double-precision floats.
    Cf64,
}

impl Dtype {
    /// All types except the packed ones.
    pub const WHOLE_BYTES: [Self; 15] = [
        Self::U8,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Ci4,
        Self::Ci8,
        Self::Ci16,
        Self::Ci32,
        Self::Cf16,
        Self::Cf32,
        Self::Cf64,
    ];

    /// Whether elements have a real and an imaginary part.
    #[must_use]
    pub const fn is_complex(self) -> bool {
        matches!(
            self,
            Self::Ci4 | Self::Ci8 | Self::Ci16 | Self::Ci32 | Self::Cf16 | Self::Cf32 | Self::Cf64
        )
    }

    /// Size of one element in bits; a complex number is one element.
    #[must_use]
    pub const fn bits(self) -> usize {
        match self {
            Self::Packed(bits) => bits as usize,
            Self::U8 | Self::I8 | Self::Ci4 => 8,
            Self::I16 | Self::F16 | Self::Ci8 => 16,
            Self::I32 | Self::F32 | Self::Ci16 | Self::Cf16 => 32,
            Self::I64 | Self::F64 | Self::Ci32 | Self::Cf32 => 64,
            Self::Cf64 => 128,
        }
    }

    /// Size of `count` elements in bytes, rounded up.
    #[must_use]
    pub const fn bytes(self, count: usize) -> usize {
        (self.bits() * count).div_ceil(8)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Packed(bits) => return write!(f, "i{bits}p"),
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Ci4 => "ci4",
            Self::Ci8 => "ci8",
            Self::Ci16 => "ci16",
            Self::Ci32 => "ci32",
            Self::Cf16 => "cf16",
            Self::Cf32 => "cf32",
            Self::Cf64 => "cf64",
        };
        f.write_str(name)
    }
}

/// Error for a text that is not the name of a [`Dtype`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a data type")]
pub struct UnknownDtype(pub String);

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(s: &str) -> Result<Self, UnknownDtype> {
        let packed = s.strip_prefix('i').and_then(|s| s.strip_suffix('p'));
        if let Some(bits) = packed.and_then(|bits| bits.parse().ok())
            && (2..=16).contains(&bits)
        {
            return Ok(Self::Packed(bits));
        }
        Self::WHOLE_BYTES
            .into_iter()
            .find(|dtype| dtype.to_string() == s)
            .ok_or_else(|| UnknownDtype(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtype_names_round_trip() {
        for dtype in [Dtype::Packed(10)].into_iter().chain(Dtype::WHOLE_BYTES) {
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
        }
        assert!("i17p".parse::<Dtype>().is_err());
    }

    #[test]
    fn bytes_of_packed_types_round_up() {
        assert_eq!(Dtype::Packed(10).bytes(4096), 5120);
        assert_eq!(Dtype::Packed(3).bytes(3), 2);
    }
}
