//! The reference implementation.

use super::MyBlock;
use fxgraph::changes::{Change, Changes};
use fxgraph::{Block, BlockError, Configured, Counter, Env, Io, Next};

/// The running block.
pub struct Gain {
    gain: f32,
    /// Scheduled live updates.
    changes: Changes<f32>,
    samples_per_frame: u64,
    /// Validity count of a complete unit.
    full: u32,
    above_one: Counter,
}

impl Gain {
    pub fn new(block: &Configured<MyBlock>, env: &Env) -> Self {
        let input = &block.ports.inputs[0];
        Self {
            gain: block.parameters.gain,
            changes: Changes::default(),
            samples_per_frame: input.clock.samples_per_frame,
            full: input.validity.full,
            above_one: env.counters.count(
                "samples_above_one",
                "samples of the output whose magnitude is greater than 1",
            ),
        }
    }
}

impl Block for Gain {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let input = &mut io.inputs[0];
        if input.peek().is_none() {
            return Ok(if input.ended() { Next::Finished } else { Next::Wait });
        }
        // Take the output buffers first: a frame taken from the input must have a place to go.
        let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
        let Some(mut power) = io.outputs[1].take() else { return Ok(Next::Wait) };
        let Some(frame) = input.pop() else { return Ok(Next::Wait) };
        let from = frame.header();

        // Values of live updates whose effective timestamp is before the end of this frame.
        for (_, gain) in self.changes.begin(from.timestamp, self.samples_per_frame) {
            self.gain = gain;
        }
        let (header, samples) = output.parts_mut::<f32>()?;
        // Copies timestamp and annotations. Validity is separate, as its units may differ.
        header.continue_from(from);
        header.validity.copy_from_slice(&from.validity);
        let (mut sum, mut above) = (0.0, 0);
        for (y, x) in samples.iter_mut().zip(frame.as_slice::<f32>()?) {
            *y = self.gain * x;
            sum += f64::from(*y).powi(2);
            above += u64::from(y.abs() > 1.0);
        }
        self.above_one.add(above);
        let mean = sum / samples.len() as f64;
        let (header, values) = power.parts_mut::<f32>()?;
        header.continue_from(from);
        header.validity.fill(u32::from(from.validity.iter().all(|count| *count == self.full)));
        values.fill(mean as f32);
        io.outputs[0].push(output);
        io.outputs[1].push(power);
        Ok(Next::Again)
    }

    // Schedules a live update; `work` applies it.
    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
