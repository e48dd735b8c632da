//! Tests with a real interpreter. They need NumPy; without it they are skipped with a reason on stderr.

use super::Python;
use super::process::Process;
use crate::tests::chain::{self, Plain};
use fxgraph::edge::Harness;
use fxgraph::frame::Annotations;
use fxgraph::{
    At, Axis, Block, Clock, Configured, Counters, Dtype, Env, KindSpec, Next, PortType, Rejection,
    ValidityType,
};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[path = "../../../tests/support/needs.rs"]
mod needs;
#[path = "../../../tests/support/python.rs"]
mod python;
#[path = "../../../tests/support/repository.rs"]
mod repository;

/// Interpreter of the environment of the tests, if it can be made.
pub fn interpreter() -> Option<String> {
    let python = python::environment("tests-python", "tests/requirements.txt").ok()?;
    Some(python.display().to_string())
}

/// Whether the interpreter of the tests has NumPy; if not, the test says so and is skipped.
pub fn has_numpy() -> bool {
    needs::python()
}

const HEAD: &str = "\
import ctypes, logging, os, sys, time
from dataclasses import dataclass, field
from typing import Annotated
import numpy as np
from fxgraph.block import DROP, Block, Frame, Port, Range, live

@dataclass
class B(Block):
";

/// Port of 4 channels of 8 samples in 2 heaps.
fn port() -> PortType {
    PortType {
        dtype: Dtype::F32,
        axes: vec![Axis::new("channel", 4), Axis::new("sample", 8)],
        clock: Clock { sync_time: fxgraph::Time::unix(1_000_000_000), ..Clock::new(1e6, 8) },
        band: None,
        validity: ValidityType::flags(vec![Axis::new("heap", 2)]),
    }
}

/// Parameters of a block with this body of the class `B`.
fn block(body: &str, more: Value) -> Python {
    let body = body.lines().map(|line| format!("    {line}\n")).collect::<Vec<_>>().concat();
    let mut parameters = json!({"class": "B", "code": format!("{HEAD}{body}")});
    for (key, value) in more.as_object().unwrap() {
        parameters[key] = value.clone();
    }
    chain::kind(parameters)
}

/// Frames whose values are their number.
fn frames(count: u64) -> Vec<Plain> {
    let frame = |n: u64| Plain {
        timestamp: 800 + 8 * n,
        validity: vec![1, u32::from(n != 2)],
        annotations: Annotations::default(),
        payload: [n as f32; 32].iter().flat_map(|value| value.to_le_bytes()).collect(),
    };
    (0..count).map(frame).collect()
}

/// Diagnostics of the block.
fn rejections(block: &Python) -> Vec<Rejection> {
    block.outputs(&[port()]).unwrap_err()
}

/// Runs the block by hand: a started harness with its environment.
struct Driven {
    harness: Harness,
    env: Env,
    /// A fault that `next` has not returned yet.
    fault: Option<String>,
}

impl Driven {
    fn new(block: &Python) -> Self {
        let env = Env::detached("block");
        let configured = Configured::new(block.clone(), &[port()]).unwrap();
        let built: Box<dyn Block> = Box::new(super::Cpu::new(super::task(&configured), &env));
        let mut harness = Harness::new(built, &configured.ports, 4).unwrap();
        Harness::block_on(harness.start()).unwrap();
        Self { harness, env, fault: None }
    }

    fn send(&mut self, plain: &Plain) {
        let sent = self.harness.send(0, |frame| {
            let (header, payload) = frame.parts_mut::<u8>().unwrap();
            header.timestamp = plain.timestamp;
            header.validity.clone_from(&plain.validity);
            payload.copy_from_slice(&plain.payload);
        });
        assert!(sent);
    }

    /// Calls `work` until a frame or a fault comes; the frames that were pushed before a fault come first.
    fn next(&mut self) -> Result<f32, String> {
        let began = Instant::now();
        loop {
            if let Some(frame) = self.harness.receive(0) {
                return Ok(frame.as_slice::<f32>().unwrap()[0]);
            }
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
            match Harness::block_on(self.harness.step()) {
                Ok(Next::Finished) => self.fault = Some("finished".to_owned()),
                Ok(_) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => self.fault = Some(fxgraph::error::with_causes(&error)),
            }
            assert!(began.elapsed() < Duration::from_mins(1), "no frame");
        }
    }

