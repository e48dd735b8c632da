//! A running flowgraph over HTTP, as clients meet it.

#![allow(clippy::unwrap_used, missing_docs)]

mod faults;
mod http;
mod lifecycle;
mod outputs;
mod python;
mod shadows;

use http::{Program, connect};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
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

/// Stops the program over HTTP; its results.
fn stop(program: Program) -> serde_json::Value {
    let answer = program.post("/api/v1/flowgraph/stop");
    assert_eq!(answer.status, 202);
    let output = program.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_running_flowgraph_is_told_and_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(folder.path(), ENDLESS, &["--set", "len=4096"]);
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
    // The last digit of a number may be lost on its way through text.
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
        ("/docs/", "swagger-ui"),
        ("/docs/swagger-initializer.js", "/api/v1/openapi.json"),
    ];
    for (page, word) in pages {
        assert!(program.get(page).body.contains(word), "{page}");
    }

    let result = stop(program);
    assert_eq!(result["blocks"][0]["frames_out"], result["blocks"][1]["frames_in"], "it drained");
}

#[test]
fn what_cannot_be_answered_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::running(folder.path(), ENDLESS, &[]);
    let wrong = program.get("/api/v1/blocks/sinc");
    assert_eq!(wrong.problem(404), "there is no block `sinc`");
    assert_eq!(wrong.json()["help"][0], "did you mean `sink`?");
    let wrong = program.get("/api/v1/kinds/nul_sink");
    assert_eq!(wrong.json()["help"][0], "did you mean `null_sink`?");
    assert_eq!(program.get("/api/v2").problem(404), "there is nothing at `/api/v2`");
    let wrong = program.post("/api/v1/kinds");
    assert_eq!(wrong.problem(405), "`/api/v1/kinds` does not take `POST`");
    assert_eq!(wrong.header("allow"), Some("GET,HEAD"));
    program.get("/api/v1/flowgraph/stop").problem(405);
    for number in ["x", "-1", "", "1e3", "99999999999999999999"] {
        let wrong = program.get(&format!("/api/v1/events?since={number}"));
        assert_eq!(wrong.problem(400), "`since` is not the number of an event");
    }
    program.get("/api/v1/blocks/%ff").problem(400);
    assert_eq!(program.get("/api/v1/health").json()["state"], "running", "GET changes nothing");
    stop(program);
}

#[test]
fn events_are_listed_and_followed_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(folder.path(), ENDLESS, &[]);
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
    // The stream begins behind the event that its client knows, and ends with the run.
    let told: Vec<String> = lines.collect();
    let ids: Vec<&str> = told.iter().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, ["2", "3"]);
    let kinds = ["stopping", "ended"].map(|kind| format!("\"kind\":\"{kind}\""));
    let data: Vec<&String> = told.iter().filter(|line| line.starts_with("data: ")).collect();
    assert!(data.iter().zip(&kinds).all(|(data, kind)| data.contains(kind)), "{data:?}");
}

#[test]
fn an_abort_shows_in_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(folder.path(), ENDLESS, &[]);
    assert_eq!(program.post("/api/v1/flowgraph/abort").status, 202);
    assert_eq!(program.end().status.code(), Some(130));
}

#[test]
fn an_address_that_cannot_be_had_is_an_error_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "{ENDLESS}  file: {{kind: file_sink, input: source, parameters: {{path: out.npy}}}}\n"
    );
    std::fs::write(folder.path().join("flowgraph.yaml"), text).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(["run", "flowgraph.yaml", "--listen", &address])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "error: nothing was started: cannot listen on {address}: another program listens there; \
         port 0 takes any free one\n"
    );
    assert_eq!(said, expected);
    assert!(!folder.path().join("out.npy").exists());
}

/// Samples of a scrape by name and labels, with the types of their families; checks HELP on the way.
fn scrape(program: &Program) -> (HashMap<String, f64>, HashMap<String, String>) {
    let answer = program.get("/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4"));
    let (mut samples, mut types) = (HashMap::new(), HashMap::new());
    for line in answer.body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(help.len() > 20, "{name} says nothing: {help}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(name.starts_with("fxgraph_"), "{name}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            types.insert(name.to_owned(), kind.to_owned());
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.contains("flowgraph=\"endless\""), "{name}");
            samples.insert(name.to_owned(), value.parse().unwrap());
        }
    }
    (samples, types)
}

