//! State, statistics and failures of a run, while it runs and after its end.

use super::timing::Latencies;
use fxgraph_core::counter::Named;
use fxgraph_core::device_jobs::JobTimes;
use fxgraph_core::edge::WhenFull;
use fxgraph_core::gauge::NamedGauge;
use fxgraph_core::threads::ThreadTime;
use std::time::Duration;

/// Lifecycle state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The block opens its resources; no frame moves yet.
    Starting,
    /// The block processes frames.
    Running,
    /// The block ended without a failure.
    Finished,
    /// The block failed; the cause is in [`Report::failures`].
    Failed,
    /// The block runs, but no frame has passed it for many frame intervals.
    Stalled,
}

/// Lifecycle state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// All blocks are built; the run waits for its start.
    Prepared,
    /// Blocks open their resources; no frame moves yet.
    Starting,
    /// Frames move.
    Running,
    /// A stop was requested, or a block failed: queued frames are processed to the end.
    Draining,
    /// The run ended without failures.
    Ended,
    /// The run ended, and a block failed.
    Failed,
}

impl RunState {
    /// Name of the state in REST, metrics and logs.
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

/// Statistics of the queue before an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Frames in the queue.
    pub queued: usize,
    /// Capacity in frames.
    pub depth: usize,
    /// Frames consumed from the queue so far.
    pub taken: u64,
    /// Action when the queue is full.
    pub when_full: WhenFull,
    /// Frames dropped by that action so far.
    pub dropped: u64,
}

/// Statistics of one block.
#[derive(Clone, Debug)]
pub struct BlockStats {
    /// Name of the block in the flowgraph.
    pub name: String,
    /// Kind of the block.
    pub kind: &'static str,
    /// Lifecycle state.
    pub state: State,
    /// Number of faults, including those that the block survived.
    pub faults: u64,
    /// Number of restarts after a fault.
    pub restarts: u64,
    /// The last fault.
    pub last_fault: Option<Failure>,
    /// Frames consumed, sum over all inputs.
    pub frames_in: u64,
    /// Frames pushed, sum over all outputs; a fan-out counts once.
    pub frames_out: u64,
    /// Payload bytes of the consumed frames.
    pub bytes_in: u64,
    /// Payload bytes of the pushed frames.
    pub bytes_out: u64,
    /// Time spent in `work`.
    pub busy: Duration,
    /// Busy times of the threads that the block started itself.
    pub threads: Vec<ThreadTime>,
    /// Time that a GPU spent on the block's frames.
    pub device_busy: Duration,
    /// Durations of the block's GPU jobs; `None` before the first job.
    pub device_jobs: Option<JobTimes>,
    /// Time spent waiting for input frames; for a source: for its data.
    pub input_wait: Duration,
    /// Time spent waiting for room downstream.
    pub room_wait: Duration,
    /// Timestamp after the newest sample pushed; for a block without outputs: consumed.
    pub newest_timestamp: Option<u64>,
    /// Lag of the newest sample behind real time, in seconds; `None` before the first sample and after
    /// the end.
    pub lag_seconds: Option<f64>,
    /// Unix time of timestamp 0, in seconds: from the source's sync time, or else from its earliest sample.
    pub time_zero: Option<f64>,
    /// Latencies from the sources to this block; for blocks without outputs.
    pub latencies: Option<Latencies>,
    /// Number of calls of `work`.
    pub works: u64,
    /// Queues before the inputs, in the order of the ports.
    pub queues: Vec<Queue>,
    /// Counters of the block's kind.
    pub counters: Vec<Named>,
    /// Gauges of the block's kind.
    pub gauges: Vec<NamedGauge>,
    /// Summary text of the block.
    pub summary: String,
}

impl BlockStats {
    /// Time that the block was busy: in `work`, or in the busiest of its own threads if that is longer.
    #[must_use]
    pub fn longest_busy(&self) -> Duration {
        self.threads.iter().map(|thread| thread.busy).fold(self.busy, Duration::max)
    }

    /// Amount of data dropped because the block is too slow: the sum over all causes.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        self.counters.iter().filter(|named| named.is_overrun).map(|named| named.counter.get()).sum()
    }

    /// Amount of data dropped because later blocks are too slow: the sum over all causes.
    #[must_use]
    pub fn held_up(&self) -> u64 {
        self.counters.iter().filter(|named| named.is_held_up).map(|named| named.counter.get()).sum()
    }

    /// Amount of missing and dropped data: the sum over all causes, each in its own unit.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.counters.iter().filter(|named| named.is_loss).map(|named| named.counter.get()).sum()
    }
}

/// Failure of a block, and with it of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Name of the block.
    pub block: String,
    /// Text of the error and of all its causes, joined by `: `.
    pub cause: String,
    /// Whether the block panicked, which is a bug in the program and not an error in its input.
    pub panic: bool,
}

impl State {
    /// Name of the state in REST, metrics and logs.
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
    /// Text of the failure without the block's name.
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

/// A block that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Name of the block.
    pub block: String,
    /// Whether the block finishes its output: it has taken its last frame.
    pub is_finishing: bool,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Failures in the order in which they happened; empty after a successful run.
    pub failures: Vec<Failure>,
    /// Statistics of every block at the end.
    pub stats: Vec<BlockStats>,
    /// Time from the first call of `work` to the end.
    pub elapsed: Duration,
    /// Whether the run was aborted.
    pub is_aborted: bool,
}

/// Reason why a flowgraph did not start. All its blocks have been shut down again.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The assembly is inconsistent.
    #[error("`{block}` cannot be connected: {reason}")]
    Wiring {
        /// Name of the block.
        block: String,
        /// The inconsistency.
        reason: String,
    },
    /// A block needs a CPU core that this process may not use.
    #[error("`core` of `{block}` must be one of {}, got {core}", numbers(.offered))]
    NoSuchCore {
        /// Name of the block.
        block: String,
        /// Number of the core that the block needs.
        core: usize,
        /// Numbers of the cores that this process may use.
        offered: Vec<usize>,
    },
    /// The operating system created no thread.
    #[error("cannot create a thread for `{block}`")]
    NoThread {
        /// Name of the block.
        block: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Blocks failed in their `start`; no block worked, all finished.
    #[error("{}", join(.0))]
    Blocks(Vec<Failure>),
    /// FutureSDR failed.
    #[error("FutureSDR did not start: {0}")]
    Runtime(String),
}

/// Reason why a block did not run a command. The command will not run later either, unless the block
/// [hung](Self::Hung).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// There is no such block.
    #[error("there is no block `{0}`")]
    NoSuchBlock(String),
    /// The block has ended.
    #[error("`{0}` has ended")]
    Ended(String),
    /// The block worked on a frame for longer than the time limit.
    #[error("`{block}` did not finish its frame within {} s", (limit.as_secs_f64() * 1e3).round() / 1e3)]
    Busy {
        /// Name of the block.
        block: String,
        /// The time limit.
        limit: Duration,
    },
    /// The block began to run the command and did not finish within the time limit.
    #[error("`{block}` began to answer and did not finish within {} s", limit.as_secs())]
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
