//! Crates outside the workspace, built against this checkout: those in `examples`, and the one created by
//! `fxgraph generate block --crate`.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/cargo.rs"]
mod cargo;
#[path = "support/needs.rs"]
mod needs;
#[path = "support/python.rs"]
mod python;
#[path = "support/repository.rs"]
mod repository;

use repository::root;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use tempfile::TempDir;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if name == "target" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(name));
        } else {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

/// Runs `command`, and returns its output.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{said}");
    said
}

/// `cargo` in the crate at `home`.
fn cargo(home: &Path, arguments: &[&str]) -> Command {
    cargo::configure(home);
    let mut cargo = cargo::command("cargo", home);
    cargo.args(arguments);
    cargo
}

#[test]
#[ignore = "compiles for minutes: .ci/full runs it"]
fn generated_crate_passes_its_tests_and_runs() {
    let elsewhere = tempfile::tempdir().unwrap();
    let home = elsewhere.path().join("my_gain");
    let generate = |directory: &Path| {
        let mut fxgraph = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        fxgraph.args(["generate", "block", "my_gain", "--crate"]).arg(directory);
        fxgraph.arg("--fxgraph").arg(root());
        fxgraph
    };
    said(&mut generate(&home));
    assert!(!generate(&home).status().unwrap().success(), "nothing is overwritten");
    assert!(said(&mut cargo(&home, &["test", "-q"])).contains("2 passed"));
    let run = |arguments: &[&str]| said(cargo(&home, &["run", "-q", "--"]).args(arguments));
    assert!(run(&["list", "my_gain"]).contains("samples_above_one"));
    assert!(run(&["test", "flowgraphs/my_gain.yaml"]).contains("1 passed, 0 failed"));
    assert!(run(&["run", "flowgraphs/my_gain.yaml"]).contains("samples_above_one"));
}

/// Copy of one of `examples`, with its program.
struct Example {
    home: TempDir,
    program: &'static str,
}

impl Example {
    /// Builds the example `name`; `tests` is the expected result of its tests.
    fn built(name: &str, program: &'static str, tests: &str) -> Self {
        let root = root();
        let home = tempfile::tempdir().unwrap();
        copy(&root.join("examples").join(name), home.path());
        let manifest = fs::read_to_string(home.path().join("Cargo.toml")).unwrap();
        let manifest = manifest.replace("../..", root.to_str().unwrap());
        fs::write(home.path().join("Cargo.toml"), manifest).unwrap();
        // The same dependency versions, so that they are compiled once for all crates outside the workspace.
        fs::copy(root.join("Cargo.lock"), home.path().join("Cargo.lock")).unwrap();
        assert!(said(&mut cargo(home.path(), &["test", "-q"])).contains(tests));
        said(&mut cargo(home.path(), &["build", "-q"]));
        Self { home, program }
    }

    fn run(&self, arguments: &[&str]) -> Command {
        let mut program = Command::new(self.home.path().join("target/debug").join(self.program));
        program.args(arguments).current_dir(self.home.path());
        program
    }

    /// Returns the output of the program with these arguments.
    fn said(&self, arguments: &[&str]) -> String {
        said(&mut self.run(arguments))
    }

    /// Runs `flowgraph` in real time until it is stopped.
    fn observe(&self, flowgraph: &str) -> Observation<'_> {
        let mut running = self
            .run(&["run", flowgraph])
            .args(["--set", "seconds=600", "--set", "paced=true", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(running.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.contains("http://")).unwrap();
        let address = line.split("http://").nth(1).unwrap();
        let address = address.split(['/', ' ']).next().unwrap().to_owned();
        let rest = std::thread::spawn(move || lines.for_each(drop));
        Observation { example: self, running, rest, address }
    }
}

/// A running flowgraph.
struct Observation<'a> {
    example: &'a Example,
    running: Child,
    rest: JoinHandle<()>,
    address: String,
}

impl Observation<'_> {
    /// Returns the output of a client command for it.
    fn said(&self, arguments: &[&str]) -> String {
        said(self.example.run(arguments).args(["--connect", &self.address]))
    }

    fn stop(mut self) {
        self.said(&["stop"]);
        assert!(self.running.wait().unwrap().success());
        self.rest.join().unwrap();
    }
}

#[test]
#[ignore = "compiles for minutes: .ci/full runs it"]
fn block_of_another_crate_works_with_every_command() {
    if !needs::nvrtc() {
        return;
    }
    let example = Example::built("spectral_kurtosis", "fxgraph-sk", "3 passed");
    const FLOWGRAPH: &str = "flowgraphs/kurtosis_flagger.yaml";

    assert!(example.said(&["list"]).contains("kurtosis_flagger"));
    assert!(example.said(&["list", "kurtosis_flagger"]).contains("channels_flagged"));
    assert!(example.said(&["schema"]).contains("kurtosis_flagger"));
    example.said(&["validate", FLOWGRAPH]);
    assert!(example.said(&["test", FLOWGRAPH]).contains("1 passed, 0 failed"));
    let bench = example.said(&["bench", "--only", "kurtosis_flagger", "--time", "2s"]);
    assert!(bench.contains("kurtosis_flagger, 1024 channels"), "{bench}");

    let running = example.observe(FLOWGRAPH);
    running.said(&["set", "rfi.sigmas=8"]);
    let swapped = running.said(&["swap", "rfi", "sigmas=6"]);
    assert!(swapped.contains("seamless"), "{swapped}");
    let compared =
        running.said(&["compare", "a=rfi", "b={}", "--duration", "1s", "--max-error", "0"]);
    assert!(compared.contains(" 0 different"), "{compared}");
    running.stop();

    // Its CUDA kernel is compiled with those of fxgraph.
    let mut kernels = example.run(&["kernels", "--only", "kurtosis_flagger", "--json"]);
    let kernels = said(kernels.env("LD_LIBRARY_PATH", python::nvrtc()));
    let kernels: Value = serde_json::from_str(&kernels).unwrap();
    let programs = kernels["programs"].as_array().unwrap();
    assert_eq!(programs.len(), 9, "three sets of parameters for three architectures: {kernels}");
    assert!(programs.iter().all(|program| program["program"] == "kurtosis_flagger.cu"));
    assert!(programs.iter().all(|program| program["kernels"][0]["registers"].as_u64() > Some(0)));
}

#[test]
#[ignore = "compiles for minutes: .ci/full runs it"]
fn filter_of_futuresdr_runs_in_a_block_and_is_swapped_and_compared() {
    let example = Example::built("futuresdr_fir", "fxgraph-fir", "2 passed");
    const FLOWGRAPH: &str = "flowgraphs/futuresdr_fir.yaml";

    assert!(example.said(&["list", "futuresdr_fir"]).contains("cutoff_hz"));
    assert!(example.said(&["test", FLOWGRAPH]).contains("1 passed, 0 failed"));
    let run = example.said(&["run", FLOWGRAPH]);
    assert!(run.contains("heaps_missing"), "{run}");

    let running = example.observe(FLOWGRAPH);
    let swapped = running.said(&["swap", "low", "cutoff_hz=25000"]);
    assert!(swapped.contains("seamless"), "{swapped}");
    let compared =
        running.said(&["compare", "a=low", "b={}", "--duration", "1s", "--max-error", "0"]);
    assert!(compared.contains(" 0 different"), "{compared}");
    running.stop();
}
