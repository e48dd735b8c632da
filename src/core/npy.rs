//! NumPy's `.npy` format, version 1.0: layout of the elements of a stream in an array.

use crate::{Dtype, PortType};

/// First bytes of every array in version 1.0.
pub const MAGIC: &[u8; 8] = b"\x93NUMPY\x01\x00";

/// Layout of the elements of `dtype` in an array: NumPy type, whether real and imaginary parts
/// have an axis of their own, and a description.
#[must_use]
pub fn layout(dtype: Dtype) -> (&'static str, bool, &'static str) {
    let parts = "real and imaginary part along the last axis";
    match dtype {
        Dtype::Packed(_) => ("|u1", false, "bytes of packed samples, most significant bit first"),
        Dtype::U8 => ("|u1", false, "one number per element"),
        Dtype::I8 => ("|i1", false, "one number per element"),
        Dtype::I16 => ("<i2", false, "one number per element"),
        Dtype::I32 => ("<i4", false, "one number per element"),
        Dtype::I64 => ("<i8", false, "one number per element"),
        Dtype::F16 => ("<f2", false, "one number per element"),
        Dtype::F32 => ("<f4", false, "one number per element"),
        Dtype::F64 => ("<f8", false, "one number per element"),
        Dtype::Ci4 => ("|u1", false, "one byte per element, real part in the high four bits"),
        Dtype::Ci8 => ("|i1", true, parts),
        Dtype::Ci16 => ("<i2", true, parts),
        Dtype::Ci32 => ("<i4", true, parts),
        // NumPy has no half-precision complex type.
        Dtype::Cf16 => ("<f2", true, parts),
        Dtype::Cf32 => ("<c8", false, "one complex number per element"),
        Dtype::Cf64 => ("<c16", false, "one complex number per element"),
    }
}

/// Data types whose elements are one value of an array.
const PLAIN: [Dtype; 10] = [
    Dtype::U8,
    Dtype::I8,
    Dtype::I16,
    Dtype::I32,
    Dtype::I64,
    Dtype::F16,
    Dtype::F32,
    Dtype::F64,
    Dtype::Cf32,
    Dtype::Cf64,
];

/// Data type for the NumPy type `descr`; the error lists the supported ones.
pub fn dtype(descr: &str) -> Result<Dtype, String> {
    let found = PLAIN.into_iter().find(|dtype| layout(*dtype).0 == descr);
    found.ok_or_else(|| {
        let known = PLAIN.map(|dtype| layout(dtype).0).join("`, `");
        format!("NumPy type `{descr}` is not supported; use `{known}`")
    })
}

/// Shape of one frame in an array.
#[must_use]
pub fn frame_shape(port: &PortType) -> Vec<usize> {
    if matches!(port.dtype, Dtype::Packed(_)) {
        return vec![port.frame_bytes()];
    }
    let mut shape: Vec<usize> = port.axes.iter().map(|axis| axis.len).collect();
    if layout(port.dtype).1 {
        shape.push(2);
    }
    shape
}

/// Header of an array in C order with up to a thousand axes. It has `at_least` bytes, a multiple of 64, or more if
/// needed.
#[must_use]
pub fn header(descr: &str, shape: &[u64], at_least: usize) -> Vec<u8> {
    // In Python a tuple with one element needs a trailing comma; longer ones may have it.
    let lens: Vec<String> = shape.iter().map(|len| format!("{len}, ")).collect();
    let shape = lens.concat();
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let bytes = at_least.max((10 + text.len() + 1).next_multiple_of(64));
    let mut header = Vec::with_capacity(bytes);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&((bytes - 10) as u16).to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    header.resize(bytes - 1, b' ');
    header.push(b'\n');
    header
}

/// One frame of `port` as a `.npy` file.
#[must_use]
pub fn array(port: &PortType, payload: &[u8]) -> Vec<u8> {
    let shape: Vec<u64> = frame_shape(port).iter().map(|len| *len as u64).collect();
    let mut array = header(layout(port.dtype).0, &shape, 0);
    array.extend_from_slice(payload);
    array
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn npy_types_round_trip() {
        for dtype in PLAIN {
            let (descr, has_parts, _) = layout(dtype);
            assert_eq!((self::dtype(descr), has_parts), (Ok(dtype), false));
        }
        assert!(dtype(">f4").unwrap_err().contains("`>f4` is not supported; use `|u1`, `|i1`"));
    }

    #[test]
    fn header_matches_numpy() {
        let text = |shape: &[u64]| {
            let header = header("<f4", shape, 128);
            assert_eq!((header.len(), &header[..8], header[127]), (128, &MAGIC[..], b'\n'));
            assert_eq!(u16::from_le_bytes([header[8], header[9]]), 118);
            String::from_utf8(header[10..].to_vec()).unwrap().trim_end().to_owned()
        };
        assert_eq!(text(&[3]), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, ), }");
        assert_eq!(text(&[2, 5]), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 5, ), }");
        assert_eq!(text(&[]), "{'descr': '<f4', 'fortran_order': False, 'shape': (), }");
        assert_eq!(header("<f4", &[u64::MAX; 10], 128).len(), 320);
    }
}
