//! Monitoring and control of a running flowgraph from the terminal.

mod compare;
mod pty;

use crate::support::{http, needs, python};
use http::Program;
use pty::Pty;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const SIGNAL: &str = "flowgraph: signal
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000000, signals: 'cw(0.1, 1000)', period_samples: 65536, samples_per_frame: 4096}
  a: {kind: null_sink, input: source.pol0}
  b: {kind: null_sink, input: source.pol1}
";

/// `fxgraph` with `arguments`, connected to `program`.
fn client(program: &Program, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(arguments).args(["--connect", &format!("http://{}", program.address)]);
    command
}

fn ask(program: &Program, arguments: &[&str]) -> Output {
    client(program, arguments).output().unwrap()
}

/// Runs a successful command and returns its stdout.
fn told(program: &Program, arguments: &[&str]) -> String {
    let output = ask(program, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a failing command and returns its stderr.
fn rejected(program: &Program, arguments: &[&str]) -> String {
    let output = ask(program, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty());
    stderr(&output)
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Stops the program from the terminal.
fn stop(program: Program) {
    let state = told(&program, &["stop"]);
    assert!(["running\n", "draining\n", "ended\n"].contains(&state.as_str()), "{state}");
    assert!(program.end().status.success());
}

#[test]
fn set_changes_all_parameters_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SIGNAL, &[]);
    let at = 1_u64 << 40;
    let said = told(&program, &["set", "source.signals=cw(0.3, 2000)", "--at", &at.to_string()]);
    assert!(said.starts_with(&format!("effective from timestamp {at}, config ")), "{said}");
    let signals = || program.get("/api/v1/blocks/source").json()["parameters"]["signals"].clone();
    assert_eq!(signals(), "cw(0.1, 1000)", "the value in force");
    let scheduled =
        format!("scheduled:\nsource.signals=\"cw(0.3, 2000)\" from timestamp {at} on\n");
    let table = told(&program, &["top", "--once"]);
    assert!(table.contains(&scheduled), "{table}");
    let said = rejected(&program, &["set", "source.signals=cw(0.4, 1)", "a.gain=2"]);
    assert!(said.starts_with("error: ") && said.contains("(E0"), "{said}");
    assert_eq!(signals(), "cw(0.1, 1000)");
    let answer: Value =
        serde_json::from_str(&told(&program, &["set", "source.signals=cw(0.2, 500)", "--json"]))
            .unwrap();
    assert!(answer["effective_timestamp"].as_u64().unwrap() < at);
    assert_eq!(signals(), "cw(0.2, 500)", "at once");
    // The stream has begun, so the answer states how far ahead the timestamp is.
    let said = told(&program, &["set", "source.signals=cw(0.3, 2000)", "--at", &at.to_string()]);
    assert!(said.contains(", in ") && said.ends_with(" days\n"), "{said}");
    stop(program);
}

#[test]
fn swap_supports_dry_run_and_is_listed_in_events() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SIGNAL, &["--files", "."]);
    let kind = || program.get("/api/v1/blocks/a").json()["kind"].clone();
    let sink = ["swap", "a", "path=a.npy", "kind=file_sink"];
    let said = told(&program, &[&sink[..], &["--dry-run"]].concat());
    assert!(
        said.contains("kind") && said.contains("would swap; ") && said.contains("(held)"),
        "{said}"
    );
    assert_eq!(kind(), "null_sink");
    assert!(told(&program, &sink).contains("\nswapped; "), "{said}");
    assert_eq!(kind(), "file_sink");
    assert!(
        rejected(&program, &["swap", "a", "kind=x", "--kind", "y"])
            .contains("`kind` is given twice")
    );
    assert!(rejected(&program, &["swap", "a", "device=gpu"]).contains("there is no device `gpu`"));
    let said = rejected(&program, &["swap", "a", "--device", "null"]);
    assert!(said.contains("there is no device `null`"), "{said}");
    assert!(rejected(&program, &["swap", "a", "pth=b.npy"]).contains("did you mean `path`?"));
    assert!(rejected(&program, &["swap", "c", "x=1"]).contains("there is no block `c`"));
    let said = told(&program, &["events"]);
    assert!(said.contains("swapped a"), "{said}");
    let lines = told(&program, &["events", "--json", "--since", "1"]);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["sequence"], 2);

    // Followed to the end of the run.
    let mut follower = client(&program, &["events", "--follow", "--json"]);
    let follower = follower.stdout(std::process::Stdio::piped()).spawn().unwrap();
    stop(program);
    let followed = follower.wait_with_output().unwrap();
    assert!(followed.status.success());
    let followed = String::from_utf8(followed.stdout).unwrap();
    assert!(followed.lines().last().unwrap().contains("\"ended\""), "{followed}");
    assert!(directory.path().join("a.npy").exists());
}

