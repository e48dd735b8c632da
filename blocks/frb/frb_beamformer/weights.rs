//! Weights of the feeds: the product of gains and the transform across the cylinders.

use super::Stages;
use super::gains::Gains;
use super::sizes::Sizes;
use crate::common::versions::Versions;
use fxgraph::BlockError;
use fxgraph::changes::Timed;
use fxgraph::cuda::{CudaError, Device, Pipeline};
use num_complex::Complex32;
use std::ops::Range;
use std::sync::Arc;

/// Number of cylinders per row of beams.
pub(super) fn combined(stages: &Stages) -> usize {
    if stages.east_west.is_empty() { 1 } else { stages.sizes.cylinders }
}

/// Number of weights.
pub(super) fn weights_len(stages: &Stages) -> usize {
    let Sizes { channels, pols, feeds, rows, .. } = stages.sizes;
    channels * pols * rows * combined(stages) * feeds
}

/// Weights `[channel][pol][row][cylinder of a row][feed]`: products of gains and of the transform across the cylinders.
pub(super) fn weights<'a>(
    stages: &'a Stages,
    gains: &'a Gains,
) -> impl Iterator<Item = Complex32> + 'a {
    let Sizes { pols, cylinders, feeds, rows, .. } = stages.sizes;
    let combined = combined(stages);
    (0..weights_len(stages) / feeds).flat_map(move |n| {
        let (line, k) = (n / combined, n % combined);
        let (row, pol, channel) = (line % rows, line / rows % pols, line / rows / pols);
        let cylinder = if stages.east_west.is_empty() { row } else { k };
        let factor = stages.east_west.get((channel * rows + row) * cylinders + cylinder);
        let gains = gains.of(channel, pol);
        (0..feeds).map(move |feed| {
            let gain = gains.get(cylinder * feeds + feed).unwrap_or(&gains[0]);
            factor.map_or(*gain, |factor| factor * gain)
        })
    })
}

/// Scaling of a version of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scaling {
    /// Divisor of the voltages of beams that the kernels compute.
    pub divided: f64,
    /// Whether all weights are 1.
    pub all_one: bool,
}

/// Adjacent spectra of a frame with the same weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// Index of the first spectrum.
    pub first: usize,
    pub count: usize,
    /// Address of the weights in device memory.
    pub address: u64,
    pub scaling: Scaling,
}

/// Versions of the weights in device memory, by effective timestamp of the gains.
pub(super) struct DeviceWeights {
    words: Versions<u32>,
    scaling: Timed<Scaling>,
}

impl DeviceWeights {
    /// Uploads the initial weights. Blocks until the device has finished, so call it only at the start.
    pub(super) fn new(
        device: &Arc<Device>,
        words: &[u32],
        scaling: Scaling,
    ) -> Result<Self, CudaError> {
        Ok(Self { words: Versions::new(device, words)?, scaling: Timed::new(scaling) })
    }

    /// Device memory for `len` words, in bytes.
    pub(super) const fn device_bytes(len: usize) -> usize {
        Versions::<u32>::device_bytes(len)
    }

    /// See [`Versions::has_room`].
    pub(super) fn has_room(&mut self, pipeline_is_idle: bool) -> bool {
        self.words.has_room(pipeline_is_idle)
    }

    /// Schedules the words that `write` writes for the effective timestamp `from`.
    pub(super) fn set(&mut self, from: u64, write: impl FnOnce(&mut [u32]) -> Scaling) {
        let scaling = &mut self.scaling;
        self.words.set(from, |words| scaling.set(from, write(words)));
    }

    /// Drops versions that apply only before `timestamp`.
    pub(super) fn advance(&mut self, timestamp: u64) {
        self.words.advance(timestamp);
        self.scaling.advance(timestamp);
    }

    /// See [`Versions::send`].
    pub(super) fn send<J>(&mut self, pipeline: &mut Pipeline<J>) -> Result<(), BlockError> {
        self.words.send(pipeline)
    }

    /// Stretches of `spectra` of a frame that starts at `timestamp`, with spectra `step` ADC samples apart.
    pub(super) fn stretches(
        &self,
        timestamp: u64,
        step: u64,
        spectra: Range<usize>,
    ) -> impl Iterator<Item = Stretch> + Clone {
        let mut first = spectra.start;
        std::iter::from_fn(move || {
            let most = spectra.end.checked_sub(first).filter(|most| *most > 0)?;
            let start = timestamp.saturating_add(first as u64 * step);
            let stretch = Stretch {
                first,
                count: self.words.run(start, step, most),
                address: self.words.address(start),
                scaling: *self.scaling.at(start),
            };
            first += stretch.count;
            Some(stretch)
        })
    }
}
