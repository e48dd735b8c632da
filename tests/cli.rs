//! The program as used by people and scripts: exit codes, stdout, stderr and signals.

mod implausible;

use crate::support::repository::root;
use crate::support::{http, needs, programs, python};
use http::Program;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const ENDLESS: &str = "flowgraph: endless
blocks:
  source:
    kind: null_source
    parameters: {dtype: i8, axes: [{name: sample, len: 64}], samples_per_frame: 64}
  sink: {kind: null_sink, input: source}
";

fn fxgraph() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.env_remove("NO_COLOR");
    command
}

fn run(arguments: &[&str], directory: &Path) -> Output {
    fxgraph().args(arguments).current_dir(directory).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn generated() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let output = run(&["generate", "flowgraph", "demo", "--into", "."], directory.path());
    assert!(output.status.success(), "{}", stderr(&output));
    directory
}

#[test]
fn generated_flowgraph_validates_runs_and_passes_its_test() {
    let directory = generated();
    let validated = run(&["validate", "demo.yaml"], directory.path());
    assert_eq!(stdout(&validated), "ok demo.yaml\n");

    let ran = run(&["run", "demo.yaml", "--set", "frames=7", "--json"], directory.path());
    assert!(ran.status.success(), "{}", stderr(&ran));
    let result: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(result["blocks"][1]["frames_in"], 7);
    assert_eq!(result["failures"], serde_json::json!([]));

    let tested = run(&["test", "demo.yaml"], directory.path());
    assert!(tested.status.success(), "{}", stdout(&tested));
    assert!(stdout(&tested).ends_with("\n1 passed, 0 failed\n"));
}