#[test]
fn abort_ends_the_run_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SIGNAL, &[]);
    told(&program, &["abort"]);
    assert_eq!(program.end().status.code(), Some(130));
}

#[test]
fn missing_server_is_reported_with_help() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    for command in ["top", "events", "stop"] {
        let mut client = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        let output = client.args([command, "--connect", &url]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let expected = format!(
            "error: no flowgraph answers at {url}: connection refused\n   = help: start a flowgraph \
             with `fxgraph run FILE --listen`\n"
        );
        assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
    }
}

#[test]
fn client_sends_token_and_checks_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("cert.pem"), include_str!("certificates/localhost.pem")).unwrap();
    std::fs::write(path("key.pem"), include_str!("certificates/localhost.key")).unwrap();
    std::fs::write(path("token"), "f2c1a97be0d94c55\n").unwrap();
    let arguments = ["--tls-cert", "cert.pem", "--tls-key", "key.pem", "--token-file", "token"];
    let program = Program::start(directory.path(), SIGNAL, &arguments);
    let url = format!("https://localhost:{}", program.address.port());
    let events = |more: &[&str]| {
        let mut client = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        client.args(["events", "--connect", &url]).args(more).output().unwrap()
    };
    let (ca, token) = (path("cert.pem"), path("token"));
    let well = events(&["--ca", &ca, "--token-file", &token]);
    assert!(well.status.success(), "{}", stderr(&well));
    let unknown = stderr(&events(&["--ca", &ca]));
    assert!(unknown.contains("requires a token") && unknown.contains("--token-file"), "{unknown}");
    std::fs::write(path("other"), "0123456789abcdef\n").unwrap();
    let wrong = stderr(&events(&["--ca", &ca, "--token-file", &path("other")]));
    assert!(wrong.contains("the token is wrong: it is not that of this flowgraph"), "{wrong}");
    assert!(wrong.contains("give the token file of `fxgraph run` with `--token-file"), "{wrong}");
    let plain = ["--connect", &format!("http://localhost:{}", program.address.port())];
    let mut client = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    let plain = stderr(&client.arg("events").args(plain).output().unwrap());
    assert!(plain.contains(&format!("give `--connect {url}`")), "{plain}");
    let distrusted = stderr(&events(&["--token-file", &token]));
    assert!(distrusted.contains("with `--ca FILE`"), "{distrusted}");
    let no_certificate = stderr(&events(&["--ca", &token]));
    assert!(no_certificate.contains("contains no certificate"), "{no_certificate}");
    let mut stop = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    stop.args(["stop", "--connect", &url, "--ca", &ca, "--token-file", &token]);
    assert!(stop.status().unwrap().success());
    assert!(program.end().status.success());
}

#[test]
fn top_prints_one_table_for_pipes_and_json_for_programs() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SIGNAL, &[]);
    let expected = 1e6 / 4096.0;
    let is_consistent = |row: &Value| {
        let figures = ["frames_per_second", "real_time_fraction"].map(|key| row[key].as_f64());
        let [Some(rate), Some(real_time)] = figures else { return false };
        (rate / expected - real_time).abs() < 1e-9
    };
    // The first rates appear after a second; edges and blocks need two requests, between which the rates may change.
    let began = Instant::now();
    let top = loop {
        let top: Value =
            serde_json::from_str(&told(&program, &["top", "--once", "--json"])).unwrap();
        if !top["real_time_fraction"].is_null() && is_consistent(&top["blocks"][1]) {
            break top;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{top}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!((&top["flowgraph"], &top["state"]), (&json!("signal"), &json!("running")));
    let rows = top["blocks"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| &row["name"]).collect::<Vec<_>>(), ["source", "a", "b"]);
    assert!(rows.iter().all(|row| row["frames_per_second"].as_f64().unwrap() > 0.0), "{top}");
    let real_time = top["real_time_fraction"].as_f64().unwrap();
    let rate = rows[1]["frames_per_second"].as_f64().unwrap();
    assert!((rate / expected / real_time - 1.0).abs() < 0.1, "{top}");
    let table = told(&program, &["top", "--once"]);
    assert!(table.starts_with("signal running "), "{table}");
    assert_eq!(table.lines().count(), 2 + 1 + 3, "{table}");
    assert!(rejected(&program, &["top"]).contains("`--once` prints one table"));
    stop(program);
}

