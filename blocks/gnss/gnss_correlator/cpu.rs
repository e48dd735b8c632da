//! The CPU implementation, which is the reference: each satellite is correlated with a block of samples
//! while the block is in the cache.

use super::{Channel, Counts, Shape};
use crate::common::parallel::Threads;
use fxgraph::changes::{Change, Changes, Timed};
use fxgraph::{BlockError, Env, Frame, FrameMut, Map};
use fxgraph_dsp::gnss::correlate::Rotors;
use fxgraph_dsp::gnss::moments::{self, EdgeCorrelator, Moments, Weights, log2_cell};
use fxgraph_dsp::gnss::{BLOCK_SAMPLES, Correlator, Nco, Planes};
use fxgraph_dsp::simd::InstructionSet;
use num_complex::{Complex32, Complex64};

/// The running block.
pub(super) struct Cpu {
    shape: Shape,
    channels: Timed<Vec<Channel>>,
    changes: Changes<Vec<Channel>>,
    threads: Threads,
    workers: Vec<Worker>,
    /// Sums of one epoch, `[satellite][antenna][tap]`.
    sums: Vec<Complex64>,
    counts: Counts,
}

/// State of one thread.
struct Worker {
    instructions: InstructionSet,
    planes: Planes,
    /// Rotors of the intermediate frequency, which all satellites share: `shared_step` turns per sample in
    /// units of 2^-64.
    shared: Rotors,
    shared_step: u64,
    /// Moments of each antenna.
    moments: Vec<Moments>,
    edges: EdgeCorrelator,
    correlator: Correlator,
    satellites: Vec<Steps>,
}

/// A satellite's phases at the next block, and tables that depend only on its frequency, computed when the
/// frequency changes.
struct Steps {
    nco: Nco,
    way: Way,
    rotors: Rotors,
    weights: Weights,
}

/// Method of correlation.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// From the moments of the samples, which all satellites share.
    Moments,
    /// From the samples.
    Samples,
}

/// Returns the memory of a thread and of the sums, in bytes.
pub(super) fn worker_bytes(shape: &Shape) -> usize {
    let per_antenna = 8 * moments::BLOCK_SAMPLES + Moments::BYTES;
    let sums = 16 * shape.samples.antennas * shape.taps;
    let per_satellite = 24 * BLOCK_SAMPLES + Weights::BYTES + sums;
    per_antenna * shape.samples.antennas + per_satellite * shape.satellites
}

impl Worker {
    fn new(shape: &Shape, shared_step: u64, satellites: usize) -> Self {
        let instructions = InstructionSet::best();
        let antennas = shape.samples.antennas;
        let mut shared = Rotors::new(moments::BLOCK_SAMPLES);
        shared.set(shared_step);
        let steps = || Steps {
            nco: Nco::default(),
            way: Way::Samples,
            rotors: Rotors::default(),
            weights: Weights::default(),
        };
        Self {
            instructions,
            planes: Planes::new(antennas, moments::BLOCK_SAMPLES),
            shared,
            shared_step,
            moments: std::iter::repeat_with(Moments::default).take(antennas).collect(),
            edges: EdgeCorrelator::new(instructions, shape.taps),
            correlator: Correlator::new(instructions, shape.taps),
            satellites: std::iter::repeat_with(steps).take(satellites).collect(),
        }
    }

    /// Sets the phases to the sample `first` of the frame at `start`.
    fn begin(&mut self, shape: &Shape, channels: &[Channel], (start, first): (u64, usize)) {
        let beside = |nco: &Nco| nco.carrier_step.wrapping_sub(self.shared_step);
        let mut smallest = None;
        for (steps, channel) in self.satellites.iter_mut().zip(channels) {
            steps.nco = channel.at(start, &shape.samples);
            steps.nco.advance(first as u64);
            let log2_cell = log2_cell(&steps.nco, beside(&steps.nco));
            steps.way = if log2_cell.is_some() { Way::Moments } else { Way::Samples };
            smallest = smallest.into_iter().chain(log2_cell).min();
        }
        for steps in &mut self.satellites[..channels.len()] {
            match (steps.way, smallest) {
                (Way::Moments, Some(log2_cell)) => {
                    steps.weights.set(beside(&steps.nco), log2_cell);
                }
                _ => steps.rotors.set(steps.nco.carrier_step),
            }
        }
        if let Some(log2_cell) = smallest {
            self.moments.iter_mut().for_each(|moments| moments.set_cell(log2_cell));
        }
    }

