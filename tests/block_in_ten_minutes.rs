//! Executes the steps of `blocks/README.md` literally, in a copy of the repository.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/cargo.rs"]
mod cargo;
#[path = "support/repository.rs"]
mod repository;

use repository::root;

use std::fs;
use std::path::Path;

/// Makes `to` a copy of `from` without build results and history. Files that did not change keep their
/// time of modification, so Cargo compiles only what differs from the last run.
fn mirror(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let names = |directory: &Path| -> Vec<_> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    for name in names(to) {
        let (from, to) = (from.join(&name), to.join(&name));
        if to.is_dir() && !from.is_dir() {
            fs::remove_dir_all(to).unwrap();
        } else if to.is_file() && !from.is_file() {
            fs::remove_file(to).unwrap();
        }
    }
    for name in names(from) {
        if ["target", ".git", "out"].iter().any(|other| name == *other) {
            continue;
        }
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            mirror(&from, &to);
        } else if from.is_file() {
            let content = fs::read(&from).unwrap();
            if fs::read(&to).ok().as_ref() != Some(&content) {
                fs::write(&to, content).unwrap();
            }
        }
    }
}

#[test]
#[ignore = "compiles for minutes: .ci/full runs it"]
fn steps_of_the_page_work_literally() {
    let root = root();
    let target = cargo::target();
    let directory = target.join("block_in_ten_minutes");
    // Two runs of this test may share the directory.
    let lock = fs::File::create(target.join("block_in_ten_minutes.lock")).unwrap();
    lock.lock().unwrap();
    mirror(&root, &directory);
    cargo::configure(&directory);

    let page = fs::read_to_string(root.join("blocks/README.md")).unwrap();
    let mut commands = 0;
    for fence in page.split("\n```").skip(1).step_by(2) {
        let (info, body) = fence.split_once('\n').unwrap();
        if let Some((_, file)) = info.split_once(" file=") {
            fs::write(directory.join(file), format!("{body}\n")).unwrap();
            continue;
        }
        if info == "rust" {
            continue;
        }
        assert_eq!(info, "sh");
        let mut bash = cargo::command("bash", &directory);
        // The default, as for a new user: the block is added to a compiled crate.
        bash.env_remove("CARGO_INCREMENTAL");
        let output = bash.args(["-euc", body]).output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = said(&output.stdout) + &said(&output.stderr);
        assert!(output.status.success(), "{body}\n{said}");
        if body.starts_with("cargo test") {
            assert!(said.contains("2 passed"), "the block's own tests ran:\n{said}");
        }
        commands += 1;
    }
    assert_eq!(commands, 4);
}
