//! Blocks in Python in running flowgraphs: live updates, swaps, shadows, faults, security, and the end of processes.
#![allow(clippy::unwrap_used, clippy::float_cmp, missing_docs)]

#[path = "support/http.rs"]
mod http;
#[path = "support/needs.rs"]
mod needs;
#[path = "support/python.rs"]
mod python;
#[path = "support/repository.rs"]
mod repository;

use fxgraph::control::Way;
use fxgraph::flowgraph::{Plan, Probe, load_in};
use fxgraph::runtime::{EventKind, Options, Prepared, Report};
use fxgraph::{Block, BlockError, Control, Io, Next, Registry};
use http::{Program, request};
use repository::root;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_mins(1);
/// Samples of a frame.
const LEN: u64 = 1024;

/// Each test starts processes and looks for them: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn registry() -> Registry {
    fxgraph_blocks::kinds()
}

const HEAD: &str = "\
import os, sys, time
from dataclasses import dataclass
from typing import Annotated
import numpy as np
from fxgraph.block import DROP, Block, Range, live

@dataclass
class B(Block):
    gain: Annotated[float, Range(0, 100), live] = 2.0
    name: str = ''
";

/// A method `work` that applies the gain, after these lines.
fn gain(lines: &str) -> String {
    let lines = lines.lines().map(|line| format!("        {line}\n")).collect::<Vec<_>>().concat();
    format!(
        "{HEAD}    def work(self, frame, out):\n{lines}        \
         np.multiply(frame.data, np.float32(self.gain), out=out.data)\n"
    )
}

/// Flowgraph of a source of random numbers and the block, whose parameters are those of `block`.
fn flowgraph(block: &str) -> String {
    format!(
        "flowgraph: test\nblocks:\n  \
         source: {{kind: null_source, parameters: {{dtype: f32, axes: [{{name: sample, len: {LEN}}}], \
         samples_per_frame: {LEN}, pattern: random}}}}\n  block: {{input: source, {block}}}\n  \
         sink: {{kind: null_sink, input: block}}\n"
    )
}

/// The block in the file `block.py`.
fn of_file(more: &str) -> String {
    let python = python::python();
    flowgraph(&format!(
        "kind: python, parameters: {{file: block.py, class: B, python: '{}'}}, {more}",
        python.display()
    ))
}

/// Timestamp, sequence number and values of a frame.
type Row = (u64, u64, Vec<f32>);

/// Keeps frames, at a rate at which clients can follow.
struct Tap {
    rows: Arc<Mutex<Vec<Row>>>,
    is_free: Arc<AtomicBool>,
    /// Time of the last frame.
    last: Instant,
}

impl Block for Tap {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let pause = Duration::from_millis(2).saturating_sub(self.last.elapsed());
        if !pause.is_zero() && !self.is_free.load(Ordering::Relaxed) {
            return Ok(Next::After(pause));
        }
        self.last = Instant::now();
        if let Some(frame) = io.inputs[0].pop() {
            let header = frame.header();
            let row = (header.timestamp, header.sequence, frame.as_slice().unwrap().to_vec());
            self.rows.lock().unwrap().push(row);
            return Ok(Next::Again);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}

/// A run: frames of the source and of the block, and its report.
struct Ran {
    inputs: Vec<Row>,
    outputs: Vec<Row>,
    report: Report,
    events: Vec<fxgraph::runtime::Event>,
}

impl Ran {
    /// Checks that no frame is missing and that each has the gain `gain` of its timestamp.
    fn has_gain(&self, gain: impl Fn(u64) -> f32) {
        assert!(self.outputs.len() > 10);
        for (input, output) in self.inputs.iter().zip(&self.outputs) {
            assert_eq!((input.0, input.1), (output.0, output.1));
            let gain = gain(input.0);
            let expected = input.2.iter().map(|value| value * gain);
            assert!(expected.eq(output.2.iter().copied()), "at {}: not {gain}", input.0);
        }
    }

