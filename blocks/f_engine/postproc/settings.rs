//! Gains and dither of the spectra, which may change from one spectrum to the next.

use super::gains::Gains;
use crate::common::dither::Dither;
use crate::common::live::Live;
use crate::common::spectra::Shape;
use fxgraph::retune::Timed;
use fxgraph_dsp::dither;
use fxgraph_dsp::rotate::ChannelGains;

/// What holds for the spectra, by their timestamps.
pub struct Settings {
    /// Of each polarisation.
    gains: Timed<Vec<ChannelGains>>,
    /// `None` without dither.
    dither_seed: Option<Timed<u64>>,
}

impl Settings {
    pub fn new(gains: &Gains, shape: Shape, dither: Dither, seed: u64) -> Self {
        Self {
            gains: Timed::new(gains.of_pols(shape.pols)),
            dither_seed: (dither == Dither::Uniform).then(|| Timed::new(seed)),
        }
    }

    /// Goes over to another value at timestamp `from`.
    pub fn retune(&mut self, from: u64, live: Live) {
        match live {
            Live::Gains(gains) => self.gains.set(from, gains),
            Live::DitherSeed(seed) => {
                self.dither_seed.iter_mut().for_each(|known| known.set(from, seed));
            }
            Live::Delays(_) | Live::Mixer(_) => {}
        }
    }

    /// Forgets what held before `timestamp` only.
    pub fn advance(&mut self, timestamp: u64) {
        self.gains.advance(timestamp);
        self.dither_seed.iter_mut().for_each(|seed| seed.advance(timestamp));
    }

    /// Gains of each polarisation for the spectrum at `timestamp`.
    pub fn gains(&self, timestamp: u64) -> &[ChannelGains] {
        self.gains.at(timestamp)
    }

    /// Key of the dither of polarisation `pol` of the spectrum at `timestamp`, which has this number
    /// since sync time.
    pub fn dither_key(&self, timestamp: u64, number: u64, pol: usize) -> Option<u64> {
        let seed = self.dither_seed.as_ref()?.at(timestamp);
        Some(dither::key(*seed, &[number, pol as u64]))
    }
}
