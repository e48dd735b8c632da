//! A flowgraph whose blocks are built and whose edges exist: what the runtime starts.

use fxgraph_core::block::Block;
use fxgraph_core::counter::Counters;
use fxgraph_core::edge::Edge;
use fxgraph_core::error::BlockError;
use fxgraph_core::event::BlockEvents;
use fxgraph_core::frame::Pool;
use fxgraph_core::kind::{Ports, Waker};
use fxgraph_core::summary::Summary;
use std::sync::Arc;

/// Everything that runs together. Started once; another run needs another assembly.
pub struct Assembly {
    /// Name of the flowgraph.
    pub name: String,
    /// The blocks.
    pub parts: Vec<Part>,
}

/// A built block with its edges.
pub struct Part {
    /// Name of the block in the flowgraph.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// The block.
    pub block: Box<dyn Block>,
    /// The counters it was built with.
    pub counters: Counters,
    /// The summary it was built with.
    pub summary: Summary,
    /// The events it was built with.
    pub events: BlockEvents,
    /// The waker it was built with.
    pub wake: Waker,
    /// One edge per input, in the order of the ports.
    pub inputs: Vec<Arc<Edge>>,
    /// Outputs, in the order of the ports.
    pub outputs: Vec<PartOutput>,
    /// What the ports carry.
    pub ports: Ports,
    /// Where the block runs.
    pub thread: Thread,
    /// What is done when it fails.
    pub on_fault: OnFault,
    /// Makes the block anew; `None` for one that can be made only once, whose faults stop the run
    /// unless they are errors that [`OnFault::Skip`] passes over.
    pub rebuild: Option<Rebuild>,
}

/// Makes a block anew, as it was built first, in a place where others have begun to work on everything
/// before a timestamp.
pub type Rebuild = Arc<dyn Fn(u64) -> Result<Box<dyn Block>, BlockError> + Send + Sync>;

/// What is done when a block fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFault {
    /// The run stops with the cause; what is queued still flows to its end.
    #[default]
    Stop,
    /// The block is built anew and goes on with its next input frame.
    Restart,
    /// The frame at work is lost and the block goes on; after a panic it is built anew.
    Skip,
}

impl OnFault {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Stop, Self::Restart, Self::Skip];

    /// The word in flowgraph files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Skip => "skip",
        }
    }
}

/// One output port of a [`Part`].
pub struct PartOutput {
    /// One edge per reader. An output without readers never holds its block up.
    pub edges: Vec<Arc<Edge>>,
    /// Where the frames come from; `None` for a port that passes frames through.
    pub pool: Option<Arc<Pool>>,
}

/// Where a block runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thread {
    /// On the worker threads, with the others.
    #[default]
    Shared,
    /// On a thread of its own, if asked for bound to one core.
    Own {
        /// Number of the core.
        core: Option<usize>,
    },
}
