//! Recordings of running streams, and their playback.

use crate::support::repository::root;
use crate::support::{http, needs, python};
use http::{Program, Response, request};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs the program and returns its standard output.
fn fxgraph(arguments: &[&str], directory: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    let output = command.args(arguments).current_dir(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Frames, first and last timestamp of a recording; checks that it equals the stream in `other`.
fn replayed(directory: &Path, file: &str, other: Option<&str>) -> Vec<u64> {
    let script = root().join("tests/peers/replayed.py");
    let mut command = Command::new(python::python());
    let output = command.arg(script).arg(file).args(other).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Names of the arrays and archives in a directory that start with `prefix`.
fn named(directory: &Path, prefix: &str) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with(prefix) && !name.contains(".json")).collect()
}

const REPLAY: &str = "flowgraph: replay
blocks:
  band: {kind: file_source, parameters: {path: FILE}}
  again: {kind: file_sink, input: band, parameters: {path: out/again.npz}}
  correlator: {kind: correlator, input: band, parameters: {spectra_per_dump: 1024}}
  file: {kind: file_sink, input: correlator, parameters: {path: out/replayed.npz}}
";

#[test]
fn recorded_edge_plays_bit_identical_and_correlates_to_the_same_dumps() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let flowgraphs = root().join("flowgraphs");
    fs::create_dir(directory.join("include")).unwrap();
    for entry in fs::read_dir(flowgraphs.join("include")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), directory.join("include").join(entry.file_name())).unwrap();
    }
    let array = fs::read_to_string(flowgraphs.join("04_array.yaml")).unwrap();
    let recorder = "\nblocks:\n  recorder: {kind: recorder, input: 'band[0]', parameters: \
                    {path: 'out/band_{timestamp}.npz'}}\n  digitiser:";
    let with = array.replace("\nblocks:\n  digitiser:", recorder);
    assert_ne!(array, with);
    fs::write(directory.join("array.yaml"), with).unwrap();
    fxgraph(&["run", "-q", "array.yaml", "--set", "dumps=2", "--set", "channels=128"], directory);
    let [file] = &named(&directory.join("out"), "band_")[..] else { panic!("one recording") };
    let file = format!("out/{file}");
    // The type of the recording is read from the file alone, before the run.
    fs::remove_file(directory.join(format!("{file}.json"))).unwrap();
    fs::write(directory.join("replay.yaml"), REPLAY.replace("FILE", &file)).unwrap();
    fxgraph(&["validate", "replay.yaml"], directory);
    let plan = fxgraph(&["plan", "replay.yaml"], directory);
    assert!(plan.contains("[antenna 4][channel 64]"), "{plan}");
    fxgraph(&["run", "-q", "replay.yaml"], directory);
    assert!(replayed(directory, &file, Some("out/again.npz"))[0] >= 8);
    let dumps = replayed(directory, "out/array_visibilities_0.npz", Some("out/replayed.npz"));
    assert_eq!(dumps[0], 2);
}

const FAULTY: &str = "flowgraph: faulty
blocks:
  source: {kind: file_source, parameters: {path: damaged.npy}}
  black_box:
    kind: recorder
    input: source
    parameters: {path: 'fault_{timestamp}.npz', before_seconds: 0.1, trigger: {events: {kinds: [fault]}}}
";

#[test]
fn fatal_fault_triggers_a_recording_of_earlier_frames() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let whole = "flowgraph: whole\nblocks:\n  source: {kind: null_source, parameters: {dtype: i16, \
                 axes: [{name: sample, len: 64}], samples_per_frame: 64, adc_sample_rate_hz: 6400, \
                 frames: 200, pattern: random}}\n  sink: {kind: file_sink, input: source, \
                 parameters: {path: damaged.npy}}\n";
    fs::write(directory.join("whole.yaml"), whole).unwrap();
    fxgraph(&["run", "-q", "whole.yaml"], directory);
    // A bit of frame 150.
    let path = directory.join("damaged.npy");
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 50 * 128] ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::write(directory.join("faulty.yaml"), FAULTY).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    let output =
        command.args(["run", "-q", "faulty.yaml"]).current_dir(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("frame 150 of damaged.npy"), "{said}");
    let [file] = &named(directory, "fault_")[..] else { panic!("one recording: {said}") };
    let [frames, first, last] = replayed(directory, file, None)[..] else {
        panic!("three numbers")
    };
    // 100 frames per second; frames still queued for the recorder at the fault are included.
    assert_eq!(last, 149 * 64);
    assert!(frames >= 10 && first <= 140 * 64, "{frames} from {first}");
}

const ENDLESS: &str = "flowgraph: endless
blocks:
  source:
    kind: null_source
    parameters: {dtype: i8, axes: [{name: sample, len: 65536}], samples_per_frame: 65536, pattern: random}
  sink: {kind: null_sink, input: source}
  black_box:
    kind: recorder
    input: source
    parameters: {path: 'box_{timestamp}.npz', before_seconds: 0.0004, after_seconds: 0.0002, trigger: request}
";

fn send(program: &Program, method: &str, path: &str, body: &str) -> Response {
    let headers = [("Content-Type", "application/json")];
    request(program.address, method, path, &headers, body.as_bytes())
}

