//! A running flowgraph over HTTP.

mod answers;
mod bulk;
mod faults;
mod guards;
mod lifecycle;
mod limits;
mod long_frames;
mod metrics;
mod outputs;
mod recorded;
mod shadows;
mod updates;

use crate::support::{http, needs, python};
use http::{Program, connect};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

const ENDLESS: &str = "flowgraph: endless
doc: Frames from nowhere to nowhere.
parameters: {len: {default: 65536, doc: samples of a frame}}
blocks:
  source:
    kind: null_source
    parameters: {dtype: i8, axes: [{name: sample, len: '${len}'}], samples_per_frame: '${len}'}
  sink: {kind: null_sink, input: source}
";

/// Stops the program over HTTP, and returns its results.
fn stop(program: Program) -> serde_json::Value {
    let answer = program.post("/api/v1/flowgraph/stop");
    assert_eq!(answer.status, 202);
    let output = program.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn running_flowgraph_is_described_and_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), ENDLESS, &["--set", "len=4096"]);
    // The first rates come after a second.
    let flowgraph = loop {
        let flowgraph = program.get("/api/v1/flowgraph").json();
        if !flowgraph["graph"]["edges"][0]["frames_per_second"].is_null() {
            break flowgraph;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(flowgraph["name"], "endless");
    assert_eq!(flowgraph["state"], "running");
    assert_eq!(flowgraph["parameters"][0]["value"], 4096);
    assert!(flowgraph["resolved_yaml"].as_str().unwrap().contains("len: 4096"));
    assert!(flowgraph["written_yaml"].is_null(), "the text says another length");
    let edge = &flowgraph["graph"]["edges"][0];
    assert_eq!((&edge["from"], &edge["to"]), (&"source".into(), &"sink".into()));
    assert!(flowgraph["limited_by"]["text"].as_str().unwrap().starts_with("limited by "));
    assert!(flowgraph["deadline_margin_fraction"].as_f64().unwrap() < 1.0);
    let rate = edge["frames_per_second"].as_f64().unwrap();
    assert!(rate > 0.0);
    // The conversion to text may change the last digit.
    let frame_bytes = edge["bytes_per_second"].as_f64().unwrap() / rate;
    assert!((frame_bytes - 4096.0).abs() < 1e-6, "{frame_bytes}");

    let blocks = program.get("/api/v1/blocks").json();
    assert_eq!(blocks[0]["name"], "source");
    assert!(blocks[1]["totals"]["frames_in"].as_u64().unwrap() > 0);
    let sink = program.get("/api/v1/blocks/sink").json();
    assert_eq!(sink["inputs"][0]["from"], "source.output");
    assert_eq!(sink["inputs"][0]["carries"]["frame_bytes"], 4096);
    assert_eq!(sink["counters"][0]["name"], "frames_dropped_here");
    assert!(sink["latency"]["frames"].as_u64().unwrap() > 0);
    assert!(sink["latency"]["mean_seconds"].as_f64().unwrap() < 10.0);
    assert!(sink["newest_timestamp"].as_u64().unwrap() > 0);
    assert_eq!(sink["parameters_schema"]["type"], "object");
    let kinds = program.get("/api/v1/kinds").json();
    assert!(kinds.as_array().unwrap().iter().any(|kind| kind["kind"] == "null_sink"));
    let kind = program.get("/api/v1/kinds/null_source").json();
    assert!(kind["parameters"]["properties"]["samples_per_frame"].is_object());
    assert_eq!(program.get("/api/v1/health").json()["state"], "running");
    let pages = [
        ("/", "<!doctype html>"),
        ("/main.js", "import"),
        ("/style/base.css", "body"),
        ("/docs/", "fxgraph manual"),
        ("/docs/tutorials/first_light.html", "First light"),
        ("/docs/api/", "swagger-ui"),
        ("/docs/api/swagger-initializer.js", "/api/v1/openapi.json"),
    ];
    for (page, word) in pages {
        assert!(program.get(page).body.contains(word), "{page}");
    }

    let result = stop(program);
    assert_eq!(result["blocks"][0]["frames_out"], result["blocks"][1]["frames_in"], "it drained");
}

#[test]
fn invalid_requests_are_answered_with_problems() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), ENDLESS, &[]);
    let wrong = program.get("/api/v1/blocks/sinc");
    assert_eq!(wrong.problem(404), "there is no block `sinc`");
    assert_eq!(wrong.json()["help"][0], "did you mean `sink`?");
    let wrong = program.get("/api/v1/kinds/nul_sink");
    assert_eq!(wrong.json()["help"][0], "did you mean `null_sink`?");
    assert_eq!(program.get("/api/v2").problem(404), "there is nothing at `/api/v2`");
    let wrong = program.post("/api/v1/kinds");
    assert_eq!(wrong.problem(405), "`/api/v1/kinds` does not support `POST`");
    assert_eq!(wrong.header("allow"), Some("GET,HEAD"));
    program.get("/api/v1/flowgraph/stop").problem(405);
    for number in ["x", "-1", "", "1e3", "99999999999999999999"] {
        let wrong = program.get(&format!("/api/v1/events?since={number}"));
        assert_eq!(wrong.problem(400), "`since` must be the number of an event");
    }
    program.get("/api/v1/blocks/%ff").problem(400);
    assert_eq!(program.get("/api/v1/health").json()["state"], "running", "GET changes nothing");
    stop(program);
}

