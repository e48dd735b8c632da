//! Follows `blocks/README.md` literally, in a copy of the repository.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Copies what cargo needs: everything but build results and the history.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if name == "target" || name == ".git" || name == "out" {
            continue;
        }
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &to.join(name));
        } else if kind.is_file() {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

#[test]
fn a_newcomer_can_follow_the_page_literally() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    copy(root, folder.path());
    // Shares the compiled dependencies between runs of this test, and with crates outside the workspace.
    let target = root.join("target/outside");

    let page = fs::read_to_string(root.join("blocks/README.md")).unwrap();
    let mut commands = 0;
    for fence in page.split("\n```").skip(1).step_by(2) {
        let (info, body) = fence.split_once('\n').unwrap();
        if let Some((_, file)) = info.split_once(" file=") {
            fs::write(folder.path().join(file), format!("{body}\n")).unwrap();
            continue;
        }
        if info == "rust" {
            continue;
        }
        assert_eq!(info, "sh");
        let output = Command::new("bash")
            .args(["-euc", body])
            .current_dir(folder.path())
            .env("CARGO_TARGET_DIR", &target)
            .env_remove("CARGO_MANIFEST_DIR")
            .output()
            .unwrap();
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