#[test]
fn failing_test_reports_expected_and_actual_values() {
    let directory = generated();
    let path = directory.path().join("demo.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("source, frames: 3", "source, frames: 4")).unwrap();
    let tested = run(&["test", "demo.yaml"], directory.path());
    assert_eq!(tested.status.code(), Some(1));
    assert!(stdout(&tested).contains("source: expected 4 frames, saw 3 frames"));
    assert!(stdout(&tested).ends_with("\n0 passed, 1 failed\n"));
}

#[test]
fn benchmark_name_that_no_benchmark_contains_is_an_error() {
    let output = run(&["bench", "--only", "no such name"], Path::new("."));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no benchmark name contains `no such name`"));
}

#[test]
fn bench_network_receives_every_heap_at_a_low_rate() {
    let rate = 1_000_000.0;
    let output = fxgraph()
        .args(["bench", "--network", "--json", "--seconds", "1s"])
        .args(["--min-rate", "1e6", "--max-rate", "1e6"])
        .args(["--set", "channels=64", "--set", "spectra_per_heap=16"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["build"].as_str().unwrap().starts_with("fxgraph "));
    assert!(result["state"]["cpu"].is_string(), "{result}");
    let network = &result["network"];
    assert_eq!(network["highest_lossless_rate_hz"], rate);
    assert_eq!(network["limited_by"], serde_json::Value::Null);
    assert_eq!(network["set"]["channels"], "64");
    let [trial] = &network["trials"].as_array().unwrap()[..] else { unreachable!("{network}") };
    assert_eq!(trial["is_lossless"], true);
    // Both polarisations send all samples of the warm-up, the measured time and the tail.
    let sent = trial["heaps_sent"].as_array().unwrap();
    assert_eq!(sent[0], sent[1]);
    assert!(sent[0].as_f64().unwrap() * 4096.0 > 1.6 * rate, "{trial}");
    // A heap has 16 spectra of 128 samples; windows of 16 taps reach 15 spectra further.
    let (step, span) = (16.0 * 128.0, (16.0 + 15.0) * 128.0);
    let (begin, end) = ((0.5 * rate / step).ceil(), (1.5 * rate / 4096.0).floor() * 4096.0);
    let outputs = ((end - span) / step).floor() + 1.0;
    assert_eq!(trial["heaps_at_start"]["expected"], begin as u64);
    assert_eq!(trial["heaps"]["expected"], (outputs - begin) as u64);
    for heaps in ["heaps", "heaps_at_start"] {
        assert_eq!(trial[heaps]["received"], trial[heaps]["expected"], "{trial}");
        assert_eq!(trial[heaps]["missing"], 0);
    }
    for packet in ["first_packet", "last_packet"] {
        let latency = &trial["latency_seconds"][packet];
        let order =
            ["minimum", "p50", "p99", "maximum"].map(|name| latency[name].as_f64().unwrap());
        assert!(order[0] > 0.0 && order.is_sorted(), "{latency}");
    }
    let threads = trial["threads"].as_array().unwrap();
    let named = |name: &str| threads.iter().find(|thread| thread["name"] == name);
    for (name, is_own) in [("receive pol[0]", false), ("bench send 1", true)] {
        assert_eq!(named(name).unwrap()["is_of_measurement"], is_own, "{name}");
    }
}

#[test]
fn bench_of_a_flowgraph_without_frames_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let receivers = ["--set", "pol0=127.0.0.1:7911", "--set", "pol1=127.0.0.1:7912"];
    let bench = ["bench", "example:02_f_engine", "--time", "300ms"];
    let output = run(&[&bench[..], &receivers].concat(), directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no block has processed a frame"), "{}", stderr(&output));
}

#[test]
fn bench_network_rejects_a_flowgraph_without_its_parameters_and_an_unknown_interface() {
    let directory = generated();
    let output = run(&["bench", "--network", "demo.yaml"], directory.path());
    assert_eq!(output.status.code(), Some(78), "{}", stderr(&output));
    assert!(stderr(&output).contains("has no parameter `pol0`"), "{}", stderr(&output));
    let output = run(&["bench", "--network", "--interface", "nowhere0"], directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("`nowhere0` does not exist"), "{}", stderr(&output));
    let output = run(&["bench", "--network", "--seconds", "10ms"], directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("`--seconds` must be at least"), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn bench_network_ends_at_once_when_it_is_interrupted() {
    let mut command = fxgraph();
    command.args(["bench", "--network", "--json", "--seconds", "10m", "--set", "channels=64"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let senders = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
        let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
        names.flatten().filter(|name| name.starts_with("bench send")).count()
    };
    let began = Instant::now();
    while senders() < 2 {
        assert!(began.elapsed() < Duration::from_mins(2), "the senders do not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn invalid_flowgraph_exits_with_78_and_writes_to_stderr_only() {
    let directory = generated();
    for command in ["validate", "run", "plan", "graph", "test"] {
        let output = run(&[command, "missing.yaml"], directory.path());
        assert_eq!(output.status.code(), Some(78), "{command}");
        assert!(output.stdout.is_empty(), "{command}");
        assert!(stderr(&output).contains("error[E0103]"), "{command}");
    }
    let output = run(&["run", "demo.yaml", "--set", "frames=0"], directory.path());
    assert_eq!(output.status.code(), Some(78), "{}", stderr(&output));
}

#[test]
fn bad_usage_exits_with_2() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [&["fly"][..], &["run"], &["run", "x.yaml", "--duration", "soon"]] {
        assert_eq!(run(arguments, directory.path()).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn unknown_command_suggests_a_near_miss() {
    for (given, meant) in [("rn", "run"), ("runs", "run"), ("validates", "validate")] {
        let output = run(&[given, "demo.yaml"], Path::new("."));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!(" subcommand '{given}'")), "{said}");
        assert!(said.contains(&format!("a similar subcommand exists: '{meant}'")), "{said}");
    }
}

/// One antenna, whose spectra go to a file and whose samples to the network.
const ANTENNA: &str = "flowgraph: antenna
blocks:
  dig:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1712000, signals: wgn(0.1), frames: 4, period_samples: 262144}
  f: {kind: f_engine, inputs: [dig.pol0, dig.pol1], parameters: {channels: 64}}
  out: {kind: file_sink, input: f, parameters: {path: f.npz}}
  net:
    kind: spead_sink
    input: dig.pol0
    parameters: {stream: digitiser, destinations: ['127.0.0.1:PORT'], interface: 127.0.0.1}
";

#[test]
fn mistakes_are_named_with_their_place_and_their_remedy() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    let right = ANTENNA.replace("PORT", &port);
    let ran = |command: &str, text: &str| {
        std::fs::write(directory.path().join("x.yaml"), text).unwrap();
        run(&[command, "x.yaml"], directory.path())
    };
    let output = ran("run", &right);
    assert!(output.status.success(), "{}", stderr(&output));
    let to = format!("127.0.0.1:{port}");
    let mistakes: [(&str, &str, &str, i32, &[&str]); 3] = [
        // A file where a directory is wanted.
        (
            "run",
            "f.npz",
            "file/f.npz",
            1,
            &[
                "`out` failed: cannot write file: a part of the path is not a directory; give a path in a directory",
            ],
        ),
        // Beyond the network of the interface.
        (
            "run",
            &to,
            "10.99.0.7:7148",
            1,
            &[
                "`net` failed: ",
                "cannot send to 10.99.0.7:7148 from 127.0.0.1",
                "set `interface` to one that does",
            ],
        ),
        // Both polarisations are meant.
        (
            "validate",
            "inputs: [dig.pol0, dig.pol1]",
            "input: dig",
            0,
            &[
                "output `pol1` of `digitiser_simulator` is not connected",
                " x.yaml:3:3",
                "to connect all outputs to `f`, write `inputs: [dig.pol0, dig.pol1]` there",
                "connect it to a `null_sink` if this is intended",
            ],
        ),
    ];
    for (command, from, to, code, wanted) in mistakes {
        let output = ran(command, &right.replace(from, to));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        for wanted in wanted {
            assert!(said.matches(wanted).count() == 1, "once {wanted} in\n{said}");
        }
    }
    let no_directory = "a part of the path is not a directory; give a path in a directory";
    let no_deployment = "give the directory that `fxgraph deploy FLOWGRAPH --engine ENGINE -o DIR`";
    let is_file = "`file`: there is a file with this name; give another path";
    let no_kernels = "it is not a directory; give the directory of the edited kernels";
    let options: [(&[&str], &[&str]); 8] = [
        (&["run", "x.yaml", "--kernels", "file"], &["'--kernels <DIR>'", no_kernels]),
        (&["run", "x.yaml", "--state", "file/state"], &["`file/state`", no_directory]),
        (&["fleet", "x.yaml"], &["`x.yaml/deployment.json`", no_deployment]),
        (&["fleet", "missing.yaml"], &["there is no such file", no_deployment]),
        (&["generate", "flowgraph", "two", "--into", "file"], &["create the directory", is_file]),
        (&["generate", "block", "two", "--into", "file"], &[no_directory, "give `--crate DIR`"]),
        (&["generate", "flowgraph", "x"], &["`./x.yaml` already exists; give another name"]),
        (&["graph", "x.yaml", "-o", "file/x.svg"], &["`file/x.svg`", no_directory]),
    ];
    for (arguments, wanted) in options {
        let output = run(arguments, directory.path());
        let said = stderr(&output);
        assert!(!output.status.success(), "{arguments:?}");
        for wanted in wanted {
            assert!(said.contains(wanted), "{arguments:?}: {wanted} in\n{said}");
        }
    }
}

#[test]
fn plan_and_graph_write_their_results() {
    let directory = generated();
    let plan = run(&["plan", "demo.yaml", "--json"], directory.path());
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(plan["edges"][0]["frame_bytes"], 4 * 4096);
    assert!(stdout(&run(&["plan", "demo.yaml"], directory.path())).contains("\nmemory "));
    for (format, word) in [("mermaid", "flowchart"), ("dot", "digraph"), ("json", "{")] {
        let drawn = run(&["graph", "demo.yaml", "--format", format], directory.path());
        assert!(stdout(&drawn).starts_with(word), "{format}");
    }
}

#[test]
fn graph_folds_replicas_and_draws_a_picture() {
    let directory = tempfile::tempdir().unwrap();
    let graph = |more: &[&str]| {
        let live = ["graph", "example:08_many_antennas", "--set", "antennas=16"];
        run(&[&live[..], more].concat(), directory.path())
    };
    let dot = stdout(&graph(&["--format", "dot"]));
    assert!(dot.contains("[0..15]"), "{dot}");
    let edges = dot.matches(" -> ").count();
    let all = stdout(&graph(&["--format", "dot", "--all"]));
    assert!(!all.contains("..") && all.matches(" -> ").count() >= 16 + edges, "{all}");

    assert!(graph(&["-o", "array.svg"]).status.success());
    let svg = std::fs::read_to_string(directory.path().join("array.svg")).unwrap();
    assert_eq!(stdout(&graph(&["--svg"])).trim_end(), svg.trim_end());
    let boxes = svg.matches("class=\"box\"").count();
    assert_eq!(boxes, dot.matches("[label=\"").count() - edges, "{svg}");
    let wires = svg.matches("class=\"edge").count();
    assert!(wires > 3 && wires <= edges, "{wires} of {edges}: edges between two blocks are one");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&graph(&["--format", "json"]))).unwrap();
    assert!(json["nodes"].as_array().unwrap().len() > boxes, "JSON has every replica");
    let rejected = graph(&["-o", "array.png"]);
    assert_eq!(rejected.status.code(), Some(1));
    assert!(stderr(&rejected).contains("must end in `.svg`"), "{}", stderr(&rejected));
}

/// Replicas of which one gets half of the frames.
const REPLICAS: &str = "flowgraph: replicas
blocks:
  source: {kind: null_source, replicate: 4, parameters: {dtype: i8, axes: [{name: sample, len: 4096}], samples_per_frame: 4096, adc_sample_rate_hz: 1e6, frames: '${8 if index == 2 else 16}'}}
  sink: {kind: null_sink, replicate: 4, input: 'source[${index}]'}
  other: {kind: null_source, parameters: {dtype: i8, axes: [{name: sample, len: 4096}], samples_per_frame: 4096, adc_sample_rate_hz: 1e6, frames: 3}}
  end: {kind: null_sink, input: other}
";

#[test]
fn run_folds_replicas_in_its_results_unless_all_are_wanted() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("replicas.yaml"), REPLICAS).unwrap();
    let folded = stdout(&run(&["run", "replicas.yaml"], directory.path()));
    let row = |name: &str| folded.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(row("source[0..3] ").contains(" 8..16 "), "{folded}");
    assert!(row("\u{2514} source[").contains(" worst "), "{folded}");
    assert!(row("other ").contains(" 3 "), "{folded}");
    let all = stdout(&run(&["run", "replicas.yaml", "--all"], directory.path()));
    assert!(all.contains("source[2] ") && !all.contains(".."), "{all}");
    let json = run(&["run", "replicas.yaml", "--json"], directory.path());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["blocks"].as_array().unwrap().len(), 10);
}

