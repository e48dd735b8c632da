//! What is asked of a recorder.

use super::budget::{Budget, used_bytes};
use fxgraph_core::access::WrittenPath;
use fxgraph_core::event::EventKind;
use fxgraph_core::{Parameters, PortType, Refusal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// What stands for the first timestamp in a path.
pub const PLACEHOLDER: &str = "{timestamp}";
/// Memory for frames that wait for a slow disk, and how many of them at least and at most.
const BACKLOG_BYTES: usize = 256 << 20;
const BACKLOG_FRAMES: (usize, usize) = (4, 256);
/// Memory for what a frame has besides payload and validity, about.
const HEADER_BYTES: usize = 256;
/// What the files of a recorder in a flowgraph take at most, and what they leave free, unless it is set.
const MAX_TOTAL_BYTES: u64 = 100_000_000_000;
const MIN_FREE_BYTES: u64 = 1_000_000_000;

/// What is recorded of a stream, and when.
#[derive(Clone, Debug, Deserialize, JsonSchema, Parameters)]
#[serde(deny_unknown_fields)]
pub struct RecorderOptions {
    /// File of a recording, ending in `.npz` or `.npy`; `{timestamp}` becomes the first frame's
    /// timestamp. A file that exists is left alone: the new one gets a number.
    pub path: WrittenPath,
    /// Time before the trigger that is recorded; that much of the stream is kept in memory.
    #[serde(default)]
    #[param(default)]
    pub before_seconds: f64,
    /// Time after the trigger that is recorded; to the end of the stream unless set.
    pub after_seconds: Option<f64>,
    /// Bytes of payload in one recording at most.
    pub max_bytes: Option<u64>,
    /// Bytes of all files at most, with those that are in the directory already and whose names begin like
    /// `path`; 10^11 (100 GB) unless set. The recorder ends there, the flowgraph goes on.
    pub max_total_bytes: Option<u64>,
    /// Bytes of the disk that stay free, or the recorder ends; 10^9 (1 GB) unless set.
    pub min_free_bytes: Option<u64>,
    /// What a recording begins with.
    #[serde(default)]
    #[param(default)]
    pub trigger: Trigger,
    /// What all files may take that were asked for while the flowgraph runs.
    #[serde(skip)]
    #[schemars(skip)]
    #[param(skip)]
    pub budget: Option<Arc<Budget>>,
}

/// What a recording begins with.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The first frame.
    #[default]
    Start,
    /// A request.
    Request,
    /// A frame of which something is missing.
    Missing,
    /// A frame whose annotation, which a block before made, has a value above a limit.
    Loud(Loud),
    /// An event of the run, or a request.
    Events(EventTrigger),
}

/// An annotation that says that something was found.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Loud {
    /// Name of the annotation: `adc_clipped`, `adc_power`, `saturated`, ...
    pub annotation: String,
    /// The limit.
    #[serde(default)]
    pub above: f64,
}

/// Events that a recording begins with.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventTrigger {
    /// Kinds of events.
    #[serde(default = "usual_kinds")]
    pub kinds: Vec<EventKind>,
    /// Names of blocks that they happen to; any unless set.
    pub blocks: Option<Vec<String>>,
}

fn usual_kinds() -> Vec<EventKind> {
    use EventKind::{DataLost, Fault, Restarted, Skipped};
    vec![Fault, Skipped, Restarted, DataLost]
}

impl RecorderOptions {
    /// Why a stream like `port` cannot be recorded in this way; all refusals at once.
    #[must_use]
    pub fn refusals(&self, port: &PortType) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let path = &self.path;
        let stem = path.strip_suffix(".npz").or_else(|| path.strip_suffix(".npy"));
        if stem.is_none_or(|stem| stem.is_empty() || stem.ends_with('/')) {
            let message = format!("`{}` is not a NumPy file name", self.path);
            refusals.push(
                Refusal::parameter("path", message).help("the name must end in .npz or .npy"),
            );
        }
        let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        if !is_time(self.before_seconds) {
            let message = format!("{} s are no time", self.before_seconds);
            refusals.push(Refusal::parameter("before_seconds", message));
        } else if self.memory_bytes(port).is_none() {
            let message =
                format!("{} s of this stream do not fit into memory", self.before_seconds);
            refusals.push(Refusal::parameter("before_seconds", message));
        }
        if let Some(seconds) = self.after_seconds.filter(|seconds| !is_time(*seconds)) {
            refusals.push(Refusal::parameter("after_seconds", format!("{seconds} s are no time")));
        }
        if self.max_bytes.is_some_and(|most| most < port.frame_bytes() as u64) {
            let message = format!("a frame has {} bytes already", port.frame_bytes());
            refusals.push(Refusal::parameter("max_bytes", message));
        }
        refusals
    }

    /// What limits the files: the disk, and what all recorders may take that were asked for while the flowgraph
    /// runs.
    pub(super) fn budgets(&self) -> Vec<Arc<Budget>> {
        let (most, free) = match &self.budget {
            None => (MAX_TOTAL_BYTES, MIN_FREE_BYTES),
            // That one has its own limits.
            Some(_) => (u64::MAX, 0),
        };
        let start = self.path.split(PLACEHOLDER).next().unwrap_or_default();
        let start =
            start.strip_suffix(".npz").or_else(|| start.strip_suffix(".npy")).unwrap_or(start);
        let (folder, prefix) = match start.rsplit_once('/') {
            Some(("", prefix)) => ("/", prefix),
            Some((folder, prefix)) => (folder, prefix),
            None => (".", start),
        };
        let (most, free) =
            (self.max_total_bytes.unwrap_or(most), self.min_free_bytes.unwrap_or(free));
        // A directory that cannot be listed cannot be written either, which is said then.
        let used = used_bytes(Path::new(folder), prefix).unwrap_or_default();
        let own = Arc::new(Budget::new(Path::new(folder), most, used, free));
        [own].into_iter().chain(self.budget.clone()).collect()
    }

    /// Frames that are kept: those before a trigger, and those that wait for the disk.
    pub(super) fn frames(&self, port: &PortType) -> usize {
        let before = self.before_seconds * port.clock.frames_per_second();
        let backlog = BACKLOG_BYTES / port.frame_bytes().max(1);
        (before.ceil() as usize).saturating_add(backlog.clamp(BACKLOG_FRAMES.0, BACKLOG_FRAMES.1))
    }

    /// Memory for the frames that are kept; `None` if it cannot be said in bytes.
    #[must_use]
    pub fn memory_bytes(&self, port: &PortType) -> Option<usize> {
        let counts = port.validity.units() * size_of::<u32>();
        let bytes = self.frames(port).checked_mul(port.frame_bytes() + counts + HEADER_BYTES);
        bytes.filter(|bytes| isize::try_from(*bytes).is_ok())
    }
}
