//! One polarisation: its delays, its samples, and what was measured on them.

use super::history::History;
use crate::delay::{Delay, DelayModel, Piece};
use crate::packed::Decoder;
use fxgraph::{Counter, Counters, Dtype, Frame, Input, PortType};
use std::sync::Arc;

/// Timestamps beyond this are nonsense; below it nothing here overflows.
const MAX_TIME: u64 = 1 << 62;

/// The counters of the block.
pub struct Count {
    pub spectra_missing: Counter,
    pub delays_out_of_range: Counter,
    pub samples_clipped: Counter,
    pub frames_misplaced: Counter,
}

impl Count {
    pub fn new(counters: &Counters) -> Self {
        Self {
            spectra_missing: counters.loss(
                "spectra_missing",
                "spectra of one polarisation that touch missing samples; look for lost heaps upstream",
            ),
            delays_out_of_range: counters.loss(
                "spectra_delay_out_of_range",
                "spectra whose delay went beyond max_delay_seconds; send newer delay models",
            ),
            samples_clipped: counters.count(
                "samples_clipped",
                "samples at the limits of the digitiser; lower the level at its input",
            ),
            frames_misplaced: counters.loss(
                "frames_misplaced",
                "input frames that were late or not at a multiple of 8 samples; look for a faulty source",
            ),
        }
    }
}

/// One polarisation.
pub struct Pol {
    model: DelayModel,
    /// `None` for samples that are 16-bit integers already.
    decoder: Option<Decoder>,
    frame_samples: usize,
    heap_samples: usize,
    /// A sample of this magnitude or more counts as clipped.
    pub limit: i16,
    pub history: History,
    /// The frame being decoded, and how many of its samples have been.
    frame: Option<(Arc<Frame>, usize)>,
    /// Start of the first frame, once there was one.
    first_time: Option<i64>,
    /// Where the next frame may start at the earliest.
    next_time: i64,
    ended: bool,
    /// Spectra of the output frame that are done.
    pub done: usize,
    /// For each spectrum of the output frame.
    pub delays: Vec<Delay>,
    /// Sum of the squares of the output frame's samples.
    pub power: u64,
    /// Number of the output frame's samples.
    pub measured: u64,
    /// Those of them that clipped.
    pub clipped: u64,
    /// Power, number and clipped ones of all samples so far.
    totals: (f64, u64, u64),
}

impl Pol {
    pub fn new(input: &PortType, pieces: &[Piece], capacity: usize, spectra: usize) -> Self {
        Self {
            model: DelayModel::of(input.clock.adc_sample_rate_hz, pieces),
            decoder: match input.dtype {
                Dtype::Packed(bits) => Decoder::new(bits),
                _ => None,
            },
            frame_samples: input.elements(),
            heap_samples: input.elements() / input.validity.units(),
            limit: i16::MAX >> (16 - input.dtype.bits()),
            history: History::new(capacity, 0),
            frame: None,
            first_time: None,
            next_time: 0,
            ended: false,
            done: 0,
            delays: Vec::with_capacity(spectra),
            power: 0,
            measured: 0,
            clipped: 0,
            totals: (0.0, 0, 0),
        }
    }

    /// Takes the figures of the output frame into account for the whole run.
    pub fn add_to_totals(&mut self) {
        let (power, measured, clipped) = &mut self.totals;
        *power += self.power as f64;
        *measured += self.measured;
        *clipped += self.clipped;
    }

    /// Level and clipping of the digitiser over the whole run, in words.
    pub fn level(&self) -> Option<String> {
        let (power, measured, clipped) = self.totals;
        let full_scale_power = f64::from(self.limit).powi(2) / 2.0;
        let rms_dbfs = 10.0 * (power / measured as f64 / full_scale_power).log10();
        let clipped_percent = 100.0 * clipped as f64 / measured as f64;
        (measured > 0).then(|| {
            format!("rms {rms_dbfs:.2} dBFS, {clipped_percent:.4} % of {measured} samples clipped")
        })
    }

