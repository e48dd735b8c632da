//! Changes of a block of a running flowgraph: their differences and their method, determined before they are made.

use super::{Control, Current};
use crate::Handle;
use fxgraph_core::device::DeviceName;
use fxgraph_flowgraph::request::Request;
use fxgraph_flowgraph::{Changed, Client, Plan, PlannedBlock, Rejected};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Key of the action when a queue is full, which belongs to the edges and changes without the block.
pub(super) const WHEN_FULL: &str = "when_full";
/// Longest frame interval assumed in time limits.
const LONGEST: Duration = Duration::from_hours(24);
/// Shortest time limit for a block to finish a frame, on a busy machine, too.
const FRAME: Duration = Duration::from_secs(10);
/// Frames in which a candidate catches up.
const CATCH_UP_FRAMES: u32 = 12;
/// Frames from the decision on the timestamp of a swap until the new block is in the slot and was checked.
const FINISHING_FRAMES: u32 = 8;

/// A change of one block, checked against the running flowgraph.
pub struct Change {
    /// Name of the block.
    pub block: String,
    /// Changed values.
    pub differences: Vec<Difference>,
    /// Method of the change.
    pub way: Way,
    /// Additional memory per device, in bytes; some of it is needed only until the change is made.
    pub memory: BTreeMap<DeviceName, usize>,
    /// The flowgraph against which the change was checked.
    pub(super) before: Arc<Plan>,
    /// Run of that flowgraph.
    pub(super) run: Handle,
    /// The flowgraph with the change.
    pub(super) after: Plan,
    /// Index of the block in both flowgraphs.
    pub(super) index: usize,
    /// Names of the parameters that the change gives.
    pub(super) own_parameters: Vec<String>,
    /// Mean time between two frames of the running block, if it is in a side branch, which drops the frames that it cannot
    /// take.
    pace: Duration,
}

/// One changed value.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Key of the value, for example `kind`, `implementation`, `on_fault` or `parameters.taps`; `content` is that of a
    /// file that the block runs.
    pub key: String,
    /// Value in the running flowgraph; null if not set.
    pub from: Json,
    /// Value after the change; null if not set.
    pub to: Json,
}

/// Method of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// No value differs.
    Nothing,
    /// Only live parameters of a source differ, which cannot be swapped: a live update.
    LiveUpdate,
    /// The new block catches up while the old one runs, and takes the slot between two frames: no
    /// frame is dropped, duplicated or delayed.
    Seamless,
    /// The old block ends and the new one starts while the input queues hold back the writers; no frame is
    /// dropped as long as these queues have room.
    Held {
        /// Both blocks use the same socket or file, so that the old block ends before the new one starts.
        /// If the new one fails to start, the old one is started again.
        ends_first: bool,
    },
    /// The change needs a restart of the flowgraph, for this reason.
    Restart(String),
}

impl Way {
    /// Returns the expected interruption as text.
    #[must_use]
    pub fn gap(&self) -> String {
        match self {
            Self::Nothing | Self::LiveUpdate | Self::Seamless => "none".to_owned(),
            Self::Held { .. } => {
                "none as long as the input queues have room for the frames meanwhile".to_owned()
            }
            Self::Restart(_) => "from the stop of the flowgraph to its next start".to_owned(),
        }
    }
}

impl Control {
    /// Checks a change of `block`, see [`Plan::change`], without making it.
    pub fn change(&self, block: &str, request: impl Into<Request>) -> Result<Change, Rejected> {
        self.change_by(Client::Any, block, request)
    }

    /// Checks a [`change`](Self::change) by `client`.
    pub fn change_by(
        &self,
        client: Client,
        block: &str,
        request: impl Into<Request>,
    ) -> Result<Change, Rejected> {
        let Current { plan, run, .. } = self.0.current();
        self.change_of(plan, run, client, block, request.into())
    }

    /// Checks a [`change`](Self::change) of a block of the flowgraph `before`, whose run is `run`.
    pub(super) fn change_of(
        &self,
        before: Arc<Plan>,
        run: Handle,
        client: Client,
        block: &str,
        request: Request,
    ) -> Result<Change, Rejected> {
        let own_parameters = request.names_in("parameters");
        let Changed { sources, result } =
            before.for_client(client).change(block, request, self.registry());
        let after = result.map_err(|problems| Rejected { sources, problems })?;
        let after = after.with_access_after(&before, client, self.registry());
        // The block exists: `Plan::change` has checked that.
        let index = before.block(block).unwrap_or_default();
        let (old, new) = (&before.blocks[index], &after.blocks[index]);
        let differences = differences(old, new);
        let way = match way(old, new, differences.is_empty()) {
            Way::Restart(_)
                if old.inputs.is_empty() && self.is_live(&before, old, &differences) =>
            {
                Way::LiveUpdate
            }
            way => way,
        };
        let memory = match way {
            Way::Seamless => after.swap_memory(index, &after.memory()),
            _ => BTreeMap::new(),
        };
        let pace = if before.side_branches()[index] { pace(&run, old) } else { Duration::ZERO };
        let block = block.to_owned();
        Ok(Change {
            block,
            differences,
            way,
            memory,
            before,
            run,
            after,
            index,
            own_parameters,
            pace,
        })
    }
}

