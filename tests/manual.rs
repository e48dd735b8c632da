//! The manual as the program writes it: its commands and flowgraphs work, its links lead somewhere.

mod fences;

use crate::support::repository::root;
use crate::support::{needs, python};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes the manual into `directory`, and returns path and content of its pages and pictures.
fn write(directory: &Path, arguments: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let mut write = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    assert!(write.arg("manual").arg(directory).args(arguments).status().unwrap().success());
    let mut files = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(inner) = directories.pop() {
        for entry in fs::read_dir(inner).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().display().to_string();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

#[test]
fn commands_and_flowgraphs_of_the_manual_run() {
    if !needs::python() {
        return;
    }
    let pages = fences::pages(&root().join("docs/src"));
    assert!(pages.len() > 20, "{pages:?}");
    let results = fences::run_all(&pages);
    let failures: Vec<&str> =
        results.iter().filter_map(|result| result.as_ref().err()).map(String::as_str).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let fences: usize = results.iter().flatten().sum();
    assert!(fences > 50, "{fences} fences ran");
}

#[test]
fn links_of_the_manual_resolve() {
    let directory = tempfile::tempdir().unwrap();
    let files = write(directory.path(), &[]);
    let page = |path: &str| std::str::from_utf8(&files[path]).unwrap();
    let mut broken = Vec::new();
    let mut links = 0;
    for path in files.keys().filter(|path| is_page(path)) {
        for target in attributes(page(path), "href").chain(attributes(page(path), "src")) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let found = if file.is_empty() { path.clone() } else { joined(path, file) };
            let has_anchor =
                || anchor.is_empty() || attributes(page(&found), "id").any(|id| id == anchor);
            if !files.contains_key(&found) || !has_anchor() {
                broken.push(format!("{path}: {target}"));
            }
        }
    }
    assert!(links > 1000, "{links} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn manual_as_markdown_has_written_and_generated_pages() {
    let directory = tempfile::tempdir().unwrap();
    let files = write(directory.path(), &["--markdown"]);
    let page = |path: &str| std::str::from_utf8(&files[path]).unwrap();
    assert!(page("reference/kinds/fft.md").starts_with("# fft\n"));
    assert!(page("SUMMARY.md").contains("  - [fft](reference/kinds/fft.md)\n"));
    assert!(page("tutorials/first_light.md").starts_with("# First light\n"));
    assert!(files["images/overview.png"].starts_with(b"\x89PNG"));
    assert!(!files.keys().any(|path| is_page(path)));
}

fn is_page(path: &str) -> bool {
    Path::new(path).extension() == Some("html".as_ref())
}

/// Values of the attribute `name` in `html`.
fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = format!(" {name}=\"");
    let parts: Vec<&str> = html.split(start.as_str()).skip(1).collect();
    parts.into_iter().filter_map(|rest| rest.split('"').next())
}

/// The path to which `link` leads from `page`.
fn joined(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}
