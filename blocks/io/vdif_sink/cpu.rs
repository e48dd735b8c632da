//! The block: quantises samples, and writes frames.

use super::level::Level;
use super::{Format, VdifSink};
use crate::io::output_file::{OutputFile, Report};
use fxgraph::recording::try_path;
use fxgraph::{Block, BlockError, Counter, Env, Frame, Gauge, Input, Io, Next};
use fxgraph_formats::vdif::{epoch_of, epoch_seconds, pack, time_of};
use std::sync::Arc;

/// Bytes of invalid frames that are written at a time.
const MAX_FILL_BYTES: usize = 1 << 22;
/// Distance of the samples from the grid, in samples, from which a warning is given.
const MAX_OFFSET: f64 = 0.01;

/// Counters of the block.
struct Count {
    written: Counter,
    invalid: Counter,
    left_out: Counter,
    dropped: Counter,
    misplaced: Counter,
    before_start: Counter,
    after_end: Counter,
    offset: Gauge,
}

impl Count {
    fn new(env: &Env) -> Self {
        let counters = &env.counters;
        Self {
            written: counters.count("vdif_frames_written", "VDIF frames in the file, of all threads"),
            invalid: counters.loss(
                "vdif_frames_invalid",
                "VDIF frames flagged as invalid because of missing samples; look for missing data upstream",
            ),
            left_out: counters.loss(
                "vdif_frames_left_out",
                "VDIF frames of gaps longer than `max_gap_seconds`, which are not in the file",
            ),
            dropped: counters.loss(
                "vdif_frames_dropped",
                "VDIF frames dropped because the file could not be written; see the fault for the cause",
            ),
            misplaced: counters.loss(
                "frames_misplaced",
                "input frames dropped: earlier than the samples before, or outside the years 2000 to 2031",
            ),
            before_start: counters.count(
                "samples_before_start",
                "samples dropped before the first one that begins a VDIF frame",
            ),
            after_end: counters
                .count("samples_after_end", "samples dropped at the end, less than a VDIF frame"),
            offset: counters.gauge(
                "sample_offset_seconds",
                "time of the samples after the time that the file states, less than half a sample",
            ),
        }
    }
}

/// The running block.
pub struct Sink {
    parameters: VdifSink,
    format: Format,
    report: Report,
    file: Option<OutputFile>,
    level: Level,
    /// Samples of the frame at work, scaled.
    values: Vec<f32>,
    /// One frame of each thread, at work.
    set: Vec<u8>,
    /// Threads whose frame at work lacks samples.
    invalid: Vec<bool>,
    /// Samples of each thread in the frames at work.
    filled: usize,
    /// Number of the next sample, counted from 1970.
    next: Option<u64>,
    /// Reference epoch of the file.
    epoch: u8,
    /// A frame that waits until the gap before it is filled.
    held: Option<Arc<Frame>>,
    /// Complete frames, written at the end of `work`.
    out: Vec<u8>,
    count: Count,
}

impl Sink {
    /// Creates the block.
    pub fn new(mut parameters: VdifSink, format: &Format, env: &Env) -> Self {
        parameters.path = parameters.path.begin_at(&env.output_folder);
        Self {
            report: Report::new(env),
            file: None,
            level: Level::new(&parameters, format, env),
            values: vec![0.0; format.rows.values()],
            set: vec![0; format.set_bytes()],
            invalid: vec![false; format.threads],
            filled: 0,
            next: None,
            epoch: 0,
            held: None,
            out: Vec::new(),
            count: Count::new(env),
            format: format.clone(),
            parameters,
        }
    }

    /// Samples of a VDIF frame.
    fn frame_samples(&self) -> u64 {
        self.format.header.samples() as u64
    }

    /// Finds the place of `frame`, and appends it or holds it until the gap before it is filled.
    fn take(&mut self, frame: Arc<Frame>) -> Result<(), BlockError> {
        let rate = self.format.grid.rate_hz;
        let Some((number, offset)) = self.format.grid.sample(frame.header().timestamp) else {
            self.count.misplaced.add(1);
            return Ok(());
        };
        let Some(next) = self.next else {
            let Some(epoch) = time_of(number / rate).and_then(epoch_of) else {
                self.count.misplaced.add(1);
                return Ok(());
            };
            let start = number.next_multiple_of(self.frame_samples());
            let early = (start - number).min(self.format.rows.samples as u64);
            self.count.before_start.add(early);
            if early < self.format.rows.samples as u64 {
                (self.epoch, self.next) = (epoch, Some(start));
                self.note_offset(offset);
                self.append(&frame, early as usize)?;
            }
            return Ok(());
        };
        if number < next {
            self.count.misplaced.add(1);
            return Ok(());
        }
        if number == next {
            return self.append(&frame, 0);
        }
        let most = (self.parameters.max_gap_seconds * rate as f64) as u64;
        if number - next > most {
            self.leave_out(number);
        }
        let sets = (MAX_FILL_BYTES / self.format.set_bytes()).max(1) as u64;
        let missing = number - self.next.unwrap_or(number);
        self.skip(missing.min(sets * self.frame_samples()));
        self.held = Some(frame);
        Ok(())
    }

