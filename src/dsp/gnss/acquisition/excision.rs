//! Removal of narrow lines from the samples of a frame: a carrier leaks into every cell of a search.

use super::search::smooth;
use crate::fourier::{Fft, forward_f32, inverse_f32};
use crate::gnss::Planes;
use num_complex::Complex32;
use std::sync::Arc;

/// Length of a segment in seconds: the lines of a C/A code, 1 kHz apart, stay apart.
const SEGMENT_SECONDS: f64 = 4e-3;
/// Segments per frame, at least.
const SEGMENTS: usize = 4;
/// Power above the median of the neighbouring bins that makes a line. The strongest line of a C/A code reaches it at
/// about 54 dB Hz; noise does not, because the power is a mean of at least seven segments.
const LINE: f32 = 8.0;
/// Bins on either side that are removed with a line: the main lobe of the window.
const LOBE: usize = 2;
/// Neighbouring bins of a median.
const NEIGHBOURS: usize = 64;

/// Removes lines from frames.
pub struct Excision {
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    /// A Hann window; windows that overlap by half add up to 1.
    window: Vec<f32>,
    segment: Vec<Complex32>,
    transform: Vec<Complex32>,
    power: Vec<f32>,
    sorted: Vec<f32>,
    is_line: Vec<bool>,
    /// Signal of the lines, `[re]` and `[im]`.
    lines: [Vec<f32>; 2],
}

impl Excision {
    /// Allocates the memory for frames of `samples` samples at `rate_hz`.
    #[must_use]
    pub fn new(samples: usize, rate_hz: f64) -> Self {
        let length = Self::length(samples, rate_hz);
        let forward = forward_f32(length);
        let inverse = inverse_f32(length);
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        let hann =
            |n: usize| (std::f32::consts::PI * (n as f32 + 0.5) / length as f32).sin().powi(2);
        Self {
            forward,
            inverse,
            window: (0..length).map(hann).collect(),
            segment: vec![Complex32::ZERO; length],
            transform: vec![Complex32::ZERO; scratch],
            power: vec![0.0; length],
            sorted: Vec::with_capacity(NEIGHBOURS),
            is_line: vec![false; length],
            lines: [vec![0.0; samples], vec![0.0; samples]],
        }
    }

    fn length(samples: usize, rate_hz: f64) -> usize {
        let length = ((SEGMENT_SECONDS * rate_hz) as usize).min(samples / SEGMENTS).max(2);
        // An even length no larger than that: half of it is the step.
        2 * smooth((length / 2).max(1) * 4 / 5 + 1).min(length / 2).max(1)
    }

    /// Approximate memory in bytes.
    #[must_use]
    pub fn host_bytes(samples: usize, rate_hz: f64) -> usize {
        let length = Self::length(samples, rate_hz);
        2 * size_of::<f32>() * samples + 3 * size_of::<Complex32>() * length
    }

    /// Removes the lines from `planes`; returns the fraction of the band that was removed.
    pub fn apply(&mut self, planes: &mut Planes) -> f64 {
        let length = self.segment.len();
        let half = length / 2;
        let samples = planes.len();
        self.power.fill(0.0);
        for start in (0..(samples + 1).saturating_sub(length)).step_by(half) {
            self.load(planes, start as i64);
            let powers = self.segment.iter().map(Complex32::norm_sqr);
            self.power.iter_mut().zip(powers).for_each(|(sum, power)| *sum += power);
        }
        if !self.find() {
            return 0.0;
        }
        self.lines.iter_mut().for_each(|part| part.fill(0.0));
        for start in (0..samples + half).step_by(half).map(|end| end as i64 - half as i64) {
            self.load(planes, start);
            for (value, is_line) in self.segment.iter_mut().zip(&self.is_line) {
                *value = if *is_line { *value / length as f32 } else { Complex32::ZERO };
            }
            self.inverse.process_with_scratch(&mut self.segment, &mut self.transform);
            let [re, im] = &mut self.lines;
            for (n, value) in self.segment.iter().enumerate() {
                let at = usize::try_from(start + n as i64).ok().filter(|at| *at < samples);
                if let Some(at) = at {
                    re[at] += value.re;
                    im[at] += value.im;
                }
            }
        }
        let (re, im) = planes.parts_mut(0);
        re.iter_mut().zip(&self.lines[0]).for_each(|(value, line)| *value -= line);
        im.iter_mut().zip(&self.lines[1]).for_each(|(value, line)| *value -= line);
        self.is_line.iter().filter(|is_line| **is_line).count() as f64 / length as f64
    }

    /// Transforms the windowed segment from sample `start`; samples outside the frame are 0.
    fn load(&mut self, planes: &Planes, start: i64) {
        let (re, im) = planes.parts(0, 0..planes.len());
        for (n, (value, weight)) in self.segment.iter_mut().zip(&self.window).enumerate() {
            let at = usize::try_from(start + n as i64).ok().filter(|at| *at < re.len());
            *value = at.map_or(Complex32::ZERO, |at| Complex32::new(re[at], im[at]) * weight);
        }
        self.forward.process_with_scratch(&mut self.segment, &mut self.transform);
    }

    /// Marks the lines and their neighbours; returns whether there are any.
    fn find(&mut self) -> bool {
        let length = self.power.len();
        self.is_line.fill(false);
        let mut found = false;
        for first in (0..length).step_by(NEIGHBOURS) {
            let bins = first..(first + NEIGHBOURS).min(length);
            self.sorted.clear();
            self.sorted.extend_from_slice(&self.power[bins.clone()]);
            let middle = self.sorted.len() / 2;
            let (_, median, _) = self.sorted.select_nth_unstable_by(middle, f32::total_cmp);
            let limit = LINE * *median;
            for bin in bins.filter(|bin| self.power[*bin] > limit) {
                found = true;
                for near in bin + length - LOBE..=bin + length + LOBE {
                    self.is_line[near % length] = true;
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Returns planes of noise with a variance of 1 and a carrier with this power.
    fn noise_with_carrier(samples: usize, power: f64) -> Planes {
        let mut random = Random::new(9);
        let normal = |random: &mut Random| {
            let (radius, turn) = ((-random.uniform().ln()).sqrt(), random.uniform());
            num_complex::Complex64::from_polar(radius, std::f64::consts::TAU * turn)
        };
        let carrier =
            |n: usize| num_complex::Complex64::from_polar(power.sqrt(), 0.123_456 * n as f64);
        let values = (0..samples).map(|n| normal(&mut random) + carrier(n));
        let values: Vec<[f32; 2]> = values.map(|v| [v.re as f32, v.im as f32]).collect();
        let mut planes = Planes::new(1, samples);
        planes.read(&values, samples, 0..samples, false);
        planes
    }

    fn power(planes: &Planes) -> f64 {
        let (re, im) = planes.parts(0, 0..planes.len());
        let powers = re.iter().zip(im).map(|(re, im)| f64::from(re * re + im * im));
        powers.sum::<f64>() / planes.len() as f64
    }

    #[test]
    fn carrier_is_removed_and_noise_is_kept() {
        for (samples, carrier) in [(80_000, 0.0), (80_000, 1e-2), (80_001, 1.0), (12_000, 1.0)] {
            let mut planes = noise_with_carrier(samples, carrier);
            let removed = Excision::new(samples, 4e6).apply(&mut planes);
            assert_eq!(removed > 0.0, carrier > 0.0, "{carrier}");
            assert!(removed < 0.02, "{removed}");
            let left = power(&planes);
            assert!((left - 1.0).abs() < 0.03, "{samples} {carrier}: {left}");
        }
    }
}
