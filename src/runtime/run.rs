//! What all blocks of a run share with those who watch it.

use super::assembly::Part;
use super::edge::Edge;
use super::event::{EventKind, Events};
use super::hosted::Mailbox;
use super::report::{BlockStats, Failure, Queue, Report, RunState, State, panic_text, with_causes};
use super::tally::Tally;
use super::timing::{Latency, Pushes, Waiting};
use crate::block::BlockError;
use crate::kind::Waker;
use crate::port::PortType;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Whether blocks may work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Not before every block has started.
    Closed,
    /// All have started.
    Open,
    /// One could not start, so none works.
    Cancelled,
}

/// One run of a flowgraph.
pub(super) struct Run {
    pub cells: Vec<Arc<Cell>>,
    pub events: Arc<Events>,
    /// Blocks may start.
    launched: AtomicBool,
    starting: AtomicUsize,
    gate: AtomicU8,
    stopping: AtomicBool,
    aborting: AtomicBool,
    /// Blocks beside those of the run, which an abort has to reach too.
    companions: Mutex<Vec<Weak<Cell>>>,
    failures: Mutex<Vec<Failure>>,
    opened: OnceLock<Instant>,
    ended: Mutex<Option<Duration>>,
    end: Condvar,
}

/// One block of a run.
pub(super) struct Cell {
    pub name: String,
    /// Has the block's `work` called.
    pub wake: Waker,
    /// What is to be done to the block between two calls of its `work`.
    pub mailbox: Mailbox,
    /// The task of the block while it awaits something inside one of its own calls.
    waiting: Mutex<Option<std::task::Waker>>,
    arrived: AtomicBool,
    state: AtomicU8,
    inputs: Vec<(Arc<Edge>, u64)>,
    outputs: Vec<CellOutput>,
    /// Samples of a frame of each input.
    input_samples: Vec<u64>,
    /// Timestamp after the newest sample that it pushed, or that it took and has no outputs.
    newest: AtomicU64,
    /// How long it waited for what.
    pub waits: Waiting,
    /// What its frames are made of, for a block without outputs.
    sources: OnceLock<Vec<Arc<Pushes>>>,
    latency: Latency,
    busy_nanoseconds: AtomicU64,
    works: AtomicU64,
    faults: AtomicU64,
    restarts: AtomicU64,
    last_fault: Mutex<Option<Failure>>,
    /// When a skipped frame was told of, and how many were not since.
    told: Mutex<Option<(Instant, u64)>>,
    pub tally: Mutex<Tally>,
}

/// One output port of a block.
struct CellOutput {
    pushed: AtomicU64,
    frame_bytes: u64,
    frame_samples: u64,
    /// What a source pushed when.
    pushes: Option<Arc<Pushes>>,
}

/// What a block did wrong.
pub(super) struct Fault {
    pub cause: String,
    pub panic: bool,
}

impl Fault {
    pub fn error(error: &BlockError) -> Self {
        Self { cause: with_causes(error), panic: false }
    }

    pub fn panic(panic: &(dyn Any + Send)) -> Self {
        Self { cause: panic_text(panic), panic: true }
    }

    /// The same fault, and why the block did not survive it.
    pub fn because(mut self, why: &str) -> Self {
        self.cause = format!("{}; {why}", self.cause);
        self
    }
}

/// Skipped frames of a block are told of once in this time.
const TELL: Duration = Duration::from_secs(1);

const STATES: [State; 4] = [State::Starting, State::Running, State::Finished, State::Failed];
const GATES: [Gate; 3] = [Gate::Closed, Gate::Open, Gate::Cancelled];

