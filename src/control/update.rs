//! A whole flowgraph put in place of the one that runs, as one change.

use super::change::differences;
use super::{Change, Control, Difference, RetuneError, Retuned, SwapError, Way};
use crate::flowgraph::{Loaded, Plan, PlannedBlock, Refused, Setting, load_in};
use crate::retune::Undecided;
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// What it takes to make one flowgraph of another; nothing is changed yet.
pub struct Update {
    /// The blocks that run, in their order, then those that would be new.
    pub blocks: Vec<BlockUpdate>,
    /// What else only a new start changes.
    pub restart_because: Vec<String>,
    before: Arc<Plan>,
    after: Plan,
}

/// What becomes of one block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockUpdate {
    /// Its name.
    pub block: String,
    /// What becomes different.
    pub differences: Vec<Difference>,
    /// What is done to it.
    pub step: Step,
}

/// What an update does to a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Same,
    /// Live parameters change, in all these blocks at one timestamp.
    Retune,
    /// Another form of it takes its place.
    Swap(Way),
    /// Not while the flowgraph runs, for this reason.
    Restart(String),
}

/// What came of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Updated {
    /// What came of the change of live parameters, if there was one.
    pub retuned: Option<Retuned>,
}

/// Why a flowgraph was not updated; it goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The flowgraph is not the one for which the update was checked.
    #[error("the flowgraph has changed since: check the update again")]
    Outdated,
    /// Only a new start changes all of it.
    #[error("it takes a new start: {}", .0.join("; "))]
    Restart(Vec<String>),
    /// A block was not swapped.
    #[error("`{block}` was not swapped: {source}")]
    Swap {
        /// Name of the block.
        block: String,
        /// Why.
        source: SwapError,
    },
    /// Live parameters were not changed.
    #[error(transparent)]
    Retune(#[from] RetuneError),
    /// A block was swapped, and what came after it failed, and so did the way back.
    #[error("{cause}; and `{block}` could not be swapped back: {source}")]
    HalfMade {
        /// What failed first.
        cause: String,
        /// Name of the block that is as the update has it.
        block: String,
        /// Why.
        source: SwapError,
    },
}

impl Update {
    /// Everything for which a new start is needed; empty if the update can be made while frames flow.
    #[must_use]
    pub fn obstacles(&self) -> Vec<String> {
        let of_block = |block: &BlockUpdate| match &block.step {
            Step::Restart(why) => Some(format!("`{}`: {why}", block.block)),
            _ => None,
        };
        self.restart_because
            .iter()
            .cloned()
            .chain(self.blocks.iter().filter_map(of_block))
            .collect()
    }

    /// The flowgraph as it is wanted.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.after
    }

    fn retuned(&self) -> Option<String> {
        let retuned = self.blocks.iter().filter(|block| block.step == Step::Retune);
        let parameters = |block: &BlockUpdate| {
            let of = |difference: &Difference| {
                let name = difference.key.strip_prefix(PARAMETERS)?;
                Some((name.to_owned(), difference.to.clone()))
            };
            (block.block.clone(), block.differences.iter().filter_map(of).collect::<Map<_, _>>())
        };
        let request: HashMap<String, Map<String, Json>> = retuned.map(parameters).collect();
        (!request.is_empty()).then(|| json!(request).to_string())
    }
}

/// How a [`Difference`] of a parameter is called.
const PARAMETERS: &str = "parameters.";