    fn count(&self, name: &str) -> u64 {
        count(&self.env.counters, name)
    }
}

fn count(counters: &Counters, name: &str) -> u64 {
    counters.list().iter().find(|named| named.name == name).unwrap().counter.get()
}

#[test]
fn work_fills_frames_with_named_axes_and_passes_validity_on() {
    if !has_numpy() {
        return;
    }
    let body = "scale: float = 2\n\
        def start(self, inputs, output):\n    \
        assert inputs[0]['channel'] == 4 and output.axes == inputs[0].axes\n\
        def work(self, frame, out):\n    \
        assert frame.axes == ('channel', 'sample') and frame.axis('sample') == 1\n    \
        assert frame.validity.shape == (2,) and not frame.data.flags.writeable\n    \
        np.multiply(frame.data, self.scale, out=out.data)\n    \
        out.data[1, :] = frame.timestamp + frame.sequence";
    let out =
        chain::drive(&block(body, json!({"values": {"scale": 3}})), &[port()], vec![frames(6)]);
    assert_eq!(out.frames.len(), 6);
    for (n, frame) in out.frames.iter().enumerate() {
        assert_eq!(frame.timestamp, 800 + 8 * n as u64);
        assert_eq!(frame.validity, [1, u32::from(n != 2)]);
        let values = frame.values::<f32>();
        assert_eq!(values[..8], [3.0 * n as f32; 8]);
        assert_eq!(values[8..16], [800.0 + 9.0 * n as f32; 8]);
    }
    assert_eq!((out.count("frames_computed"), out.count("frames_dropped")), (6, 0));
    // The pools of the harness are not in shared memory.
    assert_eq!(out.count("frames_copied"), 12);
}

#[test]
fn time_of_the_process_is_busy_time_of_the_block() {
    if !has_numpy() {
        return;
    }
    let body = "def work(self, frame, out):\n    \
        import time\n    \
        time.sleep(0.02)\n    \
        out.data[...] = frame.data";
    let out = chain::drive(&block(body, json!({})), &[port()], vec![frames(6)]);
    assert_eq!(out.frames.len(), 6);
    let times = out.counters.threads().times();
    let process = times.iter().find(|time| time.name == "process").unwrap();
    assert!(process.busy >= Duration::from_millis(6 * 20), "{times:?}");
}

#[test]
fn returned_array_is_copied_and_none_drops_the_frame() {
    if !has_numpy() {
        return;
    }
    let body = "def ports(self, inputs):\n    \
        return Port('f32', (('channel', 4),), 16, inputs[0].adc_sample_rate_hz, (('channel', 4),), 9)\n\
        def work(self, frame):\n    \
        if frame.timestamp % 16:\n        \
        return None\n    \
        return frame.data.mean(axis=1)";
    let out = chain::drive(&block(body, json!({})), &[port()], vec![frames(6)]);
    let means: Vec<_> =
        out.frames.iter().map(|frame| (frame.timestamp, frame.values::<f32>())).collect();
    assert_eq!(means, [(800, vec![0.0; 4]), (816, vec![2.0; 4]), (832, vec![4.0; 4])]);
    // Other units: complete if the whole input is.
    assert_eq!(out.frames[0].validity, [9; 4]);
    assert_eq!(out.frames[1].validity, [0; 4]);
    assert_eq!((out.count("frames_computed"), out.count("frames_dropped")), (3, 3));
    assert_eq!(out.port.clock.sync_time.to_unix_f64(), 1e9);
}

#[test]
fn block_without_output_reads_every_frame() {
    if !has_numpy() {
        return;
    }
    let body = "seen: int = 0\n\
        def ports(self, inputs):\n    \
        return None\n\
        def work(self, frame):\n    \
        self.seen += 1\n\
        def finish(self):\n    \
        assert self.seen == 5";
    let out = chain::drive(&block(body, json!({})), &[port()], vec![frames(5)]);
    assert_eq!(out.count("frames_computed"), 5);
}

