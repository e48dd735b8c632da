//! Thread of a recorder, which writes frames from memory to files.

use super::RecordingWriter;
use super::options::{PLACEHOLDER, Trigger};
use super::recorder::{Recorded, Recorder};
use super::ring::{Ring, Step};
use fxgraph_core::BlockError;
use fxgraph_core::TimeBase;
use fxgraph_core::edge::TapFrame;
use fxgraph_core::error::with_causes;
use fxgraph_core::frame::Header;
use std::sync::PoisonError;

/// Number of finished recordings in the status of a recorder.
const REMEMBERED: usize = 256;

/// A recording in progress.
struct Open {
    writer: RecordingWriter,
    base: TimeBase,
    recorded: Recorded,
}

impl Recorder {
    /// Writes recordings until the recorder ends.
    pub(super) fn write(&self) {
        let mut open = None;
        while let Some((step, cause)) = self.wait() {
            let is_done = match step {
                Step::Write { frame, lost } => {
                    let is_full = self.append(&mut open, &frame, lost, cause);
                    self.state().ring.give_back(frame);
                    // Wakes a caller that waits for a buffer.
                    self.0.moved.notify_all();
                    is_full
                }
                Step::Close { lost } => {
                    open.iter_mut().for_each(|open| open.recorded.lost += lost);
                    Ok(true)
                }
                Step::Wait => Ok(true),
            };
            let closed = is_done.and_then(|is_done| {
                if is_done {
                    open.take().map_or(Ok(()), |open| self.close(open))?;
                }
                Ok(is_done)
            });
            match closed {
                // This trigger makes only one recording.
                Ok(true) if self.0.options.trigger == Trigger::Start => break,
                Ok(_) => {}
                Err(error) => {
                    self.fail(&with_causes(&error));
                    break;
                }
            }
        }
        // After a failure the written part is closed too; only the first cause is reported.
        let _ = open.map(|open| self.close(open));
        let mut state = self.state();
        state.is_over = true;
        // Frees the memory, although other handles of the recorder may exist.
        state.ring = Ring::new(0, 1, 0, 0);
        drop(state);
        self.0.moved.notify_all();
    }

    /// Waits for the next step, and returns it with the cause of its recording; `None` at the end.
    fn wait(&self) -> Option<(Step, String)> {
        let mut state = self.state();
        loop {
            let has_ended = state.has_ended;
            let cause = state.ring.cause().to_owned();
            match state.ring.step(has_ended) {
                Step::Wait if has_ended => return None,
                Step::Wait => {
                    state = self.0.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                step => return Some((step, cause)),
            }
        }
    }

    /// Writes a frame, before which `lost` frames were dropped; `true` if the recording is full.
    fn append(
        &self,
        open: &mut Option<Open>,
        frame: &TapFrame,
        lost: u64,
        cause: String,
    ) -> Result<bool, BlockError> {
        let timestamp = frame.header.timestamp;
        // A file states the time of one base.
        if let Some(before) = open.take_if(|open| !open.base.is(&frame.header.base)) {
            self.close(before)?;
        }
        if open.is_none() {
            *open = Some(self.open(&frame.header, cause)?);
        }
        let Some(Open { writer, recorded, .. }) = open else { return Ok(true) };
        let bytes = frame.payload.len() as u64;
        for budget in &self.0.budgets {
            budget.take(bytes, writer.is_archive()).inspect_err(|_| self.fill())?;
        }
        writer.append(&frame.header, &frame.payload)?;
        recorded.frames += 1;
        recorded.lost += lost;
        recorded.bytes += bytes;
        recorded.timestamps.1 = timestamp;
        self.0.written.add(1);
        let is_full = self.0.options.max_bytes.is_some_and(|most| recorded.bytes + bytes > most);
        if is_full {
            self.state().ring.close();
        }
        Ok(is_full)
    }

    fn open(&self, first: &Header, cause: String) -> Result<Open, BlockError> {
        let timestamp = first.timestamp;
        let path = &self.0.options.path;
        let path = path.with(path.replace(PLACEHOLDER, &timestamp.to_string()));
        let blank = self.0.blank.clone();
        let blank = match self.0.texts.get(first.config_id) {
            Some(text) => blank.of_flowgraph(&text),
            None => blank,
        };
        let mut port = self.0.port.clone();
        port.clock = port.clock.in_base(&first.base);
        let writer = RecordingWriter::create_new(&path, &port, blank.of_clock(&port.clock))?;
        let recorded = Recorded {
            path: writer.path().to_owned(),
            files: Vec::new(),
            frames: 0,
            bytes: 0,
            timestamps: (timestamp, timestamp),
            lost: 0,
            cause,
        };
        Ok(Open { writer, base: first.base, recorded })
    }

    fn close(&self, open: Open) -> Result<(), BlockError> {
        let Open { writer, mut recorded, .. } = open;
        recorded.files = writer.files();
        let is_archive = writer.is_archive();
        let closed = writer.close(true);
        for budget in self.0.budgets.iter().filter(|_| is_archive) {
            budget.settle(recorded.bytes);
        }
        closed?;
        let lost = match recorded.lost {
            0 => String::new(),
            lost => format!(", {lost} dropped because the disk is too slow"),
        };
        let (path, frames) = (recorded.path.display(), recorded.frames);
        self.say(&format!("{path}: {frames} frames{lost}; trigger: {}", recorded.cause));
        let mut state = self.state();
        if state.recordings.len() == REMEMBERED {
            state.recordings.remove(0);
        }
        state.recordings.push(recorded);
        Ok(())
    }
}
