//! What a run says about itself, while it goes on and when it has ended.

use crate::counter::Named;
use std::time::Duration;

/// Where a block is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It opens what it needs; nothing moves yet.
    Starting,
    /// It moves frames.
    Running,
    /// It ended as it should.
    Finished,
    /// It failed; the cause is in [`Report::failures`].
    Failed,
}

/// Fill of the queue in front of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Frames that wait.
    pub queued: usize,
    /// Frames it holds at most.
    pub depth: usize,
}

/// Figures of one block.
#[derive(Clone, Debug)]
pub struct BlockStats {
    /// Name of the block in the flowgraph.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// Where it is in its life.
    pub state: State,
    /// Frames it took, all inputs together.
    pub frames_in: u64,
    /// Frames it pushed, all outputs together, a fan-out counted once.
    pub frames_out: u64,
    /// Payload bytes of the frames it took.
    pub bytes_in: u64,
    /// Payload bytes of the frames it pushed.
    pub bytes_out: u64,
    /// Time it spent working.
    pub busy: Duration,
    /// Calls of its `work`.
    pub works: u64,
    /// Queues in front of its inputs, in the order of the ports.
    pub queues: Vec<Queue>,
    /// What it counts.
    pub counters: Vec<Named>,
    /// What it says for itself.
    pub summary: String,
}

/// Why a block, and with it the run, failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Name of the block.
    pub block: String,
    /// Text of the error and of everything that caused it, joined by `: `.
    pub cause: String,
    /// Whether the block panicked, which is a fault of the program and not of its input.
    pub panic: bool,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = if self.panic { "panicked" } else { "failed" };
        write!(f, "`{}` {verb}: {}", self.block, self.cause)
    }
}

/// What is left of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Failures in the order they happened; empty says that all went well.
    pub failures: Vec<Failure>,
    /// Figures of every block at the end.
    pub stats: Vec<BlockStats>,
    /// Time from the first `work` to the end.
    pub elapsed: Duration,
}

/// Why a flowgraph did not start. Everything is shut down again.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The assembly contradicts itself.
    #[error("`{block}` cannot be connected: {reason}")]
    Wiring {
        /// Name of the block.
        block: String,
        /// What is wrong.
        reason: String,
    },
    /// A block asks for a core that this process may not use.
    #[error("`{block}` asks for core {core}, this machine offers {offered:?}")]
    NoSuchCore {
        /// Name of the block.
        block: String,
        /// What it asks for.
        core: usize,
        /// What there is.
        offered: Vec<usize>,
    },
    /// The system gave no thread.
    #[error("no thread for `{block}`")]
    NoThread {
        /// Name of the block.
        block: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Blocks failed in their `start`; no block worked, all finished.
    #[error("{}", join(.0))]
    Blocks(Vec<Failure>),
    /// The runtime underneath failed.
    #[error("the runtime did not start: {0}")]
    Runtime(String),
}

fn join(failures: &[Failure]) -> String {
    failures.iter().map(Failure::to_string).collect::<Vec<_>>().join("; ")
}