#[test]
fn exception_is_a_fault_with_the_lines_of_the_author_and_the_block_goes_on() {
    if !has_numpy() {
        return;
    }
    let body = "def work(self, frame, out):\n    \
        self.inner(frame, out)\n\
        def inner(self, frame, out):\n    \
        if frame.timestamp == 808:\n        \
        raise ValueError('bad frame')\n    \
        out.data[...] = frame.data";
    let mut driven = Driven::new(&block(body, json!({})));
    for frame in frames(4) {
        driven.send(&frame);
    }
    assert_eq!(driven.next(), Ok(0.0));
    let fault = driven.next().unwrap_err();
    assert!(
        fault.starts_with("`work` of `B` failed (<code>, line 13): ValueError: bad frame: \n"),
        "{fault}"
    );
    assert!(
        fault.contains("self.inner(frame, out)") && fault.contains("raise ValueError('bad frame')"),
        "{fault}"
    );
    assert!(!fault.contains("fxgraph_runner"), "{fault}");
    assert_eq!((driven.next(), driven.next()), (Ok(2.0), Ok(3.0)));
    assert_eq!((driven.count("frames_dropped_at_faults"), driven.count("process_starts")), (1, 1));
}

#[test]
fn long_exceptions_of_other_alphabets_and_timestamps_out_of_range_keep_the_process() {
    if !has_numpy() {
        return;
    }
    let body = "def work(self, frame, out):\n    \
        n = (frame.timestamp - 800) // 8\n    \
        if n == 0: raise ValueError('\\u6e2c' * 20000)\n    \
        if n == 1: raise ValueError('\\x01\\ud800\"' * 20000)\n    \
        if n == 2: raise ValueError('\\U0001f52d' * 20000)\n    \
        if n == 3: out.timestamp = -5\n    \
        if n == 4: out.timestamp = 2 ** 62 + 1\n    \
        if n == 5: out.timestamp = 2 ** 62\n    \
        out.data[...] = frame.data";
    let mut driven = Driven::new(&block(body, json!({})));
    let mut next = |frame: &Plain| {
        driven.send(frame);
        driven.next()
    };
    let frames = frames(6);
    for (frame, character) in frames.iter().zip(['\u{6e2c}', '\u{fffd}', '\u{1f52d}']) {
        let fault = next(frame).unwrap_err();
        assert!(fault.contains("ValueError: ") && fault.contains(character), "{fault}");
        assert!(fault.len() < 20_000, "{}", fault.len());
    }
    for (frame, got) in [(&frames[3], "-5"), (&frames[4], "4611686018427387905")] {
        let fault = next(frame).unwrap_err();
        let expected = format!("`out.timestamp` must be between 0 and 2^62, got {got}");
        assert!(fault.contains(&expected), "{fault}");
    }
    assert_eq!(next(&frames[5]), Ok(5.0));
    assert_eq!((driven.count("frames_dropped_at_faults"), driven.count("process_starts")), (5, 1));
}

#[test]
fn rules_of_frames_are_enforced_with_advice() {
    if !has_numpy() {
        return;
    }
    let cases = [
        ("frame.data[...] = 0", "assignment destination is read-only"),
        ("self.kept = frame.data[0]", "keep a copy, `frame.data.copy()`"),
        ("self.kept = frame.data", "keep a copy"),
        ("self.kept = out.data", "keep a copy"),
        ("self.kept = frame", "keep a copy"),
        ("self.kept = frame.validity[:1]", "keep a copy"),
        ("return frame.data", "must return None or DROP, got ndarray"),
        ("out.data[...] = frame.data[:, ::2]", "could not broadcast"),
        (
            "sys.exit(3)",
            "`work` of `B` failed (<code>, line 10): SystemExit: 3: a block must not call `sys.exit`",
        ),
        ("out.data = frame.data * 2", "AttributeError: `data` is memory of the flowgraph: fill it"),
        ("out.validity = frame.validity", "fill it in place, `out.validity[...] = x`"),
        ("out.timestamp = 808.0", "`out.timestamp` must be an integer, got 808.0 (float)"),
        ("out.timestamp = '808'", "`out.timestamp` must be an integer, got '808' (str)"),
        ("out.timestamp = True", "`out.timestamp` must be an integer, got True (bool)"),
    ];
    for (line, expected) in cases {
        let mut driven =
            Driven::new(&block(&format!("def work(self, frame, out):\n    {line}"), json!({})));
        driven.send(&frames(1)[0]);
        let fault = driven.next().unwrap_err();
        assert!(fault.contains(expected), "{line}: {fault}");
    }
    let returned = [
        (
            "return frame.data[0]",
            "must return the shape (4, 8) of f32 [channel 4][sample 8], got (8,)",
        ),
        ("return frame.data.astype('c8')", "must return float32, got complex64: use `astype`"),
    ];
    for (line, expected) in returned {
        let mut driven =
            Driven::new(&block(&format!("def work(self, frame):\n    {line}"), json!({})));
        driven.send(&frames(1)[0]);
        let fault = driven.next().unwrap_err();
        assert!(fault.contains(expected), "{line}: {fault}");
    }
}

