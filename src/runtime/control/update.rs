//! Differences between a whole flowgraph and the running one, and the step for each block.

use super::change::{WHEN_FULL, catch_up_limit, differences};
use super::errors::UpdateError;
use super::live_update::clocks_differ;
use super::{Change, Control, Difference, Way};
use fxgraph_core::changes::Undecided;
use fxgraph_core::port::Clock;
use fxgraph_flowgraph::request::Request;
use fxgraph_flowgraph::{
    Client, Loaded, Plan, PlannedBlock, Rejected, ScheduledValue, Setting, load_with,
};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Steps from the running flowgraph to another one, checked but not made yet.
pub struct Update {
    /// The running blocks in their order, then new ones.
    pub blocks: Vec<BlockUpdate>,
    /// Reasons for a restart that concern the whole flowgraph.
    pub restart_because: Vec<String>,
    /// The running flowgraph, with scheduled values.
    pub(super) before: Arc<Plan>,
    /// The running flowgraph with the values in force, to which the new one is compared: values of the new one that are
    /// in force already leave scheduled ones as they are.
    pub(super) in_force: Arc<Plan>,
    /// Values that were scheduled then.
    pub(super) scheduled: Vec<ScheduledValue>,
    pub(super) after: Plan,
    /// The client that has sent the new flowgraph.
    pub(super) client: Client,
    /// Time limit of its longest swap.
    longest_swap: Duration,
}

/// Update of one block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockUpdate {
    /// Name of the block.
    pub block: String,
    /// Changed values.
    pub differences: Vec<Difference>,
    /// Step that makes the change.
    pub step: Step,
}

/// Step of an update for one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// No change.
    Same,
    /// Only the action of full queues changes, at once.
    Queue,
    /// Live update of parameters, at the timestamp of the whole update.
    LiveUpdate,
    /// Swap by this method.
    Swap(Way),
    /// The change needs a restart, for this reason.
    Restart(String),
}

impl Update {
    /// Returns all reasons for a restart; empty if the update can be made while frames flow.
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

    /// Returns the changes that do not take effect at the effective timestamp, with the reason.
    #[must_use]
    pub fn not_atomic(&self) -> Vec<String> {
        let is_held = |block: &&BlockUpdate| matches!(block.step, Step::Swap(Way::Held { .. }));
        let told = |block: &BlockUpdate| {
            format!(
                "`{}` has no outputs and is swapped before the effective timestamp",
                block.block
            )
        };
        self.blocks.iter().filter(is_held).map(told).collect()
    }

    /// Default time limit for the update, long enough for the new blocks to catch up.
    #[must_use]
    pub fn usual_limit(&self) -> Duration {
        USUAL.max(2 * self.longest_swap)
    }

    /// Returns the new flowgraph.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.after
    }

    /// Clock of the blocks that change at the effective timestamp; all of them have the same one.
    pub(super) fn clock(&self) -> Option<Clock> {
        let is_timed = |block: &&BlockUpdate| {
            matches!(block.step, Step::LiveUpdate | Step::Swap(Way::Seamless))
        };
        let name = &self.blocks.iter().find(is_timed)?.block;
        self.before.blocks[self.before.block(name)?].ports.clock().copied()
    }

    pub(super) fn updated(&self) -> Option<Request> {
        let updated = self.blocks.iter().filter(|block| block.step == Step::LiveUpdate);
        let parameters = |block: &BlockUpdate| {
            (block.block.clone(), parameters(&block.differences, |found| &found.to))
        };
        let request: HashMap<String, Map<String, Json>> = updated.map(parameters).collect();
        (!request.is_empty()).then(|| Request::printed(&json!(request)))
    }
}

/// Least time limit for an update.
const USUAL: Duration = Duration::from_secs(20);
/// Prefix of the key of a [`Difference`] of a parameter.
const PARAMETERS: &str = "parameters.";

