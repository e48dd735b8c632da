//! The format: quantises samples, and arranges frames.

use super::level::Level;
use super::{Layout, VdifSink};
use crate::io::files::output_file::OutputFile;
use crate::io::files::{Format, Journal, Open, Opening, Times};
use fxgraph::{BlockError, Counter, Env, Frame, Gauge};
use fxgraph_formats::vdif::{THRESHOLD, epoch_of, epoch_seconds, pack, time_of};
use std::ops::Range;

/// Distance of the samples from the grid, in samples, from which a warning is given.
const MAX_OFFSET: f64 = 0.01;

/// Lower and upper limit of the numbers that `bits` bits express; `None` for 1 bit, which has the sign only. With 2 bits
/// each number above the threshold has the outer level: one of 11600 numbers of noise with the right level is beyond 4
/// thresholds.
fn limits(bits: u8) -> Option<[f32; 2]> {
    let middle = f32::from(1_u16 << (bits - 1));
    match bits {
        1 => None,
        2 => Some([-4.0 * THRESHOLD, 4.0 * THRESHOLD]),
        // Ties are rounded to even numbers.
        _ => Some([-middle - 0.5, middle - 0.5]),
    }
}

/// VDIF files of a stream.
pub struct Vdif {
    parameters: VdifSink,
    layout: Layout,
    level: Level,
    /// Samples of the input frame at work, scaled.
    values: Vec<f32>,
    /// Timestamp of the frame that `values` has, before its level was applied.
    has_read: Option<u64>,
    /// One frame of each thread, at work.
    set: Vec<u8>,
    /// Threads whose frame at work lacks samples.
    invalid: Vec<bool>,
    /// Complete frames.
    out: Vec<u8>,
    /// Numbers that the quantiser clips: below and above.
    limits: Option<[f32; 2]>,
    saturated: Counter,
    before_start: Counter,
    after_end: Counter,
    offset: Gauge,
}

/// The file that grows.
pub struct Threads {
    file: OutputFile,
    /// Samples of each thread in the frames at work.
    filled: usize,
    /// Complete samples that lack data.
    missing: u64,
    /// Reference epoch.
    epoch: u8,
}

impl Vdif {
    /// Creates the format of the block of `env`.
    pub fn new(parameters: VdifSink, layout: Layout, env: &Env) -> Self {
        let counters = &env.counters;
        Self {
            level: Level::new(&parameters, &layout, env),
            values: vec![0.0; layout.rows.values()],
            has_read: None,
            set: vec![0; layout.set_bytes()],
            invalid: vec![false; layout.threads],
            out: Vec::new(),
            limits: limits(parameters.bits),
            saturated: counters.count(
                "values_saturated",
                "numbers that were clipped, or with 2 bits are beyond 4 thresholds; if they are many, lower the level",
            ),
            before_start: counters.count(
                "samples_before_start",
                "samples dropped before the first one that begins a VDIF frame",
            ),
            after_end: counters
                .count("samples_after_end", "samples dropped at the end, less than a VDIF frame"),
            offset: counters.state(
                "sample_offset_seconds",
                "time of the samples after the time that the file states, less than half a sample",
            ),
            layout,
            parameters,
        }
    }

    /// Samples of a VDIF frame.
    fn frame_samples(&self) -> usize {
        self.layout.header.samples()
    }

    fn note_offset(&self, offset: f64, journal: &mut Journal) {
        let seconds = offset / self.layout.grid.rate_hz as f64;
        self.offset.set(seconds);
        if offset.abs() > MAX_OFFSET {
            journal.report.warn(format!(
                "the samples are {seconds:e} s ({offset:.3} samples) after the times in {}",
                self.parameters.files.path
            ));
        }
    }

    /// Packs `count` samples from number `from` on, which are in `part`, into the frames at work.
    fn pack(
        &mut self,
        filled: usize,
        values: &[f32],
        validity: &[u32],
        part: usize,
        from: usize,
        count: usize,
    ) {
        let Layout { rows, header, threads, .. } = &self.layout;
        let channels = self.layout.channels();
        let width = channels * rows.components();
        let frames = self.set.chunks_exact_mut(header.frame_bytes as usize);
        for (thread, (frame, invalid)) in frames.zip(&mut self.invalid).enumerate().take(*threads) {
            let mut rows_of = thread * channels..(thread + 1) * channels;
            if !rows_of.all(|row| rows.is_valid(validity, row, part)) {
                *invalid = true;
                continue;
            }
            let start = (thread * rows.samples + from) * width;
            let payload = &mut frame[header.header_bytes() as usize..];
            let values = &values[start..][..count * width];
            if let Some([low, high]) = self.limits {
                let clipped = values.iter().filter(|value| **value < low || **value >= high);
                self.saturated.add(clipped.count() as u64);
            }
            pack(values, header.bits, filled * width, payload);
        }
    }

