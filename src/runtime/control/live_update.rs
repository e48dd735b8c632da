//! Live updates: changes of parameters of running blocks, as one transaction with one effective timestamp.

use super::turns::Turn;
use super::{Control, Current};
use crate::{Handle, RunState, Unanswered};
use fxgraph_core::TimeBase;
use fxgraph_core::changes::{LiveValue, MAX_TIMESTAMP, Undecided, When};
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, codes};
use fxgraph_core::error::BlockError;
use fxgraph_core::error::with_causes;
use fxgraph_core::event::EventKind;
use fxgraph_core::kind::Effect;
use fxgraph_core::port::Clock;
use fxgraph_flowgraph::request::Request;
use fxgraph_flowgraph::{Plan, PlannedBlock, Rejected, Replaced};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Result of a live update.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveUpdate {
    /// Timestamp from which the new values apply: from this ADC sample of a simulator on, or from the first
    /// spectrum that starts at or after it.
    pub effective_timestamp: u64,
    /// Whether one of the blocks had already passed the requested timestamp.
    pub is_late: bool,
    /// Timestamp from which all output of the blocks reflects all changes up to this one.
    pub steady_state_timestamp: u64,
    /// Configuration number in the headers of frames that start at the effective timestamp or later, until further
    /// values take effect.
    pub config_id: u64,
    /// Time in seconds from the newest sample that a block has processed to the effective timestamp; 0 if the block is
    /// past it, `None` before the first sample.
    pub seconds_ahead: Option<f64>,
    /// How values are understood, by block and parameter, where the value itself does not say so.
    pub understood: Statements,
}

/// Statements about parameters, by block and parameter.
pub type Statements = BTreeMap<String, BTreeMap<String, serde_json::Value>>;

/// The blocks of a prepared update.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    /// Timestamp after the newest sample that a block has processed; `None` before the first one.
    pub newest_timestamp: Option<u64>,
    /// Clock of the blocks, if they have ports.
    pub clock: Option<Clock>,
}

/// Reason why a live update was not made; all parameters keep their values.
#[derive(Debug, thiserror::Error)]
pub enum LiveUpdateError {
    /// The values are invalid, or the parameters are not live.
    #[error("{}", .0.problems.first().map_or("invalid values", |first| &first.message))]
    Rejected(Rejected),
    /// A block rejected its values.
    #[error("`{block}` rejected its new values: {}", with_causes(.source))]
    Block {
        /// Name of the block.
        block: String,
        /// Error of the block.
        source: BlockError,
    },
    /// A block did not answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// Other changes were in progress until the time limit.
    #[error("other changes are in progress; this change timed out waiting for them")]
    Busy,
    /// The flowgraph has not started.
    #[error("the flowgraph has not started: live parameters change while it runs")]
    NotStarted,
    /// Blocks have passed the timestamp of a prepared update.
    #[error("timestamp {at} has passed: blocks have begun samples up to {begun}")]
    Passed {
        /// The requested timestamp.
        at: u64,
        /// End of the samples that blocks have begun.
        begun: u64,
    },
    /// Blocks have passed the timestamp of an update that a client takes back, and a later change may have set its values.
    #[error(
        "timestamp {at} has passed, and it is unknown whether a later change has set the values of the update"
    )]
    Unclear {
        /// Timestamp of the update.
        at: u64,
    },
    /// The flowgraph was restarted meanwhile.
    #[error("the flowgraph was restarted during the change")]
    Outdated,
}

