//! Elements of a frame as complex numbers, with the validity of each.

use crate::{Dtype, Frame, PortType};
use half::f16;
use num_complex::Complex;

/// Walks over the elements of a port's frames.
pub struct Elements {
    dtype: Dtype,
    lengths: Vec<usize>,
    /// Per payload axis: elements that share a unit of validity, and the stride of that unit.
    units: Vec<(usize, usize)>,
    /// Units that axes outside the payload make of each of the others.
    layers: Vec<usize>,
}

impl Elements {
    /// For frames of `port`.
    #[must_use]
    pub fn new(port: &PortType) -> Self {
        let lengths: Vec<usize> = port.axes.iter().map(|axis| axis.len).collect();
        let mut units = vec![(1, 0); lengths.len()];
        let mut layers = vec![0];
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

    /// Calls `see` with the index and value of every element to which something contributed.
    pub fn valid(&self, frame: &Frame, mut see: impl FnMut(&[usize], Complex<f64>)) {
        self.places(&frame.header().validity, |index, element| {
            see(index, value(frame, self.dtype, element));
        });
    }

    /// Calls `see` with the values in two frames of every element to which something contributed in
    /// the first.
    pub fn pairs(&self, a: &Frame, b: &Frame, mut see: impl FnMut(Complex<f64>, Complex<f64>)) {
        self.places(&a.header().validity, |_, element| {
            see(value(a, self.dtype, element), value(b, self.dtype, element));
        });
    }

    /// Calls `see` with the index and the number of every element that is valid.
    fn places(&self, validity: &[u32], mut see: impl FnMut(&[usize], usize)) {
        let mut index = vec![0; self.lengths.len()];
        for element in 0..self.lengths.iter().product() {
            let unit: usize = index
                .iter()
                .zip(&self.units)
                .map(|(i, (shared, stride))| i / shared * stride)
                .sum();
            let counts = self.layers.iter().map(|layer| validity.get(unit + layer));
            if counts.flatten().all(|count| *count > 0) {
                see(&index, element);
            }
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                if index[axis] < self.lengths[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
    }
}

/// Element `n` of a frame in host memory.
#[must_use]
pub fn value(frame: &Frame, dtype: Dtype, n: usize) -> Complex<f64> {
    let real = |value: f64| Complex::new(value, 0.0);
    match dtype {
        Dtype::Packed(bits) => real(packed(frame.as_slice(), usize::from(bits), n)),
        Dtype::U8 => real(f64::from(frame.as_slice::<u8>()[n])),
        Dtype::I8 => real(f64::from(frame.as_slice::<i8>()[n])),
        Dtype::I16 => real(f64::from(frame.as_slice::<i16>()[n])),
        Dtype::I32 => real(f64::from(frame.as_slice::<i32>()[n])),
        Dtype::I64 => real(frame.as_slice::<i64>()[n] as f64),
        Dtype::F16 => real(f64::from(frame.as_slice::<f16>()[n])),
        Dtype::F32 => real(f64::from(frame.as_slice::<f32>()[n])),
        Dtype::F64 => real(frame.as_slice::<f64>()[n]),
        Dtype::Ci4 => {
            let byte = frame.as_slice::<i8>()[n];
            Complex::new(f64::from(byte >> 4), f64::from((byte << 4) >> 4))
        }
        Dtype::Ci8 => {
            let [re, im] = frame.as_slice::<[i8; 2]>()[n];
            Complex::new(f64::from(re), f64::from(im))
        }
        Dtype::Ci16 => {
            let [re, im] = frame.as_slice::<[i16; 2]>()[n];
            Complex::new(f64::from(re), f64::from(im))
        }
        Dtype::Ci32 => {
            let [re, im] = frame.as_slice::<[i32; 2]>()[n];
            Complex::new(f64::from(re), f64::from(im))
        }
        Dtype::Cf16 => {
            let [re, im] = frame.as_slice::<[f16; 2]>()[n];
            Complex::new(f64::from(re), f64::from(im))
        }
        Dtype::Cf32 => {
            let [re, im] = frame.as_slice::<[f32; 2]>()[n];
            Complex::new(f64::from(re), f64::from(im))
        }
        Dtype::Cf64 => {
            let [re, im] = frame.as_slice::<[f64; 2]>()[n];
            Complex::new(re, im)
        }
    }
}

/// Sample `n` of two's-complement integers packed most significant bit first.
fn packed(bytes: &[u8], bits: usize, n: usize) -> f64 {
    let first = n * bits;
    // 16 bits at any offset lie within three bytes.
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
    fn packed_samples_are_read_at_any_offset() {
        // 3, -1, 511, -512 with 10 bits each.
        let bits = "0000000011_1111111111_0111111111_1000000000".replace('_', "");
        let bytes: Vec<u8> =
            (0..5).map(|i| u8::from_str_radix(&bits[8 * i..8 * i + 8], 2).unwrap()).collect();
        let read: Vec<f64> = (0..4).map(|n| packed(&bytes, 10, n)).collect();
        assert_eq!(read, [3.0, -1.0, 511.0, -512.0]);
    }

    #[test]
    fn only_elements_of_valid_units_are_seen() {
        let port = PortType {
            dtype: Dtype::Ci4,
            axes: vec![Axis::new("heap", 2), Axis::new("channel", 2)],
            clock: Clock { adc_sample_rate_hz: 1.0, sync_time_seconds: 0.0, samples_per_frame: 1 },
            band: None,
            validity: ValidityType::flags(vec![Axis::new("heap", 2)]),
        };
        let pool = Pool::new(&HostAllocator, 1, 4, 2).unwrap();
        let mut frame = pool.take().unwrap();
        frame.header_mut().validity.copy_from_slice(&[0, 1]);
        frame.as_mut_slice::<u8>().copy_from_slice(&[0, 0, 0x7f, 0x91]);
        let mut seen = Vec::new();
        Elements::new(&port).valid(&frame, |index, value| seen.push((index.to_vec(), value)));
        let expected =
            [(vec![1, 0], Complex::new(7.0, -1.0)), (vec![1, 1], Complex::new(-7.0, 1.0))];
        assert_eq!(seen, expected);
    }
}
