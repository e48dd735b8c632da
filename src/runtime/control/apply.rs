//! Atomic updates: another flowgraph replaces the running one at one timestamp, completely or not at all.

use super::change::WHEN_FULL;
use super::errors::{Interim, SwapError, UpdateError};
use super::swap::{After, NotTogether};
use super::update::{parameters, request};
use super::{BlockUpdate, Change, Control, Step, Update, Way};
use crate::{Handle, RunState};
use fxgraph_core::changes::{Undecided, When};
use fxgraph_core::error::with_causes;
use fxgraph_core::event::EventKind;
use fxgraph_flowgraph::request::Request;
use fxgraph_flowgraph::{Plan, PlannedBlock};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Result of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Updated {
    /// Timestamp from which data are those of the new flowgraph, or `None` if no block differs, or only in its queues. A swapped block changes
    /// with its first frame that starts there or later; [`Update::not_atomic`] lists the exceptions.
    pub effective_timestamp: Option<u64>,
}

/// Way in which an update was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// While frames flow, or nothing differs.
    Updated(Updated),
    /// The flowgraph drains, or does not run; the new one follows.
    Restarting,
}

/// Sets the action of full queues where `update` changes it.
fn set_queues(update: &Update, run: &Handle) {
    for block in &update.blocks {
        let is_changed = block.differences.iter().any(|difference| difference.key == WHEN_FULL);
        let Some(index) = update.after.block(&block.block).filter(|_| is_changed) else { continue };
        let new = &update.after.blocks[index];
        run.set_when_full(&new.name, &new.when_full);
        let actions = new.when_full_json().unwrap_or_else(|| json!("wait"));
        run.tell(EventKind::LiveUpdate, Some(&new.name), format!("`{WHEN_FULL}` is {actions}"));
    }
}

impl Control {
    /// Makes an update as the state of the flowgraph allows: while frames flow, see [`apply`](Self::apply), or by a run of
    /// the new flowgraph, see [`request_other`](Self::request_other): if the flowgraph does not run, or if it
    /// `may_restart` and the update needs that.
    pub fn apply_or_restart(
        &self,
        update: &Update,
        may_restart: bool,
        limit: Duration,
        may_hold_up: bool,
    ) -> Result<Applied, UpdateError> {
        let is_still =
            matches!(self.state(), RunState::Prepared | RunState::Ended | RunState::Failed);
        if is_still || (may_restart && !update.obstacles().is_empty()) {
            self.request_other(update.plan().clone())?;
            return Ok(Applied::Restarting);
        }
        self.apply(update, limit, may_hold_up).map(Applied::Updated)
    }

    /// Makes an update while frames flow, atomically at one timestamp: new blocks catch up first, then blocks without
    /// outputs are swapped. When all new blocks are ready and the live values are scheduled, the timestamp is decided.
    /// An error before that affects only blocks without outputs, which are swapped back; an error after that lists
    /// the blocks that ran temporarily with the update. See [`swap`](Self::swap) for `limit`, which covers the whole
    /// update, and for `may_hold_up`. The result is an event, too.
    pub fn apply(
        &self,
        update: &Update,
        limit: Duration,
        may_hold_up: bool,
    ) -> Result<Updated, UpdateError> {
        let made = self.apply_quietly(update, limit, may_hold_up);
        let changed = update.blocks.iter().filter(|block| block.step != Step::Same).count();
        match &made {
            Ok(_) if changed == 0 => {}
            Ok(Updated { effective_timestamp }) => {
                let blocks =
                    if changed == 1 { "1 block".to_owned() } else { format!("{changed} blocks") };
                let from = effective_timestamp.map(|at| format!(" from timestamp {at} on"));
                self.tell(EventKind::Updated, None, &(blocks + &from.unwrap_or_default()));
            }
            Err(error) => self.tell(EventKind::NotUpdated, None, &with_causes(error)),
        }
        made
    }

