//! The block: passes frames on, or injects a fault.

use super::{Fault, FaultInjector};
use fxgraph::changes::{Change, Changes};
use fxgraph::{Block, BlockError, Counter, Counters, Io, Next, PortType};
use std::time::{Duration, Instant};

/// The running block.
pub struct Injector {
    fault: Fault,
    changes: Changes<Fault>,
    /// Value of `faults_injected` at which faults end.
    until_injected: u64,
    from_passed: u64,
    faults: u64,
    samples_per_frame: u64,
    stall: Duration,
    stalled_until: Option<Instant>,
    /// Timestamp up to which previous blocks in this slot have processed the stream; earlier requests were
    /// carried out by them.
    begun: u64,
    passed: Counter,
    injected: Counter,
}

impl Injector {
    /// Creates the block for a stream of `input`. A block created again continues with the previous
    /// `counters`.
    pub fn new(parameters: &FaultInjector, input: &PortType, counters: &Counters) -> Self {
        Self {
            fault: parameters.fault,
            changes: Changes::default(),
            until_injected: parameters.faults,
            from_passed: parameters.after_frames,
            faults: parameters.faults,
            samples_per_frame: input.clock.samples_per_frame,
            stall: Duration::from_secs_f64(parameters.stall_seconds),
            stalled_until: None,
            begun: 0,
            passed: counters.count("frames_passed", "frames passed on"),
            injected: counters.count("faults_injected", "faults and stalls injected on request"),
        }
    }

    /// Returns the fault to inject at the frame with `timestamp`.
    fn at(&mut self, timestamp: u64) -> Fault {
        for (from, fault) in self.changes.begin(timestamp, self.samples_per_frame) {
            self.fault = fault;
            // A block created again gets requests again that were carried out before.
            if from >= self.begun || self.injected.get() == 0 {
                self.until_injected = self.injected.get() + self.faults;
                self.from_passed = 0;
            }
        }
        let is_due =
            self.passed.get() >= self.from_passed && self.injected.get() < self.until_injected;
        if is_due { self.fault } else { Fault::None }
    }
}

impl Block for Injector {
    #[allow(clippy::panic, reason = "the user requested a panic")]
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        loop {
            if let Some(until) = self.stalled_until {
                let left = until.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    return Ok(Next::After(left));
                }
            }
            if !io.outputs[0].has_room() {
                return Ok(Next::Wait);
            }
            let Some(timestamp) = io.inputs[0].peek().map(|frame| frame.header().timestamp) else {
                break;
            };
            // A frame passes after its stall.
            let fault = if self.stalled_until.is_some() { Fault::None } else { self.at(timestamp) };
            if fault != Fault::None {
                self.injected.add(1);
            }
            let text = || format!("injected fault at the frame with timestamp {timestamp}");
            match fault {
                Fault::None => {
                    self.stalled_until = None;
                    if let Some(frame) = io.inputs[0].pop() {
                        io.outputs[0].pass(frame);
                        self.passed.add(1);
                    }
                }
                Fault::Error => {
                    io.inputs[0].pop();
                    return Err(BlockError::new(text()));
                }
                Fault::Panic => {
                    io.inputs[0].pop();
                    panic!("{}", text());
                }
                Fault::Stall => self.stalled_until = Some(Instant::now() + self.stall),
            }
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.begun = change.begun();
        self.changes.offer(change)
    }
}
