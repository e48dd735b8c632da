//! Comparison of two recorded streams of frames within a tolerance.

use fxgraph::difference::Difference;
use fxgraph::elements::value;
use fxgraph::examples::Tolerance;
use fxgraph::lock::lock;
use fxgraph::{Block, BlockError, Io, Next, PortType, TimeBase};
use num_complex::Complex;
use std::sync::{Arc, Mutex};

/// Copy of a frame.
pub struct Recorded {
    timestamp: u64,
    base: TimeBase,
    validity: Vec<u32>,
    annotations: Vec<(&'static str, Vec<f64>)>,
    values: Vec<Complex<f64>>,
}

/// Block that copies every frame it reads.
pub struct Recorder {
    port: PortType,
    frames: Frames,
}

/// Frames that a [`Recorder`] has copied.
#[derive(Clone, Default)]
pub struct Frames(Arc<Mutex<Vec<Recorded>>>);

impl Recorder {
    /// Creates a recorder of frames of `port`, and the handle to its copies.
    pub fn new(port: &PortType) -> (Self, Frames) {
        let frames = Frames::default();
        (Self { port: port.clone(), frames: frames.clone() }, frames)
    }
}

impl Frames {
    /// Takes all frames so far.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl Block for Recorder {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Some(frame) = io.inputs[0].pop() else {
            return Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait });
        };
        let header = frame.header();
        let (elements, payload) = (0..self.port.elements(), frame.as_slice()?);
        let recorded = Recorded {
            timestamp: header.timestamp,
            base: header.base,
            validity: header.validity.clone(),
            annotations: header.annotations.iter().map(|(name, v)| (name, v.to_vec())).collect(),
            values: elements.map(|n| value(payload, self.port.dtype, n)).collect(),
        };
        lock(&self.frames.0).push(recorded);
        Ok(Next::Again)
    }
}

/// Describes the differences if they are within `tolerance`, otherwise returns the first violation.
pub fn compare(
    port: &PortType,
    reference: &[Recorded],
    tested: &[Recorded],
    tolerance: Tolerance,
) -> Result<String, String> {
    if reference.is_empty() {
        return Err("the reference implementation produced no frames".to_owned());
    }
    let mut differences = Differences::default();
    for (number, (a, b)) in reference.iter().zip(tested).enumerate() {
        differences.frame(port, a, b, tolerance).map_err(|why| format!("frame {number}: {why}"))?;
    }
    if reference.len() != tested.len() {
        return Err(format!("{} frames instead of {}", tested.len(), reference.len()));
    }
    differences.verdict(tolerance)
}

#[derive(Default)]
struct Differences {
    values: Difference,
    /// Description and position of the first value beyond the tolerance.
    first: Option<String>,
}

impl Differences {
    fn frame(
        &mut self,
        port: &PortType,
        a: &Recorded,
        b: &Recorded,
        tolerance: Tolerance,
    ) -> Result<(), String> {
        if a.timestamp != b.timestamp {
            return Err(format!("timestamp {} instead of {}", b.timestamp, a.timestamp));
        }
        if a.base != b.base {
            return Err(format!("time base {:?} instead of {:?}", b.base, a.base));
        }
        let pairs = a.validity.iter().zip(&b.validity).enumerate();
        if let Some((unit, (a, b))) = pairs.clone().find(|(_, (a, b))| a != b) {
            return Err(format!("unit {unit} has validity {b} instead of {a}"));
        }
        let names =
            |frame: &Recorded| frame.annotations.iter().map(|(n, _)| *n).collect::<Vec<_>>();
        let (mut expected, mut found) = (names(a), names(b));
        expected.sort_unstable();
        found.sort_unstable();
        if expected != found {
            let (found, expected) = (found.join(", "), expected.join(", "));
            return Err(format!("annotations {found} instead of {expected}"));
        }
        for (name, values) in &a.annotations {
            let others = b.annotations.iter().find(|(other, _)| other == name);
            let others = others.map_or(&[][..], |(_, values)| values);
            if values.len() != others.len() {
                let (found, expected) = (others.len(), values.len());
                return Err(format!(
                    "annotation `{name}` has {found} values instead of {expected}"
                ));
            }
            let most = tolerance.of_annotation(name);
            for (a, b) in values.iter().zip(others) {
                let difference = (a - b).abs() / a.abs().max(1.0);
                if difference.is_nan() || difference > most {
                    return Err(format!("annotation `{name}` is {b} instead of {a}"));
                }
            }
        }
        for (element, (a, b)) in a.values.iter().zip(&b.values).enumerate() {
            let apart = self.values.see(*a, *b);
            // No case has a reason to produce NaN or infinity.
            if apart > tolerance.largest || apart.is_infinite() || !a.is_finite() {
                self.first.get_or_insert_with(|| {
                    format!("{b} instead of {a} at {}", place(port, element))
                });
            }
        }
        Ok(())
    }

