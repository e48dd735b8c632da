//! What a run says about itself, while it goes on and when it has ended.

use super::timing::Latencies;
use fxgraph_core::counter::{Named, NamedGauge};
use fxgraph_core::device_jobs::JobTimes;
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
    /// It runs, and no frame has passed for many times as long as frames are apart.
    Stalled,
}

/// Where a run is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Everything is built and waits for the start.
    Prepared,
    /// Blocks open what they need; nothing moves yet.
    Starting,
    /// Frames move.
    Running,
    /// A stop was asked for, or a block failed: what is queued flows to its end.
    Draining,
    /// It is over, and all went well.
    Ended,
    /// It is over, and a block failed.
    Failed,
}

impl RunState {
    /// The word for it in REST, metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }
}

/// Fill of the queue in front of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Frames that wait.
    pub queued: usize,
    /// Frames it holds at most.
    pub depth: usize,
    /// Frames that were taken out of it.
    pub taken: u64,
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
    /// Times that it failed, also those that it survived.
    pub faults: u64,
    /// Times that it was built anew after a fault.
    pub restarts: u64,
    /// Why it failed last.
    pub last_fault: Option<Failure>,
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
    /// Time that a GPU spent on its frames.
    pub device_busy: Duration,
    /// How long its jobs took the GPU; nothing before the first one.
    pub device_jobs: Option<JobTimes>,
    /// Time it waited for frames; a source: for what it makes them of.
    pub input_wait: Duration,
    /// Time it waited for room behind it.
    pub room_wait: Duration,
    /// Timestamp after the newest sample that it pushed; a block without outputs: that it took.
    pub newest_timestamp: Option<u64>,
    /// How far behind real time the newest sample is, in seconds; nothing before the first one and after
    /// the end.
    pub lag_seconds: Option<f64>,
    /// Unix time of timestamp 0 in seconds: what the source knows, or by its earliest sample.
    pub time_zero: Option<f64>,
    /// How long after the sources it was done with frames; for blocks without outputs.
    pub latencies: Option<Latencies>,
    /// Calls of its `work`.
    pub works: u64,
    /// Queues in front of its inputs, in the order of the ports.
    pub queues: Vec<Queue>,
    /// What it counts.
    pub counters: Vec<Named>,
    /// What it measures.
    pub gauges: Vec<NamedGauge>,
    /// What it says for itself.
    pub summary: String,
}

impl BlockStats {
    /// Lost data, all causes together, each in its own unit.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.counters.iter().filter(|named| named.is_loss).map(|named| named.counter.get()).sum()
    }
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

impl State {
    /// The word for it in REST, metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Stalled => "stalled",
        }
    }
}

impl Failure {
    /// What happened, without the block's name.
    #[must_use]
    pub fn text(&self) -> String {
        let verb = if self.panic { "panicked" } else { "failed" };
        format!("{verb}: {}", self.cause)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` {}", self.block, self.text())
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
    /// Whether it was ended at once.
    pub is_aborted: bool,
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
    #[error("`{block}` asks for core {core}, this machine offers {}", numbers(.offered))]
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

/// Why a block did not do what was asked of it; it will not do it later either, except for one that
/// [hung](Self::Hung).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// There is no such block.
    #[error("there is no block `{0}`")]
    NoSuchBlock(String),
    /// The block has ended.
    #[error("`{0}` has ended")]
    Ended(String),
    /// The block works on a frame for longer than the time limit.
    #[error("`{block}` did not come to the end of a frame within {} s", (limit.as_secs_f64() * 1e3).round() / 1e3)]
    Busy {
        /// Name of the block.
        block: String,
        /// The time limit.
        limit: Duration,
    },
    /// The block began to answer and did not come to the end of that.
    #[error("`{block}` began to answer and has not done so within {} s", limit.as_secs())]
    Hung {
        /// Name of the block.
        block: String,
        /// The time limit.
        limit: Duration,
    },
}

fn numbers(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

fn join(failures: &[Failure]) -> String {
    failures.iter().map(Failure::to_string).collect::<Vec<_>>().join("; ")
}
