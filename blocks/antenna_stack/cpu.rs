//! Copies each antenna's channels to their place.

use super::AntennaStack;
use fxgraph::{
    Block, BlockError, Counter, Counters, Frame, FrameMut, Io, Next, Ports, async_trait,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a block that waits looks at the clock.
const LOOK: Duration = Duration::from_millis(100);

/// The running block.
pub struct Stack {
    held: Vec<VecDeque<Arc<Frame>>>,
    /// Antennas that are not waited for until they send again.
    given_up: Vec<bool>,
    patience: Option<Duration>,
    /// For how long nothing has come from anyone, and when that was last looked at.
    waited: Duration,
    looked: Option<Instant>,
    window: Option<usize>,
    /// Bytes of one heap of an input, where the channels begin in it, and how many are taken.
    heap_bytes: usize,
    first_byte: usize,
    taken_bytes: usize,
    step: u64,
    /// Earliest time that has not gone out.
    next: u64,
    heaps: usize,
    missing: Counter,
    silences: Counter,
    late: Counter,
}

impl Stack {
    /// A stack for checked `ports`.
    pub fn new(parameters: &AntennaStack, ports: &Ports, counters: &Counters) -> Self {
        let (input, output) = (&ports.inputs[0], &ports.outputs[0]);
        let heaps = input.axes[0].len;
        let channels = input.axes[1].len;
        let heap_bytes = input.frame_bytes() / heaps;
        let channel_bytes = heap_bytes / channels;
        Self {
            held: vec![VecDeque::new(); ports.inputs.len()],
            given_up: vec![false; ports.inputs.len()],
            patience: parameters.wait_seconds.map(Duration::from_secs_f64),
            waited: Duration::ZERO,
            looked: None,
            window: parameters.window,
            heap_bytes,
            first_byte: parameters.first_channel * channel_bytes,
            taken_bytes: output.axes[2].len * channel_bytes,
            step: output.clock.samples_per_frame,
            next: 0,
            heaps,
            missing: counters
                .loss("antenna_heaps_missing", "Heaps of antennas that were not there in time."),
            silences: counters.count(
                "antennas_given_up",
                "Times an antenna was silent for so long that the others went on without it.",
            ),
            late: counters.loss(
                "frames_late",
                "Frames that came after their time had gone out: enlarge `window` or `wait_seconds`.",
            ),
        }
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
                if frame.header().timestamp < self.next {
                    self.late.add(1);
                } else {
                    held.push_back(frame);
                }
            }
        }
    }

    /// Waits for the antennas without a frame, at most as long as there is patience.
    fn wait(&mut self, ended: &[bool]) -> Next {
        let Some(patience) = self.patience else { return Next::Wait };
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
        for ((held, given_up), ended) in self.held.iter().zip(&mut self.given_up).zip(ended) {
            if held.is_empty() && !ended && !*given_up {
                *given_up = true;
                self.silences.add(1);
            }
        }
        Next::Again
    }

    /// Copies the frames of time `time` to `frame`.
    fn fill(&mut self, time: u64, frame: &mut FrameMut) {
        let (header, payload) = frame.parts_mut::<u8>();
        header.timestamp = time;
        let antennas = self.held.len();
        for (antenna, held) in self.held.iter_mut().enumerate() {
            let input = match held.front() {
                Some(front) if front.header().timestamp == time => held.pop_front(),
                _ => None,
            };
            self.missing.add(if input.is_none() { self.heaps as u64 } else { 0 });
            for heap in 0..self.heaps {
                let unit = heap * antennas + antenna;
                let to = &mut payload[unit * self.taken_bytes..][..self.taken_bytes];
                match &input {
                    Some(input) if input.header().validity[heap] > 0 => {
                        let from = heap * self.heap_bytes + self.first_byte;
                        to.copy_from_slice(&input.as_slice::<u8>()[from..][..self.taken_bytes]);
                        header.validity[unit] = 1;
                    }
                    _ => to.fill(0),
                }
            }
        }
    }
}

#[async_trait]
impl Block for Stack {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        // The ends first: what was pushed before them is then gathered.
        let ended: Vec<bool> = io.inputs.iter().map(fxgraph::Input::ended).collect();
        self.gather(io);
        let mut antennas = self.held.iter().zip(&self.given_up).zip(&ended);
        let complete =
            antennas.all(|((held, given_up), ended)| !held.is_empty() || *given_up || *ended);
        let full = self.window.is_some_and(|most| self.held.iter().any(|held| held.len() >= most));
        if !complete && !full {
            return Ok(self.wait(&ended));
        }
        let fronts = self.held.iter().filter_map(|held| held.front());
        let Some(time) = fronts.map(|frame| frame.header().timestamp).min() else {
            let is_end = ended.iter().all(|ended| *ended);
            return Ok(if is_end { Next::Finished } else { Next::Wait });
        };
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.fill(time, &mut frame);
        io.outputs[0].push(frame);
        self.next = time.saturating_add(self.step);
        Ok(Next::Again)
    }
}
