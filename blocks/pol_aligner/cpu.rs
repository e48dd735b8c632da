//! Two queues, walked in step.

use fxgraph::{Block, BlockError, Counter, Counters, Io, Next, async_trait};
use std::cmp::Ordering;

/// The running block.
pub struct Aligner {
    pairs: Counter,
    unpaired: [Counter; 2],
}

impl Aligner {
    /// An aligner that counts in `counters`.
    pub fn new(counters: &Counters) -> Self {
        let help = "Frames whose partner never came: look at the other polarisation's source.";
        Self {
            pairs: counters.count("pairs", "Pairs passed on."),
            unpaired: [
                counters.loss("pol0_frames_unpaired", help),
                counters.loss("pol1_frames_unpaired", help),
            ],
        }
    }
}

#[async_trait]
impl Block for Aligner {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let ([in0, in1], [out0, out1]) = (&mut *io.inputs, &mut *io.outputs) else {
            return Err(BlockError::new("the aligner has two inputs and two outputs"));
        };
        loop {
            // The end first: what was pushed before it is then seen by the peek.
            let ended = [in0.ended(), in1.ended()];
            let times = [in0.peek(), in1.peek()].map(|f| f.map(|f| f.header().timestamp));
            match times {
                [Some(a), Some(b)] => match a.cmp(&b) {
                    Ordering::Less => {
                        in0.pop();
                        self.unpaired[0].add(1);
                    }
                    Ordering::Greater => {
                        in1.pop();
                        self.unpaired[1].add(1);
                    }
                    Ordering::Equal => {
                        if !(out0.has_room() && out1.has_room()) {
                            return Ok(Next::Wait);
                        }
                        if let (Some(a), Some(b)) = (in0.pop(), in1.pop()) {
                            out0.pass(a);
                            out1.pass(b);
                            self.pairs.add(1);
                        }
                    }
                },
                [Some(_), None] if ended[1] => {
                    in0.pop();
                    self.unpaired[0].add(1);
                }
                [None, Some(_)] if ended[0] => {
                    in1.pop();
                    self.unpaired[1].add(1);
                }
                [None, None] if ended == [true, true] => return Ok(Next::Finished),
                _ => return Ok(Next::Wait),
            }
        }
    }
}
