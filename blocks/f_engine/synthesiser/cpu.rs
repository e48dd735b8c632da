//! The block on the CPU.

use super::{Shape, Synthesiser};
use crate::common::gaps::Gaps;
use crate::common::samples::Samples;
use bytemuck::AnyBitPattern;
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::frame::Annotations;
use fxgraph::{Block, BlockError, Configured, Counter, Dtype, Env, Frame, FrameMut, Io, Next};
use fxgraph_dsp::synthesis::{Inverse, Synthesis};
use num_complex::Complex32;

/// Count of a spectrum before the start or after the end of the stream, which is missing and not counted.
const OUTSIDE: u32 = u32::MAX;

/// The running block.
pub(super) struct Cpu {
    shape: Shape,
    inverse: Inverse,
    synthesis: Synthesis,
    /// Inverse transforms `[row][spectrum][number]`: the spectra before a frame, those of the frame, those after it.
    values: Vec<f32>,
    /// Validity of these spectra.
    counts: Vec<u32>,
    samples_per_frame: u64,
    /// Timestamp and annotations of the last frame in `values`.
    last: Option<u64>,
    annotations: Annotations,
    /// Whether this frame waits for the spectra after it.
    is_pending: bool,
    gaps: Gaps,
    heaps_missing: Counter,
    frames_misplaced: Counter,
}

impl Cpu {
    pub(super) fn new(block: &Configured<Synthesiser>, env: &Env) -> Self {
        let shape = block.shape;
        let synthesis = block.parameters.synthesis(&shape);
        let spectra = synthesis.before() + shape.frame_spectra() + synthesis.after();
        env.counters
            .state(
                "reconstruction_error_db",
                "expected power of the error of the samples relative to white noise, from the design of the filter",
            )
            .set(10.0 * synthesis.error().max(1e-12).log10());
        Self {
            shape,
            inverse: match shape.output {
                Samples::Real => Inverse::real(shape.channels),
                Samples::Complex => Inverse::complex(shape.channels),
            },
            values: vec![0.0; shape.rows * spectra * 2 * shape.channels],
            counts: vec![OUTSIDE; spectra],
            synthesis,
            samples_per_frame: block.ports.inputs[0].clock.samples_per_frame,
            last: None,
            annotations: Annotations::default(),
            is_pending: false,
            gaps: Gaps::new(block.ports.inputs[0].clock.adc_sample_rate_hz),
            heaps_missing: env.counters.loss(
                "heaps_missing",
                "heaps whose samples depend on missing spectra; look for missing heaps upstream",
            ),
            frames_misplaced: env.counters.loss(
                "frames_misplaced",
                "input frames that overlap earlier ones or are beyond the range of timestamps",
            ),
        }
    }

    /// Transforms spectra `from..` of `frame`, as many as fit in `to..end` of `values`.
    fn load(
        &mut self,
        frame: &Frame,
        from: usize,
        to: usize,
        end: usize,
    ) -> Result<(), BlockError> {
        let count = (end - to).min(self.shape.frame_spectra() - from);
        let validity = &frame.header().validity;
        for n in 0..count {
            self.counts[to + n] = validity[(from + n) / self.shape.spectra];
        }
        if self.shape.dtype == Dtype::Ci8 {
            let widen = |[re, im]: [i8; 2]| Complex32::new(f32::from(re), f32::from(im));
            self.transform(frame.as_slice::<[i8; 2]>()?, widen, (from, to, count));
        } else {
            self.transform(frame.as_slice::<Complex32>()?, |value| value, (from, to, count));
        }
        Ok(())
    }

    fn transform<T: AnyBitPattern>(
        &mut self,
        payload: &[T],
        widen: impl Fn(T) -> Complex32,
        (from, to, count): (usize, usize, usize),
    ) {
        let (shape, len) = (self.shape, self.inverse.numbers());
        let of_row = self.counts.len() * len;
        for row in 0..shape.rows {
            let values = &mut self.values[row * of_row + to * len..][..count * len];
            for (pair, values) in values.chunks_mut(2 * len).enumerate() {
                let spectrum = |n: usize| {
                    // The second of the last pair may not exist; it is not stored.
                    let n = (from + 2 * pair + n).min(shape.frame_spectra() - 1);
                    let start = n / shape.spectra * shape.heap_elements
                        + n % shape.spectra * shape.spectrum_stride
                        + row * shape.row_stride;
                    let widen = &widen;
                    move |channel: usize| widen(payload[start + channel * shape.channel_stride])
                };
                let (first, second) = values.split_at_mut(len);
                self.inverse.run(spectrum(0), spectrum(1), [first, second]);
            }
        }
    }

