//! State shared by all blocks of a run and the handles that monitor it.

use super::cell::Cell;
use super::fault::Fault;
use super::losses::Losses;
use super::report::{BlockStats, Failure, Report, RunState, State, Unfinished};
use super::stalls::{Stall, Stalls};
use event_listener::Event;
use fxgraph_core::changes::Configurations;
use fxgraph_core::error::SharedFault;
use fxgraph_core::event::{EventKind, Events};
use fxgraph_core::lock::lock;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Whether blocks may work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Not every block has started yet.
    Closed,
    /// All blocks have started.
    Open,
    /// A block could not start, so no block works.
    Cancelled,
}

/// One run of a flowgraph.
pub(super) struct Run {
    pub cells: Vec<Arc<Cell>>,
    /// Numbers of the blocks by name.
    numbers: HashMap<String, usize>,
    pub events: Arc<Events>,
    pub configurations: Arc<Configurations>,
    /// Blocks may start.
    launched: AtomicBool,
    starting: AtomicUsize,
    /// Number of blocks with inputs that have not started yet; sources wait for them.
    receivers_starting: AtomicUsize,
    receivers_started: Event,
    gate: AtomicU8,
    stopping: AtomicBool,
    aborting: AtomicBool,
    /// Candidates and shadows, which an abort has to interrupt too.
    candidates: Mutex<Vec<Weak<Cell>>>,
    failures: Mutex<Vec<Failure>>,
    /// Shared faults that are in `failures`.
    told: Mutex<BTreeSet<String>>,
    losses: Losses,
    stalls: Stalls,
    /// Wakes a worker if blocks are ready to run: see [`Self::wake_workers`].
    pub workers: OnceLock<Box<dyn Fn() + Send + Sync>>,
    opened: OnceLock<Instant>,
    ended: Mutex<Option<Duration>>,
    end: Condvar,
}

const GATES: [Gate; 3] = [Gate::Closed, Gate::Open, Gate::Cancelled];

impl Run {
    pub fn new(cells: Vec<Arc<Cell>>, events: Arc<Events>) -> Arc<Self> {
        for cell in &cells {
            let target = (Arc::clone(&events), cell.name.clone());
            lock(&cell.counts).slot_block.events.redirect(Some(target));
        }
        Arc::new(Self {
            starting: AtomicUsize::new(cells.len()),
            receivers_starting: AtomicUsize::new(
                cells.iter().filter(|cell| !cell.is_source()).count(),
            ),
            receivers_started: Event::new(),
            numbers: cells.iter().map(|cell| cell.name.clone()).zip(0..).collect(),
            gate: AtomicU8::new(if cells.is_empty() { Gate::Open } else { Gate::Closed } as u8),
            cells,
            events,
            configurations: Arc::default(),
            launched: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            aborting: AtomicBool::new(false),
            candidates: Mutex::default(),
            failures: Mutex::default(),
            told: Mutex::default(),
            losses: Losses::default(),
            stalls: Stalls::default(),
            workers: OnceLock::new(),
            opened: OnceLock::new(),
            ended: Mutex::default(),
            end: Condvar::new(),
        })
    }

    /// Wakes a worker for blocks that wait for the end of a call that is usually short and takes long now.
    pub fn wake_workers(&self) {
        if let Some(wake) = self.workers.get() {
            wake();
        }
    }

    /// Number of the block called `name`.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// The block called `name`.
    pub fn cell(&self, name: &str) -> Option<&Arc<Cell>> {
        self.number(name).map(|number| &self.cells[number])
    }

    pub fn gate(&self) -> Gate {
        GATES[usize::from(self.gate.load(Ordering::Acquire))]
    }

