//! Small kinds for tests.

use crate::Control;
use fxgraph_core::block::{Block, Io, Next};
use fxgraph_core::changes::{Change, Changes, Timed};
use fxgraph_core::diagnostic::codes;
use fxgraph_core::error::BlockError;
use fxgraph_core::event::EventKind;
use fxgraph_core::live_updates::{Answer, Requester, Target};
use fxgraph_core::{
    At, Axis, Checked, Clock, Configured, Counter, Dtype, Env, Implementation, Implementations,
    Kind, KindEntry, KindSpec, LiveKind, PortType, Registry, Rejection, Resources, ValidityType,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub fn registry() -> Registry {
    Registry::new(vec![
        KindEntry::of::<Ticks>(),
        KindEntry::of::<Total>(),
        KindEntry::of::<Tenfold>(),
        KindEntry::of::<Collect>(),
        KindEntry::of::<Constant>(),
        KindEntry::of::<Raise>(),
    ])
}

fn port(len: usize) -> PortType {
    PortType {
        dtype: Dtype::I64,
        axes: vec![Axis::new("sample", len)],
        clock: Clock::new(1e6, 1),
        band: None,
        validity: ValidityType::flags(vec![]),
    }
}

/// Source of frames with the squares of their timestamps, in real time.
#[derive(Clone, Kind)]
#[kind(name = "ticks", page = "../../../core/kind/test_page.md", outputs("output"))]
struct Ticks {
    /// Frame interval.
    period_microseconds: u64,
    /// Samples of a frame.
    #[param(default = 1)]
    samples_per_frame: u64,
}

struct TicksBlock {
    period: Duration,
    samples: u64,
    next: i64,
    due: Option<Instant>,
}

impl KindSpec for Ticks {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, _| {
        let period = Duration::from_micros(block.parameters.period_microseconds);
        let samples = block.parameters.samples_per_frame;
        Ok(Box::new(TicksBlock { period, samples, next: 0, due: None }))
    })];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        let clock = Clock::new(1e6, self.samples_per_frame);
        Ok(((), vec![PortType { clock, ..port(1) }]))
    }
}

impl Block for TicksBlock {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping {
            return Ok(Next::Finished);
        }
        let due = *self.due.get_or_insert_with(Instant::now);
        if let Some(left) = due.checked_duration_since(Instant::now()) {
            return Ok(Next::After(left));
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        frame.header_mut().timestamp = self.next as u64 * self.samples;
        frame.fill_validity(1);
        frame.as_mut_slice::<i64>().unwrap()[0] = self.next * self.next;
        io.outputs[0].push(frame);
        self.next += 1;
        self.due = Some(due + self.period);
        Ok(Next::Again)
    }
}

/// Fault of a `total`.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Flaw {
    Build,
    Start,
    /// Error at its first frames in the slot.
    Frames,
    Panic,
    Slow,
}

/// The sum over the last `frames` frames.
#[derive(Clone, Kind)]
#[kind(
    name = "total",
    page = "../../../core/kind/test_page.md",
    inputs("input"),
    outputs("output")
)]
struct Total {
    /// Frames that are summed.
    frames: usize,
    /// Elements of the output.
    #[param(default = 1)]
    width: usize,
    /// Fault of the block.
    flaw: Option<Flaw>,
}

/// Number of totals over a given number of frames: now, the maximum at once, and in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Built {
    now: usize,
    pub at_once: usize,
    pub in_all: usize,
}

fn built() -> MutexGuard<'static, HashMap<usize, Built>> {
    static BUILT: OnceLock<Mutex<HashMap<usize, Built>>> = OnceLock::new();
    BUILT.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of totals over `frames` frames so far.
pub fn totals(frames: usize) -> Built {
    built().get(&frames).copied().unwrap_or_default()
}

/// Counts a total over this number of frames while it exists.
struct Counted(usize);

impl Counted {
    fn new(frames: usize) -> Self {
        let mut built = built();
        let Built { now, at_once, in_all } = built.entry(frames).or_default();
        (*now, *in_all) = (*now + 1, *in_all + 1);
        *at_once = (*at_once).max(*now);
        Self(frames)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        built().entry(self.0).or_default().now -= 1;
    }
}

struct TotalBlock {
    _counted: Counted,
    parameters: Total,
    /// Running sum instead of a new sum for each frame; both give the same result.
    runs: bool,
    window: VecDeque<i64>,
    sum: i64,
    frames: Counter,
}

impl Total {
    fn block(&self, runs: bool, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        if self.flaw == Some(Flaw::Build) {
            return Err(BlockError::new("no such window"));
        }
        Ok(Box::new(TotalBlock {
            _counted: Counted::new(self.frames),
            parameters: self.clone(),
            runs,
            window: VecDeque::new(),
            sum: 0,
            frames: env.counters.count("frames", "Frames summed."),
        }))
    }
}

