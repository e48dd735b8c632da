//! Starting, monitoring and ending a run.

use super::cell::Cell;
use super::fsdr;
use super::hosted::{Hosted, Mailbox};
use super::report::{BlockStats, Failure, Report, RunState, StartError, Unanswered, Unfinished};
use super::run::{Gate, Run};
use super::slot_counts::SlotBlock;
use super::stalls::Stall;
use crate::connections::{Connection, Options, connections};
use fxgraph_core::changes::ConfigChange;
use fxgraph_core::counter::Counters;
use fxgraph_core::edge::WhenFull;
use fxgraph_core::event::{BlockEvents, Event, EventKind, Events};
use fxgraph_core::frame::Pool;
use fxgraph_core::kind::Waker;
use fxgraph_core::lock::lock;
use fxgraph_core::patience::Patience;
use fxgraph_core::port::PortType;
use fxgraph_core::summary::Summary;
use fxgraph_core::sync::{AtomicBool, Ordering, mpsc, receive};
use fxgraph_flowgraph::{Assembly, Rebuild};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Time limit for a block to finish a command that it has begun.
const ANSWER: Duration = Duration::from_secs(10);

/// Starts every block, then lets all of them work. Returns when all blocks have started, or, if a block
/// failed to, when all have finished again.
///
/// If no `tracing` subscriber is set, an inert one is installed; a program with its own subscriber
/// sets it first.
pub fn start(assembly: Assembly, options: Options) -> Result<Running, StartError> {
    Prepared::new(assembly)?.start(options)
}

/// A run that is built and can be monitored, but has not started.
pub struct Prepared {
    assembly: Assembly,
    connections: Vec<Connection>,
    handle: Handle,
}

impl Prepared {
    /// Prepares a run of `assembly`.
    pub fn new(assembly: Assembly) -> Result<Self, StartError> {
        Self::with_events(assembly, Arc::default())
    }

    /// Prepares a run of `assembly` that continues the events of the run `before`.
    pub fn after(before: &Handle, assembly: Assembly) -> Result<Self, StartError> {
        Self::with_events(assembly, Arc::clone(&before.run.events))
    }

    fn with_events(assembly: Assembly, events: Arc<Events>) -> Result<Self, StartError> {
        let connections = connections(&assembly)?;
        let epoch = Instant::now();
        let cells = assembly.parts.iter().map(|part| Cell::new(part, epoch)).collect();
        let run = Run::new(cells, events);
        let sources = sources(run.cells.len(), &connections);
        measure_latency(&assembly, &sources, &run);
        find_origins(&connections, &sources, &run);
        let mailboxes = run.cells.iter().map(|_| Arc::default()).collect();
        Ok(Self { assembly, connections, handle: Handle::new(run, mailboxes) })
    }

    /// Discards the run, none of whose blocks was started.
    pub fn discard(self) {
        self.handle.run.discard();
    }

    /// Returns a handle, which is valid before and after the start.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Starts the run, see [`start`].
    pub fn start(self, options: Options) -> Result<Running, StartError> {
        let Self { assembly, connections, handle } = self;
        let Handle { run, mailboxes } = handle.clone();
        run.launch();
        let running = Running { handle };
        if assembly.parts.is_empty() {
            run.set_ended(None);
            return Ok(running);
        }
        fsdr::launch(assembly, &connections, options, (&run, &mailboxes))
            .inspect_err(|error| run.set_ended(Some(error.to_string())))?;
        if run.gate() == Gate::Cancelled {
            return Err(StartError::Blocks(run.wait().failures));
        }
        Ok(running)
    }
}

/// Enables latency measurement in each block without outputs, relative to its upstream sources with the same sample
/// rate.
fn measure_latency(assembly: &Assembly, sources: &[Arc<[usize]>], run: &Run) {
    let rate = |port: &PortType| port.clock.adc_sample_rate_hz.to_bits();
    for (sink, part) in assembly.parts.iter().enumerate() {
        let Some(port) = part.ports.inputs.first().filter(|_| part.outputs.is_empty()) else {
            continue;
        };
        let counts_alike = |block: &&usize| {
            let outputs = &assembly.parts[**block].ports.outputs;
            outputs.iter().all(|output| rate(output) == rate(port))
        };
        let sources = sources[sink].iter().filter(counts_alike);
        let sources = sources.flat_map(|block| run.cells[*block].pushes().cloned()).collect();
        run.cells[sink].set_sources(sources);
    }
}