/// Waits until recorder `name` has made a recording.
fn recording(program: &Program, name: &str) -> Value {
    let began = Instant::now();
    loop {
        let recorder = program.get(&format!("/api/v1/recorders/{name}")).json();
        if !recorder["recordings"][0].is_null() {
            return recorder["recordings"][0].clone();
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{recorder}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn outputs_are_recorded_over_rest_without_drops_in_the_flowgraph() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), ENDLESS, &["--recordings", "kept"]);
    let record = "/api/v1/blocks/source/outputs/output/recordings";
    for hostile in ["../x.npz", "/tmp/x.npz", "a/../../x.npz", ".x.npz", "x\u{0}.npz", "x.sh"] {
        let answer = send(&program, "POST", record, &json!({ "path": hostile }).to_string());
        assert_eq!(answer.status, 422, "{hostile}: {answer:?}");
    }
    send(&program, "POST", record, "{\"before_seconds\": 1e9}").problem(503);
    assert!(
        send(&program, "POST", record, "{\"befor_seconds\": 1}").problem(422).contains("befor")
    );
    send(&program, "POST", "/api/v1/blocks/sink/outputs/output/recordings", "{}").problem(404);
    // About ten frames before, about five after.
    let around = json!({"path": "r.npz", "before_seconds": 0.0004, "after_seconds": 0.0002,
        "trigger": "request"});
    let recorder = send(&program, "POST", record, &around.to_string());
    assert_eq!(recorder.status, 201, "{recorder:?}");
    let name = recorder.json()["name"].as_str().unwrap().to_owned();
    assert_eq!(recorder.json()["output"], "source.output");
    // As many as overlap 0.4 ms.
    while program.get(&format!("/api/v1/recorders/{name}")).json()["frames_kept"].as_u64()
        < Some(11)
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    for name in [name.as_str(), "black_box"] {
        let path = format!("/api/v1/recorders/{name}/trigger");
        assert_eq!(program.post(&path).status, 202);
    }
    let made = recording(&program, &name);
    let path = made["path"].as_str().unwrap();
    assert!(path.ends_with("kept/r.npz"), "{path}");
    let frames = made["frames"].as_u64().unwrap();
    // 0.6 ms at 1.712 GS/s, and the partial frames at both ends; a busy machine may drop some.
    let dropped = made["frames_lost"].as_u64().unwrap();
    assert!((16..=18).contains(&(frames + dropped)), "{made}");
    recording(&program, "black_box");
    let kept = directory.path().join(path);
    let shown = fs::metadata(&kept).unwrap();
    assert!(shown.len() > frames * 65536);
    program.post(&format!("/api/v1/recorders/{name}/stop")).json();
    assert_eq!(program.post(&format!("/api/v1/recorders/{name}/trigger")).status, 409);
    assert_eq!(send(&program, "DELETE", "/api/v1/recorders/black_box", "").status, 409);
    let url = format!("http://{}", program.address);
    assert!(fxgraph(&["record", "--connect", &url], directory.path()).contains("kept/r.npz"));
    let again = ["record", "source", "path=s.npy", "trigger=request", "--connect", &url];
    let second = fxgraph(&again, directory.path());
    assert!(second.contains("source.output") && second.contains("waiting"), "{second}");
    fxgraph(&["record", "--delete", "2", "--connect", &url], directory.path());
    assert_eq!(send(&program, "DELETE", &format!("/api/v1/recorders/{name}"), "").status, 200);
    assert!(!kept.exists());
    let names: Vec<Value> = program.get("/api/v1/recorders").json().as_array().unwrap().clone();
    assert_eq!(names.len(), 1);
    program.post("/api/v1/flowgraph/stop");
    let output = program.end();
    assert!(output.status.success());
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let frames = |block: usize, key: &str| results["blocks"][block][key].as_u64().unwrap();
    assert_eq!(frames(0, "frames_out"), frames(1, "frames_in"), "the sink has every frame");
    let [file] = &named(directory.path(), "box_")[..] else { panic!("one recording") };
    assert!(replayed_with_gaps(directory.path(), file) > 0);
}

/// Number of frames of a recording, which may have gaps if the disk was too slow.
fn replayed_with_gaps(directory: &Path, file: &str) -> u64 {
    let text = format!(
        "flowgraph: check\nblocks:\n  source: {{kind: file_source, parameters: {{path: {file}}}}}\n  \
         sink: {{kind: null_sink, input: source}}\n"
    );
    fs::write(directory.join("check.yaml"), text).unwrap();
    let results: Value =
        serde_json::from_str(&fxgraph(&["run", "--json", "check.yaml"], directory)).unwrap();
    results["blocks"][1]["frames_in"].as_u64().unwrap()
}

#[test]
fn recording_without_a_directory_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), ENDLESS, &[]);
    let record = "/api/v1/blocks/source/outputs/output/recordings";
    assert!(
        send(&program, "POST", record, "{}").problem(409).contains("no directory for recordings")
    );
    program.post("/api/v1/flowgraph/abort");
    let _ = program.end();
}
