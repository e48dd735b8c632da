//! The format: frames of recordings, arrays and plain files.

use super::player::{Recording, Rows};
use super::{FileSource, archive, plain};
use crate::io::files::output_file::Report;
use crate::io::playback::{Format, Step};
use crate::io::played_file::rest;
use fxgraph::{Counter, Env, FrameMut, PortType};
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

/// Frames of a file.
pub struct RecordedFrames {
    parameters: FileSource,
    port: PortType,
    open: Open,
    /// Levels of packed numbers, and a frame of them as they are in the file.
    packed: Option<(Codes, Vec<u8>)>,
    /// Number of the next frame, and number of all frames.
    next: u64,
    frames: u64,
    missing: Counter,
    after_end: Counter,
}

impl RecordedFrames {
    /// Creates the format for a stream of type `port`.
    pub fn new(parameters: &FileSource, port: &PortType, env: &Env) -> Self {
        let missing =
            "frames that were in the recording before it was truncated; copy the recording again";
        let packed = parameters.raw.as_ref().and_then(|raw| {
            let codes = raw.packed?.codes()?;
            Some((codes, vec![0; raw.frame_bytes(port)]))
        });
        Self {
            parameters: parameters.clone(),
            port: port.clone(),
            open: Open::Nothing,
            packed,
            next: 0,
            frames: 0,
            missing: env.counters.loss("frames_missing", missing),
            after_end: env
                .counters
                .count("bytes_after_end", "bytes of a raw file after its last whole frame"),
        }
    }

    /// Reports a file that lacks the `missing` frames after the last one, because the files in `cut` are too short, or that
    /// was not finished.
    fn warn(&self, missing: u64, cut: &[String], is_finished: bool, report: &mut Report) {
        let (path, frames) = (&self.parameters.path, self.frames);
        self.missing.add(missing);
        if missing > 0 {
            let (all, seconds) = (
                frames.saturating_add(missing),
                missing as f64 / self.port.clock.frames_per_second(),
            );
            let cut = if cut.is_empty() { path.to_string() } else { cut.join(", ") };
            report.warn(format!(
                "{path} is truncated: the last {missing} of {all} frames ({seconds:.6} s) are missing; too short: {cut}"
            ));
        } else if !is_finished {
            report.warn(format!(
                "{path} was not closed: frames after the {frames} in the file may be missing"
            ));
        }
    }

    /// Reads the next frame of a file that is not a recording.
    fn read(&mut self, frame: &mut FrameMut) -> Result<(), String> {
        let Open::Plain(rows) = &self.open else { return Ok(()) };
        let payload = frame.as_mut_slice().map_err(|error| error.to_string())?;
        match &mut self.packed {
            None => rows.read(self.next, payload)?,
            Some((codes, bytes)) => {
                rows.read(self.next, bytes)?;
                codes.unpack(bytes, bytemuck::cast_slice_mut(payload));
            }
        }
        frame.fill_validity(self.port.validity.full);
        Ok(())
    }
}

impl Format for RecordedFrames {
    fn open(&mut self, report: &mut Report) -> Result<(), String> {
        let path = &self.parameters.path;
        if let Some(raw) = &self.parameters.raw {
            let rows = plain::rows(path, raw, &self.port)?;
            self.frames = rows.count;
            self.warn(rows.missing, &[], true, report);
            self.after_end.add(rows.rest());
            let frame_bytes = raw.frame_bytes(&self.port) as u64;
            if rows.missing == 0
                && let Some(text) = rest(path, rows.bytes, rows.count, frame_bytes)
            {
                report.warn(text);
            }
            self.open = Open::Plain(rows);
        } else {
            let (side, _) = archive::side_file(path)?;
            let recording = Recording::open(path, &side, &self.port)?;
            self.frames = recording.frames;
            self.warn(recording.missing, &recording.cut, side.complete, report);
            self.open = Open::Recording(Box::new(recording));
        }
        Ok(())
    }

    fn find(&mut self, _: &mut Report) -> Result<Step, String> {
        if self.next == self.frames {
            return Ok(Step::End);
        }
        Ok(Step::Frame(match &self.open {
            Open::Recording(recording) => recording.timestamp(self.next)?,
            Open::Nothing | Open::Plain(_) => {
                let first = self.parameters.raw.as_ref().map_or(0, |raw| raw.first_timestamp);
                let step = self.port.clock.samples_per_frame;
                first.wrapping_add(self.next.wrapping_mul(step))
            }
        }))
    }

    fn fill(&mut self, frame: &mut FrameMut) -> Result<(), String> {
        match &mut self.open {
            Open::Recording(recording) => recording.read(self.next, frame)?,
            Open::Nothing | Open::Plain(_) => self.read(frame)?,
        }
        self.next += 1;
        Ok(())
    }
}