/// Sets, for each block, the writers of its inputs and the upstream sources with the same sample rate.
fn find_origins(connections: &[Connection], sources: &[Arc<[usize]>], run: &Run) {
    let mut writers: Vec<Vec<usize>> = vec![Vec::new(); run.cells.len()];
    let mut by_input: Vec<&Connection> = connections.iter().collect();
    by_input.sort_by_key(|connection| connection.input);
    for connection in by_input {
        writers[connection.to].push(connection.from);
    }
    for ((cell, writers), sources) in run.cells.iter().zip(writers).zip(sources) {
        let rate = |cell: &Cell| cell.rate_hz().to_bits();
        let sources = sources.iter().map(|source| &run.cells[*source]);
        let origins = sources.filter(|source| rate(source) == rate(cell));
        cell.set_before(origins.filter_map(|source| source.origin().cloned()).collect(), writers);
    }
}

/// Returns the numbers of the sources upstream of each block, itself included. Blocks with the same sources share one
/// list, so that a long chain has a single list.
fn sources(blocks: usize, connections: &[Connection]) -> Vec<Arc<[usize]>> {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); blocks];
    let mut waits = vec![0; blocks];
    for connection in connections {
        readers[connection.from].push(connection.to);
        waits[connection.to] += 1;
    }
    let mut order: Vec<usize> = (0..blocks).filter(|block| waits[*block] == 0).collect();
    // Stays empty for blocks in a cycle.
    let mut sources: Vec<Arc<[usize]>> = vec![Arc::default(); blocks];
    order.iter().for_each(|source| sources[*source] = Arc::new([*source]));
    let mut before: Vec<Vec<Arc<[usize]>>> = vec![Vec::new(); blocks];
    let mut next = 0;
    while let Some(&block) = order.get(next) {
        next += 1;
        if let Some((first, others)) = std::mem::take(&mut before[block]).split_first() {
            sources[block] = if others.iter().all(|other| Arc::ptr_eq(other, first)) {
                Arc::clone(first)
            } else {
                let all = others.iter().chain([first]).flat_map(|list| list.iter().copied());
                all.collect::<BTreeSet<usize>>().into_iter().collect()
            };
        }
        for &reader in &readers[block] {
            before[reader].push(Arc::clone(&sources[block]));
            waits[reader] -= 1;
            if waits[reader] == 0 {
                order.push(reader);
            }
        }
    }
    sources
}

/// A started flowgraph. Dropping it aborts the run.
pub struct Running {
    handle: Handle,
}

/// Handle to monitor and end a run, from any thread; cheap to clone, valid after the end.
#[derive(Clone)]
pub struct Handle {
    run: Arc<Run>,
    /// Commands to the blocks, in the order of the cells of `run`.
    mailboxes: Arc<[Arc<Mailbox>]>,
}

impl Handle {
    /// A handle on `run`, with the mailboxes of its blocks.
    pub(super) fn new(run: Arc<Run>, mailboxes: Arc<[Arc<Mailbox>]>) -> Self {
        Self { run, mailboxes }
    }

    pub(super) fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Waker that schedules a call of the block's `work`.
    pub(crate) fn waker(&self, block: &str) -> Option<Waker> {
        self.run.cell(block).map(|cell| cell.wake.clone())
    }

    /// Current statistics of every block.
    #[must_use]
    pub fn stats(&self) -> Vec<BlockStats> {
        self.run.stats()
    }

    /// Newest timestamp of `block`, see [`BlockStats::newest_timestamp`]; all statistics cost much more.
    #[must_use]
    pub fn newest_timestamp(&self, block: &str) -> Option<u64> {
        self.run.cell(block)?.newest_timestamp()
    }

    /// Blocks that have not ended.
    #[must_use]
    pub fn unfinished(&self) -> Vec<Unfinished> {
        self.run.unfinished()
    }

    /// Lifecycle state of the run.
    #[must_use]
    pub fn state(&self) -> RunState {
        self.run.state()
    }