    /// Gets ready for an output frame with its first spectrum at `start`.
    pub fn begin(&mut self, start: u64, step: u64) {
        (self.done, self.power, self.measured, self.clipped) = (0, 0, 0, 0);
        let spectra = self.delays.capacity() as u64;
        self.delays.clear();
        self.delays.extend((0..spectra).map(|n| self.model.at(start + n * step)));
    }

    /// Coarse delay of spectrum `n`, unless it is beyond `most`.
    pub fn coarse(&self, n: usize, most: usize) -> Option<i64> {
        let coarse = self.delays[n].coarse_samples;
        (coarse.unsigned_abs() <= most as u64).then_some(coarse)
    }

    /// How many spectra from number `first` on have its coarse delay, at most `most`.
    pub fn same_coarse(&self, first: usize, most: usize) -> usize {
        let coarse = self.delays[first].coarse_samples;
        let same = self.delays[first..].iter().take(most);
        same.take_while(|delay| delay.coarse_samples == coarse).count()
    }

    /// Whether samples at `time` should have been there: the stream has begun and not ended.
    pub fn expects(&self, time: i64) -> bool {
        !self.ended && self.first_time.is_some_and(|first| time >= first)
    }

    /// Time of the first sample that is there or about to be; the end of time if there will
    /// be none; `None` if it is not known yet.
    pub fn first_present(&mut self, input: &mut Input, count: &Count) -> Option<i64> {
        let in_history = self.history.first_present(i64::MIN);
        in_history.or_else(|| self.pending(input, count)).or(self.ended.then_some(i64::MAX))
    }

    /// Time of the next sample to decode.
    fn pending(&mut self, input: &mut Input, count: &Count) -> Option<i64> {
        loop {
            if let Some((frame, consumed)) = &mut self.frame {
                let start = frame.header().timestamp.cast_signed();
                let behind = self.history.end() - start;
                *consumed = (*consumed).max(behind.clamp(0, self.frame_samples as i64) as usize);
                if *consumed < self.frame_samples {
                    return Some(start + *consumed as i64);
                }
                self.frame = None;
            }
            // The flag first: once set, nothing more can come.
            let ended = input.ended();
            let Some(frame) = input.pop() else {
                self.ended |= ended;
                return None;
            };
            let time = frame.header().timestamp;
            let is_placed =
                time <= MAX_TIME && time.is_multiple_of(8) && time.cast_signed() >= self.next_time;
            if !is_placed {
                count.frames_misplaced.add(1);
                continue;
            }
            self.first_time.get_or_insert(time.cast_signed());
            self.next_time = time.cast_signed() + self.frame_samples as i64;
            self.frame = Some((frame, 0));
        }
    }

    /// Decodes until the history reaches `to`; `false` if that takes frames still to come.
    pub fn fetch(&mut self, to: i64, input: &mut Input, count: &Count) -> bool {
        while self.history.end() < to {
            let end = self.history.end();
            let wanted = (to - end) as usize;
            // All times here are multiples of 8, so that decoding starts at whole bytes.
            let wanted = wanted.next_multiple_of(8);
            match self.pending(input, count) {
                None if self.ended => self.history.push_missing(wanted),
                None => return false,
                Some(time) if time > end => {
                    self.history.push_missing(wanted.min((time - end) as usize));
                }
                Some(_) => self.decode(wanted),
            }
        }
        true
    }

    /// Decodes up to `wanted` samples of the frame at hand.
    fn decode(&mut self, wanted: usize) {
        let Some((frame, consumed)) = &mut self.frame else { return };
        let (first, end) = (*consumed, (*consumed + wanted).min(self.frame_samples));
        let start = self.history.end() - first as i64;
        let samples = self.history.push(end - first);
        match &self.decoder {
            Some(decoder) => decoder.decode(frame.as_slice(), first, samples),
            None => samples.copy_from_slice(&frame.as_slice()[first..end]),
        }
        for heap in first / self.heap_samples..end.div_ceil(self.heap_samples) {
            if frame.header().validity[heap] == 0 {
                let from = (heap * self.heap_samples).max(first) as i64;
                let to = ((heap + 1) * self.heap_samples).min(end) as i64;
                self.history.mark_missing(start + from, start + to);
            }
        }
        *consumed = end;
    }
}
