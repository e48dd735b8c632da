//! Blocks of samples go by; each satellite takes its sums of every block while it is in the cache.

use super::{Channel, Counts, Shape};
use crate::gnss::correlate::Rotors;
use crate::gnss::{BLOCK_SAMPLES, Correlator, Nco, Planes};
use crate::parallel::Threads;
use crate::simd::Form;
use fxgraph::retune::{Change, Changes, Timed};
use fxgraph::{Block, BlockError, Env, Frame, FrameMut, Io, Next, async_trait};
use num_complex::{Complex32, Complex64};

/// The running block.
pub(super) struct Cpu {
    shape: Shape,
    channels: Timed<Vec<Channel>>,
    changes: Changes<Vec<Channel>>,
    threads: Threads,
    workers: Vec<Worker>,
    /// Of one epoch, `[satellite][antenna][tap]`.
    sums: Vec<Complex64>,
    counts: Counts,
}

/// What one thread has for itself.
struct Worker {
    planes: Planes,
    correlator: Correlator,
    /// Of each satellite, so that a frequency's rotors are made once.
    rotors: Vec<Rotors>,
    /// Phases of each satellite at the next block.
    ncos: Vec<Nco>,
}

/// Bytes of a thread's memory and of the sums.
pub(super) fn worker_bytes(shape: &Shape) -> usize {
    let per_satellite = 24 * BLOCK_SAMPLES + 16 * shape.samples.antennas * shape.taps;
    8 * shape.samples.antennas * BLOCK_SAMPLES + per_satellite * shape.satellites
}

impl Cpu {
    pub(super) fn new(
        shape: Shape,
        channels: Vec<Channel>,
        threads: usize,
        env: &Env,
    ) -> Result<Self, BlockError> {
        let threads = Threads::new(threads)?;
        let count = threads.count().min(shape.satellites);
        let worker = |_| Worker {
            planes: Planes::new(shape.samples.antennas, BLOCK_SAMPLES),
            correlator: Correlator::new(Form::best(), shape.taps),
            rotors: vec![Rotors::default(); shape.satellites.div_ceil(count)],
            ncos: Vec::with_capacity(shape.satellites.div_ceil(count)),
        };
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

    fn correlate(&mut self, input: &Frame, output: &mut FrameMut) {
        let start = input.header().timestamp;
        let step = self.shape.samples_per_epoch();
        for (from, channels) in self.changes.begin(start, self.shape.samples.samples as u64) {
            self.channels.set(from, channels);
        }
        self.counts.begin(input, output);
        let payload = output.as_mut_slice::<Complex32>();
        for (epoch, output) in payload.chunks_exact_mut(self.sums.len()).enumerate() {
            let timestamp = start.saturating_add((epoch * step) as u64);
            self.epoch(input.as_slice(), epoch * step, timestamp);
            for (output, sum) in output.iter_mut().zip(&self.sums) {
                *output = Complex32::new(sum.re as f32, sum.im as f32);
            }
        }
    }

    /// Sums of the samples from number `first` of the frame on.
    fn epoch(&mut self, payload: &[u8], first: usize, timestamp: u64) {
        let Shape { samples, taps, .. } = self.shape;
        let step = self.shape.samples_per_epoch();
        self.channels.advance(timestamp);
        let channels = self.channels.at(timestamp);
        self.sums.fill(Complex64::ZERO);
        let unit = samples.antennas * taps;
        let work = |first_satellite: usize, sums: &mut [Complex64], worker: &mut Worker| {
            let Worker { planes, correlator, rotors, ncos } = worker;
            let channels = &channels[first_satellite..];
            ncos.clear();
            ncos.extend(channels.iter().take(rotors.len()).map(|channel| channel.at(timestamp)));
            for (nco, rotors) in ncos.iter().zip(&mut *rotors) {
                rotors.set(nco.carrier_step);
            }
            for done in (0..step).step_by(BLOCK_SAMPLES) {
                let len = BLOCK_SAMPLES.min(step - done);
                let at = first + done;
                planes.read(&samples, payload, at..at + len);
                let signals = channels.iter().zip(&mut *ncos).zip(&*rotors);
                for (((channel, nco), rotors), sums) in signals.zip(sums.chunks_exact_mut(unit)) {
                    let signal = (&channel.replica, &*nco);
                    correlator.add((planes, 0..len), signal, &channel.taps, rotors, sums);
                    nco.advance(len as u64);
                }
            }
        };
        self.threads.each(&mut self.sums, unit, &mut self.workers, work);
    }
}

#[async_trait]
impl Block for Cpu {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.inputs[0].peek().is_none() {
            return Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait });
        }
        let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
        let Some(input) = io.inputs[0].pop() else { return Ok(Next::Wait) };
        self.correlate(&input, &mut output);
        io.outputs[0].push(output);
        Ok(Next::Again)
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
