//! The block on the CPU: copies the channels of each antenna.

use super::AntennaStack;
use super::matching::{Heaps, Matching};
use crate::common::flagged_antennas::Flagging;
use fxgraph::changes::Change;
use fxgraph::{Block, BlockError, Counters, FrameMut, Io, Next, Ports};

/// The running block.
pub struct Stack {
    matching: Matching,
    heaps: Heaps,
    flagging: Flagging,
    antennas: usize,
}

impl Stack {
    /// Creates a stack for checked `ports`.
    pub fn new(
        parameters: &AntennaStack,
        heaps: Heaps,
        ports: &Ports,
        flagging: Flagging,
        counters: &Counters,
    ) -> Self {
        Self {
            matching: Matching::new(parameters, ports, counters),
            heaps,
            flagging,
            antennas: ports.inputs.len(),
        }
    }

    /// Copies the frames of `time` to `frame`.
    fn fill(&mut self, time: u64, frame: &mut FrameMut) {
        let (header, payload) = frame.parts_mut::<u8>().expect(fxgraph::ON_HOST);
        header.timestamp = time;
        let Self { heaps, flagging, .. } = self;
        flagging.begin(time);
        for (antenna, input) in self.matching.take(time, flagging).enumerate() {
            for heap in 0..heaps.count {
                let unit = heap * self.antennas + antenna;
                let to = &mut payload[unit * heaps.taken..][..heaps.taken];
                let flags = unit * heaps.taken_units..(unit + 1) * heaps.taken_units;
                let flags = &mut header.validity[flags];
                match &input {
                    _ if flagging.is_flagged(heap, antenna) => {
                        flags.fill(0);
                        to.fill(0);
                    }
                    Some(input) if heaps.copy_flags(&input.header().validity, heap, flags) => {
                        let from =
                            &input.as_slice::<u8>().expect(fxgraph::ON_HOST)[heaps.begin(heap)..];
                        to.copy_from_slice(&from[..heaps.taken]);
                    }
                    _ => to.fill(0),
                }
            }
        }
    }
}

impl Block for Stack {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let time = match self.matching.ready(io) {
            Ok(time) => time,
            Err(next) => return Ok(next),
        };
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.fill(time, &mut frame);
        io.outputs[0].push(frame);
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.flagging.offer(change)
    }
}
