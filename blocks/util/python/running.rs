//! The thread that starts the process of a block and receives from it, so that no thread of the executor waits.

use super::ask::described;
use super::fault::Fault;
use super::gpu::Shown;
use super::memory::{Counts, MAX_JOBS};
use super::port::Described;
use super::process::{Killer, Log, Packet, Process, START_LIMIT, Sender};
use super::program::Program;
use fxgraph::frame::SharedMemory;
use fxgraph::kind::Waker;
use fxgraph::lock::lock;
use fxgraph::threads::Counted;
use fxgraph::{BlockError, PortType};
use rustix::io::fcntl_dupfd_cloexec;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{self, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time for which the thread does not look at the time limit.
const TICK: Duration = Duration::from_millis(250);
/// Longest wait for the end of a process that was killed. One that the kernel does not let go ends later.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Report of the thread.
#[derive(Debug)]
pub enum Report {
    /// The block has started.
    Ready(Sender),
    /// A frame was computed, or dropped by the block.
    Done { job: u64, is_dropped: bool, timestamp: u64 },
    /// The block has finished.
    Finished,
    /// A fault; the thread has ended if the process has.
    Failed(Fault),
}

/// State that block and thread share.
struct Shared {
    reports: Mutex<VecDeque<Report>>,
    /// Waker of a future that waits for the first report.
    starting: Mutex<Option<task::Waker>>,
    /// Number of answers that the process owes. The block adds to it, the thread subtracts from it.
    owed: AtomicUsize,
    /// Start of the wait for the next answer, in nanoseconds since `began`.
    since: AtomicU64,
    began: Instant,
    timeout: Duration,
    /// Time in which the process owes an answer.
    busy: Counted,
    wake: Waker,
    /// Killer of the process, once it runs; or that it must not start.
    killer: Mutex<End>,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// Whether the process may run.
enum End {
    NotStarted,
    Running(Killer),
    Stopped,
}

impl Shared {
    fn nanoseconds(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Notes an answer of the process.
    fn answered(&self) {
        let now = self.nanoseconds();
        let since = self.since.swap(now, Ordering::AcqRel);
        if self.owed.load(Ordering::Acquire) > 0 {
            self.busy.add(Duration::from_nanos(now.saturating_sub(since)));
        }
        // An error outside a frame is no answer that the block expects.
        let less = |owed: usize| owed.checked_sub(1);
        let _ = self.owed.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// Whether the process has not answered within the time limit.
    fn is_overdue(&self) -> bool {
        if self.owed.load(Ordering::Acquire) == 0 {
            return false;
        }
        // After `owed`, which is set last.
        let since = self.since.load(Ordering::Acquire);
        let waited = self.nanoseconds().saturating_sub(since);
        u128::from(waited) > self.timeout.as_nanos()
    }

    fn report(&self, report: Report) {
        lock(&self.reports).push_back(report);
        if let Some(starting) = lock(&self.starting).take() {
            starting.wake();
        }
        self.wake.wake();
    }
}

/// Arguments of the thread that starts the process.
pub struct Start {
    pub name: String,
    pub program: Program,
    pub values: Map<String, Value>,
    pub inputs: Vec<PortType>,
    /// Output that the process described when the plan was made.
    pub output: Option<Described>,
    pub timeout: Duration,
    /// GPU of the block.
    pub gpu: Option<Shown>,
    pub busy: Counted,
    pub wake: Waker,
    pub log: Log,
}

/// The process of a block, with its thread.
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts the thread, which starts the process. `counts` are its validity counts.
    pub fn start(start: Start, counts: &Counts) -> Result<Self, BlockError> {
        let shared = Arc::new(Shared {
            // Room for all reports of jobs, so that steady state does not allocate.
            reports: Mutex::new(VecDeque::with_capacity(2 * MAX_JOBS + 2)),
            starting: Mutex::new(None),
            owed: AtomicUsize::new(0),
            since: AtomicU64::new(0),
            began: Instant::now(),
            timeout: start.timeout,
            busy: start.busy.clone(),
            wake: start.wake.clone(),
            killer: Mutex::new(End::NotStarted),
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        });
        let stopped = |error: std::io::Error| {
            BlockError::new("cannot start the thread of the process").because(error)
        };
        let message = json!({"memory": {
            "jobs": counts.jobs(),
            "stride": counts.stride(),
            "counters": counts.counters(),
            "probe": start.gpu.as_ref().map(|gpu| &gpu.probe[..]),
        }});
        let memory = fcntl_dupfd_cloexec(SharedMemory::file(counts.memory()), 0);
        let memory = memory.map_err(|error| stopped(error.into()))?;
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("{} python", start.name))
            .spawn(move || {
                let ended = receive(&of_thread, start, &message, memory);
                of_thread.report(ended);
                *lock(&of_thread.has_ended) = true;
                of_thread.ended.notify_all();
            })
            .map_err(stopped)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Waits for the first report, and takes it.
    pub async fn first_report(&self) -> Report {
        std::future::poll_fn(|context| {
            // Registered before the check, so that a report in between wakes this task.
            *lock(&self.shared.starting) = Some(context.waker().clone());
            self.report().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Takes the next report, if there is one.
    pub fn report(&self) -> Option<Report> {
        lock(&self.shared.reports).pop_front()
    }

    /// Notes that the process owes one more answer, which must come within the time limit after the one before.
    pub fn expect_answer(&self) {
        let Shared { owed, since, .. } = &*self.shared;
        // Only this call adds, so that a count of 0 stays until then.
        if owed.load(Ordering::Acquire) == 0 {
            since.store(self.shared.nanoseconds(), Ordering::Release);
        }
        owed.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *lock(&self.shared.killer), End::Stopped);
        if let End::Running(killer) = before {
            killer.kill();
        }
        let has_ended = lock(&self.shared.has_ended);
        let waited = self.shared.ended.wait_timeout_while(has_ended, END_LIMIT, |ended| !*ended);
        let has_ended = *waited.unwrap_or_else(PoisonError::into_inner).0;
        if let Some(thread) = self.thread.take().filter(|_| has_ended) {
            let _ = thread.join();
        }
    }
}

/// Starts the process and reports its packets. Returns the last report.
fn receive(shared: &Shared, start: Start, message: &Value, memory: OwnedFd) -> Report {
    let mut process = match ready(shared, start, message, memory) {
        Ok(process) => process,
        Err(fault) => return Report::Failed(fault),
    };
    let tick = TICK.min(shared.timeout / 8).max(Duration::from_millis(1));
    loop {
        let report = match process.receive(tick) {
            Ok(Some(Packet::Done { job, is_dropped, timestamp })) => {
                shared.answered();
                Report::Done { job, is_dropped, timestamp }
            }
            Ok(Some(Packet::Message(message))) if message.get("bye").is_some() => {
                return Report::Finished;
            }
            Ok(Some(Packet::Message(_))) => continue,
            Ok(None) => {
                if shared.is_overdue() {
                    return Report::Failed(process.hung(shared.timeout));
                }
                continue;
            }
            Err(fault) if fault.has_ended() => return Report::Failed(fault),
            Err(fault) => {
                shared.answered();
                Report::Failed(fault)
            }
        };
        shared.report(report);
    }
}

/// Starts the process and the block in it.
fn ready(
    shared: &Shared,
    start: Start,
    message: &Value,
    memory: OwnedFd,
) -> Result<Process, Fault> {
    let Start { program, values, inputs, gpu, log, .. } = start;
    let visible = gpu.as_ref().map(|gpu| gpu.visible.as_str());
    let mut process = Process::start(&program, &values, &inputs, visible, log)?;
    let stopped = || Fault::System("the block was stopped".to_owned());
    match &mut *lock(&shared.killer) {
        End::Stopped => return Err(stopped()),
        killer => *killer = End::Running(process.killer()),
    }
    let hello = described(process.hear(START_LIMIT)?)?;
    if hello.output != start.output {
        let message =
            "`ports` must return the same port as before: a file that it imports has changed";
        return Err(Fault::System(message.to_owned()));
    }
    let sender = process.sender();
    sender.tell(message, Some(memory.as_fd()))?;
    // The process has its own descriptor now.
    drop(memory);
    process.hear(START_LIMIT)?;
    shared.report(Report::Ready(sender));
    Ok(process)
}