#[test]
fn list_and_explain_suggest_near_misses() {
    let directory = tempfile::tempdir().unwrap();
    assert!(stdout(&run(&["list"], directory.path())).contains("null_source"));
    assert!(stdout(&run(&["list", "null_source"], directory.path())).contains("samples_per_frame"));
    let output = run(&["list", "nul_source"], directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("did you mean `null_source`?"));
    for code in ["e0203", "203"] {
        assert!(stdout(&run(&["explain", code], directory.path())).starts_with("# E0203"));
    }
}

#[test]
fn piped_output_has_colours_only_on_request() {
    let directory = tempfile::tempdir().unwrap();
    assert!(!stdout(&run(&["list"], directory.path())).contains('\x1b'));
    assert!(stdout(&run(&["list", "--color", "always"], directory.path())).contains('\x1b'));
}

#[test]
fn pipe_closed_early_is_not_an_error() {
    let mut child = fxgraph()
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(said, "");
}

/// Runs `fxgraph` with a closed stdout; returns exit code and stderr.
fn unread(arguments: &[&str], directory: &Path) -> (Option<i32>, String) {
    let mut command = fxgraph();
    let (stdout, stderr) = (Stdio::piped(), Stdio::piped());
    let mut child = command
        .args(arguments)
        .current_dir(directory)
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

/// Flowgraph whose last block fails while it runs.
fn failing(directory: &Path) {
    let text = "flowgraph: failing
blocks:
  source:
    kind: null_source
    parameters:
      {dtype: i8, axes: [{name: sample, len: 64}], samples_per_frame: 64, frames: 3}
  out: {kind: file_sink, input: source, parameters: {path: full.npy}}
";
    std::fs::write(directory.join("failing.yaml"), text).unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.join("full.npy")).unwrap();
}

