//! Files that sources play: one policy of paces, limits and ends of files for all formats.
//!
//! [`FileSource`] is the block of the kinds whose frames are found one after the other; a [`Format`] is what differs.

use crate::io::files::output_file::Report;
use crate::io::pace::{Delay, RealTime, default_catch_up, reject_catch_up};
use fxgraph::{Block, BlockError, Clock, Counter, Env, FrameMut, Io, Next, Parameters, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant, SystemTime};

/// Longest time between checks whether the flowgraph stops.
const TICK: Duration = Duration::from_millis(200);
/// Steps without a frame in one call of `work`.
const MAX_STEPS: usize = 64;

/// Parameters of all kinds that play files.
#[derive(Clone, Debug, Parameters)]
pub struct PlaybackParameters {
    /// Largest number of frames to play.
    pub frames: Option<u64>,
    /// Rate of the frames: `full` (as fast as the readers take them) or `real_time`.
    #[param(default)]
    pub pace: Pace,
    /// Rate at which a late source catches up, as a multiple of real time, with `pace: real_time`.
    #[param(default = default_catch_up())]
    pub catch_up: f64,
}

impl PlaybackParameters {
    /// Fails if a parameter is out of range.
    pub fn check(&self) -> Result<(), Vec<Rejection>> {
        reject_catch_up(self.catch_up).map_or(Ok(()), |rejection| Err(vec![rejection]))
    }
}

/// Rate of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As fast as the readers take frames.
    #[default]
    Full,
    /// At the intervals of their timestamps.
    RealTime,
}

/// Schedule of the frames of a file.
pub struct Playback {
    clock: Clock,
    zero: fxgraph::real_time::RealTime,
    /// Delay reports of a source in real time that has not begun.
    delay: Option<Delay>,
    /// Schedule in real time from the first frame, and the timestamp of the first frame.
    began: Option<(RealTime, u64)>,
    /// Frames that may still be played.
    left: u64,
    played: Counter,
}

impl Playback {
    /// Creates the schedule of the block of `env`.
    pub fn new(parameters: &PlaybackParameters, clock: Clock, env: &Env) -> Self {
        let delay =
            (parameters.pace == Pace::RealTime).then(|| Delay::new(parameters.catch_up, env));
        Self {
            clock,
            zero: env.counters.real_time().clone(),
            delay,
            began: None,
            left: parameters.frames.unwrap_or(u64::MAX),
            played: env.counters.count("frames_read", "frames played"),
        }
    }

    /// Number of frames that may still be played.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the time until the frame with this timestamp may leave, or until the next check.
    pub fn early(&mut self, timestamp: u64) -> Duration {
        let now = Instant::now();
        if let Some(delay) = self.delay.take() {
            self.began = Some((RealTime::new(now, delay), timestamp));
            let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let since_zero = timestamp as f64 / self.clock.adc_sample_rate_hz;
            self.zero.set_zero(unix.as_secs_f64() - since_zero);
        }
        let Some((time, first)) = &mut self.began else { return Duration::ZERO };
        let samples = timestamp.saturating_sub(*first) as f64;
        let due = samples / self.clock.adc_sample_rate_hz;
        let wait = time.wait(due, now);
        if wait.is_zero() {
            time.note(due, now);
        }
        wait.min(TICK)
    }

    /// Notes that a frame left.
    pub fn sent(&mut self) {
        self.left -= 1;
        self.played.add(1);
        if let Some((time, _)) = &mut self.began {
            time.sent(self.clock.frames_per_second().recip(), Instant::now());
        }
    }
}

/// Next step of a format through its file.
pub enum Step {
    /// Plays a frame with this timestamp.
    Frame(u64),
    /// Passes over a part of the file without a frame.
    Further,
    /// Ends the stream with the file.
    End,
}

/// A format of files.
pub trait Format: Send + 'static {
    /// Opens the file, and reports the data that it lacks.
    fn open(&mut self, report: &mut Report) -> Result<(), String>;

    /// Finds the next frame.
    fn find(&mut self, report: &mut Report) -> Result<Step, String>;

    /// Fills the frame that was found, whose timestamp is set, and goes on to the one after it.
    fn fill(&mut self, frame: &mut FrameMut) -> Result<(), String>;
}

/// A source that plays a file.
pub struct FileSource<F> {
    playback: Playback,
    format: F,
    report: Report,
}

impl<F: Format> FileSource<F> {
    /// Creates the block of `env`.
    pub fn new(playback: Playback, format: F, env: &Env) -> Self {
        Self { playback, format, report: Report::new(env) }
    }
}

impl<F: Format> Block for FileSource<F> {
    fn start(&mut self) -> Result<(), BlockError> {
        self.format.open(&mut self.report).map_err(BlockError::new)
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.playback.left() == 0 {
            return Ok(Next::Finished);
        }
        for _ in 0..MAX_STEPS {
            let timestamp = match self.format.find(&mut self.report).map_err(BlockError::new)? {
                Step::Frame(timestamp) => timestamp,
                Step::Further => continue,
                Step::End => return Ok(Next::Finished),
            };
            let wait = self.playback.early(timestamp);
            if !wait.is_zero() {
                return Ok(Next::After(wait));
            }
            let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
            frame.header_mut().timestamp = timestamp;
            self.format.fill(&mut frame).map_err(BlockError::new)?;
            io.outputs[0].push(frame);
            self.playback.sent();
            break;
        }
        Ok(Next::Again)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub mod tests {
    use fxgraph::edge::Harness;
    use fxgraph::{Env, Frame, KindSpec, Next, PortType, Ports};
    use std::sync::Arc;

    /// Plays all frames of a file as the block of `env`. Returns the type of the stream and the frames, or the error.
    pub fn play(source: &impl KindSpec, env: &Env) -> Result<(PortType, Vec<Arc<Frame>>), String> {
        let outputs = source.outputs(&[]).map_err(|rejections| rejections[0].message.clone())?;
        let ports = Ports { inputs: vec![], outputs };
        let mut harness = Harness::new(source.build(&[], env).unwrap(), &ports, 64).unwrap();
        Harness::block_on(harness.start()).map_err(|error| error.to_string())?;
        let mut frames = Vec::new();
        loop {
            let next = Harness::block_on(harness.step()).map_err(|error| error.to_string())?;
            frames.extend(std::iter::from_fn(|| harness.receive(0)));
            match next {
                Next::Finished => return Ok((ports.outputs[0].clone(), frames)),
                Next::After(time) => std::thread::sleep(time),
                // No frame is free, and none of those that were received becomes free.
                Next::Wait => panic!("the source waits after {} frames", frames.len()),
                Next::Again => {}
            }
        }
    }

    /// Records the frames of a file by `sink`.
    pub fn record(sink: &impl KindSpec, port: &PortType, frames: &[Arc<Frame>]) {
        let ports = Ports { inputs: vec![port.clone()], outputs: vec![] };
        let block = sink.build(&ports.inputs, &Env::detached("out")).unwrap();
        let mut harness = Harness::new(block, &ports, frames.len()).unwrap();
        Harness::block_on(async {
            harness.start().await.unwrap();
            frames.iter().for_each(|frame| assert!(harness.share(0, Arc::clone(frame))));
            harness.end(0);
            harness.run().await.unwrap();
            harness.finish().await.unwrap();
        });
    }
}