    /// Notes that a block has started or failed to; the last block opens the gate or cancels the run.
    pub fn arrive(&self, cell: &Cell) {
        if !cell.arrives() {
            return;
        }
        if !cell.is_source() && self.receivers_starting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.receivers_started.notify(usize::MAX);
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

    /// Waits until every block with inputs has started or failed to. Sources start after them, because
    /// data received while a GPU is still being set up would have to be dropped.
    pub async fn receivers_started(&self) {
        while self.receivers_starting.load(Ordering::Acquire) > 0 {
            let listener = self.receivers_started.listen();
            if self.receivers_starting.load(Ordering::Acquire) > 0 {
                listener.await;
            }
        }
    }

    /// Notes that blocks start now.
    pub fn launch(&self) {
        self.launched.store(true, Ordering::Release);
    }

    /// Notes that the run will never start.
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

    /// Stops the sources; `why` is the text of the event.
    pub fn request_stop(&self, why: &str) {
        if !self.stopping.swap(true, Ordering::AcqRel) && !self.is_ended() {
            self.events.add(EventKind::Stopping, None, why);
        }
        self.wake_all();
    }

    pub fn abort(&self) {
        let ended = lock(&self.ended);
        if ended.is_some() {
            return;
        }
        let was_aborting = self.aborting.swap(true, Ordering::AcqRel);
        drop(ended);
        if !was_aborting {
            self.events.add(EventKind::Aborted, None, "");
        }
        self.stopping.store(true, Ordering::Release);
        self.wake_all();
        let candidates: Vec<_> = lock(&self.candidates).iter().filter_map(Weak::upgrade).collect();
        for cell in self.cells.iter().chain(&candidates) {
            cell.interrupt();
        }
    }

    /// Adds a candidate or shadow for an abort to interrupt.
    pub fn add_candidate(&self, candidate: &Arc<Cell>) {
        let mut candidates = lock(&self.candidates);
        candidates.retain(|known| known.strong_count() > 0);
        candidates.push(Arc::downgrade(candidate));
    }

    fn wake_all(&self) {
        self.cells.iter().for_each(|cell| cell.wake.wake());
    }

    /// Stores the cause and stops the run; frames queued downstream of the block are still processed.
    ///
    /// A fault that several blocks report becomes one failure, of the block that caused it if that is known. So does one
    /// that the block reports again at its end, such as a network that takes no packet.
    pub fn fail(&self, cell: &Cell, fault: Fault) {
        let shared = fault.shared.clone();
        let mut failure = cell.note_fault(fault);
        let is_told = |shared: &SharedFault| !lock(&self.told).insert(shared.of.clone());
        let is_known = lock(&self.failures).contains(&failure);
        if !is_known && !shared.as_ref().is_some_and(is_told) {
            let cause = shared.and_then(|shared| shared.block);
            if let Some(block) = cause.filter(|name| self.cells.iter().any(|one| one.name == *name))
            {
                failure.block = block;
            }
            // Users read the report; a log at a higher level would repeat it.
            tracing::info!(block = failure.block, "{}", failure.text());
            self.events.add(EventKind::Fault, Some(&failure.block), failure.text());
            lock(&self.failures).push(failure);
        }
        cell.set_state(State::Failed);
        self.request_stop("a block failed");
    }

    /// Notes that the block continues without the frame at which it failed.
    pub fn skip(&self, cell: &Cell, fault: Fault) {
        let text = cell.note_fault(fault).text();
        if let Some(before) = cell.tells_skip() {
            let more = if before > 0 { format!(" (and {before} before)") } else { String::new() };
            self.events.add(EventKind::Skipped, Some(&cell.name), format!("{text}{more}"));
        }
    }

    /// Notes that the block was recreated and continues.
    pub fn restarted(&self, cell: &Cell, fault: Fault) {
        let failure = cell.note_fault(fault);
        cell.count_restart();
        self.events.add(EventKind::Restarted, Some(&cell.name), failure.text());
    }

    /// Highest fill of each input queue of each block since the last call, in frames.
    pub fn take_peaks(&self) -> Vec<(String, Vec<usize>)> {
        self.cells.iter().map(|cell| (cell.name.clone(), cell.take_peaks())).collect()
    }

    pub fn failures(&self) -> Vec<Failure> {
        lock(&self.failures).clone()
    }

    pub fn unfinished(&self) -> Vec<Unfinished> {
        self.cells.iter().filter_map(|cell| cell.unfinished()).collect()
    }

    pub fn stats(&self) -> Vec<BlockStats> {
        self.cells.iter().map(|cell| cell.stats()).collect()
    }

    /// Adds events for data that went missing or was dropped since the last ones, at most one per counter
    /// and `interval`.
    pub fn tell_losses(&self, interval: Duration) {
        self.losses.tell(|| self.stats(), &self.events, interval);
    }

    /// Makes measurements unknown that are too old.
    pub fn expire_measurements(&self) {
        let now = Instant::now();
        self.cells.iter().for_each(|cell| cell.expire_measurements(now));
    }

    /// Detects stalled blocks, and resolves deadlocks. Blocks also wait for each other while they drain, but are not
    /// stalled then.
    pub fn tell_stalls(&self) {
        let state = self.state();
        if matches!(state, RunState::Running | RunState::Draining) {
            self.stalls.look(&self.cells, &self.events, state);
        }
    }

    /// Blocks that cause a stall.
    pub fn stalls(&self) -> Vec<Stall> {
        match self.state() {
            RunState::Running => self.stalls.list(&self.cells),
            _ => Vec::new(),
        }
    }

    /// Number of faults of all blocks, including those that the run survived.
    pub fn faults(&self) -> u64 {
        self.cells.iter().map(|cell| cell.faults()).sum()
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

    /// Time from the first call of `work` to the end, or to now.
    pub fn elapsed(&self) -> Duration {
        let ended = *lock(&self.ended);
        ended.unwrap_or_else(|| self.opened.get().map_or(Duration::ZERO, Instant::elapsed))
    }

    /// Notes that the run has ended; `fault` is an error of FutureSDR.
    pub fn set_ended(&self, fault: Option<String>) {
        let mut failures = lock(&self.failures);
        if let (Some(cause), true) = (fault, failures.is_empty()) {
            failures.push(Failure { block: "runtime".to_owned(), cause, panic: false });
        }
        let failed = failures.len();
        drop(failures);
        let elapsed = self.opened.get().map_or(Duration::ZERO, Instant::elapsed);
        let text = match failed {
            0 => "without failures".to_owned(),
            1 => "a block failed".to_owned(),
            failed => format!("{failed} blocks failed"),
        };
        self.tell_losses(Duration::ZERO);
        for cell in &self.cells {
            lock(&cell.counts).slot_block.counters.end_measurements();
        }
        // Added after all others: a client that receives this event has received those before.
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
        let (failures, stats) = (self.failures(), self.stats());
        Report { failures, stats, elapsed, is_aborted: self.is_aborting() }
    }
}
