//! State of one block of a run, shared with the handles that monitor the run.

use super::fault::Fault;
use super::report::{BlockStats, Failure, Queue, State, Unfinished};
use super::slot_counts::SlotCounts;
use super::timing::{For, Latency, Origin, Pushes, Waiting};
use crate::connections::slot_block;
use fxgraph_core::block::{Input, Output};
use fxgraph_core::counter::{Counter, Named};
use fxgraph_core::edge::{Edge, WhenFull};
use fxgraph_core::kind::{Ports, Waker};
use fxgraph_core::lock::lock;
use fxgraph_core::port::PortType;
use fxgraph_flowgraph::Part;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// Shortest time between two events about skipped frames of a block.
const TELL: Duration = Duration::from_secs(1);

const STATES: [State; 4] = [State::Starting, State::Running, State::Finished, State::Failed];

/// Name of the counter of frames that the queues of a block have dropped because they were full.
pub(super) const DROPPED_AT_FULL_QUEUE: &str = "frames_dropped_at_full_queue";

/// One block of a run.
pub(super) struct Cell {
    pub name: String,
    /// Schedules a call of the block's `work`.
    pub wake: Waker,
    /// Task of the block while one of its calls awaits something.
    waiting: Mutex<Option<std::task::Waker>>,
    arrived: AtomicBool,
    state: AtomicU8,
    inputs: Vec<(Arc<Edge>, u64)>,
    outputs: Vec<CellOutput>,
    /// Samples of a frame of each input.
    input_samples: Vec<u64>,
    /// For each input and each output: its timestamps count as those of the block's live updates.
    is_on_clock: [Vec<bool>; 2],
    /// Timestamp after the newest sample pushed, or consumed by a block without outputs.
    newest: AtomicU64,
    /// Time at which `newest` was set, in nanoseconds since the epoch of `waits`.
    newest_at: AtomicU64,
    /// Unix time of the epoch in seconds.
    epoch_unix: f64,
    /// Samples per second.
    rate_hz: f64,
    /// Expected frame interval in seconds; the longest if ports differ.
    frame_seconds: f64,
    /// Expected frame interval of each input, in seconds.
    input_seconds: Vec<f64>,
    /// Longest expected frame interval of the outputs, in seconds.
    push_seconds: f64,
    /// Real time of the timestamps, for a source.
    origin: Option<Arc<Origin>>,
    /// Sources with the same sample rate, and for each input the number of the block that writes it.
    before: OnceLock<(Vec<Arc<Origin>>, Vec<usize>)>,
    is_stalled: AtomicBool,
    is_finishing: AtomicBool,
    /// Time spent waiting, by cause.
    pub waits: Waiting,
    /// Push times of the sources of its frames, for a block without outputs.
    sources: OnceLock<Vec<Arc<Pushes>>>,
    latency: Latency,
    busy_nanoseconds: AtomicU64,
    works: AtomicU64,
    /// Usual time of a call of `work`: a mean in which the last calls count most. The scheduler has it, too, and not the
    /// cell, whose wakers keep the scheduler's task.
    pub usual_nanoseconds: Arc<AtomicU64>,
    faults: AtomicU64,
    restarts: AtomicU64,
    last_fault: Mutex<Option<Failure>>,
    /// Time of the last event about a skipped frame, and number of frames skipped since.
    told: Mutex<Option<(Instant, u64)>>,
    pub counts: Mutex<SlotCounts>,
}

/// Counter of frames that the queues of a block have dropped.
fn dropped(name: &'static str, help: &'static str, frames: u64) -> Named {
    let counter = Counter::default();
    counter.add(frames);
    Named { name, help, is_loss: true, is_overrun: false, is_held_up: false, counter }
}

/// Counter of a block with several inputs, see [`Edge::drop_until_read`].
fn dropped_in_deadlock(frames: u64) -> Named {
    let help = "input frames dropped because the block waited for frames of another input that came after them; look for \
                skipped frames upstream, or set a longer `queue`";
    dropped("frames_dropped_in_deadlock", help, frames)
}

