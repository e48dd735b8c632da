//! The Python package: its tests, with this program. `.ci/wheel` runs its notebook.

use crate::support::repository::root;
use crate::support::{needs, python};
use std::path::PathBuf;
use std::process::Command;

/// Directory of the package.
fn package() -> PathBuf {
    root().join("python").canonicalize().unwrap()
}

/// Runs pytest with `arguments` in the directory of the package.
fn pytest(arguments: &[&str]) {
    let python = python::environment("python-client", "python/tests/requirements.txt").unwrap();
    let mut command = Command::new(python);
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).args(arguments);
    command.current_dir(package());
    // The package is pure Python: its source is the installation.
    command.env("PYTHONPATH", package().join("src")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("FXGRAPH", env!("CARGO_BIN_EXE_fxgraph")).env("MPLBACKEND", "agg");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
}

#[test]
fn python_package_works_with_this_program() {
    if needs::python_client() {
        pytest(&["tests"]);
    }
}
