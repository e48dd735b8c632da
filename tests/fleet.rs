//! `fxgraph fleet` on the parts of `fxgraph run --as-parts`.

mod updates;

use crate::support::needs;
use crate::support::repository::root;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// A paced sender on one host, its reader on another.
const PAIR: &str = "flowgraph: pair
hosts: {a: {}, b: {}}
network: {multicast: 239.102.0.0/24}
blocks:
  source:
    kind: digitiser_simulator
    host: a
    parameters: {adc_sample_rate_hz: 1000000, samples_per_frame: 8192, paced: true, signals: wgn(0.1)}
  end: {kind: null_sink, host: a, input: source.pol1}
  sink: {kind: null_sink, host: b, input: source.pol0}
";

fn fxgraph(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(["--color", "never"]).args(arguments).current_dir(directory);
    command
}

/// A program that is killed when the test ends.
struct Running {
    process: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Running {
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut command = fxgraph(directory, arguments);
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        Self { process, stderr, said: String::new() }
    }

    fn wait_for(&mut self, text: &str, count: usize) {
        while self.said.matches(text).count() < count {
            assert!(self.stderr.read_line(&mut self.said).unwrap() > 0, "{}", self.said);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The parts of `PAIR`, and a fleet with its URL.
fn parts(directory: &Path) -> Running {
    fs::write(directory.join("pair.yaml"), PAIR).unwrap();
    let mut parts = Running::start(directory, &["run", "pair.yaml", "--as-parts", "-o", "parts"]);
    parts.wait_for(": runs at", 2);
    parts
}

fn fleet(directory: &Path) -> (Running, String) {
    let mut fleet = Running::start(directory, &["fleet", "parts", "--listen", "0"]);
    fleet.wait_for("serving ", 1);
    let line = fleet.said.lines().find_map(|line| line.split("serving http://").nth(1)).unwrap();
    let address = line.trim().to_owned();
    (fleet, address)
}

/// Status and body of the answer to a request.
fn ask(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn get(address: &str, path: &str) -> Value {
    let (status, body) = ask(address, "GET", path, "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// The commands of the README about several hosts.
fn commands_of_the_readme() -> Vec<String> {
    let readme = root().join("README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let (_, rest) = readme.split_once("<!-- several-hosts -->\n```sh\n").unwrap();
    let (commands, _) = rest.split_once("```").unwrap();
    let command = |line: &str| line.split(" #").next().unwrap().trim().to_owned();
    commands.lines().map(command).filter(|line| !line.is_empty()).collect()
}

#[test]
fn readme_lines_for_several_hosts_lead_from_a_rehearsal_to_a_deployment() {
    let directory = tempfile::tempdir().unwrap();
    let commands = commands_of_the_readme();
    let words: Vec<Vec<&str>> =
        commands.iter().map(|line| line.split_whitespace().skip(1).collect()).collect();
    let [run, fleet, top, deploy] = &words[..] else { panic!("{commands:?}") };
    // A free port in place of the usual one, so that the test disturbs no other.
    let at = run.iter().position(|word| *word == "--listen").unwrap() + 1;
    let run = [&run[..at], &["127.0.0.1:0"], &run[at..]].concat();
    let mut rehearsal = Running::start(directory.path(), &run);
    rehearsal.wait_for(": runs at", 3);
    let address = rehearsal.said.lines().find_map(|line| line.strip_prefix("serving http://"));
    let address = address.unwrap().trim().to_owned();

    let told = |arguments: &[&str]| {
        let output = fxgraph(directory.path(), arguments)
            .env("FXGRAPH_CONNECT", format!("http://{address}"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
        said
    };
    // The receiver may wait for the first frames of the last sender.
    let is_well = || fxgraph(directory.path(), fleet).output().unwrap().status.success();
    wait_until("all parts pass frames", is_well);
    let parts = told(fleet);
    assert_eq!(parts.matches(" running ").count(), 3, "{parts}");
    let page = get(&address, "/api/v1/flowgraph");
    assert_eq!(page["state"], "running");
    let table = told(&[&top[..], &["--once"]].concat());
    assert!(table.contains("visibilities") && table.contains("digitiser[0..3]"), "{table}");
    wait_until("gauges of all parts", || {
        let history = get(&address, "/api/v1/history?gauge=digitiser_level_dbfs&seconds=5");
        history["series"].as_array().unwrap().len() == 8
    });
    // The directory of the deployment, which is started with the next command that it prints.
    let next = told(deploy);
    let out = deploy[deploy.iter().position(|word| *word == "-o").unwrap() + 1];
    assert!(next.contains(&format!("{out}/array.sh start")), "{next}");
    assert!(next.contains(&format!("fxgraph fleet {out}")), "{next}");
    assert!(directory.path().join(out).join("array.sh").is_file());
}

#[test]
fn run_as_parts_rejects_options_of_a_single_process() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("pair.yaml"), PAIR).unwrap();
    let arguments = ["run", "pair.yaml", "--as-parts", "--listen", "0", "--hold"];
    let output = fxgraph(directory.path(), &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("belong to the parts, not to the fleet"), "{said}");
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn names(blocks: &Value) -> Vec<String> {
    let blocks = blocks.as_array().unwrap().iter();
    blocks.map(|block| block["name"].as_str().unwrap().to_owned()).collect()
}

/// Reads the events of views of both parts in one stream, until each view has had one.
fn follow_views_of_two_parts(address: &str) {
    let views = "view=b%2Freceive.source.pol0%2Foutput%2Fspectrum&view=source%2Fpol0%2Fspectrum&\
                 view=source%2Fpol1%2Fspectrum";
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let head = format!("GET /api/v1/views?{views} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut waiting = vec![0, 1, 2];
    let mut lines = BufReader::new(stream).lines();
    while !waiting.is_empty() {
        let line = lines.next().unwrap().unwrap();
        let Some(data) = line.strip_prefix("data:") else { continue };
        let data: Value = serde_json::from_str(data).unwrap();
        assert!(data["detail"].is_null(), "{data}");
        let index = data["index"].as_u64().unwrap();
        waiting.retain(|waiting| *waiting != index);
    }
    let (status, body) = ask(address, "GET", "/api/v1/views?view=source%2Fpol0%2Fnone", "");
    assert!(status == 404 && body.contains("none"), "{status} {body}");
    assert_eq!(ask(address, "GET", "/api/v1/views?view=x", "").0, 400);
}

/// Method and path of each operation that an OpenAPI document describes.
fn operations(api: &Value) -> Vec<(String, String)> {
    let paths = api["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &Value)| {
        let methods: Vec<String> = item.as_object().unwrap().keys().cloned().collect();
        let methods = methods
            .into_iter()
            .filter(|key| ["get", "put", "post", "patch", "delete"].contains(&key.as_str()));
        methods.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

#[test]
fn description_of_a_fleet_has_exactly_what_it_serves() {
    let directory = tempfile::tempdir().unwrap();
    let _parts = parts(directory.path());
    let (_fleet, address) = fleet(directory.path());
    wait_until("both parts answer", || ask(&address, "GET", "/api/v1/health", "").0 == 200);
    let list = get(&address, "/api/v1/parts");
    let part = list[0]["address"].as_str().unwrap();
    let of_fleet = operations(&get(&address, "/api/v1/openapi.json"));
    let of_part = operations(&get(part, "/api/v1/openapi.json"));
    let is_served = |(method, path): &(String, String)| {
        // Names that nothing has.
        let path: String = path.replace(['{', '}'], "");
        if path.ends_with("events/stream") {
            // Does not end.
            return true;
        }
        let (status, body) = ask(&address, method, &path, "{}");
        !(matches!(status, 405 | 501) || status == 404 && body.contains("there is nothing at"))
    };
    for operation in &of_fleet {
        assert!(is_served(operation), "{operation:?} is described");
    }
    let more = of_part.iter().filter(|operation| !of_fleet.contains(operation));
    let mut not_served = 0;
    for operation in more {
        assert!(!is_served(operation), "{operation:?} is not described");
        not_served += 1;
    }
    assert_eq!(not_served, 7);
    let own: Vec<_> = of_fleet.iter().filter(|operation| !of_part.contains(operation)).collect();
    assert_eq!(own.len(), 2, "{own:?}");
}

/// Checks that the events that `fxgraph events --json` shows of part `a` are those of the part with that number.
fn events_have_their_numbers_at_the_part(directory: &Path, address: &str) {
    let part = get(address, "/api/v1/parts")[0]["address"].as_str().unwrap().to_owned();
    let list = fxgraph(directory, &["events", "--json", "--connect", address]).output().unwrap();
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    let list = String::from_utf8(list.stdout).unwrap();
    // Read later, so that it has all events that the fleet has.
    let of_part = get(&part, "/api/v1/events")["events"].clone();
    assert!(of_part[0]["part_sequence"].is_null(), "{of_part}");
    let events = list.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |event: &Value| event["text"].as_str().unwrap().to_owned();
    let of_fleet: Vec<Value> = events.filter(|event| text(event).starts_with("a: ")).collect();
    assert!(!of_fleet.is_empty(), "{list}");
    for event in of_fleet {
        let found = of_part.as_array().unwrap().iter();
        let mut found = found.filter(|own| own["sequence"] == event["part_sequence"]);
        let own = found.next().unwrap_or_else(|| panic!("{event} is none of {of_part}"));
        assert_eq!(text(&event), format!("a: {}", text(own)));
        assert_eq!(event["unix_time_seconds"], own["unix_time_seconds"]);
    }
}

#[test]
fn fleet_answers_for_all_parts_and_passes_requests_to_the_part_of_a_block() {
    let directory = tempfile::tempdir().unwrap();
    let _parts = parts(directory.path());
    let (_fleet, address) = fleet(directory.path());
    wait_until("both parts are healthy", || ask(&address, "GET", "/api/v1/health", "").0 == 200);
    let list = get(&address, "/api/v1/parts");
    assert_eq!(names(&list), ["a", "b"]);
    assert_eq!(list[0]["config_hash"], list[0]["deployed_config_hash"]);

    let description = get(&address, "/api/v1/openapi.json");
    assert!(description["paths"]["/api/v1/parts"]["get"].is_object(), "{description}");
    assert!(description["paths"]["/api/v1/flowgraph"]["put"].is_null(), "{description}");

    // On a busy machine a part may answer too late, and is left out until the next look.
    let expected = ["source", "end", "a/send.source.pol0", "b/receive.source.pol0", "sink"];
    let blocks = || names(&get(&address, "/api/v1/blocks"));
    wait_until("the blocks of both parts are listed", || {
        let blocks = blocks();
        expected.iter().all(|name| blocks.iter().any(|block| block == name))
    });
    let blocks = blocks();
    let page = get(&address, "/api/v1/flowgraph");
    assert_eq!((&page["name"], &page["state"]), (&"pair".into(), &"running".into()));
    assert_eq!(names(&page["graph"]["blocks"]), blocks);
    let sink = get(&address, "/api/v1/blocks/sink");
    assert_eq!(sink["inputs"][0]["from"], "b/receive.source.pol0.output");
    let edges = page["graph"]["edges"].as_array().unwrap();
    let is_stream = |edge: &&Value| {
        edge["from"] == "a/send.source.pol0" && edge["to"] == "b/receive.source.pol0"
    };
    assert_eq!(edges.iter().filter(is_stream).count(), 1);
    follow_views_of_two_parts(&address);
    let send = get(&address, "/api/v1/blocks/a%2Fsend.source.pol0");
    assert_eq!(send["name"], "a/send.source.pol0");

    let (status, body) =
        ask(&address, "PATCH", "/api/v1/blocks", r#"{"source": {"signals": "wgn(0.2)"}}"#);
    assert_eq!(status, 200, "{body}");
    let source = get(&address, "/api/v1/blocks/source");
    assert_eq!(source["parameters"]["signals"], "wgn(0.2)");
    wait_until("the change is a difference", || {
        let parts = get(&address, "/api/v1/parts");
        parts[0]["is_changed"] == true && parts[1]["is_changed"] == false
    });
    assert_eq!(ask(&address, "GET", "/api/v1/health", "").0, 200, "a change is no fault");
    let many: Vec<String> = (0..20_000).map(|n| format!("\"b{n}\":{{}}")).collect();
    let (status, body) =
        ask(&address, "PATCH", "/api/v1/blocks", &format!("{{{}}}", many.join(",")));
    assert!(status == 422 && body.contains("got 20000"), "{status} {body}");
    assert_eq!(ask(&address, "GET", "/api/v1/blocks/nothing", "").0, 404);
    assert_eq!(ask(&address, "POST", "/api/v1/flowgraph/stop", "").0, 501);

    wait_until("events of both parts", || {
        let events = get(&address, "/api/v1/events")["events"].to_string();
        events.contains("\"a: ") && events.contains("\"b: ") && events.contains("`source` from")
    });
    events_have_their_numbers_at_the_part(directory.path(), &address);
    let top =
        fxgraph(directory.path(), &["top", "--once", "--connect", &address]).output().unwrap();
    let shown = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(top.status.success() && shown.contains("b/receive.source.pol0"), "{shown}");
    let tap = ["tap", "source.pol0", "--connect", &address];
    let tap = fxgraph(directory.path(), &tap).output().unwrap();
    assert!(tap.status.success(), "{}", String::from_utf8_lossy(&tap.stderr));
}

#[test]
fn fleet_metrics_have_the_part_and_are_valid() {
    if !needs::promtool() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let _parts = parts(directory.path());
    let (_fleet, address) = fleet(directory.path());
    wait_until("both parts answer", || ask(&address, "GET", "/api/v1/health", "").0 == 200);
    let targets = get(&address, "/api/v1/targets");
    let parts = get(&address, "/api/v1/parts");
    for (target, part) in targets.as_array().unwrap().iter().zip(parts.as_array().unwrap()) {
        assert_eq!(target["targets"], serde_json::json!([part["address"]]));
        assert_eq!(target["labels"]["part"], part["name"]);
    }
    assert_eq!(targets.as_array().unwrap().len(), 2);
    let (_, text) = ask(&address, "GET", "/metrics", "");
    for sample in [
        "fxgraph_part_up{part=\"a\",flowgraph=\"pair\"} 1",
        "fxgraph_part_refused_lines{part=\"b\",flowgraph=\"pair\"} 0",
        "fxgraph_block_input_frames_total{part=\"b\",block=\"sink\"",
        "fxgraph_block_output_frames_total{part=\"a\",block=\"source\"",
    ] {
        assert!(text.contains(sample), "{sample}\n{text}");
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// Process of the part that runs `file`.
fn process(file: &str, parent: &Running) -> String {
    let path = format!("/proc/{0}/task/{0}/children", parent.process.id());
    let children = fs::read_to_string(path).unwrap();
    let runs = |child: &&str| {
        fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default().contains(file)
    };
    children.split_whitespace().find(runs).unwrap().to_owned()
}

/// Sends a signal. On a busy machine threads of a process run on for some milliseconds after it was told to stop.
fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success());
    let is_stopped = |status: String| status.rsplit(") ").next().unwrap().starts_with('T');
    let is_running = |task: fs::DirEntry| {
        fs::read_to_string(task.path().join("stat")).is_ok_and(|status| !is_stopped(status))
    };
    wait_until("all threads have stopped", || {
        let tasks = fs::read_dir(format!("/proc/{process}/task"));
        name != "-STOP" || !tasks.unwrap().any(|task| is_running(task.unwrap()))
    });
}

#[test]
fn part_that_hangs_is_named_and_delays_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let parts = parts(directory.path());
    let (_fleet, address) = fleet(directory.path());
    wait_until("both parts answer", || ask(&address, "GET", "/api/v1/health", "").0 == 200);
    let hung = process("b_0.yaml", &parts);
    signal("-STOP", &hung);
    wait_until("the fleet says which part hangs", || {
        let (status, body) = ask(&address, "GET", "/api/v1/health", "");
        status == 503 && body.contains("part `b`: no answer for ")
    });
    assert_eq!(get(&address, "/api/v1/blocks/source")["name"], "source");
    let (status, body) = ask(&address, "GET", "/api/v1/blocks/sink", "");
    assert!(status == 503 && body.contains("part `b`: no answer for "), "{status} {body}");
    let part = get(&address, "/api/v1/parts")[1].clone();
    assert_eq!((&part["contact"], &part["state"]), (&"no_answer".into(), &"running".into()));
    assert!(
        ask(&address, "GET", "/metrics", "")
            .1
            .contains("fxgraph_part_up{part=\"b\",flowgraph=\"pair\"} 0")
    );
    let table = fxgraph(directory.path(), &["fleet", "parts"]).output().unwrap();
    assert_eq!(table.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(shown.contains(": no answer within 3 s"), "{shown}");
    signal("-CONT", &hung);
    wait_until("the part is back", || ask(&address, "GET", "/api/v1/health", "").0 == 200);
    let (_again, second) = fleet(directory.path());
    wait_until("a second fleet", || ask(&second, "GET", "/api/v1/health", "").0 == 200);
}

#[test]
fn first_answer_of_a_fleet_has_all_parts() {
    let directory = tempfile::tempdir().unwrap();
    let _parts = parts(directory.path());
    let mut complete = 0;
    for _ in 0..3 {
        let (_fleet, address) = fleet(directory.path());
        let page = get(&address, "/api/v1/flowgraph");
        let blocks = names(&page["graph"]["blocks"]);
        let faults = page["faults"].to_string();
        for (part, block) in [("a", "source"), ("b", "sink")] {
            let is_there = blocks.iter().any(|name| name == block);
            // On a busy machine a part may answer too late.
            let is_named = faults.contains(&format!("part `{part}`: no answer for "));
            assert!(is_there || is_named, "{part}: {page}");
        }
        complete += usize::from(faults == "[]");
        let (_fleet, address) = fleet(directory.path());
        let (status, body) = ask(&address, "GET", "/api/v1/blocks/sink", "");
        let is_named = status == 503 && body.contains("part `b`: no answer for ");
        assert!(status == 200 || is_named, "{status} {body}");
    }
    assert!(complete > 0, "no answer was complete");
}

#[test]
fn dead_part_is_named_by_top() {
    let directory = tempfile::tempdir().unwrap();
    let parts = parts(directory.path());
    let (_fleet, address) = fleet(directory.path());
    wait_until("both parts answer", || ask(&address, "GET", "/api/v1/health", "").0 == 200);
    let top = |more: &[&str]| {
        let arguments = [&["top", "--once", "--connect", &address][..], more].concat();
        let output = fxgraph(directory.path(), &arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let json = || serde_json::from_str::<Value>(&top(&["--json"])).unwrap();
    let rows = || names(&json()["blocks"]);
    wait_until("no part is in trouble", || json()["trouble"].is_null() && rows().len() == 5);
    let killed = process("b_0.yaml", &parts);
    // It would end the other part.
    signal("-STOP", &parts.process.id().to_string());
    signal("-KILL", &killed);
    let trouble = "part `b`: is not there: cannot connect: ";
    wait_until("top names the dead part", || top(&[]).contains(trouble));
    // On a busy machine the living part may answer too late, too.
    wait_until("the living part is shown", || {
        rows() == ["source", "end", "a/send.source.pol0"]
            && json()["trouble"].as_str().is_some_and(|shown| shown.starts_with(trouble))
    });
    wait_until("health names the dead part", || {
        let (status, body) = ask(&address, "GET", "/api/v1/health", "");
        status == 503 && body.contains(trouble)
    });
}