#[test]
fn data_is_changed_in_place_and_integers_of_numpy_are_timestamps() {
    if !has_numpy() {
        return;
    }
    let body = "def work(self, frame, out):\n    \
        out.data[...] = frame.data\n    \
        out.data += 1\n    \
        out.validity |= 1\n    \
        out.timestamp = np.int64(frame.timestamp) * 2";
    let out = chain::drive(&block(body, json!({})), &[port()], vec![frames(4)]);
    let found: Vec<_> = out
        .frames
        .iter()
        .map(|f| (f.timestamp, f.validity.clone(), f.values::<f32>()[0]))
        .collect();
    let expected = |n: u64| (1600 + 16 * n, vec![1, 1], n as f32 + 1.0);
    assert_eq!(found, (0..4).map(expected).collect::<Vec<_>>());
}

#[test]
fn timestamp_that_goes_back_is_a_fault_unless_that_of_the_input_does() {
    if !has_numpy() {
        return;
    }
    let body = "def work(self, frame, out):\n    \
        out.data[...] = frame.data\n    \
        if frame.timestamp == 808: out.timestamp = 799";
    let mut driven = Driven::new(&block(body, json!({})));
    let frames = frames(4);
    for frame in &frames[..3] {
        driven.send(frame);
    }
    assert_eq!(driven.next(), Ok(0.0));
    let fault = driven.next().unwrap_err();
    assert!(fault.contains("`out.timestamp` must not go back, got 799 after 800"), "{fault}");
    assert_eq!(driven.next(), Ok(2.0));
    // The stream itself begins again.
    driven.send(&Plain { timestamp: 8, ..frames[3].clone() });
    assert_eq!(driven.next(), Ok(3.0));
    assert_eq!(driven.count("process_starts"), 1);
}

#[test]
fn answer_of_a_forked_child_is_a_fault_and_no_frame() {
    if !has_numpy() {
        return;
    }
    let body = "def work(self, frame, out):\n    \
        if frame.timestamp == 808: os.fork()\n    \
        out.data[...] = frame.data";
    let mut driven = Driven::new(&block(body, json!({})));
    for frame in &frames(4) {
        driven.send(frame);
    }
    let mut values = Vec::new();
    let fault = loop {
        match driven.next() {
            Ok(value) => values.push(value),
            Err(fault) => break fault,
        }
    };
    assert!(
        fault.contains("the process must answer itself, got an answer of its child"),
        "{fault}"
    );
    assert!([0.0, 1.0, 2.0, 3.0].starts_with(&values), "{values:?}");
}

#[test]
fn answer_with_the_number_of_an_earlier_job_is_a_fault() {
    if !has_numpy() {
        return;
    }
    // The process answers job 0 once more while job 2 is the next one, which has the same place in memory.
    let body = "def work(self, frame, out):\n    \
        import gc, socket, struct\n    \
        out.data[...] = frame.data\n    \
        if frame.timestamp == 816:\n        \
        host = next(o for o in gc.get_objects() if isinstance(o, socket.socket))\n        \
        host.send(struct.pack('<BBHIQQ', 68, 0, 0, 0, 0, 800))";
    let mut driven = Driven::new(&block(body, json!({})));
    for frame in &frames(4) {
        driven.send(frame);
    }
    assert_eq!((driven.next(), driven.next()), (Ok(0.0), Ok(1.0)));
    let fault = driven.next().unwrap_err();
    assert!(fault.contains("the process answered job 0, expected job 2"), "{fault}");
}

