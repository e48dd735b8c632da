//! Values in force while others are scheduled.

use super::Current;
use crate::Handle;
use fxgraph_core::changes::When;
use fxgraph_core::kind::Registry;
use fxgraph_core::port::Clock;
use fxgraph_flowgraph::{Plan, PlannedBlock, ScheduledValue};
use std::sync::Arc;

/// Newest timestamp of the data, for each clock of the flowgraph.
#[derive(Clone, Debug, Default)]
pub(super) struct Newest(Vec<(Clock, u64)>);

impl Newest {
    /// Notes that data up to timestamp `until` of `clock` exist.
    pub fn reach(&mut self, clock: &Clock, until: u64) {
        match self.0.iter_mut().find(|(known, _)| known.counts_alike(clock)) {
            Some((_, newest)) => *newest = until.max(*newest),
            None => self.0.push((*clock, until)),
        }
    }

    /// Newest timestamp of `clock`; `None` before the first data.
    fn at(&self, clock: &Clock) -> Option<u64> {
        self.0.iter().find(|(known, _)| known.counts_alike(clock)).map(|(_, newest)| *newest)
    }

    /// Newest timestamp of the clock of `block`; 0 before the first data.
    pub fn of(&self, block: &PlannedBlock) -> u64 {
        block.ports.clock().and_then(|clock| self.at(clock)).unwrap_or_default()
    }
}

impl Current {
    /// The run `run` of `plan` from its start.
    pub(super) fn new(plan: Plan, run: Handle) -> Self {
        let ids = plan.config_ids(0);
        if !plan.is_settled() {
            // A value may take effect before the first change of the run.
            run.say_config(When::at(0).config(ids));
        }
        let began_with = plan.config_hash.as_str().into();
        Self { plan: Arc::new(plan), began_with, run, steady_state: 0, begun: Newest::default() }
    }

    /// Newest timestamps of the data: those of the block that is furthest.
    pub(super) fn newest(&self) -> Newest {
        let mut newest = self.begun.clone();
        for block in &self.plan.blocks {
            let until = self.run.newest_timestamp(&block.name);
            if let (Some(clock), Some(until)) = (block.ports.clock(), until) {
                newest.reach(clock, until);
            }
        }
        newest
    }

    /// The plan with the values in force at the newest timestamps, and the values that take effect later.
    pub(super) fn in_force(&self, registry: &Registry) -> (Arc<Plan>, Vec<ScheduledValue>) {
        let newest = self.newest();
        let scheduled = self.plan.scheduled(|block| newest.of(block));
        if scheduled.is_empty() {
            return (Arc::clone(&self.plan), scheduled);
        }
        (Arc::new(self.plan.in_force(registry, |block| newest.of(block))), scheduled)
    }

    /// The plan without the scheduled values that have taken effect in their blocks, which are the values of the
    /// blocks now.
    pub(super) fn settled(&self) -> Arc<Plan> {
        if self.plan.is_settled() {
            return Arc::clone(&self.plan);
        }
        let mut settled = Plan::clone(&self.plan);
        for block in settled.blocks.iter_mut().filter(|block| !block.pending.is_empty()) {
            let newest = self.run.newest_timestamp(&block.name);
            block.pending.settle(newest.unwrap_or_default());
        }
        Arc::new(settled)
    }

    /// Largest effective timestamp of a value that has taken effect in its block.
    pub(super) fn passed(&self) -> u64 {
        let has_passed = |(block, from): &(&PlannedBlock, u64)| {
            self.run.newest_timestamp(&block.name).is_some_and(|newest| *from <= newest)
        };
        self.plan.effective_timestamps().filter(has_passed).map(|(_, from)| from).max().unwrap_or(0)
    }

    /// See [`Control::steady_state_timestamp`](super::Control::steady_state_timestamp).
    pub(super) fn steady_state_timestamp(&self) -> u64 {
        let scheduled = self.plan.effective_timestamps().map(|(_, from)| from).max();
        self.steady_state.max(scheduled.unwrap_or_default())
    }

    /// Time in seconds from the newest timestamp of `clock` to the timestamp `to`; `None` before the first data.
    pub(super) fn seconds_to(&self, to: u64, clock: &Clock) -> Option<f64> {
        let newest = self.newest().at(clock)?;
        Some(to.saturating_sub(newest) as f64 / clock.adc_sample_rate_hz)
    }
}