    fn counter(&self, name: &str) -> u64 {
        let block = self.report.stats.iter().find(|block| block.name == "block").unwrap();
        block.counters.iter().find(|named| named.name == name).unwrap().counter.get()
    }
}

/// Number of frames that the block has pushed.
fn frames(control: &Control) -> u64 {
    control.stats().iter().find(|block| block.name == "block").unwrap().frames_out
}

fn wait_for_frames(control: &Control, count: u64) {
    let until = frames(control) + count;
    let began = Instant::now();
    while frames(control) < until {
        assert!(began.elapsed() < LIMIT, "no frames");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `text` in `directory`; after `change` the flowgraph is stopped.
fn run(directory: &Path, text: &str, change: impl FnOnce(&Control)) -> Ran {
    let loaded = load_in(directory, Path::new("test.yaml"), text, &[], &registry());
    let mut plan: Plan = loaded.result.unwrap_or_else(|problems| panic!("{problems:?}"));
    directory.clone_into(&mut plan.output_directory);
    let is_free = Arc::new(AtomicBool::new(false));
    let mut rows = Vec::new();
    let probes = ["source", "block"].map(|name| {
        let seen = Arc::<Mutex<Vec<Row>>>::default();
        rows.push(Arc::clone(&seen));
        let block =
            Box::new(Tap { rows: seen, is_free: Arc::clone(&is_free), last: Instant::now() });
        Probe {
            name: format!("{name} tap"),
            source: (plan.block(name).unwrap(), 0),
            block,
            queue: 4,
        }
    });
    let options = Options { config_id: plan.config_id(), workers: 2 };
    let prepared = Prepared::new(plan.build_with(probes.into()).unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(options).unwrap();
    change(&control);
    is_free.store(true, Ordering::Relaxed);
    control.request_stop();
    assert!(control.wait_timeout(LIMIT), "it does not stop");
    let report = running.wait();
    let events = control.events_since(0);
    let [inputs, outputs] = [0, 1].map(|n| std::mem::take(&mut *rows[n].lock().unwrap()));
    Ran { inputs, outputs, report, events }
}

/// A directory with the program `text` as `block.py`, which is also the working directory of paths in flowgraphs.
fn directory(text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("block.py"), text).unwrap();
    directory
}

/// `text` with the absolute path of `block.py`.
fn placed(text: &str, directory: &Path) -> String {
    text.replace("file: block.py", &format!("file: '{}'", directory.join("block.py").display()))
}

#[test]
fn frames_pass_without_copies_and_processes_and_descriptors_are_gone_after_each_run() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let directory = directory(&gain(""));
    let text = placed(&of_file(""), directory.path());
    let mut before = None;
    for _ in 0..12 {
        let ran = run(directory.path(), &text, |control| wait_for_frames(control, 20));
        assert_eq!(ran.report.failures, []);
        ran.has_gain(|_| 2.0);
        assert_eq!((ran.counter("frames_copied"), ran.counter("process_starts")), (0, 1));
        assert_eq!(ran.counter("frames_dropped_at_faults"), 0);
        assert_eq!(children(std::process::id()), [] as [u32; 0]);
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert_eq!(*before.get_or_insert(descriptors), descriptors);
    }
}

#[test]
fn live_value_holds_from_the_first_frame_at_its_timestamp() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let directory = directory(&gain(""));
    let text = placed(&of_file(""), directory.path());
    let mut at = 0;
    let ran = run(directory.path(), &text, |control| {
        wait_for_frames(control, 5);
        // Within a frame, some seconds ahead.
        at = (frames(control) + 2000) * LEN + LEN / 2;
        let done = control.live_update("{block: {values: {gain: 3}}}", Some(at), LIMIT).unwrap();
        assert_eq!(done.effective_timestamp, at);
        for (request, expected) in [
            ("{block: {values: {gain: 300}}}", "`gain` must be between 0 and 100, got 300"),
            (
                "{block: {values: {gains: 3}}}",
                "`B` has no parameter `gains`; it has `gain`, `name`",
            ),
            ("{block: {values: {name: x}}}", "`name` of `B` cannot change while the block runs"),
            ("{block: {class: C}}", "`class` of `python` cannot change while the block runs"),
        ] {
            let rejected = control.live_update(request, None, LIMIT).unwrap_err().to_string();
            assert!(rejected.contains(expected), "{rejected}");
        }
        while frames(control) * LEN < at + 5 * LEN {
            wait_for_frames(control, 1);
        }
    });
    assert_eq!(ran.report.failures, []);
    assert!(ran.outputs.last().unwrap().0 > at);
    ran.has_gain(|timestamp| if timestamp >= at { 3.0 } else { 2.0 });
}

#[test]
fn swap_of_an_edited_file_drops_no_frame() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let directory = directory(&gain(""));
    let text = placed(&of_file(""), directory.path());
    let mut boundary = 0;
    let ran = run(directory.path(), &text, |control| {
        wait_for_frames(control, 5);
        assert_eq!(control.change("block", "{}").ok().unwrap().way, Way::Nothing);
        let file = directory.path().join("block.py");
        std::fs::write(&file, gain("").replace("live] = 2.0", "live] = 5.0")).unwrap();
        let rejected =
            control.live_update("{block: {values: {gain: 3}}}", None, LIMIT).unwrap_err();
        assert!(
            rejected.to_string().contains("was edited after the start of the block"),
            "{rejected}"
        );
        let change = control.change("block", "{}").ok().unwrap();
        assert_eq!(change.way, Way::Seamless);
        assert_eq!(change.differences[0].key, "content");
        let swapped = control.swap(&change, LIMIT, true);
        assert!(swapped.is_ok(), "{}", swapped.unwrap_err());
        boundary = frames(control);
        wait_for_frames(control, 10);
        // A file with an error does not touch the block that runs.
        std::fs::write(&file, "def work(:").unwrap();
        let rejected = control.change("block", "{}").err().unwrap();
        assert!(rejected.problems[0].message.contains("SyntaxError"), "{:?}", rejected.problems);
    });
    assert_eq!(ran.report.failures, []);
    let edited = ran.inputs.iter().zip(&ran.outputs).position(|(a, b)| b.2[1] == a.2[1] * 5.0);
    let from = ran.inputs[edited.unwrap()].0;
    assert!(from <= boundary * LEN);
    ran.has_gain(|timestamp| if timestamp >= from { 5.0 } else { 2.0 });
}

