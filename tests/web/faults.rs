//! Faults in a running flowgraph: events, metrics, and recovery.

use super::http::Program;
use super::{patch, stop};
use std::time::Duration;

/// Signal chain with a `fault_injector`.
fn drilled(policy: &str) -> String {
    format!(
        "flowgraph: drilled
blocks:
  source:
    kind: digitiser_simulator
    parameters: {{adc_sample_rate_hz: 1000000, samples_per_frame: 8192, paced: true, signals: wgn(0.1)}}
  drill: {{kind: fault_injector, input: source.pol0, on_fault: {policy}, parameters: {{stall_seconds: 0.3}}}}
  f: {{kind: pfb, input: drill, parameters: {{channels: 16, spectra_per_frame: 64}}}}
  end: {{kind: null_sink, input: source.pol1}}
  sink: {{kind: null_sink, input: f}}
"
    )
}

fn inject(program: &Program, fault: &str) {
    let answer =
        patch(program, "/api/v1/blocks", &format!("{{\"drill\": {{\"fault\": \"{fault}\"}}}}"));
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Waits for an event, and returns its text.
fn told(program: &Program, kind: &str) -> String {
    loop {
        let events = program.get("/api/v1/events").json();
        let events = events["events"].as_array().unwrap();
        if let Some(event) = events.iter().find(|event| event["kind"] == kind) {
            assert_eq!(event["block"], "drill");
            return event["text"].as_str().unwrap().to_owned();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn figure(program: &Program, name: &str) -> f64 {
    let metrics = program.get("/metrics").body;
    let of_drill =
        |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains("block=\"drill\"");
    let line = metrics.lines().find(of_drill).unwrap_or_else(|| panic!("no {name}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

fn sink_frames(program: &Program) -> u64 {
    program.get("/api/v1/blocks/sink").json()["totals"]["frames_in"].as_u64().unwrap()
}

/// Waits until new frames arrive at the end of the chain.
fn flow(program: &Program) {
    let before = sink_frames(program);
    while sink_frames(program) < before + 5 {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn survived_fault_is_reported_with_its_cause() {
    for (policy, fault, event, verb) in [
        ("restart", "error", "restarted", "failed"),
        ("restart", "panic", "restarted", "panicked"),
        ("skip", "error", "skipped", "failed"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let program = Program::running(directory.path(), &drilled(policy), &[]);
        inject(&program, fault);
        let cause = told(&program, event);
        let expected = format!("{verb}: injected fault at the frame with timestamp ");
        assert!(cause.starts_with(&expected), "{cause}");
        let block = program.get("/api/v1/blocks/drill").json();
        assert_eq!((&block["state"], &block["totals"]["faults"]), (&"running".into(), &1.into()));
        let restarts = u64::from(policy == "restart");
        assert_eq!(block["totals"]["restarts"], restarts);
        assert!(cause.ends_with(block["fault"]["cause"].as_str().unwrap()));
        assert_eq!(block["fault"]["is_panic"], fault == "panic");
        assert!((figure(&program, "fxgraph_block_faults_total") - 1.0).abs() < 1e-9);
        let told = figure(&program, "fxgraph_block_restarts_total");
        assert!((told - restarts as f64).abs() < 1e-9);
        flow(&program);
        assert_eq!(program.post("/api/v1/flowgraph/stop").status, 202);
        let output = program.end();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(said.contains(&format!("`drill` {cause}; {event}")), "{said}");
    }
}

#[test]
fn patch_after_a_survived_fault_applies_at_its_timestamp() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), &drilled("restart"), &[]);
    let restarted = || {
        let events = program.get("/api/v1/events").json();
        let events = events["events"].as_array().unwrap().clone();
        let told = events.into_iter().filter(|event| event["kind"] == "restarted");
        told.map(|event| event["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut passed = 0;
    // The block survives this many faults within a minute.
    for round in 0..5 {
        let answer = patch(&program, "/api/v1/blocks", r#"{"drill": {"fault": "error"}}"#);
        assert_eq!(answer.status, 200, "{answer:?}");
        let at = answer.json()["effective_timestamp"].as_u64().unwrap();
        assert!(round == 0 || at > passed, "{at} is not after the fault at {passed}");
        let mut told = restarted();
        while told.len() <= round {
            // The server limits the rate of requests.
            std::thread::sleep(Duration::from_millis(20));
            told = restarted();
        }
        passed = told[round].rsplit_once(' ').unwrap().1.parse().unwrap();
        assert!(passed >= at, "the fault at {passed} came before {at}");
    }
    stop(program);
}

#[test]
fn fatal_fault_ends_the_flowgraph_with_its_cause() {
    let directory = tempfile::tempdir().unwrap();
    // With `--hold` the server still responds after the end.
    let program = Program::start(directory.path(), &drilled("stop"), &["--hold"]);
    let start = || assert_eq!(program.post("/api/v1/flowgraph/start").status, 202);
    start();
    program.wait("running");
    flow(&program);
    inject(&program, "error");
    let cause = told(&program, "fault");
    program.wait("failed");
    let flowgraph = program.get("/api/v1/flowgraph").json();
    assert_eq!(flowgraph["faults"][0]["block"], "drill");
    assert!(cause.ends_with(flowgraph["faults"][0]["cause"].as_str().unwrap()));
    assert_eq!(program.get("/api/v1/blocks/drill").json()["state"], "failed");
    assert_eq!(program.get("/api/v1/blocks/f").json()["state"], "finished", "it drained");
    let failed = "fxgraph_flowgraph_state{flowgraph=\"drilled\",state=\"failed\"} 1";
    assert!(program.get("/metrics").body.contains(failed));
    // A live update is rejected after the end of the run.
    patch(&program, "/api/v1/blocks", r#"{"drill": {"fault": "none"}}"#).problem(409);
    program.signal("-INT");
    let output = program.end();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&format!("`drill` {cause}")), "{said}");
}

#[test]
fn stall_is_reported_at_its_block_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), &drilled("stop"), &[]);
    inject(&program, "stall");
    let injected = || figure(&program, "fxgraph_faults_injected_total");
    while injected() < 1.0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    flow(&program);
    assert!(figure(&program, "fxgraph_block_faults_total").abs() < 1e-9, "a stall is not a fault");
    stop(program);
}
