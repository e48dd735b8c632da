//! Shadows: a second block on the same frames as a running one, to compare their outputs.

use super::change::{Change, frame_limit};
use super::errors::SwapError;
use super::live_update::Changed;
use super::swap::Lent;
use super::{Control, Way};
use crate::shadow;
use crate::{Compared, Unanswered};
use fxgraph_core::changes::When;
use fxgraph_core::event::EventKind;
use fxgraph_core::kind::{Registry, Waker};
use fxgraph_core::lock::lock;
use fxgraph_flowgraph::{LiveUpdate, Plan, PlannedBlock, beside_frames};
use serde_json::{Map, Value as Json, json};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Time limit for other changes to finish before a shadow starts.
const TURN: Duration = Duration::from_secs(10);

/// A block's shadow, and the comparison so far.
#[derive(Clone, Debug)]
pub struct ShadowReport {
    /// Name of the block.
    pub block: String,
    /// Kind of the shadow.
    pub kind: &'static str,
    /// Implementation of the shadow.
    pub implementation: &'static str,
    /// Parameters of the shadow.
    pub parameters: Json,
    /// Memory of the shadow and the comparison while they run, in bytes.
    pub bytes: usize,
    /// Memory of the block and the pools of its outputs, in bytes.
    pub block_bytes: usize,
    /// Memory of the shadow and the pools of its outputs if it were in the block's slot, in bytes.
    pub shadow_bytes: usize,
    /// Result of the comparison so far.
    pub compared: Compared,
}

/// A shadow with its resources.
pub(super) struct Shadowed {
    report: ShadowReport,
    shadow: shadow::Shadow,
    /// The flowgraph with the shadow in the slot of the block.
    plan: Plan,
    /// Parameters that the shadow sets itself.
    own_parameters: Vec<String>,
    /// Buffers for the frames that the tees hold; removed on drop.
    _lent: Lent,
}

impl Shadowed {
    /// Gives the shadow the values that `parameters` have in `block` from timestamp `at` on, if it is of the same kind and
    /// does not set them itself.
    fn follow(
        &mut self,
        block: &PlannedBlock,
        parameters: &[&'static str],
        at: u64,
        registry: &Registry,
    ) -> Result<(), String> {
        let is_own = |name: &str| self.own_parameters.iter().any(|own| own == name);
        let led = parameters.iter().filter(|name| !is_own(name));
        let value = |name: &str| block.parameters.get(name).cloned().unwrap_or_default();
        let led: Map<String, Json> = led.map(|name| ((*name).to_owned(), value(name))).collect();
        if led.is_empty() || self.report.kind != block.kind {
            return Ok(());
        }
        let when = When::at(at);
        let updated = self.plan.live_update(registry, &json!({ &block.name: led }), &when);
        let LiveUpdate { plan, blocks } = updated.map_err(|rejected| {
            rejected.problems.into_iter().next().map_or(String::new(), |first| first.message)
        })?;
        // One that has ended keeps the parameters that it had.
        let offer = |(name, values)| self.shadow.offer(when.change(values)).then_some(name);
        let taken: Vec<String> = blocks.into_iter().filter_map(offer).collect();
        if taken.is_empty() {
            return Ok(());
        }
        self.plan = plan;
        for name in taken {
            if let Some(index) = self.plan.block(&name) {
                self.plan.blocks[index].pending.settle(u64::MAX);
                self.report.parameters = Json::clone(&self.plan.blocks[index].parameters);
            }
        }
        Ok(())
    }
}

impl Control {
    /// Runs the block with `change` as a shadow of the running block, until
    /// [`end_shadow`](Self::end_shadow) or the end of the flowgraph. The shadow gets the same input
    /// frames, or drops them if it is too slow, and its output is only compared. With `ends_at_difference`
    /// the comparison ends at the first frame that differs. That frame is kept in either case.
    pub fn shadow(&self, change: &Change, ends_at_difference: bool) -> Result<(), SwapError> {
        let Ok(_turn) = self.begin_change(Instant::now() + TURN) else {
            return Err(SwapError::Busy);
        };
        if !Arc::ptr_eq(&self.plan(), &change.before) {
            return Err(SwapError::Outdated);
        }
        self.reject_shadowed(&change.block)?;
        let block = &change.after.blocks[change.index];
        let reject = |why: &str| Err(SwapError::NoShadow(format!("`{}` {why}", change.block)));
        if block.inputs.is_empty() || block.ports.outputs.is_empty() {
            return reject("cannot have a shadow: it needs inputs and outputs");
        }
        if let Way::Restart(why) = &change.way {
            return reject(&format!("cannot have this shadow: {why}"));
        }
        self.check_memory(change)?;
        let index = change.index;
        let lent = self.lend(change, PlannedBlock::lent_frames, |port| {
            // Frames in the queue of the comparison, and those being compared.
            beside_frames(block.ports.outputs[port].frame_bytes()) + 2
        })?;
        let part = change.after.candidate_part(index, Waker::default())?;
        let (origin, _) = change.after.origin((index, 0));
        let device = change.after.frames_device(origin);
        let device = device.map_err(|error| SwapError::NoShadow(error.to_string()))?;
        let shadow =
            change.run.shadow(part, device.as_ref(), change.usual_limit(), ends_at_difference)?;
        let report = ShadowReport {
            block: change.block.clone(),
            kind: block.kind,
            implementation: block.implementation,
            parameters: serde_json::Value::clone(&block.parameters),
            bytes: change.memory.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
            block_bytes: change.before.memory().blocks[index].bytes(),
            shadow_bytes: change.after.memory().blocks[index].bytes(),
            compared: Compared::default(),
        };
        let (plan, own_parameters) = (change.after.clone(), change.own_parameters.clone());
        let shadowed = Shadowed { report, shadow, plan, own_parameters, _lent: lent };
        let mut shadows = self.locked_shadows();
        if !Arc::ptr_eq(&self.plan(), &change.before) {
            return Err(SwapError::Outdated);
        }
        shadows.push(shadowed);
        Ok(())
    }

