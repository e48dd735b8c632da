//! What all blocks of a run share with those who watch it.

use super::cell::Cell;
use super::losses::Losses;
use super::report::{BlockStats, Failure, Report, RunState, State};
use super::stalls::Stalls;
use event_listener::Event;
use fxgraph_core::error::BlockError;
use fxgraph_core::error::{panic_text, with_causes};
use fxgraph_core::event::{EventKind, Events};
use fxgraph_core::retune::Configurations;
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
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
    /// Numbers of the blocks by name.
    numbers: HashMap<String, usize>,
    pub events: Arc<Events>,
    pub configurations: Arc<Configurations>,
    /// Blocks may start.
    launched: AtomicBool,
    starting: AtomicUsize,
    /// Blocks with inputs that have not started yet; sources wait for them.
    receivers_starting: AtomicUsize,
    receivers_started: Event,
    gate: AtomicU8,
    stopping: AtomicBool,
    aborting: AtomicBool,
    /// Blocks beside those of the run, which an abort has to reach too.
    companions: Mutex<Vec<Weak<Cell>>>,
    failures: Mutex<Vec<Failure>>,
    losses: Losses,
    stalls: Stalls,
    opened: OnceLock<Instant>,
    ended: Mutex<Option<Duration>>,
    end: Condvar,
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

const GATES: [Gate; 3] = [Gate::Closed, Gate::Open, Gate::Cancelled];

/// A panic elsewhere leaves plain data behind, which is still worth reading.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    pub fn new(cells: Vec<Arc<Cell>>, events: Arc<Events>) -> Arc<Self> {
        for cell in &cells {
            let target = (Arc::clone(&events), cell.name.clone());
            lock(&cell.tally).occupant.events.redirect(Some(target));
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
            companions: Mutex::default(),
            failures: Mutex::default(),
            losses: Losses::default(),
            stalls: Stalls::default(),
            opened: OnceLock::new(),
            ended: Mutex::default(),
            end: Condvar::new(),
        })
    }

    /// The block called `name`.
    pub fn cell(&self, name: &str) -> Option<&Arc<Cell>> {
        self.numbers.get(name).map(|number| &self.cells[*number])
    }

    pub fn gate(&self) -> Gate {
        GATES[usize::from(self.gate.load(Ordering::Acquire))]
    }

    /// The block has started, or failed to; the last one opens the gate or cancels the run.
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

    /// Waits until every block with inputs has started, or failed to. Sources start after them:
    /// a source that takes in data while a GPU is still being set up loses the data.
    pub async fn receivers_started(&self) {
        while self.receivers_starting.load(Ordering::Acquire) > 0 {
            let listener = self.receivers_started.listen();
            if self.receivers_starting.load(Ordering::Acquire) > 0 {
                listener.await;
            }
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
        let companions: Vec<_> = lock(&self.companions).iter().filter_map(Weak::upgrade).collect();
        for cell in self.cells.iter().chain(&companions) {
            cell.interrupt();
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
        if let Some(before) = cell.tells_skip() {
            let more = if before > 0 { format!(" ({before} more before)") } else { String::new() };
            self.events.add(EventKind::Skipped, Some(&cell.name), format!("{text}{more}"));
        }
    }

    /// The block was built anew and goes on.
    pub fn restarted(&self, cell: &Cell, fault: Fault) {
        let failure = cell.note_fault(fault);
        cell.count_restart();
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

    /// Events of what blocks have lost since the last ones, those of a counter `interval` apart.
    pub fn tell_losses(&self, interval: Duration) {
        self.losses.tell(|| self.stats(), &self.events, interval);
    }

    /// Looks which blocks no frame passes.
    pub fn tell_stalls(&self) {
        if self.state() == RunState::Running {
            self.stalls.look(&self.cells, &self.events);
        }
    }

    /// Faults of all blocks, also those that the run survived.
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
        self.tell_losses(Duration::ZERO);
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
        let (failures, stats) = (self.failures(), self.stats());
        Report { failures, stats, elapsed, is_aborted: self.is_aborting() }
    }
}
