//! Types of raw samples, as radios and other programs write them: `cu8`, `ci16`, `cf32`, ...
//!
//! Complex samples are interleaved: the real part (I), then the imaginary part (Q). Numbers are little-endian unless the
//! name ends in `_be`. A sample is decoded in one of two ways:
//!
//! - [`decode`](SampleType::decode): to the [`dtype`](SampleType::dtype) of a frame that holds the same integers. Offset
//!   binary becomes two's complement by subtracting 128, which is exact, takes no time and leaves an offset of -1/2: the
//!   middle of the codes 0 to 255 is 127.5.
//! - [`normalise`](SampleType::normalise): to `cf32` or `f32` with the full scale 1. The offset of 1/2 is removed, so a
//!   silent input is 0 in the mean: (code - 127.5) / 128.
//!
//! Other programs differ in the zero of `cu8`: SoapySDR's driver of the RTL-SDR subtracts 127.4, others between 127 and 128.
//! The difference is a tone at 0 Hz of at most half a step, where a receiver of this kind has a tone of its own. The full
//! scale is the same: 128, 2048 (`ci12p`) and 32768.

use fxgraph::Dtype;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Type of raw samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleType {
    /// Complex of two bytes in offset binary: RTL-SDR.
    Cu8,
    /// Complex of two 8-bit signed integers: HackRF.
    Ci8,
    /// Complex of two 16-bit signed integers.
    Ci16,
    /// The same, big-endian.
    Ci16Be,
    /// Complex of two 12-bit signed integers in 3 bytes, least significant bits first: bladeRF, LimeSDR.
    Ci12p,
    /// Complex of two single-precision floats.
    Cf32,
    /// Real byte in offset binary.
    U8,
    /// Real 8-bit signed integer.
    I8,
    /// Real 16-bit signed integer.
    I16,
    /// The same, big-endian.
    I16Be,
    /// Real single-precision float.
    F32,
}

/// The types with their names. The first one is ours; the others are those of SoapySDR, UHD, GNU Radio, gnss-sdr and SigMF.
const NAMES: [(SampleType, &[&str]); 11] = [
    (SampleType::Cu8, &["cu8"]),
    (SampleType::Ci8, &["ci8", "cs8", "sc8", "ibyte", "cbyte"]),
    (SampleType::Ci16, &["ci16", "cs16", "sc16", "ishort", "cshort", "ci16_le"]),
    (SampleType::Ci16Be, &["ci16_be"]),
    (SampleType::Ci12p, &["ci12p", "cs12"]),
    (SampleType::Cf32, &["cf32", "fc32", "complex", "gr_complex", "cf32_le"]),
    (SampleType::U8, &["u8", "uchar", "ru8"]),
    (SampleType::I8, &["i8", "s8", "byte", "ri8"]),
    (SampleType::I16, &["i16", "s16", "short", "ri16_le"]),
    (SampleType::I16Be, &["i16_be", "ri16_be"]),
    (SampleType::F32, &["f32", "float", "rf32_le"]),
];

/// Error for a text that is not the name of a [`SampleType`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a type of samples; give one of {names}, or a name of GNU Radio or SoapySDR for it", names = names())]
pub struct UnknownSampleType(String);

/// Our names of all types, for messages.
fn names() -> String {
    SampleType::all().map(|all| all.to_string()).collect::<Vec<_>>().join(", ")
}

