//! Pairing of two queues of frames by timestamp.

use super::PolAligner;
use fxgraph::{Block, BlockError, Configured, Counter, Counters, Env, Input, Io, Next, Patience};
use std::cmp::Ordering;
use std::time::{Duration, Instant};

/// Number of the newest frames that are kept while the other polarisation is silent, because it may be slightly
/// later when it returns.
const KEPT: usize = 2;

/// The running block.
pub struct Aligner {
    pairs: Counter,
    unpaired: [Counter; 2],
    /// Wait for a silent polarisation; `None` waits without limit.
    patience: Option<Patience>,
}

impl Aligner {
    /// Creates the block from its parameters.
    pub fn of(block: &Configured<PolAligner>, env: &Env) -> Self {
        Self::new(block.parameters.wait_seconds, &env.counters)
    }

    pub fn new(wait_seconds: f64, counters: &Counters) -> Self {
        let help = "frames dropped because their partner did not arrive; look at the other polarisation's source";
        Self {
            pairs: counters.count("pairs", "pairs passed on"),
            unpaired: [
                counters.loss("pol0_frames_unpaired", help),
                counters.loss("pol1_frames_unpaired", help),
            ],
            patience: (wait_seconds > 0.0)
                .then(|| Patience::new(Duration::from_secs_f64(wait_seconds))),
        }
    }

    /// Discards frames of `input`, number `index`, except the newest, if the other polarisation has been silent for
    /// too long. Returns the next action of the block.
    fn wait_for_other(&mut self, index: usize, input: &mut Input) -> Next {
        let Some(patience) = &mut self.patience else { return Next::Wait };
        if let Some(left) = patience.left(Instant::now()) {
            return Next::After(left);
        }
        while input.queued() > KEPT {
            input.pop();
            self.unpaired[index].add(1);
        }
        Next::Wait
    }
}

impl Block for Aligner {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let ([in0, in1], [out0, out1]) = (&mut *io.inputs, &mut *io.outputs) else {
            return Err(BlockError::new("the aligner has two inputs and two outputs"));
        };
        loop {
            // Read the end flags first, so that `peek` sees every frame pushed before the end.
            let ended = [in0.ended(), in1.ended()];
            let times = [in0.peek(), in1.peek()].map(|f| f.map(|f| f.header().timestamp));
            if times[0].is_some() && times[1].is_some() {
                self.patience.iter_mut().for_each(Patience::renew);
            }
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
                [Some(_), None] => return Ok(self.wait_for_other(0, in0)),
                [None, Some(_)] => return Ok(self.wait_for_other(1, in1)),
                [None, None] => return Ok(Next::Wait),
            }
        }
    }
}