    fn apply_quietly(
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
        let _turn = self.begin_change(deadline)?;
        let current = self.0.current();
        if !Arc::ptr_eq(&current.plan, &update.before) {
            return Err(UpdateError::Outdated);
        }
        // The head of the file is part of the configuration that frames refer to.
        let head = Arc::new(current.settled().with_head_of(&update.after));
        if update.blocks.iter().all(|block| block.step == Step::Same) {
            if update.after.config_hash == update.in_force.config_hash {
                // Only comments may differ.
                self.0.commit(&update.before, head, 0);
            }
            return Ok(Updated::default());
        }
        let changes = self.changes(update, Arc::clone(&head), &current.run)?;
        let is_held = |change: &&Change| matches!(change.way, Way::Held { .. });
        let (held, seamless): (Vec<&Change>, Vec<&Change>) = changes.iter().partition(is_held);
        let plan = changes.last().map_or(&*head, |change| &change.after);
        let mut replaced = Vec::new();
        let (mut after, mut changed) = (None, Vec::new());
        let made = self.swap_together(&seamless, Undecided::new(), deadline, may_hold_up, |when| {
            for change in held {
                self.replace_held(change, deadline)?;
                replaced.push(change.block.clone());
            }
            after = Some(if let Some(request) = update.updated() {
                let run = &current.run;
                let offered = self.offer_all(plan, run, request, (when, None), deadline)?;
                changed = offered.changed;
                offered.plan
            } else {
                current.run.say_config(when.config(plan.config_ids(0)));
                plan.clone()
            });
            Ok(())
        });
        let (cause, interim) = match (made, after) {
            (Ok(at), Some(after)) => {
                self.note_set(&after, &changed, at);
                let begun = update.clock().map(|clock| (clock, at));
                if !self.0.commit_begun(&update.before, Arc::new(after), at, begun) {
                    return Err(UpdateError::Outdated);
                }
                set_queues(update, &current.run);
                let names = update.blocks.iter().filter(|block| block.step == Step::LiveUpdate);
                let names: Vec<String> = names.map(|block| format!("`{}`", block.block)).collect();
                if !names.is_empty() {
                    let text = format!("{} from timestamp {at} on", names.join(", "));
                    current.run.tell(EventKind::LiveUpdate, None, text);
                }
                let is_timed =
                    |block: &BlockUpdate| matches!(block.step, Step::LiveUpdate | Step::Swap(_));
                let is_timed = update.blocks.iter().any(is_timed);
                return Ok(Updated { effective_timestamp: is_timed.then_some(at) });
            }
            (Ok(_), None) => return Err(UpdateError::Outdated),
            (Err(NotTogether::Before(cause)), _) => {
                if let UpdateError::Swap { block, source, .. } = &cause {
                    let text = with_causes(source);
                    current.run.tell(EventKind::NotSwapped, Some(block), text);
                }
                (cause, Interim { from: None, blocks: replaced })
            }
            (Err(NotTogether::After(failed)), after) => {
                let After { at, block, source, in_place } = *failed;
                let mut blocks = replaced;
                blocks.extend(in_place.iter().map(|change| change.block.clone()));
                let updated = update.blocks.iter().filter(|block| block.step == Step::LiveUpdate);
                if after.is_some() {
                    blocks.extend(updated.map(|block| block.block.clone()));
                }
                let interim = Some(Box::new(Interim { from: Some(at), blocks: blocks.clone() }));
                let cause = UpdateError::Swap { block, source, interim };
                (cause, Interim { from: Some(at), blocks })
            }
        };
        if interim.blocks.is_empty() {
            return Err(cause);
        }
        if let Err((block, source)) =
            self.undo(update, &current.run, &interim.blocks, limit, may_hold_up)
        {
            return Err(UpdateError::HalfMade { cause: Box::new(cause), block, source });
        }
        match cause {
            cause @ UpdateError::Swap { interim: Some(_), .. } => Err(cause),
            cause => Err(UpdateError::Undone { cause: Box::new(cause), interim }),
        }
    }

    /// Swaps a block without outputs.
    fn replace_held(&self, change: &Change, deadline: Instant) -> Result<(), UpdateError> {
        let Way::Held { ends_first } = change.way else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = change.usual_limit().min(left);
        let free = self.reject_shadowed(&change.block);
        free.and_then(|()| self.replace(change, ends_first, limit)).map_err(|source| {
            UpdateError::Swap { block: change.block.clone(), source, interim: None }
        })
    }

