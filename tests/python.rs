//! The tests' own Python: a virtual environment with pinned packages, made when first needed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreter of the environment. Made under `target`, reused if it is of the same requirements.
pub fn python() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let requirements = root.join("tests/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements).unwrap();
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    std::fs::create_dir_all(&target).unwrap();
    let environment = target.join("tests-python");
    // Several test programs may get here at once.
    let lock = File::create(target.join("tests-python.lock")).unwrap();
    lock.lock().unwrap();
    let done = environment.join("made-of");
    if std::fs::read_to_string(&done).ok().as_ref() != Some(&wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment));
        let python = environment.join("bin/python");
        run(Command::new(python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(requirements));
        std::fs::write(done, wanted).unwrap();
    }
    environment.join("bin/python")
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?} failed");
}