/// Counter of a block with an input whose `when_full` drops frames, or that has missed frames in a swap.
fn dropped_at_full_queue(frames: u64) -> Named {
    let help = "input frames dropped because the queue was full and `when_full` drops frames: the block, or one behind it, \
                is slower than the stream; give it fewer frames or a longer `queue`. Also frames that the old block \
                missed in a swap that was rolled back";
    dropped(DROPPED_AT_FULL_QUEUE, help, frames)
}

/// Progress of a block, and the state of its queues.
pub(super) struct Progress<'a> {
    pub is_running: bool,
    /// Frames consumed; for a source: pushed.
    pub frames: u64,
    /// Frames pushed.
    pub pushed: u64,
    /// Duration of the consumed signal, in seconds; the shortest over the inputs.
    pub taken_seconds: f64,
    /// Duration of the signal per pushed frame, in seconds; 0 for a block without outputs.
    pub push_seconds: f64,
    /// Expected frame interval, in seconds.
    pub frame_seconds: f64,
    /// Cause of the wait; `None` while the block works.
    pub waits: Option<For>,
    /// Whether the queue of an input is empty.
    pub lacks_input: bool,
    /// Numbers of the blocks directly upstream.
    pub before: &'a [usize],
}

/// One output port of a block.
struct CellOutput {
    pushed: AtomicU64,
    frame_bytes: u64,
    frame_samples: u64,
    /// Push times, for a source.
    pushes: Option<Arc<Pushes>>,
}

impl Cell {
    pub fn new(part: &Part, epoch: Instant) -> Arc<Self> {
        let inputs = part.inputs.iter().cloned();
        let in_bytes = part.ports.inputs.iter().map(|port| port.frame_bytes() as u64);
        let is_source = part.inputs.is_empty();
        let Ports { inputs: in_ports, outputs: out_ports } = &part.ports;
        let clock = part.ports.clock();
        let is_on_clock = |ports: &[PortType]| {
            ports
                .iter()
                .map(|port| clock.is_some_and(|clock| clock.counts_alike(&port.clock)))
                .collect()
        };
        let output = |port: &PortType| CellOutput {
            pushed: AtomicU64::new(0),
            frame_bytes: port.frame_bytes() as u64,
            frame_samples: port.clock.samples_per_frame,
            pushes: is_source.then(Pushes::new),
        };
        let seconds = |port: &PortType| port.clock.frames_per_second().recip();
        let longest = |ports: &[PortType]| ports.iter().map(seconds).fold(0.0, f64::max);
        let clock = part.ports.outputs.first().or(part.ports.inputs.first()).map(|port| port.clock);
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Arc::new(Self {
            newest_at: AtomicU64::new(0),
            epoch_unix: unix.as_secs_f64() - epoch.elapsed().as_secs_f64(),
            rate_hz: clock.map_or(f64::NAN, |clock| clock.adc_sample_rate_hz),
            frame_seconds: longest(if is_source { out_ports } else { in_ports }),
            input_seconds: in_ports.iter().map(seconds).collect(),
            push_seconds: longest(out_ports),
            origin: is_source.then(Origin::new),
            before: OnceLock::new(),
            is_stalled: AtomicBool::new(false),
            is_finishing: AtomicBool::new(false),
            name: part.name.clone(),
            wake: part.wake.clone(),
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
            is_on_clock: [is_on_clock(in_ports), is_on_clock(out_ports)],
            newest: AtomicU64::new(u64::MAX),
            waits: Waiting::new(epoch),
            sources: OnceLock::new(),
            latency: Latency::default(),
            busy_nanoseconds: AtomicU64::new(0),
            works: AtomicU64::new(0),
            // Long until calls were short.
            usual_nanoseconds: Arc::new(AtomicU64::new(1_000_000)),
            faults: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            last_fault: Mutex::default(),
            told: Mutex::default(),
            counts: Mutex::new(SlotCounts::new(slot_block(part))),
        })
    }

