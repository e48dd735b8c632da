//! The format: samples after one header.

use super::{DadaSource, Shape};
use crate::io::files::output_file::Report;
use crate::io::playback::{Format, Step};
use crate::io::played_file::{PlayedFile, rest};
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::{Counter, Env, FrameMut};

/// Samples of a file.
pub struct Samples {
    parameters: DadaSource,
    shape: Shape,
    file: Option<PlayedFile>,
    /// Frames in the file, and number of the next one.
    frames: u64,
    next: u64,
    missing: Counter,
    after_end: Counter,
}

impl Samples {
    /// Creates the format for the block of `env`.
    pub fn new(parameters: &DadaSource, shape: &Shape, env: &Env) -> Self {
        let counters = &env.counters;
        Self {
            parameters: parameters.clone(),
            shape: shape.clone(),
            file: None,
            frames: 0,
            next: 0,
            missing: counters.loss(
                "bytes_missing",
                "bytes that FILE_SIZE promises and the file lacks; copy the file again",
            ),
            after_end: counters
                .count("bytes_after_end", "bytes at the end that are less than a frame"),
        }
    }
}

impl Format for Samples {
    fn open(&mut self, report: &mut Report) -> Result<(), String> {
        let (file, header) = self.parameters.open()?;
        let path = &self.parameters.path;
        let there = file.length()?.saturating_sub(header.header_bytes as u64);
        // FILE_SIZE is 0 if the writer did not know it. Files of other writers may be longer than FILE_SIZE.
        if header.file_bytes > there {
            let missing = header.file_bytes - there;
            self.missing.add(missing);
            report.warn(format!(
                "{path} is truncated: {missing} of {} bytes are missing",
                header.file_bytes
            ));
        }
        let frame_bytes = header.sample_bytes() * self.shape.samples;
        self.after_end.add(there % frame_bytes);
        self.frames = there / frame_bytes;
        if self.frames == 0
            && let Some(text) = rest(path, there, 0, frame_bytes)
        {
            report.warn(text);
        }
        self.file = Some(file);
        Ok(())
    }

    fn find(&mut self, _: &mut Report) -> Result<Step, String> {
        if self.next == self.frames {
            return Ok(Step::End);
        }
        let Shape { header, samples, step } = &self.shape;
        let first = header.offset_bytes / header.sample_bytes() + self.next * samples;
        let timestamp = first.saturating_mul(*step);
        if timestamp >= MAX_TIMESTAMP {
            let (path, offset) = (&self.parameters.path, header.offset_bytes);
            return Err(format!("cannot use {path}: OBS_OFFSET of {offset} is out of range"));
        }
        Ok(Step::Frame(timestamp))
    }

    fn fill(&mut self, frame: &mut FrameMut) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let header = &self.shape.header;
        let first = self.next * self.shape.samples;
        let at = header.header_bytes as u64 + first * header.sample_bytes();
        file.read(at, frame.as_mut_slice().map_err(|error| error.to_string())?)?;
        frame.fill_validity(1);
        self.next += 1;
        Ok(())
    }
}