    /// Lets shadows follow the live update of their blocks to `plan` at timestamp `at`, except for the parameters that they
    /// set themselves. A shadow gets the values when their timestamp is decided, so that it never delays an update.
    pub(super) fn lead_shadows(&self, plan: &Plan, changed: &[Changed], at: u64) {
        for Changed { block, parameters, .. } in changed {
            let mut shadows = self.locked_shadows();
            let shadow = shadows.iter_mut().find(|shadow| shadow.report.block == *block);
            let Some((shadow, index)) = shadow.zip(plan.block(block)) else { continue };
            let led = shadow.follow(&plan.blocks[index], parameters, at, self.registry());
            drop(shadows);
            if let Err(why) = led {
                let text = format!("its shadow does not follow the live update: {why}");
                self.0.run().tell(EventKind::Warning, Some(block), text);
            }
        }
    }

    pub(super) fn locked_shadows(&self) -> MutexGuard<'_, Vec<Shadowed>> {
        lock(&self.0.shadows)
    }

    /// Rejects a swap or another shadow of a block that has a shadow.
    pub(super) fn reject_shadowed(&self, block: &str) -> Result<(), SwapError> {
        let is_shadowed = self.locked_shadows().iter().any(|known| known.report.block == block);
        if is_shadowed { Err(SwapError::Shadowed(block.to_owned())) } else { Ok(()) }
    }

    /// All shadows, with their comparisons so far.
    #[must_use]
    pub fn shadows(&self) -> Vec<ShadowReport> {
        let report = |shadowed: &Shadowed| ShadowReport {
            compared: shadowed.shadow.compared(),
            ..shadowed.report.clone()
        };
        self.locked_shadows().iter().map(report).collect()
    }

    /// Ends the shadow of `block`; returns its final comparison, or `None` if there is no shadow.
    pub fn end_shadow(&self, block: &str) -> Result<Option<ShadowReport>, Unanswered> {
        let known = |shadowed: &Shadowed| shadowed.report.block == block;
        let taken = {
            let mut shadows = self.locked_shadows();
            shadows.iter().position(known).map(|index| shadows.remove(index))
        };
        let Some(taken) = taken else { return Ok(None) };
        // Read before the tees are removed, which would end the shadow and add a cause to the result.
        let compared = taken.shadow.compared();
        // The list of shadows is not locked here: clients that read it do not wait for the block.
        let plan = self.plan();
        let limit =
            plan.block(block).map_or(Duration::ZERO, |index| frame_limit(&plan.blocks[index]));
        match self.0.run().end_shadow(block, limit) {
            // The tees ended with the block.
            Ok(()) | Err(Unanswered::Ended(_)) => {}
            Err(error) => {
                self.locked_shadows().push(taken);
                return Err(error);
            }
        }
        Ok(Some(ShadowReport { compared, ..taken.report }))
    }
}
