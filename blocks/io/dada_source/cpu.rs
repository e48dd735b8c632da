//! The block: reads samples from a file.

use super::{DadaSource, Shape};
use crate::io::files::output_file::Report;
use crate::io::playback::Playback;
use crate::io::played_file::rest;
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::files::reason;
use fxgraph::{Block, BlockError, Clock, Counter, Env, Io, Next};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The running block.
pub struct Source {
    parameters: DadaSource,
    shape: Shape,
    file: Option<File>,
    /// Frames in the file, and frames played.
    frames: u64,
    played: u64,
    playback: Playback,
    report: Report,
    read: Counter,
    missing: Counter,
    after_end: Counter,
}

impl Source {
    /// Creates the block.
    pub fn new(parameters: DadaSource, shape: &Shape, clock: Clock, env: &Env) -> Self {
        let counters = &env.counters;
        Self {
            playback: Playback::new(parameters.pace, parameters.catch_up, clock, env),
            parameters,
            shape: shape.clone(),
            file: None,
            frames: 0,
            played: 0,
            report: Report::new(env),
            read: counters.count("frames_read", "frames played"),
            missing: counters.loss(
                "bytes_missing",
                "bytes that FILE_SIZE promises and the file lacks; copy the file again",
            ),
            after_end: counters
                .count("bytes_after_end", "bytes at the end that are less than a frame"),
        }
    }
}

impl Block for Source {
    fn start(&mut self) -> Result<(), BlockError> {
        let (file, header) = self.parameters.open().map_err(BlockError::new)?;
        let path = &self.parameters.path;
        let length = file
            .metadata()
            .map_err(|error| BlockError::new(format!("cannot read {path}: {}", reason(&error))))?;
        let there = length.len().saturating_sub(header.header_bytes as u64);
        // FILE_SIZE is 0 if the writer did not know it. Files of other writers may be longer than FILE_SIZE.
        if header.file_bytes > there {
            let missing = header.file_bytes - there;
            self.missing.add(missing);
            self.report.warn(format!(
                "{path} is truncated: {missing} of {} bytes are missing",
                header.file_bytes
            ));
        }
        let frame_bytes = header.sample_bytes() * self.shape.samples;
        self.after_end.add(there % frame_bytes);
        let frames = there / frame_bytes;
        if frames == 0
            && let Some(text) = rest(path, there, frames, frame_bytes)
        {
            self.report.warn(text);
        }
        self.frames = self.parameters.frames.map_or(frames, |most| most.min(frames));
        self.file = Some(file);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.played == self.frames {
            return Ok(Next::Finished);
        }
        let Some(file) = &self.file else { return Ok(Next::Finished) };
        let header = &self.shape.header;
        let sample_bytes = header.sample_bytes();
        let first = header.offset_bytes / sample_bytes + self.played * self.shape.samples;
        let timestamp = first.saturating_mul(self.shape.step);
        if timestamp >= MAX_TIMESTAMP {
            let (path, offset) = (&self.parameters.path, header.offset_bytes);
            let message = format!("cannot use {path}: OBS_OFFSET of {offset} is out of range");
            return Err(BlockError::new(message));
        }
        let wait = self.playback.early(timestamp);
        if !wait.is_zero() {
            return Ok(Next::After(wait));
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        let at = header.header_bytes as u64 + self.played * self.shape.samples * sample_bytes;
        file.read_exact_at(frame.as_mut_slice()?, at).map_err(|error| {
            let path = &self.parameters.path;
            BlockError::new(format!("cannot read {path}: {}", reason(&error)))
        })?;
        frame.header_mut().timestamp = timestamp;
        frame.fill_validity(1);
        io.outputs[0].push(frame);
        self.playback.sent();
        self.read.add(1);
        self.played += 1;
        Ok(Next::Again)
    }
}
