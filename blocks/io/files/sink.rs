//! The block: finds the place of each frame in a file.

use super::output_file::{Report, try_to_write};
use super::{Count, FileParameters, Format, Journal, Opening, Times};
use fxgraph::{Block, BlockError, Clock, Env, Frame, Input, Io, Next};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes without data that one call of `work` writes at most, if they are several steps.
const MAX_FILL_BYTES: usize = 1 << 22;

/// The files that are being written.
pub struct Open<T> {
    /// Files of the format.
    pub file: T,
    /// Number of the next step: those before are in the file, left out, or could not be written.
    pub next: i128,
    /// Number of the first step, and its timestamp.
    first: i128,
    origin: u64,
    /// ADC samples of the steps after a whole number of steps since `origin`.
    phase: u64,
    /// Number of frames.
    frames: u64,
}

/// A sink of one input that writes files.
pub struct FileSink<F: Format> {
    format: F,
    files: FileParameters,
    clock: Clock,
    frames_per_file: Option<u64>,
    /// Longest gap that is filled, and longest way back of repeated data, in steps.
    max_gap: i128,
    max_back: i128,
    open: Option<Open<F::File>>,
    /// Frames that the format has looked at, and whether it needs no further ones to write them.
    seen: VecDeque<Arc<Frame>>,
    is_seen: bool,
    /// A frame at work, and its next step.
    held: Option<(Arc<Frame>, usize)>,
    /// Whether a step of the frame at work is in the file.
    has_written: bool,
    /// Number of frames in all files.
    frames: u64,
    has_ended: bool,
    journal: Journal,
}

impl<F: Format> FileSink<F> {
    /// Creates the block for a stream of `clock`.
    pub fn new(format: F, files: &FileParameters, clock: Clock, env: &Env) -> Self {
        let steps = format.steps();
        let steps_per_second = steps as f64 * clock.frames_per_second();
        // A gap that equals the limit is filled, also if its product is rounded down.
        let max_gap = (format.max_gap_seconds() * steps_per_second * (1.0 + 1e-12)) as i128;
        Self {
            format,
            files: files.of(env),
            clock,
            frames_per_file: files.frames_of(&clock),
            max_gap,
            max_back: max_gap.max(steps as i128),
            open: None,
            seen: VecDeque::new(),
            is_seen: false,
            held: None,
            has_written: false,
            frames: 0,
            has_ended: false,
            journal: Journal { report: Report::new(env), count: Count::new(env) },
        }
    }

    /// ADC samples of `steps` steps.
    fn samples(&self, steps: usize) -> u64 {
        let samples =
            u128::from(self.clock.samples_per_frame) * steps as u128 / self.format.steps() as u128;
        samples as u64
    }

    fn seconds(&self, steps: i128) -> f64 {
        steps as f64 / self.format.steps() as f64 / self.clock.frames_per_second()
    }

    /// Number of the step at `timestamp`, and its ADC samples after a whole number of steps since `origin`.
    fn number(&self, origin: u64, timestamp: u64) -> (i128, u64) {
        if let Some(number) = self.format.number(timestamp) {
            return (number, 0);
        }
        let step = i128::from(self.samples(1).max(1));
        let since = i128::from(timestamp) - i128::from(origin);
        (since.div_euclid(step), since.rem_euclid(step) as u64)
    }

    /// The next frame to write, once the format has looked at enough frames.
    fn next_frame(&mut self, input: &mut Input) -> Result<Option<Arc<Frame>>, BlockError> {
        while !self.is_seen {
            if let Some(frame) = input.pop() {
                self.is_seen = !self.format.looks_further(&frame)?;
                self.seen.push_back(frame);
            } else if input.ended() {
                self.is_seen = true;
            } else {
                return Ok(None);
            }
        }
        let frame = self.seen.pop_front();
        self.is_seen = !self.seen.is_empty();
        Ok(frame)
    }

    /// Handles the next steps of `frame` from `at` on. Returns the step to go on with.
    fn advance(&mut self, frame: &Frame, at: usize) -> (usize, Result<(), BlockError>) {
        let all = self.format.steps();
        let Some(mut steps) = self.format.data(frame, at) else { return (all, Ok(())) };
        if !self.format.is_possible(frame.header().timestamp) {
            self.journal.count.misplaced.add(1);
            return (all, Ok(()));
        }
        match self.place(frame, &mut steps) {
            Ok(Some(next)) => (next, Ok(())),
            Ok(None) => (steps.end, self.write(frame, steps)),
            Err(error) => {
                self.journal.count.dropped.add(steps.len() as u64);
                (steps.end, Err(error))
            }
        }
    }

    /// Prepares the file for `steps` of `frame`, or for the first ones of them: `None` if they are next. Otherwise the step
    /// to go on with.
    fn place(
        &mut self,
        frame: &Frame,
        steps: &mut Range<usize>,
    ) -> Result<Option<usize>, BlockError> {
        let Some(open) = &self.open else { return self.begin(frame, steps).map(Some) };
        let (number, phase) = if F::TIMES == Times::OfFrames {
            (open.next, open.phase)
        } else {
            let (number, phase) = self.number(open.origin, frame.header().timestamp);
            (number + steps.start as i128, phase)
        };
        let gap = number - open.next;
        if gap < 0 && -gap <= self.max_back {
            let repeated = steps.len().min(-gap as usize);
            self.journal.count.repeated.add(repeated as u64);
            return Ok(Some(steps.start + repeated));
        }
        // Steps to the end of the unit at work.
        let rest = (-open.next).rem_euclid(i128::from(self.format.unit()));
        let is_full = self.frames_per_file.is_some_and(|most| open.frames >= most);
        if is_full && rest == 0 {
            self.close(true)?;
            return self.begin(frame, steps).map(Some);
        }
        let is_later = gap > 0 || phase != open.phase;
        let is_on_grid = phase == open.phase && (gap <= self.max_gap || F::TIMES == Times::OfUnits);
        let why = if gap < 0 {
            Some(format!("the stream went back by {:.6} s", self.seconds(-gap)))
        } else if is_later && F::TIMES != Times::Stated && !is_on_grid {
            Some(format!("the stream continues after {:.6} s", self.seconds(gap)))
        } else if is_later {
            self.format.full(&open.file).map(str::to_owned)
        } else {
            None
        };
        if let Some(why) = why {
            self.journal.report.warn(format!("{why}; it begins a new file"));
            self.journal.count.left_out.add(gap.max(0) as u64);
            self.close(false)?;
            return self.begin(frame, steps).map(Some);
        }
        if is_later {
            self.pass(frame, steps.start, (number, phase), if is_full { rest } else { i128::MAX })?;
            return Ok(Some(steps.start));
        }
        if is_full {
            steps.end = steps.end.min(steps.start + rest as usize);
        }
        Ok(None)
    }

