//! Memory of a process with many swaps: it stays within the plan.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../src/cli/heap.rs"]
mod heap;

use fxgraph::flowgraph::load_text;
use fxgraph::runtime::{Options, Prepared};
use fxgraph::{Control, DeviceName};
use std::time::{Duration, Instant};

/// Frames of 256 KiB and of 32 KiB, and long queues before the sinks.
const FLOWGRAPH: &str = "flowgraph: swapped
blocks:
  source:
    kind: null_source
    parameters: {dtype: ci8, axes: [{name: sample, len: 32768}], samples_per_frame: 32768}
  large: {kind: convert, input: source, parameters: {dtype: cf32}}
  sink: {kind: null_sink, input: large, queue: 100}
  other:
    kind: null_source
    parameters: {dtype: ci8, axes: [{name: sample, len: 4096}], samples_per_frame: 4096}
  small: {kind: convert, input: other, parameters: {dtype: cf32}}
  end: {kind: null_sink, input: small, queue: 100}
";

const SWAPS: usize = 10_000;
/// Time limit; on a busy machine there are fewer swaps.
const LIMIT: Duration = Duration::from_mins(1);
const FEWEST: usize = 30;
const PATIENCE: Duration = Duration::from_mins(10);

/// Resident bytes of this process.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
#[cfg(target_os = "linux")]
fn process_with_many_swaps_stays_within_the_planned_memory() {
    heap::configure();
    let registry = || fxgraph_blocks::kinds();
    let plan = load_text("swapped.yaml", FLOWGRAPH, &[], &registry()).result.unwrap();
    let memory = plan.memory();
    let (planned, during_swap) = (memory.host_bytes(), plan.swap_bytes(&memory)[&DeviceName::Cpu]);
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan.clone(), registry(), prepared.handle());
    let running = prepared.start(Options { config_id: plan.config_id(), workers: 2 }).unwrap();
    let began = Instant::now();
    let (mut swaps, mut most, mut early) = (0, 0, 0);
    while swaps < SWAPS && (swaps < FEWEST || began.elapsed() < LIMIT) {
        let policy = if swaps % 4 < 2 { "skip" } else { "stop" };
        let block = ["large", "small"][swaps % 2];
        let change = control.change(block, &format!("on_fault: {policy}"));
        let change = change.unwrap_or_else(|rejected| panic!("{:?}", rejected.problems));
        match control.swap(&change, Duration::from_mins(1), true) {
            Ok(()) => swaps += 1,
            // On a busy machine the candidate may be too late.
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error} after {swaps} swaps"),
        }
        most = most.max(resident_bytes());
        if swaps == FEWEST {
            early = resident_bytes();
        }
    }
    // Lent frames return to their pool when they are read.
    let is_near = |bytes: usize| bytes.abs_diff(planned) * 10 <= planned * 3;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_near(resident_bytes()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let resident = resident_bytes();
    let seen = format!(
        "{planned} bytes planned, {during_swap} more during a swap; {early} resident after {FEWEST} swaps, {resident} \
         after {swaps}, {most} at most"
    );
    assert!(is_near(resident), "{seen}");
    assert!(most * 10 <= (planned + during_swap) * 13, "{seen}");
    running.abort();
    let _ = running.wait();
}