#[test]
fn shadow_in_python_agrees_with_a_rust_block_and_finds_a_difference() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let directory = directory(&gain(""));
    let text = flowgraph("kind: convert, parameters: {dtype: f32, scale: 0.5}");
    let file = directory.path().join("block.py");
    let shadow = |gain: f64| {
        format!(
            "{{kind: python, parameters: {{file: '{}', class: B, python: '{}', values: {{gain: {gain}}}}}}}",
            file.display(),
            python::python().display()
        )
    };
    let ran = run(directory.path(), &text, |control| {
        wait_for_frames(control, 5);
        for (gain, is_different) in [(0.5, false), (0.25, true)] {
            let change = match control.change("block", &shadow(gain)) {
                Ok(change) => change,
                Err(rejected) => panic!("{:?}", rejected.problems),
            };
            control.shadow(&change, false).unwrap();
            let began = Instant::now();
            loop {
                let difference = control.shadows()[0].compared.difference;
                if difference.frames >= 20 {
                    assert_eq!(difference.frames_different > 0, is_different);
                    break;
                }
                assert!(began.elapsed() < LIMIT, "{:?}", control.shadows()[0].compared);
                std::thread::sleep(Duration::from_millis(10));
            }
            control.end_shadow("block").unwrap();
            // The thread of the shadow ends its process.
            while !children(std::process::id()).is_empty() {
                assert!(began.elapsed() < LIMIT, "the process of the shadow does not end");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // The candidate takes the place of the Rust block.
        let change = control.change("block", &shadow(0.5)).ok().unwrap();
        let swapped = control.swap(&change, LIMIT, true);
        assert!(swapped.is_ok(), "{}", swapped.unwrap_err());
        wait_for_frames(control, 5);
    });
    assert_eq!(ran.report.failures, []);
    ran.has_gain(|_| 0.5);
    assert!(ran.counter("frames_copied") > 0, "the pool of the source is not shared after a swap");
}

#[test]
fn fault_stops_the_flowgraph_with_the_traceback() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let lines = "if frame.timestamp == 5 * 1024:\n    raise ValueError(f'frame {frame.sequence}')";
    let directory = directory(&gain(lines));
    let ran = run(directory.path(), &placed(&of_file(""), directory.path()), |control| {
        assert!(control.wait_timeout(LIMIT));
    });
    assert_eq!(ran.outputs.len(), 5);
    let cause = &ran.report.failures[0].cause;
    assert!(cause.starts_with("`work` of `B` failed ("), "{cause}");
    assert!(cause.contains("block.py, line 13): ValueError: frame 5: \n"), "{cause}");
    assert!(cause.contains("raise ValueError(f'frame {frame.sequence}')"), "{cause}");
}