#[test]
fn top_draws_handles_keys_and_restores_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SIGNAL, &[]);
    let mut top = client(&program, &["top", "--every", "200ms"]);
    top.env("NO_COLOR", "1");
    let mut pty = Pty::start(&mut top, 24, 80);
    let screen = pty.until(|screen| screen.contains("of real time") && screen.contains("started"));
    for word in ["signal  running", "source", "digitiser_simulator", "frames/s", "q quit"] {
        assert!(screen.contains(word), "{word}\n{screen}");
    }
    assert!(!pty.has_colours(), "NO_COLOR");
    pty.type_keys("?");
    pty.until(|screen| screen.contains("pause or resume"));
    pty.type_keys("x");
    pty.until(|screen| !screen.contains("pause or resume"));
    pty.type_keys("s");
    pty.until(|screen| screen.contains("s sort: busy"));
    pty.resize(40, 120);
    pty.until(|screen| screen.lines().last().is_some_and(|line| line.contains("q quit")));
    let before = pty.until(|screen| screen.contains("running"));
    pty.until(|screen| screen.lines().next() != before.lines().next());
    stop(program);
    pty.until(|screen| screen.contains("no flowgraph answers"));
    pty.type_keys("q");
    assert_eq!(pty.end(), Some(0));
    assert!(!pty.is_alternate(), "the screen before is back");
}

#[test]
fn texts_fit_a_terminal_of_80_columns() {
    let shown = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        command.args(arguments).env("NO_COLOR", "1");
        Pty::start(&mut command, 24, 80).output().replace('\r', "")
    };
    let mut lines = 0;
    for arguments in [
        &["plan", "example:06_tracking"][..],
        &["plan", "example:19_hosts"],
        &["list", "spead_sink"],
        &["list", "ddc"],
        &["explain", "E0306"],
        &["explain"],
        &["list"],
    ] {
        // Equations and flowgraphs are for copying, and stay as they are.
        let text = shown(arguments);
        let prose = text.split("```").step_by(2).collect::<String>();
        lines += prose.lines().count();
        let wide: Vec<&str> = prose.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{arguments:?}: {wide:#?}");
    }
    assert!(lines > 1000, "{lines} lines");
    let page = shown(&["list", "spead_sink"]);
    assert!(page.contains("\n    parameters: {stream: digitiser, addresses: [\"239."), "{page}");
    assert!(page.contains("\n`pace_delay_seconds`           time behind schedule\n"), "{page}");
}

#[test]
fn tap_shows_statistics_and_saves_npy() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SIGNAL, &[]);
    let path = directory.path().join("frame.npy");
    let told_of = |arguments: &[&str]| -> Value {
        serde_json::from_str(&told(&program, &[&["tap"], arguments, &["--json"]].concat())).unwrap()
    };
    let look = told_of(&["source.pol0", "--save", path.to_str().unwrap()]);
    assert_eq!(look["output"], "source.pol0");
    let figures = &look["figures"];
    assert_eq!(figures["elements"], 4096);
    // A tone of a tenth of full scale, 512.
    let rms = figures["rms"].as_f64().unwrap();
    assert!((rms - 51.2 / 2_f64.sqrt()).abs() < 1.0, "{look}");
    let array = std::fs::read(&path).unwrap();
    assert!(array.starts_with(b"\x93NUMPY") && array.len() > 4096 * 10 / 8, "{}", array.len());
    let all = told(&program, &["tap"]);
    let outputs: Vec<_> = all.lines().skip(1).filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(outputs, ["source.pol0", "source.pol1"], "{all}");
    let text = told(&program, &["tap", "source.pol0"]);
    assert!(text.contains("i10p [sample 4096]") && text.contains("rms "), "{text}");
    assert!(rejected(&program, &["tap", "source"]).contains("name one: source.pol0, source.pol1"));
    assert!(rejected(&program, &["tap", "source.pol2"]).contains("has no output `pol2`"));
    assert!(rejected(&program, &["tap", "a"]).contains("name the block that feeds this one"));
    assert!(rejected(&program, &["tap", "sorce"]).contains("did you mean `source`?"));
    stop(program);
}

