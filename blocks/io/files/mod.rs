//! Files that sinks write: one policy of names, gaps, repeated data, full disks and ends of files for all formats.
//!
//! The policy is stated on the page "Files of sinks" of the manual. [`FileSink`] is the block of all kinds that write
//! files of one input; a [`Format`] is what differs: header, place of a step, fill, end.
//!
//! A step is the shortest time that a file tells apart: a sample of all channels, a spectrum, a heap, or a frame. The
//! steps of a file are numbered in the order of their times.
//!
//! # Layout
//! - [`parameters`]: parameters that all kinds share
//! - [`sink`]: the block
//! - [`output_file`]: a file that grows, names that are taken, and lines of the summary

pub mod output_file;
pub mod parameters;
pub mod sink;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub mod tests;

pub use parameters::FileParameters;
pub use sink::{FileSink, Open};

use fxgraph::access::WrittenPath;
use fxgraph::{BlockError, Counter, Env, Frame, Header};
use output_file::Report;
use std::ops::Range;

/// Times that a format expresses, which decide what follows a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Each frame states its time: frames are written as they come.
    OfFrames,
    /// The file states the time after each gap: none is filled.
    Stated,
    /// Units of several steps state their times, on one grid: a short gap is filled, a longer one is left out.
    OfUnits,
    /// Steps follow each other at one interval: a short gap is filled, a longer one begins a file.
    OfFile,
}

/// A file to create.
pub struct Opening<'a> {
    /// Its path; another one if that is taken.
    pub path: WrittenPath,
    /// Whether a file of another process is overwritten.
    pub overwrites: bool,
    /// Timestamp of the first step.
    pub origin: u64,
    /// Header of the frame of this step.
    pub frame: &'a Header,
}

/// Counters and lines of the summary.
pub struct Journal {
    /// Lines of the summary, and warnings.
    pub report: Report,
    /// Counters.
    pub count: Count,
}

/// Counters of all sinks of files.
pub struct Count {
    /// Steps in files.
    pub written: Counter,
    /// Steps in files that lack data.
    pub missing: Counter,
    /// Steps that could not be written.
    pub dropped: Counter,
    repeated: Counter,
    left_out: Counter,
    misplaced: Counter,
    /// Frames after the last one.
    pub beyond: Counter,
    /// Files.
    pub files: Counter,
}

impl Count {
    /// Registers the counters of the block of `env`.
    pub fn new(env: &Env) -> Self {
        let counters = &env.counters;
        Self {
            files: counters.count("files_written", "files begun"),
            written: counters.count("steps_written", "steps in the files; a step is a sample, spectrum, heap or frame"),
            missing: counters.count(
                "steps_missing",
                "steps in the files of which data is missing: filled or flagged; look for missing data upstream",
            ),
            left_out: counters.count(
                "steps_left_out",
                "steps of gaps that are in no file; look for missing data upstream",
            ),
            repeated: counters.loss(
                "steps_repeated",
                "steps at times that the file has already, dropped; look for a source that repeats data",
            ),
            dropped: counters.loss(
                "steps_dropped",
                "steps dropped because a file could not be written; see the fault for the cause",
            ),
            misplaced: counters.loss(
                "frames_misplaced",
                "frames dropped because the format cannot express their time; check the sync time",
            ),
            beyond: counters.count("frames_beyond_limit", "frames after `max_frames`, not written"),
        }
    }
}

/// A format of files.
pub trait Format: Send + 'static {
    /// The files that are written at the same time.
    type File: Send;
    /// Times that the format expresses.
    const TIMES: Times;

    /// Paths to try before the start, for the parameter `path`.
    fn paths(&self, path: &WrittenPath) -> Vec<WrittenPath> {
        vec![path.clone()]
    }

    /// Steps of a frame.
    fn steps(&self) -> usize {
        1
    }

    /// Steps of a unit: those in between are written when a unit is complete. Units begin at multiples of it.
    fn unit(&self) -> u64 {
        1
    }

    /// Bytes of a step in memory or in the file, which limit the fill of one call of `work`.
    fn step_bytes(&self) -> usize {
        1
    }

    /// Longest gap that is filled in seconds; a step further back than this is no repetition.
    fn max_gap_seconds(&self) -> f64 {
        parameters::MAX_GAP_SECONDS
    }

    /// Looks at a frame before it is written. Returns whether the format looks at the next one too before this one is
    /// written, such as to measure a level; the block declares these frames in its resources.
    fn looks_further(&mut self, _frame: &Frame) -> Result<bool, BlockError> {
        Ok(false)
    }

    /// The next steps with data of `frame` from step `from` on.
    fn data(&self, frame: &Frame, from: usize) -> Option<Range<usize>> {
        let has_data =
            from < self.steps() && frame.header().validity.iter().any(|count| *count > 0);
        has_data.then(|| from..self.steps())
    }

    /// Whether the format expresses the time of `timestamp`.
    fn is_possible(&self, _timestamp: u64) -> bool {
        true
    }

    /// Number of the step at `timestamp` in a numbering of the format's own. By default steps are counted from the
    /// first one of a file.
    fn number(&self, _timestamp: u64) -> Option<i128> {
        None
    }

    /// Number of the first step of a file, if there are `steps` steps from `number` on.
    fn first(&mut self, number: i128, _steps: u64) -> i128 {
        number
    }

    /// Reason why another gap belongs in the next file.
    fn full(&self, _file: &Self::File) -> Option<&'static str> {
        None
    }

    /// Creates a file.
    fn create(
        &mut self,
        opening: &Opening<'_>,
        journal: &mut Journal,
    ) -> Result<Self::File, BlockError>;

    /// Writes `steps` of `frame`, and advances `open.next` over those that are in the file, or whose unit could not be
    /// written.
    fn write(
        &mut self,
        open: &mut Open<Self::File>,
        frame: &Frame,
        steps: Range<usize>,
        journal: &mut Journal,
    ) -> Result<(), BlockError>;

    /// Writes `steps` steps without data, and advances `open.next` in the same way.
    fn fill(
        &mut self,
        _open: &mut Open<Self::File>,
        _steps: u64,
        _journal: &mut Journal,
    ) -> Result<(), BlockError> {
        Ok(())
    }

    /// Continues after a gap that is left out, at step `open.next` with this timestamp.
    fn resume(&mut self, _open: &mut Open<Self::File>, _timestamp: u64) -> Result<(), BlockError> {
        Ok(())
    }

    /// Ends a frame, all of whose steps are handled.
    fn end_frame(&mut self) {}

    /// Path of the file, for the summary.
    fn name(&self, file: &Self::File) -> String;

    /// Ends the file, and waits until it is on the disk. It is complete unless the stream was interrupted.
    fn close(
        &mut self,
        open: Open<Self::File>,
        is_complete: bool,
        journal: &mut Journal,
    ) -> Result<(), BlockError>;
}