#[test]
fn skip_and_restart_continue_after_exceptions_kills_and_hangs() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let faults = [
        ("raise ValueError('x')", 1, "ValueError: x"),
        ("os.kill(os.getpid(), 9)", 2, "signal: 9 (SIGKILL)"),
        ("time.sleep(60)", 2, "in work"),
    ];
    for (policy, kind) in [("skip", EventKind::Skipped), ("restart", EventKind::Restarted)] {
        for (fault, starts, text) in faults {
            let lines = format!("if frame.timestamp == 5 * 1024:\n    {fault}");
            let directory = directory(&gain(&lines));
            let flowgraph = placed(&of_file(&format!("on_fault: {policy}")), directory.path());
            let flowgraph = flowgraph.replace("class: B,", "class: B, timeout_seconds: 1,");
            let ran = run(directory.path(), &flowgraph, |control| wait_for_frames(control, 20));
            assert_eq!(ran.report.failures, [], "{policy} {fault}");
            let starts = if policy == "restart" { 2 } else { starts };
            assert_eq!(ran.counter("process_starts"), starts, "{policy} {fault}");
            let event = ran.events.iter().find(|event| event.kind == kind).unwrap();
            assert!(event.text.contains(text), "{}", event.text);
            let dropped = ran.counter("frames_dropped_at_faults");
            assert!((1..=2).contains(&dropped), "{policy} {fault}: {dropped}");
            // The frames with the process are missing, no others.
            let times: Vec<u64> = ran.outputs.iter().map(|row| row.0 / LEN).collect();
            let expected: Vec<u64> = (0..times.len() as u64 + dropped)
                .filter(|n| !(5..5 + dropped).contains(n))
                .collect();
            assert_eq!(times, expected, "{policy} {fault}");
        }
    }
}

#[test]
fn warnings_are_events_and_lines_are_bounded() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let lines = "if frame.sequence == 0:\n    import logging\n    logging.warning('the gain is %g', self.gain)\n    \
                 print('x\\n' * 2000)";
    let directory = directory(&gain(lines));
    let ran = run(directory.path(), &placed(&of_file(""), directory.path()), |control| {
        wait_for_frames(control, 20);
    });
    let warnings: Vec<_> =
        ran.events.iter().filter(|event| event.kind == EventKind::Warning).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].text, "root: the gain is 2");
    assert!(ran.counter("log_lines_dropped") > 1000);
}

/// Children of the process `id` that have not ended.
fn children(id: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let child = |stat: String| {
        let (before, after) = stat.rsplit_once(')')?;
        let mut fields = after.split_whitespace();
        let (state, parent) = (fields.next()?, fields.next()?);
        let child = before.split(' ').next()?.parse().ok()?;
        (parent == id.to_string() && state != "Z").then_some(child)
    };
    stats.filter_map(child).collect()
}

