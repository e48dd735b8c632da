//! What one block of a run shares with those who watch it.

use super::assembly::Part;
use super::edge::Edge;
use super::hosted::Mailbox;
use super::report::{BlockStats, Failure, Queue, State};
use super::run::{Fault, lock};
use super::tally::Tally;
use super::timing::{Latency, Pushes, Waiting};
use crate::kind::Waker;
use crate::port::PortType;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Skipped frames of a block are told of once in this time.
const TELL: Duration = Duration::from_secs(1);

const STATES: [State; 4] = [State::Starting, State::Running, State::Finished, State::Failed];

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

    /// The block has started, or failed to; `true` the first time.
    pub fn arrives(&self) -> bool {
        !self.arrived.swap(true, Ordering::AcqRel)
    }

    /// Has the block look up if it awaits something inside a call.
    pub fn interrupt(&self) {
        if let Some(task) = lock(&self.waiting).take() {
            task.wake();
        }
    }

    pub fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// How many skipped frames were not told of, if one is to be told of now: a block that fails at
    /// every frame must not push everything else out of the events.
    pub fn tells_skip(&self) -> Option<u64> {
        match &mut *lock(&self.told) {
            Some((when, untold)) if when.elapsed() < TELL => {
                *untold += 1;
                None
            }
            told => Some(told.replace((Instant::now(), 0)).map_or(0, |(_, untold)| untold)),
        }
    }

    /// Keeps a fault as the block's last one.
    pub fn note_fault(&self, Fault { cause, panic }: Fault) -> Failure {
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
