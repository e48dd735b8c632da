//! The manual: its generated pages are those of this program, its commands and flowgraphs work, its links lead
//! somewhere.

mod fences;
mod generated;

use crate::support::{http, needs, python};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn fxgraph() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    // Help texts wrap at the width of a pipe.
    command.args(["--color", "never"]).env_remove("COLUMNS");
    command
}

#[test]
fn reference_is_that_of_this_program() {
    let mut stale = Vec::new();
    for (path, text) in generated::pages() {
        let file = root().join("docs/src").join(&path);
        if fs::read_to_string(&file).ok().as_ref() == Some(&text) {
            continue;
        }
        if std::env::var_os("UPDATE_MANUAL").is_some() {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        } else {
            stale.push(path);
        }
    }
    assert!(stale.is_empty(), "write them with UPDATE_MANUAL=1: {stale:?}");
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
    let pages: BTreeSet<&str> = fxgraph_manual::FILES.iter().map(|(path, _)| *path).collect();
    let mut broken = Vec::new();
    let mut links = 0;
    for page in pages.iter().filter(|path| is_page(path)) {
        let html = std::str::from_utf8(fxgraph_manual::file(page).unwrap()).unwrap();
        for target in attributes(html, "href").chain(attributes(html, "src")) {
            if target.contains("://")
                || target.starts_with("mailto:")
                || target.starts_with("data:")
            {
                continue;
            }
            links += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let found = if path.is_empty() { (*page).to_owned() } else { joined(page, path) };
            let there = pages.contains(found.as_str());
            let has_anchor = anchor.is_empty() || {
                let html = fxgraph_manual::file(&found).unwrap_or_default();
                let html = std::str::from_utf8(html).unwrap_or_default();
                attributes(html, "id").any(|id| id == anchor)
            };
            if !there || !has_anchor {
                broken.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(links > 1000, "{links} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

fn is_page(path: &str) -> bool {
    Path::new(path).extension() == Some("html".as_ref()) && path != "404.html"
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