/// Whether the process `id` runs.
fn is_running(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn processes_end_when_the_program_is_killed() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    // In NumPy, asleep with a process of its own, and idle between frames.
    for lines in ["while True: np.sort(np.ones(1000))", "os.fork(); time.sleep(600)", ""] {
        let directory = directory(&gain(lines));
        let text = of_file("").replace("class: B,", "class: B, timeout_seconds: 600,");
        let mut program = Program::running(directory.path(), &text, &["--quiet"]);
        std::thread::sleep(Duration::from_millis(500));
        let of_program = children(program.child.id());
        assert_eq!(of_program.len(), 1);
        let group: Vec<u32> =
            of_program.iter().flat_map(|id| children(*id)).chain(of_program.clone()).collect();
        program.child.kill().unwrap();
        program.child.wait().unwrap();
        let began = Instant::now();
        while group.iter().any(|id| is_running(*id)) {
            assert!(began.elapsed() < Duration::from_secs(20), "{lines}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn clients_run_no_code_that_the_flowgraph_does_not_name() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let directory = directory(&gain(""));
    let trap = "import pathlib; pathlib.Path('trapped').touch()\n";
    std::fs::write(directory.path().join("other.py"), format!("{trap}{}", gain(""))).unwrap();
    let text = of_file("");
    let program = Program::running(directory.path(), &text, &["--quiet", "--files", "."]);
    let send = |method: &str, path: &str, body: &Value| {
        let headers = [("Content-Type", "application/json")];
        request(program.address, method, path, &headers, body.to_string().as_bytes())
    };
    let code = format!("{trap}{}", gain(""));
    let file = directory.path().join("other.py");
    let named = [
        json!({"file": "other.py"}),
        json!({"file": "./block.py"}),
        json!({"file": file}),
        json!({"file": null, "code": code}),
        json!({"python": "./other.py"}),
        json!({"python": "/bin/sh"}),
    ];
    for parameters in &named {
        for (method, path) in
            [("PATCH", "/api/v1/blocks/block"), ("POST", "/api/v1/blocks/block/shadow")]
        {
            let answer = send(method, path, &json!({"parameters": parameters}));
            assert!((400..500).contains(&answer.status), "{method} {parameters}: {answer:?}");
            assert!(answer.body.contains("E0403"), "{method} {parameters}: {answer:?}");
        }
    }
    let whole = text.replace("block.py", "other.py");
    let headers = [("Content-Type", "application/yaml")];
    let answer = request(program.address, "PUT", "/api/v1/flowgraph", &headers, whole.as_bytes());
    assert!(answer.body.contains("E0403"), "{answer:?}");
    let mut sink = json!({"kind": "python", "parameters": {"class": "B", "code": code}});
    let answer = send("PATCH", "/api/v1/blocks/sink", &sink);
    assert!(answer.body.contains("E0403"), "{answer:?}");
    sink["parameters"] = json!({"class": "B", "file": "other.py"});
    let answer = send("PATCH", "/api/v1/blocks/sink", &sink);
    assert!(answer.body.contains("E0403"), "{answer:?}");
    assert!(!directory.path().join("trapped").exists());
    // The file of the author may be edited and swapped.
    std::fs::write(directory.path().join("block.py"), gain("pass")).unwrap();
    let answer = send("PATCH", "/api/v1/blocks/block?may_hold_up=true", &json!({}));
    assert_eq!(answer.status, 200, "{answer:?}");
    program.signal("-INT");
    assert!(program.end().status.success());
}

#[test]
fn validate_reports_errors_of_the_file_at_the_key() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let directory = directory("import numpy as np\ndef work(:\n    pass\n");
    std::fs::write(directory.path().join("test.yaml"), of_file("")).unwrap();
    let validate = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        let output =
            command.args(["validate", "test.yaml"]).current_dir(directory.path()).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (is_valid, said) = validate();
    assert!(!is_valid);
    assert!(
        said.contains("`block.py` cannot be imported (block.py, line 2): SyntaxError: "),
        "{said}"
    );
    assert!(said.contains("correct line 2: `def work(:`"), "{said}");
    std::fs::write(directory.path().join("block.py"), gain("")).unwrap();
    let (is_valid, said) = validate();
    assert!(is_valid, "{said}");
}

#[test]
fn example_flags_the_channel_of_a_carrier() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let directory = root().join("examples/python");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    let python = python::python();
    command.env("VIRTUAL_ENV", python.parent().unwrap().parent().unwrap());
    let output =
        command.args(["test", "rfi_flagger.yaml"]).current_dir(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// The example gain as a kernel file with its reference, which runs here; and the block.
fn kernel(directory: &Path) -> String {
    for name in ["gain.cu", "gain.py"] {
        std::fs::copy(root().join("examples/kernels").join(name), directory.join(name)).unwrap();
    }
    let (python, file) = (python::python(), directory.join("gain.cu"));
    flowgraph(&format!(
        "kind: kernel, parameters: {{file: '{}', values: {{gain: 2}}, python: '{}'}}",
        file.display(),
        python.display()
    ))
}

#[test]
fn live_value_and_swap_of_a_kernel_file_drop_no_frame() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let directory = tempfile::tempdir().unwrap();
    let text = kernel(directory.path());
    let (mut effective, mut boundary) = (0, 0);
    let ran = run(directory.path(), &text, |control| {
        wait_for_frames(control, 5);
        let changed = control.live_update("{block: {values: {gain: -3}}}", None, LIMIT).unwrap();
        effective = changed.effective_timestamp;
        wait_for_frames(control, 10);
        let rejected = control.live_update("{block: {values: {gain: 9}}}", None, LIMIT);
        let rejected = rejected.unwrap_err().to_string();
        assert!(rejected.contains("`gain` must be between -8 and 8, got 9"), "{rejected}");
        // An edit that the declaration does not allow touches nothing.
        let file = directory.path().join("gain.cu");
        let good = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, good.replace("[256]", "[2560]")).unwrap();
        let rejected = control.change("block", "{}").err().unwrap();
        let message = &rejected.problems[0].message;
        assert!(
            message.contains("gain.cu:5: `2560` must be an integer from 1 to 1024"),
            "{message}"
        );
        // The same kernel with another reference.
        std::fs::write(&file, &good).unwrap();
        assert_eq!(control.change("block", "{}").ok().unwrap().way, Way::Nothing);
        let reference = std::fs::read_to_string(directory.path().join("gain.py")).unwrap();
        let edited = reference.replace("np.float32(fx.gain)", "np.float32(fx.gain + 1)");
        std::fs::write(directory.path().join("gain.py"), edited).unwrap();
        let change = control.change("block", "{}").ok().unwrap();
        assert_eq!(change.way, Way::Seamless);
        assert_eq!(change.differences[0].key, "content");
        let swapped = control.swap(&change, LIMIT, true);
        assert!(swapped.is_ok(), "{}", swapped.unwrap_err());
        boundary = frames(control);
        wait_for_frames(control, 10);
    });
    assert_eq!(ran.report.failures, []);
    let edited = ran.inputs.iter().zip(&ran.outputs).position(|(a, b)| b.2[1] == a.2[1] * -2.0);
    let from = ran.inputs[edited.unwrap()].0;
    assert!(effective < from && from <= boundary * LEN);
    ran.has_gain(|timestamp| match timestamp {
        _ if timestamp >= from => -2.0,
        _ if timestamp >= effective => -3.0,
        _ => 2.0,
    });
}

#[test]
fn example_kernels_compute_every_frame_by_their_references() {
    if !needs::python() {
        return;
    }
    let _one = alone();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    let python = python::python();
    command.env("VIRTUAL_ENV", python.parent().unwrap().parent().unwrap());
    let directory = root().join("examples/kernels");
    let output = command.args(["test", "kernels.yaml"]).current_dir(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
