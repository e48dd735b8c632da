//! Gains and dither of the spectra, with live updates at any spectrum.

use super::gains::Gains;
use crate::common::dither::Dither;
use crate::common::live::Live;
use crate::common::spectra::Shape;
use fxgraph::changes::Timed;
use fxgraph_dsp::dither;
use fxgraph_dsp::rotate::ChannelGains;

/// Gains and dither seed, by effective timestamp.
pub struct Settings {
    /// Gains of each polarisation.
    gains: Timed<Vec<ChannelGains>>,
    /// `None` without dither.
    dither_seed: Option<Timed<u64>>,
}

impl Settings {
    pub fn new(gains: &Gains, shape: Shape, dither: Dither, seed: u64) -> Self {
        Self {
            gains: Timed::new(gains.of_shape(&shape)),
            dither_seed: (dither == Dither::Uniform).then(|| Timed::new(seed)),
        }
    }

    /// Schedules a live value for the effective timestamp `from`.
    pub fn update(&mut self, from: u64, live: Live) {
        match live {
            Live::Gains(gains) => self.gains.set(from, gains),
            Live::DitherSeed(seed) => {
                self.dither_seed.iter_mut().for_each(|known| known.set(from, seed));
            }
            Live::Delays(_) | Live::Mixer(_) => {}
        }
    }

    /// Drops values that apply only before `timestamp`.
    pub fn advance(&mut self, timestamp: u64) {
        self.gains.advance(timestamp);
        self.dither_seed.iter_mut().for_each(|seed| seed.advance(timestamp));
    }

    /// Gains of each polarisation for the spectrum at `timestamp`.
    pub fn gains(&self, timestamp: u64) -> &[ChannelGains] {
        self.gains.at(timestamp)
    }

    /// Key of the dither of polarisation `pol` for the spectrum at `timestamp`, which has this `number` since sync
    /// time; `None` without dither.
    pub fn dither_key(&self, timestamp: u64, number: u64, pol: usize) -> Option<u64> {
        let seed = self.dither_seed.as_ref()?.at(timestamp);
        Some(dither::key(*seed, &[number, pol as u64]))
    }
}
