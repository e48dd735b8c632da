//! Matching of the inputs' dumps by timestamp, and waiting for missing inputs.

use super::writing::Dump;
use crate::io::files::parameters::MAX_GAP_SECONDS;
use fxgraph::{Clock, Counter, Counters, Input, Next, Patience};
use std::time::{Duration, Instant};

/// State of all inputs.
pub struct Matching {
    /// Inputs that the block does not wait for until they send again.
    given_up: Vec<bool>,
    /// Wait for the next dump of any input.
    patience: Patience,
    /// Dumps that were at the front of the inputs.
    fronts: Vec<Option<u64>>,
    step: u64,
    /// Longest way back of repeated dumps, in ADC samples.
    max_back: u64,
    /// Time after the last dump; `None` before the first.
    next: Option<u64>,
    missing: Counter,
    late: Counter,
}

impl Matching {
    /// Creates the state of `inputs` inputs with this clock.
    pub fn new(inputs: usize, clock: &Clock, wait_seconds: f64, counters: &Counters) -> Self {
        let step = clock.samples_per_frame;
        Self {
            given_up: vec![false; inputs],
            patience: Patience::new(Duration::from_secs_f64(wait_seconds)),
            fronts: vec![None; inputs],
            step,
            max_back: step.max((MAX_GAP_SECONDS * clock.adc_sample_rate_hz) as u64),
            next: None,
            missing: counters.loss(
                "input_dumps_missing",
                "dumps of single inputs that had not arrived when the dump was written",
            ),
            late: counters.loss(
                "dumps_late",
                "dumps dropped because they arrived after the dump of their time; increase `wait_seconds`",
            ),
        }
    }

    /// Takes the next dump, once it has arrived from all inputs or the wait is over.
    ///
    /// # Errors
    /// The next action of the block if it must wait or is finished.
    pub fn take(&mut self, inputs: &mut [Input]) -> Result<Dump, Next> {
        let ended: Vec<bool> = inputs.iter().map(Input::ended).collect();
        self.look(inputs);
        let mut states = self.fronts.iter().zip(&self.given_up).zip(&ended);
        let is_complete =
            states.all(|((front, given_up), ended)| front.is_some() || *given_up || *ended);
        let Some(time) = self.fronts.iter().flatten().min().copied() else {
            return Err(if ended.iter().all(|ended| *ended) { Next::Finished } else { Next::Wait });
        };
        if !is_complete {
            return Err(self.wait(&ended));
        }
        self.next = Some(time.saturating_add(self.step));
        let frames = inputs.iter_mut().zip(&mut self.fronts).map(|(input, front)| {
            if *front == Some(time) {
                *front = None;
                input.pop()
            } else {
                self.missing.add(1);
                None
            }
        });
        Ok(Dump { timestamp: time, frames: frames.collect() })
    }

    /// Looks at the front of each input; drops dumps of earlier times.
    fn look(&mut self, inputs: &mut [Input]) {
        let is_back = |input: &mut Input, next: u64| {
            let time = input.peek().map(|frame| frame.header().timestamp);
            time.map_or(input.ended(), |time| next.saturating_sub(time) > self.max_back)
        };
        // The senders of all inputs have begun again.
        if self.next.is_some_and(|next| inputs.iter_mut().all(|input| is_back(input, next))) {
            self.next = None;
        }
        for ((front, given_up), input) in self.fronts.iter_mut().zip(&mut self.given_up).zip(inputs)
        {
            while front.is_none()
                && let Some(frame) = input.peek()
            {
                let time = frame.header().timestamp;
                // The input sends again, late or not: wait for its next dump.
                *given_up = false;
                self.patience.renew();
                if self.next.is_some_and(|next| time < next) {
                    self.late.add(1);
                    input.pop();
                } else {
                    *front = Some(time);
                }
            }
        }
    }

    /// Waits for the inputs without a dump, and gives them up afterwards.
    fn wait(&mut self, ended: &[bool]) -> Next {
        if let Some(left) = self.patience.left(Instant::now()) {
            return Next::After(left);
        }
        self.patience.renew();
        for ((front, given_up), ended) in self.fronts.iter().zip(&mut self.given_up).zip(ended) {
            *given_up |= front.is_none() && !ended;
        }
        Next::Again
    }
}
