//! The block: copies the packed periods into frames, in real time if paced.

use super::language::Program;
use super::periods::Periods;
use super::{DigitiserSimulator, FirstTimestamp};
use crate::io::pace::{Delay, RealTime};
use fxgraph::changes::{Change, Changes, MAX_TIMESTAMP, Timed};
use fxgraph::{Block, BlockError, Counter, Env, FrameMut, Io, Next, Summary, Time};
use std::time::{Duration, Instant, SystemTime};

/// Longest time between readings of two clocks that count as simultaneous.
const SIMULTANEOUS: Duration = Duration::from_micros(100);
/// Delay from which a paced frame counts as late.
const LATE: Duration = Duration::from_millis(100);

/// The running block.
pub struct Digitiser {
    parameters: DigitiserSimulator,
    program: Program,
    periods: Timed<Periods>,
    changes: Changes<Periods>,
    /// Timestamp of the first frame.
    first: u64,
    frame: u64,
    frames: u64,
    /// The frame of the first polarisation while the block waits for a frame of the second one.
    held: Option<FrameMut>,
    /// Whether `first` and `pace` are known.
    begun: bool,
    real_time: fxgraph::real_time::RealTime,
    /// Delay reports of a paced stream that has not begun.
    delay: Option<Delay>,
    pace: Option<RealTime>,
    /// Text about the block: what it does while it starts.
    progress: Summary,
    clipped: Counter,
    late: Counter,
}

impl Digitiser {
    /// Creates a digitiser with these parameters.
    pub fn new(parameters: DigitiserSimulator, program: Program, env: &Env) -> Self {
        let frames = parameters.frame_limit().unwrap_or(u64::MAX);
        let delay = parameters.paced.then(|| Delay::new(parameters.catch_up, env));
        Self {
            delay,
            real_time: env.counters.real_time().clone(),
            parameters,
            program,
            periods: Timed::new(Periods::silent()),
            changes: Changes::default(),
            first: 0,
            frame: 0,
            frames,
            held: None,
            begun: false,
            pace: None,
            progress: env.summary.clone(),
            clipped: env
                .counters
                .count("samples_clipped", "samples clipped at full scale; lower the amplitudes"),
            late: env.counters.count(
                "frames_late",
                "paced frames sent more than 100 ms late; the flowgraph cannot keep up",
            ),
        }
    }

    /// Returns the first timestamp, and the time at which the stream begins.
    fn beginning(&self) -> Result<(u64, Instant), BlockError> {
        let parameters = &self.parameters;
        let (unix, now) = both_clocks();
        if let FirstTimestamp::At(first) = parameters.first_timestamp {
            if parameters.paced {
                let since_zero = first as f64 / parameters.adc_sample_rate_hz;
                self.real_time.set_zero(unix.as_secs_f64() - since_zero);
            }
            return Ok((first, now));
        }
        // Leap seconds since the sync time count.
        let elapsed_seconds = Time::now().seconds_since(parameters.sync_time_seconds);
        self.real_time.set_sync_time(parameters.sync_time_seconds);
        let rate = parameters.adc_sample_rate_hz;
        if !(0.0..=MAX_TIMESTAMP as f64).contains(&(elapsed_seconds * rate)) {
            let message = if elapsed_seconds < 0.0 {
                "`first_timestamp: now` is not possible: sync_time_seconds is in the future"
            } else {
                "`first_timestamp: now` exceeds the largest timestamp: set a later sync_time_seconds"
            };
            return Err(BlockError::new(message));
        }
        let step = parameters.samples_per_frame as u64;
        let first = ((elapsed_seconds * rate / step as f64).ceil() as u64).saturating_mul(step);
        let wait_seconds = (first as f64 / rate - elapsed_seconds).max(0.0);
        Ok((first, now + Duration::try_from_secs_f64(wait_seconds).unwrap_or_default()))
    }

    fn frame_seconds(&self) -> f64 {
        self.parameters.samples_per_frame as f64 / self.parameters.adc_sample_rate_hz
    }