    fn verdict(self, tolerance: Tolerance) -> Result<String, String> {
        let Difference { values, values_different, max, power, .. } = self.values;
        let (share, rms) = (self.values.share(), self.values.relative_rms());
        let said = if values_different == 0 {
            format!("none in {values} values")
        } else {
            format!("{share:.2e} of {values} values, at most {max:.3e}, rms {rms:.2e}")
        };
        // The comparisons are written so that NaN fails.
        let holds = self.first.is_none()
            && share <= tolerance.share
            && (rms <= tolerance.relative_rms || tolerance.relative_rms.is_infinite());
        match (holds, self.first) {
            (true, _) if power > 0.0 => Ok(said),
            (true, _) => {
                Err("all values of the reference are zero: nothing was compared".to_owned())
            }
            (false, Some(first)) => Err(format!("{said}; first {first}")),
            (false, None) => Err(said),
        }
    }
}

/// `channel 3, pol 1`
fn place(port: &PortType, mut element: usize) -> String {
    let mut parts: Vec<String> = Vec::new();
    for axis in port.axes.iter().rev() {
        parts.push(format!("{} {}", axis.name, element % axis.len));
        element /= axis.len;
    }
    parts.reverse();
    parts.join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph::{Axis, Clock, Dtype, ValidityType};

    #[test]
    fn compare_rejects_infinity_on_both_sides() {
        let port = PortType {
            dtype: Dtype::F32,
            axes: vec![Axis::new("channel", 2)],
            clock: Clock::new(1e9, 2),
            band: None,
            validity: ValidityType::flags(vec![]),
        };
        let frames = |second: f64| {
            let values = vec![Complex::new(1.0, 0.0), Complex::new(second, 0.0)];
            let base = TimeBase::default();
            [Recorded { timestamp: 0, base, validity: vec![1], annotations: vec![], values }]
        };
        let verdict = |a, b| compare(&port, &frames(a), &frames(b), Tolerance::EXACT);
        assert!(verdict(2.0, 2.0).is_ok());
        for (a, b) in [(f64::INFINITY, f64::INFINITY), (f64::NAN, f64::NAN), (2.0, f64::INFINITY)] {
            let reason = verdict(a, b).unwrap_err();
            assert!(reason.contains("at channel 1"), "{reason}");
        }
    }

    #[test]
    fn each_annotation_has_its_own_tolerance() {
        let port = PortType {
            dtype: Dtype::F32,
            axes: vec![],
            clock: Clock::new(1e9, 2),
            band: None,
            validity: ValidityType::flags(vec![]),
        };
        let frames = |name, annotated: f64| {
            let base = TimeBase::default();
            let (annotations, values) = (vec![(name, vec![annotated])], vec![Complex::ONE]);
            [Recorded { timestamp: 0, base, validity: vec![1], annotations, values }]
        };
        let tolerance = Tolerance {
            annotations: &[("saturated", 1e-3), ("output_power", 1e-2)],
            ..Tolerance::QUANTISED
        };
        let limits = [("saturated", 2001.0, 2003.0), ("output_power", 2019.0, 2021.0)];
        for (name, within, beyond) in limits.into_iter().chain([("delay", 2000.0, 2000.001)]) {
            let verdict = |b| compare(&port, &frames(name, 2000.0), &frames(name, b), tolerance);
            assert!(verdict(within).is_ok(), "{name}");
            let reason = verdict(beyond).unwrap_err();
            assert!(reason.contains(&format!("`{name}` is {beyond} instead of 2000")), "{reason}");
        }
    }
}
