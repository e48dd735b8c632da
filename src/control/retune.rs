//! Parameters of running blocks, changed as one transaction that takes effect at one timestamp.

use super::Control;
use crate::block::BlockError;
use crate::diagnostic::{Diagnostic, codes};
use crate::flowgraph::{Plan, PlannedBlock, Refused, Sources};
use crate::port::Clock;
use crate::retune::{LiveValue, MAX_TIMESTAMP, Undecided, When};
use crate::runtime::{EventKind, Unanswered, with_causes};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
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
    #[error("another change is being made")]
    Busy,
}

/// How often it is looked whether another change is done.
const TICK: Duration = Duration::from_millis(1);

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
        let plan = self.settled_plan();
        let moment = Undecided::new();
        let retuned =
            plan.retune(&self.0.registry, request, moment.when()).map_err(RetuneError::Refused)?;
        let named: Vec<&PlannedBlock> = retuned
            .blocks
            .iter()
            .filter_map(|(name, _)| plan.blocks.get(plan.block(name)?))
            .collect();
        if let Some(problem) = beyond(at).or_else(|| clocks_differ(&named)) {
            let refused = Refused { sources: Sources::default(), problems: vec![problem] };
            return Err(RetuneError::Refused(refused));
        }
        let config_id = retuned.plan.config_id();
        // Blocks that do not change make frames of another flowgraph too.
        let is_named = |block: &&PlannedBlock| named.iter().any(|other| other.name == block.name);
        for block in plan.blocks.iter().filter(|block| !is_named(block)) {
            let config = moment.when().config(config_id);
            self.0.run().tell_block(&block.name, move |hosted| hosted.expect(&config));
        }
        // First, so that one that is built anew before the decision knows of the offer too.
        self.rebuild_as(&retuned.plan, &named);
        if let Err(error) = self.offer(retuned.blocks, moment.when(), config_id, deadline) {
            self.rebuild_as(&plan, &named);
            return Err(error);
        }
        let effective_timestamp = moment.decide(at.unwrap_or_default());
        *self.0.plan.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(retuned.plan);
        let before = self.0.steady_state.fetch_max(effective_timestamp, Ordering::AcqRel);
        let is_late = at.is_some_and(|at| at < effective_timestamp);
        let late = if is_late { ", later than asked for" } else { "" };
        let names: Vec<String> = named.iter().map(|block| format!("`{}`", block.name)).collect();
        let from = match effective_timestamp {
            // No block has begun with any sample.
            0 => "from the first sample on".to_owned(),
            at => format!("from timestamp {at} on"),
        };
        let text = format!("{} {from}{late}", names.join(", "));
        let only = if let [block] = named.as_slice() { Some(&*block.name) } else { None };
        self.0.run().tell(EventKind::Retuned, only, text);
        Ok(Retuned {
            effective_timestamp,
            is_late,
            steady_state_timestamp: before.max(effective_timestamp),
            config_id,
        })
    }

    /// Offers blocks their new values.
    fn offer(
        &self,
        blocks: Vec<(String, Vec<(&'static str, LiveValue)>)>,
        when: &When,
        config_id: u64,
        deadline: Instant,
    ) -> Result<(), RetuneError> {
        for (block, values) in blocks {
            let (change, config) = (when.change(values), when.config(config_id));
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = self.0.run().ask(&block, left, move |hosted| {
                hosted.block.retune(change)?;
                hosted.expect(&config);
                Ok(())
            })?;
            answer.map_err(|source| RetuneError::Block { block, source })?;
        }
        Ok(())
    }

    /// Has those of `blocks` that are built anew be as they are in `plan`.
    fn rebuild_as(&self, plan: &Plan, blocks: &[&PlannedBlock]) {
        for block in blocks {
            let Some(index) = plan.block(&block.name) else { continue };
            self.0.run().set_rebuild(&block.name, |belongings| plan.rebuild(index, belongings));
        }
    }

    /// The flowgraph that runs, as it is to be started anew: live values that have come hold from the
    /// start, those that wait for their timestamps still wait.
    #[must_use]
    pub fn settled_plan(&self) -> Arc<Plan> {
        let plan = self.plan();
        if plan.blocks.iter().all(|block| block.pending.is_empty()) {
            return plan;
        }
        let mut settled = Plan::clone(&plan);
        for stats in self.stats() {
            let block = settled.blocks.iter_mut().find(|block| block.name == stats.name);
            if let (Some(block), Some(newest)) = (block, stats.newest_timestamp) {
                block.pending.settle(newest);
            }
        }
        Arc::new(settled)
    }

    /// What blocks make from this timestamp on reflects every change that was made so far.
    #[must_use]
    pub fn steady_state_timestamp(&self) -> u64 {
        self.0.steady_state.load(Ordering::Acquire)
    }

    /// Keeps other changes off while one is made.
    pub(super) fn begin_change(
        &self,
        deadline: Instant,
    ) -> Result<MutexGuard<'_, ()>, RetuneError> {
        loop {
            match self.0.changing.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(guard)) => return Ok(guard.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(TICK);
                }
                Err(TryLockError::WouldBlock) => return Err(RetuneError::Busy),
            }
        }
    }
}

fn beyond(at: Option<u64>) -> Option<Diagnostic> {
    let at = at.filter(|at| *at >= MAX_TIMESTAMP)?;
    let message = format!("timestamp {at} will never come");
    let problem = Diagnostic::nowhere(codes::PARAMETER_OUT_OF_RANGE, message);
    Some(problem.help("timestamps are ADC samples since sync time"))
}

/// What is to be said if one timestamp means several times.
fn clocks_differ(blocks: &[&PlannedBlock]) -> Option<Diagnostic> {
    let clock = |block: &PlannedBlock| {
        let port = block.ports.outputs.first().or(block.ports.inputs.first())?;
        let Clock { adc_sample_rate_hz, sync_time_seconds, .. } = port.clock;
        Some((adc_sample_rate_hz.to_bits(), sync_time_seconds.to_bits()))
    };
    let (first, others) = blocks.split_first()?;
    let other = others.iter().find(|other| clock(other) != clock(first))?;
    let message = format!("`{}` and `{}` have different clocks", first.name, other.name);
    let problem = Diagnostic::nowhere(codes::RATE, message);
    Some(problem.help("change them one after the other, each at a timestamp of its own clock"))
}