#[test]
fn process_that_cannot_run_is_not_hung() {
    if !has_numpy() {
        return;
    }
    let kind = block("def work(self, frame, out):\n    pass", json!({}));
    let program = super::program::Program::read(&kind).unwrap();
    let values = serde_json::Map::new();
    let mut process =
        Process::start(&program, &values, &[port()], None, Box::new(|_, _| {})).unwrap();
    let pid = process.killer().pid().unwrap();
    // As by a frozen virtual machine, for longer than the limit.
    kill_process(pid, Signal::STOP).unwrap();
    let limit = Duration::from_secs(3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(limit + Duration::from_secs(1));
            kill_process(pid, Signal::CONT).unwrap();
        });
        let hello = process.hear(limit).map_err(|fault| fault.error(&program).to_string());
        assert!(hello.is_ok_and(|hello| hello.get("hello").is_some()));
    });
}

#[test]
fn cyclic_garbage_with_a_view_is_not_a_kept_view() {
    if !has_numpy() {
        return;
    }
    let body = "def work(self, frame, out):\n    \
        cycle = [frame.data[0]]\n    \
        cycle.append(cycle)\n    \
        out.data[...] = frame.data";
    let out = chain::drive(&block(body, json!({})), &[port()], vec![frames(3)]);
    assert_eq!(out.frames.len(), 3);
}

#[test]
fn killed_and_hung_processes_are_faults_and_the_next_frame_starts_another() {
    if !has_numpy() {
        return;
    }
    let body = "def work(self, frame, out):\n    \
        if frame.timestamp == 800:\n        \
        self.deep()\n    \
        out.data[...] = frame.data\n\
        def deep(self):\n    \
        LINE";
    let cases = [
        ("os.kill(os.getpid(), 9)", "the process of `B` ended: signal: 9 (SIGKILL)", ""),
        (
            "ctypes.string_at(0)",
            "the process of `B` ended: signal: 11 (SIGSEGV)",
            "line 14 in deep",
        ),
        (
            "time.sleep(60)",
            "must answer within `timeout_seconds`, got no answer for 0.500 s",
            "line 14 in deep",
        ),
        (
            "while True: pass",
            "must answer within `timeout_seconds`, got no answer for 0.500 s",
            "line 14 in deep",
        ),
    ];
    for (line, expected, stack) in cases {
        let parameters = json!({"timeout_seconds": 0.5});
        let mut driven = Driven::new(&block(&body.replace("LINE", line), parameters));
        for frame in &frames(2) {
            driven.send(frame);
        }
        let fault = driven.next().unwrap_err();
        assert!(fault.contains(expected) && fault.contains(stack), "{line}: {fault}");
        let lost = driven.count("frames_dropped_at_faults");
        assert!((1..=2).contains(&lost), "{lost}");
        driven.send(&frames(4)[3]);
        while driven.next().unwrap() < 3.0 {}
        assert_eq!(driven.count("process_starts"), 2);
    }
}

#[test]
fn memory_beyond_the_limit_is_an_exception() {
    if !has_numpy() {
        return;
    }
    let body = "def work(self, frame, out):\n    self.big = np.ones(1 << 30, 'u1')";
    let mut driven = Driven::new(&block(body, json!({"memory_limit_bytes": 600_000_000})));
    driven.send(&frames(1)[0]);
    let fault = driven.next().unwrap_err();
    assert!(fault.contains("MemoryError") && fault.contains("self.big = "), "{fault}");
}

