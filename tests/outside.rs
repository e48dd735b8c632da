//! Crates outside the workspace, built elsewhere against this checkout: `examples/spectral_kurtosis`, and the one that
//! `fxgraph generate block --crate` writes.

#![allow(clippy::unwrap_used, missing_docs)]

mod cargo;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

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

/// Runs `command`, and returns what it said.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{said}");
    said
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// `cargo` in the crate at `home`.
fn cargo(home: &Path, arguments: &[&str]) -> Command {
    cargo::configure(home);
    let mut cargo = cargo::command("cargo", home);
    cargo.args(arguments);
    cargo
}

#[test]
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

#[test]
fn block_of_another_crate_has_every_command() {
    let root = root();
    let elsewhere = tempfile::tempdir().unwrap();
    let home = elsewhere.path();
    copy(&root.join("examples/spectral_kurtosis"), home);
    let manifest = fs::read_to_string(home.join("Cargo.toml")).unwrap();
    let manifest = manifest.replace("../..", root.to_str().unwrap());
    fs::write(home.join("Cargo.toml"), manifest).unwrap();
    // The same versions of everything, which are compiled once for all crates outside the workspace.
    fs::copy(root.join("Cargo.lock"), home.join("Cargo.lock")).unwrap();
    assert!(said(&mut cargo(home, &["test", "-q"])).contains("3 passed"));
    said(&mut cargo(home, &["build", "-q"]));
    let program = home.join("target/debug/fxgraph-sk");
    let run = |arguments: &[&str]| {
        let mut program = Command::new(&program);
        program.args(arguments).current_dir(home);
        program
    };
    const FLOWGRAPH: &str = "flowgraphs/spectral_kurtosis.yaml";

    assert!(said(&mut run(&["list"])).contains("spectral_kurtosis"));
    assert!(said(&mut run(&["list", "spectral_kurtosis"])).contains("channels_flagged"));
    assert!(said(&mut run(&["schema"])).contains("spectral_kurtosis"));
    said(&mut run(&["validate", FLOWGRAPH]));
    assert!(said(&mut run(&["test", FLOWGRAPH])).contains("1 passed, 0 failed"));
    let bench = said(&mut run(&["bench", "--only", "spectral_kurtosis", "--time", "2s"]));
    assert!(bench.contains("spectral_kurtosis, 1024 channels"), "{bench}");

    let mut running = run(&["run", FLOWGRAPH])
        .args(["--set", "seconds=600", "--set", "paced=true", "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("http://")).unwrap();
    let address = line.split("http://").nth(1).unwrap();
    let address = address.split(['/', ' ']).next().unwrap().to_owned();
    let rest = std::thread::spawn(move || lines.for_each(drop));

    let connected = |arguments: &[&str]| said(run(arguments).args(["--connect", &address]));
    connected(&["set", "rfi.sigmas=8"]);
    let swapped = connected(&["swap", "rfi", "sigmas=6"]);
    assert!(swapped.contains("seamless"), "{swapped}");
    let compared = connected(&["compare", "a=rfi", "b={}", "--duration", "1s", "--max-error", "0"]);
    assert!(compared.contains(" 0 different"), "{compared}");
    connected(&["stop"]);
    assert!(running.wait().unwrap().success());
    rest.join().unwrap();
}
