//! Checks of a test at a port: data collected frame by frame, and the verdict at the end.

use fxgraph::elements::Elements;
use fxgraph::flowgraph::Check;
use fxgraph::{Frame, PortType};
use num_complex::Complex;
use std::f64::consts::{PI, TAU};
use std::hash::{DefaultHasher, Hasher};

/// Data of one port, collected for one check.
pub struct Gathered {
    check: Check,
    elements: Elements,
    /// Position of the axis of `peak`; positions and indices of `at`.
    axis: usize,
    fixed: Vec<(usize, usize)>,
    full: u32,
    frames: u64,
    seen: u64,
    power: Vec<f64>,
    sum: Complex<f64>,
    square: f64,
    /// The element with the largest deviation: deviation, indices and value.
    worst: Option<(f64, Vec<usize>, Complex<f64>)>,
    validity: (u64, u64),
    /// One hash per frame, for `same_as`.
    hashes: Vec<u64>,
}

/// Result of a check, with a description of the data.
pub struct Verdict {
    pub holds: bool,
    pub text: String,
}

impl Gathered {
    pub fn new(check: Check, port: &PortType) -> Self {
        let position = |name: &str| port.axes.iter().position(|axis| axis.name == name);
        // The axes were checked when the file was loaded.
        let (axis, fixed) = match &check {
            Check::Peak { axis, .. } => (position(axis).unwrap_or(0), Vec::new()),
            Check::Rms { at, .. } | Check::Mean { at, .. } | Check::Phase { at, .. } => {
                let fixed = at.iter().filter_map(|(name, i)| Some((position(name)?, *i as usize)));
                (0, fixed.collect())
            }
            _ => (0, Vec::new()),
        };
        let power = match &check {
            Check::Peak { .. } => vec![0.0; port.axes.get(axis).map_or(0, |axis| axis.len)],
            _ => Vec::new(),
        };
        Self {
            check,
            elements: Elements::new(port),
            axis,
            fixed,
            full: port.validity.full.max(1),
            frames: 0,
            seen: 0,
            power,
            sum: Complex::default(),
            square: 0.0,
            worst: None,
            validity: (0, 0),
            hashes: Vec::new(),
        }
    }

    /// Adds a frame.
    pub fn see(&mut self, frame: &Frame) {
        self.frames += 1;
        let expected = match &self.check {
            Check::Frames(_) => return,
            Check::SameAs(_) => return self.hashes.push(hash(frame)),
            Check::Validity { .. } => {
                let counts = &frame.header().validity;
                self.validity.0 +=
                    counts.iter().map(|c| u64::from((*c).min(self.full))).sum::<u64>();
                self.validity.1 += counts.len() as u64 * u64::from(self.full);
                return;
            }
            Check::Equals((re, im)) | Check::CloseTo { value: (re, im), .. } => {
                Some(Complex::new(*re, *im))
            }
            _ => None,
        };
        let Self { elements, seen, power, sum, square, worst, axis, fixed, .. } = self;
        let looked = elements.valid(frame, |index, value| {
            if !fixed.iter().all(|(axis, at)| index[*axis] == *at) {
                return;
            }
            *seen += 1;
            *sum += value;
            *square += value.norm_sqr();
            if let Some(power) = power.get_mut(index.get(*axis).copied().unwrap_or(0)) {
                *power += value.norm_sqr();
            }
            if let Some(expected) = expected {
                let off = (value - expected).norm();
                // NaN counts as the largest deviation.
                let off = if off.is_nan() { f64::INFINITY } else { off };
                if worst.as_ref().is_none_or(|(known, ..)| off > *known) {
                    *worst = Some((off, index.to_vec(), value));
                }
            }
        });
        looked.expect(fxgraph::ON_HOST);
    }

