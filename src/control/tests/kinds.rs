//! Small kinds that really run.

use crate::block::{Block, BlockError, Io, Next};
use crate::retune::{Change, Changes, LiveValue, Timed};
use crate::runtime::EventKind;
use crate::{
    Axis, CPU, Clock, Control, Counter, Dtype, Env, ImplementationInfo, KindEntry, LegacyKind,
    PortNames, PortType, Ports, Refusal, Registry, Resources, ValidityType,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub fn registry() -> Registry {
    Registry::new(vec![
        KindEntry::of_legacy::<Ticks>(),
        KindEntry::of_legacy::<Total>(),
        KindEntry::of_legacy::<Tenfold>(),
        KindEntry::of_legacy::<Collect>(),
        KindEntry::of_legacy::<Constant>(),
    ])
}

fn port(len: usize) -> PortType {
    PortType {
        dtype: Dtype::I64,
        axes: vec![Axis::new("sample", len)],
        clock: Clock { adc_sample_rate_hz: 1e6, sync_time_seconds: 0.0, samples_per_frame: 1 },
        band: None,
        validity: ValidityType::flags(vec![]),
    }
}

/// Frames with the squares of their times, in real time.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Ticks {
    period_microseconds: u64,
}

struct TicksBlock {
    period: Duration,
    next: i64,
    due: Option<Instant>,
}

impl LegacyKind for Ticks {
    const NAME: &'static str = "ticks";
    const DOC: &'static str = "# ticks";
    const INPUTS: PortNames = PortNames::Fixed(&[]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);

    fn ports(&self, _: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        Ok(vec![port(1)])
    }
    fn resources(&self, _: &Ports) -> Resources {
        Resources::default()
    }
    fn build(&self, _: &Ports, _: &Env) -> Result<Box<dyn Block>, BlockError> {
        let period = Duration::from_micros(self.period_microseconds);
        Ok(Box::new(TicksBlock { period, next: 0, due: None }))
    }
}

#[crate::async_trait]
impl Block for TicksBlock {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping {
            return Ok(Next::Finished);
        }
        let due = *self.due.get_or_insert_with(Instant::now);
        if let Some(left) = due.checked_duration_since(Instant::now()) {
            return Ok(Next::After(left));
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        frame.header_mut().timestamp = self.next as u64;
        frame.fill_validity(1);
        frame.as_mut_slice::<i64>().unwrap()[0] = self.next * self.next;
        io.outputs[0].push(frame);
        self.next += 1;
        self.due = Some(due + self.period);
        Ok(Next::Again)
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Flaw {
    Build,
    Start,
    /// In its first frames in place.
    Frames,
    Panic,
    Slow,
}

/// The sum over the last `frames` frames.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Total {
    frames: usize,
    #[serde(default = "one")]
    width: usize,
    flaw: Option<Flaw>,
}

fn one() -> usize {
    1
}

/// Totals over a number of frames: how many there are, how many there were at once, and in all.
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

/// The totals over `frames` frames so far.
pub fn totals(frames: usize) -> Built {
    built().get(&frames).copied().unwrap_or_default()
}

/// Counts a total over so many frames while it is there.
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
    /// Running sums or sums made anew: the same results.
    runs: bool,
    window: VecDeque<i64>,
    sum: i64,
    frames: Counter,
}

impl LegacyKind for Total {
    const NAME: &'static str = "total";
    const DOC: &'static str = "# total";
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);
    const IMPLEMENTATIONS: &'static [ImplementationInfo] =
        &[CPU, ImplementationInfo { name: "running", device: "cpu", summary: "a running sum" }];

    fn ports(&self, _: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        Ok(vec![port(self.width)])
    }
    fn resources(&self, _: &Ports) -> Resources {
        Resources::default()
    }
    fn build(&self, _: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        if self.flaw == Some(Flaw::Build) {
            return Err(BlockError::new("no such window"));
        }
        Ok(Box::new(TotalBlock {
            _counted: Counted::new(self.frames),
            parameters: self.clone(),
            runs: env.implementation == "running",
            window: VecDeque::new(),
            sum: 0,
            frames: env.counters.count("frames", "Frames summed."),
        }))
    }
}