impl KindSpec for Total {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| block.parameters.block(false, env)),
        Implementation::other_cpu("running", "a running sum", |block, env| {
            block.parameters.block(true, env)
        }),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        Ok(((), vec![PortType { clock: inputs[0].clock, ..port(self.width) }]))
    }
}

impl Block for TotalBlock {
    fn start(&mut self) -> Result<(), BlockError> {
        match self.parameters.flaw {
            Some(Flaw::Start) => Err(BlockError::new("no such core")),
            _ => Ok(()),
        }
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Total { frames, flaw, .. } = self.parameters;
        let name = std::thread::current();
        let is_aside = name.name().is_some_and(|name| name.ends_with("candidate"));
        while io.inputs[0].queued() > 0 {
            let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
            match flaw {
                Some(Flaw::Frames) if !is_aside => return Err(BlockError::new("off by one")),
                Some(Flaw::Panic) if !is_aside => panic!("index 7 of 4"),
                Some(Flaw::Slow) => std::thread::sleep(Duration::from_millis(30)),
                _ => {}
            }
            let Some(input) = io.inputs[0].pop() else { break };
            let value = input.as_slice::<i64>().unwrap()[0];
            self.window.push_back(value);
            self.sum += value;
            if self.window.len() > frames {
                self.sum -= self.window.pop_front().unwrap_or_default();
            }
            let sum = if self.runs { self.sum } else { self.window.iter().sum() };
            output.header_mut().timestamp = input.header().timestamp;
            output.fill_validity(u32::from(self.window.len() == frames));
            output.as_mut_slice::<i64>().unwrap().fill(sum);
            io.outputs[0].push(output);
            self.frames.add(1);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}

/// Kind with the ports of `total`: its input times 10.
#[derive(Clone, Kind)]
#[kind(
    name = "tenfold",
    page = "../../../core/kind/test_page.md",
    inputs("input"),
    outputs("output")
)]
struct Tenfold {}

struct TenfoldBlock;

impl KindSpec for Tenfold {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> =
        &[Implementation::cpu(|_, _| Ok(Box::new(TenfoldBlock)))];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        Ok(((), vec![port(1)]))
    }
}

impl Block for TenfoldBlock {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.inputs[0].queued() > 0 {
            let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
            let Some(input) = io.inputs[0].pop() else { break };
            output.header_mut().timestamp = input.header().timestamp;
            output.fill_validity(1);
            output.as_mut_slice::<i64>().unwrap()[0] = 10 * input.as_slice::<i64>().unwrap()[0];
            io.outputs[0].push(output);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}

/// Timestamp, sequence number, validity, value and configuration number of a frame.
pub type Row = (u64, u64, u32, i64, u64);

fn collected() -> &'static Mutex<HashMap<String, Vec<Row>>> {
    static COLLECTED: OnceLock<Mutex<HashMap<String, Vec<Row>>>> = OnceLock::new();
    COLLECTED.get_or_init(Mutex::default)
}

/// Returns the frames that sinks collected into `name`.
pub fn rows(name: &str) -> Vec<Row> {
    let all = collected().lock().unwrap_or_else(PoisonError::into_inner);
    all.get(name).cloned().unwrap_or_default()
}

/// Sink that keeps its frames, and stores them at its end.
#[derive(Clone, Kind)]
#[kind(name = "collect", page = "../../../core/kind/test_page.md", inputs("input"))]
struct Collect {
    /// Name under which the frames are stored.
    into: String,
    /// Socket that only one block can bind.
    socket: Option<String>,
    /// Whether the block fails to start.
    #[param(default)]
    fails_to_start: bool,
}

struct CollectBlock {
    parameters: Collect,
    rows: Vec<Row>,
}

impl KindSpec for Collect {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, _| {
        Ok(Box::new(CollectBlock { parameters: block.parameters.clone(), rows: Vec::new() }))
    })];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        Ok(((), vec![]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let binds = block.parameters.socket.iter().cloned().collect();
        Resources { binds, ..Resources::default() }
    }
}

impl Block for CollectBlock {
    fn start(&mut self) -> Result<(), BlockError> {
        if self.parameters.fails_to_start {
            return Err(BlockError::new("no such network"));
        }
        Ok(())
    }
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while let Some(frame) = io.inputs[0].pop() {
            let header = frame.header();
            let value = frame.as_slice::<i64>().unwrap()[0];
            let (time, number) = (header.timestamp, header.sequence);
            self.rows.push((time, number, header.validity[0], value, header.config_id));
        }
        if !io.inputs[0].ended() {
            return Ok(Next::Wait);
        }
        // Only a block whose input ends stores its frames.
        let mut all = collected().lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(self.parameters.into.clone()).or_default().append(&mut self.rows);
        Ok(Next::Finished)
    }
}

