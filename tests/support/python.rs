//! Python virtual environments with pinned packages, created when first needed.

use super::repository::root;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The interpreter of the tests' environment.
#[allow(dead_code)] // the benchmark includes this file too, and has its own environment
pub fn python() -> PathBuf {
    environment("tests-python", "tests/requirements.txt").unwrap()
}

/// The directory of NVRTC's library, which needs no GPU.
#[allow(dead_code)] // not every test compiles kernels
pub fn nvrtc() -> PathBuf {
    let python = environment("kernels-python", "kernels/requirements.txt").unwrap();
    let script = "import nvidia, os; print(os.path.join(list(nvidia.__path__)[0], 'cu13', 'lib'))";
    let output = Command::new(python).args(["-c", script]).output().unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// Returns the interpreter of the environment `name` with the packages in the file `requirements` of the
/// repository. Created under `target`, and reused if the requirements are the same.
pub fn environment(name: &str, requirements: &str) -> Result<PathBuf, String> {
    // Without a network an attempt takes seconds: one for each environment is enough.
    static FAILED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(reason) = failed.get(name) {
        return Err(reason.clone());
    }
    let made = make_environment(name, requirements);
    if let Err(reason) = &made {
        failed.insert(name.to_owned(), reason.clone());
    }
    made
}

fn make_environment(name: &str, requirements: &str) -> Result<PathBuf, String> {
    let root = root();
    let requirements = root.join(requirements);
    let said = |error: std::io::Error| error.to_string();
    let wanted = std::fs::read_to_string(&requirements).map_err(said)?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    std::fs::create_dir_all(&target).map_err(said)?;
    let environment = target.join(name);
    // Several programs may call this at the same time.
    let lock = File::create(target.join(format!("{name}.lock"))).map_err(said)?;
    lock.lock().map_err(said)?;
    let done = environment.join("made-of");
    let python = environment.join("bin/python");
    if std::fs::read_to_string(&done).ok().as_ref() != Some(&wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--retries", "1", "-r"])
            .arg(requirements))?;
        std::fs::write(done, wanted).map_err(said)?;
    }
    Ok(python)
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed")) }
}
