//! The flowgraphs of the repository, as users run them.

use crate::support::repository::root;
use crate::support::{needs, python, stops};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn flowgraphs() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("flowgraphs")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(files.len() >= 6);
    files
}

fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{command:?}\n{said}{}", String::from_utf8_lossy(&stderr));
    said
}

fn fxgraph() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fxgraph"))
}

/// Milliseconds for which a test of a flowgraph runs until it is stopped, each time. The shortest tests take some milliseconds.
const RUNNING: [u64; 8] = [0, 20, 80, 320, 1430, 570, 2910, 730];
/// Milliseconds for which it is stopped.
const STOPPED: [u64; 6] = [100, 300, 1000, 150, 2000, 600];
/// Number of tests that run at the same time.
const TESTERS: usize = 2;

/// Number of tests of `file` that have ended, while another one runs, according to the output so far.
fn ended(file: &Path, said: &Path) -> Option<usize> {
    let said = fs::read_to_string(said).unwrap();
    let runs = said.contains(&format!("{}\n", file.display())) && !said.contains(" passed, ");
    let ends = |line: &&str| line.starts_with("  ok ") || line.starts_with("  FAILED ");
    runs.then(|| said.lines().filter(ends).count())
}

fn signal(signal: Signal, process: u32) {
    // The process may have ended.
    let _ = Pid::from_raw(process as i32).map(|process| kill_process(process, signal));
}

/// Runs the tests of `file` in `directory` while the program and its children are stopped again and again. Returns the
/// output, and the numbers of the tests that were stopped.
fn test_with_stops(file: &Path, directory: &Path) -> (String, BTreeSet<usize>) {
    let said = directory.join("said.txt");
    let output = fs::File::create(&said).unwrap();
    let mut command = fxgraph();
    command.args(["test", "--timeout", "10m"]).arg(file).current_dir(directory);
    command.stdout(output.try_clone().unwrap()).stderr(output);
    let mut program = command.spawn().unwrap();
    let (mut test, mut stops, mut next) = (None, 0, Instant::now());
    let mut stopped = BTreeSet::new();
    while program.try_wait().unwrap().is_none() {
        let running = ended(file, &said);
        if running != test {
            (test, stops) = (running, 0);
            next = Instant::now() + Duration::from_millis(RUNNING[0]);
        }
        if test.is_none() || Instant::now() < next {
            sleep(Duration::from_millis(2));
            continue;
        }
        let victims = [vec![program.id()], stops::children(program.id())].concat();
        let victim = victims[stops % victims.len()];
        signal(Signal::STOP, victim);
        sleep(Duration::from_millis(STOPPED[stops % STOPPED.len()]));
        if victim == program.id() && ended(file, &said) == test {
            stopped.extend(test);
        }
        signal(Signal::CONT, victim);
        stops += 1;
        next = Instant::now() + Duration::from_millis(RUNNING[stops % RUNNING.len()]);
    }
    let said = fs::read_to_string(said).unwrap();
    assert!(program.wait().unwrap().success(), "{command:?}, {stopped:?} stopped\n{said}");
    (said, stopped)
}

/// Checks that all tests of `file` pass although each was stopped at least once.
fn passes_with_stops(file: &Path) {
    let mut stopped = BTreeSet::new();
    for _ in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        let (said, more) = test_with_stops(file, directory.path());
        stopped.extend(more);
        let tests = said.matches("\n  ok ").count();
        assert!(tests > 0 && said.contains(" 0 failed"), "{said}");
        assert!(!directory.path().join("out").exists(), "tests write to the user's directory");
        if (0..tests).all(|test| stopped.contains(&test)) {
            return;
        }
    }
    panic!("of {}, only tests {stopped:?} were stopped", file.display());
}

#[test]
#[ignore = "runs all flowgraphs for minutes: .ci/full runs it, and .ci/run runs them without stops"]
fn every_flowgraph_passes_its_own_tests_while_each_is_stopped_again_and_again() {
    let files = Mutex::new(flowgraphs());
    let test = || {
        let next = || files.lock().unwrap().pop();
        while let Some(file) = next() {
            passes_with_stops(&file);
        }
    };
    std::thread::scope(|scope| (0..TESTERS).for_each(|_| drop(scope.spawn(test))));
}

#[test]
fn first_light_reports_fringes_and_writes_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let flowgraph = root().join("flowgraphs/01_first_light.yaml");
    let said = succeeds(fxgraph().arg("run").arg(flowgraph).current_dir(directory.path()));
    assert!(said.contains("fringes of 4 antennas"), "{said}");
    assert!(directory.path().join("out/first_light.npz").metadata().unwrap().len() > 100_000);
}

#[test]
fn readme_shows_the_graph_as_drawn_by_the_program() {
    let mut draw = fxgraph();
    draw.args(["graph", "flowgraphs/01_first_light.yaml", "--set", "antennas=2"]);
    let drawn = succeeds(draw.current_dir(root()));
    let page = fs::read_to_string(root().join("docs/src/tutorials/first_light.md")).unwrap();
    assert!(page.contains(&format!("```text\n{drawn}```")), "draw it again:\n{drawn}");
}

#[test]
fn readme_shows_an_error_as_written_by_the_program() {
    let directory = tempfile::tempdir().unwrap();
    for part in ["flowgraphs", "flowgraphs/include"] {
        fs::create_dir(directory.path().join(part)).unwrap();
        for entry in fs::read_dir(root().join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap();
                fs::copy(&path, directory.path().join(part).join(name)).unwrap();
            }
        }
    }
    let file = "flowgraphs/01_first_light.yaml";
    let text = fs::read_to_string(root().join(file)).unwrap();
    let last = "\"${elevation_degrees}\"}";
    let wrong = text.replace(last, "\"${elevation_degrees}\", amplitude: 0.1}");
    assert_ne!(text, wrong);
    fs::write(directory.path().join(file), wrong).unwrap();
    let output = fxgraph().args(["validate", file]).current_dir(directory.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let shown = said.split("\n\n").next().unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("```text\n{shown}\n```")), "write it again:\n{shown}");
}

#[test]
fn array_of_several_processes_correlates_over_loopback_multicast() {
    if !needs::python() {
        return;
    }
    // All runs use the same groups; the port separates simultaneous runs.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut listener = Command::new(python::python());
    listener.arg(root().join("tests/peers/array_listener.py")).arg(&port);
    listener.arg(root().join("flowgraphs/multicast_array.sh")).arg("6");
    listener.env("FXGRAPH", env!("CARGO_BIN_EXE_fxgraph")).env("PORT", &port);
    let said = succeeds(&mut listener);
    assert!(said.contains("all engines ended"), "{said}");
}
