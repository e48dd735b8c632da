//! A flowgraph with constructed blocks and edges, which the runtime starts.

use crate::language::on_fault::OnFault;
use crate::language::thread::Thread;
use fxgraph_core::block::Block;
use fxgraph_core::counter::Counters;
use fxgraph_core::edge::Edge;
use fxgraph_core::error::BlockError;
use fxgraph_core::event::BlockEvents;
use fxgraph_core::frame::Pool;
use fxgraph_core::kind::{Ports, Waker};
use fxgraph_core::summary::Summary;
use std::sync::Arc;

/// All parts of one run. It is started once; another run needs another assembly.
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
    /// Counters that it was built with.
    pub counters: Counters,
    /// Summary that it was built with.
    pub summary: Summary,
    /// Events that it was built with.
    pub events: BlockEvents,
    /// Waker that it was built with.
    pub wake: Waker,
    /// One edge per input, in the order of the ports.
    pub inputs: Vec<Arc<Edge>>,
    /// Outputs, in the order of the ports.
    pub outputs: Vec<PartOutput>,
    /// Types of the ports.
    pub ports: Ports,
    /// Thread that the block runs on.
    pub thread: Thread,
    /// Fault policy.
    pub on_fault: OnFault,
    /// Creates the block again; `None` for a block that cannot be restarted. A fault of such a block stops the run,
    /// except errors with [`OnFault::Skip`].
    pub rebuild: Option<Rebuild>,
}

/// Creates a block again with its first environment. The argument is a timestamp: earlier blocks in the slot have
/// started work on everything before it.
pub type Rebuild = Arc<dyn Fn(u64) -> Result<Box<dyn Block>, BlockError> + Send + Sync>;

/// One output port of a [`Part`].
pub struct PartOutput {
    /// One edge per reader. An output without readers never delays its block.
    pub edges: Vec<Arc<Edge>>,
    /// Pool of the frames; `None` for a port that passes frames through.
    pub pool: Option<Arc<Pool>>,
}
