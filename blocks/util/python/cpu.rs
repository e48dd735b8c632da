//! The running block: hands frames to the process and pushes the frames that come back.

use super::ask::Hello;
use super::fault::Fault;
use super::gpu::{self, Gpu};
use super::live::Scheduled;
use super::log;
use super::memory::{Counts, JOBS, MAX_JOBS, Slots, allocate};
use super::port::Described;
use super::process::Sender;
use super::program::Program;
use super::running::{Report, Running, Start};
use fxgraph::changes::Change;
use fxgraph::cuda::HANDLE_BYTES;
use fxgraph::frame::SharedMemory;
use fxgraph::{
    AsyncBlock, Block, BlockError, Counter, Env, Frame, FrameMut, Io, Next, PortType, Ports,
    async_trait,
};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Size of the packet of a frame, without the places of new memory on a GPU.
const HEAD_BYTES: usize = 40;
/// Size of the place of a frame on a GPU: the handle of its memory, and its offset.
const PLACE_BYTES: usize = HANDLE_BYTES + 8;
/// Flags of a packet: the process has to map the memory in the slot.
const NEW_INPUT: u16 = 1;
const NEW_OUTPUT: u16 = 2;

/// Names of the counters that every block with a process has.
pub const COUNTERS: [&str; 5] = [
    "frames_computed",
    "frames_dropped",
    "frames_dropped_at_faults",
    "frames_copied",
    "process_starts",
];

/// A frame that is with the process.
struct Job {
    number: u64,
    input: Arc<Frame>,
    /// `None` for a block without output.
    output: Option<FrameMut>,
    /// Whether the process writes to a copy of the output.
    is_staged: bool,
    input_slot: u16,
    output_slot: u16,
}

/// Copies of frames whose pools are not in shared memory, for one job.
#[derive(Default)]
struct Staging {
    input: Option<SharedMemory>,
    output: Option<SharedMemory>,
}

/// The running process, and its state that the host knows.
struct Child {
    running: Running,
    sender: Sender,
    counts: Counts,
    inputs: Slots,
    outputs: Slots,
}

/// Work that a process does for a block of any kind.
pub struct Task {
    pub program: Program,
    /// Description of the block by an earlier process.
    pub hello: Arc<Hello>,
    /// Values of the parameters.
    pub values: Map<String, Value>,
    /// Longest time for one frame.
    pub timeout: Duration,
    pub ports: Ports,
    /// Counters to which the program adds.
    pub counters: Vec<Counter>,
}

/// A block whose frames are computed by a process.
pub struct Cpu {
    program: Program,
    /// Values of the parameters of the class that the process has.
    values: Map<String, Value>,
    described: Option<Described>,
    timeout: Duration,
    input: PortType,
    output: Option<PortType>,
    env: Env,
    child: Option<Child>,
    jobs: VecDeque<Job>,
    /// Number of the next job. Numbers are not used again, also not by another process.
    next_job: u64,
    staging: [Staging; JOBS],
    /// GPU whose memory has the frames.
    gpu: Option<Gpu>,
    /// Number of frames that are with the process at a time.
    jobs_at_a_time: usize,
    /// Buffer of a frame that the process dropped, for the next job.
    spare: Option<FrameMut>,
    /// An answer that waits for room in the output.
    waiting: Option<Report>,
    scheduled: Scheduled,
    /// Counters to which the program adds.
    added: Vec<Counter>,
    is_finishing: bool,
    /// Whether the last call of `work` failed.
    has_failed: bool,
    computed: Counter,
    dropped: Counter,
    at_faults: Counter,
    copied: Counter,
    starts: Counter,
}

