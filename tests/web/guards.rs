//! Admission of requests, and limits of clients.

use super::http::{self, FILTERED, Program, Response, connect};
use super::{ENDLESS, TUNABLE, needs, python, stop};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn slow_clients_are_disconnected_and_others_served() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), ENDLESS, &[]);
    // More connections than the limit, each with an unfinished head.
    let mut slow: Vec<TcpStream> = (0..200).map(|_| connect(program.address)).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /api/v1/health HTTP/1.1\r\nHost: local").unwrap();
    }
    assert_eq!(program.get("/api/v1/health").json()["state"], "running");
    let mut said = Vec::new();
    // The connection ends without a response, or with a timeout.
    slow[0].read_to_end(&mut said).unwrap();
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 408"), "{said:?}");
    stop(program);
}

/// Sets its flag when it is dropped.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn idle_connections_do_not_block_clients_with_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let token = "f2c1a97be0d94c55";
    fs::write(directory.path().join("token"), token).unwrap();
    let program = Program::start(directory.path(), ENDLESS, &["--token-file", "token"]);
    let (address, stop) = (program.address, AtomicBool::new(false));
    let bearer = format!("Bearer {token}");
    let with = [("Authorization", bearer.as_str())];
    let typical = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Silent connections, reopened whenever the server ends one.
                let mut idle = std::collections::VecDeque::new();
                while !stop.load(Ordering::Relaxed) {
                    idle.extend(TcpStream::connect(address));
                    if idle.len() > 150 {
                        idle.pop_front();
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_secs(1));
        let ask = |_| {
            let began = Instant::now();
            let answer = http::request(address, "GET", "/api/v1/health", &with, b"");
            assert_eq!(answer.status, 200, "{answer:?}");
            began.elapsed()
        };
        // Set even if a request fails, since the scope waits for its threads.
        let ending = Ending(&stop);
        let mut times: Vec<Duration> = (0..40).map(ask).collect();
        drop(ending);
        times.sort();
        times[20]
    });
    // Queued behind idle connections, it would take at least the time limit for a request's head.
    assert!(typical < Duration::from_secs(5), "{typical:?}");
    let mut silent = connect(program.address);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0, "a connection without a byte ends");
    assert_eq!(http::request(address, "POST", "/api/v1/flowgraph/stop", &with, b"").status, 202);
    assert!(program.end().status.success());
}

const TOKEN: &str = "f2c1a97be0d94c55";
const JSON: (&str, &str) = ("Content-Type", "application/json");
const UPDATE: &str = r#"{"source": {"signals": "cw(0.2, 1000)"}}"#;

/// A flowgraph that leaves the cores to others.
fn paced() -> String {
    TUNABLE.replace("signals:", "paced: true, signals:")
}

