//! Elements of a frame as complex numbers, with the validity of each.

use crate::{Dtype, Frame, NotOnHost, PortType};
use bytemuck::AnyBitPattern;
use half::f16;
use num_complex::Complex;
use std::ops::Range;

/// A selection of the indices of an axis: every `step`-th of a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// Range of the indices.
    pub range: Range<usize>,
    /// Step between indices, at least 1.
    pub step: usize,
}

impl Pick {
    /// All of `range`.
    #[must_use]
    pub const fn of(range: Range<usize>) -> Self {
        Self { range, step: 1 }
    }

    /// One index.
    #[must_use]
    pub const fn one(index: usize) -> Self {
        Self::of(index..index + 1)
    }

    /// Number of selected indices.
    #[must_use]
    pub fn count(&self) -> usize {
        self.range.len().div_ceil(self.step)
    }
}

/// Iterates over the elements of a port's frames.
///
/// The axes of the validity counts divide the axes of the payload with the same names into equal parts. If the payload
/// has one axis with another name, as samples of a digitiser that arrive in heaps, the counts divide that axis.
pub struct Elements {
    dtype: Dtype,
    lengths: Vec<usize>,
    /// For each payload axis: number of elements that share a validity count, and stride of the counts.
    units: Vec<(usize, usize)>,
    /// Offsets of the counts along validity axes that the payload does not have.
    layers: Vec<usize>,
}

impl Elements {
    /// Iterator over frames of `port`.
    #[must_use]
    pub fn new(port: &PortType) -> Self {
        let lengths: Vec<usize> = port.axes.iter().map(|axis| axis.len).collect();
        let mut units = vec![(1, 0); lengths.len()];
        let mut layers = vec![0];
        let parts = port.validity.units().max(1);
        if let [only] = &port.axes[..]
            && port.validity.axes.iter().all(|axis| axis.name != only.name)
            && only.len.is_multiple_of(parts)
        {
            units[0] = (only.len / parts, 1);
            return Self { dtype: port.dtype, lengths, units, layers };
        }
        let mut stride = 1;
        for axis in port.validity.axes.iter().rev() {
            match port.axes.iter().position(|payload| payload.name == axis.name) {
                Some(index) => {
                    let shared = (lengths[index] / axis.len.max(1)).max(1);
                    units[index] = (shared, stride);
                }
                None => {
                    layers = (0..axis.len)
                        .flat_map(|n| layers.iter().map(move |layer| layer + n * stride))
                        .collect();
                }
            }
            stride *= axis.len;
        }
        Self { dtype: port.dtype, lengths, units, layers }
    }

    /// Calls `see` with the index and value of every valid element (all its validity counts are above 0).
    pub fn valid(
        &self,
        frame: &Frame,
        see: impl FnMut(&[usize], Complex<f64>),
    ) -> Result<(), NotOnHost> {
        self.picked(frame.as_slice()?, &frame.header().validity, &self.all(), see);
        Ok(())
    }

    /// Calls `see` with the number of every validity count that covers any of the elements `range`, which are row-major
    /// numbers; a number may come several times. The time is that of the elements, not of the frame.
    pub fn counts(&self, range: Range<usize>, mut see: impl FnMut(usize)) {
        let mut element = range.start;
        while element < range.end {
            let (mut rest, mut unit, mut run) = (element, 0, 1);
            for (axis, (len, (shared, stride))) in
                self.lengths.iter().zip(&self.units).enumerate().rev()
            {
                let index = rest % len;
                rest /= len;
                unit += index / shared * stride;
                if axis + 1 == self.lengths.len() {
                    // Elements up to the next count, or to the end of the axis.
                    let same = if *stride == 0 { *len } else { shared - index % shared };
                    run = same.min(len - index);
                }
            }
            self.layers.iter().for_each(|layer| see(unit + layer));
            element += run;
        }
    }

