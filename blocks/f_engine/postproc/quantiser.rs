//! Quantisation and transposition on the CPU: spectra to rows of quantised channels, rows to heaps.

use super::settings::Settings;
use super::{Layout, Postproc};
use crate::common::output_level::MEASURED_SPECTRA;
use crate::common::parallel::Threads;
use crate::common::spectra::Shape;
use fxgraph_dsp::power::sum_of_squares;
use fxgraph_dsp::rotate::{Turn, rotate};
use fxgraph_dsp::simd::{InstructionSet, Lines};
use fxgraph_dsp::transpose::Transposition;
use num_complex::Complex32;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of spectra that are transposed together, enough for whole cache lines of output.
pub const TILE_SPECTRA: usize = 16;
/// Padding of a row in values. Rows with a power of two of values would share a few sets of the cache.
pub const PADDING: usize = 32;

/// Rows of quantised spectra, with their gains and dither.
pub struct Quantiser {
    pub settings: Settings,
    transposition: Transposition,
    /// Channels per row.
    channels: usize,
    /// ADC samples from one spectrum to the next.
    step: u64,
    limit: f32,
    /// `[pol][row][channel]`, rows `transposition.pitch` apart.
    quantised: Lines<u16>,
    /// Number of clamped values of each row.
    clamped: Vec<AtomicU32>,
}

/// Destination row of a spectrum.
pub struct Row<'a> {
    settings: &'a Settings,
    step: u64,
    limit: f32,
    instructions: InstructionSet,
    out: &'a mut [u16],
    clamped: &'a AtomicU32,
}

impl Row<'_> {
    /// Rotates, scales and quantises a spectrum of polarisation `pol` with this `number` since sync time.
    pub fn write(
        self,
        spectrum: &[Complex32],
        (pol, number): (usize, u64),
        phase_turns: f64,
        fine_delay_samples: f64,
    ) {
        let t = number * self.step;
        let turn = Turn {
            phase_turns,
            fine_delay_samples,
            dither_key: self.settings.dither_key(t, number, pol),
            limit: self.limit,
        };
        let clamped =
            rotate(spectrum, &turn, &self.settings.gains(t)[pol], self.out, self.instructions);
        self.clamped.store(clamped, Ordering::Relaxed);
    }
}

impl Quantiser {
    /// Creates a quantiser for spectra of this shape, with `rows` for each polarisation.
    pub fn new(postproc: &Postproc, shape: Shape, rows: usize) -> Self {
        let transposition = Transposition {
            pols: shape.pols,
            pitch: shape.channels + PADDING,
            rows,
            spectra_per_heap: postproc.spectra_per_heap,
            k_major: postproc.layout == Layout::KMajor,
            is_4_bit: postproc.bits == 4,
            instructions: InstructionSet::best(),
        };
        Self {
            settings: Settings::new(&postproc.gains, shape, postproc.dither, postproc.dither_seed),
            transposition,
            channels: shape.channels,
            step: shape.step as u64,
            limit: if postproc.bits == 8 { 127.0 } else { 7.0 },
            quantised: Lines::new(shape.pols * rows * transposition.pitch),
            clamped: (0..shape.pols * rows).map(|_| 0.into()).collect(),
        }
    }

    /// Rows of each polarisation.
    pub fn rows(&self) -> usize {
        self.transposition.rows
    }

    /// Bytes of a heap.
    pub fn heap_bytes(&self) -> usize {
        self.channels * self.transposition.channel_bytes()
    }

    /// Divides `rows` among the threads and calls `write` with the indices and the rows of each; indices run through
    /// all polarisations.
    pub fn write<S: Send>(
        &mut self,
        rows: Range<usize>,
        threads: &Threads,
        scratches: &mut [S],
        write: impl Fn(Range<usize>, &mut dyn Iterator<Item = Row<'_>>, &mut S) + Send + Sync,
    ) {
        let Transposition { pitch, instructions, .. } = self.transposition;
        let Self { settings, channels, step, limit, quantised, clamped, .. } = self;
        let (settings, step, limit) = (&*settings, *step, *limit);
        let quantised = &mut quantised[rows.start * pitch..rows.end * pitch];
        threads.each(quantised, pitch, scratches, |first, quantised, scratch| {
            let first = rows.start + first;
            let indices = first..first + quantised.len() / pitch;
            let outs = quantised.chunks_exact_mut(pitch).map(|out| &mut out[..*channels]);
            let mut rows = outs.zip(&clamped[first..]).map(|(out, clamped)| Row {
                settings,
                step,
                limit,
                instructions,
                out,
                clamped,
            });
            write(indices, &mut rows, scratch);
        });
    }

    /// Number of clamped values of these rows.
    pub fn clamped(&self, rows: Range<usize>) -> u64 {
        let count = |row: &AtomicU32| u64::from(row.load(Ordering::Relaxed));
        self.clamped[rows].iter().map(count).sum()
    }

    /// Sum of squares of the values that are measured for the level, among rows for `spectra` of a heap from row `first`
    /// on.
    pub fn squares(&self, first: usize, spectra: &Range<usize>) -> u64 {
        let measured = spectra.end.min(MEASURED_SPECTRA).saturating_sub(spectra.start);
        let pitch = self.transposition.pitch;
        let rows = self.quantised[first * pitch..].chunks_exact(pitch).take(measured);
        rows.map(|row| sum_of_squares(bytemuck::cast_slice(&row[..self.channels]))).sum()
    }

    /// Transposes rows, from row `first` of each polarisation on, to the places of `spectra` in `heap`.
    pub fn transpose<S: Send>(
        &self,
        first: usize,
        spectra: &Range<usize>,
        heap: &mut [u8],
        threads: &Threads,
        scratches: &mut [S],
    ) {
        let transposition = self.transposition;
        let rows = &self.quantised[first * transposition.pitch..];
        threads.each(heap, transposition.channel_bytes(), scratches, |channel, out, _| {
            transposition.run(rows, channel, spectra, out);
        });
    }
}