impl Change {
    /// Default time limit for the change, long enough for the new block to catch up.
    #[must_use]
    pub fn usual_limit(&self) -> Duration {
        Duration::from_secs(10).max(self.frame_period() * CATCH_UP_FRAMES)
    }

    /// Time between frames of the block's slowest output.
    pub(super) fn frame_period(&self) -> Duration {
        frame_period(&self.after.blocks[self.index]).max(self.pace)
    }

    /// Time limit for the swap after its timestamp is decided.
    pub(super) fn finishing_limit(&self) -> Duration {
        FRAME.max(self.frame_period() * FINISHING_FRAMES)
    }
}

/// Time limit for `block` to finish a frame.
pub(super) fn frame_limit(block: &PlannedBlock) -> Duration {
    FRAME.max(frame_period(block))
}

/// Time for a candidate `block` to catch up.
pub(super) fn catch_up_limit(block: &PlannedBlock) -> Duration {
    frame_period(block) * CATCH_UP_FRAMES
}

/// Time between frames of the slowest output of `block`.
fn frame_period(block: &PlannedBlock) -> Duration {
    let rates = block.ports.outputs.iter().map(|port| port.clock.frames_per_second());
    let slowest = rates.fold(f64::INFINITY, f64::min);
    Duration::try_from_secs_f64(1.0 / slowest).map_or(LONGEST, |period| period.min(LONGEST))
}

/// Largest mean time between two frames that a time limit follows.
const SLOWEST: Duration = Duration::from_mins(1);

/// Mean time between two frames of `block` so far; 0 before the first one. At most a minute: a block may have waited for
/// data for hours.
fn pace(run: &Handle, block: &PlannedBlock) -> Duration {
    let frames =
        run.stats().iter().find(|stats| stats.name == block.name).map(|stats| stats.frames_out);
    mean_period(run.elapsed(), frames.unwrap_or_default(), block.ports.outputs.len())
}

fn mean_period(elapsed: Duration, frames: u64, outputs: usize) -> Duration {
    if frames == 0 {
        return Duration::ZERO;
    }
    elapsed.mul_f64(outputs as f64 / frames as f64).min(SLOWEST)
}

/// Returns the values of `new` that differ from those of `old`.
pub(super) fn differences(old: &PlannedBlock, new: &PlannedBlock) -> Vec<Difference> {
    let mut all = Vec::new();
    let mut compare = |key: String, from: Json, to: Json| {
        if from != to {
            all.push(Difference { key, from, to });
        }
    };
    compare("kind".to_owned(), json!(old.kind), json!(new.kind));
    compare("implementation".to_owned(), json!(old.implementation), json!(new.implementation));
    compare("device".to_owned(), json!(old.device.to_string()), json!(new.device.to_string()));
    compare("on_fault".to_owned(), json!(old.on_fault.name()), json!(new.on_fault.name()));
    compare(WHEN_FULL.to_owned(), json!(old.when_full_json()), json!(new.when_full_json()));
    compare("content".to_owned(), json!(old.configured.content()), json!(new.configured.content()));
    let keys = |block: &PlannedBlock| -> Vec<String> {
        block.parameters.as_object().into_iter().flat_map(|all| all.keys().cloned()).collect()
    };
    let mut names = keys(old);
    names.extend(keys(new).into_iter().filter(|name| old.parameters.get(name).is_none()));
    for name in names {
        let value = |block: &PlannedBlock| block.parameters.get(&name).cloned().unwrap_or_default();
        compare(format!("parameters.{name}"), value(old), value(new));
    }
    all
}

fn way(old: &PlannedBlock, new: &PlannedBlock, is_same: bool) -> Way {
    if is_same {
        Way::Nothing
    } else if new.device != old.device {
        let (from, to) = (old.device, new.device);
        Way::Restart(format!("moving the block from {from} to {to} changes its transfers"))
    } else if new.ports.inputs.is_empty() {
        Way::Restart(format!("`{}` has no inputs: its stream would begin again", new.kind))
    } else if new.ports.outputs.is_empty() {
        let (old, new) = (&old.resources, &new.resources);
        let shares_socket = old.binds.iter().any(|socket| new.binds.contains(socket));
        let shares_file = old.writes.iter().any(|file| new.writes.contains(file));
        Way::Held { ends_first: shares_socket || shares_file }
    } else {
        Way::Seamless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_of_a_side_branch_follow_the_frames_that_it_takes() {
        let second = Duration::from_secs(1);
        assert_eq!(mean_period(60 * second, 20, 1), 3 * second);
        assert_eq!(mean_period(60 * second, 20, 2), 6 * second, "two outputs");
        assert_eq!(mean_period(60 * second, 0, 1), Duration::ZERO);
        assert_eq!(mean_period(60 * second, 9, 0), Duration::ZERO);
        assert_eq!(mean_period(u32::MAX * second, 1, 9), SLOWEST);
    }
}
