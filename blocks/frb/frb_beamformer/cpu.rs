//! The reference implementation: stage by stage, in single precision.

use super::gains::Gains;
use super::sizes::Sizes;
use super::{Integrate, Stages, Voltages};
use crate::common::parallel::Threads;
use fxgraph::changes::{Change, Changes, Timed};
use fxgraph::{BlockError, Counter, Dtype, Env, Frame, FrameMut, Map, PortType};
use fxgraph_dsp::fourier::{Fft, forward_f32, inverse_f32};
use half::f16;
use num_complex::Complex32;
use std::sync::Arc;

/// The running block.
pub(super) struct Cpu {
    former: Former,
    voltages: Option<Voltages>,
    threads: Threads,
    workers: Vec<Worker>,
    transforms_missing: Counter,
    changes: Changes<Gains>,
}

/// Data that all threads read.
struct Former {
    stages: Stages,
    gains: Timed<Gains>,
    /// Transform along a cylinder.
    along: Option<Arc<dyn Fft<f32>>>,
    /// Transform of spectra to narrow channels.
    in_time: Option<Arc<dyn Fft<f32>>>,
}

/// Working memory of one thread.
struct Worker {
    /// Voltages of the feeds, `[cylinder][feed]`.
    feeds: Vec<Complex32>,
    /// One row of feeds, padded with zeros to the points of the transform.
    row: Vec<Complex32>,
    /// Beams of the spectra of one transform, `[beam][spectrum]`, then `[beam][channel]`.
    beams: Vec<Complex32>,
    /// Scratch memory of the transforms.
    scratch: Vec<Complex32>,
}

impl Stages {
    /// Working memory of one thread in bytes.
    pub(super) fn scratch_bytes(&self) -> usize {
        let Sizes { cylinders, feeds, fine_channels, .. } = self.sizes;
        let points = self.points.unwrap_or(feeds);
        let beams = self.sizes.beams() * fine_channels;
        (cylinders * feeds + 3 * points + fine_channels + beams) * size_of::<Complex32>()
    }
}

/// Input frame.
struct Input<'a> {
    payload: &'a [u8],
    validity: &'a [u32],
    timestamp: u64,
}

impl Cpu {
    pub(super) fn new(
        stages: Stages,
        gains: Gains,
        output: &PortType,
        threads: usize,
        env: &Env,
    ) -> Result<Self, BlockError> {
        let sizes = stages.sizes;
        let along = stages.points.map(inverse_f32);
        let in_time = (sizes.fine_channels > 1).then(|| forward_f32(sizes.fine_channels));
        let scratch = [&along, &in_time].into_iter().flatten();
        let scratch = scratch.map(|fft| fft.get_inplace_scratch_len()).max().unwrap_or(0);
        let threads = Threads::new(threads)?;
        let worker = |_| Worker {
            feeds: vec![Complex32::ZERO; sizes.cylinders * sizes.feeds],
            row: vec![Complex32::ZERO; stages.points.unwrap_or(sizes.feeds)],
            beams: vec![Complex32::ZERO; sizes.beams() * sizes.fine_channels],
            scratch: vec![Complex32::ZERO; scratch],
        };
        Ok(Self {
            workers: (0..threads.count()).map(worker).collect(),
            threads,
            voltages: match output.dtype {
                Dtype::Cf32 => Some(Voltages::Cf32),
                Dtype::Cf16 => Some(Voltages::Cf16),
                _ => None,
            },
            former: Former { stages, gains: Timed::new(gains), along, in_time },
            transforms_missing: super::transforms_missing(&env.counters),
            changes: Changes::default(),
        })
    }
}

impl Sizes {
    /// Writes to `output` the number of transforms in each validity unit of the output, from the validity `input`.
    /// Returns the number of transforms that were left out.
    pub(super) fn output_validity(&self, input: &[u32], output: &mut [u32]) -> u64 {
        if self.fine_channels == 1 && self.integrate.is_none() {
            output.copy_from_slice(input);
            return input.iter().filter(|count| **count == 0).count() as u64;
        }
        let [_, in_frequency] = self.units;
        let sums = self.spectra_per_sum();
        let mut missing = 0;
        for (n, count) in output.iter_mut().enumerate() {
            let channel = n % in_frequency * (self.channels / in_frequency);
            let transforms = n / in_frequency * sums..(n / in_frequency + 1) * sums;
            *count = transforms
                .filter(|&transform| self.is_there(input, transform, channel))
                .count() as u32;
            missing += sums as u64 - u64::from(*count);
        }
        missing
    }

