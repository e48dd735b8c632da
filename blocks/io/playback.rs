//! Pace of sources that play files.

use super::file_source::Pace;
use super::pace::{Delay, RealTime};
use fxgraph::{Clock, Env};
use std::time::{Duration, Instant, SystemTime};

/// Longest time between checks whether the flowgraph stops.
const TICK: Duration = Duration::from_millis(200);

/// Schedule of the frames of a file.
pub struct Playback {
    clock: Clock,
    real_time: fxgraph::real_time::RealTime,
    /// Delay reports of a source in real time that has not begun.
    delay: Option<Delay>,
    /// Schedule in real time from the first frame, and the timestamp of the first frame.
    began: Option<(RealTime, u64)>,
}

impl Playback {
    /// Creates the schedule of a stream with this clock.
    pub fn new(pace: Pace, catch_up: f64, clock: Clock, env: &Env) -> Self {
        let delay = (pace == Pace::RealTime).then(|| Delay::new(catch_up, env));
        Self { clock, real_time: env.counters.real_time().clone(), delay, began: None }
    }

    /// Returns the time that the frame with this timestamp must still wait; zero if it may leave.
    pub fn wait(&mut self, timestamp: u64) -> Duration {
        let now = Instant::now();
        if let Some(delay) = self.delay.take() {
            self.began = Some((RealTime::new(now, delay), timestamp));
            let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let since_zero = timestamp as f64 / self.clock.adc_sample_rate_hz;
            self.real_time.set_zero(unix.as_secs_f64() - since_zero);
        }
        let Some((time, first)) = &mut self.began else { return Duration::ZERO };
        let due = timestamp.saturating_sub(*first) as f64 / self.clock.adc_sample_rate_hz;
        let wait = time.wait(due, now);
        if wait.is_zero() {
            time.note(due, now);
        }
        wait.min(TICK)
    }

    /// Notes that a frame left.
    pub fn sent(&mut self) {
        if let Some((time, _)) = &mut self.began {
            time.sent(self.clock.frames_per_second().recip(), Instant::now());
        }
    }
}