    /// Returns the verdict. `other` is the data of the port in `same_as`; a run that `is_cut` may have
    /// ended between a frame of one port and that of the other.
    pub fn verdict(&self, other: Option<&Self>, is_cut: bool) -> Verdict {
        let frames = self.frames;
        let said = |holds: bool, text: String| Verdict { holds, text };
        if let Check::Frames(expected) = self.check {
            return said(frames == expected, format!("{frames} frames"));
        }
        if frames == 0 {
            return said(false, "no frames".to_owned());
        }
        match &self.check {
            Check::Validity { fraction, tolerance } => {
                let part = self.validity.0 as f64 / (self.validity.1 as f64).max(1.0);
                return said(near(part, *fraction, *tolerance), format!("validity {part:.4}"));
            }
            Check::SameAs(tap) => return self.same(&tap.text, other, is_cut),
            _ => {}
        }
        if self.seen == 0 {
            return said(false, format!("{frames} frames, but no valid element"));
        }
        let n = self.seen as f64;
        match &self.check {
            Check::Peak { axis, at, tolerance } => {
                let (peak, power) = self
                    .power
                    .iter()
                    .enumerate()
                    .max_by(|a, b| a.1.total_cmp(b.1))
                    .map_or((0, 0.0), |(index, power)| (index, *power));
                let total: f64 = self.power.iter().sum();
                let share = if total > 0.0 { 100.0 * power / total } else { 0.0 };
                // Without power, every index would be a peak.
                let holds = total > 0.0 && near(peak as f64, *at, *tolerance);
                said(holds, format!("peak at {axis} {peak} with {share:.1} % of the power"))
            }
            Check::Rms { value, tolerance, .. } => {
                let rms = (self.square / n).sqrt();
                said(near(rms, *value, *tolerance), format!("rms {rms:.6}"))
            }
            Check::Mean { value, tolerance, .. } => {
                let mean = self.sum.re / n;
                said(near(mean, *value, *tolerance), format!("mean {mean:.6}"))
            }
            Check::Equals(_) => self.farthest(0.0),
            Check::CloseTo { tolerance, .. } => self.farthest(*tolerance),
            Check::Phase { radians, tolerance, .. } => {
                let phase = self.sum.arg();
                let off = (phase - radians + PI).rem_euclid(TAU) - PI;
                let holds = self.sum.norm() > 0.0 && near(off, 0.0, *tolerance);
                said(holds, format!("phase {phase:.6} rad"))
            }
            Check::Frames(_) | Check::Validity { .. } | Check::SameAs(_) => {
                unreachable!("answered above")
            }
        }
    }

    fn farthest(&self, tolerance: f64) -> Verdict {
        let Some((off, index, value)) = &self.worst else {
            return Verdict { holds: false, text: "no value".to_owned() };
        };
        let text = format!("{value} at {index:?}, a deviation of {off:.6}");
        Verdict { holds: *off <= tolerance, text }
    }

    fn same(&self, name: &str, other: Option<&Self>, is_cut: bool) -> Verdict {
        let theirs = other.map_or(&[][..], |other| &other.hashes);
        let (mine, others) = (self.hashes.len(), theirs.len());
        let both = mine.min(others);
        let different = (0..both).find(|i| self.hashes[*i] != theirs[*i]);
        match different {
            Some(frame) => Verdict {
                holds: false,
                text: format!("frame {frame} differs from that of `{name}`"),
            },
            None if mine != others && !is_cut => {
                Verdict { holds: false, text: format!("{mine} frames, `{name}` has {others}") }
            }
            None if both > 0 => Verdict { holds: true, text: format!("{both} equal frames") },
            None => Verdict { holds: false, text: format!("no frames of `{name}`") },
        }
    }
}

fn near(value: f64, expected: f64, tolerance: f64) -> bool {
    // The rounding of decimal fractions like 0.1 + 0.2 must not fail an exact test.
    (value - expected).abs() <= tolerance + 1e-12 * expected.abs()
}

/// Hash of payload, timestamp and validity.
fn hash(frame: &Frame) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(frame.as_slice::<u8>().expect(fxgraph::ON_HOST));
    hasher.write_u64(frame.header().timestamp);
    frame.header().validity.iter().for_each(|count| hasher.write_u32(*count));
    hasher.finish()
}
