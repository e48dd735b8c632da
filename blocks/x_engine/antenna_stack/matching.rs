//! Matching of the antennas' frames by timestamp, and waiting for missing antennas.

use super::AntennaStack;
use crate::common::flagged_antennas::Flagging;
use fxgraph::{Counter, Counters, Frame, Io, Next, Patience, PortType, Ports};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default time to wait when antennas far ahead have a full window. Without a limit, the block would wait for
/// dead antennas forever.
const BLOCKED: Duration = Duration::from_secs(2);

/// Frames and state of all antennas.
pub struct Matching {
    held: Vec<VecDeque<Arc<Frame>>>,
    /// Antennas whose stream has ended.
    ended: Vec<bool>,
    /// Antennas that the block does not wait for until they send again.
    given_up: Vec<bool>,
    /// Wait for the next frame of any antenna.
    patience: Patience,
    /// The wait is limited even if no window is full.
    is_limited: bool,
    window: Option<usize>,
    window_samples: u64,
    step: u64,
    /// Time after the last output frame; `None` before the first.
    next: Option<u64>,
    heaps: usize,
    missing: Counter,
    silences: Counter,
    late: Counter,
}

impl Matching {
    /// Creates the state for checked `ports`.
    pub fn new(parameters: &AntennaStack, ports: &Ports, counters: &Counters) -> Self {
        let step = ports.outputs[0].clock.samples_per_frame;
        let wait = parameters.wait_seconds.map(Duration::from_secs_f64);
        Self {
            held: vec![VecDeque::new(); ports.inputs.len()],
            ended: vec![false; ports.inputs.len()],
            given_up: vec![false; ports.inputs.len()],
            patience: Patience::new(wait.unwrap_or(BLOCKED)),
            is_limited: wait.is_some(),
            window: parameters.window,
            window_samples: step.saturating_mul(parameters.window.unwrap_or(0) as u64),
            step,
            next: None,
            heaps: ports.inputs[0].axes[0].len,
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

    /// Time of the next output frame, once all of its frames have arrived or the wait is over.
    ///
    /// # Errors
    /// The next action of the block if it must wait or is finished.
    pub fn ready(&mut self, io: &mut Io<'_>) -> Result<u64, Next> {
        // Read the end flags first, so that every frame pushed before the end is gathered.
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
        // The timestamps of a restarted antenna are one wrap ahead, so its frames say nothing about the delay of
        // the others.
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

    /// Takes the frames of `time`, one entry for each antenna, and continues with the next time. Heaps that are flagged
    /// do not count as missing.
    pub fn take(
        &mut self,
        time: u64,
        flagging: &Flagging,
    ) -> impl Iterator<Item = Option<Arc<Frame>>> {
        self.next = Some(time.saturating_add(self.step));
        let (heaps, missing) = (self.heaps, &self.missing);
        self.held.iter_mut().enumerate().map(move |(antenna, held)| {
            let frame = match held.front() {
                Some(front) if front.header().timestamp == time => held.pop_front(),
                _ => None,
            };
            if frame.is_none() {
                let counted = (0..heaps).filter(|heap| !flagging.is_flagged(*heap, antenna));
                missing.add(counted.count() as u64);
            }
            frame
        })
    }

    /// Reads frames from the inputs; drops frames of earlier times.
    fn gather(&mut self, io: &mut Io<'_>) {
        let most = self.window.unwrap_or(1);
        let antennas = self.held.iter_mut().zip(&mut self.given_up).zip(io.inputs.iter_mut());
        for ((held, given_up), input) in antennas {
            while held.len() < most
                && let Some(frame) = input.pop()
            {
                // The antenna sends again, late or not: wait for its next frame.
                *given_up = false;
                self.patience.renew();
                if self.next.is_some_and(|next| frame.header().timestamp < next) {
                    self.late.add(1);
                } else {
                    held.push_back(frame);
                }
            }
        }
    }

    /// Waits for the antennas without a frame, and gives them up afterwards. `is_blocked` is whether the window of some
    /// antenna is full. Returns the next action of the block.
    fn wait(&mut self, is_blocked: bool) -> Next {
        if self.held.iter().all(VecDeque::is_empty) || !(self.is_limited || is_blocked) {
            return Next::Wait;
        }
        if let Some(left) = self.patience.left(Instant::now()) {
            return Next::After(left);
        }
        self.patience.renew();
        for ((held, given_up), ended) in self.held.iter().zip(&mut self.given_up).zip(&self.ended) {
            if held.is_empty() && !ended && !*given_up {
                *given_up = true;
                self.silences.add(1);
            }
        }
        Next::Again
    }
}

/// Layout of the heaps of an antenna, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Heaps {
    pub count: usize,
    /// Size of a heap of an input.
    pub bytes: usize,
    /// Offset of the first selected channel within a heap.
    pub first: usize,
    /// Size of the selected channels of a heap.
    pub taken: usize,
    /// Units of validity of a heap of an input.
    pub units: usize,
    /// Offset of the first unit of the selected channels within a heap.
    pub first_unit: usize,
    /// Units of the selected channels of a heap.
    pub taken_units: usize,
}

impl Heaps {
    /// Layout of streams of the type `input`, stacked to `output`.
    pub fn new(parameters: &AntennaStack, input: &PortType, output: &PortType) -> Self {
        let count = input.axes[0].len;
        let bytes = input.frame_bytes() / count;
        let channels = input.axes[1].len;
        let channel = bytes / channels;
        let units = input.validity.units() / count;
        // 0 if heaps have one flag.
        let of_channel = units / channels * usize::from(input.validity.axes.len() > 1);
        let taken_units = if of_channel == 0 { 1 } else { output.axes[2].len * of_channel };
        Self {
            count,
            bytes,
            first: parameters.first_channel * channel,
            taken: output.axes[2].len * channel,
            units,
            first_unit: parameters.first_channel * of_channel,
            taken_units,
        }
    }

    /// Writes the flags of the selected channels of `heap` of an input with the validity `from`. Returns whether any of
    /// them is set.
    pub fn copy_flags(&self, from: &[u32], heap: usize, to: &mut [u32]) -> bool {
        let from = &from[heap * self.units + self.first_unit..][..self.taken_units];
        to.iter_mut().zip(from).for_each(|(to, from)| *to = u32::from(*from != 0));
        to.contains(&1)
    }

    /// Offset of the selected channels of a heap within a frame.
    pub fn begin(&self, heap: usize) -> usize {
        heap * self.bytes + self.first
    }
}
