//! Samples of an array of antennas: a sum with complex weights, which are live.

use super::samples::Samples;
use fxgraph::changes::{Change, Changes, Timed};
use fxgraph::{BlockError, Rejection};
use fxgraph_dsp::gnss::Planes;
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest magnitude of a weight, so that sums are finite floats.
const MOST: f64 = 1e6;

/// Weight of an antenna.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    /// Real part.
    #[serde(default)]
    pub re: f64,
    /// Imaginary part.
    #[serde(default)]
    pub im: f64,
}

/// Returns diagnostics for weights that are not one finite number for each antenna.
#[must_use]
pub fn reject_weights(weights: &[Weight], samples: &Samples) -> Vec<Rejection> {
    let antennas = samples.antennas;
    let reject = |message: String, help: &str| {
        vec![Rejection::parameter("weights", message).help(help.to_owned())]
    };
    if weights.len() != antennas && (antennas > 1 || !weights.is_empty()) {
        let message = format!(
            "`weights` must have one entry for each antenna ({antennas}), got {}",
            weights.len()
        );
        return reject(message, "give for two antennas, the first one alone, [{re: 1}, {re: 0}]");
    }
    let parts = || weights.iter().flat_map(|weight| [weight.re, weight.im]);
    if let Some(part) = parts().find(|part| part.is_nan() || part.abs() > MOST) {
        let message = format!("`weights` must be between -{MOST:e} and {MOST:e}, got {part:e}");
        return reject(message, "give numbers such as {re: 0.5, im: -0.5}");
    }
    if !weights.is_empty() && parts().all(|part| part == 0.0) {
        let message = "at least one of the `weights` must differ from 0".to_owned();
        return reject(message, "give {re: 1} for an antenna");
    }
    vec![]
}

/// Returns the weights as a block uses them: 1 for a single antenna.
#[must_use]
pub fn live_weights(weights: &[Weight]) -> Vec<Complex32> {
    let weight = |weight: &Weight| Complex32::new(weight.re as f32, weight.im as f32);
    if weights.is_empty() { vec![Complex32::ONE] } else { weights.iter().map(weight).collect() }
}

/// Reads the weighted sum of the samples of an array.
pub struct Array {
    /// Type of the samples of one antenna.
    one: Samples,
    weights: Timed<Vec<Complex32>>,
    changes: Changes<Vec<Complex32>>,
    /// Samples of an antenna.
    planes: Planes,
}

impl Array {
    /// Allocates the memory for a frame of one antenna.
    #[must_use]
    pub fn new(samples: &Samples, weights: &[Weight]) -> Self {
        let room = if samples.antennas > 1 { samples.samples } else { 0 };
        Self {
            one: Samples { antennas: 1, ..*samples },
            weights: Timed::new(live_weights(weights)),
            changes: Changes::default(),
            planes: Planes::new(1, room),
        }
    }

    /// Memory in bytes.
    #[must_use]
    pub fn host_bytes(samples: &Samples) -> usize {
        if samples.antennas > 1 { samples.samples.saturating_mul(8) } else { 0 }
    }

    /// Schedules new weights, which apply from the first frame that starts at or after their timestamp.
    pub fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }

    /// Takes the weights of the frame at timestamp `start`.
    pub fn begin(&mut self, start: u64) {
        for (from, weights) in self.changes.begin(start, self.one.frame_ticks) {
            self.weights.set(from, weights);
        }
        self.weights.advance(start);
    }

    /// Sums the samples of the frame at `start` `[antenna][sample]` into `sum`.
    pub fn read(&mut self, payload: &[u8], start: u64, sum: &mut Planes) {
        let Self { one, weights, planes, .. } = self;
        let range = 0..one.samples;
        let weights = weights.at(start);
        for (antenna, (weight, row)) in
            weights.iter().zip(payload.chunks_exact(one.dtype.bytes(one.samples))).enumerate()
        {
            if antenna == 0 {
                one.read(row, range.clone(), sum);
                if *weight != Complex32::ONE {
                    let (re, im) = sum.parts_mut(0);
                    for (re, im) in re.iter_mut().zip(im) {
                        let value = weight * Complex32::new(*re, *im);
                        [*re, *im] = [value.re, value.im];
                    }
                }
                continue;
            }
            if *weight == Complex32::ZERO {
                continue;
            }
            one.read(row, range.clone(), planes);
            let (from_re, from_im) = planes.parts(0, range.clone());
            let (re, im) = sum.parts_mut(0);
            let sums = re.iter_mut().zip(im).zip(from_re.iter().zip(from_im));
            for ((re, im), (from_re, from_im)) in sums {
                let value = weight * Complex32::new(*from_re, *from_im);
                *re += value.re;
                *im += value.im;
            }
        }
    }
}