#[test]
fn counters_only_grow_and_promtool_finds_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::running(folder.path(), ENDLESS, &[]);
    let (mut before, types) = scrape(&program);
    let is_counter = |name: &str| {
        let family = name.split('{').next().unwrap();
        // All numbers of a histogram are counters too.
        types.get(family).is_none_or(|kind| kind == "counter")
    };
    let taken = before.keys().find(|name| {
        name.starts_with("fxgraph_block_input_frames_total") && name.contains("block=\"sink\"")
    });
    let taken = taken.unwrap().clone();
    let first = before[&taken];
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(20));
        let (now, _) = scrape(&program);
        for (name, value) in before.iter().filter(|(name, _)| is_counter(name)) {
            assert!(now[name] >= *value, "{name} fell from {value} to {}", now[name]);
        }
        before = now;
    }
    assert!(before[&taken] > first, "frames are counted as they flow");
    assert!(before.keys().any(|name| name.starts_with("fxgraph_frames_dropped_here_total{")));

    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut promtool = promtool.stderr(Stdio::piped()).spawn().expect(PROMETHEUS);
    promtool.stdin.take().unwrap().write_all(program.get("/metrics").body.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
    stop(program);
}

const PROMETHEUS: &str = "Debian's package `prometheus` is installed, as .ci/run does";

/// A Prometheus that scrapes `target` each second; ended when dropped.
struct Prometheus(Child, SocketAddr);

impl Prometheus {
    fn start(folder: &Path, target: SocketAddr) -> Self {
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: fxgraph\n    \
             static_configs: [{{targets: ['{target}']}}]\n"
        );
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        // Free when it was asked for; nobody else here takes fixed ports.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=error"])
            .arg(format!("--web.listen-address={free}"))
            .current_dir(folder)
            .spawn()
            .expect(PROMETHEUS);
        Self(child, free)
    }

    /// The value that `query` has, once it has one.
    fn value(&self, query: &str) -> f64 {
        for _ in 0..600 {
            std::thread::sleep(Duration::from_millis(100));
            if TcpStream::connect(self.1).is_err() {
                continue;
            }
            let path = format!("/api/v1/query?query={query}");
            let answer = http::request(self.1, "GET", &path, &[], b"");
            if answer.status == 200
                && let Some(value) = answer.json()["data"]["result"][0]["value"][1].as_str()
            {
                return value.parse().unwrap();
            }
        }
        panic!("Prometheus never had a value of {query}");
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_prometheus_scrapes_a_running_flowgraph() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(folder.path(), ENDLESS, &[]);
    let prometheus = Prometheus::start(folder.path(), program.address);
    let rate = prometheus.value("rate(fxgraph_block_input_frames_total{block=%22sink%22}[10s])");
    assert!(rate > 0.0);
    let expected = prometheus.value("fxgraph_block_expected_rate_hertz{block=%22sink%22}");
    assert!((expected - 1.712e9 / 65536.0).abs() < 1e-6, "{expected}");
    let state = prometheus.value("fxgraph_flowgraph_state{state=%22running%22}");
    assert!((state - 1.0).abs() < 1e-9);
    stop(program);
}

#[test]
fn slow_clients_are_shown_the_door_and_others_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(folder.path(), ENDLESS, &[]);
    // More than there are places for, each with a head that never ends.
    let mut slow: Vec<TcpStream> = (0..200).map(|_| connect(program.address)).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /api/v1/health HTTP/1.1\r\nHost: local").unwrap();
    }
    assert_eq!(program.get("/api/v1/health").json()["state"], "running");
    let mut said = Vec::new();
    // The connection ends without an answer, or with one that says that it took too long.
    slow[0].read_to_end(&mut said).unwrap();
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 408"), "{said:?}");
    stop(program);
}

#[test]
fn other_names_other_origins_and_floods_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let origin = "https://board.example";
    let program = Program::running(folder.path(), ENDLESS, &["--cors-origin", origin]);
    let ask = |method: &str, headers: &[(&str, &str)], body: &[u8]| {
        http::request(program.address, method, "/api/v1/flowgraph/stop", headers, body)
    };
    ask("POST", &[("Host", "evil.example")], b"").problem(421);
    ask("POST", &[("Origin", "https://evil.example")], b"").problem(403);
    let preflight = [("Origin", origin), ("Access-Control-Request-Method", "POST")];
    let allowed = ask("OPTIONS", &preflight, b"");
    assert_eq!(allowed.header("access-control-allow-origin"), Some(origin));
    ask("POST", &[], &vec![b' '; 2 << 20]).problem(413);
    assert_eq!(program.get("/api/v1/health").json()["state"], "running", "nothing came through");
    // All at once on one connection: several times what is answered in a second.
    let mut flood = connect(program.address);
    let one = "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n";
    let sender = flood.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let all = format!("{one}\r\n").repeat(2000) + one + "Connection: close\r\n\r\n";
        (&sender).write_all(all.as_bytes())
    });
    let mut answers = String::new();
    flood.read_to_string(&mut answers).unwrap();
    sending.join().unwrap().unwrap();
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 2001);
    assert!(answers.contains("HTTP/1.1 429 Too Many Requests"));
    assert!(answers.contains("retry-after: 1"));
    std::thread::sleep(Duration::from_secs(1));
    stop(program);
}

