//! Gains and dither of the spectra on a GPU, with live updates at any spectrum.
#![allow(unsafe_code)] // launches on memory that the caller guarantees

use crate::common::live::Live;
use crate::common::versions::Versions;
use fxgraph::BlockError;
use fxgraph::changes::Timed;
use fxgraph::cuda::{CudaError, Device, Grid, Kernel, Pipeline};
use fxgraph_dsp::rotate::ChannelGains;
use num_complex::Complex32;
use std::sync::Arc;

/// Gains and dither seeds, by effective timestamp.
pub struct DeviceSettings {
    /// Common gains of all channels, `[pol][re, im]` in double precision, then the gain of each channel,
    /// `[pol][channel][re, im]` in single precision, which takes one `f64` per channel.
    gains: Versions<f64>,
    /// Whether the gains of channels differ.
    differ: Timed<bool>,
    pols: usize,
    /// Channels in the order in which the kernel reads their gains.
    order: Vec<usize>,
    dither_seed: Timed<u64>,
}

/// Adjacent spectra that have the same gains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GainStretch {
    pub count: usize,
    /// Address of the common gains of all channels.
    pub common: u64,
    /// Address of the gains of each channel.
    pub each: u64,
    /// Whether the gains of each channel are not all 1.
    pub differ: bool,
}

/// Input and output of the kernel for rows: the values that all channels of a spectrum share.
pub struct Rows {
    /// Address of the phases, `[pol][spectrum]`.
    pub phases: u64,
    /// Address of the fine delays, `[pol][spectrum]`.
    pub fine_delays: u64,
    /// Address of the rows, `[pol][spectrum]`.
    pub to: u64,
    /// Spectra of each polarisation.
    pub spectra: usize,
    /// Timestamp of the first spectrum.
    pub start: u64,
    /// ADC samples from one spectrum to the next.
    pub step: u64,
}

/// A kernel in two versions: for equal gains of all channels, and for different ones.
pub struct GainKernels {
    /// Version for the gains at the start.
    first: Kernel,
    /// Version for different gains, if `first` is for equal ones.
    of_each: Option<Kernel>,
}

impl GainKernels {
    /// Stores `first`, the kernel for `gains`, and, if these are equal for all channels, the kernel of `make` for
    /// different gains. Compiling it later, when such gains arrive, would stall the stream.
    pub fn new(
        first: Kernel,
        gains: &[ChannelGains],
        make: impl FnOnce() -> Result<Kernel, BlockError>,
    ) -> Result<Self, BlockError> {
        let of_each = if differ(gains) { None } else { Some(make()?) };
        Ok(Self { first, of_each })
    }

    /// Kernel for spectra whose gains `differ`, or do not.
    pub fn of(&mut self, differ: bool) -> &mut Kernel {
        self.of_each.as_mut().filter(|_| differ).unwrap_or(&mut self.first)
    }

    /// Kernel for the gains at the start.
    pub fn first(&self) -> &Kernel {
        &self.first
    }
}

impl DeviceSettings {
    /// Uploads the initial settings. Blocks until the device has finished, so call it only at the start.
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

    /// Device memory of the settings in bytes.
    pub const fn device_bytes(pols: usize, channels: usize) -> usize {
        Versions::<f64>::device_bytes(pols * (2 + channels))
    }

    /// Schedules a live value for the effective timestamp `from`.
    pub fn update(&mut self, from: u64, live: Live) {
        match live {
            Live::Gains(gains) => {
                self.differ.set(from, differ(&gains));
                self.gains.set(from, |table| write(table, &gains, &self.order));
            }
            Live::DitherSeed(seed) => self.dither_seed.set(from, seed),
            Live::Delays(_) | Live::Mixer(_) => {}
        }
    }

    /// Drops values that apply only before `timestamp`.
    pub fn advance(&mut self, timestamp: u64) {
        self.gains.advance(timestamp);
        self.differ.advance(timestamp);
        self.dither_seed.advance(timestamp);
    }

    /// See [`Versions::has_room`].
    pub fn has_room(&mut self, pipeline_is_idle: bool) -> bool {
        self.gains.has_room(pipeline_is_idle)
    }

    /// See [`Versions::send`].
    pub fn send<J>(&mut self, pipeline: &mut Pipeline<J>) -> Result<(), BlockError> {
        self.gains.send(pipeline)
    }

    /// Stretch of at most `most` spectra, `step` ADC samples apart, that starts at timestamp `start`.
    pub fn stretch(&self, start: u64, step: u64, most: usize) -> GainStretch {
        let common = self.gains.address(start);
        GainStretch {
            count: self.gains.run(start, step, most),
            common,
            each: common + (2 * self.pols * size_of::<f64>()) as u64,
            differ: *self.differ.at(start),
        }
    }

    /// Queues the kernel for rows, in blocks of `threads`, with one launch for all adjacent spectra that have the
    /// same gains and seed.
    ///
    /// # Safety
    /// `kernel` must take the arguments below, and the memory at the addresses must belong to the block or the job.
    pub unsafe fn make_rows<J>(
        &self,
        pipeline: &Pipeline<J>,
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
            // SAFETY: guaranteed by the caller; the gains belong to `self`.
            unsafe { kernel.launch(pipeline.stream(), grid, &arguments) }?;
            done += count;
        }
        Ok(())
    }

    /// Dither seed of the spectrum at `start`, and the number of spectra from it on, at most `most`, with this seed.
    fn dither_seed(&self, start: u64, step: u64, most: usize) -> (u64, usize) {
        (*self.dither_seed.at(start), self.dither_seed.run(start, step, most))
    }
}

/// Returns whether the gains of the channels of any polarisation differ.
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
    fn gain_table_has_common_gains_then_channels_in_kernel_order() {
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
