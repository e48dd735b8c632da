//! Parameters of running blocks, changed as one transaction that takes effect at one timestamp.

use super::turns::Turn;
use super::{Control, Current};
use crate::{Handle, Unanswered};
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, codes};
use fxgraph_core::error::BlockError;
use fxgraph_core::error::with_causes;
use fxgraph_core::event::EventKind;
use fxgraph_core::port::Clock;
use fxgraph_core::retune::{LiveValue, MAX_TIMESTAMP, Undecided, When};
use fxgraph_flowgraph::{Plan, PlannedBlock, Refused};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What came of a change of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retuned {
    /// The change holds for whatever the blocks make of samples from this timestamp on: an ADC
    /// sample of the simulator, a spectrum that starts there.
    pub effective_timestamp: u64,
    /// The timestamp that was asked for had passed at one of the blocks.
    pub is_late: bool,
    /// What the blocks make from this timestamp on reflects all changes up to this one.
    pub steady_state_timestamp: u64,
    /// What headers of frames carry that start there or later.
    pub config_id: u64,
}

/// Why parameters were not changed; all of them are as they were.
#[derive(Debug, thiserror::Error)]
pub enum RetuneError {
    /// The values are wrong, or cannot change.
    #[error("{}", .0.problems.first().map_or("the change was refused", |first| &first.message))]
    Refused(Refused),
    /// A block did not take its values.
    #[error("`{block}` did not take its values: {}", with_causes(.source))]
    Block {
        /// Name of the block.
        block: String,
        /// Why.
        source: BlockError,
    },
    /// A block did not answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// Another change was being made for all of the time limit.
    #[error("other changes are being made, and this one had no turn in time")]
    Busy,
    /// The flowgraph was restarted meanwhile.
    #[error("the flowgraph was restarted meanwhile")]
    Outdated,
}

impl Control {
    /// Changes live parameters of running blocks, all of them or none: `request` is a mapping (YAML or
    /// JSON) of names of blocks to those of their parameters that change, as
    /// `{"f[0].postproc": {"gains": 2}}`.
    ///
    /// The change takes effect in all of these blocks at timestamp `at` (ADC samples since sync
    /// time), or, without one or if that has passed, behind the newest samples that any of them has
    /// begun to work on. Several changes may wait for their timestamps; a later one replaces what was to
    /// come to the same parameter at its timestamp or after it.
    ///
    /// The call returns within about `limit`, and does not wait for the timestamp. The plan shows the
    /// new values at once.
    pub fn retune(
        &self,
        request: &str,
        at: Option<u64>,
        limit: Duration,
    ) -> Result<Retuned, RetuneError> {
        let deadline = Instant::now() + limit;
        let _only_change = self.begin_change(deadline)?;
        self.retune_alone(request, at, deadline)
    }

    /// [`retune`](Self::retune) while no other change is made.
    pub(super) fn retune_alone(
        &self,
        request: &str,
        at: Option<u64>,
        deadline: Instant,
    ) -> Result<Retuned, RetuneError> {
        let current = self.0.current();
        let run = &current.run;
        let moment = Undecided::new();
        let offered =
            self.offer_all(&current.settled(), run, request, (moment.when(), at), deadline)?;
        let effective_timestamp = moment.decide(at.unwrap_or_default());
        let Offered { plan: retuned, names } = offered;
        let config_id = retuned.config_id();
        if !self.0.commit(&current.plan, Arc::new(retuned), effective_timestamp) {
            return Err(RetuneError::Outdated);
        }
        let is_late = at.is_some_and(|at| at < effective_timestamp);
        let late = if is_late { ", later than asked for" } else { "" };
        let from = match effective_timestamp {
            // No block has begun with any sample.
            0 => "from the first sample on".to_owned(),
            at => format!("from timestamp {at} on"),
        };
        let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let text = format!("{} {from}{late}", quoted.join(", "));
        let only = if let [block] = names.as_slice() { Some(block.as_str()) } else { None };
        run.tell(EventKind::Retuned, only, text);
        Ok(Retuned {
            effective_timestamp,
            is_late,
            steady_state_timestamp: current.steady_state.max(effective_timestamp),
            config_id,
        })
    }