/// Sends `requests` live updates, one after the other, while `flood` runs again and again in another thread; all must
/// be made.
fn update_during(program: &Program, requests: usize, flood: impl FnMut() + Send) {
    let stop = AtomicBool::new(false);
    let bearer = format!("Bearer {TOKEN}");
    std::thread::scope(|scope| {
        let (mut flood, stop) = (flood, &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                flood();
            }
        });
        // Set even if a request fails, since the scope waits for its threads.
        let _ending = Ending(stop);
        std::thread::sleep(Duration::from_millis(500));
        for _ in 0..requests {
            let headers = [JSON, ("Authorization", bearer.as_str())];
            let body = UPDATE.as_bytes();
            let made = http::request(program.address, "PATCH", "/api/v1/blocks", &headers, body);
            assert_eq!(made.status, 200, "{made:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

/// Programs that require a token, and not.
fn with_token_and_without(run: impl Fn(&Program)) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("token"), TOKEN).unwrap();
    for arguments in [&["--token-file", "token"][..], &[]] {
        let program = Program::start(directory.path(), &paced(), arguments);
        let bearer = format!("Bearer {TOKEN}");
        let with = [("Authorization", bearer.as_str())];
        let state = || http::request(program.address, "GET", "/api/v1/health", &with, b"").json();
        while state()["state"] != "running" {
            std::thread::sleep(Duration::from_millis(20));
        }
        run(&program);
        let stop = http::request(program.address, "POST", "/api/v1/flowgraph/stop", &with, b"");
        assert_eq!(stop.status, 202, "{stop:?}");
        assert!(program.end().status.success());
    }
}

#[test]
fn slow_bodies_do_not_keep_others_from_being_served() {
    with_token_and_without(|program| {
        let head = format!(
            "PATCH /api/v1/blocks HTTP/1.1\r\nHost: localhost\r\n{}: {}\r\nContent-Length: 1000\r\n\r\n{{",
            JSON.0, JSON.1
        );
        let begin = || {
            let mut stream = TcpStream::connect(program.address).ok()?;
            stream.write_all(head.as_bytes()).ok()?;
            Some(stream)
        };
        let mut slow: Vec<Option<TcpStream>> = (0..200).map(|_| begin()).collect();
        update_during(program, 20, || {
            for stream in &mut slow {
                if stream.as_mut().is_none_or(|stream| stream.write_all(b" ").is_err()) {
                    *stream = begin();
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        });
    });
}

#[test]
fn connections_that_are_closed_at_once_do_not_keep_others_from_being_served() {
    with_token_and_without(|program| {
        update_during(program, 6, || {
            let second = Duration::from_secs(1);
            let connect = |_| TcpStream::connect_timeout(&program.address, second).ok();
            drop((0..1000).map_while(connect).collect::<Vec<_>>());
        });
    });
}

#[test]
fn changes_for_all_antennas_at_once_wait_for_their_turns() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), &paced(), &[]);
    let (address, ready) = (program.address, std::sync::Barrier::new(256));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let update = || {
            ready.wait();
            loop {
                let body = UPDATE.as_bytes();
                let answer = http::request(address, "PATCH", "/api/v1/blocks", &[JSON], body);
                // A busy machine does not make 256 changes within the time limit of a turn.
                if !answer.body.contains("had no turn in") {
                    return answer.status;
                }
            }
        };
        let all: Vec<_> = (0..256).map(|_| scope.spawn(update)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(statuses, [200; 256]);
    stop(program);
}

#[test]
fn requests_without_token_do_not_use_the_limit_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let token = "f2c1a97be0d94c55";
    fs::write(directory.path().join("token"), token).unwrap();
    let program = Program::start(directory.path(), ENDLESS, &["--token-file", "token"]);
    let bearer = format!("Bearer {token}");
    let with = [("Authorization", bearer.as_str())];
    let one = "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n";
    let mut flood = connect(program.address);
    let all = format!("{one}\r\n").repeat(2000) + one + "Connection: close\r\n\r\n";
    let mut sender = flood.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(all.as_bytes()));
    let mut answers = String::new();
    flood.read_to_string(&mut answers).unwrap();
    sending.join().unwrap().unwrap();
    assert!(answers.contains("HTTP/1.1 429 "));
    let stop = http::request(program.address, "POST", "/api/v1/flowgraph/stop", &with, b"");
    assert_eq!(stop.status, 202, "{stop:?}");
    assert!(program.end().status.success());
}