    fn timestamp(&self) -> u64 {
        let step = self.parameters.samples_per_frame as u64;
        self.first.wrapping_add(self.frame.wrapping_mul(step))
    }

    /// Applies scheduled signals that take effect in the next frame.
    fn begin(&mut self) {
        let start = self.timestamp();
        let samples = self.parameters.samples_per_frame as u64;
        for (from, periods) in self.changes.begin(start, samples) {
            self.periods.set(from, periods);
        }
        self.periods.advance(start);
    }

    fn fill(&self, polarisation: usize, frame: &mut FrameMut) {
        let start = self.timestamp();
        let samples = self.parameters.samples_per_frame;
        let bits = usize::from(self.parameters.bits);
        let offset_samples = (start % self.parameters.period_samples as u64) as usize;
        let payload = frame.as_mut_slice::<u8>().expect(fxgraph::ON_HOST);
        let mut done = 0;
        while done < samples {
            let t = start.saturating_add(done as u64);
            let periods = self.periods.at(t);
            periods.copy(polarisation, offset_samples * bits / 8, done * bits, payload);
            done += self.periods.run(t, 1, samples - done);
        }
        frame.fill_validity(1);
        frame.header_mut().timestamp = start;
    }

    /// Counts clipped samples, spread evenly over the frames of a period.
    fn count_clipped(&self) {
        let part = |frames: u64| {
            let samples = u128::from(frames) * self.parameters.samples_per_frame as u128;
            let clipped_per_period = self.periods.at(self.timestamp()).clipped;
            let all = samples * u128::from(clipped_per_period);
            (all / self.parameters.period_samples as u128) as u64
        };
        self.clipped.add(part(self.frame + 1) - part(self.frame));
    }
}

/// Returns the Unix time, and the same time on the monotonic clock. A process that is preempted between
/// the two readings would be late by that time for its whole run, so the closest pair of readings is used.
fn both_clocks() -> (Duration, Instant) {
    let look = || {
        let before = Instant::now();
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (unix, before, before.elapsed())
    };
    let looks = std::iter::repeat_with(look).take(100);
    let mut best = look();
    for one in looks {
        if best.2 < SIMULTANEOUS {
            break;
        }
        best = if one.2 < best.2 { one } else { best };
    }
    (best.0, best.1)
}

impl Block for Digitiser {
    fn start(&mut self) -> Result<(), BlockError> {
        let begins = |polarisation| {
            self.progress
                .set(format!("computes its signals, polarisation {} of 2", polarisation + 1));
        };
        self.periods = Timed::new(Periods::new(&self.parameters, &self.program, begins));
        self.progress.set("");
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.frame == self.frames {
            self.held = None;
            return Ok(Next::Finished);
        }
        if !self.begun {
            self.begun = true;
            let (first, start) = self.beginning()?;
            self.first = first;
            self.pace = self.delay.take().map(|delay| RealTime::new(start, delay));
        }
        let length = self.frame_seconds();
        // A frame leaves when its last sample has been taken.
        let due = length * (self.frame as f64 + 1.0);
        let mut is_late = false;
        if let Some(pace) = &mut self.pace {
            let now = Instant::now();
            let wait = pace.wait(due, now);
            if !wait.is_zero() {
                return Ok(Next::After(wait));
            }
            is_late = pace.note(due, now) > LATE;
        }
        let [first, second] = io.outputs else {
            return Err(BlockError::new("the digitiser simulator has two outputs"));
        };
        // Kept from call to call: a returned frame would wake this block again at once.
        if self.held.is_none() {
            self.held = first.take();
        }
        let Some(mut pol1) = self.held.as_ref().and_then(|_| second.take()) else {
            return Ok(Next::Wait);
        };
        let Some(mut pol0) = self.held.take() else { return Ok(Next::Wait) };
        self.begin();
        self.fill(0, &mut pol0);
        self.fill(1, &mut pol1);
        first.push(pol0);
        second.push(pol1);
        self.count_clipped();
        if let Some(pace) = &mut self.pace {
            pace.sent(length, Instant::now());
            self.late.add(u64::from(is_late));
        }
        self.frame += 1;
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
