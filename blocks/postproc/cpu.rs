//! The block on the CPU.

use super::heaps::{Collector, Piece};
use super::rotate::{Turn, rotate};
use super::settings::Settings;
use super::transpose::{Geometry, Run};
use super::unzip::Unzip;
use super::{Layout, Postproc};
use crate::live::Live;
use crate::parallel::Threads;
use crate::real_fft::RealFixup;
use crate::simd::Form;
use crate::spectra::Shape;
use fxgraph::retune::{Change, Changes};
use fxgraph::{Block, BlockError, Env, Frame, FrameMut, Header, Io, Next, async_trait};
use num_complex::Complex32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Spectra that are quantised before they are transposed: enough for whole cache lines of
/// output, few enough to stay in the cache until then.
pub const TILE_SPECTRA: usize = 16;

/// The running block.
pub struct Cpu {
    shape: Shape,
    geometry: Geometry,
    collector: Collector,
    limit: f32,
    settings: Settings,
    changes: Changes<Live>,
    /// What makes a spectrum of an unzipped input.
    unzip: Option<(Unzip, RealFixup)>,
    threads: Threads,
    /// A spectrum for each thread, for unzipped inputs.
    spectra: Vec<Vec<Complex32>>,
    /// \[pol\]\[row\]\[channel\], rows `geometry.pitch` apart.
    quantised: Vec<u16>,
    /// Clamped values of each row of `quantised`.
    clamped: Vec<AtomicU32>,
    /// The input frame being read, and the next of its spectra.
    input: Option<(Arc<Frame>, usize)>,
    /// The output frame being filled.
    filling: Option<FrameMut>,
    /// Its clamped values, \[heap\]\[pol\].
    saturated: Vec<u64>,
}

impl Cpu {
    pub fn new(postproc: &Postproc, shape: Shape, env: &Env) -> Result<Self, BlockError> {
        let threads = Threads::new(postproc.threads)?;
        let geometry = Geometry {
            pols: shape.pols,
            pitch: shape.channels + 32,
            rows: TILE_SPECTRA.min(postproc.spectra_per_heap),
            spectra_per_heap: postproc.spectra_per_heap,
            k_major: postproc.layout == Layout::KMajor,
            is_4_bit: postproc.bits == 4,
            form: Form::best(),
        };
        let rows = shape.pols * geometry.rows;
        let unzip = (shape.unzip > 1)
            .then(|| (Unzip::new(shape.channels, shape.unzip), RealFixup::new(shape.channels)));
        let spectrum = vec![Complex32::default(); if unzip.is_some() { shape.channels } else { 0 }];
        Ok(Self {
            shape,
            geometry,
            collector: Collector::new(postproc, shape, &env.counters),
            limit: if postproc.bits == 8 { 127.0 } else { 7.0 },
            settings: Settings::new(&postproc.gains, shape, postproc.dither, postproc.dither_seed),
            changes: Changes::default(),
            unzip,
            spectra: vec![spectrum; threads.count()],
            threads,
            quantised: vec![0; rows * geometry.pitch],
            clamped: (0..rows).map(|_| 0.into()).collect(),
            input: None,
            filling: None,
            saturated: vec![0; postproc.heaps_per_frame * shape.pols],
        })
    }

    /// Copies a piece of `input` to its heaps.
    fn fill(&mut self, input: &Frame, piece: Piece, frame: &mut FrameMut) {
        let per_heap = self.geometry.spectra_per_heap;
        let mut done = 0;
        while done < piece.count {
            let place = piece.place + done;
            let (heap, in_heap) = (place / per_heap, place % per_heap);
            let left = piece.count - done;
            let run =
                Run { first: in_heap, count: left.min(per_heap - in_heap).min(self.geometry.rows) };
            self.quantise(input, piece.from + done, run.count);
            let pols = self.shape.pols;
            for (pol, saturated) in self.saturated[heap * pols..][..pols].iter_mut().enumerate() {
                let rows = &self.clamped[pol * self.geometry.rows..][..run.count];
                let count = |row: &AtomicU32| u64::from(row.load(Ordering::Relaxed));
                *saturated += rows.iter().map(count).sum::<u64>();
            }
            let heap_bytes = self.shape.channels * self.geometry.channel_bytes();
            let out = &mut frame.as_mut_slice::<u8>()[heap * heap_bytes..][..heap_bytes];
            let (geometry, quantised) = (self.geometry, &self.quantised);
            let unit = geometry.channel_bytes();
            self.threads.each(out, unit, &mut self.spectra, |channel, out, _| {
                geometry.transpose(quantised, channel, run, out);
            });
            done += run.count;
        }
    }

