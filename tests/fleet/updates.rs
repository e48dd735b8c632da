//! Live updates of blocks of several parts, with parts that reject them, hang or die.

use super::{Running, ask, fleet, fxgraph, get, process, signal, wait_until};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

const OLD: i8 = 64;
const NEW: i8 = 32;

/// Signal with samples of `level`; the largest one is 127.
fn constant(level: i8) -> String {
    format!("nodither(cw({}, 0))", f64::from(level) / 127.0)
}

/// Parts `a`, `b` and `c`, each with a source of `OLD` whose samples go to a file.
fn parts(directory: &Path) -> Running {
    let host = |name: &str| {
        let path = directory.join(format!("{name}.npy"));
        format!(
            "  s_{name}:
    kind: digitiser_simulator
    host: {name}
    parameters: {{adc_sample_rate_hz: 1000000, bits: 8, samples_per_frame: 8192, period_samples: 8192, paced: true,
                 signals: \"{}\"}}
  file_{name}: {{kind: file_sink, host: {name}, input: s_{name}.pol0, parameters: {{path: \"{}\"}}}}
  end_{name}: {{kind: null_sink, host: {name}, input: s_{name}.pol1}}
",
            constant(OLD),
            path.display()
        )
    };
    let blocks: String = ["a", "b", "c"].map(host).concat();
    let text = format!(
        "flowgraph: trio\nhosts: {{a: {{}}, b: {{}}, c: {{}}}}\nnetwork: {{multicast: 239.102.0.0/24}}\nblocks:\n{blocks}"
    );
    fs::write(directory.join("trio.yaml"), text).unwrap();
    let mut parts = Running::start(directory, &["run", "trio.yaml", "--as-parts", "-o", "parts"]);
    parts.wait_for(": runs at", 3);
    parts
}

fn values(levels: &[(&str, String)]) -> String {
    let blocks = levels
        .iter()
        .map(|(part, signals)| (format!("s_{part}"), serde_json::json!({ "signals": signals })));
    Value::Object(blocks.collect()).to_string()
}

fn patch(address: &str, levels: &[(&str, String)]) -> (u16, Value) {
    let (status, body) = ask(address, "PATCH", "/api/v1/blocks", &values(levels));
    (status, serde_json::from_str(&body).unwrap())
}

/// Samples of the source of a part so far, by timestamp.
fn samples(directory: &Path, part: &str) -> Vec<i8> {
    let bytes = fs::read(directory.join(format!("{part}.npy"))).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let whole = (bytes.len() - start) / 8192 * 8192;
    bytes[start..start + whole].iter().map(|byte| byte.cast_signed()).collect()
}

/// Waits until the file of `part` has samples after timestamp `until`.
fn wait_for_samples(directory: &Path, part: &str, until: u64) -> Vec<i8> {
    wait_until("samples are written", || samples(directory, part).len() as u64 > until);
    samples(directory, part)
}

fn all_answer(address: &str) {
    wait_until("all parts answer", || {
        let parts = get(address, "/api/v1/parts");
        let all = parts.as_array().unwrap();
        all.len() == 3 && all.iter().all(|part| part["state"] == "running")
    });
}

/// Signal of the source of `part`, according to the part.
fn signals(address: &str, part: &str) -> Value {
    get(address, &format!("/api/v1/blocks/s_{part}"))["parameters"]["signals"].clone()
}

#[test]
fn update_of_three_parts_takes_effect_at_one_sample_or_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let parts = parts(directory.path());
    let (_fleet, address) = fleet(directory.path());
    all_answer(&address);

    let all = ["a", "b", "c"];
    let (status, made) = patch(&address, &all.map(|part| (part, constant(NEW))));
    assert_eq!((status, &made["is_late"]), (200, &false.into()), "{made}");
    let at = made["effective_timestamp"].as_u64().unwrap();
    for part in all {
        let samples = wait_for_samples(directory.path(), part, at + 8192);
        let (before, after) = samples.split_at(at as usize);
        assert!(before.iter().all(|sample| *sample == OLD), "{part}");
        assert!(after.iter().all(|sample| *sample == NEW), "{part}");
        assert_eq!(signals(&address, part), constant(NEW));
    }

    // `b` rejects it.
    let some = [("a", constant(OLD)), ("b", "nodither(".to_owned()), ("c", constant(OLD))];
    let (status, problem) = patch(&address, &some);
    assert_eq!(status, 422, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("part `b`: ") && detail.ends_with("nothing has changed at any part")
    );
    // `c` does not answer.
    let hung = process("c_0.yaml", &parts);
    signal("-STOP", &hung);
    let some = [("a", constant(OLD)), ("c", constant(OLD))];
    let (status, problem) = patch(&address, &some);
    signal("-CONT", &hung);
    assert!(matches!(status, 502 | 503) && problem.to_string().contains("not answer"), "{problem}");
    all_answer(&address);
    // A timestamp that has passed.
    let body = values(&some);
    let (status, body) = ask(&address, "PATCH", "/api/v1/blocks?at=5", &body);
    assert!(status == 409 && body.contains("timestamp 5 is too early"), "{status} {body}");
    let written = samples(directory.path(), "a").len() as u64;
    for part in all {
        let samples = wait_for_samples(directory.path(), part, written + 8192);
        assert!(samples[at as usize..].iter().all(|sample| *sample == NEW), "{part}");
        assert_eq!(signals(&address, part), constant(NEW));
    }
    // Hostile bodies.
    for body in ["", "[]", "{\"s_a\": {}, \"s_a\": {}, \"s_b\": {}}", "{\"s_a\": 1, \"s_b\": []}"] {
        let (status, answer) = ask(&address, "PATCH", "/api/v1/blocks", body);
        assert!((400..500).contains(&status), "{body}: {status} {answer}");
    }
    let (status, _) = ask(&address, "PATCH", "/api/v1/blocks?at=x", &values(&some));
    assert_eq!(status, 400);
}

/// A server between the fleet and a part: `on_commit` gets the commit of an update, and what passes it on.
struct Between(std::net::SocketAddr);

impl Between {
    fn start(
        part: String,
        on_commit: impl Fn(&dyn Fn() -> Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let on_commit = Arc::new(on_commit);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, part, on_commit) =
                    (stream.unwrap(), part.clone(), Arc::clone(&on_commit));
                std::thread::spawn(move || {
                    let Some(request) = request(&mut stream) else { return };
                    let pass = || pass(&part, &request).unwrap_or_default();
                    let is_commit = request.starts_with(b"POST") && {
                        let head = String::from_utf8_lossy(&request).into_owned();
                        head.lines().next().unwrap_or_default().contains("/commit")
                    };
                    let answer = if is_commit { on_commit(&pass) } else { pass() };
                    let _ = stream.write_all(&answer);
                });
            }
        });
        Self(address)
    }
}

/// Reads a request to its end.
fn request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let mut more = [0; 8192];
        let count = stream.read(&mut more).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&more[..count]);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some(end) = text.find("\r\n\r\n") else { continue };
        let length = text[..end].lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        if bytes.len() >= end + 4 + length {
            return Some(bytes);
        }
    }
}