#[test]
fn wrong_programs_are_rejected_before_the_start() {
    if !has_numpy() {
        return;
    }
    let work = "def work(self, frame, out):\n    pass";
    let sigma = format!("sigma: Annotated[float, Range(1, 20), live] = 5.0\nname: str\n{work}");
    let sigma = sigma.replace("name: str\n", "");
    let check = |block: &Python, at: At, expected: &str| {
        let all = rejections(block);
        assert_eq!(all.len(), 1);
        assert!(all[0].message.contains(expected), "{}", all[0].message);
        assert_eq!(all[0].at, at, "{}", all[0].message);
        all[0].help.clone().unwrap_or_default()
    };
    let code = || At::Parameter("code");
    let help = check(
        &block("def work(:\n    pass", json!({})),
        code(),
        "`<code>` cannot be imported (<code>, line 9): SyntaxError: ",
    );
    assert_eq!(help, "correct line 9: `def work(:`");
    let none = "`<code>` has no class `Flager`; it has `B`";
    check(&block(work, json!({"class": "Flager"})), At::Parameter("class"), none);
    let value = |name: &str| At::Value(format!("values.{name}"));
    let unknown = block(&sigma, json!({"values": {"sigmas": 3}}));
    check(&unknown, value("sigmas"), "`B` has no parameter `sigmas`; it has `sigma`");
    let outside = block(&sigma, json!({"values": {"sigma": 50}}));
    check(&outside, value("sigma"), "`sigma` must be between 1 and 20, got 50");
    let text = block(&sigma, json!({"values": {"sigma": "5"}}));
    check(&text, value("sigma"), "`sigma` must be float, got '5'");
    let missing = block(&format!("sigma: float\n{work}"), json!({}));
    check(&missing, At::Parameter("values"), "`B` needs the parameter `sigma`");
    let fails =
        format!("{work}\ndef ports(self, inputs):\n    return inputs[0].flagged_per('beam')");
    check(
        &block(&fails, json!({})),
        code(),
        "`ports` of `B` failed (<code>, line 12): KeyError: 'beam'",
    );
    let axis =
        format!("{work}\ndef ports(self, inputs):\n    return Port('f32', (('time', 4),), 8, 1e6)");
    check(&block(&axis, json!({})), code(), "an axis must have one of the names");
    let huge = format!(
        "{work}\ndef ports(self, inputs):\n    return Port('f32', (('sample', 1 << 40),), 8, 1e6)"
    );
    check(&block(&huge, json!({})), code(), "a frame must have at most");
    let dies = format!("{work}\ndef ports(self, inputs):\n    os.abort()");
    check(&block(&dies, json!({})), code(), "the process of `B` ended: signal: 6");
    check(
        &block("pass", json!({})),
        At::Parameter("class"),
        "needs a method `work(self, frame, out)`",
    );
    let nowhere = block(work, json!({"python": "/nowhere/python"}));
    check(&nowhere, At::Parameter("python"), "cannot start `/nowhere/python`");
    let other = block(work, json!({"python": "cat"}));
    check(&other, code(), "the process of `B` ended: exit status: 1");
    let both = block(work, json!({"file": "x.py"}));
    check(&both, code(), "`file` and `code` must not be given together");
    let file: Python = chain::kind(json!({"class": "B", "file": "/nowhere/x.py"}));
    check(&file, At::Parameter("file"), "cannot read `/nowhere/x.py`");
}

#[test]
fn descriptors_and_processes_are_gone_after_the_block() {
    if !has_numpy() {
        return;
    }
    let body = "def work(self, frame, out):\n    os.fork()\n    time.sleep(60)";
    let block = block(body, json!({}));
    let children = || {
        let own = std::process::id().to_string();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let parents =
            all.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        let of_this = parents.filter(|stat| {
            let after = stat.rsplit(')').next().unwrap_or_default();
            after.split_whitespace().nth(1) == Some(own.as_str()) && stat.contains("python")
        });
        of_this.count()
    };
    // Other tests run at the same time: only descriptors of memory and of a block's log would accumulate.
    let memory = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.filter(|target| target.to_string_lossy().contains("memfd:fxgraph")).count()
    };
    let (before, children_before) = (memory(), children());
    for _ in 0..8 {
        let mut driven = Driven::new(&block);
        driven.send(&frames(1)[0]);
        Harness::block_on(driven.harness.step()).unwrap();
        drop(driven);
    }
    // Tests beside this one have at most a few.
    assert!(memory() < before + 16, "{before} {}", memory());
    assert!(children() < children_before + 8);
}

#[test]
fn process_answers_frames_in_gpu_memory_once_the_gpu_has_finished_them() {
    let Some(python) = interpreter().filter(|_| has_numpy()) else { return };
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/util/python");
    let tested = std::process::Command::new(python)
        .args(["-B", "gpu_test.py", "../../../python/src/fxgraph/block.py", "gpu.py", "runner.py"])
        .current_dir(directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success() && tested.stdout == b"ok\n", "{said}");
}