impl Cpu {
    pub fn new(task: Task, env: &Env) -> Self {
        let counters = &env.counters;
        let [computed, dropped, at_faults, copied, starts] = COUNTERS;
        let Hello { python, numpy, .. } = &*task.hello;
        let Program { name, class, .. } = &task.program;
        env.summary.set(format!("`{class}` of {name}, Python {python}, NumPy {numpy}\n"));
        let gpu = Gpu::of(env);
        let jobs_at_a_time = if gpu.is_some() { gpu::jobs(&task.ports) } else { JOBS };
        Self {
            program: task.program,
            values: task.values,
            described: task.hello.output.clone(),
            timeout: task.timeout,
            input: task.ports.inputs[0].clone(),
            output: task.ports.outputs.first().cloned(),
            env: env.clone(),
            child: None,
            jobs: VecDeque::with_capacity(jobs_at_a_time),
            next_job: 0,
            staging: Default::default(),
            gpu,
            jobs_at_a_time,
            spare: None,
            waiting: None,
            scheduled: Scheduled::default(),
            added: task.counters,
            is_finishing: false,
            has_failed: false,
            computed: counters.count(computed, "frames that the block in Python has computed"),
            dropped: counters
                .count(dropped, "frames for which the block in Python handed on no frame, as its author wants"),
            at_faults: counters.loss(
                at_faults,
                "frames that were with the process of the block when it failed; see the fault for the cause",
            ),
            copied: counters.count(
                copied,
                "frames that were copied because their memory is not shared, for example after a swap; restart the \
                 flowgraph to share it",
            ),
            starts: counters.count(starts, "processes that were started for the block"),
        }
    }

    /// Starts the process, and waits until the block in it has started.
    async fn start_process(&mut self) -> Result<(), BlockError> {
        let (added, jobs) = (self.added.len(), self.jobs_at_a_time);
        let counts = Counts::new(&self.input, self.output.as_ref(), added, jobs)?;
        let start = Start {
            name: self.env.name.clone(),
            program: self.program.clone(),
            values: self.values.clone(),
            inputs: vec![self.input.clone()],
            output: self.described.clone(),
            timeout: self.timeout,
            gpu: self.gpu.as_mut().map(Gpu::show).transpose()?,
            busy: self.env.counters.threads().counted("process"),
            wake: self.env.wake.clone(),
            log: log::of_block(&self.env),
        };
        let running = Running::start(start, &counts)?;
        self.starts.add(1);
        match running.first_report().await {
            Report::Ready(sender) => {
                let (inputs, outputs) = (Slots::default(), Slots::default());
                self.child = Some(Child { running, sender, counts, inputs, outputs });
                Ok(())
            }
            Report::Failed(fault) => Err(fault.error(&self.program)),
            Report::Done { .. } | Report::Finished => {
                Err(BlockError::new("the process of the block ended before its start"))
            }
        }
    }

    /// Handles answers of the process; `false` if one waits for room in the output.
    fn take_answers(&mut self, io: &mut Io<'_>) -> Result<bool, BlockError> {
        loop {
            let Some(child) = &self.child else { return Ok(true) };
            let Some(report) = self.waiting.take().or_else(|| child.running.report()) else {
                return Ok(true);
            };
            match report {
                Report::Done { job, is_dropped, timestamp } => {
                    let needs_room = !is_dropped && self.output.is_some();
                    if needs_room && !io.outputs[0].has_room() {
                        self.waiting = Some(report);
                        return Ok(false);
                    }
                    self.complete(io, job, is_dropped, timestamp)?;
                }
                Report::Failed(fault) => return Err(self.fail(fault)),
                Report::Finished => {
                    self.child = None;
                    return Ok(true);
                }
                Report::Ready(_) => {}
            }
        }
    }

