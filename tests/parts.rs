//! Flowgraphs with hosts, run as one process and as a process for each host.

use crate::support::repository::root;
use crate::support::{dumps, http, stops};
use dumps::dumps;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn flowgraph() -> PathBuf {
    root().join("flowgraphs/19_hosts.yaml").canonicalize().unwrap()
}

fn fxgraph() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fxgraph"))
}

fn run(arguments: &[&str], directory: &Path) -> Output {
    fxgraph().args(arguments).current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn parts_give_the_visibilities_of_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let flowgraph = flowgraph();
    let flowgraph = flowgraph.to_str().unwrap();
    let set = |out: &'static str| {
        // At this rate the queues of the flowgraph hold 5 s, for machines with much other work.
        let rate = "adc_sample_rate_hz=428000";
        ["--set", "antennas=2", "--set", "dumps=20", "--set", rate, "--set", out].map(str::to_owned)
    };
    let mut arguments = vec!["run".to_owned(), flowgraph.to_owned()];
    arguments.extend(set("out=one"));
    let one = fxgraph().args(&arguments).current_dir(directory.path()).output().unwrap();
    assert!(one.status.success(), "{}", text(&one.stderr));

    let mut arguments = vec!["run".to_owned(), flowgraph.to_owned(), "--as-parts".to_owned()];
    arguments.extend(["-o".to_owned(), "parts".to_owned()]);
    arguments.extend(set("out=three"));
    let three = fxgraph().args(&arguments).current_dir(directory.path()).output().unwrap();
    let (said, results) = (text(&three.stderr), text(&three.stdout));
    assert!(three.status.success(), "{said}\n{results}");
    for part in ["f_host[0]", "f_host[1]", "x_host"] {
        assert!(said.contains(&format!("{part}: runs at http://127.0.0.1:")), "{said}");
        assert!(results.contains(&format!("part {part}\n")), "{results}");
    }
    let started = |part: &str| said.find(&format!("{part}: runs at")).unwrap();
    assert!(started("x_host") < started("f_host[0]"), "receivers start first\n{said}");
    for file in ["f_host_0.yaml", "f_host_1.yaml", "x_host_0.yaml"] {
        let validated = run(&["validate", &format!("parts/{file}")], directory.path());
        assert!(validated.status.success(), "{}", text(&validated.stdout));
    }

    let one = dumps(&directory.path().join("one"), "visibilities");
    let three = dumps(&directory.path().join("three"), "visibilities");
    assert_eq!(one.len(), 20);
    // A dump is whole if its counts are those of the run in one process, in which nothing is missing.
    let (full, _) = &one[one.keys().next().unwrap()];
    let mut whole = 0;
    for (timestamp, (validity, visibilities)) in &three {
        let (_, expected) = &one[timestamp];
        if validity == full {
            assert!(visibilities == expected, "visibilities at {timestamp}");
            whole += 1;
        }
    }
    assert!(one.values().all(|(validity, _)| validity == full));
    assert!(full.iter().any(|byte| *byte != 0));
    assert!(whole >= 8, "{whole} of {} dumps are whole\n{said}\n{results}", three.len());
}

#[test]
fn array_of_two_x_engines_gives_the_same_visibilities_in_one_process_and_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    for (out, extra) in [("out=one", &[][..]), ("out=parts", &["--as-parts", "-o", "run"])] {
        let set = ["--set", "dumps=12", "--set", "adc_sample_rate_hz=428000", "--set", out];
        let done = run(&[&["run", "example:20_array"][..], &set, extra].concat(), directory.path());
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
    for engine in ["0", "1"] {
        let one = dumps(&directory.path().join("one").join(engine), "visibilities");
        let parts = dumps(&directory.path().join("parts").join(engine), "visibilities");
        assert_eq!(one.len(), 12);
        let (full, _) = &one[one.keys().next().unwrap()];
        assert!(one.values().all(|(validity, _)| validity == full));
        let whole = parts.iter().filter(|(_, (validity, _))| validity == full);
        let whole = whole.inspect(|(time, dump)| assert!(**dump == one[*time], "dump at {time}"));
        let whole = whole.count();
        assert!(whole >= 5, "{whole} of {} dumps of X-engine {engine} are whole", parts.len());
    }
}

