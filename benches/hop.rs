//! Overhead of the framework in nanoseconds per frame and hop: throughput of a flowgraph of five blocks that pass or
//! copy frames, compared with the same work in a bare loop, time of a single frame, and throughput of one output with
//! several readers.
//!
//! `cargo bench -p fxgraph --bench hop`
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod machine;

use fxgraph::counter::Counters;
use fxgraph::edge::Edge;
use fxgraph::frame::{HostAllocator, Pool};
use fxgraph::kind::Waker;
use fxgraph::runtime::{Assembly, BlockEvents, OnFault, Options, Part, PartOutput, Thread, start};
use fxgraph::{
    Axis, Block, BlockError, Clock, Dtype, Frame, Io, Next, PortType, Ports, Summary, ValidityType,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BLOCKS: usize = 5;
/// Hops through a source, five blocks and a sink.
const HOPS: usize = BLOCKS + 1;
const DEPTH: usize = 8;
const REPEATS: usize = 3;

#[derive(Clone, Copy, PartialEq)]
enum Work {
    Pass,
    Copy,
}

struct Source(u64);

impl Block for Source {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while self.0 > 0 {
            let Some(frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
            io.outputs[0].push(frame);
            self.0 -= 1;
        }
        Ok(Next::Finished)
    }
}

struct NoOp(Work);

impl Block for NoOp {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.outputs[0].has_room() && io.inputs[0].queued() > 0 {
            if self.0 == Work::Pass {
                let frame = io.inputs[0].pop().unwrap();
                io.outputs[0].pass(frame);
                continue;
            }
            let Some(mut output) = io.outputs[0].take() else { break };
            let input = io.inputs[0].pop().unwrap();
            output.header_mut().continue_from(input.header());
            output.as_mut_slice::<u8>().unwrap().copy_from_slice(input.as_slice().unwrap());
            io.outputs[0].push(output);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}

struct Sink;

impl Block for Sink {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while let Some(frame) = io.inputs[0].pop() {
            black_box(frame.header().sequence);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}

fn port(bytes: usize) -> PortType {
    PortType {
        dtype: Dtype::U8,
        axes: vec![Axis::new("sample", bytes)],
        clock: Clock::new(1e9, bytes as u64),
        band: None,
        validity: ValidityType::flags(vec![]),
    }
}

fn pool(frames: usize, bytes: usize) -> Arc<Pool> {
    Pool::new(&HostAllocator, frames, bytes, 1).unwrap()
}

type Edges = (Vec<Arc<Edge>>, Vec<PartOutput>);

fn part(
    number: usize,
    block: Box<dyn Block>,
    (inputs, outputs): Edges,
    bytes: usize,
    thread: Thread,
) -> Part {
    Part {
        name: format!("block {number}"),
        kind: "no_op",
        block,
        counters: Counters::default(),
        summary: Summary::default(),
        events: BlockEvents::default(),
        wake: Waker::default(),
        ports: Ports {
            inputs: inputs.iter().map(|_| port(bytes)).collect(),
            outputs: outputs.iter().map(|_| port(bytes)).collect(),
        },
        inputs,
        outputs,
        thread,
        on_fault: OnFault::Stop,
        rebuild: None,
    }
}

/// Assembles a source, and `branches` sinks that read its output.
fn fan_out(branches: usize, frames: u64) -> Assembly {
    let edges: Vec<Arc<Edge>> = (0..branches).map(|_| Edge::new(DEPTH)).collect();
    let output = PartOutput { edges: edges.clone(), pool: Some(pool(DEPTH + 2, 4096)) };
    let sink =
        |(edge, number)| part(number, Box::new(Sink), (vec![edge], vec![]), 4096, Thread::Shared);
    let source = part(0, Box::new(Source(frames)), (vec![], vec![output]), 4096, Thread::Shared);
    let parts = std::iter::once(source).chain(edges.into_iter().zip(1..).map(sink)).collect();
    Assembly { name: "fan-out".to_owned(), parts }
}

fn assembly(work: Work, bytes: usize, frames: u64, thread: Thread, memory: usize) -> Assembly {
    let mut parts: Vec<Part> = Vec::new();
    for number in 0..BLOCKS + 2 {
        let (first, last) = (number == 0, number == BLOCKS + 1);
        let block: Box<dyn Block> = match number {
            0 => Box::new(Source(frames)),
            _ if last => Box::new(Sink),
            _ => Box::new(NoOp(work)),
        };
        let mut inputs = Vec::new();
        if let Some(before) = parts.last_mut() {
            let edge = Edge::new(DEPTH);
            before.outputs[0].edges.push(Arc::clone(&edge));
            inputs.push(edge);
        }
        // Frames that pass through all come from the source's pool.
        let pool = match work {
            Work::Pass => first.then(|| pool(memory, bytes)),
            Work::Copy => (!last).then(|| pool(DEPTH + 2, bytes)),
        };
        let outputs = if last { vec![] } else { vec![PartOutput { edges: vec![], pool }] };
        parts.push(part(number, block, (inputs, outputs), bytes, thread));
    }
    Assembly { name: "hop".to_owned(), parts }
}

fn flowgraph(work: Work, bytes: usize, frames: u64, workers: usize, thread: Thread) -> Duration {
    let memory = HOPS * DEPTH + BLOCKS + 2;
    run(assembly(work, bytes, frames, thread, memory), frames, workers)
}

fn run(assembly: Assembly, frames: u64, workers: usize) -> Duration {
    let options = Options { workers, config_id: 0 };
    let report = start(assembly, options).unwrap().wait();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!(report.stats[BLOCKS + 1].frames_in, frames);
    report.elapsed
}

/// Runs the same operations on frames one after the other, without queues or threads.
fn bare_loop(work: Work, bytes: usize, frames: u64) -> Duration {
    let pools: Vec<_> = (0..HOPS).map(|_| pool(DEPTH + 2, bytes)).collect();
    let began = Instant::now();
    for _ in 0..frames {
        let mut frame: Arc<Frame> = pools[0].take().unwrap().freeze();
        for pool in &pools[1..] {
            if work == Work::Copy {
                let mut output = pool.take().unwrap();
                output.header_mut().continue_from(frame.header());
                output.as_mut_slice::<u8>().unwrap().copy_from_slice(frame.as_slice().unwrap());
                frame = output.freeze();
            }
            frame = black_box(frame);
        }
    }
    began.elapsed()
}

fn best(run: impl Fn() -> Duration) -> f64 {
    (0..REPEATS).map(|_| run().as_secs_f64()).fold(f64::INFINITY, f64::min)
}

fn chains(cores: usize) {
    println!("source, {BLOCKS} blocks, sink: {HOPS} hops; best of {REPEATS}\n");
    println!(
        "| work | frame | runs on | frames/s | ns per frame and hop | GB/s per hop | of the bare loop |"
    );
    println!("|---|---:|---|---:|---:|---:|---:|");
    for (work, bytes, frames) in [
        (Work::Pass, 4096, 300_000),
        (Work::Copy, 4096, 200_000),
        (Work::Copy, 1 << 17, 20_000),
        (Work::Copy, 1 << 20, 2_000),
        (Work::Copy, 1 << 23, 200),
    ] {
        let bare = best(|| bare_loop(work, bytes, frames));
        let shared = |workers| best(|| flowgraph(work, bytes, frames, workers, Thread::Shared));
        let own = || best(|| flowgraph(work, bytes, frames, 1, Thread::Own { core: None }));
        let rows = [
            ("bare loop".to_owned(), bare),
            ("1 worker".to_owned(), shared(1)),
            (format!("{cores} workers"), shared(cores)),
            ("own threads".to_owned(), own()),
        ];
        for (place, seconds) in rows {
            let word = if work == Work::Pass { "pass" } else { "copy" };
            let hops = frames as f64 * HOPS as f64;
            println!(
                "| {word} | {} KiB | {place} | {:.0} | {:.0} | {:.2} | {:.0} % |",
                bytes / 1024,
                frames as f64 / seconds,
                seconds * 1e9 / hops,
                frames as f64 * bytes as f64 / seconds / 1e9,
                100.0 * bare / seconds,
            );
        }
    }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// One frame at a time: most blocks wait, as in front of a GPU.
fn single_frames(cores: usize) {
    println!("\none frame at a time through {HOPS} hops; best of {REPEATS}\n");
    println!("| runs on | us per frame and hop | us of CPU time |");
    println!("|---|---:|---:|");
    let frames = 20_000;
    for (workers, thread) in [
        (1, Thread::Shared),
        (cores, Thread::Shared),
        (8, Thread::Shared),
        (1, Thread::Own { core: None }),
    ] {
        let trial = |_| {
            let before = cpu_time();
            let assembly = assembly(Work::Pass, 4096, frames, thread, 1);
            (run(assembly, frames, workers), cpu_time().saturating_sub(before))
        };
        let (time, cpu) = (0..REPEATS).map(trial).min().unwrap();
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / (frames * HOPS as u64) as f64;
        let place = match thread {
            Thread::Shared => format!("{workers} workers"),
            Thread::Own { .. } => "own threads".to_owned(),
        };
        println!("| {place} | {:.2} | {:.2} |", micros(time), micros(cpu));
    }
}

fn branches(cores: usize) {
    println!("\none output, several readers; best of {REPEATS}\n");
    println!(
        "| readers | runs on | ns per frame and reader | calls of the source per frame | of a reader |"
    );
    println!("|---:|---|---:|---:|---:|");
    for branches in [1, 10, 100, 1000] {
        let frames = 2_000_000 / branches as u64;
        for workers in [1, cores] {
            let run = || {
                let options = Options { workers, config_id: 0 };
                let report = start(fan_out(branches, frames), options).unwrap().wait();
                assert!(report.failures.is_empty(), "{:?}", report.failures);
                report
            };
            let reports = (0..REPEATS).map(|_| run());
            let best = reports.min_by_key(|report| report.elapsed).unwrap();
            let (source, readers) = best.stats.split_first().unwrap();
            let works: u64 = readers.iter().map(|reader| reader.works).sum();
            let hops = frames as f64 * branches as f64;
            println!(
                "| {branches} | {workers} workers | {:.0} | {:.2} | {:.2} |",
                best.elapsed.as_secs_f64() * 1e9 / hops,
                source.works as f64 / frames as f64,
                works as f64 / hops,
            );
        }
    }
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("machine: {}, {cores} cores", machine::processor());
    chains(cores);
    single_frames(cores);
    branches(cores);
}
