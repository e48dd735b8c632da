//! The format: a recording of samples and their description.

use super::recording::{Recording, global};
use super::shape::Shape;
use super::{DATA, SigmfSink};
use crate::io::files::output_file::taken;
use crate::io::files::{Format, Journal, Open, Opening, Times};
use fxgraph::access::WrittenPath;
use fxgraph::{BlockError, Env, Frame};
use std::ops::Range;

/// SigMF recordings of a stream.
pub struct Sigmf {
    parameters: SigmfSink,
    shape: Shape,
    env: Env,
    bytes: Vec<u8>,
}

impl Sigmf {
    /// Creates the format of the block of `env`.
    pub fn new(parameters: SigmfSink, shape: Shape, env: &Env) -> Self {
        Self { parameters, shape, env: env.clone(), bytes: Vec::new() }
    }
}

impl Format for Sigmf {
    type File = Recording;
    const TIMES: Times = Times::Stated;

    fn paths(&self, path: &WrittenPath) -> Vec<WrittenPath> {
        vec![path.clone(), path.with(path.path().with_extension(DATA).display().to_string())]
    }

    fn steps(&self) -> usize {
        self.shape.samples
    }

    fn full(&self, recording: &Recording) -> Option<&'static str> {
        recording.is_full().then_some("the recording has as many gaps as its description holds")
    }

    fn create(
        &mut self,
        opening: &Opening<'_>,
        journal: &mut Journal,
    ) -> Result<Recording, BlockError> {
        let Opening { path, overwrites, origin, frame } = opening;
        let env = self.env.of_configuration(frame.config_id);
        let global = global(&self.parameters, &self.shape, &env);
        let mut recording = Recording::create(path, *overwrites, global)?;
        if let Err(error) = recording.begin_capture(&self.shape, *origin) {
            recording.remove();
            return Err(error);
        }
        if recording.path() != path.path() {
            let other = recording.path().display();
            journal.report.warn(format!("{}; writing to {other}", taken(path, *overwrites)));
        }
        Ok(recording)
    }

    fn write(
        &mut self,
        open: &mut Open<Recording>,
        frame: &Frame,
        steps: Range<usize>,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        let Self { shape, bytes, .. } = self;
        let validity = &frame.header().validity;
        let payload = frame.as_slice::<u8>()?;
        let is_plain = shape.channels.len() == 1 && validity.iter().all(|count| *count > 0);
        let bytes = if is_plain {
            payload
        } else {
            shape.interleave(payload, validity, bytes);
            &bytes[..]
        };
        let step_bytes = bytes.len() / shape.samples;
        let bytes = &bytes[steps.start * step_bytes..steps.end * step_bytes];
        let count = steps.len();
        let missing = open.file.append(shape, validity, steps, bytes)?;
        open.next += count as i128;
        journal.count.missing.add(missing);
        journal.count.written.add(count as u64);
        open.file.commit_if_due()
    }

    fn resume(&mut self, open: &mut Open<Recording>, timestamp: u64) -> Result<(), BlockError> {
        open.file.begin_capture(&self.shape, timestamp)
    }

    fn name(&self, recording: &Recording) -> String {
        recording.path().display().to_string()
    }

    fn close(
        &mut self,
        open: Open<Recording>,
        is_complete: bool,
        _: &mut Journal,
    ) -> Result<(), BlockError> {
        open.file.close(is_complete)
    }
}