#[test]
fn verdict_sets_exit_code_even_with_closed_stdout() {
    let directory = generated();
    let path = directory.path().join("demo.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(unread(&["test", "demo.yaml"], directory.path()).0, Some(0));
    std::fs::write(&path, text.replace("source, frames: 3", "source, frames: 4")).unwrap();
    assert_eq!(unread(&["test", "demo.yaml"], directory.path()).0, Some(1));

    failing(directory.path());
    let (code, said) = unread(&["run", "failing.yaml"], directory.path());
    assert_eq!(code, Some(1));
    assert!(said.starts_with("error: `out` failed"), "{said}");
    let (code, said) = unread(&["validate", "demo.yaml", "missing.yaml"], directory.path());
    assert_eq!(code, Some(78));
    assert!(said.contains("missing.yaml"), "{said}");
    for command in ["list", "plan", "graph"] {
        let file = if command == "list" { "pfb" } else { "demo.yaml" };
        assert_eq!(
            unread(&[command, file], directory.path()),
            (Some(0), String::new()),
            "{command}"
        );
    }
}

#[test]
fn full_stdout_does_not_hide_the_fault_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    failing(directory.path());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = fxgraph();
    let output =
        command.args(["run", "failing.yaml"]).current_dir(directory.path()).stdout(full).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 2, "{said}");
    assert!(errors.iter().any(|line| line.starts_with("error: cannot write the results")));
    assert!(errors.iter().any(|line| line.starts_with("error: `out` failed")));
}

fn pipe(directory: &Path) {
    assert!(Command::new("mkfifo").arg(directory.join("pipe")).status().unwrap().success());
}

#[test]
fn validate_rejects_a_pipe() {
    let directory = tempfile::tempdir().unwrap();
    pipe(directory.path());
    let output = run(&["validate", "pipe"], directory.path());
    assert_eq!(output.status.code(), Some(78));
    assert!(stderr(&output).contains("it is not a regular file"), "{}", stderr(&output));
}

#[test]
fn file_source_rejects_a_pipe_at_once() {
    let directory = tempfile::tempdir().unwrap();
    pipe(directory.path());
    let text = "flowgraph: piped
blocks:
  source:
    kind: file_source
    parameters:
      path: pipe
      raw: {dtype: i8, axes: [{name: sample, len: 64}], samples_per_frame: 64}
  sink: {kind: null_sink, input: source}
";
    std::fs::write(directory.path().join("piped.yaml"), text).unwrap();
    let output = run(&["run", "piped.yaml"], directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("it is not a regular file"), "{}", stderr(&output));
}