/// Blocks of a template have names with dots.
const GROUPED: &str = "flowgraph: grouped
templates:
  chain:
    blocks:
      source:
        kind: digitiser_simulator
        parameters: {adc_sample_rate_hz: 1000000, signals: 'cw(0.1, 1000)', period_samples: 65536, samples_per_frame: 4096}
      f: {kind: pfb, input: source.pol0, parameters: {channels: 16, spectra_per_frame: 64}}
    outputs: {filtered: f, other: source.pol1}
blocks:
  c: {template: chain}
  sink: {kind: null_sink, input: c.filtered}
  rest: {kind: null_sink, input: c.other}
";

#[test]
fn tap_and_record_accept_the_block_name_of_a_single_output() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), GROUPED, &["--recordings", "kept"]);
    let look: Value = serde_json::from_str(&told(&program, &["tap", "c.f", "--json"])).unwrap();
    assert_eq!(look["output"], "c.f.output");
    for name in ["c.f", "c.f.output", "c.source.pol1"] {
        let recorded = told(&program, &["record", name, "trigger=request"]);
        let output = if name == "c.f" { "c.f.output" } else { name };
        assert!(recorded.contains(&format!(" {output} ")), "{recorded}");
    }
    for (command, name, help) in [
        ("tap", "c.source", "name one: c.source.pol0, c.source.pol1"),
        ("record", "c.source", "name one: c.source.pol0, c.source.pol1"),
        ("record", "c.f.outptu", "did you mean `output`?"),
        ("record", "sink", "name the block that feeds this one"),
        ("record", "c.g", "did you mean `c.f`?"),
    ] {
        let said = rejected(&program, &[command, name]);
        assert!(said.contains(help), "{command} {name}: {said}");
    }
    stop(program);
}

#[test]
fn top_and_tap_end_when_their_terminal_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SIGNAL, &[]);
    let tap: &[&str] = &["tap", "source.pol0", "--plot", "--follow"];
    // Under `nohup` no signal says that the terminal has gone.
    for hangup in ["--default-signal=HUP", "--ignore-signal=HUP"] {
        for (arguments, wanted) in [(&["top"][..], "source"), (tap, "source.pol0")] {
            let mut command = Command::new("env");
            command.arg(hangup).arg(env!("CARGO_BIN_EXE_fxgraph")).args(arguments);
            command.args(["--connect", &format!("http://{}", program.address)]);
            let mut pty = Pty::start(&mut command, 24, 80);
            pty.until(|shown| shown.contains(wanted));
            pty.hang_up();
        }
    }
    stop(program);
}

#[test]
fn run_drains_when_its_terminal_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("signal.yaml");
    std::fs::write(&path, SIGNAL).unwrap();
    let script = format!(
        "exec env --default-signal=HUP '{}' run '{}' --json > '{}'",
        env!("CARGO_BIN_EXE_fxgraph"),
        path.display(),
        directory.path().join("out.json").display()
    );
    let mut pty = Pty::start(Command::new("sh").args(["-c", &script]), 24, 80);
    pty.until(|shown| shown.contains("frames/s"));
    assert_eq!(pty.hang_up(), Some(0));
    let result = std::fs::read(directory.path().join("out.json")).unwrap();
    let result: Value = serde_json::from_slice(&result).unwrap();
    assert_eq!(result["failures"], json!([]), "{result}");
    assert!(result["blocks"][1]["frames_in"].as_u64().unwrap() > 0, "{result}");
}

