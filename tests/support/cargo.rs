//! Cargo for tests that build packages outside the workspace. These packages share the dependencies
//! that are compiled for the workspace: same versions, same profile, same build directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Configures Cargo in `directory` for [`command`].
///
/// The crates of this repository are not optimised there, which saves time. Their profile differs from that of
/// the workspace, which keeps a copy of the workspace from overwriting the workspace in the build directory, the
/// output of build scripts too: Cargo tells packages of two workspaces apart by profiles and by paths within the
/// workspace only.
pub fn configure(directory: &Path) {
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

/// The directory with everything that Cargo compiled for these tests, usually `target`.
pub fn build_directory() -> PathBuf {
    // Parent of `debug/fxgraph`.
    Path::new(env!("CARGO_BIN_EXE_fxgraph")).ancestors().nth(2).unwrap().to_owned()
}
