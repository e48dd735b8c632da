//! Lists the files in `src`, which the library embeds.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join("src");
    let out = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?);
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let entry = |path: &PathBuf| {
        let name = path.strip_prefix(&root).unwrap_or(path).to_string_lossy();
        let path = path.to_string_lossy();
        format!("({name:?}, include_bytes!({path:?}).as_slice()),\n")
    };
    let list: String = files.iter().map(entry).collect();
    fs::write(out.join("files.rs"), format!("&[\n{list}]\n"))
}

/// Adds all files below `directory` to `files`.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