#[crate::async_trait]
impl Block for TotalBlock {
    async fn start(&mut self) -> Result<(), BlockError> {
        match self.parameters.flaw {
            Some(Flaw::Start) => Err(BlockError::new("no such core")),
            _ => Ok(()),
        }
    }

    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Total { frames, flaw, .. } = self.parameters;
        let name = std::thread::current();
        let is_aside = name.name().is_some_and(|name| name.ends_with("companion"));
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

/// Another kind with the ports of `total`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Tenfold {}

struct TenfoldBlock;

impl LegacyKind for Tenfold {
    const NAME: &'static str = "tenfold";
    const DOC: &'static str = "# tenfold";
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);

    fn ports(&self, _: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        Ok(vec![port(1)])
    }
    fn resources(&self, _: &Ports) -> Resources {
        Resources::default()
    }
    fn build(&self, _: &Ports, _: &Env) -> Result<Box<dyn Block>, BlockError> {
        Ok(Box::new(TenfoldBlock))
    }
}

#[crate::async_trait]
impl Block for TenfoldBlock {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
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

/// Timestamp, number, validity, value, configuration of a frame.
pub type Row = (u64, u64, u32, i64, u64);

fn collected() -> &'static Mutex<HashMap<String, Vec<Row>>> {
    static COLLECTED: OnceLock<Mutex<HashMap<String, Vec<Row>>>> = OnceLock::new();
    COLLECTED.get_or_init(Mutex::default)
}

/// What sinks collected into `name`.
pub fn rows(name: &str) -> Vec<Row> {
    let all = collected().lock().unwrap_or_else(PoisonError::into_inner);
    all.get(name).cloned().unwrap_or_default()
}

/// Keeps what it sees, and puts it down at its end.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Collect {
    into: String,
    /// A socket that only one of them can have.
    socket: Option<String>,
    #[serde(default)]
    fails_to_start: bool,
}

struct CollectBlock {
    parameters: Collect,
    rows: Vec<Row>,
}

impl LegacyKind for Collect {
    const NAME: &'static str = "collect";
    const DOC: &'static str = "# collect";
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&[]);

    fn ports(&self, _: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        Ok(vec![])
    }
    fn resources(&self, _: &Ports) -> Resources {
        Resources { binds: self.socket.iter().cloned().collect(), ..Resources::default() }
    }
    fn build(&self, _: &Ports, _: &Env) -> Result<Box<dyn Block>, BlockError> {
        Ok(Box::new(CollectBlock { parameters: self.clone(), rows: Vec::new() }))
    }
}

#[crate::async_trait]
impl Block for CollectBlock {
    async fn start(&mut self) -> Result<(), BlockError> {
        if self.parameters.fails_to_start {
            return Err(BlockError::new("no such network"));
        }
        Ok(())
    }
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while let Some(frame) = io.inputs[0].pop() {
            let header = frame.header();
            let value = frame.as_slice::<i64>().unwrap()[0];
            let (time, number) = (header.timestamp, header.sequence);
            self.rows.push((time, number, header.validity[0], value, header.config_id));
        }
        if !io.inputs[0].ended() {
            return Ok(Next::Wait);
        }
        // Only a block that sees its end puts down what it holds.
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

/// A level that its kind panics at.
pub const UNLUCKY: i64 = -13;

/// Its level, for every frame; live.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Constant {
    level: i64,
    /// The frame at which it fails.
    fails_at: u64,
    /// Others at which it does.
    #[serde(default)]
    fails_too: Vec<u64>,
}

struct LevelBlock {
    level: Timed<i64>,
    fails_at: Vec<u64>,
    changes: Changes<i64>,
}

impl LegacyKind for Constant {
    const NAME: &'static str = "level";
    const DOC: &'static str = "# level";
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);
    const LIVE: &'static [&'static str] = &["level"];

    fn ports(&self, _: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        Ok(vec![port(1)])
    }
    fn resources(&self, _: &Ports) -> Resources {
        Resources::default()
    }
    fn live_value(&self, _: &str, _: &Self, _: &Ports) -> Result<LiveValue, BlockError> {
        assert!(self.level != UNLUCKY, "no such level");
        Ok(Box::new(self.level))
    }
    fn build(&self, _: &Ports, _: &Env) -> Result<Box<dyn Block>, BlockError> {
        let level = Timed::new(self.level);
        let fails_at = [&[self.fails_at], &self.fails_too[..]].concat();
        Ok(Box::new(LevelBlock { level, fails_at, changes: Changes::default() }))
    }
}

#[crate::async_trait]
impl Block for LevelBlock {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
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

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
