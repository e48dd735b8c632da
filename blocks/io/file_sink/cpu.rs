//! The block: writes frames to files.

use super::{FileSink, PLACEHOLDER};
use crate::io::output_file::taken;
use fxgraph::access::WrittenPath;
use fxgraph::recording::{RecordingWriter, SideFile, try_folder, try_path};
use fxgraph::runtime::{BlockEvents, EventKind};
use fxgraph::{Block, BlockError, Counter, Env, Frame, Header, Io, Next, PortType, Summary};

/// The running block.
pub struct Sink {
    parameters: FileSink,
    port: PortType,
    env: Env,
    recording: Option<RecordingWriter>,
    frames: u64,
    ended: bool,
    events: BlockEvents,
    summary: Summary,
    written: Counter,
    beyond: Counter,
}

impl Sink {
    /// Creates a sink for `port`.
    pub fn new(mut parameters: FileSink, port: &PortType, env: &Env) -> Self {
        parameters.path = parameters.path.begin_at(&env.output_folder);
        Self {
            parameters,
            port: port.clone(),
            env: env.clone(),
            recording: None,
            frames: 0,
            ended: false,
            events: env.events.clone(),
            summary: env.summary.clone(),
            written: env.counters.count("frames_written", "frames on disk"),
            beyond: env
                .counters
                .count("frames_beyond_limit", "frames after max_frames, consumed but not written"),
        }
    }

    fn path(&self, timestamp: u64) -> WrittenPath {
        let path = &self.parameters.path;
        path.with(path.replace(PLACEHOLDER, &timestamp.to_string()))
    }

    /// Opens the file whose first frame has the header `first`.
    fn open(&self, first: &Header) -> Result<RecordingWriter, BlockError> {
        let path = self.path(first.timestamp);
        let blank = SideFile::of(&self.port).made_by(&self.env.of_configuration(first.config_id));
        let overwrites = self.parameters.overwrite;
        let create = if overwrites { RecordingWriter::create } else { RecordingWriter::create_new };
        let recording = create(&path, &self.port, blank)?;
        if recording.path() != path.path() {
            let other = recording.path().display();
            let text = format!("{}; recording to {other}", taken(&path, overwrites));
            self.events.add(EventKind::Warning, &text);
            self.summary.set(text);
        }
        Ok(recording)
    }

    fn write(&mut self, frame: &Frame) -> Result<(), BlockError> {
        if self.parameters.max_frames.is_some_and(|most| self.frames >= most) {
            self.beyond.add(1);
            return Ok(());
        }
        let full = self
            .recording
            .as_ref()
            .zip(self.parameters.frames_per_file)
            .is_some_and(|(recording, most)| recording.frames() >= most);
        if full && let Some(recording) = self.recording.take() {
            recording.close(true)?;
        }
        if self.recording.is_none() {
            self.recording = Some(self.open(frame.header())?);
        }
        if let Some(recording) = &mut self.recording {
            recording.append(frame.header(), frame.as_slice()?)?;
        }
        self.frames += 1;
        self.written.add(1);
        Ok(())
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        // Reports a path that cannot be written before the flowgraph runs. Nothing is written yet: if
        // another block fails to start, an earlier recording must survive.
        let FileSink { path, overwrite, .. } = &self.parameters;
        if path.contains(PLACEHOLDER) { try_folder(path) } else { try_path(path, *overwrite) }
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if let Some(frame) = io.inputs[0].pop() {
            self.write(&frame)?;
            return Ok(Next::Again);
        }
        self.ended = io.inputs[0].ended();
        if self.ended && self.frames == 0 && !self.parameters.path.contains(PLACEHOLDER) {
            // A stream without frames is a recording too.
            self.recording = Some(self.open(&Header::default())?);
        }
        Ok(if self.ended { Next::Finished } else { Next::Wait })
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        match self.recording.take() {
            Some(recording) => recording.close(self.ended),
            None => Ok(()),
        }
    }
}
