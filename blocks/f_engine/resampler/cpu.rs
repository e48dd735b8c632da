//! The block on the CPU.

use super::history::History;
use super::{HEAP_SAMPLES, Resampler, Shape};
use crate::common::gaps::Gaps;
use crate::common::samples::Samples;
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::{Block, BlockError, Configured, Counter, Env, Frame, FrameMut, Input, Io, Next};
use fxgraph_dsp::resample;
use num_complex::Complex32;
use std::cmp::Ordering;

/// Approximate number of products that one call of `work` computes: some 10 ms.
const BATCH_PRODUCTS: usize = 1 << 25;

/// Place of the stream in time.
struct Place {
    /// Timestamp of output sample 0, less than one input sample.
    origin: u64,
    /// First sample of the stream.
    begin: i64,
    /// Number of the output frame, counted from output sample 0; `None` before the first one.
    number: Option<u64>,
    /// Heaps of the frame that are computed.
    done: usize,
    /// Whether one of them has valid samples.
    has_valid: bool,
}

/// The running block.
pub(super) struct Cpu {
    shape: Shape,
    resampler: resample::Resampler,
    history: History,
    place: Option<Place>,
    frame: Option<FrameMut>,
    /// Samples of one heap.
    heap: Vec<Complex32>,
    /// Heaps that one call of `work` computes.
    batch: usize,
    is_ending: bool,
    gaps: Gaps,
    heaps_missing: Counter,
    frames_misplaced: Counter,
}

impl Cpu {
    pub(super) fn new(block: &Configured<Resampler>, env: &Env) -> Self {
        let shape = block.shape;
        let counters = if shape.has_row_validity { shape.rows } else { 1 };
        let products = HEAP_SAMPLES * shape.rows * shape.products();
        Self {
            shape,
            resampler: shape.resampler(),
            history: History::new(shape.rows, shape.is_complex, shape.held(), counters),
            place: None,
            frame: None,
            heap: vec![Complex32::default(); HEAP_SAMPLES],
            batch: (BATCH_PRODUCTS / products).max(1),
            is_ending: false,
            gaps: Gaps::new(block.ports.inputs[0].clock.adc_sample_rate_hz),
            heaps_missing: env.counters.loss(
                "heaps_missing",
                "groups of 256 output samples that depend on missing samples; look for missing data upstream",
            ),
            frames_misplaced: env.counters.loss(
                "frames_misplaced",
                "input frames that were late, not a whole number of samples after the first one, or beyond the \
                 range of timestamps",
            ),
        }
    }

    /// Output samples of each row of a frame, in heaps.
    fn heaps(&self) -> usize {
        self.shape.samples / HEAP_SAMPLES
    }

    /// First output sample of heap `heap` of output frame `number`.
    fn sample(&self, number: u64, heap: usize) -> u64 {
        number * self.shape.samples as u64 + (heap * HEAP_SAMPLES) as u64
    }

    /// Computes the next heap of the frame, if its input has arrived.
    fn next_heap(&mut self, frame: &mut FrameMut) -> Result<bool, BlockError> {
        let Some(place) = &self.place else { return Ok(false) };
        let (Some(number), done) = (place.number, place.done) else { return Ok(false) };
        let k = self.sample(number, done);
        let first = self.resampler.first_input(k);
        let end = self.resampler.end_input(k + HEAP_SAMPLES as u64 - 1);
        if end > self.history.end() {
            return Ok(false);
        }
        let is_inside = first >= place.begin && !self.is_ending;
        let (heaps, shape) = (self.heaps(), self.shape);
        let (header, payload) = frame.parts_mut::<f32>()?;
        let counters = header.validity.len() / heaps;
        let mut has_valid = false;
        for counter in 0..counters {
            let count = self.history.validity(counter, first, end);
            header.validity[counter * heaps + done] = count;
            has_valid |= count > 0;
            self.heaps_missing.add(u64::from(count == 0 && is_inside));
        }
        let numbers = if shape.output == Samples::Real { 1 } else { 2 };
        for (row, samples) in payload.chunks_exact_mut(shape.samples * numbers).enumerate() {
            let out = &mut samples[done * HEAP_SAMPLES * numbers..][..HEAP_SAMPLES * numbers];
            let counter = if shape.has_row_validity { row.min(counters - 1) } else { 0 };
            if header.validity[counter * heaps + done] == 0 {
                out.fill(0.0);
                continue;
            }
            self.resampler.run(k, &self.history.samples(row, first), &mut self.heap);
            if numbers == 1 {
                out.iter_mut().zip(&self.heap).for_each(|(out, y)| *out = y.re);
            } else {
                let pairs = out.as_chunks_mut::<2>().0.iter_mut().zip(&self.heap);
                pairs.for_each(|(out, y)| *out = [y.re, y.im]);
            }
        }
        if let Some(place) = &mut self.place {
            place.done += 1;
            place.has_valid |= has_valid;
        }
        Ok(true)
    }

    /// First input sample that is still needed.
    fn first_needed(&self) -> i64 {
        let next = self.place.as_ref().and_then(|place| Some((place.number?, place.done)));
        next.map_or(0, |(number, done)| self.resampler.first_input(self.sample(number, done)))
    }