    /// Calls `see` with the values of two payloads for every element that is valid according to the counts
    /// `validity`.
    pub fn pairs(
        &self,
        validity: &[u32],
        [a, b]: [&[u8]; 2],
        mut see: impl FnMut(Complex<f64>, Complex<f64>),
    ) {
        self.places(validity, &self.all(), |_, element| {
            see(value(a, self.dtype, element), value(b, self.dtype, element));
        });
    }

    /// Calls `see` with the index and value of every valid element of a frame with this payload and validity.
    /// `picks` selects indices, one entry per axis.
    pub fn picked(
        &self,
        payload: &[u8],
        validity: &[u32],
        picks: &[Pick],
        mut see: impl FnMut(&[usize], Complex<f64>),
    ) {
        self.places(validity, picks, |index, element| {
            see(index, value(payload, self.dtype, element));
        });
    }

    fn all(&self) -> Vec<Pick> {
        self.lengths.iter().map(|len| Pick::of(0..*len)).collect()
    }

    /// Calls `see` with the index and the row-major number of every valid element among `picks`.
    fn places(&self, validity: &[u32], picks: &[Pick], mut see: impl FnMut(&[usize], usize)) {
        let mut index: Vec<usize> = picks.iter().map(|pick| pick.range.start).collect();
        for _ in 0..picks.iter().map(Pick::count).product() {
            let unit: usize = index
                .iter()
                .zip(&self.units)
                .map(|(i, (shared, stride))| i / shared * stride)
                .sum();
            let counts = self.layers.iter().map(|layer| validity.get(unit + layer));
            if counts.flatten().all(|count| *count > 0) {
                let element = index.iter().zip(&self.lengths).fold(0, |n, (i, len)| n * len + i);
                see(&index, element);
            }
            for axis in (0..index.len()).rev() {
                index[axis] += picks[axis].step;
                if index[axis] < picks[axis].range.end {
                    break;
                }
                index[axis] = picks[axis].range.start;
            }
        }
    }
}

/// Element `n` of a payload.
#[must_use]
pub fn value(payload: &[u8], dtype: Dtype, n: usize) -> Complex<f64> {
    let real = |value: f64| Complex::new(value, 0.0);
    match dtype {
        Dtype::Packed(bits) => real(packed(payload, usize::from(bits), n)),
        Dtype::U8 => real(f64::from(payload[n])),
        Dtype::I8 => real(f64::from(at::<i8>(payload, n))),
        Dtype::I16 => real(f64::from(at::<i16>(payload, n))),
        Dtype::I32 => real(f64::from(at::<i32>(payload, n))),
        Dtype::I64 => real(at::<i64>(payload, n) as f64),
        Dtype::F16 => real(f64::from(at::<f16>(payload, n))),
        Dtype::F32 => real(f64::from(at::<f32>(payload, n))),
        Dtype::F64 => real(at::<f64>(payload, n)),
        Dtype::Ci4 => {
            let byte = at::<i8>(payload, n);
            Complex::new(f64::from(byte >> 4), f64::from((byte << 4) >> 4))
        }
        Dtype::Ci8 => parts::<i8>(payload, n),
        Dtype::Ci16 => parts::<i16>(payload, n),
        Dtype::Ci32 => parts::<i32>(payload, n),
        Dtype::Cf16 => parts::<f16>(payload, n),
        Dtype::Cf32 => parts::<f32>(payload, n),
        Dtype::Cf64 => parts::<f64>(payload, n),
    }
}

/// Number `n` of a payload of `T`s with any alignment.
fn at<T: AnyBitPattern>(payload: &[u8], n: usize) -> T {
    bytemuck::pod_read_unaligned(&payload[n * size_of::<T>()..][..size_of::<T>()])
}

/// Number `n` of a payload of real and imaginary parts.
fn parts<T: AnyBitPattern + Into<f64>>(payload: &[u8], n: usize) -> Complex<f64> {
    Complex::new(at::<T>(payload, 2 * n).into(), at::<T>(payload, 2 * n + 1).into())
}