impl SampleType {
    /// All types.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.into_iter().map(|(all, _)| all)
    }

    /// Whether a sample has a real and an imaginary part.
    #[must_use]
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::Cu8 | Self::Ci8 | Self::Ci16 | Self::Ci16Be | Self::Ci12p | Self::Cf32)
    }

    /// Whether numbers are floats.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::Cf32 | Self::F32)
    }

    /// Numbers of a sample: 2 of a complex one.
    #[must_use]
    pub const fn numbers(self) -> usize {
        if self.is_complex() { 2 } else { 1 }
    }

    /// Size of a raw sample in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::Cu8 | Self::Ci8 | Self::I16 | Self::I16Be => 2,
            Self::Ci12p => 3,
            Self::Ci16 | Self::Ci16Be | Self::F32 => 4,
            Self::Cf32 => 8,
        }
    }

    /// Element type of frames that hold the same numbers.
    #[must_use]
    pub const fn dtype(self) -> Dtype {
        match self {
            Self::Cu8 | Self::Ci8 => Dtype::Ci8,
            Self::Ci16 | Self::Ci16Be | Self::Ci12p => Dtype::Ci16,
            Self::Cf32 => Dtype::Cf32,
            Self::U8 | Self::I8 => Dtype::I8,
            Self::I16 | Self::I16Be => Dtype::I16,
            Self::F32 => Dtype::F32,
        }
    }

    /// Element type of normalised frames: `cf32` or `f32`.
    #[must_use]
    pub const fn float_dtype(self) -> Dtype {
        if self.is_complex() { Dtype::Cf32 } else { Dtype::F32 }
    }

    /// Number that is full scale; 1 of floats.
    #[must_use]
    pub const fn full_scale(self) -> f32 {
        match self {
            Self::Cu8 | Self::Ci8 | Self::U8 | Self::I8 => 128.0,
            Self::Ci12p => 2048.0,
            Self::Ci16 | Self::Ci16Be | Self::I16 | Self::I16Be => 32768.0,
            Self::Cf32 | Self::F32 => 1.0,
        }
    }

    /// Number of the decoded integers for a silent input: the middle of the codes, -1/2 after offset binary.
    #[must_use]
    pub const fn zero(self) -> f32 {
        if matches!(self, Self::Cu8 | Self::U8) { -0.5 } else { 0.0 }
    }

    /// Decodes raw samples to elements of [`dtype`](Self::dtype), little-endian. Converts as many whole samples as both
    /// slices have.
    pub fn decode(self, raw: &[u8], out: &mut [u8]) {
        match self {
            Self::Cu8 | Self::U8 => {
                out.iter_mut().zip(raw).for_each(|(to, code)| *to = code ^ 0x80);
            }
            Self::Ci16Be | Self::I16Be => swap_pairs(raw, out),
            Self::Ci12p => {
                for (to, raw) in out.as_chunks_mut::<4>().0.iter_mut().zip(raw.as_chunks::<3>().0) {
                    let [i, q] = unpack(*raw).map(i16::to_le_bytes);
                    *to = [i[0], i[1], q[0], q[1]];
                }
            }
            Self::Ci8 | Self::Ci16 | Self::Cf32 | Self::I8 | Self::I16 | Self::F32 => {
                let len = self.whole(raw.len().min(out.len()));
                out[..len].copy_from_slice(&raw[..len]);
            }
        }
    }

    /// Encodes elements of [`dtype`](Self::dtype), little-endian, as raw samples: the inverse of [`decode`](Self::decode).
    /// Returns how many numbers were clipped, because `ci12p` has 12 of the 16 bits.
    pub fn encode(self, elements: &[u8], raw: &mut [u8]) -> u64 {
        if self != Self::Ci12p {
            // Each of the other conversions is its own inverse.
            self.decode(elements, raw);
            return 0;
        }
        let mut clipped = 0;
        for (to, [a, b, c, d]) in
            raw.as_chunks_mut::<3>().0.iter_mut().zip(elements.as_chunks::<4>().0)
        {
            let both = [i16::from_le_bytes([*a, *b]), i16::from_le_bytes([*c, *d])];
            let clamped = both.map(|number| number.clamp(-2048, 2047));
            clipped += both.iter().zip(&clamped).filter(|(a, b)| a != b).count() as u64;
            *to = pack(clamped);
        }
        clipped
    }

    /// Decodes raw samples to floats with the full scale 1, the real part before the imaginary one. Floats stay as they are.
    pub fn normalise(self, raw: &[u8], out: &mut [f32]) {
        let (scale, zero) = (1.0 / self.full_scale(), self.zero());
        let wide = |number: i16| (f32::from(number) - zero) * scale;
        let of_byte = |code: u8| (f32::from(code.cast_signed()) - zero) * scale;
        match self {
            Self::Cu8 | Self::U8 => each(raw, out, |[code]| of_byte(code ^ 0x80)),
            Self::Ci8 | Self::I8 => each(raw, out, |[code]| of_byte(code)),
            Self::Ci16 | Self::I16 => each(raw, out, |bytes| wide(i16::from_le_bytes(bytes))),
            Self::Ci16Be | Self::I16Be => each(raw, out, |bytes| wide(i16::from_be_bytes(bytes))),
            Self::Cf32 | Self::F32 => each(raw, out, f32::from_le_bytes),
            Self::Ci12p => {
                for (to, raw) in out.as_chunks_mut::<2>().0.iter_mut().zip(raw.as_chunks::<3>().0) {
                    *to = unpack(*raw).map(wide);
                }
            }
        }
    }

    /// Encodes floats, times `scale`, as raw samples: with `scale` 1 the inverse of [`normalise`](Self::normalise). Integers
    /// are rounded half to even. Returns how many numbers were clipped; NaN is clipped to the middle.
    pub fn quantise(self, floats: &[f32], scale: f32, raw: &mut [u8]) -> u64 {
        let (full, zero) = (self.full_scale(), self.zero());
        let mut clipped = 0;
        let mut round = |value: f32| {
            let number = (value * scale * full + zero).round_ties_even();
            clipped += u64::from(!(-full..=full - 1.0).contains(&number));
            // NaN becomes 0.
            number.clamp(-full, full - 1.0) as i16
        };
        match self {
            Self::Cu8 | Self::U8 => each_back(floats, raw, |value| [round(value) as u8 ^ 0x80]),
            Self::Ci8 | Self::I8 => each_back(floats, raw, |value| [round(value) as u8]),
            Self::Ci16 | Self::I16 => each_back(floats, raw, |value| round(value).to_le_bytes()),
            Self::Ci16Be | Self::I16Be => {
                each_back(floats, raw, |value| round(value).to_be_bytes());
            }
            Self::Cf32 | Self::F32 => each_back(floats, raw, |value| (value * scale).to_le_bytes()),
            Self::Ci12p => {
                for (to, from) in
                    raw.as_chunks_mut::<3>().0.iter_mut().zip(floats.as_chunks::<2>().0)
                {
                    *to = pack(from.map(&mut round));
                }
            }
        }
        clipped
    }

    /// Bytes of the whole samples in `len` bytes.
    const fn whole(self, len: usize) -> usize {
        len - len % self.bytes()
    }
}