    /// Advances over `count` samples, and completes the frames at work if they are full.
    fn advance(&mut self, open: &mut Open<Threads>, count: usize) {
        open.next += count as i128;
        let threads = &mut open.file;
        threads.filled += count;
        let samples = self.frame_samples();
        if threads.filled < samples {
            return;
        }
        threads.filled = 0;
        threads.missing += if self.invalid.contains(&true) { samples as u64 } else { 0 };
        let rate = self.layout.grid.rate_hz;
        let first = (open.next - samples as i128) as u64;
        let mut header = self.layout.header;
        header.epoch = threads.epoch;
        header.seconds = (first / rate).saturating_sub(epoch_seconds(threads.epoch)) as u32;
        header.frame = (first % rate / samples as u64) as u32;
        let frames = self.set.chunks_exact_mut(header.frame_bytes as usize);
        for (thread, (frame, invalid)) in frames.zip(&mut self.invalid).enumerate() {
            header.thread = self.parameters.first_thread + thread as u16;
            header.is_invalid = std::mem::take(invalid);
            header.write(frame);
        }
        self.out.extend_from_slice(&self.set);
        self.set.fill(0);
    }

    /// Writes the complete frames. Frames that cannot be written are dropped: each of the others states its time.
    fn write_out(
        &mut self,
        threads: &mut Threads,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        let steps = (self.out.len() / self.layout.set_bytes() * self.frame_samples()) as u64;
        let written = threads.file.append(&self.out);
        self.out.clear();
        let missing = std::mem::take(&mut threads.missing);
        if written.is_ok() {
            journal.count.written.add(steps);
            journal.count.missing.add(missing);
        } else {
            journal.count.dropped.add(steps);
        }
        written
    }
}

impl Format for Vdif {
    type File = Threads;
    const TIMES: Times = Times::OfUnits;

    fn steps(&self) -> usize {
        self.layout.rows.samples
    }

    fn unit(&self) -> u64 {
        self.frame_samples() as u64
    }

    fn step_bytes(&self) -> usize {
        self.layout.set_bytes().div_ceil(self.frame_samples())
    }

    fn max_gap_seconds(&self) -> f64 {
        self.parameters.max_gap_seconds
    }

    fn looks_further(&mut self, frame: &Frame) -> Result<bool, BlockError> {
        if !self.level.is_unknown() {
            return Ok(false);
        }
        let by_row = self.layout.threads > 1;
        self.layout.rows.read(frame.as_slice()?, by_row, &mut self.values);
        self.has_read = Some(frame.header().timestamp);
        let validity = &frame.header().validity;
        Ok(self.level.looks_further(&self.layout, by_row, validity, &self.values))
    }

    fn is_possible(&self, timestamp: u64) -> bool {
        let number = self.layout.grid.sample(timestamp).map(|(number, _)| number);
        number
            .and_then(|number| time_of(number / self.layout.grid.rate_hz))
            .and_then(epoch_of)
            .is_some()
    }

    fn number(&self, timestamp: u64) -> Option<i128> {
        self.layout.grid.sample(timestamp).map(|(number, _)| i128::from(number))
    }

    /// Frame 0 of a second begins at the second.
    fn first(&mut self, number: i128, steps: u64) -> i128 {
        let unit = i128::from(self.unit());
        let first = (number + unit - 1).div_euclid(unit) * unit;
        self.before_start.add(steps.min((first - number) as u64));
        first
    }

    fn create(
        &mut self,
        opening: &Opening<'_>,
        journal: &mut Journal,
    ) -> Result<Threads, BlockError> {
        let file = OutputFile::open(&opening.path, opening.overwrites, &mut journal.report)?;
        let (number, offset) = self.layout.grid.sample(opening.frame.timestamp).unwrap_or_default();
        self.note_offset(offset, journal);
        let epoch =
            time_of(number / self.layout.grid.rate_hz).and_then(epoch_of).unwrap_or_default();
        Ok(Threads { file, filled: 0, missing: 0, epoch })
    }

    fn write(
        &mut self,
        open: &mut Open<Threads>,
        frame: &Frame,
        steps: Range<usize>,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        let validity = &frame.header().validity;
        let by_row = self.layout.threads > 1;
        let payload = frame.as_slice()?;
        let mut values = std::mem::take(&mut self.values);
        // While a polarisation has no signal, each frame is read for its level.
        if self.has_read.take() != Some(frame.header().timestamp) {
            self.layout.rows.read(payload, by_row, &mut values);
        }
        self.level.apply(&self.layout, by_row, validity, &mut values);
        for part in 0..self.layout.rows.parts() {
            let range = self.layout.rows.part(part);
            let mut from = range.start.max(steps.start);
            while from < range.end.min(steps.end) {
                let left = self.frame_samples() - open.file.filled;
                let count = left.min(range.end.min(steps.end) - from);
                self.pack(open.file.filled, &values, validity, part, from, count);
                self.advance(open, count);
                from += count;
            }
        }
        self.values = values;
        self.write_out(&mut open.file, journal)
    }

    fn fill(
        &mut self,
        open: &mut Open<Threads>,
        mut steps: u64,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        while steps > 0 {
            let count = steps.min((self.frame_samples() - open.file.filled) as u64);
            self.invalid.fill(true);
            self.advance(open, count as usize);
            steps -= count;
        }
        self.write_out(&mut open.file, journal)
    }

    fn name(&self, file: &Threads) -> String {
        file.file.path().display().to_string()
    }

    fn close(
        &mut self,
        open: Open<Threads>,
        _: bool,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        self.level.end_file(&self.layout);
        self.level.statement().into_iter().for_each(|line| journal.report.note(line));
        self.after_end.add(open.file.filled as u64);
        self.set.fill(0);
        self.invalid.fill(false);
        open.file.file.sync()
    }
}
