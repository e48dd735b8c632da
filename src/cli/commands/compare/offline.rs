//! Comparison of two implementations of a block on every frame of a flowgraph file, or of two
//! recordings, played by a flowgraph with two file sources.

use super::pairing::{First, Found, Pairing};
use super::report::{Report, Side};
use crate::client::with_help;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::runs::options;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::tuning;
use crate::units;
use fxgraph::diagnostic::{Diagnostic, Severity, render_all};
use fxgraph::flowgraph::{Changed, Plan, load_text, shortage};
use fxgraph::runtime::{BlockStats, Prepared};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two updates of progress and checks for signals.
const TICK: Duration = Duration::from_millis(50);

/// Conditions that end a comparison.
#[derive(Clone, Copy)]
pub struct Limits {
    pub duration: Option<Duration>,
    pub stops_at_difference: bool,
}

/// Runs the flowgraph with `block` and its variant `variant`. Returns the report and the first pair that differs.
pub fn variants(
    target: &Target,
    block: &str,
    variant: &str,
    limits: Limits,
    terminal: &Terminal,
) -> Result<(Report, Option<First>), Failure> {
    let mut plan = flowgraph::plan(target, Severity::Error, terminal)?;
    plan.tuning = tuning::usual(terminal);
    let Changed { sources, result } = plan.beside(block, variant, &flowgraph::registry());
    let both = result.and_then(|both| match shortage(&both) {
        Some(shortage) => Err(vec![shortage]),
        None => Ok(both),
    });
    let both = both.map_err(|problems| {
        Failure::Configuration(render_all(&problems, &sources, flowgraph::style(terminal)))
    })?;
    let second = plan.blocks.len();
    let Some(first) = both.block(block) else {
        return Err(Failure::failed(format!("there is no block `{block}`")));
    };
    compare(both, [first, second], limits, terminal)
}

/// Compares two recordings of the same type.
pub fn recordings(
    files: [&Path; 2],
    limits: Limits,
    terminal: &Terminal,
) -> Result<(Report, Option<First>), Failure> {
    let block = |file: &Path| json!({"kind": "file_source", "parameters": {"path": file}});
    let [a, b] = files;
    let text = json!({"flowgraph": "compare", "blocks": {"a": block(a), "b": block(b)}});
    // The text is in no file, so paths are relative to the working directory.
    let loaded = load_text("recordings", &text.to_string(), &[], &flowgraph::registry());
    // The text is generated, so positions in it are of no use.
    let plan = loaded.result.map_err(|problems| {
        let said = |one: &Diagnostic| with_help(&one.message, one.help.iter().map(String::as_str));
        Failure::Failed(problems.iter().map(said).collect())
    })?;
    let carries = |block: usize| &plan.blocks[block].ports.outputs[0];
    if carries(0) != carries(1) {
        let types =
            format!("`{}` contains {}, `{}` {}", a.display(), carries(0), b.display(), carries(1));
        return Err(Failure::failed(format!("the types of the recordings must be equal: {types}")));
    }
    let (mut report, first) = compare(plan, [0, 1], limits, terminal)?;
    for (side, file) in [(&mut report.a, a), (&mut report.b, b)] {
        *side = Side { name: file.display().to_string(), ..Side::default() };
    }
    Ok((report, first))
}

/// Runs `plan` and compares the outputs of two of its blocks.
fn compare(
    mut plan: Plan,
    [a, b]: [usize; 2],
    limits: Limits,
    terminal: &Terminal,
) -> Result<(Report, Option<First>), Failure> {
    let not_started = |error: &(dyn std::error::Error + 'static)| {
        Failure::because(&format!("`{}` was not started", plan.name), error)
    };
    // A comparison must not overwrite recordings in the working directory.
    let outputs = tempfile::tempdir().map_err(|error| {
        Failure::because("cannot create a temporary directory for the flowgraph's files", &error)
    })?;
    outputs.path().clone_into(&mut plan.output_directory);
    let ports = plan.blocks[a].ports.outputs.iter();
    let pairings: Vec<Arc<Pairing>> =
        ports.map(|port| Pairing::new(port, limits.stops_at_difference)).collect();
    let probes = pairings.iter().enumerate();
    let probes = probes.flat_map(|(port, pairing)| pairing.probes((a, port), (b, port))).collect();
    let signals = Signals::count()?;
    let assembly = plan.build_with(probes).map_err(|error| not_started(&error))?;
    let prepared = Prepared::new(assembly).map_err(|error| not_started(&error))?;
    let running = prepared.start(options(&plan)).map_err(|error| not_started(&error))?;
    let progress = terminal.progress();
    let start = Instant::now();
    let (mut ending, run) = (Ending::new(&plan, None), running.handle());
    while !running.wait_timeout(TICK) {
        ending.look(&run, terminal);
        let is_over = limits.duration.is_some_and(|duration| start.elapsed() >= duration);
        let is_done = pairings.iter().any(|pairing| pairing.is_done());
        match signals.look() {
            0 if is_over || is_done => running.request_stop(),
            0 => {}
            1 => running.request_stop(),
            _ => ending.abort(&run),
        }
        if let Some(line) = &progress {
            let frames: u64 = pairings.iter().map(|pairing| pairing.frames()).sum();
            line.0.set_message(format!(
                "{}  {frames} frames compared",
                units::elapsed(start.elapsed())
            ));
            line.0.tick();
        }
    }
    drop(progress);
    let ended = running.wait();
    if !ended.failures.is_empty() {
        return Err(Failure::Failed(ended.failures.iter().map(ToString::to_string).collect()));
    }
    if signals.look() > 1 {
        return Err(Failure::Interrupted);
    }
    let memory = plan.memory();
    let side = |index: usize| {
        let block = &plan.blocks[index];
        let stats = ended.stats.iter().find(|stats| stats.name == block.name);
        Side {
            name: format!("{}: {} {}", block.name, block.kind, block.implementation),
            seconds_per_frame: stats.and_then(seconds_per_frame),
            memory_bytes: memory.blocks.get(index).map(|memory| memory.bytes() as u64),
        }
    };
    let found: Vec<Found> = pairings.iter().map(|pairing| pairing.found()).collect();
    let (sides, found) = ((side(a), side(b)), total(found));
    Ok((report(sides, &found), found.first))
}

fn total(all: Vec<Found>) -> Found {
    all.into_iter().fold(Found::default(), |mut sum, found| {
        sum.difference.add(found.difference);
        sum.first = match (sum.first, found.first) {
            (Some(one), Some(other)) if other.timestamp < one.timestamp => Some(other),
            (one, other) => one.or(other),
        };
        sum
    })
}

fn report((a, b): (Side, Side), found: &Found) -> Report {
    Report {
        a,
        b,
        difference: found.difference,
        frames_dropped: 0,
        first_difference_timestamp: found.first.as_ref().map(|first| first.timestamp),
        first_difference_index: None,
        ended: None,
    }
}

/// Time per frame in seconds, on the GPU if the block uses one, otherwise on the CPU.
fn seconds_per_frame(stats: &BlockStats) -> Option<f64> {
    let busy = stats.longest_busy().max(stats.device_busy).as_secs_f64();
    (stats.frames_in > 0).then(|| busy / stats.frames_in as f64)
}