/// Both parts of a sample of 12-bit numbers: bits 0 to 11 of the 3 bytes are the real part.
const fn unpack([low, middle, high]: [u8; 3]) -> [i16; 2] {
    let bits =
        [(middle as u16) << 12 | (low as u16) << 4, (high as u16) << 8 | (middle & 0xf0) as u16];
    [bits[0].cast_signed() >> 4, bits[1].cast_signed() >> 4]
}

/// The sample of these 12-bit numbers.
const fn pack([i, q]: [i16; 2]) -> [u8; 3] {
    [i as u8, (i >> 8 & 0x0f) as u8 | (q << 4) as u8, (q >> 4) as u8]
}

fn swap_pairs(from: &[u8], to: &mut [u8]) {
    let pairs = to.as_chunks_mut::<2>().0.iter_mut().zip(from.as_chunks::<2>().0);
    pairs.for_each(|(to, [a, b])| *to = [*b, *a]);
}

fn each<const N: usize>(raw: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    out.iter_mut().zip(raw.as_chunks::<N>().0).for_each(|(to, bytes)| *to = value(*bytes));
}

fn each_back<const N: usize>(
    floats: &[f32],
    raw: &mut [u8],
    mut bytes: impl FnMut(f32) -> [u8; N],
) {
    raw.as_chunks_mut::<N>().0.iter_mut().zip(floats).for_each(|(to, value)| *to = bytes(*value));
}

impl fmt::Display for SampleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = NAMES.iter().find(|(all, _)| all == self);
        f.write_str(found.map_or("", |(_, names)| names[0]))
    }
}

impl FromStr for SampleType {
    type Err = UnknownSampleType;

    fn from_str(text: &str) -> Result<Self, UnknownSampleType> {
        // SoapySDR writes its names in capitals.
        let is = |name: &&str| name.eq_ignore_ascii_case(text);
        let found = NAMES.iter().find(|(_, names)| names.iter().any(is));
        let shown = || text.chars().filter(|c| !c.is_control()).take(40).collect();
        found.map(|(all, _)| *all).ok_or_else(|| UnknownSampleType(shown()))
    }
}

impl<'de> Deserialize<'de> for SampleType {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for SampleType {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl JsonSchema for SampleType {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "SampleType".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = NAMES.iter().flat_map(|(_, names)| *names).copied().collect();
        json_schema!({"type": "string", "examples": names})
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // values are exact
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_those_of_one_type_in_any_case() {
        let mut seen = Vec::new();
        for (all, names) in NAMES {
            for name in names {
                assert_eq!((name.parse(), name.to_uppercase().parse()), (Ok(all), Ok(all)));
                assert!(!seen.contains(name), "{name}");
                seen.push(name);
            }
        }
        let error = "cu16\n".parse::<SampleType>().unwrap_err().to_string();
        assert!(error.starts_with("`cu16` is not") && error.contains("ci12p"), "{error}");
    }