    /// Quantises `count` spectra of all polarisations from `first` on.
    fn quantise(&mut self, input: &Frame, first: usize, count: usize) {
        let header = input.header();
        let step = self.shape.step as u64;
        let fine = header.annotations.get("fine_delay_samples");
        let phase = header.annotations.get("phase_turns");
        let spectra: &[Complex32] = input.as_slice();
        let Shape { channels, pitch: stored, spectra: per_pol, .. } = self.shape;
        let first_channel = self.shape.first();
        // What of the fine delay's slope over the whole band lies over the channels that are kept.
        let kept = channels as f64 / stored as f64;
        let geometry = self.geometry;
        let (settings, unzip, clamped) = (&self.settings, &self.unzip, &self.clamped);
        let limit = self.limit;
        let one = |unit: usize, out: &mut [u16], scratch: &mut Vec<Complex32>| {
            let (pol, row) = (unit / geometry.rows, unit % geometry.rows);
            if row >= count {
                return;
            }
            let index = pol * per_pol + first + row;
            let mut spectrum = &spectra[index * stored + first_channel..][..channels];
            if let Some((unzip, fixup)) = unzip {
                unzip.combine(spectrum, scratch);
                fixup.apply(scratch);
                spectrum = scratch;
            }
            let number = header.timestamp / step + (first + row) as u64;
            let t = number * step;
            let turn = Turn {
                phase_turns: phase.get(index).copied().unwrap_or(0.0),
                fine_delay_samples: fine.get(index).copied().unwrap_or(0.0) * kept,
                dither_key: settings.dither_key(t, number, pol),
                limit,
            };
            let gains = &settings.gains(t)[pol];
            let count = rotate(spectrum, &turn, gains, &mut out[..channels], geometry.form);
            clamped[unit].store(count, Ordering::Relaxed);
        };
        let pitch = geometry.pitch;
        self.threads.each(&mut self.quantised, pitch, &mut self.spectra, |first, rows, scratch| {
            for (i, row) in rows.chunks_exact_mut(pitch).enumerate() {
                one(first + i, row, scratch);
            }
        });
    }

    /// Goes over to what holds for the spectra of an input frame.
    fn begin(&mut self, input: &Header) {
        let samples = self.shape.spectra * self.shape.step;
        for (from, live) in self.changes.begin(input.timestamp, samples as u64) {
            self.settings.retune(from, live);
        }
        self.settings.advance(input.timestamp);
    }

    /// Pushes the frame being filled, if it has a valid heap. Otherwise it is left out: its
    /// readers see the gap in the timestamps.
    fn push(&mut self, io: &mut Io<'_>) {
        let Some(mut frame) = self.filling.take() else { return };
        let (header, payload) = frame.parts_mut::<u8>();
        // The rest of an earlier frame may stand where spectra are missing.
        let heap_bytes = self.shape.channels * self.geometry.channel_bytes();
        for heap in self.collector.invalid(header) {
            payload[heap * heap_bytes..][..heap_bytes].fill(0);
        }
        if self.collector.complete(header) {
            self.collector.annotate_saturated(header, self.saturated.iter().copied());
            io.outputs[0].push(frame);
        }
        self.saturated.fill(0);
    }
}

#[async_trait]
impl Block for Cpu {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Some((input, from)) = self.input.take() else {
            if let Some(frame) = io.inputs[0].pop() {
                if self.collector.accept(frame.header()) {
                    self.begin(frame.header());
                    self.input = Some((frame, 0));
                }
                return Ok(Next::Again);
            }
            if io.inputs[0].ended() {
                self.push(io);
                return Ok(Next::Finished);
            }
            return Ok(Next::Wait);
        };
        let first = self.collector.frame_of(input.header(), from);
        let is_other = |frame: &FrameMut| self.collector.number(frame.header()) != first;
        if self.filling.as_ref().is_some_and(is_other) {
            self.push(io);
        }
        let begin = || {
            let mut frame = io.outputs[0].take()?;
            self.collector.begin(first, frame.header_mut());
            Some(frame)
        };
        let Some(mut frame) = self.filling.take().or_else(begin) else {
            self.input = Some((input, from));
            return Ok(Next::Wait);
        };
        let piece = self.collector.piece(input.header(), from, usize::MAX, frame.header_mut());
        self.fill(&input, piece, &mut frame);
        self.filling = Some(frame);
        if self.collector.is_last(&piece) {
            self.push(io);
        }
        let next = from + piece.count;
        if next < self.shape.spectra {
            self.input = Some((input, next));
        }
        Ok(Next::Again)
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