/// Passes a request on to `part`; returns its answer.
fn pass(part: &str, request: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(part).ok()?;
    let line = request.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let request = [&request[..line], b"Connection: close\r\n", &request[line..]].concat();
    stream.write_all(&request).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    Some(answer)
}

/// Puts a server between the fleet and part `c`.
fn between(
    directory: &Path,
    on_commit: impl Fn(&dyn Fn() -> Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
) {
    let path = directory.join("parts/deployment.json");
    let mut manifest: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let part =
        manifest["parts"].as_array_mut().unwrap().iter_mut().find(|part| part["name"] == "c");
    let server = &mut part.unwrap()["server"]["address"];
    let there = server.as_str().unwrap().to_owned();
    *server = Between::start(there, on_commit).0.to_string().into();
    let draft = directory.join("parts/deployment.json.new");
    fs::write(&draft, manifest.to_string()).unwrap();
    fs::rename(&draft, &path).unwrap();
}

/// Checks the answer to an update that part `c` did not commit, and that `a` and `b` keep their values.
fn check_others(directory: &Path, address: &str) {
    let (status, problem) = patch(address, &["a", "b", "c"].map(|part| (part, constant(NEW))));
    assert_eq!(status, 502, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    for said in ["part `a`: keeps its values", "part `b`: keeps its values", "part `c`: unknown"] {
        assert!(detail.contains(said), "{said}: {detail}");
    }
    let events = get(address, "/api/v1/events")["events"].to_string();
    assert!(events.contains("fleet: the parts do not agree after timestamp "), "{events}");
    let at = detail.split("after timestamp ").nth(1).unwrap();
    let at: u64 = at.split(':').next().unwrap().parse().unwrap();
    for part in ["a", "b"] {
        let samples = wait_for_samples(directory, part, at + 2 * 8192);
        assert!(samples.iter().all(|sample| *sample == OLD), "{part}");
        assert_eq!(signals(address, part), constant(OLD));
    }
}

#[test]
fn part_that_dies_between_the_steps_leaves_the_old_values_at_all_others() {
    let directory = tempfile::tempdir().unwrap();
    let parts = parts(directory.path());
    // It would end the other parts.
    let (parent, killed) = (parts.process.id().to_string(), process("c_0.yaml", &parts));
    between(directory.path(), move |_| {
        signal("-STOP", &parent);
        signal("-KILL", &killed);
        Vec::new()
    });
    let (_fleet, address) = fleet(directory.path());
    all_answer(&address);
    check_others(directory.path(), &address);
}

#[test]
fn part_that_hangs_between_the_steps_does_not_commit_later() {
    let directory = tempfile::tempdir().unwrap();
    let parts = parts(directory.path());
    let hung = process("c_0.yaml", &parts);
    let stopped = hung.clone();
    between(directory.path(), move |pass| {
        signal("-STOP", &stopped);
        // The request waits for the part, which goes on when its time is over.
        pass()
    });
    let (_fleet, address) = fleet(directory.path());
    all_answer(&address);
    let began = std::time::Instant::now();
    check_others(directory.path(), &address);
    std::thread::sleep(Duration::from_secs(6).saturating_sub(began.elapsed()));
    signal("-CONT", &hung);
    all_answer(&address);
    let until = samples(directory.path(), "c").len() as u64 + 6_000_000;
    let samples = wait_for_samples(directory.path(), "c", until);
    assert!(samples.iter().all(|sample| *sample == OLD));
}

#[test]
fn commit_whose_answer_is_lost_is_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let _parts = parts(directory.path());
    between(directory.path(), |pass| {
        pass();
        Vec::new()
    });
    let (_fleet, address) = fleet(directory.path());
    all_answer(&address);
    let (status, problem) = patch(&address, &["a", "b", "c"].map(|part| (part, constant(NEW))));
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 409 && detail.contains("nothing has changed at any part"), "{problem}");
    let until = samples(directory.path(), "a").len() as u64 + 5_000_000;
    for part in ["a", "b", "c"] {
        let samples = wait_for_samples(directory.path(), part, until);
        assert!(samples.iter().all(|sample| *sample == OLD), "{part}");
    }
}

