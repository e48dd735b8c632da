//! Frames of samples and of what was found, side by side.

use super::channel::{Channel, Loops};
use super::{GnssTracker, VALUES};
use crate::gnss::planes::Samples;
use crate::gnss::{Correlator, Planes};
use crate::gnss_acquisition::{self, Acquired};
use crate::simd::Form;
use fxgraph::{Block, BlockError, Counter, Env, Frame, FrameMut, Io, Next, async_trait};

/// Early, prompt and late.
const TAPS: usize = 3;

/// The running block.
pub(super) struct Tracker {
    samples: Samples,
    loops: Loops,
    planes: Planes,
    correlator: Correlator,
    channels: Vec<Option<Channel>>,
    /// Timestamp of the frame that follows the last one.
    next: Option<u64>,
    begun: Counter,
    lost: Counter,
}

impl Tracker {
    pub(super) fn new(
        parameters: &GnssTracker,
        samples: Samples,
        satellites: usize,
        env: &Env,
    ) -> Self {
        Self {
            loops: Loops::new(parameters, samples.rate_hz),
            planes: Planes::new(1, samples.samples),
            samples: Samples { antennas: 1, ..samples },
            correlator: Correlator::new(Form::best(), TAPS),
            channels: (0..satellites).map(|_| None).collect(),
            next: None,
            begun: env.counters.count(
                "satellites_begun",
                "Times that a satellite was taken from the acquisition.",
            ),
            lost: env.counters.count(
                "satellites_lost",
                "Times that a satellite was given up: too weak, or samples were lost.",
            ),
        }
    }

    fn track(&mut self, input: &Frame, acquired: &Frame, output: &mut FrameMut) {
        let start = input.header().timestamp;
        let samples = self.samples.samples as u64;
        // Samples that never came; time that goes back says nothing of where the phases are.
        let gap = start.checked_sub(self.next.unwrap_or(start));
        self.next = Some(start.saturating_add(samples));
        let is_whole = input.header().validity.iter().all(|count| *count != 0);
        if is_whole {
            self.planes.read(&self.samples, input.as_slice(), 0..self.samples.samples);
        }
        let Self { channels, planes, correlator, loops, .. } = self;
        let rows = acquired.as_slice::<[f64; gnss_acquisition::VALUES]>();
        for (channel, row) in channels.iter_mut().zip(rows) {
            match (gap, channel.as_mut()) {
                (Some(1..), Some(channel)) => channel.coast(gap.unwrap_or_default()),
                (None, _) => *channel = None,
                _ => {}
            }
            if is_whole && channel.is_none() && acquired.header().timestamp == start {
                // Its code and its sums are made when a satellite is found, which is rare.
                *channel = Acquired::found(*row).and_then(|found| Channel::new(&found, loops));
                self.begun.add(u64::from(channel.is_some()));
            }
            if let Some(tracked) = channel {
                if !is_whole {
                    tracked.coast(samples);
                } else if !tracked.follow(planes, correlator, loops) {
                    *channel = None;
                    self.lost.add(1);
                }
            }
        }
        let (header, payload) = output.parts_mut::<[f64; VALUES]>();
        header.continue_from(input.header());
        header.validity.fill(u32::from(is_whole));
        for (row, channel) in payload.iter_mut().zip(channels) {
            *row = channel.as_ref().map_or([0.0; VALUES], Channel::values);
        }
    }
}

#[async_trait]
impl Block for Tracker {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let [input, acquired] = io.inputs else {
            return Err(BlockError::new("the tracker has two inputs"));
        };
        if input.peek().is_none() || acquired.peek().is_none() {
            let is_over = input.ended() || acquired.ended();
            return Ok(if is_over { Next::Finished } else { Next::Wait });
        }
        let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
        let (Some(input), Some(acquired)) = (input.pop(), acquired.pop()) else {
            return Ok(Next::Wait);
        };
        self.track(&input, &acquired, &mut output);
        io.outputs[0].push(output);
        Ok(Next::Again)
    }
}