    /// Timestamp before which the blocks in the slot with these ports, present and past, have begun to work on all
    /// samples: those that they consumed, and those that they pushed.
    pub fn begun(&self, inputs: &[Input], outputs: &[Output]) -> u64 {
        let taken = inputs.iter().map(|input| input.reader.last_taken());
        let taken = taken.zip(&self.input_samples).zip(&self.is_on_clock[0]);
        let pushed = outputs.iter().map(|output| output.writer.last());
        let samples = self.outputs.iter().map(|output| &output.frame_samples);
        let pushed = pushed.zip(samples).zip(&self.is_on_clock[1]);
        let until = |((last, samples), is_on_clock): ((Option<u64>, &u64), &bool)| {
            last.filter(|_| *is_on_clock).map(|last| last.saturating_add(*samples))
        };
        taken.chain(pushed).filter_map(until).max().unwrap_or_default()
    }

    /// Notes that the block has pushed `frames` frames so far, the last one with timestamp `last`.
    pub fn set_pushed(&self, output: usize, frames: u64, last: Option<u64>) {
        let output = &self.outputs[output];
        let is_new = output.pushed.swap(frames, Ordering::Relaxed) != frames;
        let Some(last) = last.filter(|_| is_new) else { return };
        let until = last.saturating_add(output.frame_samples);
        let now = self.waits.now();
        self.set_newest(until, now);
        if let Some(pushes) = &output.pushes {
            pushes.note(until, now);
        }
        if let Some(origin) = &self.origin {
            origin.note(until, self.rate_hz, now as f64 / 1e9);
        }
    }

    /// See [`BlockStats::newest_timestamp`].
    pub fn newest_timestamp(&self) -> Option<u64> {
        let newest = self.newest.load(Ordering::Relaxed);
        (newest != u64::MAX).then_some(newest)
    }

    fn set_newest(&self, until: u64, now: u64) {
        self.newest.store(until, Ordering::Relaxed);
        self.newest_at.store(now, Ordering::Relaxed);
    }

    /// Notes that the block, which has no outputs, has consumed frames of `input` with the timestamps `times`.
    pub fn note_done(&self, input: usize, times: &[u64]) {
        if times.is_empty() {
            return;
        }
        let now = self.waits.now();
        let sources = self.sources.get().map_or(&[][..], Vec::as_slice);
        for time in times {
            let until = time.saturating_add(self.input_samples[input]);
            self.set_newest(until, now);
            self.latency.note(sources, until, now);
        }
    }

    /// Push times of the block's outputs, if it is a source.
    pub fn pushes(&self) -> impl Iterator<Item = &Arc<Pushes>> {
        self.outputs.iter().filter_map(|output| output.pushes.as_ref())
    }

    /// Real time of the block's timestamps, if it is a source.
    pub fn origin(&self) -> Option<&Arc<Origin>> {
        self.origin.as_ref()
    }

    /// Sample rate of the first output, or of the first input of a block without outputs, in Hz.
    pub fn rate_hz(&self) -> f64 {
        self.rate_hz
    }

    /// Sets the sources with the same sample rate, and for each input the number of the block that writes it.
    pub fn set_before(&self, origins: Vec<Arc<Origin>>, blocks: Vec<usize>) {
        let _ = self.before.set((origins, blocks));
    }

    /// Enables latency measurement for a block without outputs, relative to `sources`.
    pub fn set_sources(&self, sources: Vec<Arc<Pushes>>) {
        let _ = self.sources.set(sources);
    }

    /// Highest fill of each input queue since the last call, in frames.
    pub fn take_peaks(&self) -> Vec<usize> {
        self.inputs.iter().map(|(edge, _)| edge.take_peak()).collect()
    }

