//! A reader that a test puts at an output.

use super::check::Gathered;
use fxgraph::flowgraph::Probe;
use fxgraph::{Block, BlockError, Io, Next};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What the taps at one output gather; shared with the block in the flowgraph.
pub struct Tap {
    gathered: Mutex<Vec<Gathered>>,
    frames: AtomicU64,
    /// Frames to look at; later ones are swallowed.
    wanted: u64,
}

impl Tap {
    /// A tap with these checks that looks at `wanted` frames.
    pub fn new(gathered: Vec<Gathered>, wanted: u64) -> Arc<Self> {
        Arc::new(Self { gathered: Mutex::new(gathered), frames: AtomicU64::new(0), wanted })
    }

    /// Whether it has seen all it wants.
    pub fn is_done(&self) -> bool {
        self.frames() >= self.wanted
    }

    /// Frames it has seen.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Acquire)
    }

    /// What it gathered, after the run.
    pub fn take(&self) -> Vec<Gathered> {
        std::mem::take(&mut self.gathered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// It as a reader of an output, by numbers of block and port.
    pub fn probe(self: &Arc<Self>, name: String, source: (usize, usize)) -> Probe {
        Probe { name, source, block: Box::new(TapBlock(Arc::clone(self))), queue: 2 }
    }
}

struct TapBlock(Arc<Tap>);

impl Block for TapBlock {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let input = &mut io.inputs[0];
        let Some(frame) = input.pop() else {
            return Ok(if input.ended() { Next::Finished } else { Next::Wait });
        };
        let tap = &self.0;
        if !tap.is_done() {
            let mut gathered = tap.gathered.lock().unwrap_or_else(PoisonError::into_inner);
            gathered.iter_mut().for_each(|check| check.see(&frame));
            tap.frames.fetch_add(1, Ordering::AcqRel);
        }
        Ok(Next::Again)
    }
}
