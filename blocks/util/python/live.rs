//! Values of live parameters that take effect at the start of a frame.

use super::{Live, Values};
use fxgraph::BlockError;
use fxgraph::changes::{Change, Changes};
use std::collections::VecDeque;

/// Values that wait for the first frame that starts at their effective timestamp or later.
#[derive(Default)]
pub struct Scheduled {
    changes: Changes<Live>,
    /// Values that have an effective timestamp, in order.
    due: VecDeque<(u64, Values)>,
}

impl Scheduled {
    /// Schedules `change`.
    ///
    /// # Errors
    /// If too many values are scheduled.
    pub fn offer(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }

    /// Takes the next values for the frame of `samples` samples from `timestamp` on; `None` after the last ones.
    pub fn take(&mut self, timestamp: u64, samples: u64) -> Option<Values> {
        let begun = self.changes.begin(timestamp, samples);
        self.due.extend(begun.map(|(from, Live::Values(values))| (from, values)));
        self.due.pop_front_if(|(from, _)| *from <= timestamp).map(|(_, values)| values)
    }
}