    /// Continues at the VDIF frame that contains sample `number`; frames in between are left out.
    fn leave_out(&mut self, number: u64) {
        let samples = self.frame_samples();
        if self.next.is_some_and(|next| next / samples == number / samples) {
            // The gap is within the frame at work.
            return;
        }
        if self.filled > 0 {
            self.skip(samples - self.filled as u64);
        }
        let (from, to) = (self.next.unwrap_or(number), number / samples * samples);
        let frames = to.saturating_sub(from) / samples;
        self.count.left_out.add(frames * self.format.threads as u64);
        self.next = Some(from.max(to));
    }

    fn note_offset(&mut self, offset: f64) {
        let seconds = offset / self.format.grid.rate_hz as f64;
        self.count.offset.set(seconds);
        if offset.abs() > MAX_OFFSET {
            self.report.warn(format!(
                "the samples are {seconds:e} s ({offset:.3} samples) after the times in {}",
                self.parameters.path
            ));
        }
    }

    /// Appends the samples of `frame` from number `first` on.
    fn append(&mut self, frame: &Frame, first: usize) -> Result<(), BlockError> {
        let validity = &frame.header().validity;
        let by_row = self.format.threads > 1;
        let payload = frame.as_slice()?;
        let mut values = std::mem::take(&mut self.values);
        self.format.rows.read(payload, by_row, &mut values);
        self.level.apply(&self.format, by_row, validity, &mut values);
        for part in 0..self.format.rows.parts() {
            let range = self.format.rows.part(part);
            let mut from = range.start.max(first);
            while from < range.end {
                let left = self.frame_samples() as usize - self.filled;
                let count = left.min(range.end - from);
                self.pack(&values, validity, part, from, count);
                self.advance(count);
                from += count;
            }
        }
        self.values = values;
        Ok(())
    }

    /// Packs `count` samples from number `from` on, which are in `part`, into the frames at work.
    fn pack(&mut self, values: &[f32], validity: &[u32], part: usize, from: usize, count: usize) {
        let Format { rows, header, threads, .. } = &self.format;
        let channels = self.format.channels();
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
            pack(&values[start..][..count * width], header.bits, self.filled * width, payload);
        }
    }

    /// Advances over `count` samples, and completes the frames at work if they are full.
    fn advance(&mut self, count: usize) {
        self.filled += count;
        let Some(next) = &mut self.next else { return };
        *next += count as u64;
        if self.filled < self.format.header.samples() {
            return;
        }
        let (rate, samples) = (self.format.grid.rate_hz, self.format.header.samples() as u64);
        let first = *next - samples;
        let mut header = self.format.header;
        header.epoch = self.epoch;
        header.seconds = (first / rate).saturating_sub(epoch_seconds(self.epoch)) as u32;
        header.frame = (first % rate / samples) as u32;
        let frames = self.set.chunks_exact_mut(header.frame_bytes as usize);
        for (thread, (frame, invalid)) in frames.zip(&mut self.invalid).enumerate() {
            header.thread = self.parameters.first_thread + thread as u16;
            header.is_invalid = std::mem::take(invalid);
            header.write(frame);
            self.count.invalid.add(u64::from(header.is_invalid));
        }
        self.out.extend_from_slice(&self.set);
        self.set.fill(0);
        self.filled = 0;
    }

    /// Advances over `count` missing samples.
    fn skip(&mut self, mut count: u64) {
        while count > 0 {
            let step = (self.frame_samples() - self.filled as u64).min(count);
            self.invalid.fill(true);
            self.advance(step as usize);
            count -= step;
        }
    }

    /// Moves one step forward; `None` if there is nothing to do yet.
    fn step(&mut self, input: &mut Input) -> Result<Option<Next>, BlockError> {
        if let Some(frame) = self.held.take().or_else(|| input.pop()) {
            self.take(frame)?;
            return Ok(Some(Next::Again));
        }
        Ok(input.ended().then_some(Next::Finished))
    }

    /// Writes the complete frames. Frames that cannot be written are dropped: each of the others states its time.
    fn write(&mut self) -> Result<(), BlockError> {
        let frames = self.out.len() as u64 / u64::from(self.format.header.frame_bytes);
        let written = self.write_out();
        self.out.clear();
        let count = if written.is_ok() { &self.count.written } else { &self.count.dropped };
        count.add(frames);
        written
    }

    fn write_out(&mut self) -> Result<(), BlockError> {
        if self.file.is_none() {
            let VdifSink { path, overwrite, .. } = &self.parameters;
            self.file = Some(OutputFile::open(path, *overwrite, &mut self.report)?);
        }
        if let Some(file) = &mut self.file {
            file.append(&self.out)?;
        }
        Ok(())
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        // Nothing is written yet: if another block fails to start, an earlier recording must survive.
        try_path(&self.parameters.path, self.parameters.overwrite)
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Some(next) = self.step(&mut io.inputs[0])? else { return Ok(Next::Wait) };
        if next == Next::Finished {
            self.count.after_end.add(std::mem::take(&mut self.filled) as u64);
        }
        // A stream without frames is a file, too.
        if !self.out.is_empty() || next == Next::Finished {
            self.write()?;
        }
        Ok(next)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.file.take().map_or(Ok(()), |file| file.sync())
    }
}
