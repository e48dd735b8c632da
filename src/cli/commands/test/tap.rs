//! Probe of a test at an output.

use super::check::Gathered;
use fxgraph::flowgraph::Probe;
use fxgraph::lock::lock;
use fxgraph::{Block, BlockError, Io, Next};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Data collected at one output; shared with the block in the flowgraph.
pub struct Tap {
    gathered: Mutex<Vec<Gathered>>,
    frames: AtomicU64,
    /// Number of frames to check; later ones are discarded.
    wanted: u64,
}

impl Tap {
    /// Creates a tap with these checks on the first `wanted` frames.
    pub fn new(gathered: Vec<Gathered>, wanted: u64) -> Arc<Self> {
        Arc::new(Self { gathered: Mutex::new(gathered), frames: AtomicU64::new(0), wanted })
    }

    /// Whether all wanted frames were received.
    pub fn is_done(&self) -> bool {
        self.frames() >= self.wanted
    }

    /// Number of frames received.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Acquire)
    }

    /// Takes the collected data, after the run.
    pub fn take(&self) -> Vec<Gathered> {
        std::mem::take(&mut lock(&self.gathered))
    }

    /// Returns the probe of an output, given as (block, port) indices.
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
            let mut gathered = lock(&tap.gathered);
            gathered.iter_mut().for_each(|check| check.see(&frame));
            tap.frames.fetch_add(1, Ordering::AcqRel);
        }
        Ok(Next::Again)
    }
}