/// The hosts send samples and spectra to each other by multicast. At this rate their sockets hold what arrives while they are
/// stopped.
#[test]
fn array_of_processes_loses_nothing_while_each_of_them_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let set = ["--set", "dumps=40", "--set", "adc_sample_rate_hz=214000", "--set", "antennas=2"];
    let one = [&["run", "example:20_array"][..], &set, &["--set", "out=one"]].concat();
    let done = run(&one, directory.path());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let parts = ["--set", "out=parts", "--as-parts", "-o", "run"];
    let parts = [&["run", "example:20_array"][..], &set, &parts].concat();
    let mut parts_run = fxgraph();
    parts_run.args(parts).current_dir(directory.path());
    let said = stops::run(&mut parts_run, directory.path(), stops::children);
    for engine in ["0", "1"] {
        let one = dumps(&directory.path().join("one").join(engine), "visibilities");
        let parts = dumps(&directory.path().join("parts").join(engine), "visibilities");
        assert_eq!(one.len(), 40);
        assert!(one == parts, "X-engine {engine}: {} dumps\n{said}", parts.len());
    }
}

#[test]
fn plan_shows_hosts_and_streams() {
    let directory = tempfile::tempdir().unwrap();
    let flowgraph = flowgraph();
    let flowgraph = flowgraph.to_str().unwrap();
    let shown = run(&["plan", flowgraph], directory.path());
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let shown = text(&shown.stdout);
    assert!(shown.contains("239.102.0.3:7148"), "{shown}");
    assert!(shown.contains("f[3].postproc.output"), "{shown}");
    let shown = run(&["plan", "--json", flowgraph], directory.path());
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["hosts"][0]["name"], "f_host[0]");
    assert_eq!(shown["hosts"][2]["received"].as_array().unwrap().len(), 4);
    assert_eq!(shown["streams"][1]["to"], serde_json::json!(["x_host"]));
    // Two polarisations of 8 + 8 bits at half the sample rate, from four antennas, and headers.
    let rate = shown["hosts"][2]["gbit_per_second_in"].as_f64().unwrap();
    let payload = 4.0 * 2.0 * 16.0 * 1_712_000.0 / 2.0 / 1e9;
    assert!((payload..1.05 * payload).contains(&rate), "{rate} Gbit/s, {payload} of payload");

    let set = ["plan", flowgraph, "--set", "adc_sample_rate_hz=1712000000"];
    let rejected = run(&set, directory.path());
    assert_eq!(rejected.status.code(), Some(78));
    let said = text(&rejected.stderr);
    assert!(said.contains("`x_host` does not fit, because it receives"), "{said}");
    assert!(text(&rejected.stdout).contains("x_host"), "the plan is shown all the same");
}

/// A slow sender on one host and its reader on another; `FAIL` fails after half a second.
const PAIR: &str = "flowgraph: pair
hosts: {a: {}, b: {}}
network: {multicast: 239.214.0.0/24}
blocks:
  source:
    kind: digitiser_simulator
    host: a
    parameters: {adc_sample_rate_hz: 1000000, samples_per_frame: 8192, paced: true, signals: wgn(0.1)}
  end: {kind: null_sink, host: a, input: source.pol1}
  check: {kind: fault_injector, host: b, input: source.pol0, parameters: {FAIL}}
  sink: {kind: null_sink, host: b, input: check}
";

#[test]
fn failed_part_is_named_with_its_error_and_ends_the_others() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(
        directory.path().join("pair.yaml"),
        PAIR.replace("FAIL", "fault: error, after_frames: 40"),
    )
    .unwrap();
    let began = Instant::now();
    let ran = run(&["run", "pair.yaml", "--as-parts"], directory.path());
    assert_eq!(ran.status.code(), Some(1), "{}", text(&ran.stderr));
    let said = text(&ran.stderr);
    assert!(said.contains("error: part `b` failed (exit status: 1): `check` failed"), "{said}");
    assert!(!said.contains("part `a` failed"), "{said}");
    assert!(began.elapsed() < Duration::from_mins(2));
}

/// Starts the parts of `PAIR` with further arguments and returns the program, once both run, and the process identifiers of the parts.
fn pair(
    directory: &Path,
) -> (std::process::Child, BufReader<std::process::ChildStderr>, Vec<String>) {
    let (program, stderr, children, _) = pair_with(directory, &[]);
    (program, stderr, children)
}

/// Parts that run: the program, its stderr, the process identifiers of the parts, and what it said.
type Parts = (std::process::Child, BufReader<std::process::ChildStderr>, Vec<String>, String);

fn pair_with(directory: &Path, arguments: &[&str]) -> Parts {
    parts_of(directory, &PAIR.replace("FAIL", ""), arguments)
}