    /// Pushes the frame of the oldest job.
    fn complete(
        &mut self,
        io: &mut Io<'_>,
        job: u64,
        is_dropped: bool,
        timestamp: u64,
    ) -> Result<(), BlockError> {
        let expected = self.jobs.front().map(|next| next.number);
        let is_next = expected == Some(job);
        let next = if is_next { self.jobs.pop_front() } else { None };
        let Some(Job { input, output, is_staged, .. }) = next else {
            let expected = expected.map_or_else(|| "none".to_owned(), |n| format!("job {n}"));
            return Err(self.fail(Fault::System(format!(
                "the process answered job {job}, expected {expected}"
            ))));
        };
        let Some(child) = &self.child else { return Ok(()) };
        let Some(mut output) = output else {
            self.computed.add(1);
            return Ok(());
        };
        if is_dropped {
            self.dropped.add(1);
            self.spare = Some(output);
            return Ok(());
        }
        self.computed.add(1);
        let place = self.place_of(job);
        self.added.iter().zip(child.counts.added(place)).for_each(|(counter, n)| counter.add(n));
        if is_staged && let Some(staged) = &self.staging[place].output {
            let payload = output.as_mut_slice::<u8>()?;
            let bytes = payload.len();
            payload.copy_from_slice(&staged.bytes()[..bytes]);
        }
        let header = output.header_mut();
        header.continue_from(input.header());
        header.timestamp = timestamp;
        let full = self.output.as_ref().map_or(1, |port| port.validity.full);
        child.counts.copy_output(place, full, &mut header.validity);
        io.outputs[0].push(output);
        Ok(())
    }

    /// The error of `fault`, after the frames that it concerns are given up.
    fn fail(&mut self, fault: Fault) -> BlockError {
        self.has_failed = true;
        if fault.has_ended() || !matches!(&fault, Fault::Raised(raised) if raised.place == "work") {
            self.end_process();
        } else {
            self.at_faults.add(1);
            if let Some(job) = self.jobs.pop_front() {
                self.spare = self.spare.take().or(job.output);
            }
        }
        fault.error(&self.program)
    }

    /// Ends the process, and gives up the frames that are with it.
    fn end_process(&mut self) {
        self.has_failed = true;
        self.at_faults.add(self.jobs.len() as u64);
        // The process may still write to the memory of these frames: it ends first.
        self.child = None;
        self.jobs.clear();
        self.waiting = None;
    }

    /// Sends new values of live parameters that hold from `timestamp` on.
    fn send_values(&mut self, timestamp: u64) -> Result<(), Fault> {
        let samples = self.input.clock.samples_per_frame;
        while let Some(values) = self.scheduled.take(timestamp, samples) {
            if let Some(child) = &self.child {
                child.sender.tell(&json!({"set": values.0}), None)?;
            }
            self.values.extend(values.0);
        }
        Ok(())
    }

    /// Hands `input` to the process, with an empty frame for the output.
    fn submit(&mut self, input: Arc<Frame>, output: Option<FrameMut>) -> Result<(), BlockError> {
        let timestamp = input.header().timestamp;
        if let Err(fault) = self.send_values(timestamp) {
            return Err(self.fail(fault));
        }
        let number = self.next_job;
        let place = self.place_of(number);
        let Some(child) = &mut self.child else { return Ok(()) };
        child.counts.set_input(place, &input.header().validity);
        let busy = |slot: fn(&Job) -> u16| -> [u16; MAX_JOBS] {
            std::array::from_fn(|n| self.jobs.get(n).map_or(u16::MAX, slot))
        };
        let busy = [busy(|job| job.input_slot), busy(|job| job.output_slot)];
        let frames = (&*input, output.as_ref());
        let handed = if let Some(gpu) = &self.gpu {
            on_gpu(gpu, child, number, frames, &busy)
        } else {
            let staging = &mut self.staging[place];
            in_host_memory(child, number, frames, &busy, staging, &self.copied)
        };
        // A slot may be taken already: the slots of the process would differ from those of the host.
        let handed = handed.inspect_err(|_| {
            self.end_process();
            self.at_faults.add(1);
        })?;
        self.next_job += 1;
        let Handed { slots: [input_slot, output_slot], is_staged, sent } = handed;
        self.jobs.push_back(Job { number, input, output, is_staged, input_slot, output_slot });
        sent.map_err(|fault| self.fail(fault))
    }