#[test]
fn validate_reads_standard_input() {
    let directory = generated();
    let piped = |arguments: &[&str], text: &[u8]| {
        let mut command = fxgraph();
        let command = command.args(arguments).current_dir(directory.path()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The program may close the pipe after reading enough.
        let _ = child.stdin.take().unwrap().write_all(text);
        child.wait_with_output().unwrap()
    };
    let text = std::fs::read(directory.path().join("demo.yaml")).unwrap();
    assert_eq!(stdout(&piped(&["validate", "-"], &text)), "ok -\n");
    for command in ["run", "plan", "graph", "test"] {
        let output = piped(&[command, "-"], &text);
        assert!(output.status.success(), "{command}: {}", stderr(&output));
    }
    let rejected = |text: &[u8], why: &str| {
        let output = piped(&["validate", "-"], text);
        assert_eq!(output.status.code(), Some(78));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    };
    rejected(b"flowgraph: x\nbloks: {}\n", "--> standard input:2:1");
    rejected(b"\xff", "cannot read `standard input`: it is not UTF-8 text");
    rejected(&vec![b' '; 17 << 20], "it must have at most 16777216 bytes");
}

#[test]
fn signal_during_the_check_ends_the_program_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // The check asks the process of a block in Python for its output.
    let script = format!("#!/bin/sh\n: > '{}'\nexec sleep 60\n", path("asked").display());
    programs::write(&path("slow"), &script);
    let block = format!(
        "  f: {{kind: python, input: source, parameters: {{file: f.py, class: F, python: '{}'}}}}\n",
        path("slow").display()
    );
    std::fs::write(path("f.py"), "class F: pass\n").unwrap();
    std::fs::write(
        path("stuck.yaml"),
        ENDLESS.replace("  sink: {kind: null_sink, input: source}\n", &block)
            + "  sink: {kind: null_sink, input: f}\n",
    )
    .unwrap();
    let mut command = fxgraph();
    let command = command.args(["run", "stuck.yaml"]).current_dir(directory.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while !path("asked").exists() {
        assert!(began.elapsed() < Duration::from_mins(1), "the check does not ask");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(stderr(&output), "interrupted before the flowgraph started\n");
}

#[test]
fn capture_from_a_pipe_waits_for_its_writer_while_the_flowgraph_runs() {
    let text = "flowgraph: piped
blocks:
  source: {kind: spead_source, parameters: {stream: digitiser, pcap: pipe, adc_sample_rate_hz: 1.0e+6}}
  sink: {kind: null_sink, input: source}
";
    let directory = tempfile::tempdir().unwrap();
    pipe(directory.path());
    let mut program = Program::running(directory.path(), text, &[]);
    let said = program.until("waits for data from the pipe pipe");
    assert!(said.contains("warning: `source`: "), "{said}");
    program.signal("-TERM");
    let output = program.end();
    assert!(output.status.success(), "{}", stderr(&output));
    // A writer that has no capture.
    let program = Program::running(directory.path(), text, &[]);
    std::fs::write(directory.path().join("pipe"), "no capture at all, but long enough").unwrap();
    let output = program.end();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("not a pcap or pcapng file"), "{}", stderr(&output));
}

#[test]
fn endless_test_fails_after_the_timeout() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "{ENDLESS}tests:\n  - {{name: to the end, expect: [{{tap: source, frames: 1}}]}}\n"
    );
    std::fs::write(directory.path().join("endless.yaml"), text).unwrap();
    let output = run(&["test", "endless.yaml", "--timeout", "300ms"], directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("no end after 0.3 s (`--timeout`)"), "{}", stdout(&output));
}

#[test]
fn test_without_matching_tests_is_an_error() {
    let directory = generated();
    let output = run(&["test", "demo.yaml", "--only", "zzz"], directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no test name contains `zzz`"));
    std::fs::write(directory.path().join("endless.yaml"), ENDLESS).unwrap();
    let output = run(&["test", "endless.yaml"], directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("`endless.yaml` has no tests"));
}

/// The first test passes, the second does not.
const SEVERAL: &str = "flowgraph: several
parameters: {lens: , names: [x]}
blocks:
  a:
    kind: null_source
    replicate: '${len(lens)}'
    parameters:
      {dtype: i8, axes: [{name: sample, len: 64}], samples_per_frame: 64, frames: '${lens[index]}'}
  sink: {kind: null_sink, input: 'a[0]'}
  other: {kind: null_sink, input: 'a[1]'}
tests:
  - name: as long
    set: {lens: [4, 4], names: ['a: b', 3]}
    expect: [{tap: 'a[0]', same_as: 'a[1]'}]
  - name: not as long
    set: {lens: [30, 3]}
    expect: [{tap: 'a[0]', same_as: 'a[1]'}]
";

#[test]
fn tests_set_required_parameters_and_compare_every_frame() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("several.yaml"), SEVERAL).unwrap();
    let output = run(&["test", "several.yaml"], directory.path());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("ok as long"), "{said}");
    assert!(said.contains("saw 30 frames, `a[1]` has 3"), "{said}");
    let output = run(&["test", "several.yaml", "--set", "lens=[2, 2]"], directory.path());
    assert!(stdout(&output).ends_with("2 passed, 0 failed\n"), "{}", stderr(&output));
}

