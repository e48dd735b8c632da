//! Who is let in, and what clients cannot do.

use super::http::{self, Program, connect};
use super::{ENDLESS, python, stop};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

#[test]
fn slow_clients_are_shown_the_door_and_others_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::running(folder.path(), ENDLESS, &[]);
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