    /// Offers the blocks of `plan` what `request` has for them, to hold from a moment on, and has frames carry the
    /// configuration of that.
    pub(super) fn offer_all(
        &self,
        plan: &Plan,
        run: &Handle,
        request: &str,
        (when, at): (&When, Option<u64>),
        deadline: Instant,
    ) -> Result<Offered, RetuneError> {
        let retuned = plan.retune(&self.0.registry, request, when).map_err(RetuneError::Refused)?;
        let named: Vec<&PlannedBlock> = retuned
            .blocks
            .iter()
            .filter_map(|(name, _)| plan.blocks.get(plan.block(name)?))
            .collect();
        if let Some(problem) = beyond(at).or_else(|| clocks_differ(&named)) {
            let refused = Refused { sources: Sources::default(), problems: vec![problem] };
            return Err(RetuneError::Refused(refused));
        }
        // Before the offers: frames with new values carry it. Blocks that do not change make frames of
        // another flowgraph too.
        run.say_config(when.config(retuned.plan.config_id()));
        // First, so that one that is built anew before the decision knows of the offer too.
        rebuild_as(run, &retuned.plan, &named);
        if let Err(error) = offer(run, retuned.blocks, when, deadline) {
            rebuild_as(run, plan, &named);
            return Err(error);
        }
        let names = named.iter().map(|block| block.name.clone()).collect();
        Ok(Offered { plan: retuned.plan, names })
    }

    /// The flowgraph that runs, as it is to be started anew: live values that have come hold from the
    /// start, those that wait for their timestamps still wait.
    #[must_use]
    pub fn settled_plan(&self) -> Arc<Plan> {
        self.0.current().settled()
    }

    /// What blocks make from this timestamp on reflects every change that was made so far.
    #[must_use]
    pub fn steady_state_timestamp(&self) -> u64 {
        self.0.current().steady_state
    }

    /// Keeps other changes off while one is made.
    pub(super) fn begin_change(&self, deadline: Instant) -> Result<Turn<'_>, RetuneError> {
        self.0.turns.take(deadline).ok_or(RetuneError::Busy)
    }
}

/// What blocks were offered.
pub(super) struct Offered {
    /// The flowgraph with it.
    pub plan: Plan,
    /// Names of the blocks.
    names: Vec<String>,
}

impl Current {
    pub(super) fn settled(&self) -> Arc<Plan> {
        if self.plan.blocks.iter().all(|block| block.pending.is_empty()) {
            return Arc::clone(&self.plan);
        }
        let mut settled = Plan::clone(&self.plan);
        for stats in self.run.stats() {
            let block = settled.blocks.iter_mut().find(|block| block.name == stats.name);
            if let Some(block) = block {
                block.pending.settle(stats.newest_timestamp.unwrap_or_default());
            }
        }
        Arc::new(settled)
    }
}

/// Offers blocks their new values.
fn offer(
    run: &Handle,
    blocks: Vec<(String, Vec<(&'static str, LiveValue)>)>,
    when: &When,
    deadline: Instant,
) -> Result<(), RetuneError> {
    for (block, values) in blocks {
        let change = when.change(values);
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = run.ask(&block, left, move |hosted| hosted.offer(change))?;
        answer.map_err(|source| RetuneError::Block { block, source })?;
    }
    Ok(())
}

/// Has those of `blocks` that are built anew be as they are in `plan`.
fn rebuild_as(run: &Handle, plan: &Plan, blocks: &[&PlannedBlock]) {
    for block in blocks {
        let Some(index) = plan.block(&block.name) else { continue };
        run.set_rebuild(&block.name, |belongings| plan.rebuild(index, belongings));
    }
}

fn beyond(at: Option<u64>) -> Option<Diagnostic> {
    let at = at.filter(|at| *at >= MAX_TIMESTAMP)?;
    let message = format!("timestamp {at} will never come");
    let problem = Diagnostic::nowhere(codes::PARAMETER_OUT_OF_RANGE, message);
    Some(problem.help("timestamps are ADC samples since sync time"))
}

/// What is to be said if one timestamp means several times.
pub(super) fn clocks_differ(blocks: &[&PlannedBlock]) -> Option<Diagnostic> {
    let (first, others) = blocks.split_first()?;
    let clock = first.ports.clock()?;
    let differs = |other: &Clock| !other.counts_alike(clock);
    let other = others.iter().find(|other| other.ports.clock().is_some_and(differs))?;
    let message = format!("`{}` and `{}` have different clocks", first.name, other.name);
    let problem = Diagnostic::nowhere(codes::RATE, message);
    Some(problem.help("change them one after the other, each at a timestamp of its own clock"))
}