    /// Returns the swaps of `update`, each checked against the flowgraph after the previous one, the first one against
    /// `plan`.
    fn changes(
        &self,
        update: &Update,
        mut plan: Arc<Plan>,
        run: &Handle,
    ) -> Result<Vec<Change>, UpdateError> {
        let mut changes = Vec::new();
        for block in update.blocks.iter().filter(|block| matches!(block.step, Step::Swap(_))) {
            let pair = update.before.block(&block.block).zip(update.after.block(&block.block));
            let Some((old, new)) = pair else { continue };
            let request = request(&update.in_force.blocks[old], &update.after.blocks[new]);
            let change = self.change_of(plan, run.clone(), update.client, &block.block, request);
            let change = change.map_err(|_| UpdateError::Outdated)?;
            plan = Arc::new(change.after.clone());
            changes.push(change);
        }
        Ok(changes)
    }

    /// Restores `blocks` and their parameters to their state before `update`. The error names the first block that
    /// could not be restored.
    fn undo(
        &self,
        update: &Update,
        run: &Handle,
        blocks: &[String],
        limit: Duration,
        may_hold_up: bool,
    ) -> Result<(), (String, SwapError)> {
        let outdated = |name: &String| (name.clone(), SwapError::Outdated);
        let mut plan = Arc::clone(&update.before);
        let mut swapped = Vec::new();
        for name in blocks {
            let pair = update.before.block(name).zip(update.after.block(name));
            let Some((index, new)) = pair else { continue };
            let (old, new) = (&update.before.blocks[index], &update.after.blocks[new]);
            let known = update.blocks.iter().find(|block| block.block == *name);
            if !known.is_some_and(|block| matches!(block.step, Step::Swap(_))) {
                continue;
            }
            let request = request(&update.in_force.blocks[index], new);
            let change = self.change_of(plan, run.clone(), update.client, name, request);
            plan = Arc::new(change.map_err(|_| outdated(name))?.after);
            swapped.push((old, new));
        }
        let first = blocks.first().cloned().unwrap_or_default();
        if !self.0.commit(&update.before, plan, 0) {
            return Err((first, SwapError::Outdated));
        }
        let mut stays = None;
        for (old, new) in swapped.into_iter().rev() {
            let back = self.swap_to(new, old, Instant::now() + limit, may_hold_up);
            if let Err(source) = back {
                stays.get_or_insert((old.name.clone(), source));
            }
        }
        let is_updated =
            |block: &&BlockUpdate| block.step == Step::LiveUpdate && blocks.contains(&block.block);
        let request: HashMap<&str, Map<String, Json>> = update
            .blocks
            .iter()
            .filter(is_updated)
            .map(|block| {
                (
                    block.block.as_str(),
                    parameters(&block.differences, |difference| &difference.from),
                )
            })
            .collect();
        if !request.is_empty() {
            let request = Request::from(&json!(request).to_string());
            let back = self.live_update_alone(request, None, Instant::now() + limit);
            if back.is_err() {
                let name = update.blocks.iter().find(is_updated).map(|block| block.block.clone());
                stays.get_or_insert((name.unwrap_or(first.clone()), SwapError::Outdated));
            }
        }
        let is_updated =
            |name: &str| update.blocks.iter().filter(is_updated).any(|b| b.block == name);
        // Those that have passed since apply late.
        let scheduled = update.scheduled.iter().filter(|value| is_updated(&value.block));
        let mut by_time: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        scheduled.for_each(|value| by_time.entry(value.timestamp).or_default().push(value));
        for (at, values) in by_time {
            let mut request = json!({});
            for value in &values {
                request[&value.block][value.parameter] = value.value.clone();
            }
            let request = Request::from(&request.to_string());
            if self.live_update_alone(request, Some(at), Instant::now() + limit).is_err() {
                stays.get_or_insert((values[0].block.clone(), SwapError::Outdated));
            }
        }
        if let Some(stays) = stays {
            return Err(stays);
        }
        run.say_config(When::at(0).config(update.before.config_ids(0)));
        self.0.commit(&self.plan(), Arc::clone(&update.before), 0);
        Ok(())
    }

    /// Swaps the block `old` for `new`.
    fn swap_to(
        &self,
        old: &PlannedBlock,
        new: &PlannedBlock,
        deadline: Instant,
        may_hold_up: bool,
    ) -> Result<(), SwapError> {
        // This change was checked with the update, and no other change is made meanwhile.
        let mut change =
            self.change(&old.name, request(old, new)).map_err(|_| SwapError::Outdated)?;
        if !new.pending.is_empty() {
            // A restored block has its scheduled values again.
            change.after.blocks[change.index].pending.clone_from(&new.pending);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.swap_alone(&change, change.usual_limit().min(left), may_hold_up)
    }
}