/// Starts the two parts of `flowgraph`, which is written to `pair.yaml`.
fn parts_of(directory: &Path, flowgraph: &str, arguments: &[&str]) -> Parts {
    fs::write(directory.join("pair.yaml"), flowgraph).unwrap();
    // `nohup`, with which the tests may run, makes programs ignore SIGHUP.
    let mut program = Command::new("env")
        .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_fxgraph")])
        .args(["run", "pair.yaml", "--as-parts"])
        .args(arguments)
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(program.stderr.take().unwrap());
    let mut said = String::new();
    while said.matches(": runs at").count() < 2 {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let path = format!("/proc/{0}/task/{0}/children", program.id());
    let children = fs::read_to_string(path).unwrap();
    let children: Vec<String> = children.split_whitespace().map(str::to_owned).collect();
    assert_eq!(children.len(), 2, "{said}");
    (program, stderr, children, said)
}

/// Reads stderr until it contains `wanted`, and returns these lines.
fn until(stderr: &mut impl BufRead, wanted: &str) -> String {
    let mut said = String::new();
    while !said.contains(wanted) {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "no `{wanted}` in:\n{said}");
        let is_rejected = wanted.starts_with("applied") && said.contains("was not applied");
        assert!(!is_rejected, "{said}");
    }
    said
}

