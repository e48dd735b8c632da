//! The block: writes samples to a recording.

use super::recording::{Recording, global};
use super::shape::Shape;
use super::{DATA, SigmfSink};
use crate::io::output_file::{Report, taken, try_to_write};
use fxgraph::access::WrittenPath;
use fxgraph::recording::PLACEHOLDER;
use fxgraph::{Block, BlockError, Counter, Env, Frame, Header, Io, Next};

/// Step back in time, in seconds, that begins a new recording; smaller ones are repeated data.
const RESTART_SECONDS: f64 = 10.0;

/// The running block.
pub struct Sink {
    parameters: SigmfSink,
    shape: Shape,
    env: Env,
    recording: Option<Recording>,
    /// Timestamp in the path of the recording before.
    before: Option<u64>,
    bytes: Vec<u8>,
    ended: bool,
    report: Report,
    written: Counter,
    missing: Counter,
    repeated: Counter,
    dropped: Counter,
}

impl Sink {
    /// Creates the sink.
    pub fn new(mut parameters: SigmfSink, shape: Shape, env: &Env) -> Self {
        parameters.path = parameters.path.begin_at(&env.output_folder);
        let counters = &env.counters;
        Self {
            env: env.clone(),
            parameters,
            shape,
            recording: None,
            before: None,
            bytes: Vec::new(),
            ended: false,
            report: Report::new(env),
            written: counters.count("samples_written", "samples of each channel on disk"),
            missing: counters.count(
                "samples_missing",
                "missing samples of the recording, written as 0 and annotated; look for missing data upstream",
            ),
            repeated: counters.loss(
                "frames_repeated",
                "frames at times that the recording has already, dropped; look for a source that repeats data",
            ),
            dropped: counters.loss(
                "samples_dropped",
                "samples of each channel dropped because the files could not be written; see the fault for the cause",
            ),
        }
    }

    /// Opens a recording whose first frame has the header `first`.
    fn open(&mut self, first: &Header) -> Result<(), BlockError> {
        let timestamp = first.timestamp;
        let path = &self.parameters.path;
        let path = path.with(path.replace(PLACEHOLDER, &timestamp.to_string()));
        let overwrites = self.parameters.overwrite;
        let env = self.env.of_configuration(first.config_id);
        let global = global(&self.parameters, &self.shape, &env);
        let mut recording = Recording::create(&path, overwrites, global)?;
        if let Err(error) = recording.begin_capture(&self.shape, timestamp) {
            recording.remove();
            return Err(error);
        }
        if recording.path() != path.path() {
            let other = recording.path().display();
            self.report.warn(format!("{}; recording to {other}", taken(&path, overwrites)));
        }
        self.before = Some(timestamp);
        self.recording = Some(recording);
        Ok(())
    }

    fn close(&mut self, complete: bool) -> Result<(), BlockError> {
        let Some(recording) = self.recording.take() else { return Ok(()) };
        let (path, samples) = (recording.path().display().to_string(), recording.samples());
        recording.close(complete)?;
        let seconds = samples as f64 / self.shape.sample_rate_hz();
        self.report.note(format!("{path}: {samples} samples, {seconds:.6} s"));
        Ok(())
    }

    /// Prepares the recording for a frame; `false` if the frame is dropped.
    fn place(&mut self, header: &Header) -> Result<bool, BlockError> {
        let timestamp = header.timestamp;
        let most = self.parameters.frames_per_file;
        let Some(recording) = &mut self.recording else {
            self.open(header)?;
            return Ok(true);
        };
        let (time, next) = (u128::from(timestamp), recording.next);
        let back = next.saturating_sub(time) as f64 / self.shape.clock.adc_sample_rate_hz;
        if back > RESTART_SECONDS {
            self.report
                .warn(format!("the stream went back by {back:.6} s; it begins a new recording"));
            self.close(false)?;
            self.open(header)?;
        } else if time < next {
            self.repeated.add(1);
            return Ok(false);
        } else if most.is_some_and(|most| recording.frames >= most) {
            self.close(true)?;
            self.open(header)?;
        } else if recording.is_full() {
            self.report.warn(
                "the recording has as many gaps as its description holds; it begins a new one"
                    .to_owned(),
            );
            self.close(false)?;
            self.open(header)?;
        } else if time > next {
            recording.begin_capture(&self.shape, timestamp)?;
        }
        Ok(true)
    }

    fn write(&mut self, frame: &Frame) -> Result<(), BlockError> {
        let header = frame.header();
        // A frame without samples is a gap.
        if header.validity.iter().all(|count| *count == 0) {
            return Ok(());
        }
        let samples = self.shape.samples as u64;
        match self.place(header) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => {
                self.dropped.add(samples);
                return Err(error);
            }
        }
        let Self { shape, bytes, .. } = self;
        let payload = frame.as_slice::<u8>()?;
        let is_plain = shape.channels.len() == 1 && header.validity.iter().all(|count| *count > 0);
        let bytes = if is_plain {
            payload
        } else {
            shape.interleave(payload, &header.validity, bytes);
            &bytes[..]
        };
        if let Some(recording) = &mut self.recording {
            match recording.append(shape, &header.validity, bytes) {
                Ok(missing) => self.missing.add(missing),
                Err(error) => {
                    self.dropped.add(samples);
                    return Err(error);
                }
            }
            self.written.add(samples);
            recording.commit_if_due()?;
        }
        Ok(())
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        // Reports a path that cannot be written before the flowgraph runs; nothing is written yet.
        let SigmfSink { path, overwrite, .. } = &self.parameters;
        let data: WrittenPath = path.with(path.path().with_extension(DATA).display().to_string());
        try_to_write(path, *overwrite)?;
        try_to_write(&data, *overwrite)
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if let Some(frame) = io.inputs[0].pop() {
            self.write(&frame)?;
            return Ok(Next::Again);
        }
        self.ended = io.inputs[0].ended();
        Ok(if self.ended { Next::Finished } else { Next::Wait })
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        if self.before.is_none() {
            self.report.note("no recording written: no data arrived".to_owned());
        }
        self.close(self.ended)
    }
}