#[test]
fn missing_alongside_flowgraph_is_reported_before_the_start() {
    let directory = generated();
    let path = directory.path().join("demo.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let name = "  - name: every frame arrives\n";
    let with = format!("{name}    alongside: [{{flowgraph: sender.yaml}}]\n");
    std::fs::write(&path, text.replace(name, &with)).unwrap();
    let output = run(&["validate", "demo.yaml"], directory.path());
    assert_eq!(output.status.code(), Some(78));
    assert!(stderr(&output).contains("cannot read `sender.yaml`"), "{}", stderr(&output));
}

#[test]
fn too_little_memory_is_an_error_of_run_and_a_warning_of_validate() {
    let directory = tempfile::tempdir().unwrap();
    let large = ENDLESS.replace("64", "4000000000").replace("source}", "source, queue: 4096}");
    std::fs::write(directory.path().join("large.yaml"), large).unwrap();
    for (command, code, word) in
        [("run", 78, "error"), ("validate", 0, "warning"), ("plan", 0, "warning")]
    {
        let output = run(&[command, "large.yaml"], directory.path());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(&format!("{word}[E0302]: the flowgraph needs 16.4 TB")), "{said}");
        assert!(said.contains("4098 frames of 4 GB of `source.output`"), "{said}");
    }
}

#[test]
fn two_sinks_with_the_same_file_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "{ENDLESS}  a: {{kind: file_sink, input: source, parameters: {{path: a.npy}}}}\n  \
         b: {{kind: file_sink, input: source, parameters: {{path: ./a.npy}}}}\n"
    );
    std::fs::write(directory.path().join("twice.yaml"), text).unwrap();
    let output = run(&["validate", "twice.yaml"], directory.path());
    assert_eq!(output.status.code(), Some(78));
    assert!(stderr(&output).contains("error[E0304]: `a` and `b` both write a.npy"));
}

#[test]
fn signal_drains_the_flowgraph_and_results_are_written() {
    let directory = tempfile::tempdir().unwrap();
    for signal in ["-INT", "-TERM"] {
        let program = Program::running(directory.path(), ENDLESS, &[]);
        program.signal(signal);
        let output = program.end();
        assert!(output.status.success(), "{}", stderr(&output));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let made = &result["blocks"][0]["frames_out"];
        assert_eq!(made, &result["blocks"][1]["frames_in"], "queued frames arrive");
    }
}

/// Flowgraph whose frames take minutes to send.
const SLOW: &str = "flowgraph: slow
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000, signals: 'cw(0.1, 100)'}
  out:
    kind: spead_sink
    input: source.pol0
    parameters: {stream: digitiser, destinations: ['127.0.0.1:9']}
  rest: {kind: null_sink, input: source.pol1}
";

#[test]
fn run_under_nohup_outlives_its_terminal() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("endless.yaml"), ENDLESS).unwrap();
    let script = format!(
        "trap '' HUP; '{}' run endless.yaml --duration 60s --json & sleep 1; kill -HUP $!; sleep 1; \
         kill -0 $! || exit 3; kill -INT $!; wait $!",
        env!("CARGO_BIN_EXE_fxgraph")
    );
    let mut command = Command::new("bash");
    let output = command.args(["-c", &script]).current_dir(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn file_beyond_the_size_limit_fails_its_block_and_stays_readable() {
    let directory = tempfile::tempdir().unwrap();
    let text = "flowgraph: large
parameters: {frames: 100}
blocks:
  source:
    kind: null_source
    parameters: {dtype: i8, axes: [{name: sample, len: 65536}], samples_per_frame: 65536, frames: '${frames}'}
  out: {kind: file_sink, input: source, parameters: {path: large.npy}}
";
    std::fs::write(directory.path().join("large.yaml"), text).unwrap();
    let script =
        format!("ulimit -f 962; exec '{}' run -q large.yaml", env!("CARGO_BIN_EXE_fxgraph"));
    let mut command = Command::new("bash");
    let output = command.args(["-c", &script]).current_dir(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let expected = "error: `out` failed: cannot write large.npy: the file exceeds the limit on the size of files (`ulimit -f`)\n";
    assert_eq!(stderr(&output), expected);
    // A library writes the archive, with its own error message.
    std::fs::write(directory.path().join("archive.yaml"), text.replace("large.npy", "large.npz"))
        .unwrap();
    let mut command = Command::new("bash");
    let script = script.replace("large.yaml", "archive.yaml --set frames=15");
    let output = command.args(["-c", &script]).current_dir(directory.path()).output().unwrap();
    let expected = "error: `out` failed: cannot write large.npz: the file exceeds the limit on the size of files (`ulimit -f`); the arrays are still in large.npz.parts\n";
    assert_eq!(stderr(&output), expected);
    let side = std::fs::read(directory.path().join("large.npy.json")).unwrap();
    let side: serde_json::Value = serde_json::from_slice(&side).unwrap();
    assert_eq!((&side["complete"], &side["frames"]), (&false.into(), &15.into()));
    let again = text.replace("null_source", "file_source").replace("out", "again");
    let parameters = again.find("{dtype").unwrap()..again.find("frames}'}").unwrap() + 9;
    let again = again.replace(&again[parameters].to_owned(), "{path: large.npy}");
    std::fs::write(directory.path().join("again.yaml"), again).unwrap();
    let played = run(&["run", "again.yaml"], directory.path());
    let said = stderr(&played);
    assert!(played.status.success(), "{said}");
    assert!(
        said.contains("warning: `source`: large.npy was not closed: frames after the 15"),
        "{said}"
    );
    assert!(said.contains("warning: `again`: large.npy exists; writing to large_2.npy"), "{said}");
}

#[test]
fn second_signal_aborts_without_draining() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SLOW, &[]);
    program.signal("-INT");
    program.wait("draining");
    program.signal("-INT");
    let output = program.end();
    assert_eq!(output.status.code(), Some(130), "frames were dropped");
    assert!(stderr(&output).contains("press Ctrl-C again to abort"), "{}", stderr(&output));
    assert!(stdout(&output).contains("spead_sink"), "the results are still written");
}