#[test]
fn hangup_applies_the_edited_file_to_all_parts_or_to_none() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--state", "live.json", "-o", "parts"];
    let (mut program, mut stderr, _, said) = pair_with(directory.path(), &options);
    let address = said.split("a: runs at http://").nth(1).unwrap().split(':').take(2);
    let address = address.collect::<Vec<_>>().join(":").parse().unwrap();
    let hashes = || {
        let parts = run(&["fleet", "parts", "--json"], directory.path());
        let parts: Vec<serde_json::Value> = serde_json::from_slice(&parts.stdout).unwrap();
        let both = |part: &serde_json::Value| {
            assert_eq!(part["config_hash"], part["deployed_config_hash"], "{part}");
            part["config_hash"].clone()
        };
        parts.iter().map(both).collect::<Vec<_>>()
    };
    let before = hashes();
    let get = |path: &str| http::request(address, "GET", path, &[], b"").json();
    let signals = || get("/api/v1/blocks/source")["parameters"]["signals"].clone();
    while get("/api/v1/blocks/source")["newest_timestamp"].is_null() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let file = directory.path().join("pair.yaml");
    let edited = PAIR.replace("FAIL", "").replace("wgn(0.1)", "wgn(0.2)");
    fs::write(&file, &edited).unwrap();
    signal("-HUP", program.id());
    let said = until(&mut stderr, "applied `pair.yaml`");
    assert!(said.contains("changed parts `a` from timestamp "), "{said}");
    while signals() != "wgn(0.2)" {
        std::thread::sleep(Duration::from_millis(20));
    }
    let after = hashes();
    assert!(after[0] != before[0] && after[1] == before[1], "the deployment follows");
    // Part `b` rejects the next one, so that part `a` does not change either.
    let rejected =
        edited.replace("wgn(0.2)", "wgn(0.3)").replace("sink, host: b", "sink, queue: 9, host: b");
    fs::write(&file, &rejected).unwrap();
    signal("-HUP", program.id());
    let said = until(&mut stderr, "part `b`: it needs a restart");
    assert!(said.contains("`pair.yaml` was not applied: the parts continue unchanged"), "{said}");
    assert_eq!(signals(), "wgn(0.2)");
    assert_eq!(get("/api/v1/flowgraph")["scheduled"], serde_json::json!([]));
    fs::write(&file, "flowgraph: [").unwrap();
    signal("-HUP", program.id());
    until(&mut stderr, "was not applied");
    let kept = || fs::read_to_string(directory.path().join("live.json.a_0")).unwrap_or_default();
    let began = Instant::now();
    while !kept().contains("\"values\":[]") {
        assert!(
            began.elapsed() < Duration::from_mins(1),
            "values of the file are kept: {}",
            kept()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    signal("-INT", program.id());
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(program.wait().unwrap().success(), "{said}");
    // The edited file has the value, so that it is no live value any more: the next file has the last word.
    assert!(!kept().contains("wgn(0.2)"), "{}", kept());
    let (mut program, _stderr, _, said) = pair_with(directory.path(), &["--state", "live.json"]);
    let address = said.split("a: runs at http://").nth(1).unwrap().split(':').take(2);
    let address = address.collect::<Vec<_>>().join(":").parse().unwrap();
    let source = http::request(address, "GET", "/api/v1/blocks/source", &[], b"").json();
    assert_eq!(source["parameters"]["signals"], "wgn(0.1)");
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn interrupt_does_not_wait_for_the_end_of_a_reload() {
    // Frames of 6.4 s, of which a swap needs several.
    let slow = "flowgraph: pair
hosts: {a: {}, b: {}}
blocks:
  source:
    kind: digitiser_simulator
    host: a
    parameters: {adc_sample_rate_hz: 1280, samples_per_frame: 8192, paced: true, signals: wgn(0.1)}
  f: {kind: pfb, host: a, input: source.pol0, parameters: {channels: 16, taps: 4, spectra_per_frame: 256}}
  end: {kind: null_sink, host: a, input: source.pol1}
  sink: {kind: null_sink, host: a, input: f}
  other: {kind: digitiser_simulator, host: b, parameters: {adc_sample_rate_hz: 1280, paced: true}}
  others: {kind: null_sink, host: b, replicate: 2, input: \"other.pol${index}\"}
";
    let directory = tempfile::tempdir().unwrap();
    let (mut program, mut stderr, parts, _) = parts_of(directory.path(), slow, &[]);
    fs::write(directory.path().join("pair.yaml"), slow.replace("taps: 4", "taps: 8")).unwrap();
    signal("-HUP", program.id());
    let is_swapped = || parts.iter().any(|part| threads(part).any(|name| name == "f candidate"));
    let began = Instant::now();
    while !is_swapped() {
        assert!(began.elapsed() < Duration::from_mins(1), "the reload does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal("-INT", program.id());
    let said = until(&mut stderr, "stopping all parts");
    assert!(!said.contains("pair.yaml"), "the reload has ended before: {said}");
    program.kill().unwrap();
    program.wait().unwrap();
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Names of the threads of a process.
fn threads(process: &str) -> impl Iterator<Item = String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
}

/// Whether the process is a running program.
fn lives(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

#[test]
fn interrupt_stops_senders_and_then_receivers() {
    let directory = tempfile::tempdir().unwrap();
    let (mut program, mut stderr, _) = pair(directory.path());
    signal("-INT", program.id());
    let status = program.wait().unwrap();
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    let mut results = String::new();
    program.stdout.take().unwrap().read_to_string(&mut results).unwrap();
    assert!(status.success(), "{said}\n{results}");
    assert!(said.contains("stopping all parts"), "{said}");
    assert!(results.contains("part a\n") && results.contains("part b\n"), "{results}");
}

#[test]
fn parts_end_when_their_parent_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (mut program, _stderr, children) = pair(directory.path());
    signal("-KILL", program.id());
    program.wait().unwrap();
    let began = Instant::now();
    while children.iter().any(|child| lives(child)) {
        assert!(began.elapsed() < Duration::from_mins(1), "a part lives on");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn gains_of_a_megabyte_in_a_file_reach_the_parts() {
    let directory = tempfile::tempdir().unwrap();
    let (channels, gain) = (131_072, [0.5_f32.to_le_bytes(), [0; 4]].concat());
    let gains = [fxgraph::npy::header("<c8", &[1, channels], 0), gain.repeat(channels as usize)];
    fs::write(directory.path().join("gains.npy"), gains.concat()).unwrap();
    let spectra = "
  f: {kind: pfb, host: a, input: source.pol1, parameters: {channels: 131072, spectra_per_frame: 1}}
  t: {kind: fft, host: a, input: f}
  p: {kind: postproc, host: a, input: t, parameters: {gains: {npy: gains.npy}}}
  end: {kind: null_sink, host: a, input: p}
";
    let large = PAIR
        .replace("FAIL", "")
        .replace("\n  end: {kind: null_sink, host: a, input: source.pol1}\n", spectra);
    assert!(large.contains("gains.npy"));
    fs::write(directory.path().join("large.yaml"), large).unwrap();
    let arguments = ["run", "large.yaml", "--as-parts", "-o", "parts", "--duration", "2s"];
    let output = run(&arguments, directory.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let part = fs::read_to_string(directory.path().join("parts/a_0.yaml")).unwrap();
    assert!(part.len() > 1 << 20, "{} bytes", part.len());
    let output = run(&["validate", "parts/a_0.yaml"], directory.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn flowgraph_without_hosts_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(
        directory.path().join("plain.yaml"),
        "flowgraph: plain\nblocks:\n  s: {kind: null_source, parameters: {dtype: i8, axes: [{name: sample, len: 64}], samples_per_frame: 64}}\n  o: {kind: null_sink, input: s}\n",
    )
    .unwrap();
    let ran = run(&["run", "plain.yaml", "--as-parts"], directory.path());
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stderr).contains("`plain` has no `hosts`, so it has no parts"));
}

#[test]
fn parts_without_loopback_are_an_error_at_once() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("pair.yaml"), PAIR.replace("FAIL", "")).unwrap();
    // A network namespace of its own, whose loopback interface is down.
    let alone = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net"]).args(arguments).current_dir(directory.path());
        command.output()
    };
    if !alone(&["true"]).is_ok_and(|made| made.status.success()) {
        let _ = writeln!(std::io::stderr(), "test skipped: no network namespace can be made");
        return;
    }
    let program = env!("CARGO_BIN_EXE_fxgraph");
    let ran = alone(&[program, "run", "pair.yaml", "--as-parts"]).unwrap();
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot connect to 127.0.0.1"), "{said}");
    assert!(said.contains("`ip link set lo up`"), "{said}");
}