/// A sink that writes all frames of an endless source.
const WRITTEN: &str = "flowgraph: written
blocks:
  source:
    kind: null_source
    parameters:
      dtype: cf32
      axes: [{name: sample, len: 2048}]
      samples_per_frame: 4096
      adc_sample_rate_hz: 2.0e+6
      band: {channels: 1, centre_hz: 1.42e+9, bandwidth_hz: 1.0e+6}
  out: {kind: dada_sink, input: source, parameters: {path: full.dada, sync_time_seconds: 1.8e+9}}
";

#[test]
fn block_that_never_returns_is_named_and_left() {
    // Nothing reads this terminal, so a write to it waits for ever.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(name.to_str().unwrap(), directory.path().join("full.dada")).unwrap();
    let program = Program::running(directory.path(), WRITTEN, &["--drain-limit", "500ms"]);
    let has_begun = || {
        let out = program.get("/api/v1/blocks/out").json();
        out["totals"]["frames_in"].as_u64().unwrap() > 0
    };
    while !has_begun() {
        std::thread::sleep(Duration::from_millis(20));
    }
    program.signal("-TERM");
    let output = program.end();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("not drained within 0.5 s (`--drain-limit`): waits for `"), "{said}");
    assert!(said.contains("error: `out` does not end after the abort"), "{said}");
}

#[test]
fn apply_shows_and_makes_changes_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SIGNAL, &[]);
    let edited = directory.path().join("edited.yaml");
    let path = edited.to_str().unwrap();
    let write = |text: &str| std::fs::write(&edited, text).unwrap();
    let signals = || program.get("/api/v1/blocks/source").json()["parameters"]["signals"].clone();

    write(&SIGNAL.replace("cw(0.1, 1000)", "cw(0.2, 2000)"));
    let said = told(&program, &["apply", path, "--dry-run"]);
    assert!(said.contains("parameters.signals") && said.contains("live update"), "{said}");
    assert!(said.contains("would change 1 block (config "), "{said}");
    assert_eq!(signals(), "cw(0.1, 1000)");
    let said = told(&program, &["apply", path]);
    assert!(said.contains("changed 1 block from timestamp "), "{said}");
    assert_eq!(signals(), "cw(0.2, 2000)");
    let said = told(&program, &["apply", path]);
    assert!(said.starts_with("no block differs (config "), "{said}");

    write(&SIGNAL.replace("null_sink, input: source.pol1", "nul_sink, input: source.pol1"));
    assert!(rejected(&program, &["apply", path]).contains("did you mean `null_sink`?"));
    write(&format!("{SIGNAL}  c: {{kind: null_sink, input: source.pol1}}\n"));
    let said = told(&program, &["apply", path, "--dry-run"]);
    assert!(said.contains("needs a restart: `c`: it is new"), "{said}");
    assert!(rejected(&program, &["apply", path]).contains("`c`: it is new"));
    assert_eq!(signals(), "cw(0.2, 2000)");
    let said = told(&program, &["apply", path, "--restart"]);
    assert!(said.contains("the flowgraph drains, then the new one starts"), "{said}");
    while program.get("/api/v1/blocks/c").status != 200 {
        std::thread::sleep(Duration::from_millis(20));
    }
    program.wait("running");
    stop(program);
}

#[test]
fn shadow_starts_is_listed_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), http::FILTERED, &[]);
    assert_eq!(told(&program, &["shadow"]), "no shadows\n");
    assert!(rejected(&program, &["shadow", "f"]).contains("`f` has no shadow"));
    let started = told(&program, &["shadow", "f", "taps=8"]);
    assert!(started.contains("shadow of") && started.contains("pfb cpu"), "{started}");
    let compared = || -> u64 {
        let shadow = told(&program, &["shadow", "f", "--json"]);
        serde_json::from_str::<Value>(&shadow).unwrap()["frames_compared"].as_u64().unwrap()
    };
    while compared() == 0 {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(told(&program, &["shadow"]).contains("pfb cpu"));
    assert!(told(&program, &["shadow", "f", "--end"]).contains("pfb cpu"));
    assert_eq!(told(&program, &["shadow"]), "no shadows\n");
    stop(program);
}

