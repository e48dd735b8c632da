//! A second form of a block on the same frames, to see what is different about its own.

use super::change::{Change, lent_frames};
use super::swap::{Lent, SwapError};
use super::{Control, Way};
use crate::device::DeviceName;
use crate::flowgraph::beside_frames;
use crate::kind::Waker;
use crate::runtime::shadow;
use crate::runtime::{Compared, Unanswered};
use serde_json::Value as Json;
use std::sync::PoisonError;
use std::time::Duration;

/// How long a block may take to come to the end of a frame.
const FRAME: Duration = Duration::from_secs(5);

/// A block's shadow, and what was seen of it so far.
#[derive(Clone, Debug)]
pub struct ShadowReport {
    /// Name of the block.
    pub block: String,
    /// Kind of the shadow.
    pub kind: &'static str,
    /// Its form.
    pub implementation: &'static str,
    /// Its parameters.
    pub parameters: Json,
    /// Bytes of memory that it takes for itself and its frames.
    pub bytes: usize,
    /// The comparison.
    pub compared: Compared,
}

/// A shadow with all that it keeps.
pub(super) struct Shadowed {
    report: ShadowReport,
    shadow: shadow::Shadow,
    /// What its tees hold; given back when it goes.
    _lent: Lent,
}

impl Control {
    /// Runs the block as `change` would have it beside the block as it is, until
    /// [`end_shadow`](Self::end_shadow) or the end of the flowgraph. It gets the same frames, drops
    /// its own where it is too slow, and its outputs go nowhere but into the comparison; with
    /// `ends_at_difference` only up to the first frame that differs, which is kept.
    pub fn shadow(&self, change: &Change, ends_at_difference: bool) -> Result<(), SwapError> {
        let Ok(_changing) = self.0.changing.try_lock() else { return Err(SwapError::Busy) };
        let block = &change.after.blocks[change.index];
        let refuse = |why: &str| Err(SwapError::NoShadow(format!("`{}` {why}", change.block)));
        if let Way::Held { .. } | Way::Restart(_) = change.way {
            return refuse("has nothing to compare: it needs inputs and outputs");
        }
        if block.output_device() != DeviceName::Cpu {
            return refuse("leaves its frames on a GPU, where they are not compared");
        }
        self.check_memory(change)?;
        let index = change.index;
        let lent = self.lend(change, lent_frames, |port| {
            // What waits to be compared, and what is.
            beside_frames(block.ports.outputs[port].frame_bytes()) + 2
        })?;
        let part = change.after.newcomer(index, Waker::default())?;
        let shadow = self.0.run.shadow(part, FRAME, ends_at_difference)?;
        let report = ShadowReport {
            block: change.block.clone(),
            kind: block.kind,
            implementation: block.implementation,
            parameters: block.parameters.clone(),
            bytes: change.memory.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
            compared: Compared::default(),
        };
        let shadowed = Shadowed { report, shadow, _lent: lent };
        self.0.shadows.lock().unwrap_or_else(PoisonError::into_inner).push(shadowed);
        Ok(())
    }

    /// What the shadows show.
    #[must_use]
    pub fn shadows(&self) -> Vec<ShadowReport> {
        let shadows = self.0.shadows.lock().unwrap_or_else(PoisonError::into_inner);
        let report = |shadowed: &Shadowed| ShadowReport {
            compared: shadowed.shadow.compared(),
            ..shadowed.report.clone()
        };
        shadows.iter().map(report).collect()
    }

    /// Ends the shadow of `block`; what it showed last, if there is one.
    pub fn end_shadow(&self, block: &str) -> Result<Option<ShadowReport>, Unanswered> {
        let mut shadows = self.0.shadows.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = shadows.iter().position(|known| known.report.block == block) else {
            return Ok(None);
        };
        match self.0.run.end_shadow(block, FRAME) {
            // Its tees went with the block.
            Ok(()) | Err(Unanswered::Ended(_)) => {}
            Err(error) => return Err(error),
        }
        let Shadowed { report, shadow, .. } = shadows.remove(index);
        Ok(Some(ShadowReport { compared: shadow.compared(), ..report }))
    }
}
