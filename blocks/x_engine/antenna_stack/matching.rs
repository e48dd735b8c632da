//! Which frames belong together, and for how long antennas are waited for.

use super::AntennaStack;
use fxgraph::{Counter, Counters, Frame, Io, Next, PortType, Ports};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a block that waits looks at the clock.
const LOOK: Duration = Duration::from_millis(100);
/// For how long antennas are waited for, unless that is set, when others are far ahead with a full
/// window: nothing else would say that those behind do not come.
const BLOCKED: Duration = Duration::from_secs(2);

/// The frames of all antennas, and what is known of the antennas.
pub struct Matching {
    held: Vec<VecDeque<Arc<Frame>>>,
    /// Antennas from which nothing more will come.
    ended: Vec<bool>,
    /// Antennas that are not waited for until they send again.
    given_up: Vec<bool>,
    patience: Option<Duration>,
    /// For how long nothing has come from anyone, and when that was last looked at.
    waited: Duration,
    looked: Option<Instant>,
    window: Option<usize>,
    window_samples: u64,
    step: u64,
    /// Earliest time that has not gone out, once one has.
    next: Option<u64>,
    heaps: u64,
    missing: Counter,
    silences: Counter,
    late: Counter,
}

impl Matching {
    /// For checked `ports`.
    pub fn new(parameters: &AntennaStack, ports: &Ports, counters: &Counters) -> Self {
        let step = ports.outputs[0].clock.samples_per_frame;
        Self {
            held: vec![VecDeque::new(); ports.inputs.len()],
            ended: vec![false; ports.inputs.len()],
            given_up: vec![false; ports.inputs.len()],
            patience: parameters.wait_seconds.map(Duration::from_secs_f64),
            waited: Duration::ZERO,
            looked: None,
            window: parameters.window,
            window_samples: step.saturating_mul(parameters.window.unwrap_or(0) as u64),
            step,
            next: None,
            heaps: ports.inputs[0].axes[0].len as u64,
            missing: counters
                .loss(
                    "antenna_heaps_missing",
                    "heaps of antennas that had not arrived when the frame was output",
                ),
            silences: counters.count(
                "antennas_given_up",
                "times the block stopped waiting for a silent antenna",
            ),
            late: counters.loss(
                "frames_late",
                "frames dropped because they arrived after the output of their time; increase `window` or `wait_seconds`",
            ),
        }
    }

    /// The time whose frames are to go out, once they are all there or waited for long enough;
    /// else what the block is to do meanwhile.
    pub fn ready(&mut self, io: &mut Io<'_>) -> Result<u64, Next> {
        // The ends first: what was pushed before them is then gathered.
        self.ended
            .iter_mut()
            .zip(io.inputs.iter())
            .for_each(|(ended, input)| *ended = input.ended());
        self.gather(io);
        let mut antennas = self.held.iter().zip(&self.given_up).zip(&self.ended);
        let complete =
            antennas.all(|((held, given_up), ended)| !held.is_empty() || *given_up || *ended);
        let fronts = self.held.iter().filter_map(|held| held.front());
        let time = fronts.map(|frame| frame.header().timestamp).min();
        let most = self.window.unwrap_or(usize::MAX);
        let mut full = self.held.iter().filter(|held| held.len() >= most).peekable();
        let is_blocked = full.peek().is_some();
        // An antenna that was restarted is a turn of the timestamps ahead: its frames do not say how
        // late those of the others are.
        let from = self.next.or(time).unwrap_or(0);
        let is_near = |frame: &Arc<Frame>| {
            frame.header().timestamp.saturating_sub(from) < self.window_samples
        };
        let is_full = full.any(|held| held.front().is_some_and(is_near));
        if !complete && !is_full {
            return Err(self.wait(is_blocked));
        }
        let is_end = self.ended.iter().all(|ended| *ended);
        time.ok_or(if is_end { Next::Finished } else { Next::Wait })
    }

    /// The frames of that time, antenna by antenna, for those that have one. The time is past then.
    pub fn take(&mut self, time: u64) -> impl Iterator<Item = Option<Arc<Frame>>> {
        self.next = Some(time.saturating_add(self.step));
        let (heaps, missing) = (self.heaps, &self.missing);
        self.held.iter_mut().map(move |held| {
            let frame = match held.front() {
                Some(front) if front.header().timestamp == time => held.pop_front(),
                _ => None,
            };
            missing.add(if frame.is_none() { heaps } else { 0 });
            frame
        })
    }

    /// Takes frames in; those whose time has gone are dropped.
    fn gather(&mut self, io: &mut Io<'_>) {
        let most = self.window.unwrap_or(1);
        let antennas = self.held.iter_mut().zip(&mut self.given_up).zip(io.inputs.iter_mut());
        for ((held, given_up), input) in antennas {
            while held.len() < most
                && let Some(frame) = input.pop()
            {
                // Late or not, it is there again: its next frame is waited for.
                *given_up = false;
                (self.waited, self.looked) = (Duration::ZERO, None);
                if self.next.is_some_and(|next| frame.header().timestamp < next) {
                    self.late.add(1);
                } else {
                    held.push_back(frame);
                }
            }
        }
    }

    /// Waits for the antennas without a frame, at most as long as there is patience. `is_blocked`: the
    /// window of some antenna is full.
    fn wait(&mut self, is_blocked: bool) -> Next {
        let patience = self.patience.or(is_blocked.then_some(BLOCKED));
        let Some(patience) = patience else { return Next::Wait };
        if self.held.iter().all(VecDeque::is_empty) {
            return Next::Wait;
        }
        let now = Instant::now();
        let elapsed = self.looked.map_or(Duration::ZERO, |looked| now - looked);
        // A process that was stopped for a while has not listened in that time.
        self.waited += elapsed.min(2 * LOOK);
        self.looked = Some(now);
        if self.waited < patience {
            return Next::After(patience.saturating_sub(self.waited).min(LOOK));
        }
        (self.waited, self.looked) = (Duration::ZERO, None);
        for ((held, given_up), ended) in self.held.iter().zip(&mut self.given_up).zip(&self.ended) {
            if held.is_empty() && !ended && !*given_up {
                *given_up = true;
                self.silences.add(1);
            }
        }
        Next::Again
    }
}

/// Where the heaps of an antenna lie, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Heaps {
    pub count: usize,
    /// One heap of an input.
    pub bytes: usize,
    /// Where the channels begin in it that are taken, and how many bytes those are.
    pub first: usize,
    pub taken: usize,
}

impl Heaps {
    /// Those of streams like `input`, stacked to `output`.
    pub fn new(parameters: &AntennaStack, input: &PortType, output: &PortType) -> Self {
        let count = input.axes[0].len;
        let bytes = input.frame_bytes() / count;
        let channel = bytes / input.axes[1].len;
        Self {
            count,
            bytes,
            first: parameters.first_channel * channel,
            taken: output.axes[2].len * channel,
        }
    }

    /// Where what is taken of a heap begins in a frame.
    pub fn begin(&self, heap: usize) -> usize {
        heap * self.bytes + self.first
    }
}