#[test]
fn drain_without_frames_is_aborted_and_names_the_block() {
    let text = http::FILTERED.replace(
        "  sink: {kind: null_sink, input: f}",
        "  hung: {kind: fault_injector, input: f, parameters: {fault: stall, stall_seconds: 3600}}\n  \
         sink: {kind: null_sink, input: hung}",
    );
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), &text, &[]);
    let hangs =
        |counter: &serde_json::Value| counter["name"] == "faults_injected" && counter["count"] == 1;
    let counters = || program.get("/api/v1/blocks/hung").json()["counters"].clone();
    while !counters().as_array().unwrap().iter().any(hangs) {
        std::thread::sleep(Duration::from_millis(20));
    }
    program.signal("-TERM");
    let output = program.end();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("draining for ") && said.contains("waits for "), "{said}");
    let aborted = said.lines().find(|line| line.contains("no frame has passed for 10 s"));
    assert!(aborted.is_some_and(|line| line.contains("`hung`")), "{said}");
}

#[test]
fn hangup_signal_applies_the_edited_file_and_reports_its_errors() {
    let directory = tempfile::tempdir().unwrap();
    let mut program = Program::running(directory.path(), http::FILTERED, &[]);
    let file = directory.path().join("flowgraph.yaml");
    let value = |program: &Program, block: &str, key: &str| {
        program.get(&format!("/api/v1/blocks/{block}")).json()[key].clone()
    };
    let edit = |program: &mut Program, text: &str, wanted: &str| {
        std::fs::write(&file, text).unwrap();
        program.signal("-HUP");
        program.until(wanted)
    };
    // The owner may name a file that clients may not name.
    let sink = "sink: {kind: file_sink, input: f, parameters: {path: kept.npy}}";
    let edited = http::FILTERED
        .replace("wgn(0.1)", "wgn(0.2)")
        .replace("sink: {kind: null_sink, input: f}", sink);
    edit(&mut program, &edited, "applied `flowgraph.yaml`: changed 2 blocks from timestamp ");
    assert_eq!(value(&program, "source", "parameters")["signals"], "wgn(0.2)");
    assert_eq!(value(&program, "sink", "kind"), "file_sink");
    let said = edit(&mut program, &edited.replace("taps", "tapps"), "did you mean `taps`?");
    assert!(said.contains("`flowgraph.yaml` was not applied"), "{said}");
    let more = format!("{edited}  more: {{kind: null_sink, input: f}}\n");
    let said = edit(&mut program, &more, "--restart");
    assert!(said.contains("needs a restart: `more`: it is new"), "{said}");
    std::fs::remove_file(&file).unwrap();
    program.signal("-HUP");
    program.until("there is no such file");
    assert_eq!(value(&program, "source", "parameters")["signals"], "wgn(0.2)");
    program.signal("-TERM");
    let output = program.end();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(directory.path().join("kept.npy").exists());
}

#[test]
fn watched_file_is_applied_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let included = "templates:\n  t:\n    blocks:\n      source: {kind: null_source, parameters: {dtype: i8, axes: [{name: sample, len: 64}], samples_per_frame: 64}}\n    outputs: {out: source}\n";
    let text = http::FILTERED.to_owned() + "include: [more.yaml]\n";
    std::fs::write(directory.path().join("more.yaml"), included).unwrap();
    let mut program = Program::running(directory.path(), &text, &["--watch"]);
    // An editor writes another file and renames it.
    let (draft, file) = (directory.path().join("draft"), directory.path().join("flowgraph.yaml"));
    std::fs::write(&draft, text.replace("wgn(0.1)", "wgn(0.2)")).unwrap();
    std::fs::rename(draft, file).unwrap();
    program.until("applied `flowgraph.yaml`: changed 1 block from timestamp ");
    std::fs::write(directory.path().join("more.yaml"), "templates: 7\n").unwrap();
    program.until("`flowgraph.yaml` was not applied");
    std::fs::write(directory.path().join("more.yaml"), included).unwrap();
    program.until("applied `flowgraph.yaml`: no block differs");
    program.signal("-TERM");
    assert!(program.end().status.success());
    let rejected = run(&["run", "example:01_first_light", "--watch"], directory.path());
    assert!(stderr(&rejected).contains("cannot be read again"), "{}", stderr(&rejected));
}

#[test]
fn duration_ends_the_run() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("endless.yaml"), ENDLESS).unwrap();
    let output = run(&["run", "endless.yaml", "--duration", "200ms"], directory.path());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("null_source"));
}

