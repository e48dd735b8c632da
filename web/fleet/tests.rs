//! Parts that answer, give no answer, are not there, or reject the token.
#![allow(clippy::unwrap_used)]

use super::*;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use fxgraph_api::flowgraph::FlowgraphPage;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;

/// Time limit of parts whose server hangs, and that of others, whose server answers within it on a busy machine, too.
const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(10);

/// How the server of a part answers.
#[derive(Clone, Copy)]
enum Mode {
    Answers,
    /// It is too busy to answer in time.
    Hangs,
    /// It ends connections.
    Resets,
    /// It has too many requests.
    Status(u16),
    /// It is that of another program.
    Foreign,
}

/// The server of a part.
struct Server {
    address: String,
    mode: Arc<Mutex<Mode>>,
}

impl Server {
    fn start(mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mode = Arc::new(Mutex::new(mode));
        let of_server = Arc::clone(&mode);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mode = *of_server.lock().unwrap();
                thread::spawn(move || answer(stream.unwrap(), mode));
            }
        });
        Self { address, mode }
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }
}

fn answer(mut stream: TcpStream, mode: Mode) {
    let mut head = [0; 4096];
    let length = stream.read(&mut head).unwrap_or_default();
    let head = String::from_utf8_lossy(&head[..length]).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match mode {
        Mode::Hangs => return thread::sleep(4 * SHORT),
        Mode::Resets => return,
        Mode::Status(status) => (status, json!({})),
        Mode::Foreign => (200, json!("hello")),
        Mode::Answers if path.contains("events") => {
            (200, json!({"last": 0, "forgotten": 0, "events": []}))
        }
        Mode::Answers if path.contains("health") => {
            let health = json!({"state": "running", "faults": 0, "survived_faults": 0, "elapsed_seconds": 1.0});
            (200, health)
        }
        Mode::Answers if path.contains("blocks") => (200, json!([{"name": "sink"}])),
        Mode::Answers => (200, json!(page())),
    };
    let body = body.to_string();
    let _ = write!(
        stream,
        "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
}

fn page() -> FlowgraphPage {
    let page = json!({
        "name": "g", "state": "running", "is_held": false, "control": "full", "elapsed_seconds": 1.0,
        "config_id": "0123456789abcdef", "config_hash": "ab".repeat(32), "steady_state_timestamp": 0, "version": "1",
        "parameters": [], "faults": [], "graph": {"groups": [], "blocks": [], "edges": []}, "resolved_yaml": "",
    });
    serde_json::from_value(page).unwrap()
}

fn deployed(address: Option<&str>) -> Deployed {
    let config_hash = "ab".repeat(32);
    let address = address.map(str::to_owned);
    Deployed { name: "b".to_owned(), address, config_hash, token: None }
}

fn part(address: Option<&str>) -> Part {
    Part::new(deployed(address), LONG)
}

/// Looks at `part` until it answers.
async fn look_until_it_answers(part: &Part, log: &Log) {
    for _ in 0..100 {
        part.look(log).await;
        if part.info().answers {
            return;
        }
    }
    panic!("no answer: {:?}", part.info());
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// An address where nothing listens.
fn nowhere() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn part_without_an_answer_keeps_what_was_known_and_is_a_trouble_after_three_looks() {
    for silence in [Mode::Hangs, Mode::Resets, Mode::Status(503), Mode::Status(429)] {
        let server = Server::start(Mode::Answers);
        let limit = if matches!(silence, Mode::Hangs) { SHORT } else { LONG };
        let part = Part::new(deployed(Some(&server.address)), limit);
        let log = Log::default();
        run(async {
            look_until_it_answers(&part, &log).await;
            // The answer to this request is kept, too.
            for _ in 0..100 {
                if part.get::<Value>("/api/v1/blocks").await.is_ok() {
                    break;
                }
            }
            look_until_it_answers(&part, &log).await;
            server.set(silence);
            for look in 1..=MISSED {
                part.look(&log).await;
                let info = part.info();
                assert_eq!((&*info.contact, info.answers), ("no_answer", false));
                assert_eq!(info.is_healthy, look < MISSED, "look {look}: {info:?}");
                assert_eq!(info.state.as_deref(), Some("running"), "what was last known");
                assert_eq!(part.trouble().is_some(), look == MISSED);
                // Nothing is reported as absent.
                assert_eq!(part.get::<Value>("/api/v1/blocks").await.unwrap()[0]["name"], "sink");
                assert_eq!(part.flowgraph().await.unwrap(), page());
            }
            let info = part.info();
            assert!(info.silent_seconds.is_some_and(|silent| silent > 0.0));
            assert!(info.troubles[0].starts_with("no answer for "), "{:?}", info.troubles);
            server.set(Mode::Answers);
            look_until_it_answers(&part, &log).await;
            let info = part.info();
            assert!(info.is_healthy && info.answers && info.silent_seconds.is_none(), "{info:?}");
        });
    }
}

#[test]
fn request_without_an_answer_is_no_look() {
    let server = Server::start(Mode::Answers);
    let (part, log) = (part(Some(&server.address)), Log::default());
    run(async {
        part.look(&log).await;
        server.set(Mode::Resets);
        for _ in 0..=MISSED {
            assert!(part.bytes("/metrics").await.is_err());
        }
        assert_eq!((part.info().contact.as_str(), part.trouble()), ("no_answer", None));
        // A part of an earlier version does not know all paths.
        server.set(Mode::Answers);
        part.look(&log).await;
        server.set(Mode::Status(404));
        assert!(part.get::<Value>("/api/v1/shadows").await.is_err());
        assert_eq!(part.info().contact, "answers");
    });
}

#[test]
fn part_that_is_not_there_is_left_out_at_once() {
    let server = Server::start(Mode::Answers);
    let (part, log) = (part(Some(&server.address)), Log::default());
    let is_absent = |part: &Part, why: &str| {
        let info = part.info();
        assert_eq!((&*info.contact, info.is_healthy, info.state), ("not_there", false, None));
        assert!(info.troubles[0].contains(why), "{:?}", info.troubles);
        assert!(part.page().is_err());
    };
    run(async {
        part.look(&log).await;
        part.deploy(deployed(Some(&nowhere())));
        part.look(&log).await;
        is_absent(&part, "is not there: cannot connect");
        part.deploy(deployed(None));
        part.look(&log).await;
        is_absent(&part, "is not there: the engine has not placed it");
        server.set(Mode::Foreign);
        part.deploy(deployed(Some(&server.address)));
        part.look(&log).await;
        is_absent(&part, "not that of fxgraph");
    });
}

#[test]
fn part_that_rejects_the_token_is_there() {
    let server = Server::start(Mode::Status(401));
    let (part, log) = (part(Some(&server.address)), Log::default());
    run(part.look(&log));
    let info = part.info();
    assert_eq!((&*info.contact, info.is_healthy), ("rejects_token", false));
    assert_eq!(info.troubles, ["rejects the token of the deployment"]);
}

#[test]
fn one_look_asks_a_silent_part_again() {
    let server = Server::start(Mode::Resets);
    let address = server.address.clone();
    let find: Find = Arc::new(move || Ok(vec![deployed(Some(&address))]));
    let parts = look_once(Arc::clone(&find)).unwrap();
    assert!(!parts[0].is_healthy && parts[0].contact == "no_answer", "{parts:?}");
    server.set(Mode::Answers);
    assert!(look_once(find).unwrap()[0].is_healthy);
}

/// Status and body of the answer of a fleet with one part.
fn ask(fleet: &Fleet, path: &str) -> (u16, String) {
    run(async {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let router = router(fleet.clone());
        let answer = TowerToHyperService::new(router).call(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8_lossy(&body).into_owned())
    })
}

#[test]
fn fleet_tells_a_silent_part_from_one_that_is_gone_and_from_one_with_another_token() {
    let server = Server::start(Mode::Answers);
    let address = Arc::new(Mutex::new(server.address.clone()));
    let of_find = Arc::clone(&address);
    let find: Find = Arc::new(move || Ok(vec![deployed(Some(&of_find.lock().unwrap()))]));
    let fleet = Fleet::new("g".to_owned(), find, Permission::Full);
    let look = || run(fleet.look());
    let metric = |name: &str| {
        let text = ask(&fleet, "/metrics").1;
        let sample = format!("{name}{{part=\"b\",flowgraph=\"g\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&sample));
        line.map(|value| value.parse::<f64>().unwrap())
    };
    look();
    assert_eq!(ask(&fleet, "/api/v1/health").0, 200);
    server.set(Mode::Resets);
    for missed in 1..=MISSED {
        look();
        let is_trouble = missed == MISSED;
        let (status, body) = ask(&fleet, "/api/v1/health");
        assert_eq!(status, if is_trouble { 503 } else { 200 }, "{body}");
        assert_eq!(body.contains("part `b`: no answer for "), is_trouble, "{body}");
        let (status, body) = ask(&fleet, "/api/v1/flowgraph");
        assert!(status == 200 && body.contains("no answer for ") == is_trouble, "{body}");
        assert_eq!(metric("fxgraph_part_up"), Some(f64::from(u8::from(!is_trouble))));
        assert!(metric("fxgraph_part_silent_seconds").unwrap() > 0.0);
    }
    server.set(Mode::Status(401));
    look();
    let (status, body) = ask(&fleet, "/api/v1/health");
    assert!(status == 503 && body.contains("rejects the token"), "{status} {body}");
    assert_eq!(ask(&fleet, "/api/v1/health/live").0, 200, "it lives");
    let samples = ["fxgraph_part_up", "fxgraph_part_healthy", "fxgraph_part_rejects_token"];
    assert_eq!(samples.map(metric), [Some(1.0), None, Some(1.0)]);
    *address.lock().unwrap() = nowhere();
    look();
    let (status, body) = ask(&fleet, "/api/v1/health");
    assert!(status == 503 && body.contains("part `b`: is not there: "), "{status} {body}");
    assert_eq!(ask(&fleet, "/api/v1/health/live").0, 503);
    let samples = ["fxgraph_part_up", "fxgraph_part_healthy", "fxgraph_part_silent_seconds"];
    assert_eq!(samples.map(metric), [Some(0.0), Some(0.0), Some(0.0)]);
}