    pub fn add_busy(&self, time: Duration) {
        self.busy_nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Time spent in calls of `work`.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanoseconds.load(Ordering::Relaxed))
    }

    pub fn count_work(&self) {
        self.works.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a call of `work` took `time`.
    pub fn took(&self, time: Duration) {
        let usual = (7 * self.usual() + time) / 8;
        self.usual_nanoseconds.store(usual.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Usual time of a call of `work`.
    pub fn usual(&self) -> Duration {
        Duration::from_nanos(self.usual_nanoseconds.load(Ordering::Relaxed))
    }

    /// Whether the block has no inputs.
    pub fn is_source(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Stores the task of a block that awaits inside a call, so that an abort can wake it.
    pub fn waits_as(&self, task: &std::task::Waker) {
        lock(&self.waiting).replace(task.clone());
    }

    /// Sets the state; a failed block stays failed.
    pub fn set_state(&self, state: State) {
        self.state.fetch_max(state as u8, Ordering::AcqRel);
    }

    /// Notes that the block has started or failed to; `true` the first time.
    pub fn arrives(&self) -> bool {
        !self.arrived.swap(true, Ordering::AcqRel)
    }

    /// Wakes the block's task if it awaits something inside a call.
    pub fn interrupt(&self) {
        if let Some(task) = lock(&self.waiting).take() {
            task.wake();
        }
    }

    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    pub fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of skipped frames without an event if this one gets an event, `None` if not: a block that
    /// fails at every frame must not displace all other events.
    pub fn tells_skip(&self) -> Option<u64> {
        match &mut *lock(&self.told) {
            Some((when, untold)) if when.elapsed() < TELL => {
                *untold += 1;
                None
            }
            told => Some(told.replace((Instant::now(), 0)).map_or(0, |(_, untold)| untold)),
        }
    }

    /// Counts a fault and stores it as the block's last one.
    pub fn note_fault(&self, Fault { cause, panic, .. }: Fault) -> Failure {
        let failure = Failure { block: self.name.clone(), cause, panic };
        self.faults.fetch_add(1, Ordering::Relaxed);
        lock(&self.last_fault).replace(failure.clone());
        failure
    }

    /// Progress of the block, for the detection of stalls.
    pub fn progress(&self) -> Progress<'_> {
        let taken = || self.inputs.iter().map(|(edge, _)| edge.popped()).sum();
        let pushed = self.outputs.iter().map(|output| output.pushed.load(Ordering::Relaxed)).sum();
        let seconds = self.inputs.iter().zip(&self.input_seconds);
        let seconds = seconds.map(|((edge, _), seconds)| edge.popped() as f64 * seconds);
        Progress {
            is_running: self.state() == State::Running,
            frames: if self.inputs.is_empty() { pushed } else { taken() },
            pushed,
            taken_seconds: seconds.reduce(f64::min).unwrap_or_default(),
            push_seconds: self.push_seconds,
            frame_seconds: self.frame_seconds,
            waits: self.waits.waits(),
            lacks_input: self.inputs.iter().any(|(edge, _)| edge.waiting() == 0),
            before: self.before.get().map_or(&[], |(_, blocks)| blocks),
        }
    }

    /// Makes measurements unknown that are too old; the clock shows `now`.
    pub fn expire_measurements(&self, now: Instant) {
        let seconds = self.frame_seconds.max(self.push_seconds);
        let frame = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        lock(&self.counts).slot_block.counters.expire(frame, now);
    }

    /// The edges of the inputs, and the numbers of the blocks that write them.
    pub fn inputs(&self) -> impl Iterator<Item = (&Arc<Edge>, usize)> {
        let before = self.before.get().map_or(&[][..], |(_, blocks)| blocks);
        self.inputs.iter().zip(before).map(|((edge, _), block)| (edge, *block))
    }

    /// Sets the action of each input when its queue is full.
    pub fn set_when_full(&self, actions: &[WhenFull]) {
        for ((edge, _), action) in self.inputs.iter().zip(actions) {
            edge.set_when_full(*action);
        }
    }

    pub fn set_stalled(&self, is_stalled: bool) {
        self.is_stalled.store(is_stalled, Ordering::Relaxed);
    }

    /// Notes whether the call in progress is `finish`.
    pub fn set_finishing(&self, is_finishing: bool) {
        self.is_finishing.store(is_finishing, Ordering::Relaxed);
    }

    /// This block, if it has not ended.
    pub fn unfinished(&self) -> Option<Unfinished> {
        let has_ended = matches!(self.state(), State::Finished | State::Failed);
        let is_finishing = self.is_finishing.load(Ordering::Relaxed);
        (!has_ended || is_finishing).then(|| Unfinished { block: self.name.clone(), is_finishing })
    }

    fn state(&self) -> State {
        STATES[usize::from(self.state.load(Ordering::Acquire))]
    }

    /// Time of timestamp 0, in seconds since the epoch of `waits`; the earliest over the sources.
    fn time_zero(&self) -> Option<f64> {
        let (origins, _) = self.before.get()?;
        origins.iter().filter_map(|origin| origin.zero()).min_by(f64::total_cmp)
    }

    /// Lag of the newest sample behind real time, in seconds. It grows once the next frame is overdue.
    fn lag_seconds(&self) -> Option<f64> {
        let newest = self.newest.load(Ordering::Relaxed);
        let zero = self.time_zero().filter(|_| newest != u64::MAX)?;
        let at = self.newest_at.load(Ordering::Relaxed) as f64 / 1e9;
        let overdue = self.waits.now() as f64 / 1e9 - at - self.frame_seconds;
        Some(at - zero - newest as f64 / self.rate_hz + overdue.max(0.0))
    }

    pub fn stats(&self) -> BlockStats {
        let ins = || self.inputs.iter().map(|(edge, bytes)| (edge.popped(), *bytes));
        let outs = || {
            let pushed = |output: &CellOutput| output.pushed.load(Ordering::Relaxed);
            self.outputs.iter().map(move |output| (pushed(output), output.frame_bytes))
        };
        let [input_wait, room_wait] = self.waits.totals();
        let queue = |edge: &Edge| Queue {
            queued: edge.queued(),
            depth: edge.depth(),
            taken: edge.popped(),
            when_full: edge.when_full(),
            dropped: edge.dropped(),
        };
        let counts = lock(&self.counts);
        if let Some(origin) = &self.origin {
            let zero = counts.slot_block.counters.real_time().zero();
            origin.set_known(zero.map(|zero| zero - self.epoch_unix));
        }
        let state = match self.state() {
            State::Running if self.is_stalled.load(Ordering::Relaxed) => State::Stalled,
            state => state,
        };
        let is_running = matches!(state, State::Running | State::Stalled);
        let mut counters = counts.list();
        if self.inputs.len() > 1 {
            let dropped = self.inputs.iter().map(|(edge, _)| edge.dropped_in_deadlock()).sum();
            counters.push(dropped_in_deadlock(dropped));
        }
        let dropped = self.inputs.iter().map(|(edge, _)| edge.dropped()).sum();
        if dropped > 0 || self.inputs.iter().any(|(edge, _)| edge.when_full().drops()) {
            counters.push(dropped_at_full_queue(dropped));
        }
        BlockStats {
            name: self.name.clone(),
            kind: counts.slot_block.kind,
            state,
            faults: self.faults.load(Ordering::Relaxed),
            restarts: self.restarts.load(Ordering::Relaxed),
            last_fault: lock(&self.last_fault).clone(),
            frames_in: ins().map(|(frames, _)| frames).sum(),
            frames_out: outs().map(|(frames, _)| frames).sum(),
            bytes_in: ins().map(|(frames, bytes)| frames * bytes).sum(),
            bytes_out: outs().map(|(frames, bytes)| frames * bytes).sum(),
            busy: self.busy(),
            threads: counts.slot_block.counters.threads().times(),
            device_busy: Duration::from_nanos(counts.device_nanoseconds()),
            device_jobs: counts.slot_block.counters.device_jobs().times(),
            input_wait,
            room_wait,
            newest_timestamp: self.newest_timestamp(),
            lag_seconds: self.lag_seconds().filter(|_| is_running),
            time_zero: self.time_zero().map(|zero| zero + self.epoch_unix),
            latencies: self.sources.get().map(|_| self.latency.get()),
            works: self.works.load(Ordering::Relaxed),
            queues: self.inputs.iter().map(|(edge, _)| queue(edge)).collect(),
            counters,
            gauges: counts.slot_block.counters.gauges(),
            summary: counts.slot_block.summary.get(),
        }
    }
}