#[test]
fn schema_accepts_every_flowgraph_and_rejects_unknown_keys() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut values: Vec<(String, serde_json::Value)> = Vec::new();
    let flowgraphs = root().join("flowgraphs");
    for entry in std::fs::read_dir(flowgraphs).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            values.push((path.display().to_string(), serde_yaml::from_str(&text).unwrap()));
        }
    }
    assert!(!values.is_empty());
    values.push(("odd".to_owned(), serde_json::json!({"flowgraph": "x", "bloks": {}})));
    let values = serde_json::to_vec(&values).unwrap();
    std::fs::write(directory.path().join("values.json"), values).unwrap();
    let schema = run(&["schema"], directory.path()).stdout;
    std::fs::write(directory.path().join("schema.json"), schema).unwrap();
    // Prints the names of values that the schema rejects.
    let script = "import json, jsonschema
schema = json.load(open('schema.json'))
kind = jsonschema.validators.validator_for(schema)
kind.check_schema(schema)
for name, value in json.load(open('values.json')):
    for error in kind(schema).iter_errors(value):
        print(name, error.message)";
    let mut python = Command::new(python::python());
    let output = python.args(["-c", script]).current_dir(directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(!said.is_empty() && said.lines().all(|line| line.starts_with("odd ")), "{said}");
}

#[test]
fn help_matches_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let mut text = stdout(&run(&["--help"], directory.path()));
    for command in [
        "run",
        "validate",
        "test",
        "plan",
        "graph",
        "top",
        "tap",
        "set",
        "swap",
        "record",
        "compare",
        "events",
        "stop",
        "list",
        "schema",
        "explain",
        "generate",
        "completions",
    ] {
        text += &format!("\n$ fxgraph {command} --help\n");
        text += &stdout(&run(&[command, "--help"], directory.path()));
    }
    insta::with_settings!({snapshot_path => "snapshots", prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("help", text);
    });
}

#[test]
fn list_and_plan_match_snapshots() {
    let directory = generated();
    let list = stdout(&run(&["list"], directory.path()));
    // The layout of the table; the set of kinds may change.
    let shown = ["kind ", "antenna_stack ", "fft ", "null_source ", "pfb ", "spead_sink "];
    let is_shown = |line: &&str| shown.iter().any(|word| line.starts_with(word));
    let list = list.lines().filter(is_shown).collect::<Vec<_>>().join("\n");
    let plan = stdout(&run(&["plan", "demo.yaml"], directory.path()));
    insta::with_settings!({snapshot_path => "snapshots", prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("list", list);
        insta::assert_snapshot!("plan", plan);
    });
}

#[test]
fn unsupported_gpu_implementations_are_rejected_with_their_line() {
    let directory = tempfile::tempdir().unwrap();
    let text = include_str!("refused_forms.yaml");
    std::fs::write(directory.path().join("forms.yaml"), text).unwrap();
    let output = run(&["validate", "forms.yaml"], directory.path());
    assert_eq!(output.status.code(), Some(78));
    insta::with_settings!({snapshot_path => "snapshots", prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("refused_forms", stderr(&output));
    });
    let on_cpu = ["two_pass", "hopper"]
        .iter()
        .fold(text.replace("cuda:0", "cpu"), |text, implementation| {
            text.replace(&format!("    implementation: {implementation}\n"), "")
        });
    std::fs::write(directory.path().join("forms.yaml"), on_cpu).unwrap();
    let output = run(&["validate", "forms.yaml"], directory.path());
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn unreadable_default_tuning_file_is_a_warning() {
    let directory = generated();
    let configuration = directory.path().join("fxgraph");
    std::fs::create_dir(&configuration).unwrap();
    let file = configuration.join("tuning.json");
    let run = || {
        let mut command = fxgraph();
        let command = command.args(["run", "-q", "demo.yaml"]).current_dir(directory.path());
        let output = command.env("XDG_CONFIG_HOME", directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    assert_eq!(run(), "");
    std::fs::write(&file, "[1]").unwrap();
    let said = run();
    assert!(said.starts_with("warning: ") && said.contains("is not a tuning file"), "{said}");
    std::fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    assert!(run().contains("tuning.json cannot be read: it is not a regular file"));
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(run().contains("tuning.json cannot be read: it is not a regular file"));
}

#[test]
fn tune_without_gpu_writes_nothing_and_run_checks_tuning_files() {
    let directory = generated();
    let tuned = run(&["tune", "demo.yaml", "--tuning", "tuning.json"], directory.path());
    assert_eq!(tuned.status.code(), Some(0), "{}", stderr(&tuned));
    assert!(stdout(&tuned).contains("no block on a GPU"));
    assert!(!directory.path().join("tuning.json").exists());
    let missing = run(&["run", "demo.yaml", "--tuning", "tuning.json"], directory.path());
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("there is no tuning file"));
    std::fs::write(directory.path().join("tuning.json"), "[1]").unwrap();
    let wrong = run(&["run", "demo.yaml", "--tuning", "tuning.json"], directory.path());
    assert!(stderr(&wrong).contains("is not a tuning file"), "{}", stderr(&wrong));
}
