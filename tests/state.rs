//! Live values that survive the process: `run --state FILE`.

use crate::support::http;
use http::{Program, request};
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A gain with as many digits as a number has.
const GAIN: f64 = 0.1 + 0.2;

/// Two gains of one source, and a sink that may be silent.
fn flowgraph(gain: &str) -> String {
    format!(
        "flowgraph: kept
blocks:
  source:
    kind: digitiser_simulator
    parameters: {{adc_sample_rate_hz: 1000000, samples_per_frame: 8192, paced: true, signals: wgn(0.1)}}
  f: {{kind: f_engine, inputs: [source.pol0, source.pol1], parameters: {{channels: 16, taps: 4, spectra_per_heap: 64, gains: {gain}}}}}
  sink: {{kind: null_sink, input: f}}
"
    )
}

fn start(directory: &Path, gain: &str) -> Program {
    Program::running(directory, &flowgraph(gain), &["--state", "live.json"])
}

fn set(program: &Program, values: &Value, query: &str) -> Value {
    let headers = [("Content-Type", "application/json")];
    let path = format!("/api/v1/blocks{query}");
    let answer = request(program.address, "PATCH", &path, &headers, values.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Waits until the metric `name` is `wanted`.
fn until_metric(program: &Program, name: &str, wanted: impl Fn(f64) -> bool) {
    loop {
        let metrics = program.get("/metrics").body;
        let line = metrics.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
        let value = line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok());
        if value.is_some_and(&wanted) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the state file has all live values.
fn until_saved(program: &Program) {
    until_metric(program, "fxgraph_state_file_behind_seconds", |behind| behind == 0.0);
}

fn kill(mut program: Program) {
    program.child.kill().unwrap();
    program.child.wait().unwrap();
}

fn block(program: &Program, name: &str) -> Value {
    program.get(&format!("/api/v1/blocks/{name}")).json()
}

fn events(program: &Program, kind: &str) -> Vec<String> {
    let events = program.get("/api/v1/events").json();
    let all = events["events"].as_array().unwrap().iter().filter(|event| event["kind"] == kind);
    all.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

fn config_hash(program: &Program) -> Value {
    program.get("/api/v1/flowgraph").json()["config_hash"].clone()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn live_values_survive_a_killed_process_and_the_file_wins_where_it_changed() {
    let directory = tempfile::tempdir().unwrap();
    let program = start(directory.path(), "0.5");
    set(&program, &json!({"f": {"gains": GAIN}}), "");
    set(&program, &json!({"f": {"dither_seed": 7}, "source": {"signals": "wgn(0.2)"}}), "");
    let at = 1_u64 << 50;
    set(&program, &json!({"f": {"dither_seed": 9}}), &format!("?at={at}"));
    until_saved(&program);
    let before = config_hash(&program);
    kill(program);

    let mut program = start(directory.path(), "0.5");
    assert_eq!(config_hash(&program), before, "the configuration is the same");
    let f = block(&program, "f");
    assert_eq!(f["parameters"]["gains"], GAIN);
    assert_eq!(f["parameters"]["dither_seed"], 7, "the value in force");
    assert_eq!(block(&program, "source")["parameters"]["signals"], "wgn(0.2)");
    let scheduled = &program.get("/api/v1/flowgraph").json()["scheduled"];
    assert_eq!((&scheduled[0]["timestamp"], &scheduled[0]["value"]), (&json!(at), &json!(9)));
    let told = events(&program, "restored");
    assert!(told[0].contains("`f.gains`") && told[0].contains("as of 2"), "{told:?}");
    program.signal("-KILL");
    program.until("");
    kill(program);

    // The file follows a scheduled value that takes effect.
    let file = || std::fs::read_to_string(directory.path().join("live.json")).unwrap();
    let program = start(directory.path(), "0.5");
    set(&program, &json!({"f": {"dither_seed": 9}}), &format!("?at={at}"));
    let newest = block(&program, "f")["newest_timestamp"].as_u64().unwrap_or_default();
    set(&program, &json!({"f": {"dither_seed": 8}}), &format!("?at={}", newest + 3_000_000));
    while !file().contains("\"value\":8,\"at\"") {
        std::thread::sleep(Duration::from_millis(20));
    }
    while file().contains("\"value\":8,\"at\"") {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(file().contains("\"value\":8"), "{}", file());
    kill(program);

    // The file gives another gain now.
    let program = start(directory.path(), "0.75");
    let f = block(&program, "f");
    assert_eq!(
        (&f["parameters"]["gains"], &f["parameters"]["dither_seed"]),
        (&json!(0.75), &json!(8))
    );
    let warned = events(&program, "warning");
    assert!(warned[0].contains("`gains` was not restored: the flowgraph file gives"), "{warned:?}");
    let old = std::fs::read_to_string(directory.path().join("live.json.old")).unwrap();
    assert!(old.contains("0.30000000000000004"), "the dropped value is still there");
    kill(program);
}

#[test]
fn state_file_that_is_damaged_foreign_or_in_use_is_an_error_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        command.args(["run", "flowgraph.yaml", "--state", "live.json", "--duration", "100ms"]);
        command.current_dir(directory.path()).output().unwrap()
    };
    std::fs::write(directory.path().join("flowgraph.yaml"), flowgraph("1.0")).unwrap();
    for (text, why) in [
        ("{\"fxgraph_state\":1,\"flowgr", "its end is missing"),
        ("gains: 3\n", "it is not JSON"),
        (
            "{\"fxgraph_state\":1,\"flowgraph\":\"other\",\"time\":\"\",\"streams\":[],\"values\":[]}",
            "belongs to the flowgraph `other`",
        ),
    ] {
        std::fs::write(directory.path().join("live.json"), text).unwrap();
        let output = run();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
        assert!(stderr(&output).contains("mv "), "{}", stderr(&output));
        assert_eq!(std::fs::read_to_string(directory.path().join("live.json")).unwrap(), text);
    }
    std::fs::remove_file(directory.path().join("live.json")).unwrap();
    let program = start(directory.path(), "1.0");
    let output = run();
    assert!(stderr(&output).contains("another process uses the state file"), "{}", stderr(&output));
    kill(program);
    // The lock ends with its process.
    assert!(run().status.success());
}

#[test]
fn state_file_that_cannot_be_written_is_an_event_and_the_run_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let text = flowgraph("1.0");
    let program = Program::running(directory.path(), &text, &["--state", "place/live.json"]);
    until_saved(&program);
    // As on a full disk, no new file can be made.
    std::fs::rename(&place, directory.path().join("elsewhere")).unwrap();
    set(&program, &json!({"f": {"gains": 2.0}}), "");
    until_metric(&program, "fxgraph_state_file_failures_total", |failures| failures >= 2.0);
    let told = events(&program, "not_saved");
    assert!(told.len() == 1 && told[0].contains("live.json` was not written"), "{told:?}");
    assert_eq!(program.get("/api/v1/health").json()["state"], "running");
    std::fs::rename(directory.path().join("elsewhere"), &place).unwrap();
    until_saved(&program);
    assert!(std::fs::read_to_string(place.join("live.json")).unwrap().contains("\"value\":2.0"));
    kill(program);
}

#[test]
fn many_updates_are_few_writes_and_the_last_one_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let program = start(directory.path(), "1.0");
    for gain in 1..=40 {
        set(&program, &json!({"f": {"gains": gain}}), "");
    }
    program.signal("-INT");
    let output = program.end();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = std::fs::read_to_string(directory.path().join("live.json")).unwrap();
    assert!(text.contains("\"value\":40"), "{text}");
}

/// A digitiser of 1 MS/s that sends to `ports`, until it is killed.
fn digitiser(ports: [u16; 2], begins_now: bool) -> std::process::Child {
    let set = |name: &str, value: &str| ["--set".to_owned(), format!("{name}={value}")];
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(["run", "--quiet", "example:05_digitisers"]);
    command.args(set("adc_sample_rate_hz", "1000000")).args(set("seconds", "600"));
    command.args(set("sync_time_seconds", "1700000000"));
    command.args(set("begin_now", &begins_now.to_string())).args(set("stop_heaps", "false"));
    for (pol, port) in ports.into_iter().enumerate() {
        command.args(set(&format!("pol{pol}"), &format!("127.0.0.1:{port}")));
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn values_with_timestamps_return_if_the_stream_still_counts_alike_and_expire_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let ports =
        [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
    let receiver = || {
        let set = [
            "adc_sample_rate_hz=1000000".to_owned(),
            "sync_time_seconds=1700000000".to_owned(),
            "channels=64".to_owned(),
            format!("pol0=127.0.0.1:{}", ports[0]),
            format!("pol1=127.0.0.1:{}", ports[1]),
            "out=127.0.0.1:9".to_owned(),
        ];
        let mut arguments = vec!["run", "example:02_f_engine", "--state", "live.json"];
        set.iter().for_each(|set| arguments.extend(["--set", set]));
        Program::serving(directory.path(), &arguments)
    };
    let newest = |program: &Program| loop {
        let newest = block(program, "f.pfb")["newest_timestamp"].as_u64();
        if let Some(newest) = newest {
            return newest;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let delays = |program: &Program| block(program, "f.pfb")["parameters"]["delays"].clone();

    let mut sender = digitiser(ports, true);
    let program = receiver();
    let now = newest(&program);
    let model = json!([[{"start_samples": now, "delay_samples": 3.0, "rate": 1e-9}], []]);
    set(&program, &json!({"f.pfb": {"delays": model}}), "");
    let later = now + 3_600_000_000;
    set(&program, &json!({"f.postproc": {"dither_seed": 5}}), &format!("?at={later}"));
    until_saved(&program);
    kill(program);

    let program = receiver();
    while events(&program, "restored").len() < 3 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let told = events(&program, "restored");
    assert!(told[0].contains("wait for the first data"), "{told:?}");
    assert_eq!(delays(&program), model);
    let scheduled = program.get("/api/v1/flowgraph").json()["scheduled"].clone();
    assert_eq!((&scheduled[0]["timestamp"], &scheduled[0]["value"]), (&json!(later), &json!(5)));
    until_saved(&program);
    kill(program);

    // The digitiser is restarted, and counts from another time.
    sender.kill().unwrap();
    sender.wait().unwrap();
    let mut sender = digitiser(ports, false);
    let program = receiver();
    while events(&program, "warning").iter().filter(|text| text.contains("have expired")).count()
        < 2
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(delays(&program), json!([]));
    assert_eq!(program.get("/api/v1/flowgraph").json()["scheduled"], json!([]));
    until_saved(&program);
    kill(program);
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    assert!(!read("live.json").contains("delays"), "{}", read("live.json"));
    assert!(read("live.json.old").contains("\"delays\""), "the expired values are still there");
    sender.kill().unwrap();
    sender.wait().unwrap();

    // A client sets the value of the file before the stream arrives.
    std::fs::rename(directory.path().join("live.json.old"), directory.path().join("live.json"))
        .unwrap();
    let program = receiver();
    set(&program, &json!({"f.pfb": {"delays": []}}), "");
    let mut sender = digitiser(ports, true);
    while events(&program, "restored").len() < 2 {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(delays(&program), json!([]), "the newer value stays");
    assert_eq!(program.get("/api/v1/flowgraph").json()["scheduled"][0]["value"], 5);
    kill(program);
    sender.kill().unwrap();
    sender.wait().unwrap();
}

#[test]
fn flowgraph_of_another_name_leaves_a_file_with_which_the_next_run_starts() {
    let directory = tempfile::tempdir().unwrap();
    let program = start(directory.path(), "1.0");
    let other = flowgraph("2.0").replace("flowgraph: kept", "flowgraph: other");
    let headers = [("Content-Type", "application/yaml")];
    let path = "/api/v1/flowgraph?restart=true";
    let answer = request(program.address, "PUT", path, &headers, other.as_bytes());
    assert_eq!(answer.status, 202, "{answer:?}");
    while program.get("/api/v1/flowgraph").json()["name"] != "other" {
        std::thread::sleep(Duration::from_millis(20));
    }
    until_saved(&program);
    kill(program);
    let program = start(directory.path(), "1.0");
    assert_eq!(block(&program, "f")["parameters"]["gains"], 2.0);
    kill(program);
}
