//! The block on the CPU: the arithmetic of `pfb`, `fft` and `postproc`, run by run.

use super::FEngine;
use super::frames::{Frames, Spectra};
use crate::delay::Delay;
use crate::fft::cpu::Transform;
use crate::parallel::Threads;
use crate::pfb::cpu::{Decoded, Filter, batch, history_samples};
use crate::pfb::pol::Count;
use crate::pfb::schedule::{Fate, Placed, Run, Schedule, Sizes};
use crate::postproc::Layout;
use crate::postproc::rotate::{Turn, rotate};
use crate::postproc::settings::Settings;
use crate::postproc::transpose::{self, Geometry};
use crate::simd::Form;
use fxgraph::retune::Change;
use fxgraph::{Block, BlockError, Env, FrameMut, Input, Io, Next, Ports, async_trait};
use num_complex::Complex32;
use std::sync::atomic::{AtomicU32, Ordering};

/// Spectra that are transposed together: enough for whole cache lines of output.
const TILE_SPECTRA: usize = 16;
/// Channels by which rows of quantised spectra are longer than their channels: with a power of two
/// all rows would share a few sets of the cache.
const PADDING: usize = 32;

/// Memory that the block takes.
pub fn host_bytes(f_engine: &FEngine, ports: &Ports) -> usize {
    let sizes = Sizes::new(&f_engine.pfb(f_engine.spectra()), ports);
    let batch = batch(sizes.step, sizes.spectra, f_engine.threads);
    let pols = ports.inputs.len();
    let history = 2 * pols * history_samples(&sizes, batch);
    let quantised = 2 * pols * sizes.spectra * (f_engine.channels + PADDING);
    // The weights, filtered samples and spectra of a batch, twiddles and scratch.
    let working = 4 * sizes.window + 8 * batch * sizes.step + 32 * f_engine.channels;
    history + quantised + working
}

/// The running block.
pub struct Cpu {
    schedule: Schedule<Decoded>,
    frames: Frames,
    filter: Filter,
    transform: Transform,
    quantise: Quantise,
    /// Filtered samples of a run, pairs of which are the complex numbers to be transformed.
    series: Vec<Complex32>,
    /// Their spectra.
    spectra: Vec<Complex32>,
    /// The output frame being made.
    frame: Option<FrameMut>,
    /// What is known of its spectra.
    known: Spectra,
}

impl Cpu {
    pub fn new(f_engine: &FEngine, ports: &Ports, env: &Env) -> Result<Self, BlockError> {
        let pfb = f_engine.pfb(f_engine.spectra());
        let sizes = Sizes::new(&pfb, ports);
        let batch = batch(sizes.step, sizes.spectra, f_engine.threads);
        let capacity = history_samples(&sizes, batch);
        let stores = ports.inputs.iter().map(|input| Decoded::new(input, capacity));
        let (delays, count) = (pfb.delays_of(ports), Count::new(&env.counters));
        let room = vec![Complex32::default(); batch * f_engine.channels];
        let frames = Frames::new(f_engine, ports, env);
        Ok(Self {
            schedule: Schedule::new(sizes, &ports.inputs, &delays, batch, capacity, stores, count),
            filter: Filter::new(&pfb, &ports.inputs[0], batch)?,
            transform: Transform::new(f_engine.shape(ports), f_engine.threads)?,
            quantise: Quantise::new(f_engine, ports)?,
            series: room.clone(),
            spectra: room,
            frame: None,
            known: frames.spectra(),
            frames,
        })
    }

    /// Does what polarisation `p` has samples for.
    fn advance(&mut self, p: usize, input: &mut Input) {
        let Sizes { step, window, .. } = self.schedule.sizes;
        loop {
            self.schedule.forget_done(p);
            let Some(Run { first, count, fate, from }) = self.schedule.next_run(p, input) else {
                return;
            };
            let pol = &self.schedule.pols[p];
            let limit = self.frames.limit(p);
            self.known.mark(p, first..first + count, fate == Fate::Whole);
            match fate {
                Fate::Whole => {
                    let samples = &pol.store.samples[pol.history.place(from)..];
                    let series = &mut self.series[..count * step / 2];
                    let filtered = bytemuck::cast_slice_mut(series);
                    self.known.measured[p].add(self.filter.run(samples, filtered, limit));
                    let spectra = &mut self.spectra[..count * step / 2];
                    self.transform.run(series, spectra);
                    let start = self.schedule.frame_start.cast_unsigned() / step as u64;
                    let delays = &pol.delays[first..][..count];
                    self.quantise.run(p, (start, first), spectra, delays);
                }
                Fate::Ending => {
                    // The last step of each window: adjacent, as the windows are a step apart.
                    let ends = pol.history.place(from + (window - step) as i64);
                    let samples = &pol.store.samples[ends..][..count * step];
                    self.known.measured[p].add(self.filter.measure(samples, limit));
                }
                Fate::Lost => {}
            }
        }
    }

    /// Makes the output frame of its spectra; gives it back if it has no valid heap.
    fn complete(&mut self, mut frame: FrameMut, io: &mut Io<'_>) {
        let (header, payload) = frame.parts_mut::<u8>();
        self.frames.fill(&self.known, header);
        let saturated = self.quantise.saturated();
        if self.frames.complete(&self.schedule, &mut self.known, saturated, header) {
            self.quantise.transpose(&header.validity, payload);
            io.outputs[0].push(frame);
        }
    }
}

