//! Tests with small flowgraphs of purpose-built blocks.

mod ends;
mod faults;
mod flow;
mod queues;
mod survival;
mod swap;
mod threads;
mod watching;

use super::{
    Assembly, BlockEvents, OnFault, Options, Part, PartOutput, Report, Running, Thread, start,
};
use fxgraph_core::block::{AsyncBlock, Awaits, Block, Io, Next};
use fxgraph_core::counter::Counters;
use fxgraph_core::dtype::Dtype;
use fxgraph_core::edge::Edge;
use fxgraph_core::error::BlockError;
use fxgraph_core::frame::{HostAllocator, Pool};
use fxgraph_core::kind::{Ports, Waker};
use fxgraph_core::port::{Axis, Clock, PortType, ValidityType};
use fxgraph_core::summary::Summary;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DEPTH: usize = 3;
const ONE_WORKER: Options = Options { workers: 1, config_id: 7 };
const TWO_WORKERS: Options = Options { workers: 2, config_id: 7 };

fn port() -> PortType {
    PortType {
        dtype: Dtype::U8,
        axes: vec![Axis::new("sample", 16)],
        clock: Clock::new(1e6, 16),
        band: None,
        validity: ValidityType::flags(vec![]),
    }
}

/// Log of calls of blocks: `start a`, `work a` (once), `finish a`.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: String) {
        let mut lines = self.0.lock().unwrap();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    fn has(&self, line: &str) -> bool {
        self.0.lock().unwrap().iter().any(|l| l == line)
    }
    fn count(&self, verb: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.starts_with(verb)).count()
    }
}

type Work = Box<dyn FnMut(&mut Io<'_>) -> Result<Next, BlockError> + Send>;
type Hook = Box<dyn FnMut() -> Result<(), BlockError> + Send>;

/// A block made of closures.
struct Scripted {
    name: String,
    log: Log,
    start: Hook,
    work: Work,
    finish: Hook,
}

impl Block for Scripted {
    fn start(&mut self) -> Result<(), BlockError> {
        self.log.add(format!("start {}", self.name));
        (self.start)()
    }
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        self.log.add(format!("work {}", self.name));
        (self.work)(io)
    }
    fn finish(&mut self) -> Result<(), BlockError> {
        self.log.add(format!("finish {}", self.name));
        (self.finish)()
    }
}

/// A flowgraph under construction.
#[derive(Default)]
struct Net {
    parts: Vec<Part>,
    log: Log,
}

impl Net {
    /// Adds a block with `outputs` outputs that reads the first outputs of the blocks `from`.
    fn add(
        &mut self,
        name: &str,
        from: &[usize],
        outputs: usize,
        work: impl FnMut(&mut Io<'_>) -> Result<Next, BlockError> + Send + 'static,
    ) -> usize {
        let block = Scripted {
            name: name.to_owned(),
            log: self.log.clone(),
            start: Box::new(|| Ok(())),
            work: Box::new(work),
            finish: Box::new(|| Ok(())),
        };
        self.add_block(name, from, outputs, Box::new(block))
    }

    fn add_block(
        &mut self,
        name: &str,
        from: &[usize],
        outputs: usize,
        block: Box<dyn Block>,
    ) -> usize {
        let inputs: Vec<_> = from.iter().map(|_| Edge::new(DEPTH)).collect();
        for (&from, edge) in from.iter().zip(&inputs) {
            self.parts[from].outputs[0].edges.push(Arc::clone(edge));
        }
        let pool = || Pool::new(&HostAllocator, DEPTH + 2, 16, 1).unwrap();
        let output = |_| PartOutput { edges: vec![], pool: Some(pool()) };
        self.parts.push(Part {
            name: name.to_owned(),
            kind: "scripted",
            block,
            counters: Counters::default(),
            summary: Summary::default(),
            events: BlockEvents::default(),
            wake: Waker::default(),
            ports: Ports {
                inputs: inputs.iter().map(|_| port()).collect(),
                outputs: (0..outputs).map(|_| port()).collect(),
            },
            inputs,
            outputs: (0..outputs).map(output).collect(),
            thread: Thread::Shared,
            on_fault: OnFault::Stop,
            rebuild: None,
        });
        self.parts.len() - 1
    }

    /// Adds a block with these hooks, which finishes at its first `work`.
    fn hooks(&mut self, name: &str, start: Hook, finish: Hook) -> usize {
        let log = self.log.clone();
        let work = Box::new(|_: &mut Io<'_>| Ok(Next::Finished));
        let block = Scripted { name: name.to_owned(), log, start, work, finish };
        self.add_block(name, &[], 0, Box::new(block))
    }

    fn assembly(self) -> Assembly {
        Assembly { name: "test".to_owned(), parts: self.parts }
    }

    fn run(self, options: Options) -> Report {
        ended(start(self.assembly(), options).unwrap())
    }
}

/// Waits for a run that must end by itself, and returns its report; a hang becomes a failed test.
fn ended(running: Running) -> Report {
    assert!(running.wait_timeout(Duration::from_mins(1)), "the run hangs: {:?}", running.stats());
    running.wait()
}

/// Pushes `limit` frames with timestamps 0, 1, ..., or until a stop.
fn source(limit: u64) -> impl FnMut(&mut Io<'_>) -> Result<Next, BlockError> + Send {
    let mut next = 0;
    move |io| {
        while next < limit && !io.stopping {
            let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
            frame.header_mut().timestamp = next;
            io.outputs[0].push(frame);
            next += 1;
        }
        Ok(Next::Finished)
    }
}

/// Copies headers from input 0 to output 0.
fn copy() -> impl FnMut(&mut Io<'_>) -> Result<Next, BlockError> + Send {
    |io| {
        while io.inputs[0].queued() > 0 {
            let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
            let input = io.inputs[0].pop().unwrap();
            output.header_mut().continue_from(input.header());
            io.outputs[0].push(output);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}

/// Timestamps of the frames that a sink consumed.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<u64>>>);

impl Seen {
    /// Consumes all frames of all inputs.
    fn sink(&self) -> impl FnMut(&mut Io<'_>) -> Result<Next, BlockError> + Send + use<> {
        let seen = self.clone();
        move |io| {
            for input in io.inputs.iter_mut() {
                while let Some(frame) = input.pop() {
                    seen.0.lock().unwrap().push(frame.header().timestamp);
                }
            }
            let over = io.inputs.iter().all(fxgraph_core::Input::ended);
            Ok(if over { Next::Finished } else { Next::Wait })
        }
    }
    fn get(&self) -> Vec<u64> {
        self.0.lock().unwrap().clone()
    }
}

/// Consumes frames and ends after `limit` of them.
fn early(limit: u64) -> impl FnMut(&mut Io<'_>) -> Result<Next, BlockError> + Send {
    let mut taken = 0;
    move |io| {
        while taken < limit && io.inputs[0].pop().is_some() {
            taken += 1;
        }
        Ok(if taken == limit { Next::Finished } else { Next::Wait })
    }
}

/// Waits until `value` has reached `target`; a hang becomes a failed test.
fn reach(value: &AtomicU64, target: u64) {
    let began = std::time::Instant::now();
    while value.load(Ordering::SeqCst) < target {
        assert!(began.elapsed() < Duration::from_mins(1), "never reached {target}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
