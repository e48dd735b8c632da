//! Options of a recorder.

use super::budget::{Budget, used_bytes};
use fxgraph_core::access::WrittenPath;
use fxgraph_core::event::EventKind;
use fxgraph_core::{Parameters, PortType, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// Placeholder for the first timestamp in a path.
pub const PLACEHOLDER: &str = "{timestamp}";
/// Memory for frames that wait for a slow disk, in bytes.
const BACKLOG_BYTES: usize = 256 << 20;
/// Smallest and largest number of these frames.
const BACKLOG_FRAMES: (usize, usize) = (4, 256);
/// Approximate memory of a frame without payload and validity, in bytes.
const HEADER_BYTES: usize = 256;
/// Default limit on the files of a recorder in a flowgraph, in bytes.
const MAX_TOTAL_BYTES: u64 = 100_000_000_000;
/// Default disk space that such a recorder leaves free, in bytes.
const MIN_FREE_BYTES: u64 = 1_000_000_000;

/// Options of a recorder: files, time around a trigger, limits.
#[derive(Clone, Debug, Deserialize, JsonSchema, Parameters)]
#[serde(deny_unknown_fields)]
pub struct RecorderOptions {
    /// File of a recording, ending in `.npz` or `.npy`; `{timestamp}` is replaced by the first frame's
    /// timestamp. An existing file is not overwritten: the new one gets a number.
    pub path: WrittenPath,
    /// Recorded time before the trigger; this part of the stream is kept in memory.
    #[serde(default)]
    #[param(default)]
    pub before_seconds: f64,
    /// Recorded time after the trigger; to the end of the stream unless set.
    pub after_seconds: Option<f64>,
    /// Maximum payload of one recording in bytes.
    pub max_bytes: Option<u64>,
    /// Maximum size of all files in bytes, including existing ones in the directory whose names begin like
    /// `path`; 10^11 (100 GB) unless set. At this size the recorder ends; the flowgraph continues.
    pub max_total_bytes: Option<u64>,
    /// Disk space to keep free in bytes, below which the recorder ends; 10^9 (1 GB) unless set.
    pub min_free_bytes: Option<u64>,
    /// Trigger of a recording.
    #[serde(default)]
    #[param(default)]
    pub trigger: Trigger,
    /// Limit shared by all recordings requested while the flowgraph runs.
    #[serde(skip)]
    #[schemars(skip)]
    #[param(skip)]
    pub budget: Option<Arc<Budget>>,
}

/// Trigger of a recording.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The first frame.
    #[default]
    Start,
    /// A request.
    Request,
    /// A frame with missing data.
    Missing,
    /// A frame with a value above a limit in an annotation of an upstream block.
    Loud(Loud),
    /// An event of the run, or a request.
    Events(EventTrigger),
}

/// Condition on an annotation of a frame.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Loud {
    /// Name of the annotation: `adc_clipped`, `adc_power`, `saturated`, ...
    pub annotation: String,
    /// Limit that a value must exceed.
    #[serde(default)]
    pub above: f64,
}

/// Events that trigger a recording.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventTrigger {
    /// Kinds of events.
    #[serde(default = "usual_kinds")]
    pub kinds: Vec<EventKind>,
    /// Names of the blocks of the events; any block unless set.
    pub blocks: Option<Vec<String>>,
}

fn usual_kinds() -> Vec<EventKind> {
    use EventKind::{DataLost, Fault, Restarted, Skipped};
    vec![Fault, Skipped, Restarted, DataLost]
}

impl RecorderOptions {
    /// Checks the options for a stream like `port`; returns all errors.
    #[must_use]
    pub fn rejections(&self, port: &PortType) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let path = &self.path;
        let stem = path.strip_suffix(".npz").or_else(|| path.strip_suffix(".npy"));
        if stem.is_none_or(|stem| stem.is_empty() || stem.ends_with('/')) {
            let message = format!("`{}` is not a NumPy file name", self.path);
            rejections.push(
                Rejection::parameter("path", message).help("the name must end in .npz or .npy"),
            );
        }
        let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        let no_time = |key: &str, seconds: f64| {
            format!("`{key}` must be finite and at least 0, got {seconds}")
        };
        if !is_time(self.before_seconds) {
            let message = no_time("before_seconds", self.before_seconds);
            rejections.push(Rejection::parameter("before_seconds", message));
        } else if self.memory_bytes(port).is_none() {
            let message =
                format!("{} s of this stream do not fit into memory", self.before_seconds);
            rejections.push(Rejection::parameter("before_seconds", message));
        }
        if let Some(seconds) = self.after_seconds.filter(|seconds| !is_time(*seconds)) {
            let message = no_time("after_seconds", seconds);
            rejections.push(Rejection::parameter("after_seconds", message));
        }
        if self.max_bytes.is_some_and(|most| most < port.frame_bytes() as u64) {
            let frame_bytes = port.frame_bytes();
            let message =
                format!("`max_bytes` must be at least {frame_bytes}, the size of a frame");
            rejections.push(Rejection::parameter("max_bytes", message));
        }
        rejections
    }

    /// Returns the limits on the files: of this recorder, and the shared one of recorders requested while the
    /// flowgraph runs.
    pub(super) fn budgets(&self) -> Vec<Arc<Budget>> {
        let (most, free) = match &self.budget {
            None => (MAX_TOTAL_BYTES, MIN_FREE_BYTES),
            // The shared limit applies.
            Some(_) => (u64::MAX, 0),
        };
        let start = self.path.split(PLACEHOLDER).next().unwrap_or_default();
        let start =
            start.strip_suffix(".npz").or_else(|| start.strip_suffix(".npy")).unwrap_or(start);
        let (directory, prefix) = match start.rsplit_once('/') {
            Some(("", prefix)) => ("/", prefix),
            Some((directory, prefix)) => (directory, prefix),
            None => (".", start),
        };
        let (most, free) =
            (self.max_total_bytes.unwrap_or(most), self.min_free_bytes.unwrap_or(free));
        // If a directory cannot be listed, writing to it gives the error.
        let used = used_bytes(Path::new(directory), prefix).unwrap_or_default();
        let own = Arc::new(Budget::new(Path::new(directory), most, used, free));
        [own].into_iter().chain(self.budget.clone()).collect()
    }

    /// Number of frames in memory: those before a trigger, and those that wait for the disk.
    pub(super) fn frames(&self, port: &PortType) -> usize {
        let before = self.before_seconds * port.clock.frames_per_second();
        let backlog = BACKLOG_BYTES / port.frame_bytes().max(1);
        (before.ceil() as usize).saturating_add(backlog.clamp(BACKLOG_FRAMES.0, BACKLOG_FRAMES.1))
    }

    /// Memory for the frames, in bytes; `None` if the number exceeds the address space.
    #[must_use]
    pub fn memory_bytes(&self, port: &PortType) -> Option<usize> {
        let counts = port.validity.units() * size_of::<u32>();
        let bytes = self.frames(port).checked_mul(port.frame_bytes() + counts + HEADER_BYTES);
        bytes.filter(|bytes| isize::try_from(*bytes).is_ok())
    }
}
