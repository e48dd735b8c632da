//! Gains and dither of the spectra on a GPU, which may change from one spectrum to the next.
#![allow(unsafe_code)] // launches on memory that the caller answers for

use crate::common::live::Live;
use crate::common::versions::Versions;
use fxgraph::BlockError;
use fxgraph::cuda::{CudaError, Device, Grid, Kernel, Lane};
use fxgraph::retune::Timed;
use fxgraph_dsp::rotate::ChannelGains;
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
pub struct GainStretch {
    pub count: usize,
    /// Of the gains that all channels share, and of those that each has besides.
    pub common: u64,
    pub each: u64,
    /// Whether these are not all 1.
    pub differ: bool,
}

/// Rows of a frame: for each spectrum what is the same for all of its channels.
pub struct Rows {
    /// Addresses of what they are made of, \[pol\]\[spectrum\], and of where they go.
    pub phases: u64,
    pub fine_delays: u64,
    pub to: u64,
    /// Spectra of each polarisation.
    pub spectra: usize,
    /// Timestamp of the first one, and from one to the next.
    pub start: u64,
    pub step: u64,
}

/// A kernel in two forms, for gains that are the same for all channels and for others.
pub struct GainKernels {
    /// For the gains at the start.
    first: Kernel,
    /// For gains that differ, if that is another one.
    of_each: Option<Kernel>,
}

impl GainKernels {
    /// `first`, for these `gains`, and what `make` makes for gains that differ from channel to channel, if these do
    /// not. At the start: compiled when such gains come, it would hold up the stream.
    pub fn new(
        first: Kernel,
        gains: &[ChannelGains],
        make: impl FnOnce() -> Result<Kernel, BlockError>,
    ) -> Result<Self, BlockError> {
        let of_each = if differ(gains) { None } else { Some(make()?) };
        Ok(Self { first, of_each })
    }

    /// The one for spectra whose gains `differ` or do not.
    pub fn of(&mut self, differ: bool) -> &mut Kernel {
        self.of_each.as_mut().filter(|_| differ).unwrap_or(&mut self.first)
    }

    /// The one for the gains at the start.
    pub fn first(&self) -> &Kernel {
        &self.first
    }
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
    pub fn send<J>(&mut self, lane: &mut Lane<J>) -> Result<(), BlockError> {
        self.gains.send(lane)
    }

    /// The stretch of at most `most` spectra, `step` apart, of which the first is at timestamp `start`.
    pub fn stretch(&self, start: u64, step: u64, most: usize) -> GainStretch {
        let common = self.gains.address(start);
        GainStretch {
            count: self.gains.run(start, step, most),
            common,
            each: common + (2 * self.pols * size_of::<f64>()) as u64,
            differ: *self.differ.at(start),
        }
    }

    /// Queues what makes rows, in blocks of so many `threads`: one launch for all spectra that have the same
    /// gains and seed.
    ///
    /// # Safety
    /// `kernel` takes the arguments below, and the memory at the addresses is the block's or the job's.
    pub unsafe fn make_rows<J>(
        &self,
        lane: &Lane<J>,
        kernel: &mut Kernel,
        threads: usize,
        of: &Rows,
    ) -> Result<(), BlockError> {
        let mut done = 0;
        while done < of.spectra {
            let t = of.start + done as u64 * of.step;
            let stretch = self.stretch(t, of.step, of.spectra - done);
            let (dither_seed, count) = self.dither_seed(t, of.step, stretch.count);
            let arguments = [
                of.phases.into(),
                of.fine_delays.into(),
                stretch.common.into(),
                of.to.into(),
                (of.spectra as u32).into(),
                (done as u32).into(),
                (count as u32).into(),
                (of.start / of.step).into(),
                dither_seed.into(),
            ];
            let grid = Grid::new([(self.pols * count).div_ceil(threads), 1, 1], threads);
            // SAFETY: of the caller; the gains are the settings' own.
            unsafe { kernel.launch(lane.stream(), grid, &arguments) }?;
            done += count;
        }
        Ok(())
    }

    /// The seed of the dither of such spectra, and how many of them have it.
    fn dither_seed(&self, start: u64, step: u64, most: usize) -> (u64, usize) {
        (*self.dither_seed.at(start), self.dither_seed.run(start, step, most))
    }
}

/// Whether the channels of any polarisation differ.
pub fn differ(gains: &[ChannelGains]) -> bool {
    gains.iter().any(|gains| gains.of_each().is_some())
}

fn write(table: &mut [f64], gains: &[ChannelGains], order: &[usize]) {
    let (common, each) = table.split_at_mut(2 * gains.len());
    let each: &mut [Complex32] = bytemuck::cast_slice_mut(each);
    let pols = common.chunks_exact_mut(2).zip(each.chunks_exact_mut(order.len()));
    for (gains, (common, each)) in gains.iter().zip(pols) {
        let factor = gains.common();
        common.copy_from_slice(&[factor.re, factor.im]);
        match gains.of_each() {
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
        let same = ChannelGains::same(gain(2.0, 1.0));
        let each = ChannelGains::each(vec![gain(1.0, 0.5), gain(3.0, 0.0), gain(5.0, -1.0)]);
        let mut table = vec![0.0; 2 * (2 + 3)];
        write(&mut table, &[same, each], &[2, 0, 1]);
        assert_eq!(table[..4], [2.0, 1.0, 1.0, 0.0]);
        let each: &[Complex32] = bytemuck::cast_slice(&table[4..]);
        assert_eq!(each[..3], [gain(1.0, 0.0); 3]);
        assert_eq!(each[3..], [gain(5.0, -1.0), gain(1.0, 0.5), gain(3.0, 0.0)]);
    }
}