/// From spectra to heaps.
struct Quantise {
    geometry: Geometry,
    channels: usize,
    limit: f32,
    settings: Settings,
    threads: Threads,
    /// Nothing for each thread.
    scratches: Vec<()>,
    /// \[pol\]\[spectrum\]\[channel\] of the output frame, rows `geometry.pitch` apart.
    quantised: Vec<u16>,
    /// Clamped values of each row of `quantised`.
    clamped: Vec<AtomicU32>,
}

impl Quantise {
    fn new(f_engine: &FEngine, ports: &Ports) -> Result<Self, BlockError> {
        let (pols, channels, spectra) = (ports.inputs.len(), f_engine.channels, f_engine.spectra());
        let threads = Threads::new(f_engine.threads)?;
        let geometry = Geometry {
            pols,
            pitch: channels + PADDING,
            rows: spectra,
            spectra_per_heap: f_engine.spectra_per_heap,
            k_major: f_engine.layout == Layout::KMajor,
            is_4_bit: f_engine.bits == 4,
            form: Form::best(),
        };
        Ok(Self {
            geometry,
            channels,
            limit: if f_engine.bits == 8 { 127.0 } else { 7.0 },
            settings: Settings::new(
                &f_engine.gains,
                f_engine.shape(ports),
                f_engine.dither,
                f_engine.dither_seed,
            ),
            scratches: vec![(); threads.count()],
            threads,
            quantised: vec![0; pols * spectra * geometry.pitch],
            clamped: (0..pols * spectra).map(|_| 0.into()).collect(),
        })
    }

    /// Quantises adjacent spectra of polarisation `p` with these delays, from number `first` of the
    /// frame on, which itself has number `start` since sync time.
    fn run(
        &mut self,
        p: usize,
        (start, first): (u64, usize),
        spectra: &[Complex32],
        delays: &[Delay],
    ) {
        let Geometry { pitch, rows, form, .. } = self.geometry;
        let (channels, settings, limit) = (self.channels, &self.settings, self.limit);
        let step = 2 * channels as u64;
        let one = |n: usize, spectrum: &[Complex32], out: &mut [u16]| {
            let number = start + (first + n) as u64;
            let t = number * step;
            let turn = Turn {
                phase_turns: delays[n].phase_turns,
                fine_delay_samples: delays[n].fine_samples,
                dither_key: settings.dither_key(t, number, p),
                limit,
            };
            rotate(spectrum, &turn, &settings.gains(t)[p], out, form)
        };
        let at = p * rows + first;
        let clamped = &self.clamped[at..];
        let out = &mut self.quantised[at * pitch..][..delays.len() * pitch];
        self.threads.each(out, pitch, &mut self.scratches, |first, rows, ()| {
            for (i, row) in rows.chunks_exact_mut(pitch).enumerate() {
                let n = first + i;
                let spectrum = &spectra[n * channels..][..channels];
                let count = one(n, spectrum, &mut row[..channels]);
                clamped[n].store(count, Ordering::Relaxed);
            }
        });
    }

    /// Clamped values of the frame, \[heap\]\[pol\].
    fn saturated(&self) -> impl ExactSizeIterator<Item = u64> {
        let Geometry { pols, rows, spectra_per_heap, .. } = self.geometry;
        let count = move |unit: usize| {
            let (heap, p) = (unit / pols, unit % pols);
            let clamped = &self.clamped[p * rows + heap * spectra_per_heap..][..spectra_per_heap];
            clamped.iter().map(|row| u64::from(row.load(Ordering::Relaxed))).sum()
        };
        (0..rows / spectra_per_heap * pols).map(count)
    }

    /// Writes the heaps: the valid ones, and zeros for the others.
    fn transpose(&mut self, validity: &[u32], out: &mut [u8]) {
        let geometry = self.geometry;
        let unit = geometry.channel_bytes();
        let per_heap = geometry.spectra_per_heap;
        for (heap, out) in out.chunks_exact_mut(self.channels * unit).enumerate() {
            if validity[heap] == 0 {
                out.fill(0);
                continue;
            }
            for first in (0..per_heap).step_by(TILE_SPECTRA) {
                let run = transpose::Run { first, count: TILE_SPECTRA.min(per_heap - first) };
                let rows = &self.quantised[(heap * per_heap + first) * geometry.pitch..];
                self.threads.each(out, unit, &mut self.scratches, |channel, out, ()| {
                    geometry.transpose(rows, channel, run, out);
                });
            }
        }
    }
}

#[async_trait]
impl Block for Cpu {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let settings = &mut self.quantise.settings;
        match self.schedule.place(io.inputs, |from, live| settings.retune(from, live)) {
            None => return Ok(Next::Wait),
            Some(Placed::Nowhere) => return Ok(Next::Finished),
            Some(Placed::Here) => settings.advance(self.schedule.frame_start.cast_unsigned()),
        }
        let begin = || {
            self.known.begin(self.schedule.frame_start);
            io.outputs[0].take()
        };
        let Some(frame) = self.frame.take().or_else(begin) else { return Ok(Next::Wait) };
        for (p, input) in io.inputs.iter_mut().enumerate() {
            self.advance(p, input);
        }
        if !self.schedule.is_done() {
            self.frame = Some(frame);
            return Ok(Next::Wait);
        }
        if self.known.has_valid() {
            self.complete(frame, io);
        }
        self.schedule.next_frame();
        Ok(Next::Again)
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        self.schedule.changes.offer(change)
    }

    async fn finish(&mut self) -> Result<(), BlockError> {
        self.frames.summarise();
        Ok(())
    }
}