impl Control {
    /// Reads and checks a whole flowgraph (YAML or JSON), and returns the update to it without making it.
    /// `set` gives its parameters as at a start. Includes are searched in the directory of the running
    /// flowgraph's file.
    pub fn update(&self, text: &str, set: &[Setting]) -> Result<Update, Rejected> {
        self.update_by(Client::Any, text, set)
    }

    /// Reads and checks an [`update`](Self::update) by `client`.
    pub fn update_by(
        &self,
        client: Client,
        text: &str,
        set: &[Setting],
    ) -> Result<Update, Rejected> {
        let before = self.plan();
        let (ground, name) =
            ((&*before.directory, &before.access_of(client)), Path::new("flowgraph"));
        let Loaded { sources, result, .. } = load_with(ground, name, text, set, self.registry());
        let after = result.map_err(|problems| Rejected { sources, problems })?;
        Ok(self.update_to(after, client))
    }

    /// Returns the update to `after`, which the owner of the process has loaded, without making it. The owner may name
    /// any files, and from now on clients may name these files, too. Waits up to `limit` for the end of another change.
    ///
    /// # Errors
    /// If the other change does not end in time.
    pub fn owners_update(&self, after: Plan, limit: Duration) -> Result<Update, UpdateError> {
        {
            // A change compares the plan when it ends with the one when it began.
            let _turn = self.begin_change(Instant::now() + limit)?;
            let plan = self.plan();
            if plan.access.is_limited() {
                let named = Arc::new(plan.with_files_of(&after, self.registry()));
                self.0.current.write().unwrap_or_else(PoisonError::into_inner).plan = named;
            }
        }
        Ok(self.update_to(after, Client::Any))
    }

    /// Returns the update to `after`.
    fn update_to(&self, after: Plan, client: Client) -> Update {
        let current = self.0.current();
        let before = Arc::clone(&current.plan);
        let (in_force, scheduled) = current.in_force(self.registry());
        let mut after = after.with_access_after(&before, client, self.registry());
        after.output_directory.clone_from(&before.output_directory);
        after.kernel_directory.clone_from(&before.kernel_directory);
        after.tuning = Arc::clone(&before.tuning);
        after.texts.clone_from(&before.texts);
        after.recorders.clone_from(&before.recorders);
        after.overloads.clone_from(&before.overloads);
        after.updates.clone_from(&before.updates);
        let mut restart_because = Vec::new();
        if after.name != before.name {
            let why =
                format!("the name of the flowgraph is `{}`, not `{}`", after.name, before.name);
            restart_because.push(why);
        }
        let (known, wanted) = (before.by_name(), after.by_name());
        let mut blocks: Vec<BlockUpdate> = visible(&in_force)
            .map(|old| match wanted.get(&*old.name) {
                Some(index) => {
                    self.block_update((&in_force, old), (&after, &after.blocks[*index]), client)
                }
                None => restart(&old.name, "it is removed"),
            })
            .collect();
        let new = visible(&after).filter(|block| !known.contains_key(&*block.name));
        blocks.extend(new.map(|block| restart(&block.name, "it is new")));
        // All changes without a restart share one timestamp.
        let is_timed = |block: &&BlockUpdate| {
            matches!(block.step, Step::LiveUpdate | Step::Swap(Way::Seamless))
        };
        let timed = blocks.iter().filter(is_timed);
        let timed: Vec<&PlannedBlock> = timed
            .filter_map(|block| Some(&before.blocks[*known.get(block.block.as_str())?]))
            .collect();
        restart_because.extend(clocks_differ(&timed).map(|problem| problem.message));
        let swapped = blocks.iter().filter(|block| matches!(block.step, Step::Swap(_)));
        let limit = |block: &BlockUpdate| {
            wanted.get(&*block.block).map(|index| catch_up_limit(&after.blocks[*index]))
        };
        let longest_swap = swapped.filter_map(limit).max().unwrap_or_default();
        Update { blocks, restart_because, before, in_force, scheduled, after, client, longest_swap }
    }