/// A panic elsewhere leaves plain data behind, which is still worth reading.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cell {
    pub fn new(part: &Part, epoch: Instant) -> Arc<Self> {
        let inputs = part.inputs.iter().cloned();
        let in_bytes = part.ports.inputs.iter().map(|port| port.frame_bytes() as u64);
        let is_source = part.inputs.is_empty();
        let output = |port: &PortType| CellOutput {
            pushed: AtomicU64::new(0),
            frame_bytes: port.frame_bytes() as u64,
            frame_samples: port.clock.samples_per_frame,
            pushes: is_source.then(Pushes::new),
        };
        Arc::new(Self {
            name: part.name.clone(),
            wake: part.wake.clone(),
            mailbox: Mailbox::default(),
            waiting: Mutex::default(),
            arrived: AtomicBool::new(false),
            state: AtomicU8::new(State::Starting as u8),
            inputs: inputs.zip(in_bytes).collect(),
            outputs: part.ports.outputs.iter().map(output).collect(),
            input_samples: part
                .ports
                .inputs
                .iter()
                .map(|port| port.clock.samples_per_frame)
                .collect(),
            newest: AtomicU64::new(u64::MAX),
            waits: Waiting::new(epoch),
            sources: OnceLock::new(),
            latency: Latency::default(),
            busy_nanoseconds: AtomicU64::new(0),
            works: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            last_fault: Mutex::default(),
            told: Mutex::default(),
            tally: Mutex::new(Tally::new(part.occupant())),
        })
    }

    /// The block has pushed `frames` frames so far, the last one of timestamp `last`.
    pub fn set_pushed(&self, output: usize, frames: u64, last: Option<u64>) {
        let output = &self.outputs[output];
        let is_new = output.pushed.swap(frames, Ordering::Relaxed) != frames;
        let Some(last) = last.filter(|_| is_new) else { return };
        let until = last.saturating_add(output.frame_samples);
        self.newest.store(until, Ordering::Relaxed);
        if let Some(pushes) = &output.pushes {
            pushes.note(until, self.waits.now());
        }
    }

    /// The block, which has no outputs, is done with frames of `input` of these timestamps.
    pub fn note_done(&self, input: usize, times: &[u64]) {
        if times.is_empty() {
            return;
        }
        let now = self.waits.now();
        let sources = self.sources.get().map_or(&[][..], Vec::as_slice);
        for time in times {
            let until = time.saturating_add(self.input_samples[input]);
            self.newest.store(until, Ordering::Relaxed);
            self.latency.note(sources, until, now);
        }
    }

    /// What the block's outputs were pushed when, if it is a source.
    pub fn pushes(&self) -> impl Iterator<Item = &Arc<Pushes>> {
        self.outputs.iter().filter_map(|output| output.pushes.as_ref())
    }

    /// Has the block, which has no outputs, measure how long after `sources` it is.
    pub fn set_sources(&self, sources: Vec<Arc<Pushes>>) {
        let _ = self.sources.set(sources);
    }

    /// Most frames that waited before each input since the last call.
    pub fn take_peaks(&self) -> Vec<usize> {
        self.inputs.iter().map(|(edge, _)| edge.take_peak()).collect()
    }

    pub fn add_busy(&self, time: Duration) {
        self.busy_nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn count_work(&self) {
        self.works.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps the task of a block that awaits inside a call, so that an abort reaches it there.
    pub fn waits_as(&self, task: &std::task::Waker) {
        lock(&self.waiting).replace(task.clone());
    }

    /// A failed block stays failed.
    pub fn set_state(&self, state: State) {
        self.state.fetch_max(state as u8, Ordering::AcqRel);
    }

    fn note_fault(&self, Fault { cause, panic }: Fault) -> Failure {
        let failure = Failure { block: self.name.clone(), cause, panic };
        self.faults.fetch_add(1, Ordering::Relaxed);
        lock(&self.last_fault).replace(failure.clone());
        failure
    }

    pub fn stats(&self) -> BlockStats {
        let ins = || self.inputs.iter().map(|(edge, bytes)| (edge.popped(), *bytes));
        let outs = || {
            let pushed = |output: &CellOutput| output.pushed.load(Ordering::Relaxed);
            self.outputs.iter().map(move |output| (pushed(output), output.frame_bytes))
        };
        let [input_wait, room_wait] = self.waits.totals();
        let newest = self.newest.load(Ordering::Relaxed);
        let queue = |edge: &Edge| Queue {
            queued: edge.queued(),
            depth: edge.depth(),
            taken: edge.popped(),
        };
        let tally = lock(&self.tally);
        BlockStats {
            name: self.name.clone(),
            kind: tally.occupant.kind,
            state: STATES[usize::from(self.state.load(Ordering::Acquire))],
            faults: self.faults.load(Ordering::Relaxed),
            restarts: self.restarts.load(Ordering::Relaxed),
            last_fault: lock(&self.last_fault).clone(),
            frames_in: ins().map(|(frames, _)| frames).sum(),
            frames_out: outs().map(|(frames, _)| frames).sum(),
            bytes_in: ins().map(|(frames, bytes)| frames * bytes).sum(),
            bytes_out: outs().map(|(frames, bytes)| frames * bytes).sum(),
            busy: Duration::from_nanos(self.busy_nanoseconds.load(Ordering::Relaxed)),
            device_busy: Duration::from_nanos(tally.device_nanoseconds()),
            device_jobs: tally.occupant.counters.device_jobs().times(),
            input_wait,
            room_wait,
            newest_timestamp: (newest != u64::MAX).then_some(newest),
            latencies: self.sources.get().map(|_| self.latency.get()),
            works: self.works.load(Ordering::Relaxed),
            queues: self.inputs.iter().map(|(edge, _)| queue(edge)).collect(),
            counters: tally.list(),
            summary: tally.occupant.summary.get(),
        }
    }
}

impl Run {
    pub fn new(cells: Vec<Arc<Cell>>, events: Arc<Events>) -> Arc<Self> {
        Arc::new(Self {
            starting: AtomicUsize::new(cells.len()),
            gate: AtomicU8::new(if cells.is_empty() { Gate::Open } else { Gate::Closed } as u8),
            cells,
            events,
            launched: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            aborting: AtomicBool::new(false),
            companions: Mutex::default(),
            failures: Mutex::default(),
            opened: OnceLock::new(),
            ended: Mutex::default(),
            end: Condvar::new(),
        })
    }

    /// The block called `name`.
    pub fn cell(&self, name: &str) -> Option<&Arc<Cell>> {
        self.cells.iter().find(|cell| cell.name == name)
    }

    pub fn gate(&self) -> Gate {
        GATES[usize::from(self.gate.load(Ordering::Acquire))]
    }

    /// The block has started, or failed to; the last one opens the gate or cancels the run.
    pub fn arrive(&self, cell: &Cell) {
        if cell.arrived.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.starting.fetch_sub(1, Ordering::AcqRel) == 1 {
            let gate = if self.failures().is_empty() { Gate::Open } else { Gate::Cancelled };
            if gate == Gate::Open {
                self.cells.iter().for_each(|cell| cell.set_state(State::Running));
            }
            let _ = self.opened.set(Instant::now());
            if gate == Gate::Open {
                self.events.add(EventKind::Started, None, "");
            }
            self.gate.store(gate as u8, Ordering::Release);
            self.wake_all();
        }
    }

    /// Blocks start now.
    pub fn launch(&self) {
        self.launched.store(true, Ordering::Release);
    }

    /// It will never be started.
    pub fn discard(&self) {
        lock(&self.ended).get_or_insert(Duration::ZERO);
        self.end.notify_all();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub fn is_aborting(&self) -> bool {
        self.aborting.load(Ordering::Acquire)
    }

    /// Has the sources finish; `why` is for those who watch.
    pub fn request_stop(&self, why: &str) {
        if !self.stopping.swap(true, Ordering::AcqRel) && !self.is_ended() {
            self.events.add(EventKind::Stopping, None, why);
        }
        self.wake_all();
    }

    pub fn abort(&self) {
        if !self.aborting.swap(true, Ordering::AcqRel) && !self.is_ended() {
            self.events.add(EventKind::Aborted, None, "");
        }
        self.stopping.store(true, Ordering::Release);
        self.wake_all();
        let companions: Vec<_> = lock(&self.companions).iter().filter_map(Weak::upgrade).collect();
        for cell in self.cells.iter().chain(&companions) {
            if let Some(task) = lock(&cell.waiting).take() {
                task.wake();
            }
        }
    }

    /// Has an abort reach `companion` too.
    pub fn add_companion(&self, companion: &Arc<Cell>) {
        let mut companions = lock(&self.companions);
        companions.retain(|known| known.strong_count() > 0);
        companions.push(Arc::downgrade(companion));
    }

    fn wake_all(&self) {
        self.cells.iter().for_each(|cell| cell.wake.wake());
    }

    /// Keeps the cause and stops the run: what is queued behind the block still flows out.
    pub fn fail(&self, cell: &Cell, fault: Fault) {
        let failure = cell.note_fault(fault);
        // The report is what users read; a log beside it would say everything twice.
        tracing::info!(block = cell.name, "{}", failure.text());
        self.events.add(EventKind::Fault, Some(&cell.name), failure.text());
        lock(&self.failures).push(failure);
        cell.set_state(State::Failed);
        self.request_stop("a block failed");
    }

    /// The block goes on without the frame at which it failed.
    pub fn skip(&self, cell: &Cell, fault: Fault) {
        let text = cell.note_fault(fault).text();
        let mut told = lock(&cell.told);
        // One that fails at every frame must not push everything else out of the events.
        match &mut *told {
            Some((when, untold)) if when.elapsed() < TELL => *untold += 1,
            told => {
                let before = told.replace((Instant::now(), 0)).map_or(0, |(_, untold)| untold);
                let more =
                    if before > 0 { format!(" ({before} more before)") } else { String::new() };
                self.events.add(EventKind::Skipped, Some(&cell.name), format!("{text}{more}"));
            }
        }
    }

    /// The block was built anew and goes on.
    pub fn restarted(&self, cell: &Cell, fault: Fault) {
        let failure = cell.note_fault(fault);
        cell.restarts.fetch_add(1, Ordering::Relaxed);
        self.events.add(EventKind::Restarted, Some(&cell.name), failure.text());
    }

    /// Most frames that waited before each input of each block since the last call.
    pub fn take_peaks(&self) -> Vec<(String, Vec<usize>)> {
        self.cells.iter().map(|cell| (cell.name.clone(), cell.take_peaks())).collect()
    }

    pub fn failures(&self) -> Vec<Failure> {
        lock(&self.failures).clone()
    }

    pub fn stats(&self) -> Vec<BlockStats> {
        self.cells.iter().map(|cell| cell.stats()).collect()
    }

    pub fn state(&self) -> RunState {
        match (self.is_ended(), self.gate()) {
            (true, _) if self.failures().is_empty() => RunState::Ended,
            (true, _) => RunState::Failed,
            (false, Gate::Closed) if !self.launched.load(Ordering::Acquire) => RunState::Prepared,
            (false, Gate::Closed) => RunState::Starting,
            (false, Gate::Open) if !self.is_stopping() => RunState::Running,
            (false, _) => RunState::Draining,
        }
    }

    /// Time from the first `work` to the end, or to now.
    pub fn elapsed(&self) -> Duration {
        let ended = *lock(&self.ended);
        ended.unwrap_or_else(|| self.opened.get().map_or(Duration::ZERO, Instant::elapsed))
    }

    /// Nothing of the run is left; `fault` says what the runtime underneath has to complain of.
    pub fn set_ended(&self, fault: Option<String>) {
        let mut failures = lock(&self.failures);
        if let (Some(cause), true) = (fault, failures.is_empty()) {
            failures.push(Failure { block: "runtime".to_owned(), cause, panic: false });
        }
        let failed = failures.len();
        drop(failures);
        let elapsed = self.opened.get().map_or(Duration::ZERO, Instant::elapsed);
        let text = match failed {
            0 => "all went well".to_owned(),
            1 => "a block failed".to_owned(),
            failed => format!("{failed} blocks failed"),
        };
        // Whoever hears of the end finds everything that went before.
        self.events.add(EventKind::Ended, None, text);
        lock(&self.ended).get_or_insert(elapsed);
        self.end.notify_all();
    }

    pub fn is_ended(&self) -> bool {
        lock(&self.ended).is_some()
    }

    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let (ended, _) = self
            .end
            .wait_timeout_while(lock(&self.ended), timeout, |ended| ended.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        ended.is_some()
    }

    pub fn wait(&self) -> Report {
        let ended = self
            .end
            .wait_while(lock(&self.ended), |ended| ended.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        let elapsed = ended.unwrap_or_default();
        drop(ended);
        Report { failures: self.failures(), stats: self.stats(), elapsed }
    }
}