    /// Failures so far, in the order in which they happened.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        self.run.failures()
    }

    /// Number of faults of all blocks so far, including those that the run survived.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.run.faults()
    }

    /// Blocks that no frame passes and that are the cause themselves, while the run runs.
    #[must_use]
    pub fn stalls(&self) -> Vec<Stall> {
        self.run.stalls()
    }

    /// Time from the first call of `work` to the end, or to now.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.run.elapsed()
    }

    /// Returns the events with numbers above `sequence`, as far as they are kept (some thousand). If the
    /// first one is not number `sequence` + 1, older events have been discarded.
    #[must_use]
    pub fn events_since(&self, sequence: u64) -> Vec<Event> {
        self.run.events.since(sequence)
    }

    /// Returns [`events_since`](Self::events_since), after waiting up to `timeout` for the first of them.
    #[must_use]
    pub fn wait_events(&self, sequence: u64, timeout: Duration) -> Vec<Event> {
        self.run.events.wait(sequence, timeout)
    }

    /// Returns [`events_since`](Self::events_since), after waiting for the first of them.
    pub async fn next_events(&self, sequence: u64) -> Vec<Event> {
        self.run.events.next(sequence).await
    }

    /// Runs `question` on a block between two calls of its `work`, and returns its result. The block is
    /// stalled for the duration of `question`. This call waits up to `limit` for the begin of `question`,
    /// then up to 10 s for its end.
    pub fn ask<T: Send + 'static>(
        &self,
        block: &str,
        limit: Duration,
        question: impl FnOnce(&mut Hosted) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let Some(number) = self.run.number(block) else {
            return Err(Unanswered::NoSuchBlock(block.to_owned()));
        };
        let (answer, answers) = mpsc::sync_channel(1);
        // The first to set it decides: the block begins, or the caller gives up.
        let is_decided = Arc::new(AtomicBool::new(false));
        let decide = Arc::clone(&is_decided);
        self.post(number, move |hosted| {
            if !decide.swap(true, Ordering::AcqRel) {
                // Fails only if the caller has given up.
                let _ = answer.send(question(hosted));
            }
        });
        let ended = || Unanswered::Ended(block.to_owned());
        match receive(&answers, limit) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
            Err(RecvTimeoutError::Timeout) if is_decided.swap(true, Ordering::AcqRel) => {
                receive(&answers, ANSWER).map_err(|error| match error {
                    RecvTimeoutError::Disconnected => ended(),
                    RecvTimeoutError::Timeout => {
                        Unanswered::Hung { block: block.to_owned(), limit: ANSWER }
                    }
                })
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(Unanswered::Busy { block: block.to_owned(), limit })
            }
        }
    }

    /// Changes the configuration number in the frames of all outputs, from a timestamp on.
    pub(crate) fn say_config(&self, change: ConfigChange) {
        self.run.configurations.say(change);
    }

    /// Runs `command` on a block between two calls of its `work`, without waiting; drops it if the block
    /// has ended.
    pub(crate) fn tell_block(
        &self,
        block: &str,
        command: impl FnOnce(&mut Hosted) + Send + 'static,
    ) {
        if let Some(number) = self.run.number(block) {
            self.post(number, command);
        }
    }

    /// Posts `command` to a block, and wakes the block.
    fn post(&self, number: usize, command: impl FnOnce(&mut Hosted) + Send + 'static) {
        self.mailboxes[number].post(Box::new(command));
        self.run.cells[number].wake.wake();
    }

    /// Sets the function that recreates `block` when it is restarted.
    pub(crate) fn set_rebuild(
        &self,
        block: &str,
        rebuild: impl FnOnce((Counters, Summary, BlockEvents, Waker)) -> Option<Rebuild>,
    ) {
        let Some(cell) = self.run.cell(block) else { return };
        let mut counts = lock(&cell.counts);
        let SlotBlock { counters, summary, events, .. } = &counts.slot_block;
        let belongings = (counters.clone(), summary.clone(), events.clone(), cell.wake.clone());
        counts.slot_block.rebuild = rebuild(belongings);
    }

    /// Sets the action of each input of `block` when its queue is full.
    pub(crate) fn set_when_full(&self, block: &str, actions: &[WhenFull]) {
        if let Some(cell) = self.run.cell(block) {
            cell.set_when_full(actions);
        }
    }

    /// Pool of output `port` of the block that is in the slot of `block` now.
    pub(crate) fn pool(&self, block: &str, port: usize) -> Option<Arc<Pool>> {
        let cell = self.run.cell(block)?;
        lock(&cell.counts).slot_block.pools.get(port)?.as_ref()?.upgrade()
    }

    /// See [`Events::watch`](fxgraph_core::event::Events::watch).
    pub(crate) fn watch_events(&self, watch: impl Fn(&Event) + Send + Sync + 'static) {
        self.run.events.watch(watch);
    }

    /// Highest fill of each input queue of each block since the last call, in frames.
    pub(crate) fn take_peaks(&self) -> Vec<(String, Vec<usize>)> {
        self.run.take_peaks()
    }

    /// Adds an event.
    pub(crate) fn tell(&self, kind: EventKind, block: Option<&str>, text: String) {
        self.run.events.add(kind, block, text);
    }

    /// Starts a thread that adds events for missing and dropped data and for stalls until the run ends, makes old
    /// measurements unknown, and wakes workers for blocks that wait.
    pub(crate) fn watch_losses(&self) {
        /// Shortest time between two events of a counter.
        const INTERVAL: Duration = Duration::from_secs(1);
        let run = Arc::clone(&self.run);
        let watching = move || {
            while !run.wait_timeout(Patience::LOOK) {
                run.tell_losses(INTERVAL);
                run.tell_stalls();
                run.expire_measurements();
                run.wake_workers();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("watch".to_owned()).spawn(watching) {
            tracing::warn!("cannot create the thread that reports missing data: {error}");
        }
    }

    /// Requests a draining stop: sources finish, and queued frames are still processed.
    pub fn request_stop(&self) {
        self.run.request_stop("stop requested");
    }

    /// Aborts the run: queued frames are dropped, every block's `finish` still runs.
    pub fn abort(&self) {
        self.run.abort();
    }

    /// Whether a stop was requested, by a user or because of a failure.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.run.is_stopping()
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.run.is_ended()
    }

    /// Waits until the run has ended or `timeout` has passed; `true` if it has ended.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.run.wait_timeout(timeout)
    }
}

