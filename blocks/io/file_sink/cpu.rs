//! The format: frames as they come, in NumPy arrays.

use crate::io::files::output_file::taken;
use crate::io::files::{Format, Journal, Open, Opening, Times};
use fxgraph::recording::{RecordingWriter, SideFile};
use fxgraph::{BlockError, Env, Frame, PortType};
use std::ops::Range;

/// NumPy files of a stream.
pub struct Arrays {
    port: PortType,
    env: Env,
}

impl Arrays {
    /// Creates the format for a stream of type `port`.
    pub fn new(port: &PortType, env: &Env) -> Self {
        Self { port: port.clone(), env: env.clone() }
    }
}

impl Format for Arrays {
    type File = RecordingWriter;
    const TIMES: Times = Times::OfFrames;

    /// A frame without valid data is a frame, too.
    fn data(&self, _: &Frame, from: usize) -> Option<Range<usize>> {
        (from == 0).then_some(0..1)
    }

    fn create(
        &mut self,
        opening: &Opening<'_>,
        journal: &mut Journal,
    ) -> Result<RecordingWriter, BlockError> {
        let Opening { path, overwrites, frame, .. } = opening;
        let side = SideFile::of(&self.port).made_by(&self.env.of_configuration(frame.config_id));
        let create =
            if *overwrites { RecordingWriter::create } else { RecordingWriter::create_new };
        let recording = create(path, &self.port, side)?;
        if recording.path() != path.path() {
            let other = recording.path().display();
            journal.report.warn(format!("{}; writing to {other}", taken(path, *overwrites)));
        }
        Ok(recording)
    }

    fn write(
        &mut self,
        open: &mut Open<RecordingWriter>,
        frame: &Frame,
        _: Range<usize>,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        open.file.append(frame.header(), frame.as_slice()?)?;
        open.next += 1;
        journal.count.written.add(1);
        Ok(())
    }

    fn name(&self, recording: &RecordingWriter) -> String {
        recording.path().display().to_string()
    }

    fn close(
        &mut self,
        open: Open<RecordingWriter>,
        is_complete: bool,
        _: &mut Journal,
    ) -> Result<(), BlockError> {
        open.file.close(is_complete)
    }
}