#[test]
fn malformed_and_cross_site_requests_are_answered_with_problems() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), ENDLESS, &[]);
    let path = "/api/v1/blocks/source/outputs/output/stream";
    let image = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")];
    http::request(program.address, "GET", path, &image, b"").problem(403);
    for path in ["/", "/docs/", "/api/v1/health", "/api/v1/none", "/metrics"] {
        let answer = program.get(path);
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{path}");
    }
    for path in ["/", "/docs/api/", "/docs/api/swagger-ui-bundle.js"] {
        let policy = program.get(path).header("content-security-policy").unwrap_or("").to_owned();
        assert!(policy.contains("script-src 'self';"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
    }
    let long = "x".repeat(70_000);
    let raw = [
        (
            400,
            "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n".to_owned(),
        ),
        (400, "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()),
        (400, "GET / HTTP/1.1\r\nHost localhost\r\n\r\n".to_owned()),
        (400, "G\0T / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()),
        (400, "GET / HTTP/9.1\r\nHost: localhost\r\n\r\n".to_owned()),
        (400, "\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n".to_owned()),
        (414, format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n")),
        (431, format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n")),
        // After a valid request on the same connection.
        (400, "GET /none HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP\r\n\r\n".to_owned()),
    ];
    for (status, text) in raw {
        let mut stream = connect(program.address);
        // The response may arrive before the whole request is sent.
        let _ = stream.write_all(text.as_bytes());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let said = String::from_utf8(bytes).unwrap();
        let start = &text[..text.len().min(60)];
        let last = said.rfind("HTTP/1.1 ").unwrap_or_else(|| panic!("{start}: no answer"));
        let answer: Response = http::read(&said.as_bytes()[last..]);
        // A long target is rejected as such, or as part of a head that is too long.
        let status = if status == 414 && answer.status == 431 { 431 } else { status };
        answer.problem(status);
    }
    stop(program);
}

/// Sends a change of the block `sink`.
fn patch(program: &Program, query: &str, change: &serde_json::Value) -> Response {
    let json = [("Content-Type", "application/json")];
    let path = format!("/api/v1/blocks/sink{query}");
    http::request(program.address, "PATCH", &path, &json, change.to_string().as_bytes())
}

fn put(program: &Program, query: &str, flowgraph: &str) -> Response {
    let yaml = [("Content-Type", "application/yaml")];
    let path = format!("/api/v1/flowgraph{query}");
    http::request(program.address, "PUT", &path, &yaml, flowgraph.as_bytes())
}

/// Flowgraph in which the author names a file, with another sink without a file.
fn authored() -> String {
    FILTERED.to_owned()
        + "  kept: {kind: file_sink, input: source.pol1, parameters: {path: \"../own/kept_{timestamp}.npy\", max_frames: 2}}\n"
}

#[test]
fn client_files_are_rejected_without_an_allowed_directory() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    fs::create_dir(&home).unwrap();
    let secret = "a_word_that_no_answer_may_have";
    fs::write(home.join("token"), secret).unwrap();
    fs::write(directory.path().join("outside.yaml"), format!("{secret}: 1\n")).unwrap();
    let program = Program::running(&home, &authored(), &[]);
    let inside = home.join("x.npy").display().to_string();
    for path in ["x.npy", "../x.npy", "/tmp/fxgraph_x.npy", &inside] {
        for kind in ["file_sink", "recorder"] {
            for query in ["", "?dry_run=true"] {
                let change = serde_json::json!({"kind": kind, "parameters": {"path": path}});
                let said = patch(&program, query, &change);
                assert!(said.problem(422).contains("clients may not write"), "{said:?}");
                assert_eq!(said.json()["diagnostics"][0]["code"], "E0403");
            }
        }
    }
    let source = |path: &str| {
        let raw = "{dtype: i8, axes: [{name: sample, len: 16}], samples_per_frame: 16}";
        format!(
            "flowgraph: read\nblocks:\n  a: {{kind: file_source, parameters: {{path: '{path}', raw: {raw}}}}}\n  b: {{kind: null_sink, input: a}}\n"
        )
    };
    for path in ["token", "/etc/passwd", "/proc/self/environ", "/proc/self/fd/0", "/dev/zero"] {
        for query in ["?dry_run=true", "?restart=true"] {
            let said = put(&program, query, &source(path));
            assert!(said.problem(422).contains("clients may not read"), "{said:?}");
        }
        // Computed paths are paths too.
        let computed =
            source("${p}").replace("blocks:", &format!("parameters: {{p: '{path}'}}\nblocks:"));
        put(&program, "?dry_run=true", &computed).problem(422);
    }
    symlink("../outside.yaml", home.join("link.yaml")).unwrap();
    assert!(Command::new("mkfifo").arg(home.join("pipe")).status().unwrap().success());
    let includes =
        ["token", "../outside.yaml", "link.yaml", "pipe", "/etc/passwd", "/proc/self/environ"];
    for include in includes {
        let text = format!("flowgraph: g\ninclude: ['{include}']\nblocks: {{}}\n");
        let said = put(&program, "?dry_run=true", &text);
        said.problem(422);
        assert!(!said.body.contains(secret) && !said.body.contains("root:"), "{said:?}");
    }
    assert!(!home.join("x.npy").exists() && !directory.path().join("x.npy").exists());
    // Files named by the author may be sent back.
    let running = program.get("/api/v1/flowgraph").json()["resolved_yaml"].clone();
    assert_eq!(put(&program, "", running.as_str().unwrap()).status, 200);
    assert_eq!(put(&program, "?dry_run=true", &authored()).status, 200);
    stop(program);
    assert!(directory.path().join("own").is_dir());
}

#[test]
fn client_files_are_limited_to_their_directory() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    fs::create_dir_all(home.join("files")).unwrap();
    symlink("../..", home.join("files/up")).unwrap();
    symlink("../../caught.npy", home.join("files/caught.npy")).unwrap();
    fs::create_dir(home.join("library")).unwrap();
    fs::write(home.join("library/part.yaml"), "parameters: {unused: 1}\n").unwrap();
    let program = Program::running(&home, &authored(), &["--files", "files"]);
    let sink = |path: &str| serde_json::json!({"kind": "file_sink", "parameters": {"path": path}});
    let out = directory.path().join("x.npy").display().to_string();
    for path in ["../x.npy", "up/x.npy", "caught.npy", "a/../../x.npy", &out] {
        let said = patch(&program, "", &sink(path));
        assert!(said.problem(422).contains("is outside the directory"), "{said:?}");
    }
    let made = patch(&program, "", &sink("new/a.npy"));
    assert_eq!(made.status, 200, "{made:?}");
    let written = home.join("files/new/a.npy");
    let began = Instant::now();
    while !written.is_file() {
        assert!(began.elapsed() < Duration::from_secs(30), "a file begins with the first frame");
        std::thread::sleep(Duration::from_millis(10));
    }
    let back = serde_json::json!({"kind": "null_sink"});
    assert_eq!(patch(&program, "", &back).status, 200);
    assert!(written.is_file() && written.with_extension("npy.json").is_file());
    let replay = "flowgraph: replay\ninclude: [library/part.yaml]\nblocks:\n  a: {kind: file_source, parameters: {path: new/a.npy}}\n  b: {kind: null_sink, input: a}\n";
    let said = put(&program, "?dry_run=true", replay);
    assert_eq!(said.status, 200, "{said:?}");
    assert!(Command::new("mkfifo").arg(home.join("files/p.npy.json")).status().unwrap().success());
    put(&program, "?dry_run=true", &replay.replace("new/a.npy", "p.npy")).problem(422);
    stop(program);
    assert!(
        !directory.path().join("caught.npy").exists() && !directory.path().join("x.npy").exists()
    );
}

#[test]
fn link_changed_later_cannot_leave_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let outside = directory.path().join("outside");
    for made in [&home, &outside, &home.join("files"), &home.join("files/real")] {
        fs::create_dir(made).unwrap();
    }
    let link = home.join("files/link");
    symlink("real", &link).unwrap();
    let arguments = ["--files", "files", "--duration", "20s"];
    let program = Program::running(&home, &authored(), &arguments);
    let parameters = serde_json::json!({"path": "link/{timestamp}.npy", "frames_per_file": 1});
    let sink = serde_json::json!({"kind": "file_sink", "parameters": parameters});
    let made = patch(&program, "", &sink);
    assert_eq!(made.status, 200, "{made:?}");
    let began = Instant::now();
    while fs::read_dir(home.join("files/real")).unwrap().next().is_none() {
        assert!(began.elapsed() < Duration::from_secs(15), "no file was written");
        std::thread::sleep(Duration::from_millis(10));
    }
    let draft = home.join("files/draft");
    symlink("../../outside", &draft).unwrap();
    fs::rename(draft, link).unwrap();
    let output = program.end();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("leads out of the allowed directory"), "{said}");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
}

#[test]
fn reading_and_writing_are_allowed_separately() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), &authored(), &["--read-files", "."]);
    let sink = serde_json::json!({"kind": "file_sink", "parameters": {"path": "a.npy"}});
    assert!(patch(&program, "", &sink).problem(422).contains("clients may not write"));
    stop(program);
}

