//! Frames out of a file.

use super::player::{Recording, Rows};
use super::{FileSource, Pace, archive};
use fxgraph::{
    Block, BlockError, Counter, Env, FrameMut, Io, Next, PortType, Summary, async_trait,
};
use std::path::Path;
use std::time::{Duration, Instant};

/// What is played, once it is open.
enum Open {
    /// Before the start.
    Nothing,
    /// Plain data.
    Plain(Rows),
    /// A recording.
    Recording(Box<Recording>),
}

/// Longest time without a look at whether the run is to stop.
const TICK: Duration = Duration::from_millis(200);

/// The running block.
pub struct Source {
    parameters: FileSource,
    port: PortType,
    open: Open,
    frame: u64,
    frames: u64,
    /// When the first frame came, and its timestamp.
    began: Option<(Instant, u64)>,
    read: Counter,
    missing: Counter,
    summary: Summary,
}

impl Source {
    /// A source for `port`.
    pub fn new(parameters: FileSource, port: &PortType, env: &Env) -> Self {
        let missing = "Frames that were in the recording before it was cut off; copy it anew.";
        Self {
            parameters,
            port: port.clone(),
            open: Open::Nothing,
            frame: 0,
            frames: 0,
            began: None,
            read: env.counters.count("frames_read", "Frames played."),
            missing: env.counters.loss("frames_missing", missing),
            summary: env.summary.clone(),
        }
    }

    /// Timestamp of the next frame.
    fn timestamp(&self) -> Result<u64, String> {
        if let Open::Recording(recording) = &self.open {
            return recording.timestamp(self.frame);
        }
        let first = self.parameters.raw.as_ref().map_or(0, |raw| raw.first_timestamp);
        let step = self.port.clock.samples_per_frame;
        Ok(first.wrapping_add(self.frame.wrapping_mul(step)))
    }

    /// Time until the next frame is due.
    fn early(&mut self) -> Result<Option<Duration>, String> {
        if self.parameters.pace == Pace::Full {
            return Ok(None);
        }
        let timestamp = self.timestamp()?;
        let (began, first) = *self.began.get_or_insert_with(|| (Instant::now(), timestamp));
        let samples = timestamp.saturating_sub(first) as f64;
        let due = Duration::try_from_secs_f64(samples / self.port.clock.adc_sample_rate_hz);
        Ok(due.unwrap_or(Duration::MAX).checked_sub(began.elapsed()))
    }

    fn fill(&mut self, frame: &mut FrameMut) -> Result<(), String> {
        let timestamp = self.timestamp()?;
        match &mut self.open {
            Open::Nothing => Ok(()),
            Open::Plain(rows) => {
                rows.read(self.frame, frame.as_mut_slice())?;
                frame.header_mut().timestamp = timestamp;
                frame.fill_validity(self.port.validity.full);
                Ok(())
            }
            Open::Recording(recording) => recording.read(self.frame, frame),
        }
    }
}

#[async_trait]
impl Block for Source {
    async fn start(&mut self) -> Result<(), BlockError> {
        let path = Path::new(&self.parameters.path);
        let there = if let Some(raw) = &self.parameters.raw {
            let rows = Rows::plain(path, raw.header_bytes, self.port.frame_bytes())
                .map_err(BlockError::new)?;
            let frames = rows.count;
            self.open = Open::Plain(rows);
            frames
        } else {
            let side = archive::side_file(path).map_err(BlockError::new)?;
            let recording = Recording::open(path, &side, &self.port).map_err(BlockError::new)?;
            let (frames, missing) = (recording.frames, recording.missing);
            if missing > 0 {
                self.missing.add(missing);
                let path = path.display();
                self.summary.set(format!("{path} was cut off: {frames} frames, {missing} missing"));
            }
            self.open = Open::Recording(Box::new(recording));
            frames
        };
        self.frames = self.parameters.frames.map_or(there, |most| most.min(there));
        Ok(())
    }

    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.frame == self.frames {
            return Ok(Next::Finished);
        }
        if let Some(early) = self.early().map_err(BlockError::new)? {
            return Ok(Next::After(early.min(TICK)));
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.fill(&mut frame).map_err(BlockError::new)?;
        io.outputs[0].push(frame);
        self.frame += 1;
        self.read.add(1);
        Ok(Next::Again)
    }
}
