//! Statistics of a frame's payload.

use crate::units;
use fxgraph::elements::Elements;
use fxgraph::frame::{HostAllocator, Pool};
use fxgraph::{Axis, Clock, Dtype, PortType, ValidityType};
use num_complex::Complex;
use serde_json::{Value, json};

/// Statistics over all elements of a payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    is_complex: bool,
    elements: usize,
    /// Minimum of the real parts.
    min: f64,
    max: f64,
    mean: Complex<f64>,
    /// Root of the mean squared magnitude.
    rms: f64,
    /// Largest magnitude.
    peak: f64,
}

impl Figures {
    /// Computes the statistics of `elements` elements of type `dtype`; `None` if memory is short.
    pub fn of(payload: &[u8], dtype: Dtype, elements: usize) -> Option<Self> {
        // The payload as one axis, with all elements valid.
        let port = PortType {
            dtype,
            axes: vec![Axis::new("element", elements)],
            clock: Clock::new(1.0, 1),
            band: None,
            validity: ValidityType::flags(Vec::new()),
        };
        let pool = Pool::new(&HostAllocator, 1, payload.len(), port.validity.units()).ok()?;
        let mut frame = pool.take()?;
        frame.header_mut().validity.fill(1);
        frame.as_mut_slice::<u8>().ok()?[..payload.len()].copy_from_slice(payload);
        let (mut sum, mut squares) = (Complex::default(), 0.0);
        let (mut min, mut max, mut peak) = (f64::INFINITY, f64::NEG_INFINITY, 0.0_f64);
        let seen = Elements::new(&port).valid(&frame, |_, value| {
            sum += value;
            squares += value.norm_sqr();
            (min, max) = (min.min(value.re), max.max(value.re));
            peak = peak.max(value.norm());
        });
        seen.ok()?;
        let count = elements.max(1) as f64;
        let is_complex = dtype.is_complex();
        let (mean, rms) = (sum / count, (squares / count).sqrt());
        Some(Self { is_complex, elements, min, max, mean, rms, peak })
    }

    pub fn as_text(&self) -> String {
        if self.is_complex {
            let Complex { re, im } = self.mean;
            let number = units::spanned(&[self.peak, re, im.abs(), self.rms]);
            let sign = if im < 0.0 { '-' } else { '+' };
            return format!(
                "largest magnitude {}   mean {} {sign} {}i   rms {}",
                number[0], number[1], number[2], number[3]
            );
        }
        let number = units::spanned(&[self.min, self.max, self.mean.re, self.rms]);
        format!("min {}   max {}   mean {}   rms {}", number[0], number[1], number[2], number[3])
    }

    /// Returns the statistics as JSON, where infinity is `null`.
    pub fn as_json(&self) -> Value {
        if self.is_complex {
            let mean = [self.mean.re, self.mean.im];
            return json!({"elements": self.elements, "max_magnitude": self.peak, "mean": mean,
                "rms": self.rms});
        }
        json!({"elements": self.elements, "min": self.min, "max": self.max, "mean": self.mean.re,
            "rms": self.rms})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_cover_all_elements() {
        let payload: Vec<u8> = [3_i16, -4, 0, 5].iter().flat_map(|n| n.to_le_bytes()).collect();
        let figures = Figures::of(&payload, Dtype::I16, 4).unwrap();
        assert_eq!(figures.as_text(), "min -4.00   max 5.00   mean 1.00   rms 3.54");
        let payload: Vec<u8> = [3_i8, 4, -3, -4].iter().map(|n| n.cast_unsigned()).collect();
        let figures = Figures::of(&payload, Dtype::Ci8, 2).unwrap();
        assert_eq!(figures.as_text(), "largest magnitude 5.00   mean 0 + 0i   rms 5.00");
    }
}
