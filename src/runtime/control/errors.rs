//! Reasons why changes of a running flowgraph were not made.

use super::lifecycle::NotStartable;
use super::live_update::LiveUpdateError;
use crate::NotSwapped;
use crate::report::Unanswered;
use fxgraph_core::device::DeviceName;
use fxgraph_core::frame::OutOfMemory;
use fxgraph_flowgraph::BuildError;

/// Reason why a change was not made. The flowgraph continues unchanged.
#[derive(Debug, thiserror::Error)]
pub enum SwapError {
    /// Other changes were in progress until the time limit.
    #[error("other changes are in progress; this change timed out waiting for them")]
    Busy,
    /// The flowgraph is not the one against which the change was checked.
    #[error("the flowgraph has changed since this change was checked; try again")]
    Outdated,
    /// The change needs a restart.
    #[error("{0}: stop the flowgraph and start it with the change")]
    Restart(String),
    /// The block has a shadow.
    #[error("`{0}` has a shadow; end the shadow first")]
    Shadowed(String),
    /// The block cannot have a shadow.
    #[error("{0}")]
    NoShadow(String),
    /// There is not enough memory to run both blocks at once.
    #[error("the change needs {needed} more bytes on {device}, {available} bytes are available")]
    Memory {
        /// Device whose memory is not sufficient.
        device: DeviceName,
        /// Additional memory that the change needs, in bytes.
        needed: usize,
        /// Available memory, in bytes.
        available: usize,
    },
    /// The new block could not be built, or its memory not allocated.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The additional frames could not be allocated.
    #[error(transparent)]
    Frames(#[from] OutOfMemory),
    /// The live update was not made.
    #[error(transparent)]
    LiveUpdate(#[from] LiveUpdateError),
    /// The new block did not take the slot, or was rolled back.
    #[error(transparent)]
    NotSwapped(#[from] NotSwapped),
}

impl From<Unanswered> for SwapError {
    fn from(error: Unanswered) -> Self {
        NotSwapped::from(error).into()
    }
}

/// Blocks that ran temporarily with an update that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interim {
    /// First affected timestamp, up to the roll-back; `None` if unknown.
    pub from: Option<u64>,
    /// Names of the affected blocks.
    pub blocks: Vec<String>,
}

impl Interim {
    fn told(interim: Option<&Self>) -> String {
        let Some(Self { from, blocks }) = interim else { return String::new() };
        let blocks: Vec<String> = blocks.iter().map(|block| format!("`{block}`")).collect();
        let from = from.map_or(String::new(), |from| format!(" from timestamp {from} on"));
        format!("; {} ran with the update{from}, until it was rolled back", blocks.join(", "))
    }
}

/// Reason why an update was not made. The flowgraph continues unchanged, except after [`HalfMade`](Self::HalfMade).
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The flowgraph is not the one against which the update was checked.
    #[error("the flowgraph has changed since this update was checked; try again")]
    Outdated,
    /// The update needs a restart, for these reasons.
    #[error("the update needs a restart: {}", .0.join("; "))]
    Restart(Vec<String>),
    /// A block was not swapped.
    #[error("`{block}` was not swapped: {source}{}", Interim::told(.interim.as_deref()))]
    Swap {
        /// Name of the block.
        block: String,
        /// Reason why the block was not swapped.
        source: SwapError,
        /// Blocks that ran temporarily with the update, if any.
        interim: Option<Box<Interim>>,
    },
    /// The new flowgraph cannot follow the running one.
    #[error(transparent)]
    NotStartable(#[from] NotStartable),
    /// Live parameters were not changed.
    #[error(transparent)]
    LiveUpdate(#[from] LiveUpdateError),
    /// The update failed after some blocks were swapped; these have been swapped back.
    #[error("{cause}{}", Interim::told(Some(.interim)))]
    Undone {
        /// Error of the update.
        cause: Box<UpdateError>,
        /// Blocks that ran temporarily with the update.
        interim: Interim,
    },
    /// The update failed after some blocks were swapped, and one of them could not be swapped back.
    #[error("{cause}; `{block}` could not be swapped back: {source}")]
    HalfMade {
        /// Error of the update.
        cause: Box<UpdateError>,
        /// Name of the block that still runs with the update.
        block: String,
        /// Reason why the block was not swapped back.
        source: SwapError,
    },
}