impl Control {
    /// Reads and checks a whole flowgraph (YAML or JSON), and says what it takes to have it run instead:
    /// nothing is changed yet. `set` gives its parameters as at a start, and includes are looked for beside
    /// the file of the flowgraph that runs.
    pub fn update(&self, text: &str, set: &[Setting]) -> Result<Update, Refused> {
        let before = self.plan();
        let (folder, name) = (&before.folder, Path::new("flowgraph"));
        let Loaded { sources, result, .. } = load_in(folder, name, text, set, self.registry());
        let mut after = result.map_err(|problems| Refused { sources, problems })?;
        after.output_folder.clone_from(&before.output_folder);
        after.kernel_folder.clone_from(&before.kernel_folder);
        after.tuning = Arc::clone(&before.tuning);
        after.recorders.clone_from(&before.recorders);
        let mut restart_because = Vec::new();
        if after.name != before.name {
            let why = format!("the flowgraph is called `{}`, not `{}`", after.name, before.name);
            restart_because.push(why);
        }
        let mut blocks: Vec<BlockUpdate> = visible(&before)
            .map(|old| match after.block(&old.name) {
                Some(index) => self.block_update(&before, old, &after, &after.blocks[index]),
                None => restart(&old.name, "it is taken away"),
            })
            .collect();
        let new = visible(&after).filter(|block| before.block(&block.name).is_none());
        blocks.extend(new.map(|block| restart(&block.name, "it is new")));
        Ok(Update { blocks, restart_because, before, after })
    }

    fn block_update(
        &self,
        before: &Plan,
        old: &PlannedBlock,
        after: &Plan,
        new: &PlannedBlock,
    ) -> BlockUpdate {
        let differences = differences(old, new);
        let fixed = [
            (feeds(before, old) != feeds(after, new), "it reads other outputs"),
            (old.thread != new.thread, "it runs on another thread"),
            (old.queue != new.queue, "its queue has another length"),
            (old.device != new.device, "it runs on another device"),
            (old.shadow != new.shadow, "its shadow is another one"),
        ];
        let step = if let Some((_, why)) = fixed.iter().find(|(is_other, _)| *is_other) {
            Step::Restart((*why).to_owned())
        } else if differences.is_empty() {
            Step::Same
        } else if self.is_live(before, old, &differences) {
            Step::Retune
        } else {
            match self.change(&old.name, &form(old, new)) {
                Ok(Change { way: Way::Restart(why), .. }) => Step::Restart(why),
                Ok(change) => Step::Swap(change.way),
                Err(Refused { problems, .. }) => Step::Restart(
                    problems.into_iter().next().map_or(String::new(), |problem| problem.message),
                ),
            }
        };
        BlockUpdate { block: old.name.clone(), differences, step }
    }

    /// Whether `differences` are live parameters and the block has nothing against their values.
    fn is_live(&self, plan: &Plan, block: &PlannedBlock, differences: &[Difference]) -> bool {
        let Some(kind) = self.registry().get(block.kind) else { return false };
        let parameter = |difference: &Difference| {
            let name = difference.key.strip_prefix(PARAMETERS)?;
            let is_live = kind.live.contains(&name);
            is_live.then(|| (name.to_owned(), difference.to.clone()))
        };
        let Some(changed) = differences.iter().map(parameter).collect::<Option<Map<_, _>>>() else {
            return false;
        };
        let request = json!({ &block.name: changed }).to_string();
        plan.retune(self.registry(), &request, Undecided::new().when()).is_ok()
    }

    /// Makes an update while frames flow, all of it or nothing: blocks are swapped one after the other, and
    /// back if a later one fails; live parameters change last, at one timestamp. See
    /// [`swap`](Self::swap) for `limit`, which holds for all of it, and `may_hold_up`.
    pub fn apply(
        &self,
        update: &Update,
        limit: Duration,
        may_hold_up: bool,
    ) -> Result<Updated, UpdateError> {
        let obstacles = update.obstacles();
        if !obstacles.is_empty() {
            return Err(UpdateError::Restart(obstacles));
        }
        let deadline = Instant::now() + limit;
        let _only_change = self.begin_change(deadline)?;
        if !Arc::ptr_eq(&self.plan(), &update.before) {
            return Err(UpdateError::Outdated);
        }
        if update.blocks.iter().all(|block| block.step == Step::Same) {
            if update.after.config_hash == update.before.config_hash {
                // Comments may be other ones.
                self.set_plan(Arc::new(update.before.with_head_of(&update.after)));
            }
            return Ok(Updated::default());
        }
        // What is told of the flowgraph goes into the configuration that frames name.
        self.set_plan(Arc::new(update.before.with_head_of(&update.after)));
        let mut swapped = Vec::new();
        let made = self.apply_steps(update, deadline, may_hold_up, &mut swapped);
        let Err(cause) = made else { return made };
        let mut stays = None;
        for (old, new) in swapped.into_iter().rev() {
            let back = self.swap_to(new, old, Instant::now() + limit, may_hold_up);
            if let Err(source) = back {
                stays.get_or_insert((old.name.clone(), source));
            }
        }
        if let Some((block, source)) = stays {
            return Err(UpdateError::HalfMade { cause: cause.to_string(), block, source });
        }
        self.set_plan(Arc::clone(&update.before));
        Err(cause)
    }

