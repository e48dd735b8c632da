//! The block: reads frames from a file.

use super::player::{Recording, Rows};
use super::{FileSource, archive, plain};
use crate::io::playback::Playback;
use crate::io::played_file::rest;
use fxgraph::runtime::{BlockEvents, EventKind};
use fxgraph::{Block, BlockError, Counter, Env, FrameMut, Io, Next, PortType, Summary};
use fxgraph_formats::codes::Codes;

/// The open file.
enum Open {
    /// Before the start.
    Nothing,
    /// Plain data.
    Plain(Rows),
    /// A recording.
    Recording(Box<Recording>),
}

/// The running block.
pub struct Source {
    parameters: FileSource,
    port: PortType,
    open: Open,
    /// Levels of packed numbers, and a frame of them as they are in the file.
    packed: Option<(Codes, Vec<u8>)>,
    frame: u64,
    frames: u64,
    playback: Playback,
    read: Counter,
    missing: Counter,
    after_end: Counter,
    events: BlockEvents,
    summary: Summary,
}

impl Source {
    /// Creates a source for `port`.
    pub fn new(parameters: FileSource, port: &PortType, env: &Env) -> Self {
        let missing =
            "frames that were in the recording before it was truncated; copy the recording again";
        let playback = Playback::new(parameters.pace, parameters.catch_up, port.clock, env);
        let packed = parameters.raw.as_ref().and_then(|raw| {
            let codes = raw.packed?.codes()?;
            Some((codes, vec![0; raw.frame_bytes(port)]))
        });
        Self {
            parameters,
            port: port.clone(),
            open: Open::Nothing,
            packed,
            frame: 0,
            frames: 0,
            playback,
            read: env.counters.count("frames_read", "frames played"),
            missing: env.counters.loss("frames_missing", missing),
            after_end: env
                .counters
                .count("bytes_after_end", "bytes of a raw file after its last whole frame"),
            events: env.events.clone(),
            summary: env.summary.clone(),
        }
    }

    /// Reports a file that lacks the `missing` frames after the first `frames`, because the files in
    /// `cut` are too short, or that was not finished.
    fn warn(&self, frames: u64, missing: u64, cut: &[String], is_finished: bool) {
        let path = &self.parameters.path;
        let text = if missing > 0 {
            let (all, seconds) = (
                frames.saturating_add(missing),
                missing as f64 / self.port.clock.frames_per_second(),
            );
            let cut = if cut.is_empty() { path.to_string() } else { cut.join(", ") };
            format!(
                "{path} is truncated: the last {missing} of {all} frames ({seconds:.6} s) are missing; too short: {cut}"
            )
        } else if !is_finished {
            format!("{path} was not closed: frames after the {frames} in the file may be missing")
        } else {
            return;
        };
        self.missing.add(missing);
        self.report(&text);
    }

    fn report(&self, text: &str) {
        self.events.add(EventKind::Warning, text);
        self.summary.set(text.to_owned());
    }

    /// Returns the timestamp of the next frame.
    fn timestamp(&self) -> Result<u64, String> {
        if let Open::Recording(recording) = &self.open {
            return recording.timestamp(self.frame);
        }
        let first = self.parameters.raw.as_ref().map_or(0, |raw| raw.first_timestamp);
        let step = self.port.clock.samples_per_frame;
        Ok(first.wrapping_add(self.frame.wrapping_mul(step)))
    }

    fn fill(&mut self, frame: &mut FrameMut) -> Result<(), String> {
        let timestamp = self.timestamp()?;
        match &mut self.open {
            Open::Nothing => Ok(()),
            Open::Plain(rows) => {
                let payload = frame.as_mut_slice().map_err(|error| error.to_string())?;
                match &mut self.packed {
                    None => rows.read(self.frame, payload)?,
                    Some((codes, bytes)) => {
                        rows.read(self.frame, bytes)?;
                        codes.unpack(bytes, bytemuck::cast_slice_mut(payload));
                    }
                }
                frame.header_mut().timestamp = timestamp;
                frame.fill_validity(self.port.validity.full);
                Ok(())
            }
            Open::Recording(recording) => recording.read(self.frame, frame),
        }
    }
}

impl Block for Source {
    fn start(&mut self) -> Result<(), BlockError> {
        let path = &self.parameters.path;
        let there = if let Some(raw) = &self.parameters.raw {
            let rows = plain::rows(path, raw, &self.port).map_err(BlockError::new)?;
            let frames = rows.count;
            self.warn(frames, rows.missing, &[], true);
            self.after_end.add(rows.rest());
            let frame_bytes = raw.frame_bytes(&self.port) as u64;
            if rows.missing == 0
                && let Some(text) = rest(path, rows.bytes, frames, frame_bytes)
            {
                self.report(&text);
            }
            self.open = Open::Plain(rows);
            frames
        } else {
            let (side, _) = archive::side_file(path).map_err(BlockError::new)?;
            let recording = Recording::open(path, &side, &self.port).map_err(BlockError::new)?;
            let frames = recording.frames;
            self.warn(frames, recording.missing, &recording.cut, side.complete);
            self.open = Open::Recording(Box::new(recording));
            frames
        };
        self.frames = self.parameters.frames.map_or(there, |most| most.min(there));
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.frame == self.frames {
            return Ok(Next::Finished);
        }
        let timestamp = self.timestamp().map_err(BlockError::new)?;
        let early = self.playback.early(timestamp);
        if !early.is_zero() {
            return Ok(Next::After(early));
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.fill(&mut frame).map_err(BlockError::new)?;
        io.outputs[0].push(frame);
        self.playback.sent();
        self.frame += 1;
        self.read.add(1);
        Ok(Next::Again)
    }
}
