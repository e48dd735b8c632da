//! Gains and dither of the spectra on a GPU, which may change from one spectrum to the next.

use super::rotate::ChannelGains;
use crate::live::Live;
use crate::versions::Versions;
use fxgraph::BlockError;
use fxgraph::cuda::{CudaError, Device, Lane};
use fxgraph::retune::Timed;
use num_complex::Complex32;
use std::sync::Arc;

/// What holds for the spectra, by their timestamps.
pub struct DeviceSettings {
    /// Those that all channels share, \[pol\]\[re, im\], then, \[pol\]\[channel\], what each channel has
    /// besides: two numbers in single precision, as wide as one in double.
    gains: Versions<f64>,
    /// Whether channels differ.
    differ: Timed<bool>,
    pols: usize,
    /// The channels in the order in which the kernel wants their gains.
    order: Vec<usize>,
    dither_seed: Timed<u64>,
}

/// Adjacent spectra that have the same gains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub count: usize,
    /// Of the gains that all channels share, and of those that each has besides.
    pub common: u64,
    pub each: u64,
    /// Whether these are not all 1.
    pub differ: bool,
}

impl DeviceSettings {
    /// These, until they are changed. Waits for the device: for the start.
    pub fn new(
        device: &Arc<Device>,
        gains: &[ChannelGains],
        order: Vec<usize>,
        dither_seed: u64,
    ) -> Result<Self, CudaError> {
        let mut table = vec![0.0; gains.len() * (2 + order.len())];
        write(&mut table, gains, &order);
        Ok(Self {
            gains: Versions::new(device, &table)?,
            differ: Timed::new(differ(gains)),
            pols: gains.len(),
            order,
            dither_seed: Timed::new(dither_seed),
        })
    }

    /// Bytes that they take on the device.
    pub const fn device_bytes(pols: usize, channels: usize) -> usize {
        Versions::<f64>::device_bytes(pols * (2 + channels))
    }

    /// Goes over to another value at timestamp `from`.
    pub fn retune(&mut self, from: u64, live: Live) {
        match live {
            Live::Gains(gains) => {
                self.differ.set(from, differ(&gains));
                self.gains.set(from, |table| write(table, &gains, &self.order));
            }
            Live::DitherSeed(seed) => self.dither_seed.set(from, seed),
            Live::Delays(_) | Live::Mixer(_) => {}
        }
    }

    /// Forgets what held before `timestamp` only.
    pub fn advance(&mut self, timestamp: u64) {
        self.gains.advance(timestamp);
        self.differ.advance(timestamp);
        self.dither_seed.advance(timestamp);
    }

    /// See [`Versions::has_room`].
    pub fn has_room(&mut self, lane_is_idle: bool) -> bool {
        self.gains.has_room(lane_is_idle)
    }

    /// See [`Versions::send`].
    pub fn send<J>(&mut self, lane: &Lane<J>) -> Result<(), BlockError> {
        self.gains.send(lane)
    }

    /// The stretch of at most `most` spectra, `step` apart, of which the first is at timestamp `start`.
    pub fn stretch(&self, start: u64, step: u64, most: usize) -> Stretch {
        let common = self.gains.address(start);
        Stretch {
            count: self.gains.run(start, step, most),
            common,
            each: common + (2 * self.pols * size_of::<f64>()) as u64,
            differ: *self.differ.at(start),
        }
    }

    /// The seed of the dither of such spectra, and how many of them have it.
    pub fn dither_seed(&self, start: u64, step: u64, most: usize) -> (u64, usize) {
        (*self.dither_seed.at(start), self.dither_seed.run(start, step, most))
    }
}

/// Whether the channels of any polarisation differ.
pub fn differ(gains: &[ChannelGains]) -> bool {
    gains.iter().any(|gains| gains.each().is_some())
}

fn write(table: &mut [f64], gains: &[ChannelGains], order: &[usize]) {
    let (common, each) = table.split_at_mut(2 * gains.len());
    let each: &mut [Complex32] = bytemuck::cast_slice_mut(each);
    let pols = common.chunks_exact_mut(2).zip(each.chunks_exact_mut(order.len()));
    for (gains, (common, each)) in gains.iter().zip(pols) {
        let factor = gains.common();
        common.copy_from_slice(&[factor.re, factor.im]);
        match gains.each() {
            Some(gains) => {
                each.iter_mut().zip(order).for_each(|(to, channel)| *to = gains[*channel]);
            }
            None => each.fill(Complex32::new(1.0, 0.0)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_what_channels_share_and_then_each_in_the_order_of_the_kernel() {
        let gain = |re: f32, im: f32| Complex32::new(re, im);
        let same = ChannelGains::new(vec![gain(2.0, 1.0); 3], true);
        let each = ChannelGains::new(vec![gain(1.0, 0.5), gain(3.0, 0.0), gain(5.0, -1.0)], false);
        let mut table = vec![0.0; 2 * (2 + 3)];
        write(&mut table, &[same, each], &[2, 0, 1]);
        assert_eq!(table[..4], [2.0, 1.0, 1.0, 0.0]);
        let each: &[Complex32] = bytemuck::cast_slice(&table[4..]);
        assert_eq!(each[..3], [gain(1.0, 0.0); 3]);
        assert_eq!(each[3..], [gain(5.0, -1.0), gain(1.0, 0.5), gain(3.0, 0.0)]);
    }
}