    /// Fills at most `most` steps of the gap before step `start` of `frame`, which has this number and phase; or leaves
    /// them out.
    fn pass(
        &mut self,
        frame: &Frame,
        start: usize,
        (number, phase): (i128, u64),
        most: i128,
    ) -> Result<(), BlockError> {
        let timestamp = frame.header().timestamp.saturating_add(self.samples(start));
        let Self { format, open: Some(open), journal, .. } = self else { return Ok(()) };
        let unit = i128::from(format.unit());
        let gap = number - open.next;
        let is_in_unit = open.next.div_euclid(unit) == number.div_euclid(unit);
        if F::TIMES != Times::Stated && (gap <= self.max_gap || is_in_unit) {
            let at_once = (MAX_FILL_BYTES / format.step_bytes().max(1)).max(1) as i128;
            return format.fill(open, gap.min(at_once).min(most) as u64, journal);
        }
        let rest = (-open.next).rem_euclid(unit);
        if rest > 0 {
            return format.fill(open, rest as u64, journal);
        }
        let begin = number.div_euclid(unit) * unit;
        journal.count.left_out.add((begin - open.next) as u64);
        (open.next, open.phase) = (begin, phase);
        format.resume(open, timestamp)
    }

    /// Begins a file with `steps` of `frame`.
    fn begin(&mut self, frame: &Frame, steps: &Range<usize>) -> Result<usize, BlockError> {
        let header = frame.header();
        let own = self.format.number(header.timestamp);
        let number = own.map_or(0, |number| number + steps.start as i128);
        let next = self.format.first(number, steps.len() as u64);
        let first = steps.start + (next - number) as usize;
        if first >= steps.end {
            return Ok(steps.end);
        }
        let origin = header.timestamp.saturating_add(self.samples(first));
        let (path, overwrites) = (self.files.path_at(origin), self.files.overwrite);
        let opening = Opening { path, overwrites, origin, frame: header };
        let file = self.format.create(&opening, &mut self.journal)?;
        self.journal.count.files.add(1);
        self.open = Some(Open { file, next, first: next, origin, phase: 0, frames: 0 });
        Ok(first)
    }

    fn write(&mut self, frame: &Frame, steps: Range<usize>) -> Result<(), BlockError> {
        let Self { format, open: Some(open), journal, .. } = self else { return Ok(()) };
        let (before, all) = (open.next, steps.len() as i128);
        let written = format.write(open, frame, steps, journal);
        let taken = open.next - before;
        self.has_written |= taken > 0;
        // Steps that cannot be written are missing: the next ones are after a gap.
        journal.count.dropped.add((all - taken) as u64);
        written
    }

    fn end_frame(&mut self) {
        self.format.end_frame();
        if std::mem::take(&mut self.has_written) {
            self.frames += 1;
            self.open.iter_mut().for_each(|open| open.frames += 1);
        }
    }

    fn close(&mut self, is_complete: bool) -> Result<(), BlockError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let name = self.format.name(&open.file);
        let (seconds, begin) =
            (self.seconds(open.next - open.first), self.clock.signal_time(open.origin));
        self.format.close(open, is_complete, &mut self.journal)?;
        // Frames that state their times need not follow each other.
        if let Some(begin) = begin.filter(|_| F::TIMES != Times::OfFrames) {
            self.journal.report.note(format!("{name}: {seconds:.6} s from {begin}"));
        }
        Ok(())
    }
}

impl<F: Format> Block for FileSink<F> {
    fn start(&mut self) -> Result<(), BlockError> {
        // Reports a path that cannot be written before the flowgraph runs. Nothing is written yet: if another block
        // fails to start, an earlier file must survive.
        let paths = self.format.paths(&self.files.path);
        paths.iter().try_for_each(|path| try_to_write(path, self.files.overwrite))
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let input = &mut io.inputs[0];
        let next = match self.held.take() {
            None => self.next_frame(input)?.map(|frame| (frame, 0)),
            held => held,
        };
        let Some((frame, at)) = next else {
            self.has_ended = input.ended();
            return Ok(if self.has_ended { Next::Finished } else { Next::Wait });
        };
        if self.files.max_frames.is_some_and(|most| self.frames >= most) {
            self.journal.count.beyond.add(1);
            return Ok(Next::Again);
        }
        let (next, result) = self.advance(&frame, at);
        if next < self.format.steps() {
            self.held = Some((frame, next));
        } else {
            self.end_frame();
        }
        result.map(|()| Next::Again)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        if self.open.is_none() && self.journal.count.files.get() == 0 {
            self.journal.report.note("no file written: no data arrived".to_owned());
        }
        self.close(self.has_ended)
    }
}