#[test]
fn update_that_is_taken_back_leaves_the_values_scheduled_before_and_after_it() {
    const FIRST: i8 = 16;
    const LAST: i8 = 8;
    let directory = tempfile::tempdir().unwrap();
    let _parts = parts(directory.path());
    between(directory.path(), |pass| {
        pass();
        Vec::new()
    });
    let (_fleet, address) = fleet(directory.path());
    all_answer(&address);
    let newest = samples(directory.path(), "a").len() as u64;
    let [first, at, last] = [7, 9, 10].map(|seconds| newest + seconds * 1_000_000);
    let patch_at = |at, levels: &[(&str, String)]| {
        let path = format!("/api/v1/blocks?at={at}");
        let (status, body) = ask(&address, "PATCH", &path, &values(levels));
        assert!(!body.contains("\"is_late\":true"), "the machine is too slow for the test: {body}");
        (status, body)
    };
    let answer = patch_at(first, &[("a", constant(FIRST))]);
    assert_eq!(answer.0, 200, "{}", answer.1);
    let answer = patch_at(last, &[("a", constant(LAST))]);
    assert_eq!(answer.0, 200, "{}", answer.1);
    let (status, body) = patch_at(at, &["a", "c"].map(|part| (part, constant(NEW))));
    assert!(status == 409 && body.contains("nothing has changed at any part"), "{status} {body}");
    let samples = wait_for_samples(directory.path(), "a", last + 8192);
    let (before, after) = samples.split_at(first as usize);
    let (between, after) = after.split_at((last - first) as usize);
    assert!(before.iter().all(|sample| *sample == OLD));
    assert!(between.iter().all(|sample| *sample == FIRST));
    assert!(after.iter().all(|sample| *sample == LAST));
}