impl Control {
    /// Changes live parameters of running blocks, all of them or none. `request` is a mapping from block names to the changed parameters, for example `{"f[0].postproc": {"gains": 2}}`.
    ///
    /// The new values apply in all these blocks from timestamp `at` (ADC samples since sync time) on.
    /// Without `at`, or if it has passed, they apply after the newest samples that any of the blocks has
    /// begun to work on. Several updates may be scheduled; a later one replaces scheduled values of the
    /// same parameter at or after its timestamp.
    ///
    /// The call returns within about `limit`, and does not wait for the effective timestamp. The [plan](Self::plan)
    /// shows the new values at once, the [plan in force](Self::plan_in_force) from the effective timestamp on.
    ///
    /// # Errors
    /// If the values are rejected, if a block does not answer, or if the flowgraph does not run.
    pub fn live_update(
        &self,
        request: impl Into<Request>,
        at: Option<u64>,
        limit: Duration,
    ) -> Result<LiveUpdate, LiveUpdateError> {
        let deadline = Instant::now() + limit;
        let _only_change = self.begin_change(deadline)?;
        self.live_update_alone(request.into(), at, deadline)
    }

    /// Prepares a [`live_update`](Self::live_update), and asks `decide` for its timestamp: the blocks have accepted the new values,
    /// and go on with the old ones. `decide` receives their newest timestamp and their clock; without a timestamp, nothing changes.
    ///
    /// So several flowgraphs make one update at one timestamp, all or none. Other changes wait until `decide` returns.
    /// [`take_back`](Self::take_back) takes the update back with the values that it has replaced.
    ///
    /// # Errors
    /// If the values are rejected, or if a block has passed the timestamp; then nothing changes.
    pub fn live_update_prepared(
        &self,
        request: impl Into<Request>,
        limit: Duration,
        decide: impl FnOnce(Prepared) -> Option<u64>,
    ) -> Result<Option<(LiveUpdate, Replaced)>, LiveUpdateError> {
        let deadline = Instant::now() + limit;
        let _only_change = self.begin_change(deadline)?;
        let current = self.0.current();
        let run = &current.run;
        if run.state() == RunState::Prepared {
            return Err(LiveUpdateError::NotStarted);
        }
        let settled = current.settled();
        let moment = Undecided::new();
        let when = moment.when().clone();
        let offered = self.offer_all(&settled, run, request.into(), (&when, None), deadline)?;
        let named: Vec<&PlannedBlock> = offered
            .names
            .iter()
            .filter_map(|name| settled.blocks.get(settled.block(name)?))
            .collect();
        let newest = offered.names.iter().filter_map(|name| run.newest_timestamp(name));
        let prepared = Prepared {
            newest_timestamp: newest.max(),
            clock: named.first().and_then(|block| block.ports.clock().copied()),
        };
        let decided = match decide(prepared) {
            Some(at) => exactly(moment, at).map(|()| Some(at)),
            None => Ok(None),
        };
        match decided {
            Ok(Some(at)) => {
                let replaced = offered.plan.replaced(&settled, &when);
                let made = self.made(&current, offered, Some(at), at)?;
                Ok(replaced.map(|replaced| (made, replaced)))
            }
            other => {
                rebuild_as(run, &settled, &named);
                other.map(|_| None)
            }
        }
    }

    /// Makes a [`live_update`](Self::live_update); the caller holds the turn.
    pub(super) fn live_update_alone(
        &self,
        request: Request,
        at: Option<u64>,
        deadline: Instant,
    ) -> Result<LiveUpdate, LiveUpdateError> {
        let current = self.0.current();
        let run = &current.run;
        if run.state() == RunState::Prepared {
            return Err(LiveUpdateError::NotStarted);
        }
        let moment = Undecided::new();
        let offered =
            self.offer_all(&current.settled(), run, request, (moment.when(), at), deadline)?;
        let effective_timestamp = moment.decide(at.unwrap_or_default());
        self.made(&current, offered, at, effective_timestamp)
    }