    /// Place of a job among those that are with the process at a time.
    fn place_of(&self, job: u64) -> usize {
        (job % self.jobs_at_a_time as u64) as usize
    }
}

/// Input and output of a job.
type Frames<'a> = (&'a Frame, Option<&'a FrameMut>);

/// Slots of a job that are in use, of inputs and outputs.
type Busy = [[u16; MAX_JOBS]; 2];

/// A job that was sent to the process.
struct Handed {
    slots: [u16; 2],
    is_staged: bool,
    sent: Result<(), Fault>,
}

/// Hands over frames in GPU memory. The process opens memory that is new to it.
fn on_gpu(
    gpu: &Gpu,
    child: &mut Child,
    number: u64,
    (input, output): Frames<'_>,
    busy: &Busy,
) -> Result<Handed, BlockError> {
    let mut packet = [0; HEAD_BYTES + 2 * PLACE_BYTES];
    let (mut slots, mut flags, mut end) = ([0; 2], 0, HEAD_BYTES);
    let frames = [Some(input), output.map(|output| &**output)];
    let known = [&mut child.inputs, &mut child.outputs];
    for (n, (frame, known)) in frames.into_iter().zip(known).enumerate() {
        let Some(frame) = frame else { continue };
        let place = gpu.exported(frame)?;
        let (slot, is_new) = known.slot(place.identity, place.offset, &busy[n]);
        slots[n] = slot;
        if is_new {
            flags |= [NEW_INPUT, NEW_OUTPUT][n];
            packet[end..][..HANDLE_BYTES].copy_from_slice(place.handle);
            packet[end + HANDLE_BYTES..][..8].copy_from_slice(&place.offset.to_le_bytes());
            end += PLACE_BYTES;
        }
    }
    packet[..HEAD_BYTES].copy_from_slice(&head(number, input, slots, flags));
    let sent = child.send(&packet[..end], &[]);
    Ok(Handed { slots, is_staged: false, sent })
}