    /// Returns whether all spectra of transform `transform` of the frame are valid, in this channel.
    fn is_there(&self, validity: &[u32], transform: usize, channel: usize) -> bool {
        let [in_time, in_frequency] = self.units;
        let first = transform * self.fine_channels;
        let [first, last] = [first, first + self.fine_channels - 1]
            .map(|spectrum| spectrum / (self.spectra / in_time));
        let part = channel / (self.channels / in_frequency);
        (first..=last).all(|unit| validity[unit * in_frequency + part] != 0)
    }
}

impl Former {
    /// Computes the sums `[channel][beam]` of spectrum `spectrum` of the output.
    fn intensities(&self, input: &Input, spectrum: usize, sums: &mut [f32], worker: &mut Worker) {
        sums.fill(0.0);
        let sizes = self.stages.sizes;
        let Some(Integrate { channels, spectra }) = sizes.integrate else { return };
        let (fine, beams) = (sizes.fine_channels, sizes.beams());
        for transform in spectrum * spectra..(spectrum + 1) * spectra {
            for channel in 0..sizes.channels {
                if !sizes.is_there(input.validity, transform, channel) {
                    continue;
                }
                let sums = &mut sums[channel * (fine / channels) * beams..];
                for pol in 0..sizes.pols {
                    self.transform(input, transform, channel, pol, worker);
                    for (beam, values) in worker.beams.chunks_exact(fine).enumerate() {
                        for (n, of_sum) in values.chunks_exact(channels).enumerate() {
                            sums[n * beams + beam] +=
                                of_sum.iter().map(Complex32::norm_sqr).sum::<f32>();
                        }
                    }
                }
            }
        }
    }

    /// Computes the voltages `[spectrum][channel][pol][beam]` from spectrum `first` of the output on.
    fn voltages<T: Copy + Default>(
        &self,
        input: &Input,
        first: usize,
        run: &mut [T],
        worker: &mut Worker,
        rounded: impl Fn(Complex32) -> T,
    ) {
        let sizes = self.stages.sizes;
        let (fine, beams) = (sizes.fine_channels, sizes.beams());
        for (n, spectrum) in run.chunks_exact_mut(sizes.output_spectrum()).enumerate() {
            let channels = spectrum.chunks_exact_mut(fine * sizes.pols * beams);
            for (channel, output) in channels.enumerate() {
                if !sizes.is_there(input.validity, first + n, channel) {
                    output.fill(T::default());
                    continue;
                }
                for pol in 0..sizes.pols {
                    self.transform(input, first + n, channel, pol, worker);
                    for (k, row) in output.chunks_exact_mut(sizes.pols * beams).enumerate() {
                        let values = worker.beams.iter().skip(k).step_by(fine);
                        let row = row[pol * beams..][..beams].iter_mut().zip(values);
                        row.for_each(|(output, value)| *output = rounded(*value));
                    }
                }
            }
        }
    }

    /// Computes all beams of one transform of one channel and polarisation, as `[beam][channel]` with channels in
    /// ascending order of frequency.
    fn transform(
        &self,
        input: &Input,
        transform: usize,
        channel: usize,
        pol: usize,
        worker: &mut Worker,
    ) {
        let fine = self.stages.sizes.fine_channels;
        for n in 0..fine {
            self.spectrum(input, transform * fine + n, channel, pol, n, worker);
        }
        if let Some(in_time) = &self.in_time {
            in_time.process_with_scratch(&mut worker.beams, &mut worker.scratch);
            let beams = worker.beams.chunks_exact_mut(fine);
            beams.for_each(|channels| channels.rotate_left(fine.div_ceil(2)));
        }
    }