    /// Notes an update whose timestamp is decided.
    pub(super) fn made(
        &self,
        current: &Current,
        offered: Offered,
        at: Option<u64>,
        effective_timestamp: u64,
    ) -> Result<LiveUpdate, LiveUpdateError> {
        let run = &current.run;
        let Offered { plan: updated, names, changed } = offered;
        let understood = statements(&updated, &changed, effective_timestamp);
        self.note_set(&updated, &changed, effective_timestamp);
        let config_id = updated.config_id_at(effective_timestamp);
        let clock =
            names.first().and_then(|name| updated.blocks[updated.block(name)?].ports.clock());
        let clock = clock.copied();
        let is_late = at.is_some_and(|at| at < effective_timestamp);
        // Otherwise the timestamp is that of the request, which no block may have reached.
        let is_begun = is_late || at.is_none();
        let ahead = clock.and_then(|clock| current.seconds_to(effective_timestamp, &clock));
        let begun = clock.filter(|_| is_begun).map(|clock| (clock, effective_timestamp));
        if !self.0.commit_begun(&current.plan, Arc::new(updated), 0, begun) {
            return Err(LiveUpdateError::Outdated);
        }
        let late = if is_late { ", later than requested" } else { "" };
        let from = match effective_timestamp {
            // No block has begun to work on any sample.
            0 => "from the first sample on".to_owned(),
            at => format!("from timestamp {at} on"),
        };
        let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let text = format!("{} {from}{late}", quoted.join(", "));
        let only = if let [block] = names.as_slice() { Some(block.as_str()) } else { None };
        run.tell(EventKind::LiveUpdate, only, text);
        Ok(LiveUpdate {
            effective_timestamp,
            is_late,
            steady_state_timestamp: self.steady_state_timestamp().max(effective_timestamp),
            config_id,
            seconds_ahead: ahead.map(|ahead| if is_begun { 0.0 } else { ahead }),
            understood,
        })
    }

    /// Schedules the values in `request` in the blocks of `plan`, from the timestamp `when` on, and the configuration
    /// number in all frames.
    pub(super) fn offer_all(
        &self,
        plan: &Plan,
        run: &Handle,
        request: Request,
        (when, at): (&When, Option<u64>),
        deadline: Instant,
    ) -> Result<Offered, LiveUpdateError> {
        let updated =
            plan.live_update(&self.0.registry, request, when).map_err(LiveUpdateError::Rejected)?;
        let named: Vec<&PlannedBlock> = updated
            .blocks
            .iter()
            .filter_map(|(name, _)| plan.blocks.get(plan.block(name)?))
            .collect();
        let unfitting = || plan.unfitting_inputs(&updated.plan).into_iter().next();
        if let Some(problem) = beyond(at).or_else(|| clocks_differ(&named)).or_else(unfitting) {
            let rejected = Rejected { sources: Sources::default(), problems: vec![problem] };
            return Err(LiveUpdateError::Rejected(rejected));
        }
        // Before the offers, so that all frames with new values carry the new configuration number. Frames of blocks
        // without changes carry it too.
        run.say_config(when.config(updated.plan.config_ids(at.unwrap_or_default())));
        // Before the offers, so that a block restarted before the decision has the new values too.
        rebuild_as(run, &updated.plan, &named);
        let changed = match offer(run, updated.blocks, when, deadline) {
            Ok(changed) => changed,
            Err(error) => {
                rebuild_as(run, plan, &named);
                return Err(error);
            }
        };
        let names = named.iter().map(|block| block.name.clone()).collect();
        Ok(Offered { plan: updated.plan, names, changed })
    }

    /// Returns the running flowgraph for a restart: live values that have taken effect apply from the start,
    /// scheduled values stay scheduled.
    #[must_use]
    pub fn settled_plan(&self) -> Arc<Plan> {
        self.0.current().settled()
    }

    /// Timestamp from which all output of the blocks reflects every change so far.
    #[must_use]
    pub fn steady_state_timestamp(&self) -> u64 {
        self.0.current().steady_state_timestamp()
    }

    /// Waits for the turn to make a change; no other change is made until the turn is dropped.
    pub(super) fn begin_change(&self, deadline: Instant) -> Result<Turn<'_>, LiveUpdateError> {
        self.0.turns.take(deadline).ok_or(LiveUpdateError::Busy)
    }
}

