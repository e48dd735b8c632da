//! Live updates that blocks request, made as those of clients are.

use super::{Control, Inner};
use crate::RunState;
use fxgraph_core::live_updates::{Controller, InForce, LiveUpdates};
use serde_json::Value as Json;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time limit of an update, in which other changes may be in progress.
const LIMIT: Duration = Duration::from_secs(30);

/// The control, which ends with the program's handle and not with the blocks.
struct Requested(Weak<Inner>);

impl Control {
    /// Answers the requests in `updates`.
    pub(super) fn serve(&self, updates: &LiveUpdates) {
        updates.serve(Arc::new(Requested(Arc::downgrade(&self.0))));
    }
}

impl Controller for Requested {
    fn update(&self, parameters: &Json) -> Result<u64, String> {
        let control = self.0.upgrade().map(Control);
        let running = control.filter(|control| control.state() == RunState::Running);
        let Some(control) = running else {
            return Err("the flowgraph is about to end".to_owned());
        };
        let done = control.live_update(&parameters.to_string(), None, LIMIT);
        done.map(|done| done.effective_timestamp).map_err(|error| error.to_string())
    }

    fn in_force(&self, blocks: &[String], parameter: &str) -> Option<InForce> {
        let current = self.0.upgrade()?.current();
        let values = blocks.iter().map(|name| {
            let block = &current.plan.blocks[current.plan.block(name)?];
            Some(block.parameters.get(parameter).cloned())
        });
        Some(InForce {
            values: values.collect::<Option<_>>()?,
            from: current.steady_state_timestamp(),
        })
    }
}