impl Running {
    /// Returns a handle, for signal handlers, progress displays and control.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// See [`Handle::stats`].
    #[must_use]
    pub fn stats(&self) -> Vec<BlockStats> {
        self.handle.stats()
    }

    /// See [`Handle::request_stop`].
    pub fn request_stop(&self) {
        self.handle.request_stop();
    }

    /// See [`Handle::abort`].
    pub fn abort(&self) {
        self.handle.abort();
    }

    /// See [`Handle::is_ended`].
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.handle.is_ended()
    }

    /// See [`Handle::wait_timeout`].
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.handle.wait_timeout(timeout)
    }

    /// Waits until the run has ended.
    #[must_use]
    pub fn wait(self) -> Report {
        self.handle.run.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_ended() {
            self.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources_of(blocks: usize, edges: impl Iterator<Item = (usize, usize)>) -> Vec<Arc<[usize]>> {
        let connections: Vec<Connection> =
            edges.map(|(from, to)| Connection { from, output: 0, to, input: 0 }).collect();
        sources(blocks, &connections)
    }

    #[test]
    fn sources_of_joined_and_split_streams_are_the_upstream_ones() {
        // 0 and 1 feed 3 through 2 (0 also directly), 4 reads 1, 5 is not connected.
        let edges = [(0, 2), (1, 2), (2, 3), (0, 3), (1, 4)];
        let sources = sources_of(6, edges.into_iter());
        let lists: Vec<&[usize]> = sources.iter().map(|list| &**list).collect();
        assert_eq!(lists, [&[0][..], &[1], &[0, 1], &[0, 1], &[1], &[5]]);
    }

    #[test]
    fn sources_of_a_long_chain_and_its_branches_share_one_list() {
        const CHAIN: usize = 5000;
        let chain = (1..CHAIN).map(|block| (block - 1, block));
        let branches = (CHAIN..2 * CHAIN).map(|block| (CHAIN - 1, block));
        let sources = sources_of(2 * CHAIN, chain.chain(branches));
        assert!(sources.iter().all(|list| Arc::ptr_eq(list, &sources[0])));
        assert_eq!(*sources[0], [0]);
    }
}
