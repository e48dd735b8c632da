//! The block on the CPU.

use super::Postproc;
use super::heaps::{Collector, Piece};
use super::quantiser::{Quantiser, TILE_SPECTRA};
use crate::common::live::Live;
use crate::common::parallel::Threads;
use crate::common::spectra::Shape;
use fxgraph::changes::{Change, Changes};
use fxgraph::{Block, BlockError, Env, Frame, FrameMut, Header, Io, Next};
use fxgraph_dsp::real_fft::RealFixup;
use fxgraph_dsp::unzip::Unzip;
use num_complex::Complex32;
use std::sync::Arc;

/// The running block.
pub struct Cpu {
    shape: Shape,
    collector: Collector,
    /// Quantiser with few enough rows that they are still in the cache when they are transposed.
    quantiser: Quantiser,
    changes: Changes<Live>,
    /// Last steps of the transform of an unzipped input; `None` for a plain one.
    unzip: Option<(Unzip, RealFixup)>,
    threads: Threads,
    /// Scratch memory of each thread: one spectrum for unzipped inputs, else empty.
    scratches: Vec<Vec<Complex32>>,
    /// The input frame being read, and the next of its spectra.
    input: Option<(Arc<Frame>, usize)>,
    /// The output frame being filled.
    filling: Option<FrameMut>,
    /// Number of clamped values of the output frame, `[heap][pol]`.
    saturated: Vec<u64>,
    /// Sums of squares of the measured values of the output frame, `[heap][pol]`.
    squares: Vec<u64>,
}

impl Cpu {
    pub fn new(postproc: &Postproc, shape: Shape, env: &Env) -> Result<Self, BlockError> {
        let threads = Threads::new(postproc.threads)?;
        let unzip = (shape.unzip > 1)
            .then(|| (Unzip::new(shape.channels, shape.unzip), RealFixup::new(shape.channels)));
        let spectrum = vec![Complex32::default(); if unzip.is_some() { shape.channels } else { 0 }];
        Ok(Self {
            shape,
            collector: Collector::new(postproc, shape, env),
            quantiser: Quantiser::new(postproc, shape, TILE_SPECTRA.min(postproc.spectra_per_heap)),
            changes: Changes::default(),
            unzip,
            scratches: vec![spectrum; threads.count()],
            threads,
            input: None,
            filling: None,
            saturated: vec![0; postproc.heaps_per_frame * shape.pols],
            squares: vec![0; postproc.heaps_per_frame * shape.pols],
        })
    }

    /// Quantises a piece of `input` and transposes it to its heaps.
    fn fill(&mut self, input: &Frame, piece: Piece, frame: &mut FrameMut) {
        let per_heap = self.collector.spectra_per_heap;
        let (rows, heap_bytes) = (self.quantiser.rows(), self.quantiser.heap_bytes());
        let mut done = 0;
        while done < piece.count {
            let place = piece.place + done;
            let (heap, in_heap) = (place / per_heap, place % per_heap);
            let count = (piece.count - done).min(per_heap - in_heap).min(rows);
            self.quantise(input, piece.from + done, count);
            let Self { shape: Shape { pols, .. }, quantiser, threads, scratches, .. } = self;
            let spectra = in_heap..in_heap + count;
            for pol in 0..*pols {
                let unit = heap * *pols + pol;
                self.saturated[unit] += quantiser.clamped(pol * rows..pol * rows + count);
                self.squares[unit] += quantiser.squares(pol * rows, &spectra);
            }
            let out = &mut frame.as_mut_slice::<u8>().expect(fxgraph::ON_HOST)[heap * heap_bytes..]
                [..heap_bytes];
            quantiser.transpose(0, &spectra, out, threads, scratches);
            done += count;
        }
    }

    /// Quantises `count` spectra of all polarisations from `first` on.
    fn quantise(&mut self, input: &Frame, first: usize, count: usize) {
        let header = input.header();
        let fine = header.annotations.get("fine_delay_samples");
        let phase = header.annotations.get("phase_turns");
        let spectra: &[Complex32] = input.as_slice().expect(fxgraph::ON_HOST);
        let Self { shape, quantiser, unzip, threads, scratches, .. } = self;
        let Shape { pols, channels, pitch, spectra: per_pol, .. } = *shape;
        let (rows, first_channel) = (quantiser.rows(), shape.first());
        // Fraction of the band, and so of the fine delay's phase slope, that the kept channels cover.
        let kept = channels as f64 / pitch as f64;
        let first_number = self.collector.number(header);
        quantiser.write(0..pols * rows, threads, scratches, |units, to, scratch| {
            for (unit, row) in units.zip(to) {
                let (pol, n) = (unit / rows, first + unit % rows);
                if n >= first + count {
                    continue;
                }
                let index = pol * per_pol + n;
                let mut spectrum = &spectra[index * pitch + first_channel..][..channels];
                if let Some((unzip, fixup)) = &*unzip {
                    unzip.combine(spectrum, scratch);
                    fixup.apply(scratch);
                    spectrum = scratch;
                }
                let of = |table: &[f64]| table.get(index).copied().unwrap_or(0.0);
                row.write(spectrum, (pol, first_number + n as u64), of(phase), of(fine) * kept);
            }
        });
    }

    /// Applies the live updates for the spectra of an input frame.
    fn begin(&mut self, input: &Header) {
        let samples = self.shape.spectra * self.shape.step;
        for (from, live) in self.changes.begin(input.timestamp, samples as u64) {
            self.quantiser.settings.update(from, live);
        }
        self.quantiser.settings.advance(input.timestamp);
    }

    /// Sends the frame being filled if it has a valid heap. Otherwise the frame is dropped, and readers see the
    /// gap in the timestamps.
    fn push(&mut self, io: &mut Io<'_>) {
        let Some(mut frame) = self.filling.take() else { return };
        let (header, payload) = frame.parts_mut::<u8>().expect(fxgraph::ON_HOST);
        // Data of an earlier frame may remain in place of missing spectra.
        let heap_bytes = self.quantiser.heap_bytes();
        for heap in self.collector.invalid(header) {
            payload[heap * heap_bytes..][..heap_bytes].fill(0);
        }
        if self.collector.complete(header) {
            let (saturated, squares) = (self.saturated.iter(), self.squares.iter());
            self.collector.annotate_quantised(header, saturated.copied(), squares.copied());
            io.outputs[0].push(frame);
        }
        self.saturated.fill(0);
        self.squares.fill(0);
    }
}

impl Block for Cpu {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
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

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
