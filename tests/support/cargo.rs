//! Cargo for tests that build packages outside the workspace. These packages use the dependencies that are compiled for
//! the workspace, in a build directory of their own: Cargo could take the crates of a copy of the workspace for those of
//! the workspace, and overwrite them while the command that runs the tests still needs them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Configures Cargo in `directory` for [`command`]. The crates of this repository are not optimised there, which saves
/// time.
pub fn configure(directory: &Path) {
    copy_dependencies();
    let mut config = format!(
        "[build]\nbuild-dir = \"{}\"\n\n[profile.dev.package]\n",
        build_directory().display()
    );
    for package in [
        "fxgraph",
        "fxgraph-core",
        "fxgraph-cuda",
        "fxgraph-flowgraph",
        "fxgraph-recording",
        "fxgraph-runtime",
        "fxgraph-dsp",
        "fxgraph-formats",
        "fxgraph-kernels",
        "fxgraph-blocks",
        "fxgraph-api",
        "fxgraph-web",
        "fxgraph-cli",
    ] {
        config += &format!("{package} = {{ opt-level = 0, codegen-units = 128 }}\n");
    }
    fs::create_dir_all(directory.join(".cargo")).unwrap();
    fs::write(directory.join(".cargo/config.toml"), config).unwrap();
}

/// Returns `program`, which may call Cargo, in the configured `directory`.
pub fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).env("CARGO_TARGET_DIR", directory.join("target"));
    // Cargo sets these for a test. Build scripts that depend on them, like that of `ring`, would
    // run again, and every crate above would be compiled again.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_MANIFEST_")
            || name == "OUT_DIR"
        {
            command.env_remove(&*name);
        }
    }
    command
}

/// Directory with everything that Cargo compiled for these tests, usually `target/outside`.
fn build_directory() -> PathBuf {
    target().join("outside")
}

/// Build directory of the workspace, usually `target`.
pub fn target() -> &'static Path {
    // Parent of `debug/fxgraph`.
    Path::new(env!("CARGO_BIN_EXE_fxgraph")).ancestors().nth(2).unwrap()
}

/// Copies what Cargo compiled for the workspace, except its own crates, to [`build_directory`].
fn copy_dependencies() {
    let lock = fs::File::create(target().join("outside.lock")).unwrap();
    lock.lock().unwrap();
    let (from, to) = (target().join("debug"), build_directory().join("debug"));
    let is_complete = to.join("complete");
    // Without it, an interrupted copy may have left parts of files.
    if let Err(error) = fs::remove_file(&is_complete) {
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let _ = fs::remove_dir_all(&to);
    }
    for kind in ["deps", "build", ".fingerprint"] {
        let to = to.join(kind);
        fs::create_dir_all(&to).unwrap();
        let names = fs::read_dir(from.join(kind)).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = names
            .filter(|name| {
                let text = name.to_string_lossy();
                let is_own = text.trim_start_matches("lib").starts_with("fxgraph");
                // Others in `deps` are programs, and results of compilers that were interrupted.
                let is_library = kind != "deps" || text.starts_with("lib") || text.ends_with(".d");
                !is_own && is_library && !to.join(name).exists()
            })
            .collect();
        if !names.is_empty() {
            let mut copy = Command::new("cp");
            copy.args(["--archive", "--reflink=auto", "--target-directory"]).arg(&to).args(names);
            assert!(copy.current_dir(from.join(kind)).status().unwrap().success());
        }
    }
    fs::write(is_complete, "").unwrap();
}
