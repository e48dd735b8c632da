//! Matching of the inputs' dumps by timestamp, and waiting for missing inputs.

use super::queue::Dump;
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
    /// Longest way back of repeated dumps, in ADC samples, and inputs whose latest dump is further back.
    max_back: u64,
    is_back: Vec<bool>,
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
            is_back: vec![false; inputs],
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
        while inputs
            .iter_mut()
            .enumerate()
            .fold(false, |any, (n, input)| self.drops(n, input) || any)
        {}
    }

    /// Looks at the front of input `n`, and returns whether it has dropped a dump.
    fn drops(&mut self, n: usize, input: &mut Input) -> bool {
        self.is_back[n] |= input.ended();
        if self.fronts[n].is_some() {
            return false;
        }
        let Some(time) = input.peek().map(|frame| frame.header().timestamp) else { return false };
        // The input sends again, late or not: wait for its next dump.
        self.given_up[n] = false;
        self.patience.renew();
        let back = self.next.map_or(0, |next| next.saturating_sub(time));
        self.is_back[n] = back > self.max_back;
        if self.is_back.iter().all(|is_back| *is_back) {
            // The senders of all inputs have begun again.
            self.next = None;
            self.is_back.fill(false);
        } else if back > 0 {
            self.late.add(1);
            input.pop();
            return true;
        }
        self.fronts[n] = Some(time);
        false
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