#[test]
fn events_are_listed_and_followed_to_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), ENDLESS, &[]);
    let mut stream = connect(program.address);
    let head = format!(
        "GET /api/v1/events/stream HTTP/1.1\r\nHost: {}\r\nLast-Event-ID: 1\r\n\r\n",
        program.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
    assert!(lines.any(|line| line == "content-type: text/event-stream"));
    program.wait("running");
    let events = program.get("/api/v1/events").json();
    assert_eq!(events["events"][0]["kind"], "started");
    assert_eq!(program.get("/api/v1/events?since=1").json()["events"], serde_json::json!([]));
    stop(program);
    // The stream starts after the last event that the client knows, and ends with the run.
    let told: Vec<String> = lines.collect();
    let ids: Vec<&str> = told.iter().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, ["2", "3"]);
    let kinds = ["stopping", "ended"].map(|kind| format!("\"kind\":\"{kind}\""));
    let data: Vec<&String> = told.iter().filter(|line| line.starts_with("data: ")).collect();
    assert!(data.iter().zip(&kinds).all(|(data, kind)| data.contains(kind)), "{data:?}");
}

#[test]
fn abort_sets_the_exit_status() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), ENDLESS, &[]);
    assert_eq!(program.post("/api/v1/flowgraph/abort").status, 202);
    assert_eq!(program.end().status.code(), Some(130));
}

#[test]
fn address_in_use_is_an_error_before_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "{ENDLESS}  file: {{kind: file_sink, input: source, parameters: {{path: out.npy}}}}\n"
    );
    std::fs::write(directory.path().join("flowgraph.yaml"), text).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(["run", "flowgraph.yaml", "--listen", &address])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "error: nothing was started: cannot listen on {address}: the address is in use; \
         port 0 selects a free port\n"
    );
    assert_eq!(said, expected);
    assert!(!directory.path().join("out.npy").exists());
}

/// `PATCH` of JSON.
fn patch(program: &Program, path: &str, body: &str) -> http::Response {
    let json = [("Content-Type", "application/json")];
    http::request(program.address, "PATCH", path, &json, body.as_bytes())
}

const TUNABLE: &str = "flowgraph: tunable
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000000, signals: 'cw(0.1, 1000)', period_samples: 65536, samples_per_frame: 4096}
  a: {kind: null_sink, input: source.pol0}
  b: {kind: null_sink, input: source.pol1}
";

#[test]
fn live_parameters_change_at_a_timestamp_all_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), TUNABLE, &[]);
    let signals = r#"{"source": {"signals": "cw(0.3, 2000)"}}"#;
    let at = 1_u64 << 40;
    let answer = patch(&program, &format!("/api/v1/blocks?at={at}"), signals);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["effective_timestamp"], at);
    let flowgraph = program.get("/api/v1/flowgraph").json();
    assert_eq!(flowgraph["steady_state_timestamp"], at);
    assert!(answer.json()["seconds_ahead"].as_f64().is_none_or(|ahead| ahead > 86_400.0));
    // The values in force are stated, and scheduled ones are listed.
    assert_ne!(flowgraph["config_id"], answer.json()["config_id"]);
    assert!(flowgraph["resolved_yaml"].as_str().unwrap().contains("cw(0.1, 1000)"));
    let scheduled = serde_json::json!(
        [{"block": "source", "parameter": "signals", "value": "cw(0.3, 2000)", "timestamp": at}]
    );
    assert_eq!(flowgraph["scheduled"], scheduled);
    let block = program.get("/api/v1/blocks/source").json();
    assert_eq!(block["parameters"]["signals"], "cw(0.1, 1000)");

    let wrong = r#"{"source": {"signals": "cw(0.4, 1)"}, "a": {"gain": 2}}"#;
    let rejected = patch(&program, "/api/v1/blocks", wrong);
    rejected.problem(422);
    assert!(rejected.json()["diagnostics"][0]["code"].as_str().unwrap().starts_with('E'));
    let block = program.get("/api/v1/blocks/source").json();
    assert_eq!(block["parameters"]["signals"], "cw(0.1, 1000)", "all or nothing");
    assert_eq!(program.get("/api/v1/flowgraph").json()["scheduled"], scheduled);
    patch(&program, "/api/v1/blocks?at=soon", signals).problem(400);
    patch(&program, "/api/v1/blocks", "source: {}").problem(400);
    let untyped = http::request(program.address, "PATCH", "/api/v1/blocks", &[], b"{}");
    untyped.problem(415);
    stop(program);
}

#[test]
fn block_is_swapped_after_a_dry_run() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), ENDLESS, &[]);
    let path = "/api/v1/blocks/sink";
    let change = r#"{"on_fault": "skip"}"#;
    let policy = || program.get(path).json()["on_fault"].clone();
    let said = patch(&program, &format!("{path}?dry_run=true"), change).json();
    assert_eq!(said["differences"][0]["key"], "on_fault");
    assert_eq!((&said["way"], &said["is_made"]), (&"held".into(), &false.into()));
    assert_eq!(policy(), "stop");
    let made = patch(&program, path, change);
    assert_eq!(made.status, 200, "{made:?}");
    assert_eq!(made.json()["is_made"], true);
    assert_eq!(policy(), "skip");
    patch(&program, path, r#"{"kind": "null_snik"}"#).problem(422);
    patch(&program, "/api/v1/blocks/sonk", change).problem(404);
    let source = r#"{"parameters": {"frames": 5}}"#;
    patch(&program, "/api/v1/blocks/source", source).problem(409);
    let result = stop(program);
    assert_eq!(result["blocks"][0]["frames_out"], result["blocks"][1]["frames_in"]);
}
