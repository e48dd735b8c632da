//! Which frame goes to which file.

use super::recorder::Recorder;
use super::{FileSink, PLACEHOLDER};
use crate::recording::side_file::SideFile;
use fxgraph::{Block, BlockError, Counter, Env, Frame, Io, Next, PortType, async_trait};
use std::path::PathBuf;

/// The running block.
pub struct Sink {
    parameters: FileSink,
    port: PortType,
    /// Description that every file starts with.
    blank: SideFile,
    recorder: Option<Recorder>,
    frames: u64,
    ended: bool,
    written: Counter,
    beyond: Counter,
}

impl Sink {
    /// A sink for `port`.
    pub fn new(parameters: FileSink, port: &PortType, env: &Env) -> Self {
        let blank = SideFile {
            block: env.name.clone(),
            config_hash: env.config_hash.clone(),
            flowgraph: env.resolved_yaml.to_string(),
            ..SideFile::of(port)
        };
        Self {
            parameters,
            port: port.clone(),
            blank,
            recorder: None,
            frames: 0,
            ended: false,
            written: env.counters.count("frames_written", "Frames on disk."),
            beyond: env
                .counters
                .count("frames_beyond_limit", "Frames after max_frames: taken, not written."),
        }
    }

    fn open(&self, timestamp: Option<u64>) -> Result<Recorder, BlockError> {
        let path = match timestamp {
            Some(timestamp) => self.parameters.path.replace(PLACEHOLDER, &timestamp.to_string()),
            None => self.parameters.path.clone(),
        };
        Recorder::create(PathBuf::from(path), &self.port, self.blank.clone())
    }

    fn write(&mut self, frame: &Frame) -> Result<(), BlockError> {
        if self.parameters.max_frames.is_some_and(|most| self.frames >= most) {
            self.beyond.add(1);
            return Ok(());
        }
        let full = self
            .recorder
            .as_ref()
            .zip(self.parameters.frames_per_file)
            .is_some_and(|(recorder, most)| recorder.frames() >= most);
        if full && let Some(recorder) = self.recorder.take() {
            recorder.close(true)?;
        }
        if self.recorder.is_none() {
            self.recorder = Some(self.open(Some(frame.header().timestamp))?);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.append(frame)?;
        }
        self.frames += 1;
        self.written.add(1);
        Ok(())
    }
}

#[async_trait]
impl Block for Sink {
    async fn start(&mut self) -> Result<(), BlockError> {
        // Opened now, so that a path that cannot be written shows before anything runs.
        if !self.parameters.path.contains(PLACEHOLDER) {
            self.recorder = Some(self.open(None)?);
        }
        Ok(())
    }

    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if let Some(frame) = io.inputs[0].pop() {
            self.write(&frame)?;
            return Ok(Next::Again);
        }
        self.ended = io.inputs[0].ended();
        Ok(if self.ended { Next::Finished } else { Next::Wait })
    }

    async fn finish(&mut self) -> Result<(), BlockError> {
        match self.recorder.take() {
            Some(recorder) => recorder.close(self.ended),
            None => Ok(()),
        }
    }
}