#[test]
fn clients_with_live_control_change_live_parameters_only() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), TUNABLE, &["--control", "live"]);
    assert_eq!(program.get("/api/v1/flowgraph").json()["control"], "live");
    let json = [("Content-Type", "application/json")];
    let ask = |method, path: &str, body: &str| {
        http::request(program.address, method, path, &json, body.as_bytes())
    };
    let kind = r#"{"kind": "null_sink"}"#;
    let said = ask("PATCH", "/api/v1/blocks/a?dry_run=true", kind);
    assert_eq!(said.problem(403), "clients may change live parameters only");
    ask("POST", "/api/v1/blocks/a/shadow", kind).problem(403);
    put(&program, "", TUNABLE).problem(403);
    put(&program, "?dry_run=true", TUNABLE).problem(403);
    let signals = r#"{"source": {"signals": "cw(0.2, 1000)"}}"#;
    let made = ask("PATCH", "/api/v1/blocks", signals);
    assert_eq!(made.status, 200, "{made:?}");
    stop(program);
}

#[test]
fn other_hosts_other_origins_and_floods_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let origin = "https://board.example";
    let program = Program::running(directory.path(), ENDLESS, &["--cors-origin", origin]);
    let ask = |method: &str, headers: &[(&str, &str)], body: &[u8]| {
        http::request(program.address, method, "/api/v1/flowgraph/stop", headers, body)
    };
    ask("POST", &[("Host", "evil.example")], b"").problem(421);
    ask("POST", &[("Origin", "https://evil.example")], b"").problem(403);
    let preflight = [("Origin", origin), ("Access-Control-Request-Method", "POST")];
    let allowed = ask("OPTIONS", &preflight, b"");
    assert_eq!(allowed.header("access-control-allow-origin"), Some(origin));
    ask("POST", &[], &vec![b' '; 2 << 20]).problem(413);
    assert_eq!(program.get("/api/v1/health").json()["state"], "running", "no request was executed");
    // A burst on one connection, several times the limit per second.
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
fn token_is_required_for_everything_about_the_flowgraph() {
    let directory = tempfile::tempdir().unwrap();
    let token = "f2c1a97be0d94c55";
    fs::write(directory.path().join("token"), token).unwrap();
    let program = Program::start(directory.path(), ENDLESS, &["--token-file", "token"]);
    for path in ["/api/v1/flowgraph", "/api/v1/blocks/sink", "/api/v1/events", "/metrics"] {
        let rejected = program.get(path);
        assert_eq!(rejected.problem(401), "this flowgraph requires a token");
        let wrong = [("Authorization", "Bearer 0123456789abcdef")];
        let rejected = http::request(program.address, "GET", path, &wrong, b"");
        assert_eq!(rejected.problem(401), "the token is wrong: it is not that of this flowgraph");
        assert_eq!(rejected.header("www-authenticate"), Some("Bearer"));
    }
    for path in ["/", "/docs/", "/docs/api/", "/api/v1/openapi.json"] {
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
fn listening_for_other_machines_requires_a_token() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("flowgraph.yaml"), ENDLESS).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(["run", "flowgraph.yaml", "--listen", "0.0.0.0:0"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("set a token with `--token-file`"), "{said}");
}

#[test]
fn server_with_certificate_speaks_tls_only() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("cert.pem"), include_str!("../certificates/localhost.pem"))
        .unwrap();
    fs::write(directory.path().join("key.pem"), include_str!("../certificates/localhost.key"))
        .unwrap();
    let arguments = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    let program = Program::start(directory.path(), ENDLESS, &arguments);
    let port = program.address.port();
    let fetched = Command::new(python::python())
        .args(["-c", FETCH, &port.to_string()])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&fetched.stdout).into_owned();
    assert!(said.contains("\"faults\":0"), "{said}{}", String::from_utf8_lossy(&fetched.stderr));
    // Plain HTTP gets no response.
    let mut plain = connect(program.address);
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
    program.signal("-INT");
    assert!(program.end().status.success());
}