/// New values that were scheduled in blocks.
pub(super) struct Offered {
    /// The flowgraph with the new values.
    pub plan: Plan,
    /// Names of the blocks.
    pub names: Vec<String>,
    /// Changed parameters, by block.
    pub changed: Vec<Changed>,
}

/// Changed parameters of a block.
pub(super) struct Changed {
    pub block: String,
    pub parameters: Vec<&'static str>,
    /// Time base of the newest frame that the block has taken.
    base: TimeBase,
}

/// Statements about values of `plan` that take effect at timestamp `from`.
fn statements(plan: &Plan, changed: &[Changed], from: u64) -> Statements {
    let mut all = Statements::new();
    for Changed { block, parameters, base } in changed {
        let Some(planned) = plan.block(block).and_then(|index| plan.blocks.get(index)) else {
            continue;
        };
        let effect = Effect { from, base: *base };
        for parameter in parameters {
            if let Some(value) = planned.configured.live_statement(parameter, &effect) {
                let of_block = all.entry(block.clone()).or_default();
                of_block.insert((*parameter).to_owned(), value);
            }
        }
    }
    all
}

/// Schedules new values in blocks.
fn offer(
    run: &Handle,
    blocks: Vec<(String, Vec<(&'static str, LiveValue)>)>,
    when: &When,
    deadline: Instant,
) -> Result<Vec<Changed>, LiveUpdateError> {
    let mut changed = Vec::with_capacity(blocks.len());
    for (block, values) in blocks {
        let parameters = values.iter().map(|(parameter, _)| *parameter).collect();
        let change = when.change(values);
        let left = deadline.saturating_duration_since(Instant::now());
        let answer =
            run.ask(&block, left, move |hosted| hosted.offer(change).map(|()| hosted.base()))?;
        match answer {
            Ok(base) => changed.push(Changed { block, parameters, base }),
            Err(source) => return Err(LiveUpdateError::Block { block, source }),
        }
    }
    Ok(changed)
}

/// Sets how `blocks` are recreated at a restart: with their values in `plan`.
pub(super) fn rebuild_as(run: &Handle, plan: &Plan, blocks: &[&PlannedBlock]) {
    for block in blocks {
        let Some(index) = plan.block(&block.name) else { continue };
        run.set_rebuild(&block.name, |belongings| plan.rebuild(index, belongings));
    }
}

fn beyond(at: Option<u64>) -> Option<Diagnostic> {
    let at = at.filter(|at| *at >= MAX_TIMESTAMP)?;
    let message = format!("the timestamp must be below {MAX_TIMESTAMP}, got {at}");
    let problem = Diagnostic::nowhere(codes::PARAMETER_OUT_OF_RANGE, message);
    Some(problem.help("give the timestamp in ADC samples since sync time"))
}

/// Decides the effective timestamp `at` of a prepared update.
fn exactly(moment: Undecided, at: u64) -> Result<(), LiveUpdateError> {
    if let Some(problem) = beyond(Some(at)) {
        let rejected = Rejected { sources: Sources::default(), problems: vec![problem] };
        return Err(LiveUpdateError::Rejected(rejected));
    }
    moment.decide_exactly(at).map_err(|begun| LiveUpdateError::Passed { at, begun })
}

/// Returns a diagnostic if the blocks have different clocks, so that one timestamp would mean several times.
pub(super) fn clocks_differ(blocks: &[&PlannedBlock]) -> Option<Diagnostic> {
    let (first, others) = blocks.split_first()?;
    let clock = first.ports.clock()?;
    let differs = |other: &Clock| !other.counts_alike(clock);
    let other = others.iter().find(|other| other.ports.clock().is_some_and(differs))?;
    let message = format!("`{}` and `{}` have different clocks", first.name, other.name);
    let problem = Diagnostic::nowhere(codes::RATE, message);
    Some(problem.help("change them in separate requests, each at a timestamp of its own clock"))
}