/// Address of `part`.
fn address_of(directory: &Path, part: &str) -> String {
    let manifest = fs::read_to_string(directory.join("parts/deployment.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let mut parts = manifest["parts"].as_array().unwrap().iter();
    let part = parts.find(|named| named["name"] == part).unwrap();
    part["server"]["address"].as_str().unwrap().to_owned()
}

/// Effective timestamp of the update that the part at `address` has committed.
fn committed(address: &str) -> u64 {
    let scheduled = || get(address, "/api/v1/flowgraph")["scheduled"].clone();
    let is_new = |value: &Value| value["value"] == constant(NEW);
    loop {
        let scheduled = scheduled();
        let found = scheduled.as_array().unwrap().iter().find(|value| is_new(value));
        if let Some(value) = found {
            return value["timestamp"].as_u64().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn values_that_clients_set_before_an_update_is_taken_back_stay() {
    const CLIENT: i8 = 16;
    let directory = tempfile::tempdir().unwrap();
    let _parts = parts(directory.path());
    let [a, b] = ["a", "b"].map(|part| address_of(directory.path(), part));
    let later = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&later);
    // Between the commits of `a` and `b` and the failure of `c`, a client changes `a` at once, and `b` a second after the
    // timestamp of the update.
    between(directory.path(), move |_| {
        let at = [&a, &b].map(|part| committed(part))[0];
        let set = |address: &str, part: &str, query: &str| {
            let body = values(&[(part, constant(CLIENT))]);
            let (status, made) = ask(address, "PATCH", &format!("/api/v1/blocks{query}"), &body);
            assert_eq!(status, 200, "{made}");
            let made: Value = serde_json::from_str(&made).unwrap();
            made["effective_timestamp"].as_u64().unwrap()
        };
        let at_once = set(&a, "a", "");
        let after = set(&b, "b", &format!("?at={}", at + 1_000_000));
        noted.lock().unwrap().extend([at, at_once, after]);
        Vec::new()
    });
    let (_fleet, address) = fleet(directory.path());
    all_answer(&address);
    let (status, problem) = patch(&address, &["a", "b", "c"].map(|part| (part, constant(NEW))));
    let [at, at_once, after] = later.lock().unwrap()[..] else { panic!("{problem}") };
    assert!(at_once < at && at < after, "the machine is too slow for the test");
    for (part, from) in [("a", at_once), ("b", after), ("c", u64::MAX)] {
        let samples = wait_for_samples(directory.path(), part, after + 8192);
        let (before, client) = samples.split_at((from as usize).min(samples.len()));
        assert!(before.iter().all(|sample| *sample == OLD), "{part}");
        assert!(client.iter().all(|sample| *sample == CLIENT), "{part}");
    }
    let detail = problem["detail"].as_str().unwrap();
    let expected = "nothing of the update remains at any part: \
                    part `a`: keeps its values and the later change of `s_a.signals` | \
                    part `b`: keeps its values and the later change of `s_b.signals` | \
                    part `c`: keeps its values";
    assert_eq!((status, detail), (409, expected));
}

#[test]
fn part_that_dies_after_its_commit_is_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let parts = parts(directory.path());
    let a = address_of(directory.path(), "a");
    // It would end the other parts.
    let (parent, killed) = (parts.process.id().to_string(), process("a_0.yaml", &parts));
    between(directory.path(), move |_| {
        committed(&a);
        signal("-STOP", &parent);
        signal("-KILL", &killed);
        Vec::new()
    });
    let (_fleet, address) = fleet(directory.path());
    all_answer(&address);
    let (status, problem) = patch(&address, &["a", "b", "c"].map(|part| (part, constant(NEW))));
    assert_eq!(status, 502, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    for said in ["part `a`: unknown: ", "part `b`: keeps its values", "part `c`: keeps its values"]
    {
        assert!(detail.contains(said), "{said}: {detail}");
    }
    for part in ["b", "c"] {
        let until = samples(directory.path(), part).len() as u64 + 5_000_000;
        let samples = wait_for_samples(directory.path(), part, until);
        assert!(samples.iter().all(|sample| *sample == OLD), "{part}");
    }
}

#[test]
fn part_that_is_no_fxgraph_is_named_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let _parts = parts(directory.path());
    // It sends bytes for ever.
    between(directory.path(), |_| b"HTTP/1.1 200 OK\r\n\r\n".repeat(1 << 20));
    let (_fleet, address) = fleet(directory.path());
    all_answer(&address);
    let (status, problem) = patch(&address, &["a", "c"].map(|part| (part, constant(NEW))));
    assert!(matches!(status, 409 | 502), "{problem}");
    let table =
        fxgraph(directory.path(), &["fleet", "parts"]).stdout(Stdio::piped()).output().unwrap();
    assert!(table.status.success(), "{}", String::from_utf8_lossy(&table.stderr));
    assert_eq!(signals(&address, "a"), constant(OLD));
}
