//! Files of other programs: what this program writes is read by independent readers, and what independent
//! writers write is read by this program. Recorded streams are computed again by NumPy.

mod arrays;
mod dada;
mod filterbank;
mod gnss_sdr;
mod guppi;
mod killed;
mod pcapng;
mod restarted;
mod samples;
mod sigmf;
mod sums;
mod uvh5;
mod uvh5_image;
mod vdif;
mod vlbi;
mod zones;

use crate::support::repository::root;
use crate::support::{needs, python};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs `fxgraph` with `arguments` in `directory`.
fn fxgraph(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(arguments).current_dir(directory).output().unwrap()
}

/// Runs the flowgraph with the text `yaml` in `directory` and checks that it succeeds.
fn run_flowgraph(directory: &Path, yaml: &str) {
    std::fs::write(directory.join("flowgraph.yaml"), yaml).unwrap();
    let output = fxgraph(directory, &["run", "--quiet", "flowgraph.yaml"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

/// Runs the Python script `tests/formats/SCRIPT` with `arguments` in `directory`, checks that it succeeds, and
/// returns what it printed.
fn script(directory: &Path, script: &str, arguments: &[&str]) -> String {
    script_in(("tests-formats", "tests/formats/requirements.txt"), directory, script, arguments)
}

/// Like [`script`], with the packages of an environment.
fn script_in(
    (name, requirements): (&str, &str),
    directory: &Path,
    script: &str,
    arguments: &[&str],
) -> String {
    let interpreter = python::environment(name, requirements);
    let path = root().join("tests/formats").join(script);
    let mut command = Command::new(interpreter.unwrap());
    command.arg(path).args(arguments).current_dir(directory);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("MPLBACKEND", "agg");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    said
}

/// Returns a flowgraph of the examples.
#[allow(dead_code, reason = "not every format has one")]
fn example(name: &str) -> PathBuf {
    root().join("flowgraphs").join(name)
}