#[test]
fn a_token_guards_all_that_tells_of_the_flowgraph() {
    let folder = tempfile::tempdir().unwrap();
    let token = "f2c1a97be0d94c55";
    std::fs::write(folder.path().join("token"), token).unwrap();
    let program = Program::start(folder.path(), ENDLESS, &["--token-file", "token"]);
    for path in ["/api/v1/flowgraph", "/api/v1/blocks/sink", "/api/v1/events", "/metrics"] {
        let refused = program.get(path);
        assert_eq!(refused.problem(401), "this flowgraph asks for a token");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    }
    for path in ["/", "/docs/", "/api/v1/openapi.json"] {
        assert_eq!(program.get(path).status, 200, "{path}");
    }
    program.post("/api/v1/flowgraph/stop").problem(401);
    let bearer = format!("Bearer {token}");
    let with = [("Authorization", bearer.as_str())];
    let path = "/api/v1/flowgraph/stop";
    assert_eq!(http::request(program.address, "POST", path, &with, b"").status, 202);
    assert!(program.end().status.success());
}

#[test]
fn other_machines_are_let_in_with_a_token_only() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("flowgraph.yaml"), ENDLESS).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(["run", "flowgraph.yaml", "--listen", "0.0.0.0:0"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("give a token that clients have to know (`--token-file`)"), "{said}");
}

#[test]
fn clients_of_a_served_certificate_speak_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let arguments = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    let program = Program::start(folder.path(), ENDLESS, &arguments);
    let port = program.address.port();
    let fetched = Command::new(python::python())
        .args(["-c", FETCH, &port.to_string()])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&fetched.stdout).into_owned();
    assert!(said.contains("\"faults\":0"), "{said}{}", String::from_utf8_lossy(&fetched.stderr));
    // Plain HTTP gets no answer.
    let mut plain = connect(program.address);
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
    program.signal("-INT");
    assert!(program.end().status.success());
}

/// Asks over TLS, and believes the certificate in cert.pem only.
const FETCH: &str = "
import ssl, sys, urllib.request
trust = ssl.create_default_context(cafile='cert.pem')
url = f'https://localhost:{sys.argv[1]}/api/v1/health'
print(urllib.request.urlopen(url, context=trust).read().decode())
";