    /// Computes all beams of one spectrum, which is spectrum `n` of its transform.
    fn spectrum(
        &self,
        input: &Input,
        spectrum: usize,
        channel: usize,
        pol: usize,
        n: usize,
        worker: &mut Worker,
    ) {
        let Stages { sizes, east_west, index_map, .. } = &self.stages;
        let Sizes { cylinders, feeds, rows, row_beams, .. } = *sizes;
        let place = (spectrum * sizes.channels + channel) * sizes.pols + pol;
        let row_bytes = sizes.dtype.bytes(cylinders * feeds);
        read(sizes.dtype, &input.payload[place * row_bytes..][..row_bytes], &mut worker.feeds);
        let timestamp =
            input.timestamp.saturating_add(spectrum as u64 * sizes.samples_per_spectrum);
        match self.gains.at(timestamp).of(channel, pol) {
            [gain] if *gain == Complex32::ONE => {}
            [gain] => worker.feeds.iter_mut().for_each(|feed| *feed *= gain),
            gains => worker.feeds.iter_mut().zip(gains).for_each(|(feed, gain)| *feed *= gain),
        }
        let map = index_map.get(channel * row_beams..).and_then(|map| map.get(..row_beams));
        for row in 0..rows {
            let (of_feeds, zeros) = worker.row.split_at_mut(feeds);
            zeros.fill(Complex32::ZERO);
            if east_west.is_empty() {
                of_feeds.copy_from_slice(&worker.feeds[row * feeds..][..feeds]);
            } else {
                of_feeds.fill(Complex32::ZERO);
                let factors = &east_west[(channel * rows + row) * cylinders..][..cylinders];
                for (factor, cylinder) in factors.iter().zip(worker.feeds.chunks_exact(feeds)) {
                    let sums = of_feeds.iter_mut().zip(cylinder);
                    sums.for_each(|(sum, feed)| *sum += factor * feed);
                }
            }
            if let Some(along) = &self.along {
                along.process_with_scratch(&mut worker.row, &mut worker.scratch);
            }
            let beams = worker.beams[row * row_beams * sizes.fine_channels..].iter_mut();
            let beams = beams.skip(n).step_by(sizes.fine_channels);
            match map {
                Some(map) => {
                    let kept = map.iter().map(|&point| worker.row[point as usize]);
                    beams.zip(kept).for_each(|(beam, value)| *beam = value);
                }
                None => beams.zip(&worker.row).for_each(|(beam, value)| *beam = *value),
            }
        }
    }
}

/// Decodes the voltages of a row.
fn read(dtype: Dtype, row: &[u8], feeds: &mut [Complex32]) {
    let byte = |byte: u8| f32::from(byte.cast_signed());
    match dtype {
        Dtype::Ci4 => {
            let pairs = row.iter().zip(feeds);
            pairs.for_each(|(&both, feed)| {
                *feed = Complex32::new(
                    f32::from(both.cast_signed() >> 4),
                    f32::from((both << 4).cast_signed() >> 4),
                );
            });
        }
        Dtype::Ci8 => {
            let pairs = row.as_chunks::<2>().0.iter().zip(feeds);
            pairs.for_each(|(&[re, im], feed)| *feed = Complex32::new(byte(re), byte(im)));
        }
        _ => {
            let half = |bytes: [u8; 2]| f16::from_le_bytes(bytes).to_f32();
            let pairs = row.as_chunks::<4>().0.iter().zip(feeds);
            pairs.for_each(|(&[a, b, c, d], feed)| {
                *feed = Complex32::new(half([a, b]), half([c, d]));
            });
        }
    }
}

impl Map for Cpu {
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError> {
        let header = input.header();
        let sizes = self.former.stages.sizes;
        let samples = sizes.samples_per_spectrum * sizes.spectra as u64;
        for (from, gains) in self.changes.begin(header.timestamp, samples) {
            self.former.gains.set(from, gains);
        }
        self.former.gains.advance(header.timestamp);
        let Self { former, workers, threads, .. } = self;
        let former = &*former;
        let input = &Input {
            payload: input.as_slice()?,
            validity: &header.validity,
            timestamp: header.timestamp,
        };
        let unit = sizes.output_spectrum();
        match self.voltages {
            None => {
                let sums = output.as_mut_slice::<f32>()?;
                threads.each(sums, unit, workers, |first, run, worker| {
                    for (n, sums) in run.chunks_exact_mut(unit).enumerate() {
                        former.intensities(input, first + n, sums, worker);
                    }
                });
            }
            Some(Voltages::Cf32) => {
                threads.each(
                    output.as_mut_slice::<Complex32>()?,
                    unit,
                    workers,
                    |first, run, worker| {
                        former.voltages(input, first, run, worker, |value| value);
                    },
                );
            }
            Some(Voltages::Cf16) => {
                threads.each(
                    output.as_mut_slice::<[f16; 2]>()?,
                    unit,
                    workers,
                    |first, run, worker| {
                        former.voltages(input, first, run, worker, |value| {
                            [f16::from_f32(value.re), f16::from_f32(value.im)]
                        });
                    },
                );
            }
        }
        Ok(())
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.transforms_missing.add(self.former.stages.sizes.output_validity(input, output));
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