    /// Makes the steps, and notes in `swapped` which blocks are swapped: what each was and is.
    fn apply_steps<'a>(
        &self,
        update: &'a Update,
        deadline: Instant,
        may_hold_up: bool,
        swapped: &mut Vec<(&'a PlannedBlock, &'a PlannedBlock)>,
    ) -> Result<Updated, UpdateError> {
        for block in update.blocks.iter().filter(|block| matches!(block.step, Step::Swap(_))) {
            let pair = update.before.block(&block.block).zip(update.after.block(&block.block));
            let Some((old, new)) = pair else { continue };
            let (old, new) = (&update.before.blocks[old], &update.after.blocks[new]);
            let swap = |source| UpdateError::Swap { block: block.block.clone(), source };
            self.swap_to(old, new, deadline, may_hold_up).map_err(swap)?;
            swapped.push((old, new));
        }
        let Some(request) = update.retuned() else { return Ok(Updated::default()) };
        Ok(Updated { retuned: Some(self.retune_alone(&request, None, deadline)?) })
    }

    /// Swaps the block `old` for `new`.
    fn swap_to(
        &self,
        old: &PlannedBlock,
        new: &PlannedBlock,
        deadline: Instant,
        may_hold_up: bool,
    ) -> Result<(), SwapError> {
        // It was checked with the update, and nobody else changes the flowgraph meanwhile.
        let mut change =
            self.change(&old.name, &form(old, new)).map_err(|_| SwapError::Outdated)?;
        if !new.pending.is_empty() {
            // One that is put back waits for what it waited for.
            change.after.blocks[change.index].pending.clone_from(&new.pending);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.swap_alone(&change, change.usual_limit().min(left), may_hold_up)
    }

    fn set_plan(&self, plan: Arc<Plan>) {
        *self.0.plan.write().unwrap_or_else(PoisonError::into_inner) = plan;
    }
}

/// The blocks that stand in the file.
fn visible(plan: &Plan) -> impl Iterator<Item = &PlannedBlock> {
    plan.blocks.iter().filter(|block| !block.is_transfer())
}

fn restart(block: &str, why: &str) -> BlockUpdate {
    let step = Step::Restart(why.to_owned());
    BlockUpdate { block: block.to_owned(), differences: Vec::new(), step }
}

/// The outputs that a block reads, by name, without copies between devices.
fn feeds<'a>(plan: &'a Plan, block: &'a PlannedBlock) -> Vec<(&'a str, &'a str)> {
    let source = |&(mut source, mut port): &(usize, usize)| {
        while plan.blocks[source].is_transfer() {
            (source, port) = plan.blocks[source].inputs[0];
        }
        let block = &plan.blocks[source];
        (block.name.as_str(), block.output_names[port].as_str())
    };
    block.inputs.iter().map(source).collect()
}

/// The change that makes `new` of `old`.
fn form(old: &PlannedBlock, new: &PlannedBlock) -> String {
    let mut parameters = new.parameters.as_object().cloned().unwrap_or_default();
    if old.kind == new.kind {
        // Parameters go over those in force: nothing takes one back to its default.
        for name in old.parameters.as_object().into_iter().flat_map(Map::keys) {
            parameters.entry(name.clone()).or_insert(Json::Null);
        }
    }
    json!({
        "kind": new.kind,
        "implementation": new.implementation,
        "on_fault": new.on_fault.name(),
        "parameters": parameters,
    })
    .to_string()
}