    #[test]
    fn elements_of_the_frame_have_the_numbers_of_the_samples() {
        let decode = |of: SampleType, raw: &[u8]| {
            let mut out = vec![0; of.dtype().bytes(raw.len() / of.bytes())];
            of.decode(raw, &mut out);
            out
        };
        let signed = |values: &[i8]| values.iter().map(|v| v.cast_unsigned()).collect::<Vec<_>>();
        assert_eq!(decode(SampleType::Cu8, &[0, 127, 128, 255]), signed(&[-128, -1, 0, 127]));
        assert_eq!(decode(SampleType::I16Be, &[0x12, 0x34]), [0x34, 0x12]);
        // I = 0x7ff, Q = -2048; I = -1, Q = 1.
        let raw = [0xff, 0x07, 0x80, 0xff, 0x1f, 0x00];
        let wide: Vec<u8> =
            [2047_i16, -2048, -1, 1].into_iter().flat_map(i16::to_le_bytes).collect();
        assert_eq!(decode(SampleType::Ci12p, &raw), wide);
    }

    #[test]
    fn silence_is_zero_and_full_scale_is_one_after_normalising() {
        let normalise = |of: SampleType, raw: &[u8]| {
            let mut out = vec![9.0; raw.len() / of.bytes() * of.numbers()];
            of.normalise(raw, &mut out);
            out
        };
        let out = normalise(SampleType::Cu8, &[127, 128, 0, 255]);
        assert_eq!((out[0] + out[1], out[2], out[3]), (0.0, -127.5 / 128.0, 127.5 / 128.0));
        assert_eq!(normalise(SampleType::Ci8, &[0x80, 64]), [-1.0, 0.5]);
        assert_eq!(normalise(SampleType::Ci16Be, &[0x80, 0, 0x40, 0]), [-1.0, 0.5]);
        assert_eq!(normalise(SampleType::Ci12p, &[0x00, 0x08, 0x40]), [-1.0, 0.5]);
        assert_eq!(normalise(SampleType::F32, &1.5_f32.to_le_bytes()), [1.5]);
    }

    #[test]
    fn floats_beyond_full_scale_are_clipped_and_counted() {
        let mut raw = [0; 4];
        assert_eq!(SampleType::Cu8.quantise(&[2.0, -2.0, f32::NAN, 0.0], 1.0, &mut raw), 3);
        assert_eq!(raw, [255, 0, 128, 128]);
        assert_eq!(SampleType::Ci16.quantise(&[1.0, -1.0], 1.0, &mut raw), 1);
        assert_eq!(raw, [0xff, 0x7f, 0x00, 0x80]);
        assert_eq!(SampleType::Ci16.quantise(&[1.0, -1.0], 0.5, &mut raw), 0);
        let wide: Vec<u8> = [3000_i16, -3000].into_iter().flat_map(i16::to_le_bytes).collect();
        let mut raw = [0; 3];
        assert_eq!(SampleType::Ci12p.encode(&wide, &mut raw), 2);
        assert_eq!(unpack(raw), [2047, -2048]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_the_same_after_decoding_and_encoding(
            raw in proptest::collection::vec(any::<u8>(), 0..240),
            which in 0..NAMES.len(),
        ) {
            let (of, _) = NAMES[which];
            let whole = &raw[..of.whole(raw.len())];
            let samples = whole.len() / of.bytes();
            let mut elements = vec![0; of.dtype().bytes(samples)];
            of.decode(&raw, &mut elements);
            let mut back = vec![0; whole.len()];
            prop_assert_eq!(of.encode(&elements, &mut back), 0);
            prop_assert_eq!(&back, whole);
            let mut floats = vec![0.0; samples * of.numbers()];
            of.normalise(&raw, &mut floats);
            if !of.is_float() {
                prop_assert!(floats.iter().all(|value| value.abs() <= 1.0));
                prop_assert_eq!(of.quantise(&floats, 1.0, &mut back), 0);
                prop_assert_eq!(&back, whole);
            }
        }
    }
}