#[test]
fn no_request_however_formed_fails_here_or_costs_a_frame() {
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    // Free when it was asked for; nobody else here takes fixed ports.
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let program = Program::running(folder.path(), &RECEIVER.replace("ADDRESS", &free), &[]);
    let sender = Program::start(other.path(), &SENDER.replace("ADDRESS", &free), &[]);
    let received = || {
        let source = program.get("/api/v1/blocks/source").json();
        source["totals"]["frames_out"].as_u64().unwrap()
    };
    while received() == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Meanwhile others never come to the end of their requests, or never read.
    let mut slow: Vec<TcpStream> = (0..40).map(|_| connect(program.address)).collect();
    for (index, stream) in slow.iter_mut().enumerate() {
        let path = if index < 8 { "/api/v1/events/stream" } else { "/metrics" };
        let end = if index < 20 { "\r\n\r\n" } else { "" };
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost{end}").unwrap();
    }
    // Views of one frame, not of all that come.
    let view = "GET /api/v1/blocks/{name}/outputs/{port}/views/{view}";
    let once =
        format!("[[operations]]\ninclude-name = \"{view}\"\nparameters = {{ once = true }}\n");
    std::fs::write(folder.path().join("schemathesis.toml"), once).unwrap();
    let python = python::environment("tests-schemathesis", "tests/schemathesis.txt").unwrap();
    let output = Command::new(python.with_file_name("schemathesis"))
        .args(["run", &format!("http://{}/api/v1/openapi.json", program.address)])
        // These end the run, or do not end before it.
        .args(["--exclude-path-regex", "/(stop|abort|stream|v1/views)$"])
        .args(["--max-examples=10", "--request-timeout=30", "--rate-limit=50/s", "--no-color"])
        // What is right by its form may name blocks that there are not.
        .args(["--generation-deterministic", "--exclude-checks=positive_data_acceptance"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    drop(slow);
    let health = program.get("/api/v1/health").json();
    assert_eq!((&health["state"], &health["faults"]), (&"running".into(), &0.into()));
    // The receiver ends with its stream.
    let sent = stop(sender);
    let output = program.end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let source = &result["blocks"][0];
    assert_eq!((&source["name"], &source["drops"]), (&"source".into(), &0.into()), "{source}");
    assert_eq!(source["frames_out"], sent["blocks"][1]["frames_in"], "{source}");
    assert_eq!(source["frames_out"], result["blocks"][1]["frames_in"]);
    assert_eq!(result["failures"], serde_json::json!([]));
}

/// A stream on the network at a steady rate, whose heaps tell the receiver what it has missed.
const SENDER: &str = "flowgraph: sender
blocks:
  digitiser:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 524288, samples_per_frame: 16384, paced: true, period_samples: 65536, signals: wgn(0.1)}
  out:
    kind: spead_sink
    input: digitiser.pol0
    parameters: {stream: digitiser, destinations: ['ADDRESS'], interface: 127.0.0.1}
  end: {kind: null_sink, input: digitiser.pol1}
";
const RECEIVER: &str = "flowgraph: receiver
blocks:
  source:
    kind: spead_source
    thread: own
    parameters: {stream: digitiser, addresses: ['ADDRESS'], adc_sample_rate_hz: 524288, samples_per_frame: 16384}
  sink: {kind: null_sink, input: source}
";

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
fn live_parameters_change_at_a_timestamp_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::running(folder.path(), TUNABLE, &[]);
    let signals = r#"{"source": {"signals": "cw(0.3, 2000)"}}"#;
    let at = 1_u64 << 40;
    let answer = patch(&program, &format!("/api/v1/blocks?at={at}"), signals);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["effective_timestamp"], at);
    let flowgraph = program.get("/api/v1/flowgraph").json();
    assert_eq!(flowgraph["steady_state_timestamp"], at);
    assert_eq!(flowgraph["config_id"], answer.json()["config_id"]);
    let block = program.get("/api/v1/blocks/source").json();
    assert_eq!(block["parameters"]["signals"], "cw(0.3, 2000)");

    let wrong = r#"{"source": {"signals": "cw(0.4, 1)"}, "a": {"gain": 2}}"#;
    let refused = patch(&program, "/api/v1/blocks", wrong);
    refused.problem(422);
    assert!(refused.json()["diagnostics"][0]["code"].as_str().unwrap().starts_with('E'));
    let block = program.get("/api/v1/blocks/source").json();
    assert_eq!(block["parameters"]["signals"], "cw(0.3, 2000)", "all or nothing");
    patch(&program, "/api/v1/blocks?at=soon", signals).problem(400);
    patch(&program, "/api/v1/blocks", "source: {}").problem(400);
    let untyped = http::request(program.address, "PATCH", "/api/v1/blocks", &[], b"{}");
    untyped.problem(415);
    stop(program);
}

#[test]
fn a_block_is_swapped_and_what_would_be_done_is_said_before() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::running(folder.path(), ENDLESS, &[]);
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

#[test]
fn what_to_watch_of_a_flowgraph_is_written_and_promtool_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("flowgraph.yaml"), ENDLESS).unwrap();
    let write = |flag: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        command.args(["dashboard", "flowgraph.yaml", flag]).current_dir(folder.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    std::fs::write(folder.path().join("rules.yaml"), write("--rules")).unwrap();
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "rules", "rules.yaml"]).current_dir(folder.path());
    let output = promtool.output().expect(PROMETHEUS);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("SUCCESS: 10 rules found"), "{said}");
    let dashboard: serde_json::Value = serde_json::from_str(&write("--grafana")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.iter().any(|panel| panel["title"] == "Share of real time"));
    // Every query is about figures that there are, now or at other times.
    const NOW_AND_THEN: [&str; 3] = [
        "fxgraph_block_sample_age_seconds",
        "fxgraph_flowgraph_deadline_margin_ratio",
        "fxgraph_flowgraph_limit_info",
    ];
    let program = Program::running(folder.path(), ENDLESS, &[]);
    let (_, types) = scrape(&program);
    for panel in panels {
        let query = panel["targets"][0]["expr"].as_str().unwrap();
        for word in query.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let family = word.trim_end_matches("_bucket");
            let is_known = !word.starts_with("fxgraph_")
                || types.contains_key(family)
                || NOW_AND_THEN.contains(&family);
            assert!(is_known, "{word} in {query}");
        }
    }
    stop(program);
}