    fn block_update(
        &self,
        (before, old): (&Plan, &PlannedBlock),
        (after, new): (&Plan, &PlannedBlock),
        client: Client,
    ) -> BlockUpdate {
        let differences = differences(old, new);
        let of_block = differences.iter().filter(|difference| difference.key != WHEN_FULL);
        let of_block: Vec<Difference> = of_block.cloned().collect();
        let fixed = [
            (feeds(before, old) != feeds(after, new), "its inputs are connected differently"),
            (old.thread != new.thread, "its `thread` differs"),
            (old.queue != new.queue, "its queue length differs"),
            (old.device != new.device, "its device differs"),
            (old.shadow != new.shadow, "its `shadow` differs"),
        ];
        let step = if let Some((_, why)) = fixed.iter().find(|(is_other, _)| *is_other) {
            Step::Restart((*why).to_owned())
        } else if of_block.is_empty() {
            if differences.is_empty() { Step::Same } else { Step::Queue }
        } else if self.is_live(before, old, &of_block) {
            Step::LiveUpdate
        } else {
            match self.change_by(client, &old.name, request(old, new)) {
                Ok(Change { way: Way::Restart(why), .. }) => Step::Restart(why),
                Ok(Change { way: Way::LiveUpdate, .. }) => Step::LiveUpdate,
                Ok(change) => Step::Swap(change.way),
                Err(Rejected { problems, .. }) => Step::Restart(
                    problems.into_iter().next().map_or(String::new(), |problem| problem.message),
                ),
            }
        };
        BlockUpdate { block: old.name.clone(), differences, step }
    }

    /// Whether all `differences` are valid values of live parameters.
    pub(super) fn is_live(
        &self,
        plan: &Plan,
        block: &PlannedBlock,
        differences: &[Difference],
    ) -> bool {
        let Some(kind) = self.registry().get(block.kind) else { return false };
        let parameter = |difference: &Difference| {
            let name = difference.key.strip_prefix(PARAMETERS)?;
            let is_live = kind.live.contains(&name);
            is_live.then(|| (name.to_owned(), difference.to.clone()))
        };
        let Some(changed) = differences.iter().map(parameter).collect::<Option<Map<_, _>>>() else {
            return false;
        };
        let request = json!({ &block.name: changed });
        plan.live_update(self.registry(), &request, Undecided::new().when()).is_ok()
    }
}

/// Returns the names of the changed parameters with the values that `value` selects.
pub(super) fn parameters(
    differences: &[Difference],
    value: impl Fn(&Difference) -> &Json,
) -> Map<String, Json> {
    let of = |difference: &Difference| {
        let name = difference.key.strip_prefix(PARAMETERS)?;
        Some((name.to_owned(), value(difference).clone()))
    };
    differences.iter().filter_map(of).collect()
}

/// Returns the blocks in the file, without transfers.
fn visible(plan: &Plan) -> impl Iterator<Item = &PlannedBlock> {
    plan.blocks.iter().filter(|block| !block.is_transfer())
}

fn restart(block: &str, why: &str) -> BlockUpdate {
    let step = Step::Restart(why.to_owned());
    BlockUpdate { block: block.to_owned(), differences: Vec::new(), step }
}

/// Returns the names of blocks and outputs that a block reads, past transfers between devices.
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

/// Returns the change from `old` to `new`, as the text of a block. For a block of the same kind it has only the
/// parameters that differ.
pub(super) fn request(old: &PlannedBlock, new: &PlannedBlock) -> Request {
    let mut parameters = new.parameters.as_object().cloned().unwrap_or_default();
    if old.kind == new.kind {
        parameters.retain(|name, value| old.parameters.get(name) != Some(value));
        // Given parameters overwrite the current ones; null restores a default.
        let known = old.parameters.as_object().into_iter().flat_map(Map::keys);
        for name in known.filter(|name| new.parameters.get(name).is_none()) {
            parameters.insert(name.clone(), Json::Null);
        }
    }
    let request = json!({
        "kind": new.kind,
        "implementation": new.implementation,
        "on_fault": new.on_fault.name(),
        "parameters": parameters,
    });
    Request::printed(&request)
}