/// Events of one kind.
pub fn events(control: &Control, kind: EventKind) -> Vec<String> {
    let all = control.events_since(0).into_iter();
    all.filter(|event| event.kind == kind).map(|event| event.text).collect()
}

/// Level at which the kind `level` panics.
pub const UNLUCKY: i64 = -13;

/// Outputs its level for every frame.
#[derive(Clone, Kind)]
#[kind(
    name = "level",
    page = "../../../core/kind/test_page.md",
    inputs("input"),
    outputs("output")
)]
struct Constant {
    /// Output value; live.
    #[param(live)]
    level: i64,
    /// Timestamp of the frame at which the block fails.
    fails_at: u64,
    /// Timestamps of further such frames.
    #[param(default)]
    fails_too: Vec<u64>,
}

struct LevelBlock {
    level: Timed<i64>,
    fails_at: Vec<u64>,
    changes: Changes<i64>,
}

impl KindSpec for Constant {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, _| {
        let Constant { level, fails_at, fails_too } = &block.parameters;
        let fails_at = [&[*fails_at], &fails_too[..]].concat();
        let level = Timed::new(*level);
        Ok(Box::new(LevelBlock { level, fails_at, changes: Changes::default() }))
    })];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        Ok(((), vec![port(1)]))
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        let Constant { level, .. } = block.parameters;
        let warning = || {
            let message = format!("a level of {level} is high");
            Rejection::new(codes::IMPLAUSIBLE, At::Parameter("level"), message).help("lower it")
        };
        (level > 1_000_000).then(warning).into_iter().collect()
    }
}

impl LiveKind for Constant {
    type Value = i64;

    fn live_value(
        new: &Configured<Self>,
        ConstantLive::Level: ConstantLive,
        _: &Configured<Self>,
    ) -> Result<i64, BlockError> {
        assert!(new.parameters.level != UNLUCKY, "no such level");
        Ok(new.parameters.level)
    }
}

impl Block for LevelBlock {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.inputs[0].queued() > 0 {
            let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
            let Some(input) = io.inputs[0].pop() else { break };
            let time = input.header().timestamp;
            if self.fails_at.contains(&time) {
                return Err(BlockError::new("too loud"));
            }
            for (from, level) in self.changes.begin(time, 1) {
                self.level.set(from, level);
            }
            output.header_mut().timestamp = time;
            output.fill_validity(1);
            output.as_mut_slice::<i64>().unwrap()[0] = *self.level.at(time);
            io.outputs[0].push(output);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}

/// Sink that raises the level of another block by 1 with every tenth frame.
#[derive(Clone, Kind)]
#[kind(name = "raise", page = "../../../core/kind/test_page.md", inputs("input"))]
struct Raise {
    /// Name of the other block.
    target: String,
    /// Its live parameter is `level`, and this one is added to it.
    step: i64,
}

struct RaiseBlock {
    parameters: Raise,
    requester: Requester,
    request: Option<Answer>,
    raised: Counter,
    rejected: Counter,
}

impl KindSpec for Raise {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        Ok(Box::new(RaiseBlock {
            parameters: block.parameters.clone(),
            requester: Requester::new(env),
            request: None,
            raised: env.counters.count("raised", "updates made"),
            rejected: env.counters.count("rejected", "updates not made"),
        }))
    })];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        Ok(((), vec![]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let block = block.parameters.target.clone();
        let target = Target { block, parameter: "level", named_by: "target".to_owned() };
        Resources { updates: vec![target], ..Resources::default() }
    }
}

impl Block for RaiseBlock {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        match self.request.as_ref().and_then(Answer::get) {
            Some(Ok(_)) => self.raised.add(1),
            Some(Err(_)) => self.rejected.add(1),
            None => {}
        }
        self.request.take_if(|request| request.get().is_some());
        let Raise { target, step, .. } = &self.parameters;
        while let Some(frame) = io.inputs[0].pop() {
            let targets = std::slice::from_ref(target);
            let in_force = self.requester.in_force(targets, "level").unwrap();
            let timestamp = frame.header().timestamp;
            if self.request.is_none() && timestamp >= in_force.from && timestamp % 10 == 0 {
                let level = in_force.values[0].as_ref().and_then(serde_json::Value::as_i64);
                let parameters = serde_json::json!({target: {"level": level.unwrap() + step}});
                self.request = self.requester.request(parameters).ok();
            }
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}