/// Hands over frames in host memory: those in shared memory as they are, others as copies. The process maps memory that
/// is new to it.
fn in_host_memory(
    child: &mut Child,
    number: u64,
    (input, output): Frames<'_>,
    busy: &Busy,
    staging: &mut Staging,
    copied: &Counter,
) -> Result<Handed, BlockError> {
    let read = if let Some(memory) = input.shared() {
        memory
    } else {
        let payload = input.as_slice::<u8>()?;
        let memory = staged(&mut staging.input, payload.len())?;
        memory.bytes_mut()[..payload.len()].copy_from_slice(payload);
        copied.add(1);
        memory
    };
    let (input_slot, is_new_input) = child.inputs.slot(read.identity(), 0, &busy[0]);
    let read_only = if is_new_input { Some(read.read_only()) } else { None };
    let read_only = read_only
        .transpose()
        .map_err(|error| BlockError::new("cannot open shared memory for reading").because(error))?;
    // Memory that another process reads takes no new writer: see `SharedMemory::read_only`.
    let cannot_write =
        |memory: &SharedMemory| !child.outputs.has(memory) && !memory.takes_writers();
    let is_staged = output.is_some_and(|output| output.shared().is_none_or(cannot_write));
    let written = match output {
        Some(output) if is_staged => {
            copied.add(1);
            Some(&*staged(&mut staging.output, output.home().frame_bytes())?)
        }
        Some(output) => output.shared(),
        None => None,
    };
    let (output_slot, is_new_output) =
        written.map_or((0, false), |memory| child.outputs.slot(memory.identity(), 0, &busy[1]));
    let mut files: [Option<BorrowedFd<'_>>; 2] = [None; 2];
    files[0] = read_only.as_ref().map(AsFd::as_fd);
    let written = written.filter(|_| is_new_output).map(SharedMemory::file);
    files[usize::from(is_new_input)] = written.or(files[usize::from(is_new_input)]);
    let flags =
        if is_new_input { NEW_INPUT } else { 0 } | if is_new_output { NEW_OUTPUT } else { 0 };
    let slots = [input_slot, output_slot];
    let packet = head(number, input, slots, flags);
    let sent = match files {
        [Some(first), Some(second)] => child.send(&packet, &[first, second]),
        [Some(only), None] => child.send(&packet, &[only]),
        _ => child.send(&packet, &[]),
    };
    Ok(Handed { slots, is_staged, sent })
}

/// Packet of a job.
fn head(number: u64, input: &Frame, slots: [u16; 2], flags: u16) -> [u8; HEAD_BYTES] {
    let header = input.header();
    let mut packet = [0; HEAD_BYTES];
    packet[0] = b'F';
    for (place, word) in packet[2..8].as_chunks_mut().0.iter_mut().zip([slots[0], slots[1], flags])
    {
        *place = word.to_le_bytes();
    }
    let words = [number, header.timestamp, header.sequence, header.config_id];
    for (place, word) in packet[8..].as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    packet
}

impl Child {
    /// Sends the packet of a job.
    fn send(&self, packet: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Fault> {
        // Before the packet: the answer may come at once.
        self.running.expect_answer();
        self.sender.send(packet, files)
    }
}

/// Memory for the copy of a frame, allocated at the first frame.
fn staged(
    memory: &mut Option<SharedMemory>,
    bytes: usize,
) -> Result<&mut SharedMemory, BlockError> {
    match memory {
        Some(memory) => Ok(memory),
        None => Ok(memory.insert(allocate(bytes)?)),
    }
}

impl Block for Cpu {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        self.has_failed = false;
        loop {
            if !self.take_answers(io)? {
                return Ok(Next::Wait);
            }
            if self.is_finishing {
                return Ok(if self.child.is_none() { Next::Finished } else { Next::Wait });
            }
            if self.jobs.len() == self.jobs_at_a_time {
                return Ok(Next::Wait);
            }
            if io.inputs[0].peek().is_none() {
                if !io.inputs[0].ended() || !self.jobs.is_empty() {
                    return Ok(Next::Wait);
                }
                let Some(child) = &self.child else { return Ok(Next::Finished) };
                self.is_finishing = true;
                child.running.expect_answer();
                let told = child.sender.tell(&json!({"stop": true}), None);
                told.map_err(|fault| self.fail(fault))?;
                continue;
            }
            let output = match (&self.output, self.spare.take()) {
                (None, _) => None,
                (Some(_), Some(spare)) => Some(spare),
                (Some(_), None) => match io.outputs[0].take() {
                    Some(output) => Some(output),
                    None => return Ok(Next::Wait),
                },
            };
            let Some(input) = io.inputs[0].pop() else { return Ok(Next::Wait) };
            self.submit(input, output)?;
        }
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.scheduled.offer(change)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        if self.has_failed {
            self.at_faults.add(self.jobs.len() as u64);
        }
        // The process ends before the memory of its frames returns to the pools.
        self.child = None;
        self.jobs.clear();
        Ok(())
    }

    /// The start awaits the process; `work` does not, because every awaited call allocates.
    fn awaits(&mut self) -> Option<&mut dyn AsyncBlock> {
        if self.child.is_none() && !self.is_finishing { Some(self) } else { None }
    }
}

#[async_trait]
impl AsyncBlock for Cpu {
    async fn start(&mut self) -> Result<(), BlockError> {
        self.start_process().await
    }

    /// Starts another process after a fault with `on_fault: skip`.
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let input = &mut io.inputs[0];
        if input.peek().is_none() {
            return Ok(if input.ended() { Next::Finished } else { Next::Wait });
        }
        self.start_process().await?;
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.scheduled.offer(change)
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        // As in `finish`.
        self.child = None;
    }
}
