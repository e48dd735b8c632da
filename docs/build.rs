//! Builds the manual with mdBook and lists its files.

use mdbook_driver::MDBook;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=book.toml");
    println!("cargo::rerun-if-changed=src");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let html = out.join("book");
    let mut book = MDBook::load(root)?;
    book.config.build.build_dir.clone_from(&html);
    book.build()?;

    let mut files = Vec::new();
    collect(&html, &mut files)?;
    let mut entries = Vec::new();
    for path in files {
        entries.push((path.strip_prefix(&html)?.display().to_string(), path.display().to_string()));
    }
    // `index` searches by name.
    entries.sort();
    let entry = |(name, path): &(String, String)| {
        format!("({name:?}, include_bytes!({path:?}).as_slice()),\n")
    };
    let list: String = entries.iter().map(entry).collect();
    fs::write(out.join("files.rs"), format!("&[\n{list}]\n"))?;
    Ok(())
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