    /// Adds the sums of `channels` over an epoch, the samples `range` of a frame.
    fn add(
        &mut self,
        shape: &Shape,
        payload: &[u8],
        (first, len): (usize, usize),
        channels: &[Channel],
        sums: &mut [Complex64],
    ) {
        let unit = shape.samples.antennas * shape.taps;
        for (way, block) in [(Way::Moments, moments::BLOCK_SAMPLES), (Way::Samples, BLOCK_SAMPLES)]
        {
            let Self {
                instructions, planes, shared, moments, edges, correlator, satellites, ..
            } = &mut *self;
            if satellites[..channels.len()].iter().all(|steps| steps.way != way) {
                continue;
            }
            for done in (0..len).step_by(block) {
                let count = block.min(len - done);
                let range = first + done..first + done + count;
                shape.samples.read(payload, range, planes);
                if way == Way::Moments {
                    for (antenna, moments) in moments.iter_mut().enumerate() {
                        moments.read(*instructions, planes.parts(antenna, 0..count), shared);
                    }
                }
                let signals =
                    channels.iter().zip(&mut *satellites).zip(sums.chunks_exact_mut(unit));
                for ((channel, steps), sums) in signals.filter(|((_, steps), _)| steps.way == way) {
                    let signal = (&channel.replica, &steps.nco);
                    match way {
                        Way::Moments => {
                            edges.add(moments, signal, &channel.taps, &steps.weights, sums);
                        }
                        Way::Samples => {
                            let samples = (&*planes, 0..count);
                            correlator.add(samples, signal, &channel.taps, &steps.rotors, sums);
                        }
                    }
                    steps.nco.advance(count as u64);
                }
            }
        }
    }
}

impl Cpu {
    /// `shared_step` is the intermediate frequency in turns per sample, in units of 2^-64.
    pub(super) fn new(
        shape: Shape,
        shared_step: u64,
        channels: Vec<Channel>,
        threads: usize,
        env: &Env,
    ) -> Result<Self, BlockError> {
        let threads = Threads::new(threads)?;
        let count = threads.count().min(shape.satellites);
        let worker = |_| Worker::new(&shape, shared_step, shape.satellites.div_ceil(count));
        Ok(Self {
            workers: (0..count).map(worker).collect(),
            sums: vec![Complex64::ZERO; shape.satellites * shape.samples.antennas * shape.taps],
            counts: Counts::new(env),
            channels: Timed::new(channels),
            changes: Changes::default(),
            threads,
            shape,
        })
    }

    /// Computes the sums of an epoch of the frame at `start`.
    fn epoch(&mut self, payload: &[u8], epoch: usize, start: u64) {
        let Self { shape, channels, threads, workers, sums, .. } = self;
        let timestamp = shape.epoch_timestamp(start, epoch);
        channels.advance(timestamp);
        let channels = channels.at(timestamp);
        sums.fill(Complex64::ZERO);
        let unit = shape.samples.antennas * shape.taps;
        let len = shape.samples_per_epoch();
        let first = epoch * len;
        let work = |first_satellite: usize, sums: &mut [Complex64], worker: &mut Worker| {
            let channels = &channels[first_satellite..][..sums.len() / unit];
            worker.begin(shape, channels, (start, first));
            worker.add(shape, payload, (first, len), channels, sums);
        };
        threads.each(sums, unit, workers, work);
    }
}

impl Map for Cpu {
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError> {
        let start = input.header().timestamp;
        for (from, channels) in self.changes.begin(start, self.shape.samples.frame_ticks) {
            self.channels.set(from, channels);
        }
        let (samples, payload) = (input.as_slice()?, output.as_mut_slice::<Complex32>()?);
        for (epoch, output) in payload.chunks_exact_mut(self.sums.len()).enumerate() {
            self.epoch(samples, epoch, start);
            for (output, sum) in output.iter_mut().zip(&self.sums) {
                *output = Complex32::new(sum.re as f32, sum.im as f32);
            }
        }
        Ok(())
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.counts.validity(input, output);
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
