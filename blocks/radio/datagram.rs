//! Header of the datagrams of a stream of samples: a sequence number, or the number of the first sample.

use fxgraph::Rejection;
use schemars::JsonSchema;
use serde::Deserialize;

/// Largest header in bytes.
const MAX_BYTES: usize = 1024;

/// Header of each datagram, before its samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatagramHeader {
    /// Bytes of the header. Those of no field are 0, or ignored.
    pub bytes: usize,
    /// Number of the datagram, which counts up by 1.
    pub sequence: Option<HeaderField>,
    /// Number of the first sample of the datagram.
    pub sample: Option<HeaderField>,
}

/// Unsigned integer in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderField {
    /// Position of its first byte.
    #[serde(default)]
    pub offset: usize,
    /// Bytes, from 1 to 8.
    pub bytes: usize,
    /// Order of its bytes.
    #[serde(default)]
    pub order: ByteOrder,
}

/// Order of the bytes of an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ByteOrder {
    /// The least significant byte first.
    #[default]
    Little,
    /// The most significant byte first, as protocols of the Internet have it.
    Big,
}

impl HeaderField {
    /// Number of the values that it tells apart, minus 1.
    #[must_use]
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes)
    }

    /// Value in `header`, which has the bytes of a checked header.
    #[must_use]
    pub fn read(self, header: &[u8]) -> u64 {
        let field = &header[self.offset..self.offset + self.bytes];
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        match self.order {
            ByteOrder::Big => field.iter().fold(0, add),
            ByteOrder::Little => field.iter().rev().fold(0, add),
        }
    }

    /// Writes the lowest bytes of `value` to `header`, which has the bytes of a checked header.
    pub fn write(self, value: u64, header: &mut [u8]) {
        let field = &mut header[self.offset..self.offset + self.bytes];
        let bytes = value.to_le_bytes();
        match self.order {
            ByteOrder::Little => field.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte),
            ByteOrder::Big => field.iter_mut().rev().zip(bytes).for_each(|(to, byte)| *to = byte),
        }
    }
}

impl DatagramHeader {
    /// Diagnostics of the parameter `parameter` with this header.
    #[must_use]
    pub fn rejections(&self, parameter: &'static str) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let help = "write {bytes: 8, sequence: {offset: 0, bytes: 8}}";
        let mut reject =
            |message: String| rejections.push(Rejection::parameter(parameter, message).help(help));
        if self.bytes > MAX_BYTES {
            reject(format!("`bytes` of a header must be at most {MAX_BYTES}, got {}", self.bytes));
        }
        for (name, field) in [("sequence", self.sequence), ("sample", self.sample)] {
            let Some(field) = field else { continue };
            if !(1..=8).contains(&field.bytes) {
                reject(format!("`bytes` of `{name}` must be from 1 to 8, got {}", field.bytes));
            } else if field.offset.checked_add(field.bytes).is_none_or(|end| end > self.bytes) {
                reject(format!(
                    "`{name}` must be within the {} bytes of the header, got {} bytes from {}",
                    self.bytes, field.bytes, field.offset
                ));
            }
        }
        rejections
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_outside_the_header_are_rejected() {
        let header = |bytes, field_bytes, offset| DatagramHeader {
            bytes,
            sequence: Some(HeaderField { offset, bytes: field_bytes, order: ByteOrder::Big }),
            sample: None,
        };
        assert!(header(8, 8, 0).rejections("to").is_empty());
        for wrong in [
            header(8, 8, 1),
            header(8, 0, 0),
            header(8, 9, 0),
            header(2000, 8, 0),
            header(8, 8, usize::MAX),
        ] {
            assert_eq!(wrong.rejections("to").len(), 1, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn value_that_was_written_is_read(value: u64, offset in 0..8_usize, bytes in 1..=8_usize, is_big: bool) {
            let order = if is_big { ByteOrder::Big } else { ByteOrder::Little };
            let field = HeaderField { offset, bytes, order };
            let mut header = [0x5a; 17];
            field.write(value, &mut header);
            prop_assert_eq!(field.read(&header), value & field.mask());
            prop_assert!(header[..offset].iter().chain(&header[offset + bytes..]).all(|byte| *byte == 0x5a));
        }
    }
}
