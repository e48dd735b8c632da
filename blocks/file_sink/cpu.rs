//! Which frame goes to which file.

use super::recorder::{Recorder, try_folder, try_path};
use super::{FileSink, PLACEHOLDER};
use crate::recording::side_file::SideFile;
use fxgraph::{Block, BlockError, Counter, Env, Frame, Io, Next, PortType, async_trait};
use std::path::{Path, PathBuf};

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
    pub fn new(mut parameters: FileSink, port: &PortType, env: &Env) -> Self {
        parameters.path = env.output_folder.join(&parameters.path).display().to_string();
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

    fn path(&self, timestamp: u64) -> PathBuf {
        self.parameters.path.replace(PLACEHOLDER, &timestamp.to_string()).into()
    }

    fn open(&self, timestamp: u64) -> Result<Recorder, BlockError> {
        Recorder::create(self.path(timestamp), &self.port, self.blank.clone())
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
            self.recorder = Some(self.open(frame.header().timestamp)?);
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
        // A path that cannot be written shows before anything runs; nothing is written yet, as
        // another block may fail to start, and an earlier recording shall survive that.
        match self.parameters.path.split_once(PLACEHOLDER) {
            // Folders named by timestamps come later.
            Some((before, _)) => try_folder(&Path::new(before).with_file_name("x")),
            None => try_path(Path::new(&self.parameters.path)),
        }
    }

    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if let Some(frame) = io.inputs[0].pop() {
            self.write(&frame)?;
            return Ok(Next::Again);
        }
        self.ended = io.inputs[0].ended();
        if self.ended && self.frames == 0 && !self.parameters.path.contains(PLACEHOLDER) {
            // A stream without frames is a recording too.
            self.recorder = Some(self.open(0)?);
        }
        Ok(if self.ended { Next::Finished } else { Next::Wait })
    }

    async fn finish(&mut self) -> Result<(), BlockError> {
        match self.recorder.take() {
            Some(recorder) => recorder.close(self.ended),
            None => Ok(()),
        }
    }
}