    /// Takes input, or fills in missing samples, for the next heap.
    fn feed(&mut self, input: &mut Input) -> Result<Next, BlockError> {
        let Some(frame) = input.peek() else {
            if !input.ended() {
                return Ok(Next::Wait);
            }
            let is_done = match &self.place {
                Some(place) => !place.has_valid && self.first_needed() >= self.history.valid_end(),
                None => true,
            };
            if is_done {
                return Ok(Next::Finished);
            }
            self.is_ending = true;
            return Ok(self.fill(self.shape.input_samples as i64));
        };
        let Some(index) = self.index(frame.header().timestamp) else {
            self.frames_misplaced.add(1);
            input.pop();
            return Ok(Next::Again);
        };
        self.jump(index);
        match index.cmp(&self.history.end()) {
            Ordering::Less => {
                self.frames_misplaced.add(1);
                input.pop();
            }
            Ordering::Equal => {
                self.history.forget_before(self.first_needed());
                if let Some(frame) = input.pop() {
                    self.append(&frame)?;
                }
            }
            Ordering::Greater => return Ok(self.fill(index - self.history.end())),
        }
        Ok(Next::Again)
    }

    /// Appends missing samples: `missing`, or as many as a frame has, or as the output frame at work needs. Only then is
    /// no frame at work, and the stream can continue after a long gap.
    fn fill(&mut self, missing: i64) -> Next {
        self.history.forget_before(self.first_needed());
        let number = self.place.as_ref().and_then(|place| place.number);
        let needed = number.map_or(i64::MAX, |number| {
            let last = self.sample(number, self.heaps()) - 1;
            self.resampler.end_input(last) - self.history.end()
        });
        let most = needed.clamp(1, self.shape.input_samples as i64);
        self.history.append_missing(missing.min(most) as usize);
        Next::Again
    }

    /// Index of the input sample with this timestamp; `None` if there is none.
    fn index(&mut self, timestamp: u64) -> Option<i64> {
        if timestamp > MAX_TIMESTAMP {
            return None;
        }
        let step = self.shape.step;
        let place = self.place.get_or_insert_with(|| {
            let begin = (timestamp / step).cast_signed();
            // The history is empty, so the first frame is placed by a jump.
            Place { origin: timestamp % step, begin, number: None, done: 0, has_valid: false }
        });
        (timestamp % step == place.origin).then(|| (timestamp / step).cast_signed())
    }

    /// Continues with the first output frame that can have valid samples, if the frame at work cannot have any before
    /// the input sample `index`.
    fn jump(&mut self, index: i64) {
        let first_needed = self.first_needed();
        let target = self.resampler.first_output(index) / self.shape.samples as u64;
        let Some(place) = &mut self.place else { return };
        let is_idle = place.done == 0 && first_needed >= self.history.valid_end();
        if is_idle && place.number.is_none_or(|number| target > number) {
            let frames = place.number.map_or(0, |number| target - number);
            let (frame, heaps) = (self.shape.samples_per_frame, self.shape.samples / HEAP_SAMPLES);
            let missing = self.gaps.missing(frames.saturating_mul(frame), frame) * heaps as u64;
            let counters = if self.shape.has_row_validity { self.shape.rows } else { 1 };
            self.heaps_missing.add(missing * counters as u64);
            place.number = Some(target);
            let first = self.first_needed();
            self.history.restart(first.min(index));
        }
    }

    fn append(&mut self, frame: &Frame) -> Result<(), BlockError> {
        let shape = self.shape;
        let range = |row: usize| (shape.first_row + row) * shape.input_samples;
        if shape.is_complex {
            let values = frame.as_slice::<Complex32>()?;
            self.history.append_complex(|row| &values[range(row)..][..shape.input_samples]);
        } else {
            let values = frame.as_slice::<f32>()?;
            self.history.append_real(|row| &values[range(row)..][..shape.input_samples]);
        }
        let validity = &frame.header().validity;
        for unit in 0..shape.units {
            let row =
                |counter: usize| if shape.has_row_validity { shape.first_row + counter } else { 0 };
            let count = |counter: usize| validity[row(counter) * shape.units + unit];
            self.history.append_run(shape.input_samples / shape.units, count);
        }
        Ok(())
    }

    /// Pushes a complete frame if it has valid samples; otherwise it is reused.
    fn complete(&mut self, mut frame: FrameMut, io: &mut Io<'_>) {
        let Some(place) = &mut self.place else { return };
        let number = place.number.unwrap_or_default();
        if place.has_valid {
            let header = frame.header_mut();
            header.timestamp = number * self.shape.samples_per_frame + place.origin;
            io.outputs[0].push(frame);
        } else {
            self.frame = Some(frame);
        }
        (place.number, place.done, place.has_valid) = (Some(number + 1), 0, false);
    }
}

impl Block for Cpu {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Some(mut frame) = self.frame.take().or_else(|| io.outputs[0].take()) else {
            return Ok(Next::Wait);
        };
        let mut computed = 0;
        while computed < self.batch
            && self.place.as_ref().is_some_and(|place| place.done < self.heaps())
            && self.next_heap(&mut frame)?
        {
            computed += 1;
        }
        if self.place.as_ref().is_some_and(|place| place.done == self.heaps()) {
            self.complete(frame, io);
            return Ok(Next::Again);
        }
        self.frame = Some(frame);
        if computed == self.batch {
            return Ok(Next::Again);
        }
        self.feed(&mut io.inputs[0])
    }
}