/// Sends a request over TLS, trusting only the certificate in cert.pem.
const FETCH: &str = "
import ssl, sys, urllib.request
trust = ssl.create_default_context(cafile='cert.pem')
url = f'https://localhost:{sys.argv[1]}/api/v1/health'
print(urllib.request.urlopen(url, context=trust).read().decode())
";

#[test]
fn fuzzed_requests_cause_no_server_errors_and_no_drops() {
    if !needs::schemathesis() {
        return;
    }
    let [directory, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    // A free port; other tests use no fixed ports.
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let program = Program::running(directory.path(), &RECEIVER.replace("ADDRESS", &free), &[]);
    let sender = Program::start(other.path(), &SENDER.replace("ADDRESS", &free), &[]);
    let received = || {
        let source = program.get("/api/v1/blocks/source").json();
        source["totals"]["frames_out"].as_u64().unwrap()
    };
    while received() == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Meanwhile, other clients never finish their requests, or never read.
    let mut slow: Vec<TcpStream> = (0..40).map(|_| connect(program.address)).collect();
    for (index, stream) in slow.iter_mut().enumerate() {
        let path = if index < 8 { "/api/v1/events/stream" } else { "/metrics" };
        let end = if index < 20 { "\r\n\r\n" } else { "" };
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost{end}").unwrap();
    }
    // Views of one frame, not streams.
    let view = "GET /api/v1/blocks/{name}/outputs/{port}/views/{view}";
    let once =
        format!("[[operations]]\ninclude-name = \"{view}\"\nparameters = {{ once = true }}\n");
    fs::write(directory.path().join("schemathesis.toml"), once).unwrap();
    let python = python::environment("tests-schemathesis", "tests/schemathesis.txt").unwrap();
    let output = Command::new(python.with_file_name("schemathesis"))
        .args(["run", &format!("http://{}/api/v1/openapi.json", program.address)])
        // These requests end the run, or last until its end.
        .args(["--exclude-path-regex", "/(stop|abort|stream|v1/views)$"])
        .args(["--max-examples=10", "--request-timeout=30", "--rate-limit=50/s", "--no-color"])
        // Valid requests may name unknown blocks.
        .args(["--generation-deterministic", "--exclude-checks=positive_data_acceptance"])
        .current_dir(directory.path())
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

/// SPEAD stream at a constant rate, in which the receiver detects missing heaps.
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
    parameters: {stream: digitiser, addresses: ['ADDRESS'], adc_sample_rate_hz: 524288, samples_per_frame: 16384, stop_after_senders: 1}
  sink: {kind: null_sink, input: source}
";

/// Answer to a dry run of a swap of `f` for a block in Python.
fn swap_for_code(program: &Program, headers: &[(&str, &str)], file: &str) -> String {
    let body = format!(r#"{{"kind": "python", "parameters": {{"file": "{file}", "class": "B"}}}}"#);
    let headers = [&[("Content-Type", "application/json")], headers].concat();
    let path = "/api/v1/blocks/f?dry_run=true";
    let answer = http::request(program.address, "PATCH", path, &headers, body.as_bytes());
    // The file has no class `B`, so that code that may run is rejected for this reason.
    answer.problem(422);
    answer.body
}

#[test]
fn code_of_clients_must_be_below_its_directory_and_come_from_this_machine() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("code")).unwrap();
    fs::write(directory.path().join("code/flagger.py"), "A = 1\n").unwrap();
    fs::write(directory.path().join("outside.py"), "A = 1\n").unwrap();
    let outside = directory.path().join("outside.py");
    symlink(&outside, directory.path().join("code/link.py")).unwrap();
    let may_not = "clients may not run code that the flowgraph does not name";
    let program = Program::running(directory.path(), FILTERED, &[]);
    let said = swap_for_code(&program, &[], "code/flagger.py");
    assert!(said.contains(may_not) && said.contains("fxgraph run --code DIR"), "{said}");
    stop(program);

    let program = Program::running(directory.path(), FILTERED, &["--code", "code"]);
    let said = swap_for_code(&program, &[], "code/flagger.py");
    assert!(!said.contains(may_not) && !said.contains("--code"), "{said}");
    for file in ["outside.py", "code/link.py", "code/../outside.py", "code/none.py"] {
        let said = swap_for_code(&program, &[], file);
        assert!(said.contains("E0403"), "{file}: {said}");
    }
    // Requests that a proxy or a fleet on this machine passes on are not from this machine.
    for header in [("X-Forwarded-For", "192.0.2.1"), ("Forwarded", "for=unknown"), ("Via", "1.1 p")]
    {
        let said = swap_for_code(&program, &[header], "code/flagger.py");
        assert!(said.contains(may_not) && said.contains("from the machine"), "{said}");
    }
    stop(program);

    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(["run", "flowgraph.yaml", "--listen", "0", "--code", "code", "--files", "."])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("the directory of `--code`"), "{said}");
}