/// Sample `n` of two's-complement integers packed most significant bit first.
fn packed(bytes: &[u8], bits: usize, n: usize) -> f64 {
    let first = n * bits;
    // 16 bits at any offset are within three bytes.
    let word = (0..3).fold(0u32, |word, i| {
        word << 8 | u32::from(bytes.get(first / 8 + i).copied().unwrap_or(0))
    });
    let shifted = word << (8 + first % 8);
    f64::from(shifted.cast_signed() >> (32 - bits))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::frame::{HostAllocator, Pool};
    use crate::{Axis, Clock, ValidityType};

    #[test]
    fn packed_reads_samples_at_any_bit_offset() {
        // 3, -1, 511, -512 with 10 bits each.
        let bits = "0000000011_1111111111_0111111111_1000000000".replace('_', "");
        let bytes: Vec<u8> =
            (0..5).map(|i| u8::from_str_radix(&bits[8 * i..8 * i + 8], 2).unwrap()).collect();
        let read: Vec<f64> = (0..4).map(|n| packed(&bytes, 10, n)).collect();
        assert_eq!(read, [3.0, -1.0, 511.0, -512.0]);
    }

    #[test]
    fn valid_skips_elements_of_missing_units() {
        let port = PortType {
            dtype: Dtype::Ci4,
            axes: vec![Axis::new("heap", 2), Axis::new("channel", 2)],
            clock: Clock::new(1.0, 1),
            band: None,
            validity: ValidityType::flags(vec![Axis::new("heap", 2)]),
        };
        let pool = Pool::new(&HostAllocator, 1, 4, 2).unwrap();
        let mut frame = pool.take().unwrap();
        frame.header_mut().validity.copy_from_slice(&[0, 1]);
        frame.as_mut_slice::<u8>().unwrap().copy_from_slice(&[0, 0, 0x7f, 0x91]);
        let mut seen = Vec::new();
        let see = |index: &[usize], value| seen.push((index.to_vec(), value));
        Elements::new(&port).valid(&frame, see).unwrap();
        let expected =
            [(vec![1, 0], Complex::new(7.0, -1.0)), (vec![1, 1], Complex::new(-7.0, 1.0))];
        assert_eq!(seen, expected);
    }

    #[test]
    fn picked_applies_heap_validity_to_sample_axis() {
        let port = PortType {
            dtype: Dtype::I8,
            axes: vec![Axis::new("sample", 6)],
            clock: Clock::new(1.0, 6),
            band: None,
            validity: ValidityType::flags(vec![Axis::new("heap", 3)]),
        };
        let elements = Elements::new(&port);
        let seen = |pick| {
            let mut seen = Vec::new();
            let see = |_: &[usize], value: Complex<f64>| seen.push(value.re as i8);
            elements.picked(&[0, 1, 2, 3, 4, 5], &[1, 0, 1], &[pick], see);
            seen
        };
        assert_eq!(seen(Pick::of(0..6)), [0, 1, 4, 5]);
        assert_eq!(seen(Pick { range: 1..6, step: 2 }), [1, 5]);
        assert_eq!(seen(Pick::one(2)), [0; 0]);
    }

    #[test]
    fn picked_selects_fixed_and_strided_indices() {
        let port = PortType {
            dtype: Dtype::I16,
            axes: vec![Axis::new("pol", 2), Axis::new("spectrum", 3), Axis::new("channel", 4)],
            clock: Clock::new(1.0, 6),
            band: None,
            validity: ValidityType::flags(vec![Axis::new("pol", 2), Axis::new("spectrum", 3)]),
        };
        let payload: Vec<u8> = (0..24_i16).flat_map(i16::to_ne_bytes).collect();
        let picks = [Pick::one(1), Pick { range: 0..3, step: 2 }, Pick { range: 1..4, step: 2 }];
        let mut seen = Vec::new();
        Elements::new(&port).picked(&payload, &[0, 0, 0, 1, 1, 1], &picks, |index, value| {
            seen.push((index.to_vec(), value.re as i16));
        });
        let expected = [([1, 0, 1], 13), ([1, 0, 3], 15), ([1, 2, 1], 21), ([1, 2, 3], 23)];
        assert_eq!(seen, expected.map(|(index, value)| (index.to_vec(), value)));
    }
}
