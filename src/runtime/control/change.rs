//! Changes of a running flowgraph: what they do and how they are made, said before they are.

use super::{Control, Current};
use crate::Handle;
use fxgraph_core::device::DeviceName;
use fxgraph_flowgraph::{Changed, Plan, PlannedBlock, Refused};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Nobody waits for longer than some of this: a clock may be as slow as it likes.
const LONGEST: Duration = Duration::from_hours(24);
/// How long a block may take to come to the end of a frame at least.
const FRAME: Duration = Duration::from_secs(5);
/// Frames that pass from the decision on the timestamp of a swap until the new block is in place and was watched.
const FINISHING_FRAMES: u32 = 8;

/// A change of one block, checked against the flowgraph that runs.
pub struct Change {
    /// Name of the block.
    pub block: String,
    /// What becomes different.
    pub differences: Vec<Difference>,
    /// How it is made.
    pub way: Way,
    /// Memory that it takes besides what the flowgraph has, in bytes, some of it only until the
    /// change is made.
    pub memory: BTreeMap<DeviceName, usize>,
    /// The flowgraph for which this was found.
    pub(super) before: Arc<Plan>,
    /// Its run.
    pub(super) run: Handle,
    /// The flowgraph with the change.
    pub(super) after: Plan,
    /// Index of the block in both.
    pub(super) index: usize,
}

/// A value that a change makes different.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// `kind`, `implementation`, `on_fault`, `parameters.taps`.
    pub key: String,
    /// What runs; nothing if it is not set.
    pub from: Json,
    /// What will run; nothing if it will not be set.
    pub to: Json,
}

/// How a change is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nothing is different.
    Nothing,
    /// The new block catches up beside the old one and takes its place between two frames: no
    /// frame is lost, doubled or late.
    Seamless,
    /// The old block ends and the new one starts while the queues before it hold; no frame is lost
    /// as long as they are not full.
    Held {
        /// They use the same socket or file, so that the new one can start only when the old one has
        /// ended: if it cannot, the old one is started again.
        ends_first: bool,
    },
    /// Not while the flowgraph runs, for this reason.
    Restart(String),
}

impl Way {
    /// The interruption to expect, in words.
    #[must_use]
    pub fn gap(&self) -> String {
        match self {
            Self::Nothing | Self::Seamless => "none".to_owned(),
            Self::Held { .. } => {
                "none as long as the queue before it holds what comes meanwhile".to_owned()
            }
            Self::Restart(_) => "from the stop of the flowgraph to its next start".to_owned(),
        }
    }
}

impl Control {
    /// Checks a change of `block`, see [`Plan::change`]; nothing is changed yet.
    pub fn change(&self, block: &str, text: &str) -> Result<Change, Refused> {
        let Current { plan, run, .. } = self.0.current();
        self.change_of(plan, run, block, text)
    }

    /// [`change`](Self::change) of a block of the flowgraph `before`, whose run is `run`.
    pub(super) fn change_of(
        &self,
        before: Arc<Plan>,
        run: Handle,
        block: &str,
        text: &str,
    ) -> Result<Change, Refused> {
        let Changed { sources, result } = before.change(block, text, self.registry());
        let after = result.map_err(|problems| Refused { sources, problems })?;
        // It was found when the change was checked.
        let index = before.block(block).unwrap_or_default();
        let (old, new) = (&before.blocks[index], &after.blocks[index]);
        let differences = differences(old, new);
        let way = way(old, new, differences.is_empty());
        let memory = match way {
            Way::Seamless => after.swap_memory(index, &after.memory()),
            _ => BTreeMap::new(),
        };
        let block = block.to_owned();
        Ok(Change { block, differences, way, memory, before, run, after, index })
    }
}

impl Change {
    /// A time limit that leaves a block long enough to catch up.
    #[must_use]
    pub fn usual_limit(&self) -> Duration {
        Duration::from_secs(10).max(self.frame_period() * 12)
    }

    /// Time between frames of the block's slowest output.
    pub(super) fn frame_period(&self) -> Duration {
        frame_period(&self.after.blocks[self.index])
    }

    /// A time limit that leaves the block long enough to go over once the timestamp is decided, which is not given up
    /// half way.
    pub(super) fn finishing_limit(&self) -> Duration {
        FRAME.max(self.frame_period() * FINISHING_FRAMES)
    }
}

/// A time limit that leaves `block` long enough to come to the end of a frame.
pub(super) fn frame_limit(block: &PlannedBlock) -> Duration {
    FRAME.max(frame_period(block))
}

/// Time between frames of the slowest output of `block`.
fn frame_period(block: &PlannedBlock) -> Duration {
    let rates = block.ports.outputs.iter().map(|port| port.clock.frames_per_second());
    let slowest = rates.fold(f64::INFINITY, f64::min);
    Duration::try_from_secs_f64(1.0 / slowest).map_or(LONGEST, |period| period.min(LONGEST))
}

/// What is different in `new`.
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
        Way::Restart(format!("frames would have to come to {to} and leave {from} on other ways"))
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
