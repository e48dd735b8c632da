//! The block on the CPU: which spectra go to which heap, and what is known of each heap.

use super::rotate::{ChannelGains, Turn, rotate};
use super::transpose::{Geometry, Run};
use super::unzip::Unzip;
use super::{Layout, Postproc};
use crate::dither::{self, Dither};
use crate::parallel::Threads;
use crate::real_fft::RealFixup;
use crate::simd::Form;
use crate::spectra::Shape;
use fxgraph::{Block, BlockError, Counter, Env, Frame, FrameMut, Io, Next, async_trait};
use num_complex::Complex32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Spectra that are quantised before they are transposed: enough for whole cache lines of
/// output, few enough to stay in the cache until then.
pub const TILE_SPECTRA: usize = 16;

/// The output frame being filled.
struct Filling {
    frame: FrameMut,
    /// Number of its first spectrum since sync time.
    first: u64,
    /// Valid spectra of each heap.
    valid: Vec<usize>,
    /// Clamped values, \[heap\]\[pol\].
    saturated: Vec<u64>,
}

/// The running block.
pub struct Cpu {
    shape: Shape,
    geometry: Geometry,
    heaps: usize,
    limit: f32,
    dither_seed: Option<u64>,
    gains: Vec<ChannelGains>,
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
    /// No spectrum before this number is taken any more.
    next_spectrum: u64,
    filling: Option<Filling>,
    /// Sums of the inputs' statistics since the last output frame.
    adc_power: Vec<f64>,
    adc_clipped: Vec<f64>,
    /// Number of the last valid heap since sync time.
    last_heap: Option<u64>,
    heaps_missing: Counter,
    values_saturated: Counter,
    frames_misplaced: Counter,
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
        let gains = (0..shape.pols).map(|pol| {
            let (gains, all_equal) = postproc.gains.of_pol(pol, shape.channels);
            ChannelGains::new(gains, all_equal)
        });
        let unzip = (shape.unzip > 1)
            .then(|| (Unzip::new(shape.channels, shape.unzip), RealFixup::new(shape.channels)));
        let spectrum = vec![Complex32::default(); if unzip.is_some() { shape.channels } else { 0 }];
        let counters = &env.counters;
        Ok(Self {
            shape,
            geometry,
            heaps: postproc.heaps_per_frame,
            limit: if postproc.bits == 8 { 127.0 } else { 7.0 },
            dither_seed: (postproc.dither == Dither::Uniform).then_some(postproc.dither_seed),
            gains: gains.collect(),
            unzip,
            spectra: vec![spectrum; threads.count()],
            threads,
            quantised: vec![0; rows * geometry.pitch],
            clamped: (0..rows).map(|_| 0.into()).collect(),
            input: None,
            next_spectrum: 0,
            filling: None,
            adc_power: vec![0.0; 2 * shape.pols],
            adc_clipped: vec![0.0; shape.pols],
            last_heap: None,
            heaps_missing: counters.loss(
                "heaps_missing",
                "heaps between valid ones that lack a spectrum; look for lost data upstream",
            ),
            values_saturated: counters.count(
                "values_saturated",
                "complex values that were clamped; lower the gains",
            ),
            frames_misplaced: counters.loss(
                "frames_misplaced",
                "input frames that were late or not at a multiple of the spectrum step; look for a faulty source",
            ),
        })
    }

    fn frame_spectra(&self) -> u64 {
        (self.heaps * self.geometry.spectra_per_heap) as u64
    }

    /// Whether an input frame can be used.
    fn accept(&mut self, frame: Arc<Frame>) {
        let header = frame.header();
        let step = self.shape.step() as u64;
        let number = header.timestamp / step;
        if !header.timestamp.is_multiple_of(step) || number < self.next_spectrum {
            self.frames_misplaced.add(1);
            return;
        }
        let add = |sums: &mut [f64], values: &[f64]| {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        };
        add(&mut self.adc_power, header.annotations.get("adc_power"));
        add(&mut self.adc_clipped, header.annotations.get("adc_clipped"));
        self.next_spectrum = number + self.shape.spectra as u64;
        self.input = Some((frame, 0));
    }

    /// Copies those spectra of `input` from number `from` on that belong to the frame being
    /// filled; returns the number of the first that does not.
    fn fill(&mut self, input: &Frame, from: usize, filling: &mut Filling) -> usize {
        let per_heap = self.geometry.spectra_per_heap;
        let first = input.header().timestamp / self.shape.step() as u64;
        let mut next = from;
        while next < self.shape.spectra {
            let place = (first + next as u64 - filling.first) as usize;
            if place >= self.heaps * per_heap {
                break;
            }
            let (heap, in_heap) = (place / per_heap, place % per_heap);
            let left = self.shape.spectra - next;
            let run =
                Run { first: in_heap, count: left.min(per_heap - in_heap).min(self.geometry.rows) };
            filling.valid[heap] += self.valid(input, next, run.count);
            self.quantise(input, next, run.count);
            let pols = self.shape.pols;
            for (pol, saturated) in filling.saturated[heap * pols..][..pols].iter_mut().enumerate()
            {
                let rows = &self.clamped[pol * self.geometry.rows..][..run.count];
                let count = |row: &AtomicU32| u64::from(row.load(Ordering::Relaxed));
                *saturated += rows.iter().map(count).sum::<u64>();
            }
            let heap_bytes = self.shape.channels * self.geometry.channel_bytes();
            let payload = filling.frame.as_mut_slice::<u8>();
            let out = &mut payload[heap * heap_bytes..][..heap_bytes];
            let (geometry, quantised) = (self.geometry, &self.quantised);
            let unit = geometry.channel_bytes();
            self.threads.each(out, unit, &mut self.spectra, |channel, out, _| {
                geometry.transpose(quantised, channel, run, out);
            });
            next += run.count;
        }
        next
    }

    /// How many of `count` spectra from `first` on are valid in all polarisations.
    fn valid(&self, input: &Frame, first: usize, count: usize) -> usize {
        let validity = &input.header().validity;
        let is_valid =
            |n: &usize| (0..self.shape.pols).all(|pol| validity[pol * self.shape.spectra + n] > 0);
        (first..first + count).filter(is_valid).count()
    }

    /// Quantises `count` spectra of all polarisations from `first` on.
    fn quantise(&mut self, input: &Frame, first: usize, count: usize) {
        let header = input.header();
        let step = self.shape.step() as u64;
        let fine = header.annotations.get("fine_delay_samples");
        let phase = header.annotations.get("phase_turns");
        let spectra: &[Complex32] = input.as_slice();
        let Shape { channels, spectra: per_pol, .. } = self.shape;
        let geometry = self.geometry;
        let (gains, unzip, clamped) = (&self.gains, &self.unzip, &self.clamped);
        let (limit, dither_seed) = (self.limit, self.dither_seed);
        let one = |unit: usize, out: &mut [u16], scratch: &mut Vec<Complex32>| {
            let (pol, row) = (unit / geometry.rows, unit % geometry.rows);
            if row >= count {
                return;
            }
            let index = pol * per_pol + first + row;
            let mut spectrum = &spectra[index * channels..][..channels];
            if let Some((unzip, fixup)) = unzip {
                unzip.combine(spectrum, scratch);
                fixup.apply(scratch);
                spectrum = scratch;
            }
            let number = header.timestamp / step + (first + row) as u64;
            let turn = Turn {
                phase_turns: phase.get(index).copied().unwrap_or(0.0),
                fine_delay_samples: fine.get(index).copied().unwrap_or(0.0),
                dither_key: dither_seed.map(|seed| dither::key(seed, &[number, pol as u64])),
                limit,
            };
            let count = rotate(spectrum, &turn, &gains[pol], &mut out[..channels], geometry.form);
            clamped[unit].store(count, Ordering::Relaxed);
        };
        let pitch = geometry.pitch;
        self.threads.each(&mut self.quantised, pitch, &mut self.spectra, |first, rows, scratch| {
            for (i, row) in rows.chunks_exact_mut(pitch).enumerate() {
                one(first + i, row, scratch);
            }
        });
    }

    /// Writes down what is known of the frame; whether it has a valid heap.
    fn complete(&mut self, filling: &mut Filling) -> bool {
        let per_heap = self.geometry.spectra_per_heap;
        let heap_bytes = self.shape.channels * self.geometry.channel_bytes();
        let (header, payload) = filling.frame.parts_mut::<u8>();
        header.timestamp = filling.first * self.shape.step() as u64;
        for (heap, valid) in filling.valid.iter().enumerate() {
            let is_whole = *valid == per_heap;
            header.validity[heap] = u32::from(is_whole);
            let saturated = &mut filling.saturated[heap * self.shape.pols..][..self.shape.pols];
            if is_whole {
                let number = filling.first / per_heap as u64 + heap as u64;
                let missing = self.last_heap.map_or(0, |last| number - last - 1);
                self.heaps_missing.add(missing);
                self.last_heap = Some(number);
                self.values_saturated.add(saturated.iter().sum());
            } else {
                // The rest of an earlier frame may stand where spectra are missing.
                payload[heap * heap_bytes..][..heap_bytes].fill(0);
                saturated.fill(0);
            }
        }
        if !header.validity.contains(&1) {
            return false;
        }
        let tables = &mut header.annotations;
        let saturated = tables.reset("saturated", filling.saturated.len());
        saturated.iter_mut().zip(&filling.saturated).for_each(|(to, n)| *to = *n as f64);
        for (name, sums) in
            [("adc_power", &mut self.adc_power), ("adc_clipped", &mut self.adc_clipped)]
        {
            tables.reset(name, sums.len()).copy_from_slice(sums);
            sums.fill(0.0);
        }
        true
    }

    /// Pushes the frame being filled, if it has a valid heap. Otherwise it is left out: its
    /// readers see the gap in the timestamps.
    fn push(&mut self, io: &mut Io<'_>) {
        if let Some(mut filling) = self.filling.take()
            && self.complete(&mut filling)
        {
            io.outputs[0].push(filling.frame);
        }
    }

    fn filling(&self, io: &mut Io<'_>, first: u64) -> Option<Filling> {
        Some(Filling {
            frame: io.outputs[0].take()?,
            first,
            // Two small tables per frame of megabytes.
            valid: vec![0; self.heaps],
            saturated: vec![0; self.heaps * self.shape.pols],
        })
    }
}

#[async_trait]
impl Block for Cpu {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Some((input, next)) = self.input.take() else {
            if let Some(frame) = io.inputs[0].pop() {
                self.accept(frame);
                return Ok(Next::Again);
            }
            if io.inputs[0].ended() {
                self.push(io);
                return Ok(Next::Finished);
            }
            return Ok(Next::Wait);
        };
        let spectrum = input.header().timestamp / self.shape.step() as u64 + next as u64;
        let first = spectrum - spectrum % self.frame_spectra();
        if self.filling.as_ref().is_some_and(|filling| filling.first != first) {
            self.push(io);
        }
        let Some(mut filling) = self.filling.take().or_else(|| self.filling(io, first)) else {
            self.input = Some((input, next));
            return Ok(Next::Wait);
        };
        let next = self.fill(&input, next, &mut filling);
        self.filling = Some(filling);
        let start = input.header().timestamp / self.shape.step() as u64;
        if start + next as u64 == first + self.frame_spectra() {
            self.push(io);
        }
        if next < self.shape.spectra {
            self.input = Some((input, next));
        }
        Ok(Next::Again)
    }
}
