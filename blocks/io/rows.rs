//! Time samples of one or several rows, such as polarisations or antennas, as numbers.

use bytemuck::pod_read_unaligned;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, PortType, Rejection};
use fxgraph_dsp::packed::{Decoder, WIDTHS};
use std::ops::Range;

/// Samples of a frame: `[sample]`, `[row][sample]` or `[sample][row]`.
#[derive(Clone)]
pub struct Rows {
    dtype: Dtype,
    /// Number of rows.
    pub count: usize,
    /// Number of samples of a row.
    pub samples: usize,
    /// Whether the samples of a row are adjacent.
    is_by_row: bool,
    /// Parts of the samples that can be missing one by one.
    parts: usize,
    /// Stride of the validity counts from one row to the next; 0 if the rows share them.
    row_stride: usize,
    /// Stride of the validity counts from one part to the next.
    part_stride: usize,
}

impl Rows {
    /// Rows of `port`, the first input of a block of `kind`.
    pub fn of(kind: &str, port: &PortType) -> Result<Self, Box<Rejection>> {
        let is_known = match port.dtype {
            Dtype::Packed(bits) => WIDTHS.contains(&bits),
            Dtype::I8 | Dtype::I16 | Dtype::F32 | Dtype::Ci8 | Dtype::Ci16 | Dtype::Cf32 => true,
            _ => false,
        };
        if !is_known {
            let message = format!("`{kind}` cannot read {} samples", port.dtype);
            let help = "connect i8, i16, f32, ci8, ci16, cf32 or packed samples (`i10p`); `convert` \
                        converts other types";
            return Err(Box::new(
                Rejection::new(codes::INPUT_DTYPE, At::Input(0), message).help(help),
            ));
        }
        let axes: Vec<_> = port.axes.iter().map(|axis| (axis.name, axis.len)).collect();
        let (row, rows, samples, is_by_row) = match axes[..] {
            [("sample", samples)] => ("", 1, samples, true),
            [(row, rows), ("sample", samples)] => (row, rows, samples, true),
            [("sample", samples), (row, rows)] => (row, rows, samples, rows == 1),
            _ => {
                let message = format!("`{kind}` cannot read `{port}`");
                let help = "connect time samples: [sample], [pol][sample] or [sample][pol]";
                return Err(Box::new(
                    Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help),
                ));
            }
        };
        // Validity axes other than that of the rows divide the samples, in their order.
        let (mut parts, mut stride, mut row_stride, mut part_stride) = (1, 1, 0, 0);
        for axis in port.validity.axes.iter().rev() {
            if axis.name == row && axis.len == rows {
                row_stride = stride;
            } else {
                if part_stride == 0 {
                    part_stride = stride;
                }
                parts *= axis.len;
            }
            stride *= axis.len;
        }
        // An axis of rows between two axes of parts would need two strides.
        let is_regular = part_stride == 0
            || row_stride == 0
            || part_stride >= row_stride * rows
            || row_stride >= part_stride * parts;
        if parts > samples || !is_regular {
            let message = format!("`{kind}` cannot read the validity axes of its input");
            let help = "use validity axes such as [pol][heap], with at most one flag per sample";
            return Err(Box::new(
                Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help),
            ));
        }
        let dtype = port.dtype;
        Ok(Self { dtype, count: rows, samples, is_by_row, parts, row_stride, part_stride })
    }

    /// Real numbers of a sample.
    pub fn components(&self) -> usize {
        if self.dtype.is_complex() { 2 } else { 1 }
    }

    /// Bits of an integer part of a sample; `None` for floats.
    pub fn integer_bits(&self) -> Option<u8> {
        match self.dtype {
            Dtype::Packed(bits) => Some(bits),
            Dtype::I8 | Dtype::Ci8 => Some(8),
            Dtype::I16 | Dtype::Ci16 => Some(16),
            _ => None,
        }
    }

    /// Number of values of a frame.
    pub fn values(&self) -> usize {
        self.count * self.samples * self.components()
    }

    /// Number of parts of the samples that can be missing one by one.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Samples of a part.
    pub fn part(&self, part: usize) -> Range<usize> {
        let start = |part: usize| part * self.samples / self.parts;
        start(part)..start(part + 1)
    }

    /// Whether a part of a row is valid, at least partly.
    pub fn is_valid(&self, validity: &[u32], row: usize, part: usize) -> bool {
        let unit = row * self.row_stride + part * self.part_stride;
        validity.get(unit).is_some_and(|count| *count > 0)
    }

    /// Reads the numbers of a frame, `[row][sample][component]`, or `[sample][row][component]` unless `by_row` is set.
    pub fn read(&self, payload: &[u8], by_row: bool, out: &mut [f32]) {
        let components = self.components();
        let turned = self.count > 1 && by_row != self.is_by_row;
        // Index of the value with this number in the payload.
        let place = |n: usize| {
            if !turned {
                return n;
            }
            let (element, component) = (n / components, n % components);
            let (rows, samples) = (self.count, self.samples);
            let (row, sample) = if self.is_by_row {
                (element / samples, element % samples)
            } else {
                (element % rows, element / rows)
            };
            let element = if by_row { row * samples + sample } else { sample * rows + row };
            element * components + component
        };
        fn each<const N: usize>(
            payload: &[u8],
            value: impl Fn([u8; N]) -> f32,
            mut put: impl FnMut(usize, f32),
        ) {
            payload.as_chunks().0.iter().enumerate().for_each(|(n, bytes)| put(n, value(*bytes)));
        }
        let mut put = |n: usize, value: f32| {
            if let Some(out) = out.get_mut(place(n)) {
                *out = value;
            }
        };
        match self.dtype {
            Dtype::Packed(bits) => {
                let Some(decoder) = Decoder::new(bits) else { return };
                let mut samples = [0_i16; 1024];
                for first in (0..self.count * self.samples).step_by(samples.len()) {
                    decoder.decode(payload, first, &mut samples);
                    for (n, sample) in samples.iter().enumerate() {
                        put(first + n, f32::from(*sample));
                    }
                }
            }
            Dtype::I8 | Dtype::Ci8 => each(payload, |[byte]| f32::from(byte.cast_signed()), put),
            Dtype::I16 | Dtype::Ci16 => each(payload, |b| f32::from(i16::from_ne_bytes(b)), put),
            _ => each::<4>(payload, |bytes| pod_read_unaligned(&bytes), put),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests {
    use super::*;
    use fxgraph::{Axis, Clock, ValidityType};

    type Axes<'a> = &'a [(&'static str, usize)];

    fn rows(dtype: Dtype, axes: Axes<'_>, units: Axes<'_>) -> Result<Rows, Box<Rejection>> {
        let of = |all: Axes<'_>| all.iter().map(|(name, len)| Axis::new(name, *len)).collect();
        let port = PortType {
            dtype,
            axes: of(axes),
            clock: Clock::new(1e6, 8),
            band: None,
            validity: ValidityType::flags(of(units)),
        };
        Rows::of("sink", &port)
    }

    #[test]
    fn rows_of_both_orders_are_read_in_both_orders() {
        let bytes: Vec<u8> = (0..12).collect();
        let by_row = rows(Dtype::Ci8, &[("pol", 2), ("sample", 3)], &[]).unwrap();
        let by_sample = rows(Dtype::Ci8, &[("sample", 3), ("pol", 2)], &[]).unwrap();
        let read = |rows: &Rows, order| {
            let mut out = vec![0.0; rows.values()];
            rows.read(&bytes, order, &mut out);
            out.iter().map(|value| *value as u8).collect::<Vec<_>>()
        };
        assert_eq!(read(&by_row, true), bytes);
        assert_eq!(read(&by_sample, false), bytes);
        assert_eq!(read(&by_row, false), [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        assert_eq!(read(&by_sample, true), [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]);
    }

    #[test]
    fn every_type_is_read_as_numbers() {
        let read = |dtype, bytes: &[u8], count| {
            let rows = rows(dtype, &[("sample", count)], &[]).unwrap();
            let mut out = vec![0.0; rows.values()];
            rows.read(bytes, true, &mut out);
            out
        };
        assert_eq!(read(Dtype::I8, &[0x80, 127], 2), [-128.0, 127.0]);
        assert_eq!(read(Dtype::I16, &(-300_i16).to_ne_bytes(), 1), [-300.0]);
        assert_eq!(read(Dtype::F32, &1.5_f32.to_ne_bytes(), 1), [1.5]);
        assert_eq!(read(Dtype::Packed(4), &[0x7f, 0x80], 4), [7.0, -1.0, -8.0, 0.0]);
    }

    #[test]
    fn validity_of_rows_and_parts_is_found() {
        let flags = |units: Axes<'_>, validity: &[u32]| {
            let rows = rows(Dtype::I8, &[("pol", 2), ("sample", 5)], units).unwrap();
            let parts = rows.parts();
            let of_row = |row| (0..parts).map(|p| rows.is_valid(validity, row, p)).collect();
            [0, 1].map(of_row) as [Vec<bool>; 2]
        };
        assert_eq!(flags(&[], &[1]), [[true], [true]]);
        assert_eq!(flags(&[("pol", 2)], &[0, 3]), [[false], [true]]);
        assert_eq!(flags(&[("heap", 2)], &[0, 1]), [[false, true], [false, true]]);
        assert_eq!(
            flags(&[("pol", 2), ("sample", 2)], &[1, 0, 0, 1]),
            [[true, false], [false, true]]
        );
        assert_eq!(flags(&[("heap", 2), ("pol", 2)], &[1, 0, 1, 1]), [[true, true], [false, true]]);
        let rows = rows(Dtype::I8, &[("pol", 2), ("sample", 5)], &[("heap", 2)]).unwrap();
        assert_eq!((rows.part(0), rows.part(1)), (0..2, 2..5));
    }

    #[test]
    fn other_streams_are_rejected() {
        let rejected = |dtype, axes, units| rows(dtype, axes, units).err().unwrap().message;
        assert!(rejected(Dtype::F64, &[("sample", 4)], &[]).contains("cannot read f64 samples"));
        assert!(rejected(Dtype::I8, &[("pol", 4)], &[]).contains("cannot read `i8 [pol 4]"));
        let units = &[("heap", 2), ("pol", 2), ("sample", 2)];
        assert!(rejected(Dtype::I8, &[("pol", 2), ("sample", 4)], units).contains("validity axes"));
        assert!(rejected(Dtype::I8, &[("sample", 4)], &[("heap", 5)]).contains("validity axes"));
    }
}