    /// Marks spectra of `values` as missing.
    fn clear(&mut self, spectra: std::ops::Range<usize>, count: u32) {
        self.counts[spectra].fill(count);
    }

    /// Moves the last spectra of the frame and those after it to the front.
    fn shift(&mut self) {
        let (spectra, len) = (self.shape.frame_spectra(), self.inverse.numbers());
        for row in self.values.chunks_exact_mut(self.counts.len() * len) {
            row.copy_within(spectra * len.., 0);
        }
        self.counts.copy_within(spectra.., 0);
    }

    /// Computes the samples of the frame in `values`.
    fn emit(&mut self, to: &mut FrameMut) -> Result<(), BlockError> {
        let (shape, len) = (self.shape, self.inverse.numbers());
        let around = self.synthesis.before() + 1 + self.synthesis.after();
        let (header, samples) = to.parts_mut::<f32>()?;
        header.timestamp = self.last.unwrap_or_default();
        header.annotations.copy_from(&self.annotations);
        for (heap, valid) in header.validity.iter_mut().enumerate() {
            let counts = &self.counts[heap * shape.spectra..][..shape.spectra - 1 + around];
            let least = counts.iter().copied().min().unwrap_or_default();
            *valid = if counts.contains(&OUTSIDE) { 0 } else { least };
            self.heaps_missing.add(u64::from(least == 0));
        }
        let of_row = self.counts.len() * len;
        for (row, samples) in samples.chunks_exact_mut(shape.frame_spectra() * len).enumerate() {
            for (n, samples) in samples.chunks_exact_mut(len).enumerate() {
                if header.validity[n / shape.spectra] == 0 {
                    samples.fill(0.0);
                } else {
                    let values = &self.values[row * of_row + n * len..][..around * len];
                    self.synthesis.run(values, samples);
                }
            }
        }
        Ok(())
    }

    /// Takes the next frame of the input; `to` is for the frame before it, if that waits, or for this one.
    fn advance(&mut self, from: &Frame, to: &mut FrameMut) -> Result<bool, BlockError> {
        let (before, after) = (self.synthesis.before(), self.synthesis.after());
        let (end, all) = (before + self.shape.frame_spectra(), self.counts.len());
        let timestamp = from.header().timestamp;
        let expected = self.last.map(|last| last.saturating_add(self.samples_per_frame));
        if timestamp > MAX_TIMESTAMP || expected.is_some_and(|expected| timestamp < expected) {
            self.frames_misplaced.add(1);
            return Ok(false);
        }
        let is_next = expected == Some(timestamp);
        if is_next {
            self.load(from, 0, end, all)?;
        } else {
            self.clear(end..all, if expected.is_some() { 0 } else { OUTSIDE });
            let gap = expected.map_or(0, |expected| timestamp - expected);
            let heap = self.samples_per_frame / self.shape.heaps as u64;
            self.heaps_missing.add(self.gaps.missing(gap, heap));
        }
        let is_done = self.is_pending;
        if is_done {
            self.emit(to)?;
        }
        self.shift();
        // Spectra that follow the last frame have been transformed already.
        let begun = if is_next { after } else { 0 };
        if !is_next && expected.is_some() {
            self.clear(0..before, 0);
        }
        self.load(from, begun, before + begun, end)?;
        self.last = Some(timestamp);
        self.annotations.copy_from(&from.header().annotations);
        self.is_pending = after > 0;
        if !self.is_pending {
            self.emit(to)?;
        }
        Ok(is_done || !self.is_pending)
    }
}

impl Block for Cpu {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let (input, output) = (&mut io.inputs[0], &mut io.outputs[0]);
        if input.peek().is_none() && !(input.ended() && self.is_pending) {
            return Ok(if input.ended() { Next::Finished } else { Next::Wait });
        }
        let Some(mut to) = output.take() else { return Ok(Next::Wait) };
        let is_done = if let Some(from) = input.pop() {
            self.advance(&from, &mut to)?
        } else {
            self.clear(self.counts.len() - self.synthesis.after()..self.counts.len(), OUTSIDE);
            self.emit(&mut to)?;
            self.is_pending = false;
            true
        };
        if is_done {
            output.push(to);
        }
        Ok(Next::Again)
    }
}
