//! Live updates that are taken back while their blocks run.

use super::live_update::{LiveUpdateError, Offered, rebuild_as};
use super::{Control, LiveUpdate};
use crate::RunState;
use fxgraph_core::changes::Undecided;
use fxgraph_flowgraph::request::Request;
use fxgraph_flowgraph::{PlannedBlock, Replaced};
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Result of taking a live update back.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenBack {
    /// Timestamp from which the parameters have the values without the update.
    pub effective_timestamp: u64,
    /// Whether a block has passed the timestamp of the update, and so had its values.
    pub is_late: bool,
    /// Blocks and parameters that a later change has set. Its values stay.
    pub kept: Vec<(String, &'static str)>,
}

impl Control {
    /// Takes an update back that [`live_update_prepared`](Self::live_update_prepared) has made: the parameters get the values that
    /// they would have without it, all of them or none. Later changes of these parameters stay.
    ///
    /// # Errors
    /// If a block rejects the values or does not answer, or if the blocks have passed the timestamp of the update and
    /// it is unknown whether a later change has set its values again; then nothing changes.
    pub fn take_back(
        &self,
        replaced: &Replaced,
        limit: Duration,
    ) -> Result<TakenBack, LiveUpdateError> {
        let deadline = Instant::now() + limit;
        let _only_change = self.begin_change(deadline)?;
        let current = self.0.current();
        let run = &current.run;
        if run.state() == RunState::Prepared {
            return Err(LiveUpdateError::NotStarted);
        }
        let at = replaced.at();
        let newest = replaced.blocks().filter_map(|block| run.newest_timestamp(block)).max();
        let newest = newest.unwrap_or_default();
        let restored = current.plan.without(replaced, newest);
        let restored = restored.ok_or(LiveUpdateError::Unclear { at })?;
        let settled = current.settled();
        let (mut plan, mut names, mut moments) = (Arc::clone(&settled), Vec::new(), Vec::new());
        let mut changes = Vec::new();
        for (from, values) in restored.values {
            names.extend(values.keys().cloned());
            let request = Request::from(&Json::Object(values));
            let moment = Undecided::new();
            let when = (moment.when(), Some(from));
            match self.offer_all(&plan, run, request, when, deadline) {
                Ok(offered) => {
                    plan = Arc::new(offered.plan);
                    changes.push(offered.changed);
                }
                Err(error) => {
                    // The timestamps of the values before are never decided.
                    let is_named = |block: &&PlannedBlock| names.contains(&block.name);
                    let named: Vec<_> = settled.blocks.iter().filter(is_named).collect();
                    rebuild_as(run, &settled, &named);
                    return Err(error);
                }
            }
            moments.push((moment, from));
        }
        names.sort_unstable();
        names.dedup();
        let decided = moments.into_iter().map(|(moment, from)| moment.decide(from));
        let decided: Vec<u64> = decided.collect();
        for (changed, at) in changes.iter().zip(&decided) {
            self.lead_shadows(&plan, changed, *at);
        }
        let Some(from) = decided.first() else {
            // Later changes have set all parameters.
            let until = restored.was_in_force_until;
            return Ok(TakenBack {
                effective_timestamp: until.unwrap_or(at),
                is_late: until.is_some(),
                kept: restored.kept,
            });
        };
        let offered = Offered { plan: Arc::unwrap_or_clone(plan), names, changed: Vec::new() };
        let LiveUpdate { effective_timestamp, is_late, .. } =
            self.made(&current, offered, Some(at), *from)?;
        Ok(TakenBack { effective_timestamp, is_late, kept: restored.kept })
    }
}
