//! Stores the Git commit of the build, which benchmark results quote, and lists the flowgraphs inside the program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    note_commit();
    list_examples()
}

/// Writes the lists of `../../flowgraphs/*.yaml` and of what they include.
fn list_examples() -> io::Result<()> {
    let variable = |name| env::var(name).map(PathBuf::from).map_err(io::Error::other);
    let (root, out) = (variable("CARGO_MANIFEST_DIR")?, variable("OUT_DIR")?);
    let directory = root.join("../../flowgraphs").canonicalize()?;
    println!("cargo::rerun-if-changed={}", directory.display());
    let mut examples = String::from("&[\n");
    for (name, path) in yaml_files(&directory)? {
        let name = name.trim_end_matches(".yaml");
        examples
            .push_str(&format!("Example {{ name: {name:?}, text: include_str!({path:?}) }},\n"));
    }
    fs::write(out.join("examples.rs"), examples + "]\n")?;
    let mut includes = String::from("&[\n");
    for (name, path) in yaml_files(&directory.join("include"))? {
        includes.push_str(&format!("(\"include/{name}\", include_str!({path:?})),\n"));
    }
    fs::write(out.join("includes.rs"), includes + "]\n")
}

/// Name and absolute path of the YAML files in `directory`, sorted.
fn yaml_files(directory: &Path) -> io::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension() == Some("yaml".as_ref()) {
            files.push((name, path.display().to_string()));
        }
    }
    files.sort();
    Ok(files)
}

fn note_commit() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // A source archive has no commit.
    let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_default();
    println!("cargo::rustc-env=FXGRAPH_COMMIT={commit}");
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        let from_here = Path::new(&log).canonicalize();
        if let Ok(path) = from_here {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}
