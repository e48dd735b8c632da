//! Start, stop and replacement of flowgraphs over HTTP.

use super::http::{self, Program, Response};
use super::{ENDLESS, TUNABLE};
use std::process::Command;
use std::time::Duration;

fn put(program: &Program, query: &str, flowgraph: &str) -> Response {
    let yaml = [("Content-Type", "application/yaml")];
    let path = format!("/api/v1/flowgraph{query}");
    http::request(program.address, "PUT", &path, &yaml, flowgraph.as_bytes())
}

fn state(program: &Program) -> String {
    program.get("/api/v1/health").json()["state"].as_str().unwrap().to_owned()
}

fn interrupt(program: Program) {
    program.signal("-INT");
    let output = program.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn held_flowgraph_starts_repeatedly() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), TUNABLE, &["--hold"]);
    assert_eq!(state(&program), "prepared");
    assert_eq!(program.get("/api/v1/blocks/source").json()["totals"]["frames_out"], 0);
    for run in 1..=2 {
        assert_eq!(program.post("/api/v1/flowgraph/start").status, 202);
        program.wait("running");
        assert_eq!(
            program.post("/api/v1/flowgraph/start").status,
            202,
            "no effect on a running flowgraph"
        );
        assert_eq!(program.post("/api/v1/flowgraph/stop").status, 202);
        let ended = || {
            let events = program.get("/api/v1/events").json();
            let kinds = events["events"].as_array().unwrap().iter().map(|event| &event["kind"]);
            kinds.filter(|kind| **kind == "ended").count()
        };
        while ended() < run {
            std::thread::sleep(Duration::from_millis(20));
        }
        program.wait("ended");
    }
    interrupt(program);
}

#[test]
fn flowgraph_is_replaced_live_or_with_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), TUNABLE, &["--files", "."]);
    let other = format!("# Louder.\n{}", TUNABLE.replace("cw(0.1, 1000)", "cw(0.2, 1000)"));
    let said = put(&program, "?dry_run=true", &other).json();
    assert_eq!(
        (&said["blocks"][0]["way"], &said["is_made"]),
        (&"live_update".into(), &false.into())
    );
    assert_eq!(said["blocks"][1]["way"], "nothing");
    let made = put(&program, "", &other);
    assert_eq!(made.status, 200, "{made:?}");
    assert!(made.json()["effective_timestamp"].as_u64().is_some());
    let flowgraph = program.get("/api/v1/flowgraph").json();
    assert_eq!(flowgraph["config_hash"], said["config_hash"]);
    assert_eq!(flowgraph["written_yaml"], other);

    let larger = other.replace("  b: {kind: null_sink, input: source.pol1}\n", "")
        + "  c: {kind: null_sink, input: source.pol1}\n";
    let rejected = put(&program, "", &larger);
    assert_eq!(rejected.problem(409), "the update needs a restart of the flowgraph");
    let help = rejected.json()["help"].clone();
    assert_eq!((&help[0], &help[1]), (&"`b`: it is removed".into(), &"`c`: it is new".into()));
    put(&program, "", "flowgraph: tunable\nblocks: {source: {kind: nul}}").problem(422);
    put(&program, "?set=3", &other).problem(400);
    put(&program, "?set=%7B%22x%22:1%7D", &other).problem(422);
    assert_eq!(state(&program), "running");

    let accepted = put(&program, "?restart=true", &larger);
    assert_eq!((accepted.status, &accepted.json()["is_restarting"]), (202, &true.into()));
    let has_block = || program.get("/api/v1/blocks/c").status == 200;
    while !has_block() {
        std::thread::sleep(Duration::from_millis(20));
    }
    program.wait("running");
    assert_eq!(program.get("/api/v1/flowgraph").json()["written_yaml"], larger);

    // A valid flowgraph that cannot start (a file below a file): the previous one is restored.
    let flawed = format!(
        "{larger}  d: {{kind: file_sink, input: source.pol1, parameters: {{path: flowgraph.yaml/d.npy}}}}\n"
    );
    assert_eq!(put(&program, "?restart=true", &flawed).status, 202);
    let told = || program.get("/api/v1/events").json()["events"].to_string();
    while !told().contains("not_started") {
        std::thread::sleep(Duration::from_millis(20));
    }
    program.wait("running");
    assert!(has_block() && program.get("/api/v1/blocks/d").status == 404);
    super::stop(program);
}

