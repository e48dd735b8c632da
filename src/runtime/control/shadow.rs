//! A second form of a block on the same frames, to see what is different about its own.

use super::change::Change;
use super::swap::{Lent, SwapError};
use super::{Control, Way};
use crate::shadow;
use crate::{Compared, Unanswered};
use fxgraph_core::kind::Waker;
use fxgraph_flowgraph::{PlannedBlock, beside_frames};
use serde_json::Value as Json;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a block may take to come to the end of a frame.
const FRAME: Duration = Duration::from_secs(5);
/// How long a shadow waits for its turn.
const TURN: Duration = Duration::from_secs(10);

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
    /// Bytes of memory that the comparison takes for as long as it lasts.
    pub bytes: usize,
    /// Bytes of memory of the block: its own, and the pools of its outputs.
    pub block_bytes: usize,
    /// The same of the shadow in the block's place.
    pub shadow_bytes: usize,
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
        let Ok(_turn) = self.begin_change(Instant::now() + TURN) else {
            return Err(SwapError::Busy);
        };
        if !Arc::ptr_eq(&self.plan(), &change.before) {
            return Err(SwapError::Outdated);
        }
        self.refuse_shadowed(&change.block)?;
        let block = &change.after.blocks[change.index];
        let refuse = |why: &str| Err(SwapError::NoShadow(format!("`{}` {why}", change.block)));
        if block.inputs.is_empty() || block.ports.outputs.is_empty() {
            return refuse("has nothing to compare: it needs inputs and outputs");
        }
        if let Way::Restart(why) = &change.way {
            return refuse(&format!("can have no such shadow: {why}"));
        }
        self.check_memory(change)?;
        let index = change.index;
        let lent = self.lend(change, PlannedBlock::lent_frames, |port| {
            // What waits to be compared, and what is.
            beside_frames(block.ports.outputs[port].frame_bytes()) + 2
        })?;
        let part = change.after.newcomer(index, Waker::default())?;
        let (origin, _) = change.after.origin((index, 0));
        let device = change.after.frames_device(origin);
        let device = device.map_err(|error| SwapError::NoShadow(error.to_string()))?;
        let shadow = change.run.shadow(part, device.as_ref(), FRAME, ends_at_difference)?;
        let report = ShadowReport {
            block: change.block.clone(),
            kind: block.kind,
            implementation: block.implementation,
            parameters: block.parameters.clone(),
            bytes: change.memory.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
            block_bytes: change.before.memory().blocks[index].bytes(),
            shadow_bytes: change.after.memory().blocks[index].bytes(),
            compared: Compared::default(),
        };
        let shadowed = Shadowed { report, shadow, _lent: lent };
        let mut shadows = self.locked_shadows();
        if !Arc::ptr_eq(&self.plan(), &change.before) {
            return Err(SwapError::Outdated);
        }
        shadows.push(shadowed);
        Ok(())
    }

    pub(super) fn locked_shadows(&self) -> MutexGuard<'_, Vec<Shadowed>> {
        self.0.shadows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block has one companion at a time.
    pub(super) fn refuse_shadowed(&self, block: &str) -> Result<(), SwapError> {
        let is_shadowed = self.locked_shadows().iter().any(|known| known.report.block == block);
        if is_shadowed { Err(SwapError::Shadowed(block.to_owned())) } else { Ok(()) }
    }

    /// What the shadows show.
    #[must_use]
    pub fn shadows(&self) -> Vec<ShadowReport> {
        let report = |shadowed: &Shadowed| ShadowReport {
            compared: shadowed.shadow.compared(),
            ..shadowed.report.clone()
        };
        self.locked_shadows().iter().map(report).collect()
    }

    /// Ends the shadow of `block`; what it showed last, if there is one.
    pub fn end_shadow(&self, block: &str) -> Result<Option<ShadowReport>, Unanswered> {
        let known = |shadowed: &Shadowed| shadowed.report.block == block;
        let taken = {
            let mut shadows = self.locked_shadows();
            shadows.iter().position(known).map(|index| shadows.remove(index))
        };
        let Some(taken) = taken else { return Ok(None) };
        // Without its tees it ends, which is not what it showed.
        let compared = taken.shadow.compared();
        // Whoever looks at the shadows does not wait for the block.
        match self.0.run().end_shadow(block, FRAME) {
            // Its tees went with the block.
            Ok(()) | Err(Unanswered::Ended(_)) => {}
            Err(error) => {
                self.locked_shadows().push(taken);
                return Err(error);
            }
        }
        Ok(Some(ShadowReport { compared, ..taken.report }))
    }
}