/// A branch that stalls for a second, behind a queue that drops frames meanwhile.
const BRANCH: &str = "flowgraph: branch
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000000, samples_per_frame: 8192, period_samples: 65536, paced: true, signals: wgn(0.1)}
  drill:
    kind: fault_injector
    input: source.pol0
    when_full: drop_oldest
    parameters: {fault: stall, after_frames: 20, stall_seconds: 1}
  f: {kind: pfb, input: drill, parameters: {channels: 16, taps: 4, spectra_per_frame: 64}}
  out: {kind: file_sink, input: f, parameters: {path: out.npy}}
  end: {kind: null_sink, input: source.pol1}
";

/// Part of the row of a block in `fxgraph top --json`.
#[derive(serde::Deserialize)]
struct Row {
    when_full: String,
    losses: u64,
}

/// The entry of `list` whose `key` is `value`.
fn entry<'a>(list: &'a Value, key: &str, value: &str) -> &'a Value {
    let mut found = list.as_array().unwrap().iter().filter(|entry| entry[key] == value);
    found.next().unwrap_or_else(|| panic!("no {value} in {list}"))
}

#[test]
fn frames_dropped_before_a_branch_are_counted_and_flagged_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), BRANCH, &[]);
    let missing = || {
        let block = program.get("/api/v1/blocks/f").json();
        entry(&block["counters"], "name", "spectra_missing")["count"].as_u64().unwrap()
    };
    let began = Instant::now();
    // Counted when the stream continues after the gap.
    while missing() == 0 {
        assert!(began.elapsed() < Duration::from_mins(1), "nothing is missing");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Asked one after the other, and none may be less than the one before.
    let metrics = program.get("/metrics").body;
    let name = "fxgraph_queue_frames_dropped_total{";
    let of_queue = |line: &&str| line.starts_with(name) && line.contains("block=\"drill\"");
    let line = metrics.lines().find(of_queue).unwrap();
    let in_metrics: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    let top: Value = serde_json::from_str(&told(&program, &["top", "--once", "--json"])).unwrap();
    let row = |name| serde_json::from_value(entry(&top["blocks"], "name", name).clone()).unwrap();
    let (drill, end): (Row, Row) = (row("drill"), row("end"));
    assert_eq!((drill.when_full.as_str(), end.losses), ("drop_oldest", 0));
    let in_top = drill.losses as f64;
    let page = program.get("/api/v1/flowgraph").json();
    let edge = entry(&page["graph"]["edges"], "to", "drill");
    let in_rest = edge["frames_dropped"].as_f64().unwrap();
    assert_eq!(edge["when_full"], "drop_oldest");
    assert!(0.0 < in_metrics && [in_metrics, in_top, in_rest].is_sorted(), "{line}\n{top}\n{page}");

    told(&program, &["stop"]);
    let output = program.end();
    assert!(output.status.success(), "{}", stderr(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |block: &str, name: &str| {
        entry(&result["blocks"], "name", block)["counters"][name].as_u64().unwrap()
    };
    let dropped = count("drill", "frames_dropped_at_full_queue");
    assert!(dropped as f64 >= in_rest, "{result}");
    assert!(count("f", "spectra_missing") >= 3, "{result}");
    // Windows of 4 spectra touch a gap from the 3 spectra before it, which are flagged; frames of missing spectra only are not
    // sent.
    let array = |name: &str, size: usize| -> Vec<u64> {
        let path = directory.path().join(format!("out.{name}.npy"));
        let bytes = std::fs::read(path).unwrap();
        let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let value =
            |item: &[u8]| item.iter().rev().fold(0, |value, byte| (value << 8) | u64::from(*byte));
        bytes[start..].chunks_exact(size).map(value).collect()
    };
    let (timestamps, flags) = (array("timestamp", 8), array("validity", 4));
    // On a busy machine also the first and the last frames are dropped.
    let mut samples_missing = timestamps[0];
    for (pair, flags) in timestamps.windows(2).zip(flags.chunks_exact(64)) {
        let gap = pair[1] - pair[0] - 2048;
        let valid = if gap > 0 { 61 } else { 64 };
        let expected: Vec<u64> = (0..64).map(|spectrum| u64::from(spectrum < valid)).collect();
        assert_eq!(flags, expected, "before a gap of {gap} samples");
        samples_missing += gap;
    }
    assert!(samples_missing > 0 && samples_missing.is_multiple_of(8192), "{samples_missing}");
    assert!(samples_missing <= 8192 * dropped, "{samples_missing} of {dropped} frames");
}