#[test]
fn simultaneous_restarts_are_answered_correctly() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), TUNABLE, &[]);
    let text =
        |number: usize| format!("{TUNABLE}  c{number}: {{kind: null_sink, input: source.pol0}}\n");
    let texts: Vec<String> = (0..4).map(text).collect();
    let put = |text: &String| put(&program, "?restart=true", text);
    let answers: Vec<Response> = std::thread::scope(|scope| {
        let asked: Vec<_> = texts.iter().map(|text| scope.spawn(move || put(text))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let mut accepted = Vec::new();
    for (text, answer) in texts.iter().zip(&answers) {
        if answer.status == 202 {
            accepted.push(text.clone());
        } else {
            answer.problem(409);
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
        }
    }
    // Every accepted flowgraph has run in the end, and no other.
    let started = || {
        let events = program.get("/api/v1/events").json();
        let events = events["events"].as_array().unwrap().clone();
        events.iter().filter(|event| event["kind"] == "started").count()
    };
    assert!(!accepted.is_empty());
    while started() < 1 + accepted.len() {
        std::thread::sleep(Duration::from_millis(20));
    }
    program.wait("running");
    let runs = program.get("/api/v1/flowgraph").json()["written_yaml"].as_str().unwrap().to_owned();
    assert!(accepted.contains(&runs), "{runs}");
    super::stop(program);
}

fn health(program: &Program, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.arg("health").args(arguments).args(["--connect", &program.address.to_string()]);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

fn wait_for(program: &Program, path: &str, status: u16) -> Response {
    loop {
        let response = program.get(path);
        if response.status == status {
            return response;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn server_that_rejects_the_token_is_alive_and_one_that_is_gone_is_not() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "f2c1a97be0d94c55").unwrap();
    let program = Program::start(directory.path(), ENDLESS, &["--token-file", "token"]);
    let (is_alive, said) = health(&program, &["--live"]);
    assert!(is_alive && said.contains("the server rejects the token, so it is alive"), "{said}");
    let (is_ready, said) = health(&program, &[]);
    assert!(!is_ready && said.contains("requires a token"), "{said}");
    let address = program.address;
    drop(program);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(["health", "--live", "--connect", &address.to_string()]);
    assert!(!command.status().unwrap().success());
}

#[test]
fn block_that_holds_its_frames_is_neither_ready_nor_alive() {
    let directory = tempfile::tempdir().unwrap();
    let flowgraph = "flowgraph: drill
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1.0e+6, samples_per_frame: 8192, paced: true, signals: wgn(0.1)}
  drill: {kind: fault_injector, input: source.pol0, parameters: {stall_seconds: 3600}}
  sink: {kind: null_sink, input: drill}
  other: {kind: null_sink, input: source.pol1}
";
    let program = Program::running(directory.path(), flowgraph, &[]);
    wait_for(&program, "/api/v1/health/ready", 200);
    assert_eq!(health(&program, &[]), (true, "running\n".to_owned()));
    let set = super::patch(&program, "/api/v1/blocks", r#"{"drill": {"fault": "stall"}}"#);
    assert_eq!(set.status, 200, "{set:?}");
    let said = wait_for(&program, "/api/v1/health/ready", 503).problem(503);
    assert!(said.contains(" s: drill (input frames are waiting)"), "{said}");
    let (is_ready, said) = health(&program, &[]);
    assert!(!is_ready && said.contains("drill (input frames are waiting)"), "{said}");
    // A minute has not passed yet, a second has.
    assert!(health(&program, &["--live", "--limit", "86000"]).0);
    let (is_alive, said) = health(&program, &["--live", "--limit", "1"]);
    assert!(!is_alive && said.contains("drill (input frames are waiting)"), "{said}");
    program.get("/api/v1/health/live?limit_seconds=-1").problem(400);
    let stalls = program.get("/api/v1/health").json()["stalls"].clone();
    assert_eq!((&stalls[0]["block"], &stalls[1]), (&"drill".into(), &serde_json::Value::Null));
    assert_eq!(stalls[0]["holds_frames"], true);
    let top = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(["top", "--once", "--connect", &program.address.to_string()])
        .output()
        .unwrap();
    let top = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(top.contains("s: drill (input frames are waiting)"), "{top}");
    let metrics = program.get("/metrics").body;
    let stall = "fxgraph_block_stall_seconds{block=\"drill\",device=\"cpu\",flowgraph=\"drill\",kind=\"fault_injector\",reason=\"input frames are waiting\"}";
    assert!(metrics.contains(stall), "{metrics}");
    assert_eq!(program.post("/api/v1/flowgraph/abort").status, 202);
    program.end();
}

#[test]
fn source_without_data_is_alive_and_not_ready() {
    let directory = tempfile::tempdir().unwrap();
    let free = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let port = |n: usize| free[n].local_addr().unwrap().port();
    let block = |n: usize| {
        format!(
            "  pol{n}:
    kind: spead_source
    parameters: {{stream: digitiser, addresses: ['127.0.0.1:{}'], adc_sample_rate_hz: 1.0e+6, \
samples_per_frame: 32768}}
  sink{n}: {{kind: null_sink, input: pol{n}}}\n",
            port(n)
        )
    };
    let flowgraph = format!("flowgraph: silent\nblocks:\n{}{}", block(0), block(1));
    drop(free);
    let program = Program::running(directory.path(), &flowgraph, &[]);
    let said = loop {
        let said = wait_for(&program, "/api/v1/health/ready", 503).problem(503);
        if said.contains("pol0") && said.contains("pol1") {
            break said;
        }
    };
    assert!(said.ends_with(" s: waits for data: pol0, pol1"), "{said}");
    assert_eq!(program.get("/api/v1/health/live?limit_seconds=0").status, 200);
    assert!(health(&program, &["--live", "--limit", "0"]).0);
    assert!(!health(&program, &[]).0);
    interrupt(program);
}
